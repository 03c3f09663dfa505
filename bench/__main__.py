"""The run: starts everything, gives each target its slices in turn, prints the table."""

import json
import os
import platform
import random
import signal
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from types import FrameType
from typing import IO

from bench.options import Options, parse
from bench.processes import talking_to
from bench.report import BASELINE, Row, as_json, summarise, table
from bench.slices import Measurement, Order, SliceError, result_from_line
from bench.targets import StartError, Target, started

BACKENDS = 4
WARM_UP_SECONDS = 1.0


class LoadGenerator:
    """The load generator's process, one order at a time."""

    def __init__(self, options: Options, orders: IO[str], results: IO[str]) -> None:
        self._options = options
        self._orders = orders
        self._results = results

    def measure(self, target: Target, seconds: float) -> Measurement:
        """One slice against this target. Raises SliceError, which names it."""
        options = self._options
        try:
            order = Order(options.load, target.host, target.port, target.pids(), options.connections, seconds)
            print(order.to_line(), file=self._orders, flush=True)
            return result_from_line(self._results.readline())
        except (SliceError, OSError) as error:
            raise SliceError(f"{target.name}: {error}\n{target.last_output()}".rstrip()) from error


@contextmanager
def load_generator(options: Options) -> Iterator[LoadGenerator]:
    """Runs the load generator while the context is open."""
    with talking_to([sys.executable, "-m", "bench.load"]) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        yield LoadGenerator(options, process.stdin, process.stdout)


@contextmanager
def upstreams(options: Options) -> Iterator[list[int]]:
    """Runs the backends while the context is open; their ports. Raises StartError."""
    first_port = str(options.first_upstream_port)
    command = [sys.executable, "-m", "bench.upstream", "--count", str(BACKENDS), "--first-port", first_port]
    with talking_to(command) as process:
        assert process.stdout is not None
        line = process.stdout.readline()
        if not line:
            raise StartError("the backends did not start")
        yield json.loads(line)


def run(options: Options) -> list[dict[str, Measurement]]:
    """All rounds, each a measurement of every target. Raises StartError and SliceError; nothing is left running."""
    with ExitStack() as stack:
        directory = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="bench-")))
        ports = stack.enter_context(upstreams(options))
        targets = [stack.enter_context(started(name, ports, directory / name)) for name in options.start]
        targets += options.target
        generator = stack.enter_context(load_generator(options))

        for target in targets:
            generator.measure(target, WARM_UP_SECONDS)
        rng = random.Random(options.seed)
        rounds = []
        for number in range(options.slices):
            print(f"round {number + 1} of {options.slices}", file=sys.stderr)
            order = rng.sample(targets, len(targets))
            measured = {target.name: generator.measure(target, options.seconds) for target in order}
            rounds.append({target.name: measured[target.name] for target in targets})
        return rounds


def settings(options: Options) -> dict[str, object]:
    """What a reader must know to judge the numbers."""
    return {
        "load": options.load,
        "slices": options.slices,
        "seconds": options.seconds,
        "connections": options.connections,
        "seed": options.seed,
        "python": platform.python_version(),
        "cpus": os.cpu_count(),
        "machine": platform.machine(),
    }


def verdict(options: Options, rows: Sequence[Row]) -> int:
    """The exit status: 1 if the proxy costs more than it may."""
    if options.max_ratio is None:
        return 0
    ratio = next(row.ratio for row in rows if row.target == "proxy")
    assert ratio is not None
    if ratio <= options.max_ratio:
        return 0
    print(f"proxy costs {ratio:.2f} x {BASELINE}, more than {options.max_ratio:g}", file=sys.stderr)
    return 1


def stop(_signal: int, _frame: FrameType | None) -> None:
    """SIGTERM unwinds the run like Ctrl-C, so that every process is ended."""
    raise KeyboardInterrupt


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs the command line; its exit status."""
    options = parse(arguments)
    signal.signal(signal.SIGTERM, stop)
    try:
        rounds = run(options)
    except (StartError, SliceError) as error:
        print(error, file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        return 130
    rows = summarise(rounds)
    print(table(rows))
    if options.json is not None:
        options.json.write_text(json.dumps(as_json(rows, rounds, settings(options)), indent=2) + "\n")
    return verdict(options, rows)


if __name__ == "__main__":
    sys.exit(main())
