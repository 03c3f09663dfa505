"""Clients that are too slow, too idle or too many lose their place; those that only wait for an answer never do."""

import asyncio
import socket
import time
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager

import pytest

from proxy.app import Proxy
from proxy.config import parse
from tests.wire.harness import (
    MODERN,
    PATIENCE,
    BackendSide,
    Client,
    ScriptedBackend,
    backend,
    call,
    client,
    config_text,
    metric,
    post,
    running,
    until,
)

SHORT = "head: 300ms, body: 300ms, idle: 300ms"
DISCOVER = post(*MODERN, b"Mcp-Method: server/discover")
HEAD = b"POST /mcp HTTP/1.1\r\nHost: x\r\n"


@asynccontextmanager
async def limited(limits: str, a: ScriptedBackend) -> AsyncIterator[Proxy]:
    text = config_text(a.port, listen=f"{{address: '127.0.0.1:0', limits: {{{limits}}}}}")
    async with running(text) as proxy:
        yield proxy


async def is_timeout(c: Client) -> bool:
    """True if the client is told that it took too long, and its connection closes."""
    answer = await c.response()
    assert answer.get("Connection") == "close"
    assert await c.rest() == b""
    return (answer.status, answer.get("Mcp-Proxy-Error")) == (408, "request_timeout")


@pytest.mark.parametrize("start", [b"P", HEAD, HEAD + b"Content-Length: 2\r\n\r", b"\r"])
async def test_a_head_that_does_not_end_is_answered_with_408(start: bytes) -> None:
    async with backend() as a, limited(SHORT, a) as proxy, client(proxy.port) as c:
        c.send(start)
        assert await is_timeout(c)
        assert await metric(proxy, "rejected_total", reason="request_timeout") == 1
        await until(lambda: not proxy.clients)


async def test_a_head_that_trickles_is_answered_with_408() -> None:
    """The limit is for all of it: a byte now and then buys no time."""
    async with backend() as a, limited(SHORT, a) as proxy, client(proxy.port) as c:
        begun = time.monotonic()
        while proxy.clients or time.monotonic() - begun < 0.3:
            assert time.monotonic() - begun < PATIENCE
            c.send(b"G")
            await asyncio.sleep(0.05)
        assert time.monotonic() - begun >= 0.3


@pytest.mark.parametrize(
    "start",
    [HEAD + b"Content-Length: 10\r\n\r\nhalf", HEAD + b"Transfer-Encoding: chunked\r\n\r\n4\r\nha"],
    ids=["length", "chunked"],
)
async def test_a_body_that_stops_is_answered_with_408_and_the_backend_is_left(start: bytes) -> None:
    async with backend() as a, limited(SHORT, a) as proxy, client(proxy.port) as c:
        c.send(start)
        await until(lambda: a.open)
        assert await is_timeout(c)
        await until(lambda: not a.open)
        assert await metric(proxy, "rejected_total", reason="request_timeout") == 1
        assert await metric(proxy, "backend_in_flight") == 0
        assert proxy.pools["agents"].queue.taken == 0


async def test_a_body_that_goes_on_may_take_as_long_as_it_likes() -> None:
    async with backend() as a, limited("body: 500ms", a) as proxy, client(proxy.port) as c:
        c.send(HEAD + b"Content-Length: 30\r\n\r\n")
        for _ in range(30):
            c.send(b"x")
            await asyncio.sleep(0.1)  # six times the limit in all
        assert (await c.response()).status == 200
        assert a.requests[0].body == b"x" * 30


async def test_a_client_that_is_not_read_from_is_not_late() -> None:
    """It is the backend that takes nothing."""
    go = asyncio.Event()

    async def reluctant(side: BackendSide) -> None:
        side.writer.transport.pause_reading()  # type: ignore[attr-defined]
        await go.wait()
        side.writer.transport.resume_reading()  # type: ignore[attr-defined]
        await side.request()
        side.answer()

    size = 8_000_000
    async with backend(reluctant) as a, limited(SHORT, a) as proxy, client(proxy.port) as c:
        c.send(HEAD + b"Content-Length: %d\r\n\r\n" % size + b"x" * size)
        await until(lambda: proxy.patience.unread)
        await asyncio.sleep(2)  # several times the limit
        go.set()
        assert (await c.response()).status == 200
        assert len(a.requests[0].body) == size


async def test_an_answer_that_has_begun_is_not_cut_for_a_body_that_stops() -> None:
    async def early(side: BackendSide) -> None:
        await side.reader.readuntil(b"\r\n\r\n")
        side.send(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n")
        for _ in range(20):
            side.send(b"1\r\nx\r\n")
            await asyncio.sleep(0.1)
        side.send(b"0\r\n\r\n")
        await side.peer_closes()

    async with backend(early) as a, limited(SHORT, a) as proxy, client(proxy.port) as c:
        c.send(HEAD + b"Content-Length: 10\r\n\r\nhalf")
        assert (await c.response()).body == b"x" * 20


@pytest.mark.parametrize("before", [b"", call()], ids=["never asked", "served"])
async def test_an_idle_connection_closes_without_a_word(before: bytes) -> None:
    async with backend() as a, limited(SHORT, a) as proxy, client(proxy.port) as c:
        if before:
            assert (await c.ask(before)).status == 200
        begun = time.monotonic()
        assert await c.rest() == b""
        assert time.monotonic() - begun > 0.25
        assert await metric(proxy, "rejected_total") == 0


async def test_a_connection_in_use_is_not_idle() -> None:
    async with backend() as a, limited("idle: 500ms", a) as proxy, client(proxy.port) as c:
        for _ in range(15):
            assert (await c.ask(call())).status == 200
            await asyncio.sleep(0.2)  # six times the limit in all


async def test_a_client_that_waits_for_its_answer_is_not_idle() -> None:
    async def slow(side: BackendSide) -> None:
        while True:
            request = await side.request()
            await asyncio.sleep(2)
            if request.get("Mcp-Name") == "stream":
                side.send(b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n")
                await asyncio.sleep(2)
                side.send(b"0\r\n\r\n")
            else:
                side.answer()

    async with backend(slow) as a, limited(SHORT, a) as proxy:
        async with client(proxy.port) as c, client(proxy.port) as other:
            c.send(call())
            other.send(call(b"stream"))
            assert (await c.response()).status == 200
            assert (await other.response()).status == 200


async def answered(proxy: Proxy) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    """A client whose answer has ended, and is not read; the system takes little of it."""
    sock = socket.socket()
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    sock.setblocking(False)
    await asyncio.get_running_loop().sock_connect(sock, ("127.0.0.1", proxy.port))
    await until(lambda: proxy.clients)
    connection = next(iter(proxy.clients))
    own = connection._transport.get_extra_info("socket")
    own.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 4096)
    reader, writer = await asyncio.open_connection(sock=sock, limit=1024)
    writer.write(call())
    await until(lambda: connection.unsent and not connection._exchange)
    return reader, writer


async def large(side: BackendSide) -> None:
    while True:
        await side.request()
        side.answer(b"x" * 60_000)


async def test_a_client_that_takes_nothing_of_its_last_answer_is_cut() -> None:
    async with backend(large) as a, limited("idle: 300ms", a) as proxy:
        reader, writer = await answered(proxy)
        await until(lambda: not proxy.clients)
        with pytest.raises((ConnectionResetError, asyncio.IncompleteReadError)):
            await reader.readexactly(60_000)
        writer.close()


async def test_a_client_that_takes_its_last_answer_slowly_gets_all_of_it() -> None:
    async with backend(large) as a, limited("idle: 300ms", a) as proxy:
        reader, writer = await answered(proxy)
        got = b""
        while part := await reader.read(4000):
            got += part
            await asyncio.sleep(0.2)
        assert got.endswith(b"x" * 60_000)
        await until(lambda: not proxy.clients)
        writer.close()


async def test_clients_beyond_the_limit_are_told_so_and_the_others_served() -> None:
    async with backend() as a, limited("connections: 2", a) as proxy, AsyncExitStack() as stack:
        first, second = [await stack.enter_async_context(client(proxy.port)) for _ in range(2)]
        assert (await first.ask(call())).status == 200
        await until(lambda: len(proxy.clients) == 2)
        async with client(proxy.port) as third:
            answer = await third.ask(call())
            assert (answer.status, answer.get("Mcp-Proxy-Error")) == (503, "overloaded")
            assert (answer.get("Retry-After"), answer.get("Connection")) == ("1", "close")
            assert await third.rest() == b""
        assert await metric(proxy, "client_connections") == 2
        assert await metric(proxy, "rejected_total", reason="overloaded") == 1
        assert (await second.ask(call())).status == 200
        first.close()
        await until(lambda: len(proxy.clients) == 1)
        async with client(proxy.port) as fourth:
            assert (await fourth.ask(call())).status == 200
            assert (await fourth.ask(call())).status == 200


async def test_a_client_beyond_the_limit_still_gets_its_discovery() -> None:
    async with backend() as a, limited("connections: 1", a) as proxy, client(proxy.port) as first:
        assert (await first.ask(call())).status == 200
        async with client(proxy.port) as second:
            answer = await second.ask(DISCOVER)
            assert (answer.status, answer.get("Connection")) == (200, "close")
            assert await second.rest() == b""


async def test_a_client_beyond_the_limit_has_little_time() -> None:
    async with backend() as a, limited("connections: 1", a) as proxy, client(proxy.port) as first:
        assert (await first.ask(call())).status == 200
        async with client(proxy.port) as second:
            begun = time.monotonic()
            second.send(b"POST")
            assert (await second.response()).status == 503
            assert await second.rest() == b""
            assert time.monotonic() - begun < 3


async def test_many_more_clients_wait_in_the_kernel_and_are_served_when_there_is_room() -> None:
    async with backend() as a, limited("connections: 1", a) as proxy, AsyncExitStack() as stack:
        many = [await stack.enter_async_context(client(proxy.port)) for _ in range(100)]
        await until(lambda: len(proxy.clients) > 60)
        assert len(proxy.clients) <= 65
        assert (await many[0].ask(call())).status == 200
        for one in many[:99]:
            one.close()
        async with asyncio.timeout(PATIENCE):
            assert (await many[99].ask(call())).status in (200, 503)
        many[99].close()
        await until(lambda: not proxy.clients)
        async with client(proxy.port) as late:
            assert (await late.ask(call())).status == 200


async def test_other_limits_hold_after_a_reload() -> None:
    async with backend() as a, limited("idle: 1h", a) as proxy:
        limits = "{address: '127.0.0.1:0', limits: {idle: 300ms, connections: 1}}"
        proxy.apply(parse(config_text(a.port, listen=limits), "test.yaml", {}))
        async with client(proxy.port) as c, client(proxy.port) as other:
            await until(lambda: len(proxy.clients) == 2)
            assert [one.surplus for one in proxy.clients].count(True) == 1
            assert b"503" in await other.rest() + await c.rest()
