"""Thousands of idle event streams: what each costs the proxy in memory, and how soon an event reaches all of them.

``python -m bench.idle_streams`` opens 9,900 subscriptions through the proxy, reads its memory before and after,
has the backend send one event to all, and prints what it found. Exit status: 0; 1 if a stream took more than
``--most-kib`` or the event more than ``--most-seconds``; 2 if the run failed.

Each stream takes a descriptor here and at the backend, and two in the proxy: their limit is raised as far as it goes.
"""

import argparse
import asyncio
import gc
import json
import resource
import sys
import tempfile
import time
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import IO, cast

import uvloop

from bench.cpu import resident, settled, spent
from bench.processes import talking_to
from bench.targets import StartError, Target, Variant, started

USUAL = Variant("proxy")
STEP = 100  # streams opened at a time: what waits in the proxy's queue for a backend's connection stays short
OPEN_SECONDS = 60.0
EVENT_SECONDS = 30.0
QUIET_SECONDS = 3.0
EVENT = b'data: {"jsonrpc":"2.0","method":"notifications/tools/list_changed"}\n\n'
HEAD = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n"
ACKNOWLEDGEMENT = b'data: {"jsonrpc":"2.0","method":"notifications/subscriptions/acknowledged"}\n\n'
BODY = b'{"jsonrpc":"2.0","id":1,"method":"subscriptions/listen","params":{"notifications":{"toolsListChanged":true}}}'


@dataclass(frozen=True, slots=True)
class Findings:
    """What was measured."""

    streams: int
    bytes_each: float
    """Resident memory of the proxy after all that, divided by the streams."""
    open_seconds: float
    event_seconds: float
    """From the order to the backend until the last client had the event."""
    idle_cpu_percent: float
    """What the proxy used while nothing passed."""


# ---- the backend, a process of its own
class Stream(asyncio.Protocol):
    """A connection on which the backend has begun an event stream, or will."""

    def __init__(self, streams: "set[Stream]") -> None:
        self._streams = streams
        self._received = b""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast(asyncio.Transport, transport)

    def data_received(self, data: bytes) -> None:
        self._received += data
        if self._received.endswith(BODY):
            self._received = b""
            self._streams.add(self)
            self.transport.write(HEAD + chunk(ACKNOWLEDGEMENT))

    def connection_lost(self, exc: Exception | None) -> None:
        self._streams.discard(self)


async def serve() -> None:
    """Prints the port; sends an event to all streams for every line read; ends with its input."""
    streams: set[Stream] = set()
    loop = asyncio.get_running_loop()
    server = await loop.create_server(lambda: Stream(streams), "127.0.0.1", 0, backlog=4096)
    print(server.sockets[0].getsockname()[1], flush=True)
    while await loop.run_in_executor(None, sys.stdin.readline):
        for stream in streams:
            stream.transport.write(chunk(EVENT))
    server.close()


def chunk(data: bytes) -> bytes:
    return b"%x\r\n%b\r\n" % (len(data), data)


# ---- the clients
class Listener(asyncio.Protocol):
    """One client that has sent a subscription, and counts what it gets."""

    def __init__(self, everyone: "Everyone") -> None:
        self._everyone = everyone
        self._opened = False
        self._last = b""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast(asyncio.Transport, transport)
        self.transport.write(self._everyone.request)

    def data_received(self, data: bytes) -> None:
        self._last += data
        if not self._opened:
            if not self._last.startswith(b"HTTP/1.1 200 "):
                self._everyone.fail(f"answered {self._last[:200]!r}")
            elif b"acknowledged" in self._last:
                self._opened, self._last = True, b""
                self._everyone.one_more()
        elif self._last.endswith(chunk(EVENT)):
            self._last = b""
            self._everyone.one_more()

    def connection_lost(self, exc: Exception | None) -> None:
        if not self._everyone.over:
            self._everyone.fail(f"a stream was cut ({exc or 'closed by the peer'})")


class Everyone:
    """All clients: how many have got what is awaited."""

    def __init__(self, authority: str) -> None:
        self.request = (
            b"POST /mcp HTTP/1.1\r\nHost: %b\r\nAccept: application/json, text/event-stream\r\n"
            b"Content-Type: application/json\r\nMCP-Protocol-Version: 2026-07-28\r\n"
            b"Mcp-Method: subscriptions/listen\r\nContent-Length: %d\r\n\r\n%b" % (authority.encode(), len(BODY), BODY)
        )
        self.over = False
        self._missing = 0
        self._all: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    def expect(self, count: int) -> "asyncio.Future[None]":
        """Done when so many more have got theirs. Raises StartError then if one has failed."""
        self._missing = count
        if not self._all.done() or self._all.exception() is None:
            self._all = asyncio.get_running_loop().create_future()
        return self._all

    def one_more(self) -> None:
        self._missing -= 1
        if not self._missing and not self._all.done():
            self._all.set_result(None)

    def fail(self, reason: str) -> None:
        if not self._all.done():
            self._all.set_exception(StartError(reason))


async def measure(target: Target, backend: IO[str], streams: int) -> Findings:
    """Opens the streams and measures. Raises StartError, and TimeoutError if it takes too long."""
    loop = asyncio.get_running_loop()
    everyone = Everyone(f"{target.host}:{target.port}")
    clients: list[Listener] = []
    try:
        before, begun = resident(target.pids()), time.perf_counter()
        async with asyncio.timeout(OPEN_SECONDS):
            for first in range(0, streams, STEP):
                step = min(STEP, streams - first)
                opened = everyone.expect(step)
                for _ in range(step):
                    _, client = await loop.create_connection(lambda: Listener(everyone), target.host, target.port)
                    clients.append(client)
                await opened
        open_seconds = time.perf_counter() - begun

        used, begun = settled(target.pids()), time.perf_counter()
        await asyncio.sleep(QUIET_SECONDS)
        idle = spent(used, settled(target.pids())) / 1e9 / (time.perf_counter() - begun)

        told, begun = everyone.expect(streams), time.perf_counter()
        print("event", file=backend, flush=True)
        async with asyncio.timeout(EVENT_SECONDS):
            await told
        event_seconds = time.perf_counter() - begun
        grown = resident(target.pids()) - before
        return Findings(streams, grown / streams, open_seconds, event_seconds, 100 * idle)
    finally:
        everyone.over = True
        for client in clients:
            client.transport.abort()


def run(streams: int, variant: Variant = USUAL) -> Findings:
    """Starts a backend and a proxy of this kind, and measures. Raises StartError, TimeoutError."""
    raise_limit()
    with talking_to([sys.executable, "-m", "bench.idle_streams", "--serve"]) as backend:
        assert backend.stdin is not None
        assert backend.stdout is not None
        port = backend.stdout.readline()
        if not port:
            raise StartError("the backend did not start")
        with ExitStack() as stack:
            folder = stack.enter_context(tempfile.TemporaryDirectory(prefix="bench-"))
            target = stack.enter_context(started(replace(variant, clients=streams), [int(port)], Path(folder, "proxy")))
            runner = stack.enter_context(asyncio.Runner(loop_factory=uvloop.new_event_loop))
            return runner.run(measure(target, backend.stdin, streams))


def raise_limit() -> None:
    """Lets this process and those it starts open as many descriptors as they may."""
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs the command line; its exit status."""
    parser = argparse.ArgumentParser(prog="python -m bench.idle_streams", description=__doc__)
    parser.add_argument("--streams", type=int, default=9900, help="how many (default: %(default)s)")
    parser.add_argument("--most-kib", type=float, default=10.0, help="of memory for each (default: %(default)s)")
    parser.add_argument("--most-seconds", type=float, default=2.0, help="for the event (default: %(default)s)")
    parser.add_argument("--serve", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args(arguments)
    if options.serve:
        raise_limit()
        uvloop.run(serve())
        return 0
    gc.freeze()
    try:
        found = run(options.streams)
    except (StartError, TimeoutError) as error:
        print(f"failed: {error!r}", file=sys.stderr)
        return 2
    print(json.dumps(asdict(found), indent=2))
    good = found.bytes_each <= options.most_kib * 1024 and found.event_seconds <= options.most_seconds
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
