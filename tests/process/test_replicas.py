"""Any replica and any worker routes an existing session and an existing task (trial 2).

A miss is an answer by another backend than the one that made the session or task. 0 are allowed.
"""

import itertools
import json
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any

import pytest

from tests.process.harness import ProxyProcess, children_of, config_text, proxy_process
from tests.wire.harness import BackendSide, Client, Message, backend, call, client, post, task
from tests.wire.task_backend import UNKNOWN, created, state

LEGACY = b"MCP-Protocol-Version: 2025-11-25"
MADE = 30  # of each: sessions, and tasks
ROUNDS = 10
NOWHERE = b"HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\n\r\n"


class Private:
    """A server with sessions and tasks that nobody else knows."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.sessions: set[str] = set()
        self.tasks: set[str] = set()
        self.session_misses = 0

    async def script(self, side: BackendSide) -> None:
        while True:
            request = await side.request()
            method = request.get("Mcp-Method")
            if method is None:
                side.send(self._in_session(request.get("Mcp-Session-Id")))
            elif method == "tools/call":
                task_id = f"{self.name}-{len(self.tasks)}"
                self.tasks.add(task_id)
                side.answer(created(task_id))
            else:
                task_id = request.get("Mcp-Name") or ""
                side.answer(state(task_id) if task_id in self.tasks else UNKNOWN)

    def _in_session(self, session: str | None) -> bytes:
        if session is None:
            session = f"{self.name}-{len(self.sessions)}"
            self.sessions.add(session)
        elif session not in self.sessions:
            self.session_misses += 1
            return NOWHERE
        name = self.name.encode()
        fields = b"Mcp-Session-Id: %b\r\nContent-Length: %d" % (session.encode(), len(name))
        return b"HTTP/1.1 200 OK\r\n%b\r\n\r\n%b" % (fields, name)


class Ways:
    """Ways to the backends, one after the other: through each replica in turn."""

    def __init__(self, ports: list[int], stack: AsyncExitStack, *, kept: bool) -> None:
        self._ports = itertools.cycle(ports)
        self._kept: dict[int, Client] = {}
        self._stack = stack
        self._keep = kept

    async def ask(self, data: bytes) -> Message:
        """The answer to a request that goes the next way: over its kept connection, or over a new one."""
        port = next(self._ports)
        if not self._keep:
            async with client(port) as once:
                return await once.ask(data)
        if port not in self._kept:
            self._kept[port] = await self._stack.enter_async_context(client(port))
        return await self._kept[port].ask(data)


@asynccontextmanager
async def fleet(replicas: int, **settings: Any) -> AsyncIterator[tuple[list[Private], list[ProxyProcess]]]:
    """Three backends, and so many proxies of one configuration, each in processes of its own."""
    servers = [Private(name) for name in "abc"]
    async with AsyncExitStack() as stack:
        ports = [(await stack.enter_async_context(backend(server.script))).port for server in servers]
        text = config_text(*ports, **settings)
        yield servers, [await stack.enter_async_context(proxy_process(text)) for _ in range(replicas)]


async def misses(ways: Ways) -> int:
    """Makes sessions and tasks, asks for each some times, and counts the answers that its maker did not give."""
    sessions: list[tuple[bytes, bytes]] = []
    tasks: list[str] = []
    for _ in range(MADE):
        begun = await ways.ask(post(LEGACY))
        sessions.append(((begun.get("Mcp-Session-Id") or "").encode(), begun.body))
    for _ in range(MADE):
        tasks.append(json.loads((await ways.ask(call())).body)["result"]["taskId"])
    # Both come from every backend, or there would be nothing to miss.
    assert {name for _, name in sessions} == {b"a", b"b", b"c"}
    assert {task_id[0] for task_id in tasks} == {"a", "b", "c"}
    missed = 0
    for _ in range(ROUNDS):
        for session, name in sessions:
            for _ in range(2):  # or each session would meet one of two replicas only
                answer = await ways.ask(post(LEGACY, b"Mcp-Session-Id: " + session))
                missed += (answer.status, answer.body, answer.get("Mcp-Session-Id")) != (200, name, session.decode())
        for task_id in tasks:
            for _ in range(2):
                answer = await ways.ask(task(b"get", task_id.encode()))
                missed += json.loads(answer.body).get("result", {}).get("taskId") != task_id
    return missed


@pytest.mark.parametrize("kept", [True, False], ids=["kept connections", "new connections"])
async def test_any_replica_routes_existing_sessions_and_tasks(kept: bool) -> None:
    async with fleet(2) as (servers, proxies), AsyncExitStack() as stack:
        assert await misses(Ways([proxy.port for proxy in proxies], stack, kept=kept)) == 0
        assert sum(server.session_misses for server in servers) == 0
        for proxy in proxies:  # what the other one made was searched once, and is known from then on
            assert await proxy.count("searches_total", outcome="found") == MADE / 2
            assert await proxy.count("searches_total") == MADE / 2
            assert await proxy.count("decisions_total", kind="session", outcome="served") == MADE * ROUNDS


async def test_any_worker_routes_existing_sessions_and_tasks() -> None:
    async with fleet(1, workers=2) as (servers, (proxy,)), AsyncExitStack() as stack:
        assert len(children_of(proxy.command.pid)) == 2
        assert await misses(Ways([proxy.port], stack, kept=False)) == 0
        assert sum(server.session_misses for server in servers) == 0
        # Each worker has pins of its own, and asks for the others': so many show that both had their share.
        assert MADE < await proxy.count("pins", kind="task") <= 2 * MADE
        assert await proxy.count("searches_total") == 0
        assert await proxy.count("decisions_total", kind="session", outcome="served") == 2 * MADE * ROUNDS


async def test_any_worker_of_any_replica_routes_existing_sessions_and_tasks() -> None:
    async with fleet(2, workers=2) as (servers, proxies), AsyncExitStack() as stack:
        assert await misses(Ways([proxy.port for proxy in proxies], stack, kept=False)) == 0
        assert sum(server.session_misses for server in servers) == 0
