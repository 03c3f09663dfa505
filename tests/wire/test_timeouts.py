"""What takes too long is ended, what only lasts long is not, and quiet streams get comments; by an injected clock."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

import pytest

from proxy.app import Proxy
from proxy.config import parse
from proxy.wire.comments import COMMENT
from tests.wire.harness import (
    MODERN,
    BackendSide,
    Client,
    backend,
    call,
    client,
    config_text,
    metric,
    post,
    read_head,
    running,
    until,
)
from tests.wire.listeners import ack, event, listen
from tests.wire.task_backend import created

EVENTS = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n"
CHUNKED = EVENTS + b"Transfer-Encoding: chunked\r\n\r\n"
TOOL = 600.0  # seconds: the default of `head`


def chunk(data: bytes) -> bytes:
    return b"%x\r\n%b\r\n" % (len(data), data)


class Clock:
    """Seconds that pass when a test says so."""

    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


class Timed(Proxy):
    """A proxy whose clients are tended when its clock is set on, half a second at a time."""

    def pass_by(self, seconds: float) -> None:
        clock = self._clock
        assert isinstance(clock, Clock)
        end = clock.now + seconds
        while clock.now < end:
            clock.now = min(clock.now + 0.5, end)
            for one in list(self.clients):
                one.tend(clock.now)


@asynccontextmanager
async def timed(text: str) -> AsyncIterator[Timed]:
    proxy = Timed(parse(text, "test.yaml", {}), clock=Clock())
    await proxy.start()
    try:
        yield proxy
    finally:
        await proxy.drain()


Script = Callable[[BackendSide], Awaitable[None]]


class Slow:
    """Reads requests, and answers each with what the test gives; told when its peer left."""

    def __init__(self) -> None:
        self.asked = 0
        self.left = 0
        self.sides: list[BackendSide] = []

    async def script(self, side: BackendSide) -> None:
        try:
            while True:
                await side.request()
                self.asked += 1
                self.sides.append(side)
        finally:
            self.left += 1

    def send(self, data: bytes) -> None:
        self.sides[-1].send(data)


async def asked(slow: Slow, c: Client, request: bytes) -> None:
    before = slow.asked
    c.send(request)
    await until(lambda: slow.asked > before)


# ---- head


async def test_a_silent_tool_of_ten_minutes_is_not_cut() -> None:
    slow = Slow()
    async with backend(slow.script) as a, timed(config_text(a.port)) as proxy, client(proxy.port) as c:
        await asked(slow, c, call())
        proxy.pass_by(TOOL)
        slow.send(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n{}")
        assert (await c.response()).status == 200


async def test_a_head_that_does_not_come_in_time() -> None:
    slow = Slow()
    async with backend(slow.script) as a, timed(config_text(a.port)) as proxy, client(proxy.port) as c:
        await asked(slow, c, call())
        proxy.pass_by(TOOL + 6.0)
        answer = await c.response()
        assert (answer.status, answer.get("Mcp-Proxy-Error")) == (504, "head_timeout")
        assert answer.get("Connection") is None
        await until(lambda: slow.left == 1)  # the call is cancelled, and sent nowhere else
        assert slow.asked == 1
        assert await metric(proxy, "rejected_total", reason="head_timeout") == 1
        assert await metric(proxy, "retries_withheld_total") == 0
        assert await metric(proxy, "backend_in_flight") == 0
        await asked(slow, c, call())  # the client's connection is still in step


async def test_the_time_counts_from_the_last_byte_of_the_request() -> None:
    slow, begun = Slow(), asyncio.Event()

    async def script(side: BackendSide) -> None:
        await read_head(side.reader)
        begun.set()
        await side.reader.readexactly(4)
        slow.sides.append(side)
        await side.request()

    async with backend(script) as a, timed(config_text(a.port)) as proxy, client(proxy.port) as c:
        whole = call(body=b"1234")
        c.send(whole[:-4])
        await begun.wait()
        for byte in whole[-4:]:
            proxy.pass_by(TOOL - 1.0)
            c.send(bytes([byte]))
            await metric(proxy, "pins")  # takes a while, in which the proxy reads it
        await until(lambda: slow.sides)
        proxy.pass_by(TOOL - 1.0)
        slow.send(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n{}")
        assert (await c.response()).status == 200


async def test_interim_responses_do_not_end_the_waiting() -> None:
    slow = Slow()
    async with backend(slow.script) as a, timed(config_text(a.port)) as proxy, client(proxy.port) as c:
        await asked(slow, c, call())
        for _ in range(3):
            slow.send(b"HTTP/1.1 102 Processing\r\n\r\n")
            assert (await read_head(c.reader)).startswith(b"HTTP/1.1 102")
            proxy.pass_by(TOOL / 4)
        proxy.pass_by(TOOL / 4 + 6.0)
        assert (await c.response()).get("Mcp-Proxy-Error") == "head_timeout"


async def test_a_pool_has_its_own_times_and_a_reload_changes_them() -> None:
    slow = Slow()
    async with backend(slow.script) as a:
        text = config_text(a.port, pool="    timeouts: {head: 20s}")
        async with timed(text) as proxy, client(proxy.port) as c, client(proxy.port) as d:
            await asked(slow, c, call())
            proxy.apply(parse(config_text(a.port, pool="    timeouts: {head: 40s}"), "test.yaml", {}))
            await asked(slow, d, call())
            proxy.pass_by(25.0)
            assert (await c.response()).status == 504  # requests keep the times they came with
            proxy.pass_by(25.0)
            assert (await d.response()).status == 504


async def test_the_owner_of_a_task_that_is_silent() -> None:
    """It is not asked again, nor is anybody else: it may be at work."""
    slow = Slow()
    async with backend(slow.script) as a, backend() as b, timed(config_text(a.port, b.port)) as proxy:
        async with client(proxy.port) as c:
            proxy.pools["agents"].set_draining(proxy.pools["agents"].members[1], True)
            await asked(slow, c, call())
            text = created("t-1")
            slow.send(
                b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n" % len(text) + text
            )
            assert (await c.response()).status == 200
            await asked(slow, c, post(*MODERN, b"Mcp-Method: tasks/get", b"Mcp-Name: t-1"))
            proxy.pass_by(TOOL + 6.0)
            assert (await c.response()).get("Mcp-Proxy-Error") == "head_timeout"
            assert (slow.asked, len(b.requests)) == (2, 0)


async def test_discovery_waits_for_a_silent_backend_as_long_as_for_an_owner_and_asks_the_next() -> None:
    slow = Slow()
    text = "    balance: round_robin\n    timeouts: {owner_wait: 8s}"
    async with backend(slow.script) as a, backend() as b, timed(config_text(a.port, b.port, pool=text)) as proxy:
        async with client(proxy.port) as c:
            await asked(slow, c, post(*MODERN, b"Mcp-Method: server/discover"))
            proxy.pass_by(7.0)
            assert not b.requests
            proxy.pass_by(2.0)
            assert (await c.response()).status == 200
            assert len(b.requests) == 1
            await until(lambda: slow.left == 1)
            assert await metric(proxy, "retries_total", reason="head_timeout") == 1


async def test_a_subscription_that_no_backend_opens() -> None:
    slow, other = Slow(), Slow()
    text = "    listen: all"
    async with backend(slow.script) as a, backend(other.script) as b:
        async with timed(config_text(a.port, b.port, pool=text)) as proxy, client(proxy.port) as c:
            await asked(slow, c, listen())
            await until(lambda: other.asked)
            proxy.pass_by(TOOL + 6.0)
            assert (await c.response()).get("Mcp-Proxy-Error") == "head_timeout"
            await until(lambda: slow.left and other.left)


async def test_the_proxy_tends_its_clients_by_itself() -> None:
    slow = Slow()
    async with backend(slow.script) as a, running(config_text(a.port, pool="    timeouts: {head: 200ms}")) as proxy:
        async with client(proxy.port) as c:
            assert (await c.ask(call())).status == 504


# ---- idle

HOUR = 3600.0


async def test_a_stream_without_a_byte_for_an_hour_is_cut() -> None:
    slow = Slow()
    async with backend(slow.script) as a, timed(config_text(a.port)) as proxy, client(proxy.port) as c:
        await asked(slow, c, call())
        slow.send(CHUNKED + chunk(b"data: 1\n\n"))
        await read_head(c.reader)
        proxy.pass_by(HOUR)
        slow.send(chunk(b"data: 2\n\n"))
        assert await c.reader.readexactly(28) == chunk(b"data: 1\n\n") + chunk(b"data: 2\n\n")
        proxy.pass_by(HOUR + 11.0)
        assert await c.rest() == b""  # not a clean end
        await until(lambda: slow.left == 1)
        assert await metric(proxy, "rejected_total", reason="idle_timeout") == 1
        assert await metric(proxy, "streams_open") == 0
        assert await metric(proxy, "retries_withheld_total") == 0


async def test_idle_time_is_not_total_time() -> None:
    text = "    timeouts: {idle: 10s, head: 10s}"
    async with streaming(pool=text) as (proxy, slow, c, _):
        for _ in range(30):
            proxy.pass_by(9.0)
            slow.send(chunk(b":\n"))
            assert await c.reader.readexactly(7) == chunk(b":\n")
        slow.send(b"0\r\n\r\n")
        assert await c.reader.readexactly(5) == b"0\r\n\r\n"


async def test_bytes_of_a_long_upload_keep_it_alive() -> None:
    """Also while the response has begun."""
    slow, heads = Slow(), []

    async def script(side: BackendSide) -> None:
        heads.append(await read_head(side.reader))
        side.send(CHUNKED)
        heads.append(await side.reader.readexactly(8))
        side.send(b"0\r\n\r\n")

    async with backend(script) as a:
        async with timed(config_text(a.port, pool="    timeouts: {idle: 10s}")) as proxy, client(proxy.port) as c:
            whole = call(body=b"12345678")
            c.send(whole[:-8])
            await read_head(c.reader)
            for byte in whole[-8:]:
                proxy.pass_by(9.0)
                c.send(bytes([byte]))
                await metric(proxy, "pins")
            assert await c.reader.readexactly(5) == b"0\r\n\r\n"
            assert heads[1] == b"12345678"
    assert not slow.asked


async def test_a_backend_that_takes_no_more_of_a_request() -> None:
    """The client is not to blame: it was asked to wait."""
    stop = asyncio.Event()

    async def script(side: BackendSide) -> None:
        await stop.wait()

    async with backend(script) as a:
        async with timed(config_text(a.port, pool="    timeouts: {idle: 20s}")) as proxy, client(proxy.port) as c:
            body = b" " * (64 << 20)
            c.send(call(body=body))
            await until(lambda: a.connections)
            while not await metric(proxy, "rejected_total"):
                proxy.pass_by(1.0)  # until all buffers are full, and then for 20 s
            answer = await c.response()
            assert (answer.status, answer.get("Mcp-Proxy-Error")) == (504, "idle_timeout")
            stop.set()


async def test_a_client_that_takes_nothing_is_cut_at_once() -> None:
    """What is still to be sent to it would otherwise be kept for as long as it likes."""
    slow = Slow()
    async with backend(slow.script) as a:
        async with timed(config_text(a.port, pool="    timeouts: {idle: 20s}")) as proxy, client(proxy.port) as c:
            await asked(slow, c, call())
            c.reader._transport.pause_reading()  # type: ignore[attr-defined] # asyncio's own
            slow.send(b"HTTP/1.1 200 OK\r\nContent-Length: 67108864\r\n\r\n" + b" " * (64 << 20))
            await until(lambda: any(not one.writable for one in proxy.clients))
            proxy.pass_by(30.0)
            await until(lambda: not proxy.clients)
            assert await metric(proxy, "rejected_total", reason="idle_timeout") == 1


# ---- comments

EVERY = "    comment_every: 15s"


@asynccontextmanager
async def streaming(
    head: bytes = CHUNKED, *, request: bytes = b"", pool: str = EVERY
) -> AsyncIterator[tuple[Timed, Slow, Client, bytes]]:
    """A stream whose head has come: proxy, backend, client and that head."""
    slow = Slow()
    async with backend(slow.script) as a, timed(config_text(a.port, pool=pool)) as proxy, client(proxy.port) as c:
        await asked(slow, c, request or call())
        slow.send(head)
        yield proxy, slow, c, await read_head(c.reader)


async def test_a_quiet_stream_gets_a_comment_every_so_often() -> None:
    async with streaming() as (proxy, slow, c, _):
        for _ in range(3):  # nothing of the body was sent yet
            proxy.pass_by(16.0)
            assert await c.reader.readexactly(len(chunk(COMMENT))) == chunk(COMMENT)
        for end in (b"\n\n", b"\r\n\r\n", b"\r\r"):
            text = chunk(b"data: {}" + end)
            slow.send(text)
            assert await c.reader.readexactly(len(text)) == text
            for _ in range(2):
                proxy.pass_by(16.0)
                assert await c.reader.readexactly(len(chunk(COMMENT))) == chunk(COMMENT)
        slow.send(b"0\r\n\r\n")
        assert await c.reader.readexactly(5) == b"0\r\n\r\n"
        assert await metric(proxy, "response_bytes_total") == 10 + 12 + 10  # comments are no bytes of the response


async def test_comments_do_not_keep_a_dead_stream_alive() -> None:
    async with streaming(pool=EVERY + "\n    timeouts: {idle: 60s}") as (proxy, _, c, _):
        proxy.pass_by(70.0)
        assert await c.rest() == 3 * chunk(COMMENT)
        assert await metric(proxy, "rejected_total", reason="idle_timeout") == 1


async def test_a_busy_stream_gets_none() -> None:
    async with streaming() as (proxy, slow, c, _):
        for _ in range(10):
            proxy.pass_by(14.0)
            slow.send(chunk(b"data: {}\n\n"))
            assert await c.reader.readexactly(15) == chunk(b"data: {}\n\n")


@pytest.mark.parametrize("size", [1, 2, 3, 7, 1000])
@pytest.mark.parametrize("watched", [True, False])
async def test_no_comment_within_an_event(size: int, watched: bool) -> None:
    """Nor where a part of it is held back."""
    text = b'event: message\ndata: {"a": {"b": {}}}\ndata: 7\n\n: x\n\nid: 3\r\ndata: {}\r\n\r\n'
    request = call() if watched else post(*MODERN, b"Mcp-Method: tools/list")
    async with streaming(request=request) as (proxy, slow, c, _):
        pieces = [text[at : at + size] for at in range(0, len(text), size)]
        for piece in pieces:
            slow.send(chunk(piece))
            await metric(proxy, "pins")  # takes a while, in which the proxy passes it on
            await metric(proxy, "pins")
            proxy.pass_by(16.0)
        slow.send(b"0\r\n\r\n")
        body = b"".join([data async for data in chunks_of(c)])
        assert body.replace(COMMENT, b"") == text
        for before in body.split(COMMENT)[:-1]:
            assert before == b"" or before.endswith((b"\n\n", b"\r\n\r\n"))
        assert COMMENT in body


async def chunks_of(c: Client) -> AsyncIterator[bytes]:
    while size := int(await c.reader.readuntil(b"\r\n"), 16):
        yield (await c.reader.readexactly(size + 2))[:-2]


@pytest.mark.parametrize(
    ("head", "request_"),
    [
        (b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nTransfer-Encoding: chunked\r\n\r\n", b""),
        (b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n", b""),
        (EVENTS + b"Content-Length: 100\r\n\r\n", b""),
        (EVENTS + b"Content-Encoding: gzip\r\nTransfer-Encoding: chunked\r\n\r\n", b""),
        (b"HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\n\r\n", b""),
    ],
)
async def test_nothing_else_gets_comments(head: bytes, request_: bytes) -> None:
    async with streaming(head, request=request_) as (proxy, slow, c, _):
        proxy.pass_by(60.0)
        slow.send(chunk(b"!") if b"chunked" in head else b"!")
        assert COMMENT not in await c.reader.readuntil(b"!")


async def test_the_answer_to_head_gets_none() -> None:
    async with streaming(EVENTS + b"\r\n", request=b"HEAD /mcp HTTP/1.1\r\nHost: x\r\n\r\n") as (proxy, slow, c, _):
        proxy.pass_by(60.0)
        c.send(call())
        await until(lambda: slow.asked == 2)
        slow.send(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n{}")
        assert (await c.response()).body == b"{}"


async def test_none_without_the_key() -> None:
    async with streaming(pool="") as (proxy, slow, c, _):
        proxy.pass_by(600.0)
        slow.send(b"0\r\n\r\n")
        assert await c.reader.readexactly(5) == b"0\r\n\r\n"


async def test_a_stream_until_close_gets_them_bare() -> None:
    """The client speaks HTTP/1.0, or the backend ends its stream by closing."""
    old = call().replace(b"HTTP/1.1", b"HTTP/1.0")
    async with streaming(request=old) as (proxy, slow, c, _):
        proxy.pass_by(16.0)
        assert await c.reader.readexactly(len(COMMENT)) == COMMENT
        slow.send(chunk(b"data: {}\n\n") + b"0\r\n\r\n")
        assert await c.rest() == b"data: {}\n\n"
    async with streaming(EVENTS + b"\r\n") as (proxy, slow, c, _):
        proxy.pass_by(16.0)
        assert await c.reader.readexactly(len(chunk(COMMENT))) == chunk(COMMENT)


async def test_the_stream_of_an_older_session_gets_them() -> None:
    async with streaming(request=b"GET /mcp HTTP/1.1\r\nHost: x\r\nAccept: text/event-stream\r\n\r\n") as (
        proxy,
        _,
        c,
        _,
    ):
        proxy.pass_by(16.0)
        assert await c.reader.readexactly(len(chunk(COMMENT))) == chunk(COMMENT)


async def test_a_merged_stream_gets_them_between_whole_events() -> None:
    one, two = Slow(), Slow()
    text = EVERY + "\n    listen: all"
    async with backend(one.script) as a, backend(two.script) as b:
        async with timed(config_text(a.port, b.port, pool=text)) as proxy, client(proxy.port) as c:
            await asked(one, c, listen())
            await until(lambda: two.asked)
            for slow in (one, two):
                slow.send(CHUNKED + chunk(ack()))
            await read_head(c.reader)
            data = chunks_of(c)
            assert await anext(data) == ack()
            note = event({"jsonrpc": "2.0", "method": "notifications/tools/list_changed"})
            one.send(chunk(note[:9]))  # of which nothing leaves
            await metric(proxy, "pins")
            proxy.pass_by(16.0)
            assert await anext(data) == COMMENT
            one.send(chunk(note[9:]))
            assert await anext(data) == note
            proxy.pass_by(16.0)
            assert await anext(data) == COMMENT


async def test_a_client_that_takes_nothing_gets_none() -> None:
    async with streaming() as (proxy, slow, c, _):
        c.reader._transport.pause_reading()  # type: ignore[attr-defined] # asyncio's own
        sent = b"data: " + b"x" * (32 << 20) + b"\n\n"
        slow.send(chunk(sent))
        await until(lambda: any(not one.writable for one in proxy.clients))
        proxy.pass_by(60.0)
        c.reader._transport.resume_reading()  # type: ignore[attr-defined] # asyncio's own
        slow.send(b"0\r\n\r\n")
        assert b"".join([data async for data in chunks_of(c)]) == sent
