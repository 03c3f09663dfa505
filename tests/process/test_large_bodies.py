"""Bodies of 200 MB through a real process: exact, in small memory, and at the pace of whoever reads."""

import asyncio
import hashlib
import json
import random
import statistics
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from typing import cast

import pytest

from tests.process.harness import ProxyProcess, config_text, proxy_process
from tests.wire.harness import MODERN, PATIENCE, BackendSide, Client, Message, backend, call, chunks, client, read_head

MB = 1_000_000
LARGE = 200 * MB
WARM_UP = 20 * MB
BLOCK = 256 * 1024
MAX_GROWTH = 5 * MB  # of the proxy's memory, over what it takes after the warm-up
MAX_UNDER_WAY = 48 * MB  # bytes in the kernel's buffers of two connections; what the proxy keeps is small beside them
QUIET = 0.3  # seconds without progress after which a sender counts as stopped
MAX_DELAY = 0.05  # seconds that a stalled neighbour may add to a request's usual time of less than a millisecond

START = b"\r\n".join((b"POST /mcp HTTP/1.1", b"Host: mcp.test", *MODERN, b"Mcp-Method: tools/call", b"Mcp-Name: large"))


@pytest.mark.parametrize("chunked", [False, True], ids=["length", "chunked"])
async def test_a_large_request_passes_exactly_in_small_memory(*, chunked: bool) -> None:
    async with backend(digesting) as server, proxy_process(config_text(server.port)) as proxy:
        await upload(proxy, WARM_UP, chunked=chunked)
        before = proxy.memory()
        await upload(proxy, LARGE, chunked=chunked)
        after = proxy.memory()
    assert after.now - before.now < MAX_GROWTH
    assert after.peak - before.peak < MAX_GROWTH


@pytest.mark.parametrize(
    ("kind", "chunked", "size"),
    [
        (b"application/json", False, LARGE),
        (b"text/plain", True, LARGE),
        (b"text/event-stream", True, LARGE // 5),  # every event is looked at, which takes its time
    ],
    ids=["length", "chunked", "events"],
)
async def test_a_large_response_passes_exactly_in_small_memory(kind: bytes, size: int, *, chunked: bool) -> None:
    async with backend(sending(kind, chunked=chunked)) as server, proxy_process(config_text(server.port)) as proxy:
        await download(proxy, WARM_UP)
        before = proxy.memory()
        await download(proxy, size)
        after = proxy.memory()
    assert after.now - before.now < MAX_GROWTH
    assert after.peak - before.peak < MAX_GROWTH


async def test_a_slow_reader_stalls_its_own_backend_only() -> None:
    """Nobody reads an answer of 200 MB: its sender stops soon, and others are served as before."""
    progress = Progress()
    script = sending(b"text/plain", chunked=False, progress=progress)
    async with backend(script) as server, proxy_process(config_text(server.port)) as proxy:
        async with client(proxy.port) as quick, client(proxy.port) as slow:
            usual = await latency(quick)
            before = proxy.memory()
            reading(slow.writer).pause_reading()
            slow.send(call(b"large", b"X-Size: %d" % LARGE))
            await progress.stops()
            assert 0 < progress.sent < MAX_UNDER_WAY
            assert await latency(quick) < usual + MAX_DELAY
            assert proxy.memory().peak - before.peak < MAX_GROWTH
            reading(slow.writer).resume_reading()
            head = await read_head(slow.reader)
            assert await received(slow.reader, head, LARGE) == (LARGE, digest_of(LARGE))
            assert proxy.memory().peak - before.peak < MAX_GROWTH


async def test_a_slow_backend_stalls_its_own_client_only() -> None:
    """A backend does not read a request of 200 MB: its sender stops soon, and others are served as before."""
    progress = Progress()
    may_read = asyncio.Event()

    async def script(side: BackendSide) -> None:
        while True:
            head = await side.reader.readuntil(b"\r\n\r\n")
            size = size_asked(head)
            if size:
                reading(side.writer).pause_reading()
                await may_read.wait()
                reading(side.writer).resume_reading()
                side.answer(json.dumps(await received(side.reader, head, size)).encode())
            else:
                await side.reader.readexactly(len(b"{}"))
                side.answer()

    async with backend(script) as server, proxy_process(config_text(server.port)) as proxy:
        async with client(proxy.port) as quick, client(proxy.port) as slow, asyncio.TaskGroup() as tasks:
            usual = await latency(quick)
            before = proxy.memory()
            slow.send(request_head(LARGE, chunked=False))
            sender = tasks.create_task(send_body(slow.writer, LARGE, chunked=False, progress=progress))
            await progress.stops()
            assert 0 < progress.sent < MAX_UNDER_WAY
            assert await latency(quick) < usual + MAX_DELAY
            assert proxy.memory().peak - before.peak < MAX_GROWTH
            may_read.set()
            await sender
            assert json.loads((await slow.response()).body) == [LARGE, digest_of(LARGE)]
            assert proxy.memory().peak - before.peak < MAX_GROWTH


class Progress:
    """How many bytes of a body were taken off its sender."""

    def __init__(self) -> None:
        self.sent = 0

    async def stops(self) -> None:
        """Waits until it has begun to grow and stands still."""
        deadline, seen, since = time.monotonic() + 4 * PATIENCE, 0, time.monotonic()
        while not seen or time.monotonic() - since < QUIET:
            if self.sent != seen:
                seen, since = self.sent, time.monotonic()
            assert time.monotonic() < deadline, "it does not stop"
            await asyncio.sleep(0.01)


def reading(writer: asyncio.StreamWriter) -> asyncio.ReadTransport:
    """A writer's transport, which reads as well."""
    return cast(asyncio.ReadTransport, writer.transport)


async def latency(caller: Client) -> float:
    """The median time of a small request, in seconds."""
    times = []
    for _ in range(50):
        start = time.monotonic()
        assert (await caller.ask(call())).status == 200
        times.append(time.monotonic() - start)
    return statistics.median(times)


async def upload(proxy: ProxyProcess, size: int, *, chunked: bool) -> None:
    """Sends a body of this size; the backend must have received just that."""
    async with client(proxy.port) as caller:
        caller.send(request_head(size, chunked=chunked))
        await send_body(caller.writer, size, chunked=chunked)
        answer = await caller.response()
        assert answer.status == 200
        assert json.loads(answer.body) == [size, digest_of(size)]


async def download(proxy: ProxyProcess, size: int) -> None:
    """Receives a body of this size, which must be just that."""
    async with client(proxy.port) as caller:
        caller.send(call(b"large", b"X-Size: %d" % size))
        head = await read_head(caller.reader)
        assert await received(caller.reader, head, size) == (size, digest_of(size))


async def digesting(side: BackendSide) -> None:
    """A script: answers with length and digest of the request's body."""
    while True:
        head = await side.reader.readuntil(b"\r\n\r\n")
        side.answer(json.dumps(await received(side.reader, head, size_asked(head))).encode())


def sending(
    kind: bytes, *, chunked: bool, progress: Progress | None = None
) -> Callable[[BackendSide], Awaitable[None]]:
    """A script: answers with a body of the size that the request asks for."""

    async def script(side: BackendSide) -> None:
        while True:
            size = size_asked((await side.request()).head)
            if size:
                side.send(b"HTTP/1.1 200 OK\r\nContent-Type: %b\r\n%b\r\n\r\n" % (kind, framing(size, chunked=chunked)))
                await send_body(side.writer, size, chunked=chunked, progress=progress)
            else:
                side.answer()

    return script


def request_head(size: int, *, chunked: bool) -> bytes:
    return b"%b\r\nX-Size: %d\r\n%b\r\n\r\n" % (START, size, framing(size, chunked=chunked))


def framing(size: int, *, chunked: bool) -> bytes:
    return b"Transfer-Encoding: chunked" if chunked else b"Content-Length: %d" % size


def size_asked(head: bytes) -> int:
    """What the clients of these tests say in a field of their own; 0 for nothing."""
    return int(Message(head, b"").get("X-Size") or 0)


def blocks(size: int) -> Iterator[bytes]:
    """A body of this size: every block differs, so that none can be lost, doubled or swapped unseen."""
    noise = random.Random(size).randbytes(BLOCK)
    for start in range(0, size, BLOCK):
        yield (start.to_bytes(8) + noise[8:])[: size - start]


def digest_of(size: int) -> str:
    digest = hashlib.sha256()
    for block in blocks(size):
        digest.update(block)
    return digest.hexdigest()


async def send_body(
    writer: asyncio.StreamWriter, size: int, *, chunked: bool, progress: Progress | None = None
) -> None:
    """Writes a body at the reader's pace."""
    for block in blocks(size):
        writer.write(b"%x\r\n%b\r\n" % (len(block), block) if chunked else block)
        await writer.drain()
        if progress is not None:
            progress.sent += len(block)
    if chunked:
        writer.write(b"0\r\n\r\n")


async def pieces(reader: asyncio.StreamReader, head: bytes, size: int) -> AsyncIterator[bytes]:
    """A body as it comes: chunked, or of this size."""
    if b"\r\ntransfer-encoding: chunked\r\n" in head.lower():
        async for chunk in chunks(reader):
            yield chunk
        return
    assert b"\r\ncontent-length: %d\r\n" % size in head.lower()
    while size:
        async with asyncio.timeout(PATIENCE):
            data = await reader.read(min(size, BLOCK))
        assert data, "the connection ended before the body"
        size -= len(data)
        yield data


async def received(reader: asyncio.StreamReader, head: bytes, size: int) -> tuple[int, str]:
    """Length and digest of a body."""
    digest, length = hashlib.sha256(), 0
    async for data in pieces(reader, head, size):
        digest.update(data)
        length += len(data)
    return length, digest.hexdigest()
