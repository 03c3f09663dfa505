"""What hostile or unlucky clients and backends do, found by trying: nobody else waits, nothing stays behind."""

import asyncio
import gc
import json
import socket
import struct
import time

import pytest

from proxy.wire.exchange import Exchange
from tests.wire.harness import (
    BackendSide,
    answering,
    backend,
    call,
    client,
    closed_port,
    config_text,
    metric,
    post,
    read_head,
    running,
    until,
)

OK = b"HTTP/1.1 200 OK\r\n"
SSE = OK + b"Content-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n"


def reset(writer: asyncio.StreamWriter) -> None:
    writer.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    writer.transport.abort()


@pytest.mark.parametrize("size", [70_000, 300_000, 2_000_000])
async def test_a_large_body_goes_on_at_the_next_backend(size: int) -> None:
    """While the first one was dialled, the client was not read from; with the second one it is again."""
    body = b"x" * size
    async with backend() as b:
        text = config_text(closed_port(), b.port, pool="    balance: round_robin")
        async with running(text) as proxy, client(proxy.port) as c:
            for _ in range(8):
                assert (await c.ask(call(body=body))).status == 200
            assert all(request.body == body for request in b.requests)
            assert await metric(proxy, "backend_in_flight") == 0


@pytest.mark.parametrize("how", ["close", "reset"])
async def test_a_client_that_leaves_behind_pipelined_bytes_is_noticed(how: str) -> None:
    async def quiet(side: BackendSide) -> None:
        await side.request()
        side.send(SSE)
        await side.peer_closes()

    async with backend(quiet) as a, running(config_text(a.port)) as proxy:
        async with client(proxy.port) as c:
            c.send(call() + call(body=b"x" * 150_000))
            await read_head(c.reader)
            if how == "reset":
                reset(c.writer)
        await until(lambda: not a.open)
        assert await metric(proxy, "streams_open") == await metric(proxy, "backend_in_flight") == 0


async def test_a_client_that_leaves_while_its_backend_does_not_read_is_noticed() -> None:
    gone = asyncio.Event()

    async def does_not_read(side: BackendSide) -> None:
        side.writer.transport.pause_reading()  # type: ignore[attr-defined]
        await gone.wait()
        side.writer.transport.resume_reading()  # type: ignore[attr-defined]
        await side.reader.read()

    async with backend(does_not_read) as a, running(config_text(a.port)) as proxy:
        async with client(proxy.port) as c:
            c.send(b"POST /mcp HTTP/1.1\r\nHost: x\r\nContent-Length: 50000000\r\n\r\n" + b"x" * 20_000_000)
            await until(lambda: a.open)
            await asyncio.sleep(0.1)  # until the buffers on the way are full
            reset(c.writer)
        deadline = time.monotonic() + 3
        while await metric(proxy, "backend_in_flight"):
            assert time.monotonic() < deadline
            await asyncio.sleep(0.05)
        gone.set()


async def test_a_backend_that_answers_before_it_has_read_all_gets_no_further_request() -> None:
    """Its connection still holds unsent bytes, and nobody would be told to stop sending."""

    async def hasty(side: BackendSide) -> None:
        await side.reader.readuntil(b"\r\n\r\n")
        side.writer.transport.pause_reading()  # type: ignore[attr-defined]
        await go.wait()
        side.answer()
        await over.wait()

    go, over = asyncio.Event(), asyncio.Event()
    async with backend(hasty) as a, running(config_text(a.port)) as proxy, client(proxy.port) as c:
        c.send(call(body=b"x" * 8_000_000))
        await until(lambda: a.open)
        go.set()
        assert (await c.response()).status == 200
        over.set()
        await until(lambda: not a.open)


FLOODS = {
    "errors": (b"GET /nope HTTP/1.1\r\nHost: x\r\n\r\n" * 60_000, b""),
    "empty lines": (b"\r\n" * 500_000, b""),
    "chunks of empty lines": (
        b"POST /mcp HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n",
        b"4\r\n\r\n\r\n\r\n" * 200_000,
    ),
    "chunks of one byte": (
        b"POST /mcp HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n",
        b"1\r\nx\r\n" * 300_000,
    ),
}


@pytest.mark.parametrize("flood", FLOODS.values(), ids=FLOODS)
async def test_one_client_cannot_stall_the_others(flood: tuple[bytes, bytes]) -> None:
    async def swallow(reader: asyncio.StreamReader) -> None:
        while await reader.read(65536):
            pass

    worst = 0.0
    async with backend() as a, running(config_text(a.port)) as proxy, client(proxy.port) as other:
        async with client(proxy.port) as hostile:
            hostile.send(flood[0] + flood[1])
            reading = asyncio.create_task(swallow(hostile.reader))
            for _ in range(30):
                begun = time.monotonic()
                assert (await other.ask(call())).status == 200
                worst = max(worst, time.monotonic() - begun)
            reading.cancel()
        assert worst < 1.0  # it was over 10 seconds, for a megabyte or two


async def test_a_backend_cannot_stall_the_others_with_tiny_chunks() -> None:
    async def tiny(side: BackendSide) -> None:
        while True:
            request = await side.request()
            if request.body != b"tiny":
                side.answer()
                continue
            event = b"data: " + b"y" * 60_000 + b"\n\n"
            text = b"".join(b"1\r\n%b\r\n" % event[i : i + 1] for i in range(len(event)))
            side.send(SSE + text * 4 + b"0\r\n\r\n")

    async with backend(tiny) as a, running(config_text(a.port)) as proxy:
        async with client(proxy.port) as c, client(proxy.port) as other:
            c.send(call(body=b"tiny"))
            worst = 0.0
            for _ in range(30):
                begun = time.monotonic()
                assert (await other.ask(call())).status == 200
                worst = max(worst, time.monotonic() - begun)
            assert (await c.response()).body == (b"data: " + b"y" * 60_000 + b"\n\n") * 4
            assert worst < 1.0


async def test_answers_of_the_proxys_own_wait_for_a_client_that_does_not_read() -> None:
    async with backend() as a, running(config_text(a.port)) as proxy:
        async with client(proxy.port) as c:
            c.writer.transport.pause_reading()  # type: ignore[attr-defined]
            c.send(b"GET /nope HTTP/1.1\r\nHost: x\r\n\r\n" * 100_000)
            await until(lambda: proxy.clients)
            connection = next(iter(proxy.clients))
            await until(lambda: not connection.writable)
            answered = await metric(proxy, "rejected_total", reason="no_route")
            await asyncio.sleep(0.1)  # in which nothing more may be answered
            assert await metric(proxy, "rejected_total", reason="no_route") - answered < 32


async def test_exchanges_are_freed_without_the_garbage_collector() -> None:
    async with backend() as a, running(config_text(a.port)) as proxy, client(proxy.port) as c:
        made = json.dumps({"result": {"resultType": "task", "taskId": "t-1"}}).encode()
        gc.collect()
        gc.disable()
        try:
            for _ in range(20):
                await c.ask(post(target=b"/nope"))
                await c.ask(post())
                await c.ask(call())
                await c.ask(call(body=made))
            alive = [found for found in gc.get_objects() if isinstance(found, Exchange)]
            assert len(alive) <= 1
        finally:
            gc.enable()


@pytest.mark.parametrize("digits", [b"0" * 4400 + b"2", b"0" * 20 + b"2"])
async def test_a_length_of_many_digits_is_refused(digits: bytes) -> None:
    response = OK + b"Content-Length: " + digits + b"\r\n\r\nhi"
    async with backend(answering(response)) as a, running(config_text(a.port)) as proxy:
        async with client(proxy.port) as c:
            answer = await c.ask(b"POST /mcp HTTP/1.1\r\nHost: x\r\nContent-Length: " + digits + b"\r\n\r\nhi")
            assert (answer.status, answer.get("Mcp-Proxy-Error")) == (400, "bad_request")
        async with client(proxy.port) as c:
            answer = await c.ask(call())
            assert (answer.status, answer.get("Mcp-Proxy-Error")) == (502, "bad_response")


async def test_an_early_answer_is_delivered_whole_to_a_client_that_takes_its_time() -> None:
    size = 12_000_000

    async def early(side: BackendSide) -> None:
        await side.reader.readuntil(b"\r\n\r\n")
        side.send(OK + b"Content-Length: %d\r\n\r\n" % size)
        side.send(b"x" * size)
        await side.peer_closes()

    async with backend(early) as a, running(config_text(a.port)) as proxy:
        reader, writer = await asyncio.open_connection("127.0.0.1", proxy.port, limit=2**16)
        try:
            writer.write(b"POST /mcp HTTP/1.1\r\nHost: x\r\nContent-Length: 1000\r\n\r\n")
            await read_head(reader)
            await asyncio.sleep(1.5)  # longer than the proxy lingers
            async with asyncio.timeout(10):
                got = await reader.readexactly(size)
            assert got == b"x" * size
        finally:
            writer.close()


async def test_an_empty_line_between_requests_may_come_in_two_pieces() -> None:
    async with backend() as a, running(config_text(a.port)) as proxy, client(proxy.port) as c:
        assert (await c.ask(call())).status == 200
        c.send(b"\r")
        await asyncio.sleep(0.02)
        c.send(b"\n" + call())
        assert (await c.response()).status == 200
        c.send(b"\r\n" * 9)
        answer = await c.ask(call())
        assert (answer.status, answer.get("Mcp-Proxy-Error")) == (400, "bad_request")


async def test_a_response_loses_the_fields_its_connection_names() -> None:
    """RFC 9110, 7.6.1."""
    response = OK + b"Connection: X-Hop, Content-Type\r\nX-Hop: 1\r\nContent-Type: a/b\r\nContent-Length: 0\r\n\r\n"
    async with backend(answering(response)) as a, running(config_text(a.port)) as proxy, client(proxy.port) as c:
        answer = await c.ask(post())
        assert (answer.get("X-Hop"), answer.get("Content-Type")) == (None, "a/b")


@pytest.mark.parametrize("name", [b"Origin", b"X-Tenant", b"authorization"])
async def test_connection_cannot_take_off_what_a_rule_or_a_server_looks_at(name: bytes) -> None:
    """Trial 26, as a kind: whatever was routed on."""
    routes = "  - {name: acme, match: {header: {X-Tenant: acme}}, pool: agents}"
    async with backend() as a, running(config_text(a.port, routes=routes)) as proxy, client(proxy.port) as c:
        answer = await c.ask(call(b"t", b"X-Tenant: acme", b"Connection: " + name))
        assert (answer.status, answer.get("Mcp-Proxy-Error")) == (400, "bad_request")


async def test_long_names_and_hosts_are_not_remembered() -> None:
    async with backend() as a, running(config_text(a.port)) as proxy, client(proxy.port) as c:
        for i in range(20):
            assert (await c.ask(post(b"X%d%b: 1" % (i, b"y" * 1000)))).status == 200
        memos = proxy.heads.memos()
        assert max(map(len, memos)) <= 100
        answer = await c.ask(b"GET /mcp HTTP/1.1\r\nHost: " + b"h" * 300 + b"\r\n\r\n")
        assert answer.status == 400


async def test_a_peer_that_is_gone_already_is_trusted_with_nothing() -> None:
    async with backend() as a:
        text = config_text(a.port, listen="{address: '127.0.0.1:0', trusted_proxies: [127.0.0.0/8]}")
        async with running(text) as proxy:
            assert proxy.trusts("127.0.0.1")
            assert not proxy.trusts("")
            for _ in range(200):
                with socket.socket() as sock:
                    sock.connect(("127.0.0.1", proxy.port))
                    sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            await until(lambda: not proxy.clients)
            async with client(proxy.port) as c:
                assert (await c.ask(call())).status == 200
