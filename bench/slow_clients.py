"""What a crowd of slow clients does to the others: latencies with it and without it, in slices of time in turn.

``python -m bench.slow_clients --slow 1000`` puts the crowd in front of the proxy for every second slice. A third of it
sends heads that never end, a third bodies that never end, each a byte a second, and a third asks for an answer of a
megabyte and does not read it. Who is cut off comes again. Exit status: 0; 1 if the others' median p99 is over
``--max-ratio`` times what it is without the crowd; 2 if the run failed.
"""

import argparse
import asyncio
import json
import resource
import socket
import statistics
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import IO, cast

import uvloop

from bench.processes import talking_to
from bench.slices import Measurement, Order, SliceError, result_from_line
from bench.targets import StartError, started
from bench.workload import bulk_call

SECOND = 1.0  # between the bytes of a slow client
SETTLE = 2.0  # seconds until the last of the crowd has got what it can get


class Slow(asyncio.Protocol):
    """A slow client. It comes again when it is cut off."""

    def __init__(self, crowd: "Crowd") -> None:
        self.crowd = crowd

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast(asyncio.Transport, transport)
        self.start()

    def start(self) -> None:
        """It has connected."""

    def go_on(self) -> None:
        """Another second has passed."""

    def connection_lost(self, exc: Exception | None) -> None:
        self.crowd.lost(self)


class SlowHead(Slow):
    """Its head never ends."""

    def start(self) -> None:
        self.transport.write(b"POST /mcp HTTP/1.1\r\nHost: slow\r\nX-Slow: ")

    def go_on(self) -> None:
        self.transport.write(b"x")


class SlowBody(Slow):
    """Its body never ends."""

    def start(self) -> None:
        head = self.crowd.bulk.partition(b"\r\n\r\n")[0]
        lines = [line for line in head.split(b"\r\n") if not line.lower().startswith(b"content-length:")]
        self.transport.write(b"\r\n".join([*lines, b"Content-Length: 1000000", b"", b""]))

    def go_on(self) -> None:
        self.transport.write(b"x")


class SlowReader(Slow):
    """It asks for a megabyte, and takes nothing."""

    def start(self) -> None:
        self.transport.pause_reading()
        self.transport.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        self.transport.write(self.crowd.bulk)


class Crowd:
    """So many slow clients."""

    def __init__(self, host: str, port: int, count: int) -> None:
        self.bulk = bulk_call(f"{host}:{port}")
        self.present: set[Slow] = set()
        self.comings = 0
        self._address = (host, port)
        kinds: tuple[type[Slow], ...] = (SlowHead, SlowBody, SlowReader)
        self._missing = [kinds[number % len(kinds)] for number in range(count)]
        self._over = False

    def lost(self, client: Slow) -> None:
        if not self._over and client in self.present:
            self.present.discard(client)
            self._missing.append(type(client))

    async def come(self) -> None:
        """Connects those that are missing."""
        loop = asyncio.get_running_loop()
        while self._missing:
            _, client = await loop.create_connection(partial(self._missing.pop(), self), *self._address)
            self.present.add(client)
            self.comings += 1

    async def stay(self) -> None:
        """Is slow, until it is cancelled."""
        while True:
            await asyncio.sleep(SECOND)
            for client in list(self.present):
                client.go_on()
            await self.come()

    def go(self) -> None:
        self._over = True
        for client in self.present:
            client.transport.abort()


async def obey() -> None:
    """Reads a line `HOST PORT COUNT` for a crowd to come, or an empty one for it to go, and says when it is done."""
    loop = asyncio.get_running_loop()
    crowd: Crowd | None = None
    staying: asyncio.Task[None] | None = None
    while line := await loop.run_in_executor(None, sys.stdin.readline):
        if crowd is not None and staying is not None:
            staying.cancel()
            crowd.go()
            print(crowd.comings, flush=True)
            crowd = None
        if line.strip():
            host, port, count = line.split()
            crowd = Crowd(host, int(port), int(count))
            await crowd.come()
            staying = loop.create_task(crowd.stay())
            await asyncio.sleep(SETTLE)
            print(len(crowd.present), flush=True)


# ---- the run
@dataclass(frozen=True, slots=True)
class Findings:
    """Medians over the slices, in milliseconds."""

    slow: int
    p50_without: float
    p50_with: float
    p99_without: float
    p99_with: float
    requests_without: float
    requests_with: float
    comings: int
    """How often a slow client connected, in all slices together."""
    resident_mb: float
    """Of the proxy, at most, with the crowd."""

    @property
    def ratio(self) -> float:
        return self.p99_with / self.p99_without


@contextmanager
def process(*command: str) -> Iterator[tuple[IO[str], IO[str]]]:
    """A process of the run: what it is told, and what it says."""
    with talking_to([sys.executable, "-m", *command]) as running:
        assert running.stdin is not None
        assert running.stdout is not None
        yield running.stdin, running.stdout


def say(pipes: tuple[IO[str], IO[str]], line: str) -> str:
    """Tells it a line; its answer. Raises StartError if it has ended."""
    print(line, file=pipes[0], flush=True)
    answer = pipes[1].readline()
    if not answer:
        raise StartError("a process of the run has ended")
    return answer


def run(*, slow: int, slices: int, seconds: float, connections: int) -> Findings:
    """Starts everything and measures. Raises StartError, SliceError."""
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
    with ExitStack() as stack:
        _, ports = stack.enter_context(process("bench.upstream", "--count", "4"))
        folder = stack.enter_context(tempfile.TemporaryDirectory(prefix="bench-"))
        target = stack.enter_context(started("proxy", json.loads(ports.readline()), Path(folder, "proxy")))
        load = stack.enter_context(process("bench.load"))
        crowd = stack.enter_context(process("bench.slow_clients", "--crowd"))

        def measured() -> Measurement:
            order = Order("tools-call", target.host, target.port, target.pids(), connections, seconds)
            return result_from_line(say(load, order.to_line()))

        measured()  # connections are made, memos filled
        without, with_crowd, comings = [], [], 0
        for number in range(slices):
            print(f"round {number + 1} of {slices}", file=sys.stderr)
            without.append(measured())
            if int(say(crowd, f"{target.host} {target.port} {slow}")) != slow:
                raise StartError("not all slow clients could connect")
            with_crowd.append(measured())
            comings += int(say(crowd, ""))
        return findings(slow, without, with_crowd, comings)


def findings(slow: int, without: Sequence[Measurement], with_crowd: Sequence[Measurement], comings: int) -> Findings:
    """What the slices amount to."""

    return Findings(
        slow,
        p50_without=statistics.median(each.p50_ms for each in without),
        p50_with=statistics.median(each.p50_ms for each in with_crowd),
        p99_without=statistics.median(each.p99_ms for each in without),
        p99_with=statistics.median(each.p99_ms for each in with_crowd),
        requests_without=statistics.median(each.requests / each.seconds for each in without),
        requests_with=statistics.median(each.requests / each.seconds for each in with_crowd),
        comings=comings,
        resident_mb=max(each.resident_bytes for each in with_crowd) / 1e6,
    )


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs the command line; its exit status."""
    parser = argparse.ArgumentParser(prog="python -m bench.slow_clients", description=__doc__)
    parser.add_argument("--slow", type=int, default=1000, help="slow clients (default: %(default)s)")
    parser.add_argument("--slices", type=int, default=5, help="rounds (default: %(default)s)")
    parser.add_argument("--seconds", type=float, default=2.0, help="length of a slice (default: %(default)s)")
    parser.add_argument("--connections", type=int, default=16, help="other clients (default: %(default)s)")
    parser.add_argument("--max-ratio", type=float, default=2.0, help="of the p99 (default: %(default)s)")
    parser.add_argument("--crowd", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args(arguments)
    if options.crowd:
        uvloop.run(obey())
        return 0
    try:
        found = run(slow=options.slow, slices=options.slices, seconds=options.seconds, connections=options.connections)
    except (StartError, SliceError) as error:
        print(f"failed: {error}", file=sys.stderr)
        return 2
    print(json.dumps(asdict(found) | {"ratio": found.ratio}, indent=2))
    return 0 if found.ratio <= options.max_ratio else 1


if __name__ == "__main__":
    sys.exit(main())
