"""Work spread by a key: the same member while it has room, and bounded load."""

from fractions import Fraction
from math import ceil

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from proxy.routing.errors import MalformedHeader
from proxy.routing.headers import RoutingHeaders
from proxy.routing.members import Member
from proxy.routing.pools import Pool, RingKey
from tests.routing.pooling import BY_NAME, TASKS, by_ring, call, chosen, member, pool_of


def test_a_ring_key_names_the_same_member_while_it_has_room() -> None:
    pool = pool_of("abcde", ring_key=BY_NAME)
    for task in TASKS[:50]:
        assert {chosen(pool, call(task)) for _ in range(3)} == {(by_ring(pool, task), "ring")}


def test_a_marked_name_is_the_same_key_as_a_plain_one() -> None:
    pool = pool_of("abcdefgh", ring_key=BY_NAME)
    assert chosen(pool, call("=?base64?d2hvYW1p?=")) == chosen(pool, call("whoami"))


def bound(pool: Pool, one: Member) -> int:
    """The most that may be in flight at a member once one more request is under way."""
    fit = sum(other.backend.weight for other in pool.members if other.fit)
    return ceil(Fraction(5, 4) * (pool.in_flight + 1) * Fraction(one.backend.weight, fit))


@settings(deadline=None, max_examples=150)
@given(
    weights=st.lists(st.integers(1, 4), min_size=1, max_size=6),
    drained=st.sets(st.sampled_from("bcdef")),
    steps=st.lists(st.tuples(st.integers(0, 3), st.integers(0, 4)), max_size=60),
)
def test_load_on_the_ring_is_bounded(weights: list[int], drained: set[str], steps: list[tuple[int, int]]) -> None:
    """Popular names first: no member goes over its bound while another has room, and none that has room is skipped."""
    ids = "abcdef"[: len(weights)]
    pool = pool_of(
        ids, drained="".join(drained), weights=dict(zip(ids, weights, strict=True)), ring_key=BY_NAME, tag=None
    )
    order = dict.fromkeys("wxyz", "")
    for name in order:
        while len(order[name]) < sum(one.fit for one in pool.members):
            order[name] += by_ring(pool, name, order[name])
    running: list[Member] = []
    for name_index, ends in steps:
        name = "wxyz"[name_index]
        room = {one.backend.id for one in pool.members if one.fit and one.in_flight < bound(pool, one)}
        one = pool.balance(call(name)).member
        assert one.backend.id == next(first for first in order[name] if first in room)
        pool.start(one, 0.0)
        running.append(one)
        for _ in range(min(ends, len(running)) if ends > 2 else 0):
            pool.end(running.pop(0))
    for one in running:
        pool.end(one)
    assert [one.in_flight for one in pool.members] == [0] * len(pool.members)
    assert pool.in_flight == 0


def test_one_popular_name_spreads_until_no_member_is_over_its_share_and_a_quarter() -> None:
    pool = pool_of("abcd", ring_key=BY_NAME)
    for _ in range(100):
        pool.start(pool.balance(call("popular")).member, 0.0)
    assert max(one.in_flight for one in pool.members) <= ceil(1.25 * 101 / 4)
    assert pool.in_flight == 100


def test_when_no_untried_member_has_room_the_first_in_order_gets_it() -> None:
    """Its load is bounded among all, not among those left to try; an answer beats none."""
    pool = pool_of("abc", ring_key=BY_NAME)
    first = by_ring(pool, "x")
    left = [one.backend.id for one in pool.members if one.backend.id != first]
    for one in left:
        for _ in range(20):
            pool.start(member(pool, one), 0.0)
    assert chosen(pool, call("x"), tried=first) == (by_ring(pool, "x", tried=first), "ring")


@pytest.mark.parametrize(
    ("key", "request_headers", "expected"),
    [
        (RingKey("name"), call("whoami"), "whoami"),
        (RingKey("name"), call("=?base64?b3V0aWwtw6k=?="), "outil-é"),
        (RingKey("name"), call(""), ""),
        (RingKey("name"), call(None), None),
        (RingKey("name"), call("whoami", modern=False), None),
        (RingKey("param", "region"), call("x")._replace(params=(("region", "eu"),)), "eu"),
        (RingKey("param", "region"), call("x")._replace(params=(("other", "eu"),)), None),
        (RingKey("param", "region"), call("x", modern=False)._replace(params=(("region", "eu"),)), None),
        (RingKey("header", "x-tenant"), call("x")._replace(fields={"x-tenant": "acme"}), "acme"),
        (RingKey("header", "x-tenant"), call("x", modern=False)._replace(fields={"x-tenant": "acme"}), "acme"),
        (RingKey("header", "x-tenant"), call("x")._replace(fields={"x-tenant": "=?base64?!?="}), "=?base64?!?="),
        (RingKey("header", "x-tenant"), call("x"), None),
        (RingKey("authorization"), call("x")._replace(fields={"authorization": "Bearer a"}), "Bearer a"),
        (RingKey("authorization"), call("x"), None),
    ],
)
def test_the_key_of_a_request(key: RingKey, request_headers: RoutingHeaders, expected: str | None) -> None:
    assert key.of(request_headers) == expected
    pool = pool_of("abcde", ring_key=key)
    source = "balance" if expected is None else "ring"
    assert chosen(pool, request_headers)[1] == source


def test_requests_without_a_key_go_where_least_is_in_flight() -> None:
    pool = pool_of("abc", ring_key=BY_NAME)
    pool.start(member(pool, "a"), 0.0)
    pool.start(member(pool, "c"), 0.0)
    assert {chosen(pool, call(None)) for _ in range(5)} == {("b", "balance")}


def test_a_key_that_does_not_decode_is_malformed() -> None:
    pool = pool_of("abc", ring_key=BY_NAME)
    with pytest.raises(MalformedHeader):
        pool.balance(call("=?base64?!?="))
