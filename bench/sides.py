"""The processes on the two sides of a target: the load generator and the backends."""

import json
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO

from bench.processes import talking_to
from bench.slices import Measurement, Order, SliceError, result_from_line
from bench.targets import StartError, Target


class LoadGenerator:
    """The load generator's process, one order at a time."""

    def __init__(self, orders: IO[str], results: IO[str]) -> None:
        self._orders = orders
        self._results = results

    def measure(
        self, target: Target, load: str, connections: int, seconds: float, *, ramp: float = 0.2, ca: Path | None = None
    ) -> Measurement:
        """One slice against this target, over TLS with the authority ``ca``. Raises SliceError, which names it."""
        try:
            order = Order(
                load, target.host, target.port, target.pids(), connections, seconds, ramp, "" if ca is None else str(ca)
            )
            print(order.to_line(), file=self._orders, flush=True)
            return result_from_line(self._results.readline())
        except (SliceError, OSError) as error:
            raise SliceError(f"{target.name}, {load}: {error}\n{target.last_output()}".rstrip()) from error


@contextmanager
def load_generator() -> Iterator[LoadGenerator]:
    """Runs the load generator while the context is open."""
    with talking_to([sys.executable, "-m", "bench.load"]) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        yield LoadGenerator(process.stdin, process.stdout)


@dataclass(frozen=True, slots=True)
class Backends:
    """Backends that all are the process ``pid``, and where they listen."""

    pid: int
    ports: tuple[int, ...]


@contextmanager
def upstreams(count: int, first_port: int = 0) -> Iterator[Backends]:
    """Runs so many backends while the context is open, on any ports or on those from this one. Raises StartError."""
    command = [sys.executable, "-m", "bench.upstream", "--count", str(count), "--first-port", str(first_port)]
    with talking_to(command) as process:
        assert process.stdout is not None
        line = process.stdout.readline()
        if not line:
            raise StartError("the backends did not start")
        yield Backends(process.pid, tuple(json.loads(line)))
