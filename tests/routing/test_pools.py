"""Who gets an attempt: the owner, the ring, or the policy; drained and tried members left out; what is in flight."""

import re
from collections import Counter

import pytest

from proxy.routing.backends import Backend
from proxy.routing.balancing import BalancingPolicy, LeastInFlight, RoundRobin
from proxy.routing.errors import NoBackend
from proxy.routing.ownership import session_tag
from proxy.routing.pools import Pool, RingKey, State
from tests.routing.pooling import BY_NAME, TASKS, by_ring, call, chosen, member, pool_of


def test_members_keep_their_configured_order_and_are_found_by_id() -> None:
    pool = pool_of("cab")
    assert [one.backend.id for one in pool.members] == ["c", "a", "b"]
    assert [pool.member(one.backend.id) for one in pool.members] == list(pool.members)
    assert pool.member("d") is None


def test_in_flight_is_counted_for_each_member_and_the_pool() -> None:
    pool = pool_of("ab")
    a, b = pool.members
    for now, one in enumerate((a, b, a)):
        pool.start(one, float(now))
    assert (a.in_flight, b.in_flight, pool.in_flight) == (2, 1, 3)
    assert (a.last_used, b.last_used) == (2.0, 1.0)
    for one in (a, b, a):
        pool.end(one)
    assert (a.in_flight, b.in_flight, pool.in_flight) == (0, 0, 0)
    assert (a.last_used, b.last_used) == (2.0, 1.0)


def test_without_a_ring_key_the_policy_decides() -> None:
    assert [chosen(pool_of("abc"), call("x")) for _ in range(2)] == [("a", "balance")] * 2
    pool = pool_of("abc")
    assert [chosen(pool, call("x"))[0] for _ in range(6)] == ["a", "b", "c"] * 2


def test_a_drained_member_gets_no_new_work() -> None:
    pool = pool_of("abc", drained="b")
    assert [one.fit for one in pool.members] == [True, False, True]
    assert Counter(chosen(pool, call("x"))[0] for _ in range(10)) == {"a": 5, "c": 5}
    assert {by_ring(pool, f"task-{number}") for number in range(100)} == {"a", "c"}


def test_tried_members_are_left_out() -> None:
    pool = pool_of("abc")
    assert {chosen(pool, call("x"), tried="ac")[0] for _ in range(5)} == {"b"}
    assert {by_ring(pool, f"task-{number}", tried="ac") for number in range(50)} == {"b"}


@pytest.mark.parametrize(
    ("ids", "drained", "tried", "text"),
    [
        ("ab", "ab", "", "pool agents: no backend takes new work"),
        ("", "", "", "pool agents: no backend takes new work"),
        ("ab", "", "ab", "pool agents: every backend was tried"),
        ("ab", "a", "b", "pool agents: every backend was tried"),
    ],
)
@pytest.mark.parametrize("ring_key", [None, BY_NAME])
def test_no_backend(ids: str, drained: str, tried: str, text: str, ring_key: RingKey | None) -> None:
    pool = pool_of(ids, drained=drained, ring_key=ring_key)
    for attempt in (lambda: chosen(pool, call("x"), tried), lambda: by_ring(pool, "x", tried)):
        with pytest.raises(NoBackend) as caught:
            attempt()
        assert str(caught.value) == text


def test_a_drain_moves_nobody_else_s_keys() -> None:
    whole, drained = pool_of("abcde"), pool_of("abcde", drained="c")
    for task in TASKS:
        if by_ring(whole, task) == "c":
            assert by_ring(drained, task) == by_ring(whole, task, tried="c") != "c"
        else:
            assert by_ring(drained, task) == by_ring(whole, task)


def test_by_ring_asks_how_busy_nobody_is() -> None:
    """A task that nobody is known to own is where it is, however much goes on there."""
    pool = pool_of("abc")
    before = {task: by_ring(pool, task) for task in TASKS}
    for _ in range(1000):
        pool.start(member(pool, "a"), 0.0)
    assert {task: by_ring(pool, task) for task in TASKS} == before


def test_by_ring_goes_down_one_order_as_members_are_tried() -> None:
    pool = pool_of("abcd")
    for task in TASKS[:50]:
        tried = ""
        for _ in range(4):
            tried += by_ring(pool, task, tried)
        assert sorted(tried) == list("abcd")
        assert [by_ring(pool, task, tried[:count]) for count in range(4)] == list(tried)


@pytest.mark.parametrize(
    ("task", "owner"),
    [
        ("a.123", "a"),
        ("b.123", "b"),
        ("c.123", "c"),
        ("d.123", None),
        ("A.123", None),
        ("xa.123", None),
        ("a", None),
        ("", None),
        ("\ud800", None),
    ],
)
def test_the_operator_s_pattern_names_the_owner(task: str, owner: str | None) -> None:
    """A drained member still owns what it made."""
    pool = pool_of("abc", drained="c", tag=r"^(?P<backend>[a-z0-9-]+)\.")
    assert pool.tagged_owner(task) is (None if owner is None else member(pool, owner))
    assert pool_of("abc").tagged_owner(task) is None


def test_a_pattern_whose_group_took_no_part_names_nobody() -> None:
    assert pool_of("abc", tag=r"(?:(?P<backend>a)|x)").tagged_owner("x") is None


def test_a_pool_s_policy_sees_only_those_that_are_fit_and_untried() -> None:
    pool = Pool("agents", [Backend(one, "127.0.0.1", 1, drain=one == "a") for one in "abcd"], policy=LeastInFlight())
    for _ in range(10):
        pool.start(member(pool, "c"), 0.0)
    assert {chosen(pool, call("x"), tried="b")[0] for _ in range(6)} == {"d"}


def test_candidates_are_those_that_take_new_work_in_configured_order() -> None:
    pool = pool_of("dcba", drained="c")
    assert [one.backend.id for one in pool.candidates()] == ["d", "b", "a"]
    with pytest.raises(NoBackend, match="pool agents: no backend takes new work"):
        pool_of("ab", drained="ab").candidates()


def test_the_ring_s_order_names_everyone_configured_fit_or_not() -> None:
    pool = pool_of("abcd", drained="bd")
    for task in TASKS[:50]:
        order = [one.backend.id for one in pool.in_order(task)]
        assert sorted(order) == list("abcd")
        assert by_ring(pool, task) == next(one for one in order if one in "ac")


@pytest.mark.parametrize(
    ("ring_key", "policy", "name"),
    [
        (None, RoundRobin(), "round_robin"),
        (None, LeastInFlight(), "least_in_flight"),
        (BY_NAME, RoundRobin(), "least_in_flight"),
    ],
)
def test_which_policy_picks_where_no_key_does(ring_key: RingKey | None, policy: BalancingPolicy, name: str) -> None:
    pool = Pool("agents", [Backend("a", "127.0.0.1", 1)], policy=policy, ring_key=ring_key)
    assert pool.policy == name
    assert pool.ring_key is ring_key


@pytest.mark.parametrize("state", ["local", "shared"])
@pytest.mark.parametrize("flag", [False, True])
def test_what_is_set_without_naming_members(state: State, flag: bool) -> None:
    """The members keep their state, whatever else is configured anew."""
    pool = pool_of("abc", ring_key=BY_NAME, tag=r"(?P<backend>.)-")
    pool.start(member(pool, "a"), 1.0)
    pool.set_draining(member(pool, "b"), True)
    before, generation = pool.members, pool.ring_generation
    assert (pool.state, pool.search, pool.sticky, pool.listen) == ("local", True, True, "one")
    pool.configure(
        policy=RoundRobin(),
        ring_key=None,
        owner_tag=re.compile(r"(?P<backend>.)\+"),
        state=state,
        search=flag,
        sticky=not flag,
        listen="all" if flag else "one",
        health=None,
        outlier=None,
    )
    assert (pool.state, pool.search, pool.sticky) == (state, flag, not flag)
    assert pool.listen == ("all" if flag else "one")
    assert (pool.members, pool.ring_generation, pool.in_flight) == (before, generation, 1)
    assert [chosen(pool, call("x")) for _ in range(4)] == [("a", "balance"), ("c", "balance")] * 2
    assert pool.tagged_owner("a-1") is None
    assert pool.tagged_owner("a+1") is member(pool, "a")


def test_all_members_serve_a_subscription_where_the_pool_says_so() -> None:
    ids = "abcdefghijklmnopqr"
    backends = [Backend(one, "127.0.0.1", 8000, drain=one == "b") for one in ids]
    assert Pool("agents", backends, policy=RoundRobin()).listeners == ()
    pool = Pool("agents", backends[:4], policy=RoundRobin(), listen="all")
    pool.replace(backends[:3])
    assert [one.backend.id for one in pool.listeners] == ["a", "b", "c", "d"], "drained or departed, it may own tasks"
    pool.replace(backends)
    assert [one.backend.id for one in pool.listeners] == list(ids[:16]), "each costs a connection"


def test_departed_members_take_no_configured_ones_place_in_a_subscription_and_go_in_beside_them() -> None:
    def some(first: int, count: int) -> list[Backend]:
        return [Backend(f"b{i}", "127.0.0.1", 8000) for i in range(first, first + count)]

    pool = Pool("agents", some(0, 16), policy=RoundRobin(), listen="all")
    pool.replace(some(1, 16))
    assert [one.backend.id for one in pool.listeners] == [*(f"b{i}" for i in range(1, 17)), "b0"]
    pool.replace(some(100, 16))
    assert [one.backend.id for one in pool.listeners] == [f"b{i}" for i in (*range(100, 116), *range(1, 17))], (
        "32 in all, of those that left the last ones"
    )


def test_sessions_are_found_by_their_tag() -> None:
    pool = pool_of("abc", drained="c")
    assert [pool.tagged(session_tag("agents", one)) for one in "abc"] == list(pool.members)
    for tag in ("", "a", session_tag("agents", "d"), session_tag("others", "a"), session_tag("agents", "a").upper()):
        assert pool.tagged(tag) is None
