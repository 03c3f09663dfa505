"""Shares of a ring, and what a change of backends would move."""

from collections import Counter

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from proxy.routing.ring import Ring
from proxy.routing.ring_report import MOST_KEYS, RingReport, RingRow, WrongChange, report_text, ring_report

THREE = {"a": 1, "b": 1, "c": 2}


def by_id(report: RingReport) -> dict[str, RingRow]:
    return {row.backend: row for row in report.rows}


def test_without_a_change_there_are_shares_and_nothing_moves() -> None:
    report = ring_report(THREE, keys=1000)
    assert (report.keys, report.moved, report.moved_share) == (1000, None, 0.0)
    assert [(row.backend, row.weight, row.after) for row in report.rows] == [
        ("a", 1, None),
        ("b", 1, None),
        ("c", 2, None),
    ]
    ring = Ring(THREE)
    counted = Counter(ring.first(f"key-{number}") for number in range(1000))
    assert {row.backend: row.before for row in report.rows} == counted


def test_shares_follow_the_weights() -> None:
    rows = by_id(ring_report(THREE, keys=20_000))
    parts = {one: (row.before or 0) / 20_000 for one, row in rows.items()}
    assert parts["a"] == pytest.approx(0.25, abs=0.05)
    assert parts["c"] == pytest.approx(0.5, abs=0.05)


def test_it_is_the_same_each_time() -> None:
    assert ring_report(THREE, add=["d"], remove=["b"]) == ring_report(THREE, add=["d"], remove=["b"])
    assert ring_report(THREE).keys == 10_000


def test_an_added_backend_takes_and_nobody_else_gains() -> None:
    report = ring_report(THREE, add=["d"], keys=5000)
    rows = by_id(report)
    assert [row.backend for row in report.rows] == ["a", "b", "c", "d"]
    assert (rows["d"].weight, rows["d"].before) == (1, None)
    assert report.moved == rows["d"].after
    assert report.moved_share == pytest.approx(1 / 5, abs=0.05)
    assert all((row.after or 0) <= (row.before or 0) for row in report.rows if row.backend != "d")


def test_a_removed_backend_gives_and_nobody_else_loses() -> None:
    report = ring_report(THREE, remove=["c"], keys=5000)
    rows = by_id(report)
    assert (rows["c"].after, report.moved) == (None, rows["c"].before)
    assert all((row.after or 0) >= (row.before or 0) for row in report.rows if row.backend != "c")


def test_all_backends_can_be_exchanged() -> None:
    report = ring_report({"a": 1}, add=["b"], remove=["a"], keys=100)
    assert report.rows == (RingRow("a", 1, 100, None), RingRow("b", 1, None, 100))
    assert report.moved_share == 1.0


@settings(deadline=None, max_examples=30)
@given(
    st.dictionaries(st.sampled_from("abcd"), st.integers(1, 4), min_size=1),
    st.lists(st.sampled_from("wxyz"), unique=True, max_size=3),
    st.data(),
)
def test_every_key_has_a_place_before_and_after(weights: dict[str, int], add: list[str], data: st.DataObject) -> None:
    most = len(weights) if add else len(weights) - 1
    remove = data.draw(st.lists(st.sampled_from(sorted(weights)), unique=True, max_size=most))
    report = ring_report(weights, add=add, remove=remove, keys=200)
    assert sum(row.before or 0 for row in report.rows) == 200
    assert {row.backend for row in report.rows if row.before is not None} == set(weights)
    if add or remove:
        assert sum(row.after or 0 for row in report.rows) == 200
        assert {row.backend for row in report.rows if row.after is not None} == (set(weights) | set(add)) - set(remove)
        gained = sum(max(0, (row.after or 0) - (row.before or 0)) for row in report.rows)
        assert report.moved is not None and gained <= report.moved <= 200


@pytest.mark.parametrize(
    ("add", "remove", "message"),
    [
        (["a"], [], "'a' cannot be added: it is there already; the pool has a, b, c"),
        ([], ["d"], "'d' cannot be removed: the pool has a, b, c"),
        ([], ["a", "b", "c"], r"a pool needs a backend: all it has are to be removed \(a, b, c\)"),
        (["d", "d"], [], "'d' is named twice among the backends to add and to remove"),
        ([], ["a", "a"], "'a' is named twice"),
        (["d"], ["d"], "'d' is named twice"),
        ([""], [], "needs an id"),
        ([" "], [], "needs an id"),
    ],
)
def test_a_change_that_cannot_be_made(add: list[str], remove: list[str], message: str) -> None:
    with pytest.raises(WrongChange, match=message):
        ring_report(THREE, add=add, remove=remove, keys=10)


@pytest.mark.parametrize("keys", [0, -1, MOST_KEYS + 1])
def test_keys_are_bounded(keys: int) -> None:
    with pytest.raises(ValueError, match="between 1 and"):
        ring_report(THREE, keys=keys)


def test_the_table_of_shares() -> None:
    report = RingReport(1000, (RingRow("10.0.0.1:8000", 1, 333, None), RingRow("b", 10, 667, None)), None)
    assert report_text("agents", report) == (
        "pool agents: 1000 sample keys by the backend that comes first\n"
        "backend        weight   share\n"
        "10.0.0.1:8000       1  33.3 %\n"
        "b                  10  66.7 %\n"
    )


def test_the_table_of_a_change() -> None:
    rows = (RingRow("a", 1, 250, None), RingRow("b", 3, 750, 900), RingRow("c", 1, None, 100))
    assert report_text("agents", RingReport(1000, rows, 350)) == (
        "pool agents: 1000 sample keys by the backend that comes first\n"
        "backend  weight   share   after\n"
        "a             1  25.0 %       -\n"
        "b             3  75.0 %  90.0 %\n"
        "c             1       -  10.0 %\n"
        "the change moves 350 of them, 35.0 %\n"
    )
