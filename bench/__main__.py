"""The run: starts everything, gives each target its slices in turn, prints the table."""

import json
import os
import platform
import random
import signal
import sys
import tempfile
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path
from types import FrameType

from bench.options import Options, parse
from bench.report import BASELINE, Row, as_json, summarise, table
from bench.sides import load_generator, upstreams
from bench.slices import Measurement, SliceError
from bench.targets import StartError, started

BACKENDS = 4
WARM_UP_SECONDS = 1.0


def run(options: Options) -> list[dict[str, Measurement]]:
    """All rounds, each a measurement of every target. Raises StartError and SliceError; nothing is left running."""
    with ExitStack() as stack:
        directory = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="bench-")))
        backends = stack.enter_context(upstreams(BACKENDS, options.first_upstream_port))
        targets = [stack.enter_context(started(name, backends.ports, directory / name)) for name in options.start]
        targets += options.target
        generator = stack.enter_context(load_generator())

        for target in targets:
            generator.measure(target, options.load, options.connections, WARM_UP_SECONDS)
        rng = random.Random(options.seed)
        rounds = []
        for number in range(options.slices):
            print(f"round {number + 1} of {options.slices}", file=sys.stderr)
            order = rng.sample(targets, len(targets))
            measured = {
                target.name: generator.measure(target, options.load, options.connections, options.seconds)
                for target in order
            }
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
