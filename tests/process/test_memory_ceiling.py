"""What one connection can make the proxy hold is bounded, whoever does not read and whatever is sent."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import cast

import pytest

from tests.process.harness import ProxyProcess, config_text, proxy_process
from tests.wire.harness import BackendSide, backend, call

CONNECTIONS = 50
CEILING = 600 * 1024
"""Bytes for each: one read of 256 KiB, kept whole while up to 64 KiB of it are unsent, and one more; and what the
connection is itself. How much of the first is unsent depends on the kernel's buffers."""
HEAD = b"POST /mcp HTTP/1.1\r\nHost: x\r\nContent-Length: 1000000000\r\n\r\n"
SSE = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n"
PIECE = b"x" * 256 * 1024


class Sent:
    """How many bytes went to the proxy so far."""

    def __init__(self) -> None:
        self.bytes = 0

    async def flood(self, writer: asyncio.StreamWriter) -> None:
        """Sends up to a gigabyte, as fast as it is taken."""
        for _ in range(4000):
            writer.write(PIECE)
            await writer.drain()
            self.bytes += len(PIECE)

    async def stands_still(self) -> None:
        """Returns when nothing has been taken for a second."""
        async with asyncio.timeout(60):
            before = -1
            while before != self.bytes or not before:
                before = self.bytes
                await asyncio.sleep(1.0)


def reading(writer: asyncio.StreamWriter) -> asyncio.ReadTransport:
    return cast(asyncio.ReadTransport, writer.transport)


@asynccontextmanager
async def clients(proxy: ProxyProcess, request: bytes) -> AsyncIterator[list[asyncio.StreamWriter]]:
    """Clients that have sent this and read nothing."""
    writers = []
    try:
        for _ in range(CONNECTIONS):
            _, writer = await asyncio.open_connection("127.0.0.1", proxy.port, limit=1024)
            reading(writer).pause_reading()
            writer.write(request)
            writers.append(writer)
        yield writers
    finally:
        for writer in writers:
            writer.transport.abort()


async def test_an_endless_answer_that_nobody_reads() -> None:
    sent = Sent()

    async def endless(side: BackendSide) -> None:
        await side.request()
        side.send(b"HTTP/1.1 200 OK\r\nContent-Length: 1000000000\r\n\r\n")
        await sent.flood(side.writer)

    async with backend(endless) as a, proxy_process(config_text(a.port)) as proxy:
        before = proxy.memory().now
        async with clients(proxy, call()):
            await sent.stands_still()
            assert proxy.memory().peak - before < CONNECTIONS * CEILING


async def unread(side: BackendSide) -> None:
    """Takes nothing of a request."""
    reading(side.writer).pause_reading()
    await asyncio.Event().wait()


async def quiet(side: BackendSide) -> None:
    """Answers with a stream on which nothing comes."""
    await side.request()
    side.send(SSE)
    await side.reader.read()


@pytest.mark.parametrize(("script", "request_"), [(unread, HEAD), (quiet, call())], ids=["body", "pipelined"])
async def test_an_endless_request_that_nobody_reads(
    script: Callable[[BackendSide], Awaitable[None]], request_: bytes
) -> None:
    sent = Sent()
    async with backend(script) as a, proxy_process(config_text(a.port)) as proxy:
        before = proxy.memory().now
        async with clients(proxy, request_) as writers:
            floods = [asyncio.create_task(sent.flood(writer)) for writer in writers]
            await sent.stands_still()
            assert proxy.memory().peak - before < CONNECTIONS * CEILING
            for flood in floods:
                flood.cancel()
