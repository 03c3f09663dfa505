"""What fails a chaos run, and what its plan is sure to hold."""

import random
from collections import Counter
from dataclasses import replace
from typing import Any, get_args

import pytest

from tests.chaos.events import STORE, Kind, kinds_of, plan
from tests.chaos.ledger import Report

GOOD = Report(
    settings="",
    wanted=10,
    made=10,
    completed=10,
    by_backend={"a": 10},
    carried_out=11,
    carried_out_twice=0,
    counts=Counter({"polls": 30, "503 owner_unknown": 2, "cut poll": 3}),
    unanswered_after=Counter({"proxy killed 0": 3}),
    events=Counter({"proxy killed": 1}),
    expected_events=("proxy killed",),
    searches=Counter(found=3),
    stored=10,
    unlearned=Counter(),
    mistakes=[],
    troubles=[],
    events_in_order=["1.0 s  proxy killed 0"],
    seconds=1.0,
)


def test_a_good_run_has_no_failures_and_tells_its_figures() -> None:
    assert GOOD.failures() == []
    assert "10, 10, 0" in GOOD.text()
    assert "503 owner_unknown: 2, cut poll: 3" in GOOD.text()
    assert "FAILED" not in GOOD.text()


@pytest.mark.parametrize(
    ("change", "failure"),
    [
        ({"completed": 9}, "1 of 10 tasks lost"),
        ({"wanted": 11}, "10 tasks made, 11 were to be"),
        ({"counts": Counter(wrong=2)}, "2 polls or calls answered wrong"),
        ({"counts": Counter(astray=1)}, "1 polls or calls answered astray"),
        ({"counts": Counter(strange=1)}, "1 polls or calls answered strange"),
        ({"counts": Counter(mismanaged=1)}, "a backend was not treated as one that drains"),
        ({"stored": 0}, "no pin is in the shared store"),
        ({"carried_out_twice": 1}, "1 calls carried out twice"),
        ({"carried_out": 9}, "1 tasks that no backend made"),
        ({"troubles": ["Traceback\n  file\nKeyError: 1"]}, "a proxy's log tells of a fault: KeyError: 1"),
        ({"expected_events": ("proxy killed", "worker killed")}, "never happened: worker killed"),
    ],
)
def test_a_run_fails(change: dict[str, Any], failure: str) -> None:
    report = replace(GOOD, **change)
    assert report.failures() == [failure]
    assert f"FAILED {failure}" in report.text()


@pytest.mark.parametrize("seconds", [5.0, 10.0, 60.0])
@pytest.mark.parametrize("redis", [True, False])
@pytest.mark.parametrize("workers", [1, 2])
def test_every_kind_of_event_is_in_every_plan_and_in_order(seconds: float, redis: bool, workers: int) -> None:
    absent = {*(() if redis else STORE), *(("worker killed",) if workers == 1 else ())}
    for seed in range(200):
        tracks = plan(random.Random(seed), seconds, workers=workers, redis=redis)
        assert kinds_of(tracks) == [kind for kind in get_args(Kind) if kind not in absent]
        for track in tracks:
            assert track == sorted(track, key=lambda step: step.at)
            assert track[0].at > 0
            assert track[-1].at < seconds


def test_a_seed_draws_one_plan() -> None:
    first, same, other = (plan(random.Random(seed), 60, workers=2, redis=True) for seed in (1, 1, 2))
    assert first == same != other
