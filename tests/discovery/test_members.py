"""A proxy whose backends are discovered, by a real name server and real files: who serves, who stays, what is told."""

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from threading import Event
from typing import Any

import aiohttp
import pytest

from proxy import membership
from proxy.app import Proxy
from proxy.config import parse
from proxy.routing.ownership import session_tag
from proxy.routing.ring import Ring
from tests.discovery.dns_server import NameServer, name_server
from tests.discovery.test_sources import put
from tests.wire.harness import (
    BackendSide,
    Client,
    ScriptedBackend,
    backend,
    call,
    client,
    closed_port,
    metric,
    post,
    running,
    task,
    until,
)
from tests.wire.task_backend import UNKNOWN, TaskBackend

ONE, TWO, THREE = "127.0.0.1", "127.0.0.2", "127.0.0.3"


def text_of(discover: str, *lines: str, path: str = "/mcp") -> str:
    further = "\n".join(f"    {line}" for line in lines)
    return f"""
listen: 127.0.0.1:0
admin: 127.0.0.1:0
log: {{access: false}}
drain: 0s
pools:
  agents:
    discover: {discover}
{further}
routes:
  - {{name: rest, pool: agents}}
"""


def by_name(server: NameServer, port: int, hold: str = "0s") -> str:
    return f"{{dns: 'agents.test:{port}', resolver: '{server.place}', hold: {hold}}}"


def apply(proxy: Proxy, text: str) -> None:
    proxy.apply(parse(text, "changed.yaml", {}))


def ids(proxy: Proxy) -> list[str]:
    return [member.backend.id for member in proxy.pools["agents"].members]


async def admin(proxy: Proxy, path: str) -> tuple[int, str]:
    async with aiohttp.ClientSession() as session:
        async with session.get(f"http://127.0.0.1:{proxy.admin_port}{path}") as answer:
            return answer.status, await answer.text()


async def pool_told(proxy: Proxy) -> Any:
    return json.loads((await admin(proxy, "/api/pools"))[1])["pools"][0]


async def made_by(caller: Client) -> str:
    return str(json.loads((await caller.ask(call())).body)["result"]["taskId"])


@asynccontextmanager
async def makers(count: int = 3) -> AsyncIterator[list[ScriptedBackend]]:
    """Backends that make tasks, on addresses of their own and one port."""
    port = closed_port()
    tasks = [TaskBackend(*(f"{name}-{number}" for number in range(1000))) for name in "abc"[:count]]
    listening: list[ScriptedBackend] = []
    try:
        for number, one in enumerate(tasks):
            server = ScriptedBackend(one.script, f"127.0.0.{number + 1}", port)
            await server.listen()
            listening.append(server)
        yield listening
    finally:
        for server in listening:
            await server.end()


async def test_addresses_of_a_name_serve_and_are_told() -> None:
    async with makers(2) as (one, _):
        with name_server(agents_test=[ONE, TWO]) as server:
            async with running(text_of(by_name(server, one.port))) as proxy, client(proxy.port) as caller:
                await until(lambda: len(ids(proxy)) == 2)
                assert await admin(proxy, "/readyz") == (200, "ready\n")
                assert {(await made_by(caller))[0] for _ in range(10)} == {"a", "b"}
                assert await metric(proxy, "discovered_backends", pool="agents") == 2
                assert await metric(proxy, "discovery_last_success_timestamp_seconds", pool="agents") > 0
                assert await metric(proxy, "discovery_failures_total") == 0
                told = await pool_told(proxy)
                assert told["discovery"]["from"] == f"dns agents.test:{one.port}"
                assert [(shown["id"], shown["discovered"]) for shown in told["backends"]] == [
                    (f"{ONE}:{one.port}", True),
                    (f"{TWO}:{one.port}", True),
                ]


async def test_a_pool_is_empty_until_its_name_has_been_told() -> None:
    async with makers(1) as (one,):
        with name_server(agents_test=[ONE]) as server:
            server.code = "SERVFAIL"
            async with running(text_of(by_name(server, one.port))) as proxy, client(proxy.port) as caller:
                waiting = (503, "the backends of pool agents are not discovered yet\n")
                assert await admin(proxy, "/readyz") == waiting
                answer = await caller.ask(call())
                assert (answer.status, answer.get("Mcp-Proxy-Error")) == (503, "no_backend")
                for method, reason in ((b"get", "no_backend"), (b"cancel", "owner_unknown")):
                    answer = await caller.ask(task(method, b"x"))
                    assert (answer.status, answer.get("Mcp-Proxy-Error")) == (503, reason)
                while not await metric(proxy, "discovery_failures_total", pool="agents", reason="servfail"):
                    await asyncio.sleep(0.01)
                assert (await pool_told(proxy))["discovery"]["failure"] == "no name server gives an answer"
                server.code = "NOERROR"
                await until(lambda: ids(proxy))
                assert await admin(proxy, "/readyz") == (200, "ready\n")
                assert (await caller.ask(call())).status == 200


@pytest.mark.parametrize("search", ["true", "false"])
async def test_owners_that_are_not_discovered_yet_are_not_declared_gone(search: str) -> None:
    """After a restart, sessions and tasks live on backends that the proxy is about to find."""

    async def script(side: BackendSide) -> None:
        while True:
            request = await side.request()
            side.answer(UNKNOWN if request.get("Mcp-Method") else b"{}")

    async with backend(script) as one, backend(script, TWO, one.port):
        listed = (f"backends: ['http://{ONE}:{one.port}/mcp']", f"tasks: {{search: {search}}}")
        session = post(f"Mcp-Session-Id: {session_tag('agents', f'{TWO}:{one.port}')}.s".encode())
        with name_server(agents_test=[TWO]) as server:
            server.code = "SERVFAIL"
            text = text_of(by_name(server, one.port), *listed)
            async with running(text) as proxy, client(proxy.port) as caller:
                for request, reason in (
                    (session, "no_backend"),
                    (task(b"get", b"x"), "owner_unknown"),
                    (task(b"cancel", b"x"), "owner_unknown"),
                ):
                    answer = await caller.ask(request)
                    assert (answer.status, answer.get("Mcp-Proxy-Error")) == (503, reason)
                    assert answer.get("Retry-After")
                apply(proxy, text + "# the same\n")
                assert (await caller.ask(session)).status == 503
                server.code = "NOERROR"
                await until(lambda: len(ids(proxy)) == 2)
                assert (await caller.ask(session)).status == 200
                assert (await caller.ask(task(b"get", b"x"))).body == UNKNOWN
                gone = post(b"Mcp-Session-Id: 0123456789.s")
                assert (await caller.ask(gone)).get("Mcp-Proxy-Error") == "session_owner_gone"


async def test_who_left_serves_what_it_owns_and_nothing_new() -> None:
    async with makers() as (one, _, _):
        with name_server(agents_test=[ONE, TWO, THREE]) as server:
            async with running(text_of(by_name(server, one.port))) as proxy, client(proxy.port) as caller:
                await until(lambda: len(ids(proxy)) == 3)
                made = [await made_by(caller) for _ in range(30)]
                assert {task_id[0] for task_id in made} == {"a", "b", "c"}
                server.names = {"agents.test": [ONE, THREE]}
                await until(lambda: len(ids(proxy)) == 2)
                assert {(await made_by(caller))[0] for _ in range(20)} == {"a", "c"}
                for task_id in made:
                    assert b"error" not in (await caller.ask(task(b"get", task_id.encode()))).body
                assert await metric(proxy, "discovered_backends") == 2
                assert await metric(proxy, "searches_total") == 0
                server.names = {"agents.test": [ONE, TWO, THREE]}
                await until(lambda: len(ids(proxy)) == 3)
                assert {(await made_by(caller))[0] for _ in range(20)} == {"a", "b", "c"}


@pytest.mark.parametrize("trouble", ["empty", "no name", "error", "silence"])
async def test_a_pool_that_serves_is_not_emptied_by_a_name_server_in_trouble(trouble: str) -> None:
    async with makers(1) as (one,):
        with name_server(agents_test=[ONE]) as server:
            async with running(text_of(by_name(server, one.port))) as proxy, client(proxy.port) as caller:
                await until(lambda: ids(proxy))
                count = len(server.asked)
                if trouble in ("empty", "no name"):
                    server.names = {"agents.test": []} if trouble == "empty" else {}
                else:
                    server.code, server.silent = "SERVFAIL", trouble == "silence"
                await until(lambda: len(server.asked) >= count + 2)
                reasons = {"error": "servfail", "silence": "timeout"}
                async with asyncio.timeout(10):
                    while not await metric(proxy, "discovery_failures_total", reason=reasons.get(trouble, "empty")):
                        await asyncio.sleep(0.05)
                assert (await caller.ask(call())).status == 200
                assert len(ids(proxy)) == 1


async def test_files_are_followed(tmp_path: Path) -> None:
    async with makers(2) as (one, _):
        port = one.port
        put(tmp_path / "t.json", json.dumps([{"targets": [f"{ONE}:{port}"]}]))
        discover = f"{{file: '{tmp_path}/*.json', hold: 0s}}"
        async with running(text_of(discover)) as proxy, client(proxy.port) as caller:
            await until(lambda: ids(proxy) == [f"{ONE}:{port}"])
            assert (await made_by(caller)).startswith("a")
            targets = [f"{ONE}:{port}", f"{TWO}:{port}"]
            put(tmp_path / "t.json", json.dumps([{"targets": targets, "labels": {"__weight__": "3"}}]))
            await until(lambda: ids(proxy) == targets)
            assert [member.backend.weight for member in proxy.pools["agents"].members] == [3, 3]
            put(tmp_path / "t.json", "[")
            async with asyncio.timeout(5):
                while not await metric(proxy, "discovery_failures_total", reason="malformed"):
                    await asyncio.sleep(0.01)
            assert ids(proxy) == targets


async def test_listed_backends_stay_whatever_is_discovered(tmp_path: Path) -> None:
    async with makers(2) as (one, _):
        listed = f"backends: [{{id: '{ONE}:{one.port}', url: 'http://{ONE}:{one.port}/mcp', weight: 5}}]"
        file = tmp_path / "t.json"
        put(file, json.dumps([{"targets": [f"{ONE}:{one.port}", f"{TWO}:{one.port}"]}]))
        async with running(text_of(f"{{file: {file}, hold: 0s}}", listed)) as proxy, client(proxy.port) as caller:
            assert await admin(proxy, "/readyz") == (200, "ready\n")  # somebody is there in any case
            assert (await made_by(caller)).startswith("a")
            await until(lambda: len(ids(proxy)) == 2)
            assert [member.backend.weight for member in proxy.pools["agents"].members] == [5, 1]
            assert await metric(proxy, "discovered_backends") == 1
            put(file, json.dumps([{"targets": [f"{TWO}:{one.port}"]}]))
            await until(lambda: [m.backend.discovered for m in proxy.pools["agents"].members] == [False, True])


async def test_a_drain_by_command_outlives_answers() -> None:
    async with makers(2) as (one, _):
        with name_server(agents_test=[ONE, TWO]) as server:
            async with running(text_of(by_name(server, one.port))) as proxy, client(proxy.port) as caller:
                await until(lambda: len(ids(proxy)) == 2)
                proxy.set_draining(pool="agents", backend=f"{TWO}:{one.port}", draining=True)
                server.names = {"agents.test": [ONE, TWO, THREE]}
                await until(lambda: len(ids(proxy)) == 3)
                proxy.set_draining(pool="agents", backend=f"{THREE}:{one.port}", draining=True)
                assert {(await made_by(caller))[0] for _ in range(6)} == {"a"}


async def test_a_configuration_that_begins_to_discover_loses_nobody_meanwhile() -> None:
    async with makers(2) as (one, _):
        with name_server(agents_test=[TWO]) as server:
            server.code = "SERVFAIL"
            listed = f"backends: ['http://{ONE}:{one.port}/mcp']"
            before = text_of("x", listed).replace("    discover: x\n", "")
            async with running(before) as proxy, client(proxy.port) as caller:
                mine = await made_by(caller)
                apply(proxy, text_of(by_name(server, one.port)))
                assert (await made_by(caller)).startswith("a")
                server.code = "NOERROR"
                await until(lambda: ids(proxy) == [f"{TWO}:{one.port}"])
                assert (await made_by(caller)).startswith("b")
                assert b"error" not in (await caller.ask(task(b"get", mine.encode()))).body
                apply(proxy, before)
                assert ids(proxy) == [f"{ONE}:{one.port}"]
                assert (await made_by(caller)).startswith("a")
                assert await metric(proxy, "discovered_backends") == 0


async def test_reloading_the_same_configuration_changes_no_member() -> None:
    async with makers(2) as (one, _):
        with name_server(agents_test=[ONE, TWO]) as server:
            text = text_of(by_name(server, one.port))
            async with running(text) as proxy:
                await until(lambda: len(ids(proxy)) == 2)
                members, asked = proxy.pools["agents"].members, len(server.asked)
                apply(proxy, text + "# the same\n")
                assert proxy.pools["agents"].members == members
                await until(lambda: len(server.asked) >= asked + 2)
                assert proxy.pools["agents"].members == members


async def test_backends_are_called_by_their_name_where_they_get_their_own_host() -> None:
    async with backend() as one:
        with name_server(agents_test=[ONE]) as server:
            probed = "health: {path: /health, interval: 100ms}"
            text = text_of(by_name(server, one.port), "host: backend", probed)
            async with running(text) as proxy, client(proxy.port) as caller:
                await until(lambda: ids(proxy))
                await caller.ask(call().replace(b"Host: mcp.test", b"Host: localhost"))
                await until(lambda: any(request.first.startswith(b"GET /health") for request in one.requests))
                assert {request.get("Host") for request in one.requests} == {f"agents.test:{one.port}"}


async def test_who_is_discovered_is_probed_and_who_left_is_not() -> None:
    async with backend() as one, backend(host=TWO, port=one.port) as two:
        with name_server(agents_test=[ONE]) as server:
            text = text_of(by_name(server, one.port), "health: {path: /health, interval: 50ms}")
            async with running(text) as proxy:
                await until(lambda: one.requests)
                server.names = {"agents.test": [TWO]}
                await until(lambda: two.requests)
                await until(lambda: ids(proxy) == [f"{TWO}:{one.port}"])
                count, seen = len(one.requests), len(two.requests)
                await until(lambda: len(two.requests) > seen + 3)
                assert len(one.requests) <= count + 1  # one may have been under way


async def test_the_ring_of_a_large_pool_is_built_beside_the_traffic(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Requests are served while it is built, and a configuration that comes meanwhile counts."""
    go, building = Event(), Event()

    class Slow(Ring):
        def __init__(self, weights: dict[str, int]) -> None:
            building.set()
            assert go.wait(10)
            super().__init__(weights)

    monkeypatch.setattr(membership, "Ring", Slow)
    async with makers(1) as (one,):
        listed = f"backends: ['http://{ONE}:{one.port}/mcp']"
        put(tmp_path / "t.json", json.dumps([{"targets": [f"10.0.0.{number}:1" for number in range(200)]}]))
        text = text_of(f"{{file: {tmp_path}/t.json}}", listed)
        async with running(text) as proxy, client(proxy.port) as caller:
            await until(building.is_set)
            assert (await caller.ask(call())).status == 200
            assert len(ids(proxy)) == 1
            apply(proxy, text.replace(listed, f"backends: ['http://{ONE}:{one.port}/mcp', 'http://x.test:1']"))
            building.clear()
            go.set()
            await until(lambda: len(ids(proxy)) == 202)
            assert building.is_set()
            ring = proxy.pools["agents"].in_order("x")
            assert {member.backend.id for member in ring} == set(ids(proxy))
