"""Which worker accepts from which socket, and how long a dead one's seat stays empty."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from proxy.workers.seats import FIRST_PAUSE, LONGEST_PAUSE, OLD_ENOUGH, Pauses, assigned


@pytest.mark.parametrize(
    ("sockets", "seats", "accepting", "expected"),
    [
        (2, 2, {0, 1}, {0: (0,), 1: (1,)}),
        (2, 2, {1}, {1: (0, 1)}),
        (2, 2, set(), {}),
        (3, 3, {0, 2}, {0: (0,), 2: (1, 2)}),
        (3, 3, {0, 1}, {0: (0, 2), 1: (1,)}),
        # More sockets than workers, as a larger generation leaves them.
        (3, 2, {0, 1}, {0: (0, 2), 1: (1,)}),
        (4, 1, {0}, {0: (0, 1, 2, 3)}),
        (3, 2, {1}, {1: (0, 1, 2)}),
        # Fewer, as a service manager hands them over: they are shared.
        (1, 2, {0, 1}, {0: (0,), 1: (0,)}),
        (1, 3, {2}, {2: (0,)}),
        (2, 3, {0, 1, 2}, {0: (0,), 1: (1,), 2: (0,)}),
        (2, 3, {1, 2}, {1: (1,), 2: (0,)}),
    ],
)
def test_sockets_are_accepted_from(
    sockets: int, seats: int, accepting: set[int], expected: dict[int, tuple[int, ...]]
) -> None:
    found = assigned(sockets=sockets, seats=seats, accepting=accepting)
    if sockets >= seats:
        assert found == expected
    else:  # who stands in for a seat may share its socket with others
        assert found.keys() == expected.keys()
        assert all(set(own) <= set(found[seat]) for seat, own in expected.items())


@given(st.integers(1, 8), st.integers(1, 8), st.data())
def test_every_socket_is_accepted_from_by_its_own_worker_if_that_one_accepts(
    sockets: int, seats: int, data: st.DataObject
) -> None:
    accepting = data.draw(st.sets(st.integers(0, seats - 1)))
    found = assigned(sockets=sockets, seats=seats, accepting=accepting)
    assert found.keys() == accepting
    served = [index for indices in found.values() for index in indices]
    assert set(served) == (set(range(sockets)) if accepting else set())
    for seat in accepting:
        assert found[seat]  # nobody is idle
        assert list(found[seat]) == sorted(set(found[seat]))
        assert all(index in found[seat] for index in range(sockets) if index % seats == seat)
    if sockets >= seats:
        assert len(served) == len(set(served))  # each by one alone


@given(st.integers(1, 8), st.integers(2, 8), st.data())
def test_whoever_dies_or_comes_back_changes_nothing_between_two_others(
    sockets: int, seats: int, data: st.DataObject
) -> None:
    """A socket that moves away from a worker that lives would leave its queue to somebody else for no reason."""
    accepting = data.draw(st.sets(st.integers(0, seats - 1), min_size=2))
    gone = data.draw(st.sampled_from(sorted(accepting)))
    before = assigned(sockets=sockets, seats=seats, accepting=accepting)
    after = assigned(sockets=sockets, seats=seats, accepting=accepting - {gone})
    for seat in accepting - {gone}:
        assert set(before[seat]) <= set(after[seat])


def test_the_dead_are_replaced_at_once_if_they_lived_and_ever_later_if_they_die_young() -> None:
    pauses = Pauses()
    assert pauses.after(OLD_ENOUGH) == 0.0
    young = [pauses.after(0.5) for _ in range(10)]
    assert young[:4] == pytest.approx([FIRST_PAUSE, 2 * FIRST_PAUSE, 4 * FIRST_PAUSE, 8 * FIRST_PAUSE])
    assert young == sorted(young)
    assert young[-1] == LONGEST_PAUSE
    assert pauses.after(OLD_ENOUGH) == 0.0
    assert pauses.after(OLD_ENOUGH - 0.1) == FIRST_PAUSE


def test_the_first_to_die_young_is_replaced_at_once() -> None:
    assert Pauses().after(0.0) == 0.0
