"""Backends that fail clients are out of new work for a while, and what they own is still theirs."""

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial
from typing import Any

import aiohttp

from proxy.app import Proxy
from proxy.config import parse
from tests.wire.harness import (
    BackendSide,
    Client,
    ScriptedBackend,
    answer_always,
    answering,
    backend,
    call,
    client,
    closed_port,
    config_text,
    metric,
    post,
    running,
    until,
)

SOON = "    balance: round_robin\n    outlier: {consecutive: 3, ejection: 300ms}"
LONG = "    balance: round_robin\n    outlier: {consecutive: 3, ejection: 1h}"
BUSY = b"HTTP/1.1 503 Service Unavailable\r\nContent-Length: 4\r\n\r\nbusy"
SESSION = b'{"jsonrpc":"2.0","id":1,"result":{}}'


class Moody(ScriptedBackend):
    """Answers 503 while it is in a bad mood, and 200 with its name otherwise."""

    bad = True

    def __init__(self, name: bytes) -> None:
        super().__init__(self.play)
        self.name = name

    async def play(self, side: BackendSide) -> None:
        while True:
            request = await side.request()
            if self.bad:
                side.send(BUSY)
            elif request.body == b"initialize":
                head = b"HTTP/1.1 200 OK\r\nMcp-Session-Id: of-%s\r\nContent-Length: %d\r\n\r\n"
                side.send(head % (self.name, len(SESSION)) + SESSION)
            else:
                side.answer(self.name)


@asynccontextmanager
async def moody(name: bytes) -> AsyncIterator[Moody]:
    one = Moody(name)
    await one.listen()
    try:
        yield one
    finally:
        await one.stop_listening()
        for playing in one.playing:
            playing.cancel()
        await until(lambda: not one.playing)


async def statuses(asking: Client, count: int) -> list[int]:
    return [(await asking.ask(call())).status for _ in range(count)]


async def up(proxy: Proxy, backend_id: str) -> float:
    return await metric(proxy, "backend_up", pool="agents", backend=backend_id)


async def pools(proxy: Proxy) -> Any:
    url = f"http://127.0.0.1:{proxy.admin_port}/api/pools"
    async with aiohttp.ClientSession() as session, session.get(url) as answer:
        return (await answer.json())["pools"][0]["backends"]


async def test_a_backend_that_answers_503_is_ejected_and_comes_back() -> None:
    async with moody(b"a") as a, backend() as b, running(config_text(a.port, b.port, pool=SOON)) as proxy:
        async with client(proxy.port) as asking:
            assert sorted(await statuses(asking, 6)) == [200] * 3 + [503] * 3
            assert await statuses(asking, 6) == [200] * 6
            assert (len(a.requests), await up(proxy, "a"), await up(proxy, "b")) == (3, 0, 1)
            assert await metric(proxy, "ejections_total", pool="agents") == 1
            a.bad = False
            member = proxy.pools["agents"].members[0]
            await until(lambda: not member.ejected)
            assert await up(proxy, "a") == 1
            assert await statuses(asking, 40) == [200] * 40
            assert 3 < len(a.requests) < 20  # slowly at first


async def test_an_owner_is_asked_while_it_is_ejected() -> None:
    async with moody(b"a") as a, backend() as b, running(config_text(a.port, b.port, pool=LONG)) as proxy:
        a.bad = False
        async with client(proxy.port) as asking:
            sessions = [(await asking.ask(post(body=b"initialize"))).get("Mcp-Session-Id") for _ in range(2)]
            (session,) = [one for one in sessions if one is not None and one.endswith("of-a")]
            a.bad = True
            assert sorted(await statuses(asking, 6)) == [200] * 3 + [503] * 3
            assert await up(proxy, "a") == 0
            a.bad, before = False, len(a.requests)
            for _ in range(5):
                answer = await asking.ask(post(b"Mcp-Session-Id: " + session.encode()))
                assert (answer.status, answer.body) == (200, b"a")
            assert len(a.requests) == before + 5
            assert await statuses(asking, 6) == [200] * 6
            assert len(a.requests) == before + 5  # and no new work, however well it serves its own
            (shown, other) = await pools(proxy)
            assert (shown["up"], other["up"], other["ejected"]) == (True, True, None)
            assert 3500 < shown["ejected"] <= 3600


async def test_backends_that_refuse_connections_are_ejected() -> None:
    """Their requests are served by others all the same: nothing was sent. But each costs an attempt."""
    async with backend() as b, running(config_text(closed_port(), b.port, pool=LONG)) as proxy:
        async with client(proxy.port) as asking:
            assert await statuses(asking, 12) == [200] * 12
            assert await metric(proxy, "retries_total", pool="agents") == 3
            assert await up(proxy, "a") == 0


async def test_backends_that_close_early_are_ejected() -> None:
    async def cut(side: BackendSide) -> None:
        await side.request()
        side.send(b"HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\nhalf")

    async with backend(cut) as a, backend() as b, running(config_text(a.port, b.port, pool=LONG)) as proxy:
        for _ in range(8):
            async with client(proxy.port) as asking:
                asking.send(call())
                await asking.reader.read(1000)
        await until(lambda: proxy.pools["agents"].members[0].ejected)
        assert len(a.requests) == 3


def has_seen(requests: int, *backends: ScriptedBackend) -> bool:
    return sum(len(one.requests) for one in backends) >= requests


async def test_a_client_that_leaves_is_not_the_backend_s_fault() -> None:
    async def silent(side: BackendSide) -> None:
        await side.request()
        await side.peer_closes()

    async with backend(silent) as a, backend() as b, running(config_text(a.port, b.port, pool=LONG)) as proxy:
        for number in range(10):
            async with client(proxy.port) as asking:
                asking.send(call())
                await until(partial(has_seen, number + 1, a, b))
        assert len(a.requests) == 5
        await until(lambda: not a.open)
        assert await up(proxy, "a") == 1
        assert proxy.pools["agents"].members[0].conduct.failures == 0


async def test_only_half_of_a_pool_is_ejected() -> None:
    async with backend(answering(BUSY)) as one:
        async with running(config_text(one.port, one.port, one.port, one.port, pool=LONG)) as proxy:
            async with client(proxy.port) as asking:
                assert await statuses(asking, 40) == [503] * 40  # nobody is better: all of them are asked
            assert [await up(proxy, name) for name in "abcd"].count(0.0) == 2


async def test_the_only_backend_of_a_pool_is_never_ejected() -> None:
    async with moody(b"a") as a, running(config_text(a.port, pool=LONG)) as proxy:
        async with client(proxy.port) as asking:
            assert await statuses(asking, 20) == [503] * 20
            a.bad = False
            assert await statuses(asking, 1) == [200]
        assert await up(proxy, "a") == 1


async def test_off_is_off() -> None:
    off = "    balance: round_robin\n    outlier: off"
    async with moody(b"a") as a, backend() as b, running(config_text(a.port, b.port, pool=off)) as proxy:
        async with client(proxy.port) as asking:
            assert sorted(await statuses(asking, 40)) == [200] * 20 + [503] * 20


# ---- together with probes
async def test_probes_keep_new_work_away_and_give_it_back() -> None:
    well = asyncio.Event()
    well.set()

    async def script(side: BackendSide) -> None:
        while True:
            request = await side.request()
            if request.first.startswith(b"GET /health "):
                side.send(b"HTTP/1.1 %d x\r\nContent-Length: 0\r\n\r\n" % (200 if well.is_set() else 500))
            else:
                side.answer()

    probed = "    balance: round_robin\n    health: {path: /health, interval: 100ms, timeout: 100ms, rise: 1, fall: 2}"
    async with backend(script) as a, running(config_text(a.port, closed_port(), pool=probed)) as proxy:
        a_member, b_member = proxy.pools["agents"].members
        async with client(proxy.port) as asking:
            await until(lambda: not b_member.up)
            assert await statuses(asking, 6) == [200] * 6
            assert await metric(proxy, "retries_total", pool="agents") == 0
            well.clear()
            await until(lambda: not a_member.up)
            refused = await asking.ask(call())
            assert (refused.status, refused.get("Mcp-Proxy-Error")) == (503, "no_backend")
            assert refused.get("Retry-After") is not None
            shown = await pools(proxy)
            assert [(one["id"], one["up"], one["probe"]) for one in shown] == [
                ("a", False, "answered 500"),
                ("b", False, "cannot be reached: Connection refused"),
            ]
            question = {"headers": [["MCP-Protocol-Version", "2026-07-28"], ["Mcp-Method", "tools/list"]]}
            url = f"http://127.0.0.1:{proxy.admin_port}/api/explain"
            async with aiohttp.ClientSession() as session, session.post(url, json=question) as answer:
                assert json.loads(await answer.text())["error"]["reason"] == "no_backend"
            well.set()
            await until(lambda: a_member.up)
            assert await statuses(asking, 3) == [200] * 3


async def test_health_survives_a_reload_and_ends_with_the_probes() -> None:
    probed = "    health: {path: /health, interval: %s, timeout: 100ms, rise: 1, fall: 1}"
    dead = closed_port()
    async with backend(answer_always) as b:
        text = config_text(dead, b.port, pool=probed % "100ms")
        async with running(text) as proxy:
            await until(lambda: not proxy.pools["agents"].members[0].up)
            proxy.apply(parse(config_text(dead, b.port, pool=probed % "1h"), "test.yaml", {}))
            assert await up(proxy, "a") == 0
            proxy.apply(parse(config_text(dead, b.port), "test.yaml", {}))
            assert await up(proxy, "a") == 1
