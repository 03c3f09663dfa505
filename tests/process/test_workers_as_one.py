"""What one worker knows or is told holds for all of them, and for those that come after."""

import asyncio
import json
import os
import signal
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from tests.process.harness import config_text
from tests.process.lives import Life, life
from tests.wire.harness import BackendSide, ScriptedBackend, backend, call, client, post, task
from tests.wire.task_backend import UNKNOWN, created, state

LEGACY = b"MCP-Protocol-Version: 2025-11-25"
ASKS_BACK = b'{"jsonrpc":"2.0","id":1,"result":{"resultType":"input_required","inputRequests":{},"requestState":"x"}}'
CALLS = 8


class Server:
    """A backend with tasks and sessions that nobody else knows, and a tool `ask` that asks back."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.tasks: dict[str, str] = {}
        self.sessions: set[str] = set()
        self.asked: list[str] = []
        """Tools called, in order."""

    async def script(self, side: BackendSide) -> None:
        while True:
            request = await side.request()
            method, name = request.get("Mcp-Method"), request.get("Mcp-Name") or ""
            if method is None:
                side.send(self._in_session(request.get("Mcp-Session-Id")))
            elif method == "tools/call":
                self.asked.append(name)
                side.answer(self._called(name))
            else:
                side.answer(state(name, self.tasks[name]) if name in self.tasks else UNKNOWN)

    def _called(self, name: str) -> bytes:
        if name == "make":
            task_id = f"{self.name}-{len(self.tasks)}"
            self.tasks[task_id] = "working"
            return created(task_id)
        return ASKS_BACK if name == "ask" else json.dumps({"result": self.name}).encode()

    def _in_session(self, session: str | None) -> bytes:
        if session is None:
            session = f"{self.name}-{len(self.sessions)}"
            self.sessions.add(session)
        elif session not in self.sessions:
            return b"HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\n\r\n"
        fields = b"Mcp-Session-Id: %b\r\nContent-Length: 1" % session.encode()
        return b"HTTP/1.1 200 OK\r\n%b\r\n\r\n%b" % (fields, self.name.encode())


@asynccontextmanager
async def servers(names: str) -> AsyncIterator[tuple[list[Server], list[ScriptedBackend]]]:
    """Backends of these names."""
    made = [Server(name) for name in names]
    if len(made) == 1:
        async with backend(made[0].script) as only:
            yield made, [only]
    else:
        async with backend(made[0].script) as first, servers(names[1:]) as (rest, sides):
            yield [made[0], *rest], [first, *sides]


async def callers_served_by(one: Life, worker: int) -> set[str]:
    """Which backends answer some calls that come to this worker."""
    async with one.client_of(worker) as caller:
        return {json.loads((await caller.ask(call())).body)["result"] for _ in range(CALLS)}


async def made_task(one: Life, worker: int) -> str:
    """The id of a task made through this worker."""
    async with one.client_of(worker) as caller:
        return str(json.loads((await caller.ask(call(b"make"))).body)["result"]["taskId"])


async def made_session(one: Life, worker: int) -> tuple[bytes, bytes]:
    """A session begun through this worker: its id at the client, and its backend's name."""
    async with one.client_of(worker) as caller:
        begun = await caller.ask(post(LEGACY))
        return (begun.get("Mcp-Session-Id") or "").encode(), begun.body


async def in_session(one: Life, worker: int, session: bytes) -> tuple[int, bytes]:
    """Status and body of the answer to a request of this session that comes to this worker."""
    async with one.client_of(worker) as caller:
        answer = await caller.ask(post(LEGACY, b"Mcp-Session-Id: " + session))
        return answer.status, answer.body


def settings(**more: Any) -> dict[str, Any]:
    return {"workers": 2, "drain": "5s", **more}


async def killed_and_replaced(one: Life) -> int:
    """The replacement of a worker that was killed."""
    killed = one.workers[0]
    os.kill(killed, signal.SIGKILL)
    return await one.replaced(killed, 2)


async def test_a_drain_reaches_all_workers_and_their_replacements_and_the_next_generation() -> None:
    async with servers("ab") as (_, sides), life(config_text(*(side.port for side in sides), **settings())) as one:
        status, told = await one.post("/api/backends/agents/a/drain")
        assert (status, told["draining"], told["empty"]) == (200, True, True)
        for worker in one.workers:  # the answer came when all knew
            assert await callers_served_by(one, worker) == {"b"}
        assert await callers_served_by(one, await killed_and_replaced(one)) == {"b"}
        assert await one.count("backend_draining", backend="a") == 1
        await one.gone(await one.renew())
        for worker in one.workers:
            assert await callers_served_by(one, worker) == {"b"}
        assert (await one.backend_told("a"))["draining"] is True

        assert (await one.post("/api/backends/agents/a/undrain"))[0] == 200
        await killed_and_replaced(one)
        for worker in one.workers:
            assert await callers_served_by(one, worker) == {"a", "b"}
        assert await one.count("backend_draining", backend="a") == 0


async def test_a_backend_that_departed_serves_its_sessions_and_tasks_through_every_worker_and_generation() -> None:
    async with servers("ab") as (made, sides), life(config_text(*(side.port for side in sides), **settings())) as one:
        session, name = await made_session(one, one.workers[0])
        task_id = await made_task(one, one.workers[0])
        while {name.decode(), task_id[0]} != {"b"}:  # both of the one that will depart
            session, name = (session, name) if name == b"b" else await made_session(one, one.workers[0])
            task_id = task_id if task_id[0] == "b" else await made_task(one, one.workers[0])
        await one.reload(config_text(sides[0].port, **settings()))

        async def all_serve() -> None:
            for worker in one.workers:
                assert await callers_served_by(one, worker) == {"a"}
                assert await in_session(one, worker, session) == (200, b"b")
                async with one.client_of(worker) as caller:
                    answer = json.loads((await caller.ask(task(b"get", task_id.encode()))).body)
                    assert answer["result"]["taskId"] == task_id

        await all_serve()
        await killed_and_replaced(one)
        await all_serve()
        told = await one.backend_told("b")
        assert (told["departed"], told["unfinished_tasks"], told["recent_sessions"]) == (True, 1, 1)
        await one.gone(await one.renew())
        await all_serve()
        await killed_and_replaced(one)
        await all_serve()
        assert len(made[1].tasks) >= 1


@pytest.mark.parametrize("workers", [1, 2])
async def test_a_backend_that_departs_with_a_new_generation_serves_its_sessions(workers: int) -> None:
    """The file changed since it was read; the next generation is the first that does not name the backend."""
    async with servers("ab") as (_, sides):
        short = {"pins": {"ttl": "1s"}, **settings(workers=workers)}
        async with life(config_text(*(side.port for side in sides), **short)) as one:
            async with client(one.port) as caller:
                begun = await caller.ask(post(LEGACY))
                while begun.body != b"b":
                    begun = await caller.ask(post(LEGACY))
            session = b"Mcp-Session-Id: " + (begun.get("Mcp-Session-Id") or "").encode()
            one.file.write_text(config_text(sides[0].port, **short))
            for _ in range(2):
                await one.gone(await one.renew())
                for _ in range(2):  # and once a second it is looked at whether it is still needed
                    async with client(one.port) as caller:
                        assert (await caller.ask(post(LEGACY, session))).body == b"b"
                    told = await one.backend_told("b")
                    assert told["departed"] is True
                    await asyncio.sleep(1.2)


async def test_a_reload_is_for_all_workers_or_for_none() -> None:
    async with servers("abc") as (_, sides):
        ports = [side.port for side in sides]
        async with life(config_text(ports[0], **settings(workers=1)), "--workers", "2") as one:
            await one.reload("pools: nonsense", "is refused")
            await one.reload(config_text(ports[1], **settings(pins={"capacity": 5})), "is refused")
            assert one.said("only a restart can change pins") == 1
            for worker in one.workers:
                assert await callers_served_by(one, worker) == {"a"}
            assert await one.count("config_reloads_total", outcome="refused") == 2
            assert await one.count("config_last_reload_successful") == 0
            before = one.workers
            # The number of workers is the command line's, whatever the file says.
            await one.reload(config_text(*ports[1:], **settings(workers=3)))
            await one.count("requests_total")  # the workers answer, so they have heard
            assert one.workers == before
            for worker in one.workers:
                assert "a" not in await callers_served_by(one, worker)
            assert await one.count("config_reloads_total", outcome="ok") == 1
            assert await one.count("config_last_reload_successful") == 1
            assert await one.count("worker_restarts_total") == 0


async def test_a_reload_reaches_a_worker_that_is_just_started() -> None:
    async with servers("ab") as (_, sides), life(config_text(sides[0].port, **settings())) as one:
        killed = one.workers[0]
        os.kill(killed, signal.SIGKILL)
        await one.until_said("ended: signal 9")
        await one.reload(config_text(sides[1].port, **settings()))  # before the replacement serves
        await one.replaced(killed, 2)
        for worker in one.workers:
            assert await callers_served_by(one, worker) == {"b"}
        assert await one.count("worker_restarts_total") == 1


async def test_tasks_and_sessions_are_told_of_as_one_process_would() -> None:
    async with servers("a") as ((server,), sides), life(config_text(sides[0].port, **settings())) as one:
        maker, other = one.workers
        task_ids = [await made_task(one, maker), await made_task(one, other)]
        session, _ = await made_session(one, maker)
        assert await in_session(one, other, session) == (200, b"a")
        told = (await one.post("/api/backends/agents/a/drain"))[1]
        assert (told["unfinished_tasks"], told["recent_sessions"], told["empty"]) == (2, 1, False)
        assert await one.count("tasks_held", backend="a") == 2
        for task_id in task_ids:
            server.tasks[task_id] = "completed"
        # Each is seen to be finished by the worker that did not see it made, or by either.
        for worker in (maker, other):
            async with one.client_of(worker) as caller:
                for task_id in task_ids:
                    await caller.ask(task(b"get", task_id.encode()))
        told = await one.backend_told("a")
        assert (told["unfinished_tasks"], told["recent_sessions"]) == (0, 1)
        async with one.client_of(other) as caller:  # ended through the other worker
            ending = post(LEGACY, b"Mcp-Session-Id: " + session).replace(b"POST", b"DELETE", 1)
            assert (await caller.ask(ending)).status == 200
        told = (await one.post("/api/backends/agents/a/drain"))[1]
        assert (told["recent_sessions"], told["empty"]) == (0, True)


async def test_a_task_finished_through_another_worker_than_its_maker_s_is_finished() -> None:
    async with servers("ab") as (made, sides), life(config_text(*(side.port for side in sides), **settings())) as one:
        maker, other = one.workers
        task_id = await made_task(one, maker)
        assert await one.count("tasks_held") == 1
        (owner,) = (server for server in made if task_id in server.tasks)
        owner.tasks[task_id] = "completed"
        async with one.client_of(other) as caller:
            answer = json.loads((await caller.ask(task(b"get", task_id.encode()))).body)
            assert answer["result"]["status"] == "completed"
        told = (await one.post(f"/api/backends/agents/{owner.name}/drain"))[1]
        assert (told["unfinished_tasks"], told["empty"]) == (0, True)
        assert await one.count("pins", kind="task") == 2  # each worker has its own
        assert await one.count("searches_total") == 0  # it asked for the pin


async def test_what_one_worker_has_learned_every_worker_acts_on() -> None:
    """Also where a search would not do: several pools may own the task, and an update may not go to all of them."""
    async with servers("ab") as (_, sides):
        pools = {
            name: {"backends": [{"id": name, "url": f"http://127.0.0.1:{side.port}/mcp"}]}
            for name, side in zip("ab", sides, strict=True)
        }
        routes = [{"name": "rest", "split": {"a": 1, "b": 1}}]
        async with life(config_text(**settings(pools=pools, routes=routes))) as one:
            maker, other = one.workers
            for _ in range(CALLS):
                task_id = await made_task(one, maker)
                async with one.client_of(other) as caller:
                    for method in (b"update", b"cancel", b"get"):
                        answer = await caller.ask(task(method, task_id.encode()))
                        assert (answer.status, json.loads(answer.body)["result"]["taskId"]) == (200, task_id)
            replacement = await killed_and_replaced(one)
            async with one.client_of(replacement) as caller:
                assert (await caller.ask(task(b"cancel", task_id.encode()))).status == 200
            assert await one.count("searches_total") == 0


async def test_others_accept_for_a_worker_that_hangs() -> None:
    async with servers("a") as (_, (side,)), life(config_text(side.port, **settings())) as one:
        hanging, other = one.workers
        os.kill(hanging, signal.SIGSTOP)
        await one.until_said(f"(pid {hanging}) does not answer")
        for _ in range(4 * CALLS):  # some of these connections wait in the queue of the one that hangs
            async with client(one.port) as caller:
                assert (await caller.ask(call())).status == 200
        os.kill(hanging, signal.SIGCONT)
        await one.until_said(f"(pid {hanging}) answers again")
        assert await callers_served_by(one, hanging) == {"a"}
        assert one.workers == [hanging, other]


async def test_who_asked_back_through_one_worker_is_preferred_by_all() -> None:
    async with servers("abc") as (made, sides), life(config_text(*(side.port for side in sides), **settings())) as one:
        asking, other = one.workers
        async with one.client_of(asking) as caller:
            await caller.ask(call(b"ask"))
        (asker,) = (server for server in made if server.asked)
        await one.count("requests_total")  # the workers answer, so they have heard
        for worker in (other, asking, other):
            async with one.client_of(worker) as caller:
                await caller.ask(call(b"ask"))
        assert asker.asked == ["ask"] * 4
        assert sum(len(server.asked) for server in made) == 4


async def test_explain_tells_of_a_pin_that_only_one_worker_has() -> None:
    async with servers("abc") as (_, sides), life(config_text(*(side.port for side in sides), **settings())) as one:
        for maker in one.workers:
            task_id = await made_task(one, maker)
            headers = [["MCP-Protocol-Version", "2026-07-28"], ["Mcp-Method", "tasks/get"], ["Mcp-Name", task_id]]
            status, told = await one.post("/api/explain", {"headers": headers})
            assert status == 200
            (place,) = told["places"]
            assert place["source"] == "pin"
            assert [told["id"] for told in place["backends"]] == [task_id[0]]


async def test_the_numbers_of_all_workers_are_added_up_and_never_go_back() -> None:
    async with servers("ab") as (_, sides), life(config_text(*(side.port for side in sides), **settings())) as one:
        total = 0
        for worker in (*one.workers, 0):
            async with one.client_of(worker or await killed_and_replaced(one)) as caller:
                for _ in range(CALLS):
                    await caller.ask(call())
                total += CALLS
                assert await one.count("requests_total", method="tools/call") == total
                assert await one.count("request_duration_seconds_count", method="tools/call") == total
                assert await one.count("backend_responses_total") == total
                assert await one.count("backend_in_flight") == 0
                assert await one.count("ring_generation") == 1
        assert await one.count("workers") == 2
