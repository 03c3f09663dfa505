"""How much work the proxy does for a request, counted instead of timed: ``python -m bench.work``.

The proxy runs in this process and thread, while a process of its own plays the backend and a thread the client, one
request at a time. Counted are the calls that Python makes, of functions written in it and of those that are not, and
the instructions it runs. Both are the same on a fast machine and a slow one, and on an idle one and a busy one, but not
in two minor versions of Python. C code is seen by its calls alone: a regular expression that got slow does not show.

``--accept`` writes the counts down for this version, in work.json. ``--check`` compares with them; exit status 1 if one
has grown by more than 15 %. A count that fell is worth accepting too: the next growth is measured from there.
"""

import argparse
import asyncio
import json
import socket
import statistics
import sys
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from types import FrameType
from typing import Any

import uvloop

from bench.framing import END_OF_HEAD, MessageReader
from bench.recipes import Place, proxy_config
from bench.sections import FEW, MANY
from bench.sides import upstreams
from bench.targets import StartError
from bench.workload import (
    END_OF_STREAM,
    EVENTS,
    created_task_id,
    event_calls,
    task_creations,
    task_polls,
    tool_calls,
)
from proxy.app import Proxy
from proxy.config import parse

ACCEPTED = Path(__file__).with_name("work.json")
MOST_GROWTH = 0.15
BATCHES = 5
REQUESTS = 40  # in a batch, of which the median counts: what the proxy does now and then is in few of them
STREAMS = 1
VERSION = f"{sys.version_info.major}.{sys.version_info.minor}"

Work = Mapping[str, float]
"""By what is counted, for one request or event."""


class Calls:
    """Counts calls while it is installed: of Python's functions and of others."""

    def __init__(self) -> None:
        self.count = 0

    def start(self) -> None:
        sys.setprofile(self._profile)

    def stop(self) -> None:
        sys.setprofile(None)

    def _profile(self, _frame: FrameType, event: str, _argument: object) -> None:
        if event in ("call", "c_call"):
            self.count += 1


class Instructions:
    """Counts the interpreter's instructions while it is installed."""

    def __init__(self) -> None:
        self.count = 0

    def start(self) -> None:
        sys.settrace(self._enter)

    def stop(self) -> None:
        sys.settrace(None)

    def _enter(self, frame: FrameType, _event: str, _argument: object) -> Any:
        frame.f_trace_opcodes = True
        frame.f_trace_lines = False
        return self._step

    def _step(self, _frame: FrameType, event: str, _argument: object) -> Any:
        if event == "opcode":
            self.count += 1
        return self._step


class Client:
    """A client that waits for each answer, in whatever thread calls it."""

    def __init__(self, port: int) -> None:
        self.authority = f"127.0.0.1:{port}"
        self._socket = socket.create_connection(("127.0.0.1", port), timeout=30)
        self._reader = MessageReader()

    def close(self) -> None:
        self._socket.close()

    def ask(self, request: bytes) -> bytes:
        """The body of the answer. Raises StartError for any status but 200."""
        self._socket.sendall(request)
        while not (messages := self._reader.feed(self._received())):
            pass
        self._check(messages[0].head)
        return messages[0].body

    def ask_each(self, requests: Sequence[bytes]) -> None:
        for request in requests:
            self.ask(request)

    def listen(self, requests: Sequence[bytes]) -> None:
        """Reads a whole stream for each request. The backend sends event by event, with a pause between them."""
        for request in requests:
            self._socket.sendall(request)
            data = self._received()
            while not data.endswith(END_OF_STREAM):
                data += self._received()
            self._check(data.partition(END_OF_HEAD)[0])

    def _received(self) -> bytes:
        data = self._socket.recv(65_536)
        if not data:
            raise StartError("the proxy closed the connection")
        return data

    @staticmethod
    def _check(head: bytes) -> None:
        if not head.startswith(b"HTTP/1.1 200 "):
            raise StartError(f"answered {head[:60]!r}")


async def count(load: Callable[[], None], requests: int) -> Work:
    """What `load` makes this thread do, divided by its requests; it runs in a thread of its own."""
    loop = asyncio.get_running_loop()
    found: dict[str, list[float]] = {"calls": [], "instructions": []}
    await loop.run_in_executor(None, load)  # connections are made, memos filled
    for _ in range(BATCHES):
        for name, counter in (("calls", Calls()), ("instructions", Instructions())):
            counter.start()
            try:
                await loop.run_in_executor(None, load)
            finally:
                counter.stop()
            found[name].append(counter.count / requests)
    return {name: round(statistics.median(counts), 1) for name, counts in found.items()}


@asynccontextmanager
async def serving(config: str) -> AsyncIterator[Client]:
    """A client of a proxy in this process. Raises StartError."""
    proxy = Proxy(parse(config, "bench", {}))
    await proxy.start()
    client = Client(proxy.port)
    try:
        yield client
    finally:
        client.close()
        await proxy.drain()


async def measure(backend_ports: tuple[int, ...]) -> dict[str, Work]:
    """Every load in turn. Raises StartError."""
    loop = asyncio.get_running_loop()
    async with serving(proxy_config(Place(0, 0, backend_ports, Path()))) as client:
        calls = tool_calls(client.authority).requests[:REQUESTS]
        creations = task_creations(client.authority).requests[:REQUESTS]
        task_id = created_task_id(await loop.run_in_executor(None, client.ask, creations[0]))
        polls = task_polls(client.authority, (task_id,)).requests * REQUESTS
        streams = event_calls(client.authority).requests * STREAMS
        return {
            "tools/call": await count(lambda: client.ask_each(calls), REQUESTS),
            "tools/call that creates a task": await count(lambda: client.ask_each(creations), REQUESTS),
            "tasks/get with a pin": await count(lambda: client.ask_each(polls), REQUESTS),
            "an event of a stream": await count(lambda: client.listen(streams), STREAMS * EVENTS),
        }


async def measure_large(backend_ports: tuple[int, ...]) -> dict[str, Work]:
    """The same call among many backends and as many routes, which must cost no more. Raises StartError."""
    found = {}
    config = proxy_config(Place(0, 0, backend_ports, Path(), routes=MANY))
    ring = "    balance: ring\n    ring_key: name\n"
    for balance, text in (("a ring", config), ("least_in_flight", config.replace(ring, ""))):
        async with serving(text) as client:
            calls = tool_calls(client.authority).requests[:REQUESTS]
            ask = partial(client.ask_each, calls)
            for _ in range(3 * MANY // REQUESTS):  # each has a connection then, and has answered on it
                await asyncio.get_running_loop().run_in_executor(None, ask)
            found[f"tools/call among {MANY:,} backends and routes, {balance}"] = await count(ask, REQUESTS)
    return found


def run() -> dict[str, Work]:
    """Starts everything and counts. Raises StartError."""
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        with upstreams(FEW) as backends:
            found = runner.run(measure(backends.ports))
        with upstreams(MANY) as backends:
            return found | runner.run(measure_large(backends.ports))


def grown(found: Mapping[str, Work], accepted: Mapping[str, Work]) -> list[str]:
    """What has grown by too much, each in a sentence."""
    return [
        f"{load}: {now[what]:g} {what} instead of {before[what]:g} ({now[what] / before[what] - 1:+.0%})"
        for load, before in accepted.items()
        for now in (found[load],)
        for what in before
        if round(now[what] / before[what] - 1, 6) > MOST_GROWTH
    ]


def accepted_by_version() -> dict[str, dict[str, Work]]:
    """The counts written down, by minor version of Python."""
    values: dict[str, dict[str, Work]] = json.loads(ACCEPTED.read_text()) if ACCEPTED.exists() else {}
    return values


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs the command line; its exit status."""
    parser = argparse.ArgumentParser(prog="python -m bench.work", description=__doc__)
    parser.add_argument("--accept", action="store_true", help=f"write the counts into {ACCEPTED.name}")
    parser.add_argument("--check", action="store_true", help=f"exit with 1 if one is over that of {ACCEPTED.name}")
    options = parser.parse_args(arguments)
    try:
        found = run()
    except StartError as error:
        print(f"failed: {error}", file=sys.stderr)
        return 2
    accepted = accepted_by_version()
    if options.accept:
        ACCEPTED.write_text(json.dumps(accepted | {VERSION: found}, indent=2, sort_keys=True) + "\n")
    print(json.dumps(found, indent=2))
    if options.check:
        if VERSION not in accepted:
            print(f"nothing is written down for Python {VERSION}: --accept does that", file=sys.stderr)
            return 2
        complaints = grown(found, accepted[VERSION])
        for complaint in complaints:
            print(complaint, file=sys.stderr)
        return 1 if complaints else 0
    return 0


if __name__ == "__main__":
    sys.exit(main())
