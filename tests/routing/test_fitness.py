"""Who takes new work: health, failures, the ceiling, and what happens when everybody is bad."""

from dataclasses import dataclass, field

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from proxy.routing.backends import Backend
from proxy.routing.balancing import LeastInFlight, RoundRobin
from proxy.routing.errors import (
    BackendClosed,
    BadResponse,
    ConnectFailed,
    ConnectRefused,
    ConnectTimeout,
    NoBackend,
    ProxyError,
)
from proxy.routing.fitness import news
from proxy.routing.health import SLOW_START, Health
from proxy.routing.members import Member
from proxy.routing.outliers import OutlierRule
from proxy.routing.pools import Pool, RingKey, Standing
from tests.routing.pooling import by_ring, call, chosen, member

RULE = OutlierRule(consecutive=3, ejection=30.0, max_ejected=50)
PROBES = Health("/health", rise=2, fall=3)


@dataclass
class Scene:
    """A pool under a clock that the test sets."""

    pool: Pool
    now: float = 1000.0
    told: list[str] = field(default_factory=list)

    def member(self, backend_id: str) -> Member:
        return member(self.pool, backend_id)

    def answered(self, backend_id: str, *statuses: int) -> None:
        for status in statuses:
            self.pool.fitness.answered(self.member(backend_id), status, self.now)

    def failed(self, backend_id: str, error: ProxyError, times: int = 1) -> None:
        for _ in range(times):
            self.pool.fitness.failed(self.member(backend_id), error, self.now)

    def probed(self, backend_id: str, results: str) -> bool:
        """Whether the last of these probes changed something."""
        return [self.pool.fitness.probed(self.member(backend_id), one == "p", "said", self.now) for one in results][-1]

    def later(self, seconds: float) -> None:
        self.now += seconds
        self.told += news(self.pool.fitness.tend(self.now))

    @property
    def fit(self) -> str:
        fit = "".join(one.backend.id for one in self.pool.fitness.fit)
        assert fit == "".join(one.backend.id for one in self.pool.members if one.fit)
        assert self.pool.fitness.weight == sum(one.backend.weight for one in self.pool.fitness.fit)
        return fit


def scene(
    ids: str = "abcd",
    *,
    health: Health | None = None,
    outlier: OutlierRule | None = RULE,
    drained: str = "",
    ring_key: RingKey | None = None,
) -> Scene:
    backends = [Backend(one, "127.0.0.1", 8000, drain=one in drained) for one in ids]
    return Scene(Pool("agents", backends, policy=RoundRobin(), health=health, outlier=outlier, ring_key=ring_key))


# ---- failures
@pytest.mark.parametrize(
    ("error", "counts"),
    [
        (ConnectFailed(""), True),
        (ConnectRefused(""), True),
        (ConnectTimeout(""), True),
        (BackendClosed(""), True),
        (BadResponse(""), False),
        (NoBackend(""), False),
    ],
)
def test_which_failures_count(error: ProxyError, counts: bool) -> None:
    case = scene()
    case.failed("a", error, 3)
    assert case.fit == ("bcd" if counts else "abcd")


@pytest.mark.parametrize(
    ("status", "counts"), [(200, False), (404, False), (429, False), (500, False), (501, False), (505, False)]
)
def test_other_answers_end_the_row(status: int, counts: bool) -> None:
    case = scene()
    case.answered("a", 503, 503, status, 503, 503)
    assert case.fit == "abcd"
    case.answered("a", 503)
    assert case.fit == "bcd"


@pytest.mark.parametrize("status", [502, 503, 504])
def test_failures_of_all_kinds_make_one_row(status: int) -> None:
    case = scene()
    case.answered("a", status)
    case.failed("a", BackendClosed(""))
    assert case.fit == "abcd"
    case.failed("a", ConnectTimeout(""))
    assert (case.fit, case.member("a").ejected, case.pool.fitness.ejections) == ("bcd", True, 1)


def test_an_ejection_ends_by_itself_and_grows() -> None:
    case = scene()
    case.answered("a", 503, 503, 503)
    case.later(29.9)
    assert case.fit == "bcd"
    case.later(0.2)
    assert case.fit == "abcd"
    case.answered("a", 503, 503)
    assert case.fit == "abcd"  # what it did before is forgiven
    case.answered("a", 503)
    case.later(59.9)
    assert case.fit == "bcd"
    case.later(0.2)
    assert case.fit == "abcd"
    assert case.told == [
        "a takes no new work for a while: 3 failures in a row",
        "a takes new work again, slowly at first",
        "a takes no new work for a while: 3 failures in a row",
        "a takes new work again, slowly at first",
    ]


def test_failures_while_out_change_nothing() -> None:
    """Owners are still asked for what they own, and may fail."""
    case = scene()
    case.answered("a", *[503] * 20)
    assert case.pool.fitness.ejections == 1
    case.later(30.0)
    assert case.fit == "abcd"


def test_only_a_share_is_out_at_once() -> None:
    case = scene("abcde")  # half of five, rounded down, is two
    for one in "abc":
        case.answered(one, *[503] * 3)
    assert case.fit == "cde"
    case.later(30.0)
    case.answered("c", 503)  # its row goes on, and there is room now
    assert case.fit == "abde"


@pytest.mark.parametrize(("ids", "left"), [("a", "a"), ("ab", "b"), ("abc", "bc")])
def test_small_pools(ids: str, left: str) -> None:
    case = scene(ids)
    for one in ids:
        case.answered(one, *[503] * 9)
    assert case.fit == left


def test_a_member_that_takes_no_new_work_is_not_ejected() -> None:
    """It would only use up the share."""
    case = scene("abcd", drained="a", health=PROBES)
    case.probed("b", "fff")
    for one in "ab":
        case.failed(one, ConnectRefused(""), 9)
    assert case.fit == "cd"
    assert not any(one.ejected for one in case.pool.members)
    case.failed("c", ConnectRefused(""), 3)
    assert case.fit == "d"


def test_the_last_fit_member_is_never_ejected() -> None:
    case = scene("abcd", drained="abc", outlier=OutlierRule(1, 30.0, 100))
    case.answered("d", *[503] * 9)
    assert case.fit == "d"


def test_when_all_others_go_down_the_ejected_ones_serve() -> None:
    """Ejection alone never empties a pool: who is up may be better than nobody."""
    case = scene("ab", health=PROBES)
    case.answered("a", *[503] * 3)
    assert case.fit == "b"
    case.probed("b", "fff")
    assert (case.fit, case.member("a").ejected) == ("a", True)
    assert chosen(case.pool, call("x")) == ("a", "balance")
    case.probed("b", "pp")
    assert case.fit == "b"


def test_without_a_rule_nobody_is_ejected() -> None:
    case = scene(outlier=None)
    case.answered("a", *[503] * 99)
    assert case.fit == "abcd"


def test_a_rule_that_goes_lets_everybody_back_and_one_that_changes_lets_nobody() -> None:
    case = scene()
    case.answered("a", *[503] * 3)
    for rule_now, fit in ((OutlierRule(consecutive=9), "bcd"), (None, "abcd"), (RULE, "abcd")):
        configure(case.pool, health=None, outlier=rule_now)
        assert case.fit == fit


# ---- probes
def test_probes_take_down_and_bring_up() -> None:
    case = scene(health=PROBES)
    assert not case.probed("a", "ff")
    assert case.fit == "abcd"
    assert case.probed("a", "f")
    assert (case.fit, case.member("a").up, case.member("a").probe) == ("bcd", False, "said")
    assert not case.probed("a", "p")
    assert case.probed("a", "p")
    assert case.fit == "abcd"


def test_a_pool_with_nobody_up_has_no_backend_for_new_work() -> None:
    case = scene("ab", health=PROBES)
    for one in "ab":
        case.probed(one, "fff")
    assert case.fit == ""
    with pytest.raises(NoBackend):
        case.pool.balance(call("x"))
    assert case.pool.tagged(case.member("a").tag) is case.member("a")  # owners are found all the same


def test_an_ejected_member_that_goes_down_stays_away_until_both_are_over() -> None:
    case = scene(health=PROBES)
    case.answered("a", *[503] * 3)
    case.probed("a", "fff")
    case.later(30.0)
    assert (case.fit, case.member("a").ejected) == ("bcd", False)
    case.probed("a", "pp")
    assert case.fit == "abcd"


def configure(pool: Pool, *, health: Health | None, outlier: OutlierRule | None = RULE) -> None:
    pool.configure(
        policy=RoundRobin(),
        ring_key=None,
        owner_tag=None,
        state="local",
        search=True,
        sticky=True,
        listen="one",
        health=health,
        outlier=outlier,
    )


def test_health_survives_another_configuration_as_long_as_there_are_probes() -> None:
    case = scene(health=PROBES)
    case.probed("a", "fff")
    configure(case.pool, health=Health(None, interval=1.0))
    case.pool.replace([Backend(one, "127.0.0.2", 9000) for one in "xdcba"])
    assert case.fit == "xdcb"
    configure(case.pool, health=None)
    assert case.fit == "xdcba"
    assert not case.probed("a", "fffff")  # a probe that was under way
    assert case.fit == "xdcba"


def test_one_that_departed_and_came_back_starts_anew() -> None:
    case = scene(health=PROBES)
    case.probed("a", "fff")
    case.pool.replace([Backend(one, "127.0.0.1", 8000) for one in "bcd"])
    assert not case.member("a").fit
    case.pool.replace([Backend(one, "127.0.0.1", 8000) for one in "abcd"])
    assert case.fit == "abcd"


def test_another_process_is_told_who_is_down() -> None:
    case, other = scene(health=PROBES), scene("abcde", health=PROBES)
    case.probed("a", "fff")
    standing = case.pool.standing
    assert standing == Standing({}, (), ("a",))
    other.pool.take_over(standing)
    assert other.fit == "bcde"
    other.pool.fitness.set_up(other.member("a"), True, 0.0)
    other.pool.fitness.set_up(other.member("b"), False, 0.0)
    assert other.fit == "acde"
    unprobed = scene()
    unprobed.pool.take_over(standing)
    assert unprobed.fit == "abcd"  # nobody would ever say that it is up again


# ---- owners and the ring
def test_the_ring_s_order_knows_no_health() -> None:
    """Keys of a backend that is away go to the next in order, all others stay, and they come back to it at once."""
    case, whole = scene(health=PROBES), scene()
    keys = [f"key {number}" for number in range(200)]
    case.probed("a", "fff")
    case.answered("b", *[503] * 3)
    for key in keys:
        order = [one.backend.id for one in whole.pool.in_order(key)]
        assert [one.backend.id for one in case.pool.in_order(key)] == order
        assert by_ring(case.pool, key) == next(one for one in order if one in "cd")
    case.probed("a", "pp")
    case.later(30.0)
    assert [by_ring(case.pool, key) for key in keys] == [by_ring(whole.pool, key) for key in keys]


# ---- slow start
def shares(pool: Pool, count: int = 1000) -> dict[str, int]:
    """Of so many requests, each over before the next."""
    picked = [pool.balance(call("x")).member.backend.id for _ in range(count)]
    return {one.backend.id: picked.count(one.backend.id) for one in pool.members}


@pytest.mark.parametrize("policy", [RoundRobin, LeastInFlight])
@pytest.mark.parametrize("way", ["ejected", "down"])
def test_one_that_comes_back_gets_its_share_little_by_little(
    way: str, policy: type[RoundRobin] | type[LeastInFlight]
) -> None:
    backends = [Backend(one, "127.0.0.1", 8000) for one in "abc"]
    case = Scene(Pool("agents", backends, policy=policy(), health=PROBES, outlier=RULE))
    assert shares(case.pool, 300) == {"a": 100, "b": 100, "c": 100}  # at the start all have all of it
    if way == "down":
        case.probed("a", "fffpp")
    else:
        case.answered("a", *[503] * 3)
        case.later(30.0)
    grown = []
    for _ in range(5):
        grown.append(shares(case.pool)["a"])
        case.later(SLOW_START / 4)
    assert grown == sorted(grown)
    assert 40 < grown[0] < 60  # a tenth beside two whole ones
    assert 320 < grown[-1] < 345
    assert all(one.weight == one.backend.weight for one in case.pool.members)


def test_a_busy_pool_gives_one_that_comes_back_no_burst() -> None:
    """With nothing in flight it is the least busy of all, until it has its part of what others have."""
    backends = [Backend(one, "127.0.0.1", 8000) for one in "ab"]
    case = Scene(Pool("agents", backends, policy=LeastInFlight(), health=PROBES, outlier=None))
    case.probed("a", "fff")
    for _ in range(50):
        case.pool.start(case.pool.balance(call("x")).member, case.now)
    case.probed("a", "pp")
    for _ in range(50):
        case.pool.start(case.pool.balance(call("x")).member, case.now)
    assert case.member("a").in_flight < 12


def test_a_weight_that_changes_meanwhile_is_grown_into() -> None:
    case = scene("ab", health=PROBES)
    case.probed("a", "fffpp")
    case.pool.replace([Backend("a", "127.0.0.1", 8000, weight=10), Backend("b", "127.0.0.1", 8000, weight=5)])
    case.later(SLOW_START / 2)
    assert [one.weight for one in case.pool.members] == [5.0, 5]
    case.later(SLOW_START / 2)
    assert [one.weight for one in case.pool.members] == [10, 5]


# ---- whatever happens
class AnythingHappens(RuleBasedStateMachine):
    """Probes, answers, drains, changes and time in any order."""

    @initialize(ids=st.sampled_from(["a", "ab", "abc", "abcdefg"]), share=st.integers(1, 100), times=st.integers(1, 4))
    def begin(self, ids: str, share: int, times: int) -> None:
        self.ids = ids
        self.rule = OutlierRule(times, 10.0, share)
        self.case = scene(ids, health=PROBES, outlier=self.rule)

    @rule(one=st.sampled_from("abcdefg"), statuses=st.lists(st.sampled_from([200, 503]), max_size=5))
    def answers(self, one: str, statuses: list[int]) -> None:
        if one in self.ids:
            self.case.answered(one, *statuses)

    @rule(one=st.sampled_from("abcdefg"), results=st.sampled_from(["f", "fff", "p", "pp"]))
    def probes(self, one: str, results: str) -> None:
        if one in self.ids:
            self.case.probed(one, results)

    @rule(one=st.sampled_from("abcdefg"), draining=st.booleans())
    def drains(self, one: str, draining: bool) -> None:
        if one in self.ids:
            self.case.pool.set_draining(self.case.member(one), draining)

    @rule(seconds=st.floats(0.1, 60.0))
    def time_passes(self, seconds: float) -> None:
        self.case.later(seconds)

    @rule(ids=st.sampled_from(["a", "bc", "abc", "gfedcba"]))
    def configuration_changes(self, ids: str) -> None:
        self.ids = ids
        self.case.pool.replace([Backend(one, "127.0.0.1", 8000) for one in ids])

    @invariant()
    def who_is_fit(self) -> None:
        members = self.case.pool.members
        fit = self.case.fit
        able = [one for one in members if one.up and not one.draining]
        assert set(fit) == {one.backend.id for one in able if not one.ejected} or (
            all(one.ejected for one in able) and set(fit) == {one.backend.id for one in able}
        )
        assert bool(fit) is bool(able)  # only probes and operators empty a pool
        assert all(0 < one.weight <= one.backend.weight for one in members)
        assert not any(one.fit for one in self.case.pool.everyone if one.departed)

    @invariant()
    def ejections_end(self) -> None:
        for one in self.case.pool.members:
            assert not one.ejected or one.conduct.until <= self.case.now + 10.0 * self.rule.ejection


TestAnythingHappens = AnythingHappens.TestCase
TestAnythingHappens.settings = settings(max_examples=60, stateful_step_count=40, deadline=None)


@given(st.text("abcd", max_size=80))
def test_never_more_than_the_share_is_ejected(failing: str) -> None:
    case = scene("abcd", outlier=OutlierRule(1, 30.0, 50))
    for one in failing:
        case.answered(one, 503)
        assert sum(other.ejected for other in case.pool.members) <= 2
