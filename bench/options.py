"""What the command line asks for, checked before anything is started."""

import argparse
import math
from collections.abc import Sequence
from pathlib import Path

from bench.recipes import RECIPES
from bench.report import BASELINE
from bench.targets import Target, external, installed
from bench.workload import LOADS


class Options(argparse.Namespace):
    """The settings of one run."""

    start: list[str]
    target: list[Target]
    load: str
    slices: int
    seconds: float
    connections: int
    seed: int
    first_upstream_port: int
    max_ratio: float | None
    json: Path | None


def parse(arguments: Sequence[str] | None) -> Options:
    """Reads the command line (``sys.argv`` for None). Says what is wrong and exits with 2 if it cannot be obeyed."""
    parser = argparse.ArgumentParser(
        prog="python -m bench",
        description="CPU time per request of several proxies, measured beside each other in one run.",
        epilog="Exit status: 0; 1 if --max-ratio is exceeded; 2 if the run failed.",
    )
    parser.add_argument(
        "--start",
        nargs="*",
        choices=tuple(RECIPES),
        metavar="NAME",
        help=f"proxies to start, of {', '.join(RECIPES)} (default: the first three, as far as they are installed)",
    )
    parser.add_argument(
        "--target",
        action="append",
        type=_external,
        default=[],
        metavar="NAME=HOST:PORT:PID",
        help="a proxy that is running already; its backends must be those of --first-upstream-port",
    )
    parser.add_argument("--load", choices=LOADS, default=LOADS[0], help="what is sent (default: %(default)s)")
    parser.add_argument("--slices", type=_positive_int, default=7, help="rounds (default: %(default)s)")
    parser.add_argument("--seconds", type=_positive_float, default=1.0, help="length of a slice (default: %(default)s)")
    parser.add_argument("--connections", type=_positive_int, default=32, help="clients (default: %(default)s)")
    parser.add_argument("--seed", type=int, default=1, help="of the order within the rounds (default: %(default)s)")
    parser.add_argument(
        "--first-upstream-port",
        type=int,
        default=0,
        metavar="PORT",
        help="backends here and on the next 3 (default: any)",
    )
    parser.add_argument(
        "--max-ratio",
        type=_positive_float,
        metavar="X",
        help=f"exit with 1 if proxy costs over X times {BASELINE}",
    )
    parser.add_argument("--json", type=Path, metavar="FILE", help="also write everything measured to this file")
    options = parser.parse_args(arguments, Options())

    if options.start is None:
        options.start = [name for name, recipe in RECIPES.items() if recipe.usual and installed(name)]
    names = options.start + [target.name for target in options.target]
    if not names:
        parser.error("nothing to measure")
    if len(set(names)) < len(names):
        parser.error("two targets have one name")
    if options.json is not None and not options.json.parent.is_dir():
        parser.error(f"--json: {options.json.parent} is no directory")
    if options.max_ratio is not None and not {"proxy", BASELINE} <= set(names):
        parser.error(f"--max-ratio needs both proxy and {BASELINE}")
    return options


def _external(text: str) -> Target:
    try:
        return external(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from error


def _positive_int(text: str) -> int:
    if not text.isdecimal() or int(text) == 0:
        raise argparse.ArgumentTypeError(f"{text!r} is not a whole number above 0")
    return int(text)


def _positive_float(text: str) -> float:
    try:
        number = float(text)
    except ValueError:
        number = 0.0
    if not 0 < number < math.inf:
        raise argparse.ArgumentTypeError(f"{text!r} is not a number above 0")
    return number
