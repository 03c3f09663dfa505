"""Event streams through a real process: each event at once, and a client that leaves is missed at once."""

import asyncio
import json
import re
import statistics
import time
import zlib
from collections.abc import Awaitable, Callable

import pytest

from tests.process.harness import STREAM_FIELDS, ProxyProcess, chunk, config_text, proxy_process
from tests.wire.harness import PATIENCE, BackendSide, backend, call, chunks, client, read_head

PACE = 0.05  # seconds between two events
MAX_DELAY = 0.05  # seconds an event may take
EVENTS = 30
ROUNDS = 3
HANG_UP_LIMIT = 1.0  # seconds
SENT_AT = re.compile(rb'"progress": ([0-9.]+)')


@pytest.mark.parametrize("packed", [False, True], ids=["plain", "gzip"])
async def test_events_arrive_when_they_are_sent(*, packed: bool) -> None:
    """Each within 50 ms, where the next one is sent after 50 ms: an event that waits for another is late.

    A busy machine makes an event late now and then, but none in particular. So one round of three without a late event
    is enough, while in every round half of the events must be well in time: a proxy that holds back some events by
    their place, their kind or their size does so in every round.
    """
    async with backend(ticking(packed=packed)) as server, proxy_process(config_text(server.port)) as proxy:
        latest = []
        for _ in range(ROUNDS):
            delays = await event_delays(proxy, packed=packed)
            assert len(delays) == EVENTS
            assert statistics.median(delays) < MAX_DELAY / 2
            latest.append(max(delays))
            if latest[-1] < MAX_DELAY:
                break
    assert min(latest) < MAX_DELAY, f"the latest event of each round, in seconds: {latest}"


@pytest.mark.parametrize("reset", [False, True], ids=["closed", "reset"])
async def test_hanging_up_on_a_quiet_stream_reaches_the_backend(*, reset: bool) -> None:
    """Nothing more is sent on this stream, so nothing but the close itself can tell that its client has left."""
    left = asyncio.Event()

    async def script(side: BackendSide) -> None:
        await side.request()
        side.send(STREAM_FIELDS + b"\r\n" + chunk(event(0)))
        try:
            await side.reader.read()  # to the end: the proxy closes, or resets
        finally:
            left.set()

    async with backend(script) as server, proxy_process(config_text(server.port)) as proxy:
        async with client(proxy.port) as caller:
            caller.send(call())
            await read_head(caller.reader)
            assert await anext(chunks(caller.reader)) == event(0)
            assert await proxy.count("streams_open") == 1
            assert not left.is_set()
            start = time.monotonic()
            if reset:
                caller.writer.transport.abort()
            else:
                caller.close()
            async with asyncio.timeout(PATIENCE):
                await left.wait()
            assert time.monotonic() - start < HANG_UP_LIMIT
        assert await proxy.count("streams_open") == 0
        assert await proxy.count("backend_in_flight") == 0
        assert await proxy.count("client_hangups_total") == 1


def ticking(*, packed: bool) -> Callable[[BackendSide], Awaitable[None]]:
    """A script: a stream of events that say when they were sent, each compressed by itself if `packed`."""

    async def script(side: BackendSide) -> None:
        while True:
            await side.request()
            side.send(STREAM_FIELDS + (b"Content-Encoding: gzip\r\n\r\n" if packed else b"\r\n"))
            packer = zlib.compressobj(wbits=zlib.MAX_WBITS | 16)
            for _ in range(EVENTS):
                text = event(time.monotonic())
                side.send(chunk(packer.compress(text) + packer.flush(zlib.Z_SYNC_FLUSH) if packed else text))
                await asyncio.sleep(PACE)
            side.send((chunk(packer.flush()) if packed else b"") + b"0\r\n\r\n")

    return script


async def event_delays(proxy: ProxyProcess, *, packed: bool) -> list[float]:
    """How long each event of a stream took, in seconds."""
    unpacker = zlib.decompressobj(wbits=zlib.MAX_WBITS | 16)
    delays = []
    async with client(proxy.port) as caller:
        caller.send(call())
        head = await read_head(caller.reader)
        assert (b"\r\ncontent-encoding: gzip\r\n" in head.lower()) is packed
        async for data in chunks(caller.reader):
            now = time.monotonic()
            delays += [now - float(sent) for sent in SENT_AT.findall(unpacker.decompress(data) if packed else data)]
    return delays


def event(number: float) -> bytes:
    """A progress notification."""
    params = {"progressToken": 1, "progress": number}
    message = {"jsonrpc": "2.0", "method": "notifications/progress", "params": params}
    return b"event: message\r\ndata: " + json.dumps(message).encode() + b"\r\n\r\n"
