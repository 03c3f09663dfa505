"""An owner is killed and comes back with its tasks: meanwhile they are waited for or refused with 503, never unknown.

Everything is real: servers of the official SDK with a store each, killed by SIGKILL, and the proxy as a process. A
frozen server is sent a request and never reads it: so its end comes surely while that request is on its way.
"""

import asyncio
import json
import time
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any, NamedTuple

import aiohttp
import pytest
import pytest_asyncio

from tests.interop.fleet import TaskServer, durable_servers, run_client
from tests.interop.task_store import changes_in
from tests.interop.tasks_core import EXTENSION, VERSION
from tests.process.harness import ProxyProcess, config_text, proxy_process

PATIENCE = 20.0  # seconds; a server of the SDK takes two to start, more where cores are busy
LONG = 60.0  # seconds; a task that no test waits for
SHORT_WAIT = 0.5  # seconds; `owner_wait` where the absence is longer
LONG_WAIT = 30.0  # seconds; `owner_wait` where the absence is shorter
ABSENCE = 1.0  # seconds before a server is started again, for as long as which every client must have polled
TASKS = 36
META = {
    "io.modelcontextprotocol/protocolVersion": VERSION,
    "io.modelcontextprotocol/clientCapabilities": {"extensions": {EXTENSION: {}}},
}


class Answer(NamedTuple):
    """What the proxy answered."""

    status: int
    reason: str
    """Why the proxy itself answered; empty where the server did."""
    retry_after: str
    body: dict[str, Any]

    @property
    def state(self) -> str:
        """The task's status."""
        assert self.status == 200, self
        return str(self.body["result"]["status"])


class Asker:
    """A client that shows what the SDK's hides: statuses, fields and codes."""

    def __init__(self, proxy: ProxyProcess, session: aiohttp.ClientSession) -> None:
        self._proxy = proxy
        self._session = session

    async def ask(self, method: str, name: str, params: dict[str, Any]) -> Answer:
        headers = {
            "Accept": "application/json, text/event-stream",
            "MCP-Protocol-Version": VERSION,
            "Mcp-Method": method,
            "Mcp-Name": name,
        }
        message = {"jsonrpc": "2.0", "id": 1, "method": method, "params": params | {"_meta": META}}
        async with self._session.post(self._proxy.url, json=message, headers=headers) as response:
            fields, body = response.headers, await response.json()
            return Answer(response.status, fields.get("Mcp-Proxy-Error", ""), fields.get("Retry-After", ""), body)

    async def make(self, owner: TaskServer, seconds: float) -> str:
        """The id of a new task of this owner. Servers whose turn it is not make one each as well."""
        for _ in range(50):
            arguments = {"name": "slow_compute", "arguments": {"seconds": seconds}}
            made = (await self.ask("tools/call", "slow_compute", arguments)).body["result"]["taskId"]
            if made.startswith(f"{owner.name}."):
                return str(made)
        raise AssertionError("this server is never chosen")

    async def poll(self, task_id: str) -> Answer:
        answer = await self.ask("tasks/get", task_id, {"taskId": task_id})
        if answer.status == 200:
            assert answer.body["result"]["taskId"] == task_id
        return answer

    async def change(self, verb: str, task_id: str) -> Answer:
        return await self.ask(f"tasks/{verb}", task_id, {"taskId": task_id, "inputResponses": {}})

    async def polled_until(self, state: str, task_id: str) -> list[Answer]:
        """Polls until the task is in that state; returns the answers before that."""
        deadline = time.monotonic() + PATIENCE
        answers: list[Answer] = []
        while (answer := await self.poll(task_id)).status != 200 or answer.state != state:
            assert time.monotonic() < deadline, answer
            answers.append(answer)
            await asyncio.sleep(0.02)
        return answers


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def fleet() -> AsyncIterator[list[TaskServer]]:
    """Three servers whose ids tell a test, and nobody else, who made them. Each test leaves all of them serving."""
    async with durable_servers(3, "--id-style", "prefixed") as servers:
        yield servers


@asynccontextmanager
async def proxy_before(
    fleet: list[TaskServer], owner_wait: float, *, workers: int = 1
) -> AsyncIterator[tuple[ProxyProcess, Asker]]:
    """A proxy that knows no task yet, and somebody who asks it."""
    config = json.loads(config_text(*(server.port for server in fleet), workers=workers))
    config["pools"]["agents"]["timeouts"] = {"owner_wait": f"{owner_wait * 1000:.0f}ms"}
    async with proxy_process(json.dumps(config)) as proxy, aiohttp.ClientSession() as session:
        yield proxy, Asker(proxy, session)


async def killed_with_requests_under_way(server: TaskServer, proxy: ProxyProcess) -> None:
    """Kills it while at least one request has been sent to it and will never be answered."""
    server.freeze()
    deadline = time.monotonic() + PATIENCE
    while not await proxy.count("backend_in_flight", backend=server.name):
        assert time.monotonic() < deadline, "nobody asks it anything"
        await asyncio.sleep(0.01)
    server.kill()


def owner_down(answer: Answer) -> bool:
    """The refusal after which a client is to poll again."""
    return (answer.status, answer.reason, answer.body["error"]["code"]) == (503, "owner_down", -32000) and bool(
        answer.retry_after
    )


def owner_unknown(answer: Answer) -> bool:
    """The same where the proxy does not know who is away."""
    return (answer.status, answer.reason, answer.body["error"]["code"]) == (503, "owner_unknown", -32000) and bool(
        answer.retry_after
    )


async def test_the_tasks_of_an_absent_owner_are_refused_for_now_and_served_again(fleet: list[TaskServer]) -> None:
    """Absent for longer than `owner_wait`. What is told to change a task is not delivered later on."""
    owner, other, _ = fleet
    async with proxy_before(fleet, SHORT_WAIT) as (proxy, asker):
        brief, long = await asker.make(owner, 1.0), await asker.make(owner, LONG)
        others = await asker.make(other, LONG)
        assert (await asker.poll(long)).state == "working"
        owner.kill()

        for _ in range(2):
            began = time.monotonic()
            assert owner_down(await asker.poll(long))
            assert time.monotonic() - began > SHORT_WAIT / 2  # it was waited for
        refused = await asyncio.gather(*(asker.change(verb, long) for verb in ("update", "cancel")))
        assert all(map(owner_down, refused)), refused
        assert (await asker.poll(others)).state == "working"  # nobody else is concerned

        owner.start()
        assert all(map(owner_down, await asker.polled_until("working", long)))
        assert all(answer.state == "working" for answer in await asker.polled_until("completed", brief))
        assert changes_in(owner.store, long) == []
        assert (await asker.change("cancel", long)).status == 200
        assert (await asker.poll(long)).state == "cancelled"
        assert changes_in(owner.store, long) == ["tasks/cancel"]
        assert await proxy.count("searches_total") == 0
        assert await proxy.count("decisions_total", outcome="unknown") == 0
        assert await proxy.count("decisions_total", outcome="owner_down") >= 4


async def test_a_proxy_that_knows_no_task_never_takes_the_others_word_for_it(fleet: list[TaskServer]) -> None:
    """The siblings all say -32602. Meanwhile a proxy that knows the owner waits for it."""
    _, owner, other = fleet
    async with proxy_before(fleet, LONG_WAIT) as (_, knowing), proxy_before(fleet, SHORT_WAIT) as (fresh, asker):
        task_id, others = await knowing.make(owner, LONG), await knowing.make(other, LONG)
        owner.kill()
        waiting = asyncio.create_task(knowing.poll(task_id))

        refused = [await asker.poll(task_id) for _ in range(2)]
        refused += await asyncio.gather(*(asker.change(verb, task_id) for verb in ("update", "cancel")))
        assert all(map(owner_unknown, refused)), refused
        assert (await asker.poll(others)).state == "working"  # the one that has it says so
        assert not waiting.done()

        owner.start()
        assert all(map(owner_unknown, await asker.polled_until("working", task_id)))
        assert (await waiting).state == "working"
        assert [changes_in(server.store, task_id) for server in fleet] == [[], [], []]
        searches = await fresh.count("searches_total")
        assert (await asker.poll(task_id)).state == "working"
        assert await fresh.count("searches_total") == searches  # by pin now


async def test_a_poll_that_its_owner_took_along_is_answered_when_it_is_back(fleet: list[TaskServer]) -> None:
    """A change is not: it may have happened. It fails at once, and is not delivered later on either."""
    _, _, owner = fleet
    async with proxy_before(fleet, LONG_WAIT) as (proxy, asker):
        task_id = await asker.make(owner, LONG)
        polling = asyncio.create_task(asker.poll(task_id))
        try:
            await killed_with_requests_under_way(owner, proxy)
        finally:
            await owner.come_back()
        assert (await polling).state == "working"
        cancelling = asyncio.create_task(asker.change("cancel", task_id))
        try:
            await killed_with_requests_under_way(owner, proxy)
            answer = await cancelling
            assert (answer.status, answer.reason) == (502, "backend_closed")
        finally:
            await owner.come_back()
        assert (await asker.poll(task_id)).state == "working"
        assert changes_in(owner.store, task_id) == []


@pytest.mark.parametrize("workers", [1, 2])
async def test_the_official_client_loses_nothing(fleet: list[TaskServer], workers: int) -> None:
    """It gives up at the first error. The owner is away for less than `owner_wait`.

    Of two workers each has its own pins, and asks the supervisor for the other's.
    """
    owner, _, _ = fleet
    async with proxy_before(fleet, LONG_WAIT, workers=workers) as (proxy, _):
        flags = ("--n", str(TASKS), "--conc", str(TASKS), "--seconds", "4", "--poll", "0.1")
        running = asyncio.create_task(run_client(proxy.url, *flags))
        await proxy.until_count(TASKS, "tasks_held")
        await killed_with_requests_under_way(owner, proxy)
        await asyncio.sleep(ABSENCE)
        await owner.come_back()
        counts = await running
        assert counts["created"] == counts["completed"] == TASKS, counts
        assert min(counts.get(f"by:{server.name}", 0) for server in fleet) > 0
        assert not [key for key in counts if "error" in key or key.startswith("connection:")]
        assert await proxy.count("decisions_total", outcome="unknown") == 0
        assert await proxy.count("searches_total") == 0


async def test_whichever_worker_is_asked_waits_for_an_absent_owner(fleet: list[TaskServer]) -> None:
    """One of them has the pin; the other asks for it, and waits as well."""
    owner, _, _ = fleet
    async with proxy_before(fleet, LONG_WAIT, workers=2) as (proxy, asker), AsyncExitStack() as stack:
        task_id = await asker.make(owner, LONG)
        sessions = [await stack.enter_async_context(aiohttp.ClientSession()) for _ in range(16)]
        owner.kill()
        polls = [asyncio.create_task(Asker(proxy, session).poll(task_id)) for session in sessions]
        _, waiting = await asyncio.wait(polls, timeout=ABSENCE)
        assert len(waiting) == len(polls)
        await owner.come_back()
        assert [(await poll).state for poll in polls] == ["working"] * len(polls)
        assert await proxy.count("searches_total") == 0
