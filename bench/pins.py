"""What a pin costs in each store, in time and in memory: ``python -m bench.pins``.

Each row is one operation: its p50 and p99 as who awaits it sees them, and how many there are in a second. ``at once``
is the number of those that wait at the same time; a proxy's own traffic is between one and some dozens. Bytes are of
the process that keeps the pins, by its resident size (memory) or by its own account (redis), over ``--pins`` pins that
are all held; in the last row, of pins whose tasks have ended. A redis-server is started on loopback if there
is one; without it only memory is measured. Compare only within one run.
"""

import argparse
import asyncio
import gc
import random
import shutil
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from functools import partial
from hashlib import blake2b
from pathlib import Path

import uvloop

from bench.processes import free_ports, logging_to
from bench.targets import StartError
from proxy.background import Background
from proxy.config import Pins
from proxy.parts import pin_store_of
from proxy.pins.memory import MemoryPinStore
from proxy.pins.redis import RedisPinStore
from proxy.pins.redis_link import Link
from proxy.pins.store import Answer
from proxy.routing.ownership import PinKey

PAGE = 4096
SAMPLES = 20_000  # operations that are timed one by one
BACKENDS = [f"10.0.0.{number}:8000" for number in range(1, 9)]
HEADINGS = ("store", "operation", "at once", "p50 us", "p99 us", "per second", "bytes per pin")
NOBODY = PinKey(bytes(16))
START_SECONDS = 10.0


@dataclass(frozen=True, slots=True)
class Row:
    """One operation of one store. ``micros`` are those of each that was timed, in any order."""

    store: str
    operation: str
    at_once: int
    micros: Sequence[float]
    per_second: float
    bytes_per_pin: float | None = None


def key(number: int) -> PinKey:
    """The key of a made-up task."""
    return PinKey(blake2b(number.to_bytes(8, "big"), digest_size=16).digest())


def percentile(values: Sequence[float], share: float) -> float:
    """The value that this share of all does not exceed. ``values`` holds one at least."""
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(share * len(ordered)))]


def table(rows: Sequence[Row]) -> str:
    """The rows as lines of text in columns."""
    lines = [HEADINGS, *(_cells(row) for row in rows)]
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    return "\n".join(
        "  ".join(
            cell.ljust(width) if index < 2 else cell.rjust(width)
            for index, (cell, width) in enumerate(zip(line, widths, strict=True))
        ).rstrip()
        for line in lines
    )


def _cells(row: Row) -> tuple[str, ...]:
    return (
        row.store,
        row.operation,
        str(row.at_once),
        f"{percentile(row.micros, 0.5):.1f}",
        f"{percentile(row.micros, 0.99):.1f}",
        f"{row.per_second:,.0f}",
        "" if row.bytes_per_pin is None else f"{row.bytes_per_pin:.0f}",
    )


def measure_memory(pins: int) -> list[Row]:
    """The store in memory."""
    keys = [key(number) for number in range(pins + SAMPLES)]
    store = MemoryPinStore(ttl=86_400.0, capacity=2 * pins + SAMPLES, clock=time.monotonic)
    gc.collect()
    before, started = resident_bytes(), time.perf_counter()
    for number in range(pins):
        store.put(keys[number], "agents", BACKENDS[number % len(BACKENDS)], ttl=3_600.0)
    seconds = time.perf_counter() - started
    per_pin = (resident_bytes() - before) / pins + sys.getsizeof(keys[0])  # the list above has the keys already
    putting = [_timed(partial(store.put, new, "agents", BACKENDS[0], ttl=None)) for new in keys[pins:]]
    asked = random.choices(keys, k=SAMPLES)
    getting = [_timed(partial(store.get, one)) for one in asked]
    started = time.perf_counter()
    for one in asked:
        store.get(one)
    return [
        Row("memory", "put", 1, putting, pins / seconds, per_pin),
        Row("memory", "get", 1, getting, SAMPLES / (time.perf_counter() - started)),
    ]


async def measure_redis(url: str, pins: int) -> list[Row]:
    """The store in a Redis that has nothing else to do."""
    background = Background()
    settings = Pins(ttl=86_400.0, store="redis", url=url)
    store = pin_store_of(settings, clock=time.monotonic, background=background)
    other = pin_store_of(settings, clock=time.monotonic, background=background)
    account = Link(url, background=background, setting_up=lambda: [("PING",)], came_up=lambda replies: None)
    assert isinstance(store, RedisPinStore)
    assert isinstance(other, RedisPinStore)

    async def put(number: int) -> None:
        await _now(store.put(key(number), "agents", BACKENDS[number % len(BACKENDS)], ttl=3_600.0))

    async def get(number: int) -> None:
        await _now(other.get(key(number)))

    try:
        await put(0)
        before = await used_bytes(account)
        started = time.perf_counter()
        await _many(put, range(pins), at_once=64)
        filled = pins / (time.perf_counter() - started)
        held = (await used_bytes(account) - before) / pins
        fresh = iter(range(pins, pins + 2 * SAMPLES))
        alone, seconds_alone = await _many(put, [next(fresh) for _ in range(SAMPLES)], at_once=1)
        together, _ = await _many(put, [next(fresh) for _ in range(SAMPLES)], at_once=64)
        asked = random.sample(range(pins), min(pins, SAMPLES))
        reading, seconds_reading = await _many(get, asked, at_once=1)
        reading_together, seconds_together = await _many(get, range(pins, pins + SAMPLES), at_once=64)
        known = [_timed(partial(other.get, key(one))) for one in range(pins, pins + SAMPLES)]
        for number in range(pins + 2 * SAMPLES):
            store.finish(key(number))
            if number % 500 == 0:
                await _now(store.peek(NOBODY))  # answered after what was told before
        await _now(store.peek(NOBODY))
        finished = (await used_bytes(account) - before) / (pins + 2 * SAMPLES)
    finally:
        await store.close()
        await other.close()
        await account.close()
        await background.close()
    return [
        Row("redis", "put", 1, alone, SAMPLES / seconds_alone),
        Row("redis", "put", 64, together, filled, held),
        Row("redis", "get, asked for", 1, reading, len(asked) / seconds_reading),
        Row("redis", "get, asked for", 64, reading_together, SAMPLES / seconds_together),
        Row("redis", "get, known here", 1, known, 1e6 / percentile(known, 0.5), finished),
    ]


async def _many(
    operation: Callable[[int], Awaitable[None]], numbers: Sequence[int], *, at_once: int
) -> tuple[list[float], float]:
    """Microseconds of each, and seconds of all."""
    micros: list[float] = []
    rest = iter(numbers)

    async def in_turn() -> None:
        for number in rest:
            started = time.perf_counter_ns()
            await operation(number)
            micros.append((time.perf_counter_ns() - started) / 1e3)

    started = time.perf_counter()
    await asyncio.gather(*(in_turn() for _ in range(at_once)))
    return micros, time.perf_counter() - started


def _timed(operation: Callable[[], object]) -> float:
    started = time.perf_counter_ns()
    operation()
    return (time.perf_counter_ns() - started) / 1e3


async def _now(answer: Answer[object]) -> None:
    if isinstance(answer, asyncio.Future):
        await answer


async def used_bytes(account: Link) -> int:
    """What Redis says that its data take."""
    said: asyncio.Future[object] = asyncio.get_running_loop().create_future()
    account.send(("INFO", "memory"), said.set_result)
    info = await said
    assert isinstance(info, bytes), info
    return int(info.partition(b"used_memory:")[2].partition(b"\r\n")[0])


def resident_bytes() -> int:
    """What this process has in memory."""
    return int(Path("/proc/self/statm").read_text().split()[1]) * PAGE


def _answers(port: int, log: Path) -> None:
    """Waits for the server. Raises StartError."""
    deadline = time.monotonic() + START_SECONDS
    while b"Ready to accept connections" not in log.read_bytes():
        if time.monotonic() > deadline:
            raise StartError(f"redis-server does not start on port {port}:\n{log.read_text()}")
        time.sleep(0.02)


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs the command line; its exit status."""
    parser = argparse.ArgumentParser(prog="python -m bench.pins", description="What a pin costs in each store.")
    parser.add_argument("--pins", type=int, default=1_000_000, help="pins that are there (default: %(default)s)")
    options = parser.parse_args(arguments)
    rows = measure_memory(options.pins)
    program = shutil.which("redis-server") or shutil.which("valkey-server")
    if program is None:
        print("no redis-server here: only memory is measured", file=sys.stderr)
    else:
        (port,) = free_ports(1)
        with tempfile.TemporaryDirectory(prefix="bench-") as directory:
            log = Path(directory) / "log"
            quiet = ["--bind", "127.0.0.1", "--save", "", "--appendonly", "no", "--dir", directory]
            try:
                with logging_to(log, [program, "--port", str(port), *quiet]):
                    _answers(port, log)
                    rows += uvloop.run(measure_redis(f"redis://127.0.0.1:{port}", options.pins))
            except StartError as error:
                print(error, file=sys.stderr)
                return 2
    print(table(rows))
    return 0


if __name__ == "__main__":
    sys.exit(main())
