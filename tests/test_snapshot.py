"""Numbers of several processes are added up as their kind demands, and travel between processes unchanged."""

import json
from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from proxy.snapshot import BUCKETS, Counted, Histogram, Histograms, Least, Most, Series, Snapshot

COUNTERS = {
    *("requests", "responses", "decisions", "searches", "rejected", "bytes_in", "bytes_out", "hangups"),
    *("handshakes_failed", "unlearned", "retries", "withheld", "ejections", "reloads", "evicted", "restarts", "cpu"),
    "discovery_failures",
}
HISTOGRAMS = {"durations", "first_bytes"}
SUMMED = {
    *("streams", "queued", "clients", "in_flight", "pins", "workers", "resident", "virtual", "open_files"),
    "discovered",
}
LEAST = {"up", "generations", "loaded", "reload_ok", "store_up", "max_files", "started"}
MOST = {"draining", "discovery_success"}
FAMILIES = set(vars(Snapshot()))


def with_numbers(kind: type[Series], name: str, **numbers: float) -> Snapshot:
    """A snapshot of one family, whose only label has these values."""
    snapshot = Snapshot()
    family = getattr(snapshot, name)
    assert type(family) is kind
    family.update({(value,): number for value, number in numbers.items()})
    return snapshot


def test_every_family_has_a_rule() -> None:
    assert COUNTERS | HISTOGRAMS | SUMMED | LEAST | MOST == FAMILIES


@pytest.mark.parametrize(
    ("kind", "name", "both"),
    [
        *((Counted, name, 8) for name in sorted(COUNTERS)),
        *((Series, name, 8) for name in sorted(SUMMED)),
        *((Least, name, 3) for name in sorted(LEAST)),
        *((Most, name, 5) for name in sorted(MOST)),
    ],
)
def test_numbers_are_added_by_their_kind(kind: type[Series], name: str, both: float) -> None:
    total = with_numbers(kind, name, x=5, mine=1)
    total.add(with_numbers(kind, name, x=3, other=2))
    assert total == with_numbers(kind, name, x=both, mine=1, other=2)
    assert total.lasting() == (total if name in COUNTERS else Snapshot())


def test_a_store_that_is_down_for_one_process_is_down() -> None:
    total = Snapshot()
    total.store_up[()] = 1
    for up in (1, 0, 1):
        other = Snapshot()
        other.store_up[()] = up
        total.add(other)
    assert total.store_up == {(): 0}


@pytest.mark.parametrize("name", sorted(HISTOGRAMS))
def test_histograms_are_added_bucket_by_bucket_and_last(name: str) -> None:
    one, other = Snapshot(), Snapshot()
    for snapshot, bucket, seconds in ((one, 0, 0.5), (other, 0, 0.25), (other, len(BUCKETS), 1e6)):
        histogram = getattr(snapshot, name)["rest", "tools/call"]
        histogram.counts[bucket] += 1
        histogram.total += seconds
    one.add(other)
    histogram = getattr(one, name)["rest", "tools/call"]
    assert histogram.counts == [2, *([0] * (len(BUCKETS) - 1)), 1]
    assert histogram.total == 1e6 + 0.75
    assert one.lasting() == one


def test_what_is_added_or_left_shares_nothing_with_where_it_came_from() -> None:
    dead = Snapshot()
    dead.requests["rest", "ping", "200"] = 1
    dead.durations["rest", "ping"].counts[0] = 1
    left, total = dead.lasting(), Snapshot()
    total.add(left)
    total.add(left)
    assert total.durations["rest", "ping"].counts[0] == 2
    assert left == dead
    dead.durations["rest", "ping"].counts[0] = 9
    assert left.durations["rest", "ping"].counts[0] == 1


def test_looking_leaves_no_trace() -> None:
    snapshot = Snapshot()
    assert snapshot.hangups[()] == 0
    assert snapshot == Snapshot()


def test_backends_that_left_are_dropped_and_no_sum_loses_by_it() -> None:
    left = Snapshot()
    left.responses.update({("p", "a", "2xx"): 1, ("p", "b", "2xx"): 2, ("q", "a", "5xx"): 3})
    left.requests["rest", "ping", "200"] = 6
    left.keep({("p", "a"), ("q", "b")})
    assert left.responses == {("p", "a", "2xx"): 1}
    assert left.requests == {("rest", "ping", "200"): 6}


numbers = st.integers() | st.floats(allow_nan=False, allow_infinity=False)
texts = st.sampled_from(["", "agents", "10.0.0.1:80", 'a"b', "a\\b\n", "ümläut", "日本", "\U0001f600", "\ud800", "1"])
labels = st.lists(texts, max_size=4).map(tuple)


def histogram(counts: list[int], total: float) -> Histogram:
    made = Histogram()
    made.counts, made.total = counts, total
    return made


in_buckets = st.lists(st.integers(min_value=0), min_size=len(BUCKETS) + 1, max_size=len(BUCKETS) + 1)


@st.composite
def snapshots(draw: st.DrawFn, numbers: st.SearchStrategy[float] = numbers) -> Snapshot:
    snapshot = Snapshot()
    for name in draw(st.sets(st.sampled_from(sorted(FAMILIES)))):
        family = getattr(snapshot, name)
        values = st.builds(histogram, in_buckets, numbers) if isinstance(family, Histograms) else numbers
        family.update(draw(st.dictionaries(labels, values, max_size=3)))
    return snapshot


@given(snapshots())
def test_a_snapshot_travels_as_json_and_is_the_same(snapshot: Snapshot) -> None:
    again = Snapshot.of_values(json.loads(json.dumps(snapshot.as_values())))
    assert again == snapshot
    assert repr(again) == repr(snapshot)  # 1 and 1.0 are equal; they stay what they were


def total(parts: Sequence[Snapshot]) -> Snapshot:
    made = Snapshot()
    for part in parts:
        made.add(part)
    return made


@given(st.lists(snapshots(st.integers()), max_size=4))  # integers: sums of floats depend on the order a little
def test_the_order_of_adding_does_not_matter(parts: list[Snapshot]) -> None:
    assert total(parts) == total(parts[::-1])
    assert total([total(parts[:2]), total(parts[2:])]) == total(parts)
    assert total(parts).lasting() == total([part.lasting() for part in parts])


def test_families_without_series_take_no_room_and_others_are_passed_over() -> None:
    snapshot = Snapshot()
    snapshot.pins["task",] = 3
    assert snapshot.as_values() == {"pins": [["task", 3]]}
    assert Snapshot.of_values({"pins": [["task", 3]], "of_another_version": [["x", 1]]}) == snapshot


def test_other_buckets_are_refused() -> None:
    with pytest.raises(ValueError, match="buckets"):
        Snapshot.of_values({"durations": [["rest", "ping", [1, 2], 0.5]]})
