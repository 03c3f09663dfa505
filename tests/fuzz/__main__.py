"""`python -m tests.fuzz TARGET...`: runs the targets under atheris, guided by the code they reach. See `make fuzz`.

Each target runs in a process of its own, for so many inputs or seconds, whichever is over first. It begins with the
seeds, and with what earlier runs found worth keeping, in `.fuzz/TARGET`. An input that fails is left there as
`crash-...`, and the exit code is 1. Give such a file behind one TARGET to run it alone.
"""

import argparse
import subprocess
import sys
from pathlib import Path

import atheris

_KEPT = Path(".fuzz")

# What is imported from here on counts the branches it takes.
with atheris.instrument_imports(include=["proxy"]):
    from tests.fuzz.targets import TARGETS


def run_one(name: str, flags: list[str]) -> None:
    """Runs a target in this process, which the fuzzer ends."""
    atheris.Setup([name, *flags], TARGETS[name].check)
    atheris.Fuzz()


def main() -> int:
    """0, or 1 if a target found something."""
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz", description=__doc__.partition("\n")[0])
    parser.add_argument("targets", nargs="*", metavar="TARGET", help=f"of {', '.join(TARGETS)}; default: all of them")
    parser.add_argument("--runs", type=int, default=100_000, help="inputs of each target (default: %(default)s)")
    parser.add_argument("--seconds", type=int, default=600, help="of each target at most (default: %(default)s)")
    parser.add_argument("--input", metavar="FILE", help="run the targets on this input alone")
    parser.add_argument("--here", action="store_true", help=argparse.SUPPRESS)
    asked = parser.parse_args()
    unknown = [name for name in asked.targets if name not in TARGETS]
    if unknown:
        parser.error(f"no target {', '.join(unknown)}; there is {', '.join(TARGETS)}")
    names = asked.targets or list(TARGETS)
    if asked.input is not None:
        for name in names:
            TARGETS[name].check(Path(asked.input).read_bytes())
        return 0
    if asked.here:
        kept = _KEPT / names[0]
        flags = [f"-atheris_runs={asked.runs}", f"-max_total_time={asked.seconds}", f"-artifact_prefix={kept}/"]
        run_one(names[0], [*flags, f"-max_len={TARGETS[names[0]].longest}", "-timeout=20", str(kept / "inputs")])
    failed = []
    for name in names:
        inputs = _KEPT / name / "inputs"
        inputs.mkdir(parents=True, exist_ok=True)
        for number, seed in enumerate(TARGETS[name].seeds()):
            (inputs / f"seed-{number}").write_bytes(seed)
        command = [sys.executable, "-m", "tests.fuzz", name, "--here"]
        done = subprocess.run([*command, f"--runs={asked.runs}", f"--seconds={asked.seconds}"], check=False)
        if done.returncode:
            failed.append(name)
    sys.stderr.write(f"found something: {', '.join(failed)}\n" if failed else "nothing was found\n")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
