"""A pool whose members change: who stays, who departs, who comes back, and whose keys move."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from proxy.routing.backends import Backend
from proxy.routing.balancing import RoundRobin
from proxy.routing.errors import NoBackend
from proxy.routing.members import Member
from proxy.routing.ownership import session_tag
from proxy.routing.pools import Pool
from tests.routing.pooling import BY_NAME, TASKS, by_ring, call, chosen, member, pool_of


def backends(ids: str, *, drained: str = "", port: int = 8000, weights: dict[str, int] | None = None) -> list[Backend]:
    return [Backend(one, "127.0.0.1", port, weight=(weights or {}).get(one, 1), drain=one in drained) for one in ids]


def ids(members: Sequence[Member]) -> str:
    return "".join(one.backend.id for one in members)


def test_members_that_stay_keep_their_state_and_take_on_what_is_configured_anew() -> None:
    pool = pool_of("abc")
    a, b = member(pool, "a"), member(pool, "b")
    pool.start(b, 5.0)
    b.session_seen("s", 5.0)
    choice = b.chosen("pin")
    pool.replace(backends("dba", port=9000))
    assert ids(pool.members) == "dba"
    assert (member(pool, "a"), member(pool, "b")) == (a, b)
    assert (b.backend.port, b.in_flight, b.last_used, b.recent_sessions(5.0)) == (9000, 1, 5.0, 1)
    assert pool.in_flight == 1
    assert b.chosen("pin") is choice
    pool.end(b)
    assert pool.in_flight == 0


def test_a_member_that_is_no_longer_configured_departs_and_keeps_what_it_owns() -> None:
    pool = pool_of("abc", tag=r"^(?P<backend>.)\.")
    b = member(pool, "b")
    pool.start(b, 1.0)
    pool.replace(backends("ac"))
    assert ids(pool.members) == "ac"
    assert ids(pool.everyone) == "acb"
    assert (b.departed, b.fit, b.in_flight, pool.in_flight) == (True, False, 1, 1)
    assert member(pool, "b") is b
    assert pool.tagged(session_tag("agents", "b")) is b
    assert pool.tagged_owner("b.1") is b
    assert {chosen(pool, call("x"))[0] for _ in range(6)} == {"a", "c"}
    assert {by_ring(pool, task) for task in TASKS} == {"a", "c"}
    assert b not in pool.in_order("x")
    assert b not in pool.candidates()


def test_departed_members_stay_departed_through_further_changes() -> None:
    pool = pool_of("abc")
    pool.replace(backends("a"))
    pool.replace(backends("ad"))
    assert ids(pool.members) == "ad"
    assert sorted(ids(pool.everyone)) == list("abcd")
    assert [member(pool, one).departed for one in "abcd"] == [False, True, True, False]


@pytest.mark.parametrize("drained", ["", "b"])
def test_an_id_that_comes_back_is_the_same_member_as_configured_now(drained: str) -> None:
    pool = pool_of("ab")
    b = member(pool, "b")
    pool.start(b, 1.0)
    pool.set_draining(b, True)
    pool.replace(backends("a"))
    pool.replace(backends("ab", drained=drained, port=9000))
    assert member(pool, "b") is b
    assert ids(pool.members) == ids(pool.everyone) == "ab"
    assert (b.departed, b.in_flight, b.backend.port) == (False, 1, 9000)
    assert b.draining is bool(drained)  # what an operator said of the one that left is not said of this one
    assert ids(pool.candidates()) == ("a" if drained else "ab")


@pytest.mark.parametrize(
    ("before", "said", "after", "draining"),
    [
        (False, None, False, False),
        (False, None, True, True),
        (True, None, True, True),
        (True, None, False, False),
        # an operator's word counts until the configuration says something new
        (False, True, False, True),
        (False, True, True, True),
        (True, False, True, False),
        (True, False, False, False),
        (True, True, False, False),
        (False, False, True, True),
    ],
)
def test_drains_across_changes(before: bool, said: bool | None, after: bool, draining: bool) -> None:
    pool = pool_of("ab", drained="b" if before else "")
    b = member(pool, "b")
    assert b.draining is before
    if said is not None:
        pool.set_draining(b, said)
        assert b.draining is said
    pool.replace(backends("abc", drained="b" if after else ""))
    assert b.draining is draining
    assert ids(pool.candidates()) == ("ac" if draining else "abc")


def test_a_drain_ends_and_begins_at_once() -> None:
    pool = pool_of("ab")
    b = member(pool, "b")
    pool.set_draining(b, True)
    assert {chosen(pool, call("x"))[0] for _ in range(4)} == {"a"}
    pool.set_draining(member(pool, "a"), True)
    with pytest.raises(NoBackend):
        pool.balance(call("x"))
    pool.set_draining(b, False)
    assert {chosen(pool, call("x"))[0] for _ in range(4)} == {"b"}


def test_only_a_departed_member_is_forgotten() -> None:
    pool = pool_of("ab")
    a, b = pool.members
    pool.forget(a)
    assert member(pool, "a") is a
    pool.replace(backends("a"))
    pool.forget(b)
    assert (ids(pool.everyone), pool.member("b"), pool.tagged(b.tag)) == ("a", None, None)
    pool.forget(b)  # and again: nothing happens
    assert ids(pool.everyone) == "a"


def test_an_id_that_comes_back_after_it_was_forgotten_is_a_new_member() -> None:
    pool = pool_of("ab")
    old = member(pool, "b")
    pool.start(old, 1.0)
    pool.replace(backends("a"))
    pool.forget(old)
    pool.replace(backends("ab"))
    new = member(pool, "b")
    assert new is not old
    assert (new.in_flight, new.fit, new.tag) == (0, True, old.tag)
    pool.forget(old)  # it is not the one that is known now
    assert pool.tagged(new.tag) is member(pool, "b") is new
    pool.replace(backends("a"))
    pool.forget(old)
    assert member(pool, "b") is new
    pool.end(old)  # its last attempt ends when it will
    assert (pool.in_flight, new.in_flight) == (0, 0)


def keys(pool: Pool) -> dict[str, str]:
    return {task: by_ring(pool, task) for task in TASKS}


def test_keys_move_only_to_the_new_and_from_the_departed() -> None:
    pool = pool_of("abcd", ring_key=BY_NAME)
    before = keys(pool)
    pool.replace(backends("dcba"))
    assert keys(pool) == before
    pool.replace(backends("abcde"))
    grown = keys(pool)
    assert {grown[task] for task in TASKS if grown[task] != before[task]} == {"e"}
    pool.replace(backends("abde"))
    shrunk = keys(pool)
    assert {grown[task] for task in TASKS if grown[task] != shrunk[task]} == {"c"}
    pool.replace(backends("abcd"))
    assert keys(pool) == before
    pool.replace(backends("abcd", weights={"a": 3}))
    assert {key for task, key in keys(pool).items() if key != before[task]} == {"a"}


def test_a_drain_by_command_moves_only_its_own_keys_and_gives_them_back() -> None:
    pool = pool_of("abcd")
    before = keys(pool)
    pool.set_draining(member(pool, "c"), True)
    assert {before[task] for task, key in keys(pool).items() if key != before[task]} == {"c"}
    pool.set_draining(member(pool, "c"), False)
    assert keys(pool) == before


def test_new_weights_count_at_once() -> None:
    pool = pool_of("ab")
    pool.replace(backends("ab", weights={"b": 3}))
    assert Counter(chosen(pool, call("x"))[0] for _ in range(40)) == {"a": 10, "b": 30}


def test_each_replacement_is_a_generation() -> None:
    pool = pool_of("ab")
    assert pool.ring_generation == 1
    pool.replace(backends("ab"))
    pool.replace([])
    assert pool.ring_generation == 3
    assert ids(pool.everyone) == "ab"
    with pytest.raises(NoBackend):
        pool.by_ring("x")


@dataclass
class Known:
    """What the model knows of a member."""

    member: Member
    configured: bool
    drain: bool
    draining: bool
    in_flight: int = 0


SETS = st.lists(
    st.builds(lambda one, weight, drain: Backend(one, "127.0.0.1", 1, weight=weight, drain=drain),
    st.sampled_from("abcde"), st.integers(1, 3), st.booleans()),
    max_size=5, unique_by=lambda backend: backend.id,
)  # fmt: skip


class Changes(RuleBasedStateMachine):
    """A pool beside a plain account of its members."""

    def __init__(self) -> None:
        super().__init__()
        self.pool = Pool("agents", [], policy=RoundRobin(), ring_key=BY_NAME)
        self.known: dict[str, Known] = {}
        self.order = ""
        self.generation = 1

    @rule(backends=SETS)
    def replace(self, backends: list[Backend]) -> None:
        self.pool.replace(backends)
        self.order = "".join(backend.id for backend in backends)
        self.generation += 1
        for backend in backends:
            found = self.pool.member(backend.id)
            assert found is not None
            before = self.known.get(backend.id)
            if before is None:
                self.known[backend.id] = Known(found, True, backend.drain, backend.drain)
                continue
            assert found is before.member
            if not before.configured or before.drain is not backend.drain:
                before.draining = backend.drain
            before.configured, before.drain = True, backend.drain
        for one, state in self.known.items():
            state.configured = one in self.order

    @precondition(lambda self: self.known)
    @rule(data=st.data(), draining=st.booleans())
    def drain(self, data: st.DataObject, draining: bool) -> None:
        known = self.known[data.draw(st.sampled_from(sorted(self.known)))]
        self.pool.set_draining(known.member, draining)
        known.draining = draining

    @precondition(lambda self: self.known)
    @rule(data=st.data())
    def forget(self, data: st.DataObject) -> None:
        one = data.draw(st.sampled_from(sorted(self.known)))
        self.pool.forget(self.known[one].member)
        if not self.known[one].configured:
            del self.known[one]

    @rule(name=st.sampled_from("xyz"))
    def attempt(self, name: str) -> None:
        fit = [one for one, state in self.known.items() if state.configured and not state.draining]
        try:
            chosen = self.pool.balance(call(name)).member
        except NoBackend:
            assert not fit
            return
        assert chosen.backend.id in fit
        self.pool.start(chosen, 0.0)
        self.known[chosen.backend.id].in_flight += 1

    @precondition(lambda self: any(state.in_flight for state in self.known.values()))
    @rule(data=st.data())
    def end(self, data: st.DataObject) -> None:
        busy = sorted(one for one, state in self.known.items() if state.in_flight)
        known = self.known[data.draw(st.sampled_from(busy))]
        self.pool.end(known.member)
        known.in_flight -= 1

    @invariant()
    def the_pool_is_as_accounted(self) -> None:
        pool = self.pool
        assert ids(pool.members) == self.order
        assert ids(pool.everyone)[: len(self.order)] == self.order
        assert sorted(ids(pool.everyone)) == sorted(self.known)
        assert pool.ring_generation == self.generation
        for one, state in self.known.items():
            found = state.member
            assert pool.member(one) is pool.tagged(found.tag) is found
            assert (found.departed, found.draining) == (not state.configured, state.draining)
            assert found.in_flight == state.in_flight
        fit = "".join(one for one in self.order if not self.known[one].draining)
        try:
            assert ids(pool.candidates()) == fit
        except NoBackend:
            assert fit == ""
        if self.order:
            order = ids(pool.in_order("x"))
            assert sorted(order) == sorted(self.order)
            if fit:
                assert by_ring(pool, "x") == next(one for one in order if one in fit)


TestChanges = Changes.TestCase
TestChanges.settings = settings(deadline=None, max_examples=40, stateful_step_count=25)
