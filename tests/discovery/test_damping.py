"""Who is believed to be there, answer by answer, under a clock of the test's own."""

import random
from dataclasses import replace

import pytest

from proxy.discovery.damping import EMPTY_HOLD, MOST_EMPTY, Damping
from proxy.routing.backends import Backend


def backends(ids: str) -> list[Backend]:
    return [Backend(one, "127.0.0.1", 1) for one in ids]


def believed(hold: float, answers: list[tuple[float, str]], seed: str = "") -> list[str]:
    """What is believed after each answer, which is given by its time and the ids in it; sorted."""
    damping = Damping(hold, backends(seed))
    return ["".join(sorted(one.id for one in damping.take(backends(ids), now))) for now, ids in answers]


@pytest.mark.parametrize(
    ("answers", "expected"),
    [
        # Who comes is in at once.
        ([(0, "a"), (1, "ab"), (2, "abc")], ["a", "ab", "abc"]),
        # Who goes is out after the hold, not before.
        ([(0, "ab"), (1, "a"), (5, "a"), (10.9, "a"), (11, "a")], ["ab", "ab", "ab", "ab", "a"]),
        # Who comes back meanwhile has never gone.
        ([(0, "ab"), (1, "a"), (10, "ab"), (12, "a"), (21, "a"), (22, "a")], ["ab"] * 5 + ["a"]),
        # One answer without is not enough, however late.
        ([(0, "ab"), (60, "a"), (120, "a")], ["ab", "ab", "a"]),
        # Parts of a set in turn are the whole set.
        ([(0, "ab"), (4, "cd"), (8, "ab"), (12, "cd"), (16, "ab"), (20, "cd")], ["ab"] + ["abcd"] * 5),
        # Each has a hold of its own.
        ([(0, "abc"), (1, "bc"), (6, "c"), (11, "c"), (16, "c")], ["abc", "abc", "abc", "bc", "c"]),
    ],
)
def test_who_comes_is_in_at_once_and_who_goes_is_out_later(
    answers: list[tuple[float, str]], expected: list[str]
) -> None:
    assert believed(10, answers) == expected


def test_without_a_hold_every_answer_counts() -> None:
    assert believed(0, [(0, "ab"), (1, "a"), (2, "b")]) == ["ab", "a", "b"]


@pytest.mark.parametrize("hold", [0.0, 10.0, 90.0])
def test_an_empty_answer_does_not_empty_a_pool_that_had_somebody_a_moment_ago(hold: float) -> None:
    long = max(hold, EMPTY_HOLD)
    damping = Damping(hold)
    assert len(damping.take(backends("ab"), 0)) == 2
    for now in (1, 2, 3, long / 2, long + 0.9):
        assert len(damping.take([], now)) == 2
        assert damping.doubting
    assert damping.take([], long + 1) == ()
    assert not damping.doubting
    assert damping.take([], long + 2) == ()


def test_an_empty_answer_is_believed_when_enough_of_them_have_come() -> None:
    answers: list[tuple[float, str]] = [(0, "a"), *((100.0 * turn, "") for turn in range(1, MOST_EMPTY + 1))]
    assert believed(10, answers) == ["a"] * MOST_EMPTY + [""]


def test_empty_answers_count_in_a_row_only() -> None:
    answers: list[tuple[float, str]] = [(0, "a"), (10, ""), (30, ""), (35, "a"), (41, ""), (45, ""), (60, "")]
    assert believed(10, answers) == ["a"] * 7


def test_who_was_emptied_comes_back_at_once() -> None:
    assert believed(10, [(0, "a"), (1, ""), (20, ""), (31, ""), (32, "ab")]) == ["a", "a", "a", "", "ab"]


def test_nobody_at_first_is_an_answer() -> None:
    assert believed(10, [(0, ""), (1, "a")]) == ["", "a"]


def test_those_from_before_stay_until_somebody_is_found_and_then_they_are_replaced() -> None:
    assert believed(10, [(0, ""), (1, "bc"), (2, "c")], seed="ab") == ["ab", "bc", "bc"]
    assert believed(10, [(0, ""), (20, ""), (30, "")], seed="ab") == ["ab", "ab", ""]


def test_what_is_told_of_a_backend_counts_at_once() -> None:
    damping = Damping(10)
    (known,) = damping.take(backends("a"), 0)
    assert known.weight == 1
    (known,) = damping.take([replace(known, weight=7)], 1)
    assert known.weight == 7


def test_any_sequence_of_answers_keeps_the_rules() -> None:
    rng = random.Random(7)
    for _ in range(300):
        hold, now = rng.choice([0.0, 3.0, 10.0]), 0.0
        damping = Damping(hold)
        seen: dict[str, float] = {}  # when each was in an answer last
        for _ in range(30):
            now += rng.uniform(0.5, 4)
            answer = backends("".join(one for one in "abcd" if rng.random() < 0.4))
            members = {one.id for one in damping.take(answer, now)}
            seen |= {one.id: now for one in answer}
            assert {one.id for one in answer} <= members <= seen.keys()
            assert {one for one, last in seen.items() if now - last < hold} <= members
