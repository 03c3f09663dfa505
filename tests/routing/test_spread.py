"""How new work is spread is told as it is: exactly, by who takes new work, and as it would be without a backend."""

from collections import Counter

import pytest

from proxy.routing.backends import Backend
from proxy.routing.balancing import LeastInFlight
from proxy.routing.headers import RoutingHeaders
from proxy.routing.pools import Pool, RingKey
from proxy.routing.spread import MOST_DRAWN, SLICES, Part, spread_of
from tests.routing.asking import asked

KEYS = 3000


def pool_of(ids: str, ring: bool = False, **weights: int) -> Pool:
    backends = [Backend(one, "10.0.0.1", 8000 + i, weight=weights.get(one, 1)) for i, one in enumerate(ids)]
    return Pool("agents", backends, policy=LeastInFlight(), ring_key=RingKey("name") if ring else None)


def drain(pool: Pool, one: str) -> None:
    member = pool.member(one)
    assert member is not None
    pool.set_draining(member, True)


def test_a_policy_spreads_by_weight() -> None:
    assert spread_of(pool_of("ab", b=3)).parts() == [Part("a", 0.25, 0.25, None), Part("b", 0.75, 0.75, None)]


def test_who_takes_no_new_work_has_no_part_of_it() -> None:
    pool = pool_of("abc", b=2)
    drain(pool, "b")
    assert spread_of(pool).parts() == [
        Part("a", 0.25, 0.5, None),
        Part("b", 0.5, 0.0, None),
        Part("c", 0.25, 0.5, None),
    ]


def test_what_a_drain_would_do() -> None:
    parts = spread_of(pool_of("abc", b=2), without="b").parts()
    assert parts == [Part("a", 0.25, 0.25, 0.5), Part("b", 0.5, 0.5, 0.0), Part("c", 0.25, 0.25, 0.5)]


def test_without_the_last_one_nobody_has_a_part() -> None:
    assert spread_of(pool_of("a"), without="a").parts() == [Part("a", 1.0, 1.0, 0.0)]


def test_an_ejected_backend_serves_where_the_others_are_gone() -> None:
    """Ejection alone never empties a pool."""
    pool = pool_of("ab")
    pool.members[0].conduct.told([100.0])
    assert spread_of(pool, without="b").parts() == [Part("a", 0.5, 0.0, 1.0), Part("b", 0.5, 1.0, 0.0)]


def ask(pool: Pool, number: int) -> RoutingHeaders:
    return asked(method="tools/call", name=f"tool-{number}")


def test_the_ring_spreads_as_requests_are_spread() -> None:
    pool = pool_of("abcd", ring=True, b=2)
    drain(pool, "c")
    parts = spread_of(pool, without="d").parts()
    seen = Counter(pool.balance(ask(pool, number)).member.backend.id for number in range(KEYS))
    assert all(abs(seen[part.backend] / KEYS - part.now) < 0.03 for part in parts)
    drain(pool, "d")
    seen = Counter(pool.balance(ask(pool, number)).member.backend.id for number in range(KEYS))
    assert all(part.after is not None and abs(seen[part.backend] / KEYS - part.after) < 0.03 for part in parts)
    assert sum(part.configured for part in parts) == pytest.approx(1.0)


@pytest.mark.parametrize(
    ("count", "ring", "drawn"),
    [(3, True, SLICES), (MOST_DRAWN, True, SLICES), (MOST_DRAWN + 1, True, 0), (3, False, 0)],
)
def test_the_ring_is_drawn_where_it_spreads_and_can_be_seen(count: int, ring: bool, drawn: int) -> None:
    assert len(spread_of(pool_of("abcdefghijkl"[:count], ring)).slices()) == drawn
