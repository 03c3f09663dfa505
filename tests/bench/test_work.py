"""The proxy does no more work for a request than was accepted, counted in calls and instructions instead of time."""

import subprocess
import sys
from pathlib import Path

import pytest

from bench.work import VERSION, Calls, Instructions, accepted_by_version, grown

ROOT = Path(__file__).parents[2]
ADVICE = """
Python calls or instructions for a request have grown by more than 15 %. Where that is the price of something wanted,
write the new counts down, with a word in the commit on what they buy:

    python -m bench.work --accept
"""


@pytest.mark.skipif(VERSION not in accepted_by_version(), reason=f"no counts are written down for Python {VERSION}")
def test_a_request_costs_no_more_work_than_was_accepted() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "bench.work", "--check"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=150,
        check=False,
    )
    assert done.returncode == 0, f"{done.stderr}{ADVICE if done.returncode == 1 else ''}"


@pytest.mark.parametrize(
    ("calls", "instructions", "complaints"),
    [
        (100, 1000, []),
        (115, 1150, []),
        (50, 500, []),
        (116, 1000, ["load: 116 calls instead of 100 (+16%)"]),
        (100, 1200, ["load: 1200 instructions instead of 1000 (+20%)"]),
        (200, 2000, ["load: 200 calls instead of 100 (+100%)", "load: 2000 instructions instead of 1000 (+100%)"]),
    ],
)
def test_growth_over_15_percent_is_a_complaint(calls: float, instructions: float, complaints: list[str]) -> None:
    accepted = {"load": {"calls": 100.0, "instructions": 1000.0}}
    assert grown({"load": {"calls": calls, "instructions": instructions}}, accepted) == complaints


def passes() -> None:
    pass


def some_work() -> None:
    passes()
    abs(-1)


def counted(counter: Calls | Instructions, rounds: int) -> int:
    counter.start()
    try:
        for _ in range(rounds):
            some_work()
    finally:
        counter.stop()
    return counter.count


def test_calls_of_both_kinds_are_counted() -> None:
    assert counted(Calls(), 10) - counted(Calls(), 0) == 10 * 3


def test_instructions_are_counted_and_the_same_each_time() -> None:
    none, once, often = (counted(Instructions(), rounds) for rounds in (0, 1, 10))
    assert once > none
    assert often - none == 10 * (once - none)
