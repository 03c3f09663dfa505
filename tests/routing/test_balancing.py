"""Shares by weight, fairness among equals, and always one of the candidates."""

from collections import Counter
from dataclasses import dataclass

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from proxy.routing.backends import Backend
from proxy.routing.balancing import BalancingPolicy, LeastInFlight, RoundRobin
from proxy.routing.errors import NoBackend
from proxy.routing.pools import Pool, RingKey
from proxy.routing.queueing import Limits


@dataclass(eq=False)
class Worker:
    backend: Backend
    in_flight: int = 0

    @property
    def weight(self) -> float:
        return self.backend.weight

    @property
    def load(self) -> float:
        return self.in_flight / self.weight


def workers(*weights: int) -> list[Worker]:
    return [Worker(Backend("abcdefgh"[i], "127.0.0.1", 8000 + i, weight=weight)) for i, weight in enumerate(weights)]


def picks(policy: BalancingPolicy, candidates: list[Worker], count: int) -> str:
    """The ids picked, one request after the other, each over before the next."""
    return "".join(policy.pick(candidates).backend.id for _ in range(count))


POLICIES = [LeastInFlight, RoundRobin]


@pytest.mark.parametrize("make", POLICIES)
@settings(deadline=None, max_examples=100)
@given(data=st.data())
def test_the_answer_is_one_of_the_candidates(make: type[BalancingPolicy], data: st.DataObject) -> None:
    """However they change from one request to the next: some were tried, some left, some came."""
    policy = make()
    everyone = workers(*data.draw(st.lists(st.integers(1, 5), min_size=1, max_size=6)))
    for _ in range(data.draw(st.integers(1, 12))):
        candidates = data.draw(st.lists(st.sampled_from(everyone), min_size=1, unique_by=id))
        chosen = policy.pick(candidates)
        assert any(chosen is candidate for candidate in candidates)
        chosen.in_flight = data.draw(st.integers(0, 3))


@settings(deadline=None, max_examples=200)
@given(st.lists(st.tuples(st.integers(1, 5), st.integers(0, 20)), min_size=1, max_size=8), st.integers(0, 9))
def test_least_in_flight_picks_the_least_load_by_weight(loads: list[tuple[int, int]], turns: int) -> None:
    policy = LeastInFlight()
    candidates = workers(*(weight for weight, _ in loads))
    picks(policy, candidates, turns)
    for worker, (_, in_flight) in zip(candidates, loads, strict=True):
        worker.in_flight = in_flight
    chosen = policy.pick(candidates)
    assert chosen.load == min(worker.load for worker in candidates)


@pytest.mark.parametrize("weights", [(1,), (1, 1), (1, 1, 1, 1, 1), (2, 1), (3, 2, 1), (5, 1, 1)])
def test_least_in_flight_spreads_lasting_requests_by_weight(weights: tuple[int, ...]) -> None:
    policy, candidates = LeastInFlight(), workers(*weights)
    for _ in range(20 * sum(weights)):
        policy.pick(candidates).in_flight += 1
    assert [worker.in_flight for worker in candidates] == [20 * weight for weight in weights]


@pytest.mark.parametrize("count", [1, 2, 3, 5])
def test_least_in_flight_goes_round_among_idle_equals(count: int) -> None:
    ids = picks(LeastInFlight(), workers(*[1] * count), 12 * count)
    assert ids == ids[:count] * 12
    assert len(set(ids[:count])) == count


@pytest.mark.parametrize("busy", ["c", "bc", "abc", "ac"])
def test_least_in_flight_goes_round_among_equals_beside_busy_ones(busy: str) -> None:
    """Lasting streams on some backends must not send most short requests to the one that stands behind them."""
    candidates = workers(1, 1, 1, 1, 1)
    for worker in candidates:
        worker.in_flight = worker.backend.id in busy
    counts = Counter(picks(LeastInFlight(), candidates, 60))
    idle = set("abcde") - set(busy)
    assert counts == dict.fromkeys(idle, 60 // len(idle))


@pytest.mark.parametrize("weights", [(2, 1), (1, 1, 3), (3, 2)])
def test_least_in_flight_gives_idle_backends_their_share_by_weight(weights: tuple[int, ...]) -> None:
    """A weight is a share of new work: requests that never overlap must not all go to the heaviest backend."""
    counts = Counter(picks(LeastInFlight(), workers(*weights), 60 * sum(weights)))
    assert counts == {one: 60 * weight for one, weight in zip("abc", weights, strict=False)}


@settings(deadline=None, max_examples=100)
@given(
    st.lists(st.tuples(st.integers(1, 4), st.integers(0, 2)), min_size=2, max_size=6).filter(
        lambda loads: sum(not busy for _, busy in loads) >= 2
    )
)
def test_the_idle_share_by_weight_whoever_else_is_busy(loads: list[tuple[int, int]]) -> None:
    policy, candidates = LeastInFlight(), workers(*(weight for weight, _ in loads))
    for worker, (_, in_flight) in zip(candidates, loads, strict=True):
        worker.in_flight = in_flight
    idle = {worker.backend.id: worker.backend.weight for worker in candidates if not worker.in_flight}
    counts = Counter(picks(policy, candidates, 5 * sum(idle.values())))
    assert counts == {one: 5 * weight for one, weight in idle.items()}


@pytest.mark.parametrize(
    ("weights", "turns"),
    [
        ((1,), "aaa"),
        ((1, 1), "abab"),
        ((1, 1, 1), "abcabc"),
        ((2, 1), "abaaba"),
        ((1, 2), "babbab"),
        ((5, 1, 1), "aabacaa"),
        ((3, 2), "ababa"),
    ],
)
def test_turns_of_round_robin(weights: tuple[int, ...], turns: str) -> None:
    assert picks(RoundRobin(), workers(*weights), len(turns)) == turns


@settings(deadline=None, max_examples=100)
@given(st.lists(st.integers(1, 9), min_size=1, max_size=6))
def test_round_robin_is_exact_and_interleaved(weights: list[int]) -> None:
    """After every whole round the shares are exact; within one nobody is much more than a turn early or late."""
    policy, candidates, total = RoundRobin(), workers(*weights), sum(weights)
    counts: Counter[str] = Counter()
    for turn in range(1, 3 * total + 1):
        counts[policy.pick(candidates).backend.id] += 1
        for worker in candidates:
            due = turn * worker.backend.weight / total
            assert abs(counts[worker.backend.id] - due) < 1.5
        if turn % total == 0:
            assert counts == {worker.backend.id: turn // total * worker.backend.weight for worker in candidates}


def test_round_robin_does_not_ask_how_busy_anyone_is() -> None:
    candidates = workers(1, 1)
    candidates[0].in_flight = 1000
    assert picks(RoundRobin(), candidates, 4) == "abab"


def test_round_robin_is_fair_again_when_a_candidate_comes_back() -> None:
    policy, candidates = RoundRobin(), workers(1, 1, 1)
    picks(policy, candidates, 3)
    assert set(picks(policy, candidates[:2], 6)) == {"a", "b"}
    assert Counter(picks(policy, candidates, 30)) == {"a": 10, "b": 10, "c": 10}


# ---- many candidates, of which few are looked at


def crowd(*weights: int) -> tuple[Worker, ...]:
    """In a tuple, as a pool has them: the same one until something changes."""
    return tuple(Worker(Backend(f"b{i}", "127.0.0.1", 8000, weight=weight)) for i, weight in enumerate(weights))


@pytest.mark.parametrize("make", POLICIES)
@pytest.mark.parametrize("weights", [[1] * 1000, [1, 2, 3, 4] * 250, [100, *[1] * 999], [1] * 33])
def test_many_get_their_shares_by_weight(make: type[BalancingPolicy], weights: list[int]) -> None:
    policy, candidates, total = make(), crowd(*weights), sum(weights)
    counts = Counter(policy.pick(candidates).backend.id for _ in range(20 * total))
    for worker in candidates:
        assert abs(counts[worker.backend.id] - 20 * worker.backend.weight) <= max(1, 0.05 * 20 * worker.backend.weight)


@pytest.mark.parametrize("weights", [[1] * 1000, [1, 2, 3, 4] * 250, [1] * 33])
def test_lasting_requests_spread_over_many_by_weight(weights: list[int]) -> None:
    policy, candidates = LeastInFlight(), crowd(*weights)
    for _ in range(20 * sum(weights)):
        policy.pick(candidates).in_flight += 1
    for worker in candidates:
        assert 0.8 <= worker.load / 20 <= 1.2


def test_of_many_the_busy_are_spared() -> None:
    """Half of them hold a stream: what is short goes to the others as long as one of them is near."""
    policy, candidates = LeastInFlight(), crowd(*[1] * 1000)
    for worker in candidates[::2]:
        worker.in_flight = 1
    counts = Counter(policy.pick(candidates).in_flight for _ in range(5000))
    assert counts[1] <= 0.1 * 5000


@settings(deadline=None, max_examples=40)
@given(st.sampled_from(POLICIES), st.data())
def test_who_comes_to_many_is_not_flooded_and_who_stays_keeps_the_place(
    make: type[BalancingPolicy], data: st.DataObject
) -> None:
    policy, count = make(), data.draw(st.integers(40, 120))
    candidates = crowd(*[1] * count)
    for _ in range(data.draw(st.integers(0, 3 * count))):
        policy.pick(candidates)
    came = data.draw(st.integers(1, 30))
    newcomers = tuple(Worker(Backend(f"new{number}", "127.0.0.1", 8000)) for number in range(came))
    grown = (*newcomers, *candidates)
    picked = Counter(id(policy.pick(grown)) for _ in range(3 * len(grown)))
    assert max(picked.values()) <= 4
    assert min(picked[id(worker)] for worker in grown) >= 2


@pytest.mark.parametrize("make", POLICIES)
def test_many_become_few_and_many_again(make: type[BalancingPolicy]) -> None:
    policy, candidates = make(), crowd(*[1] * 60)
    for part in (candidates, candidates[:20], candidates, candidates[10:50], candidates):
        counts = Counter(policy.pick(part).backend.id for _ in range(10 * len(part)))
        assert set(counts) == {worker.backend.id for worker in part}
        assert max(counts.values()) - min(counts.values()) <= 2


# ---- in a pool


@settings(deadline=None, max_examples=60)
@given(st.sampled_from([RoundRobin, LeastInFlight]), st.sampled_from([None, "key"]), st.data())
def test_of_many_none_that_was_tried_or_is_full_is_picked_while_others_are_left(
    make: type[BalancingPolicy], key: str | None, data: st.DataObject
) -> None:
    count = data.draw(st.integers(30, 60))
    backends = [Backend(f"b{i}", "127.0.0.1", 8000) for i in range(count)]
    pool = Pool(
        "agents", backends, policy=make(), ring_key=RingKey("name") if key else None, limits=Limits(per_backend=1)
    )
    numbers = st.sets(st.integers(0, count - 1))
    tried = {pool.members[number] for number in data.draw(numbers | st.just(set(range(count - 1))))}
    for number in data.draw(numbers | st.just(set(range(1, count)))):
        pool.members[number].working = 1
    for number in data.draw(st.sets(st.integers(0, count - 1), max_size=count - 35) if count > 35 else st.just(set())):
        pool.set_draining(pool.members[number], True)
    left = [member for member in pool.members if member.fit and member not in tried]
    roomy = [member for member in left if not member.working]
    for _ in range(5):
        if not left:
            with pytest.raises(NoBackend):
                pool.spread(key, tried)
        else:
            assert pool.spread(key, tried).member in (roomy or left)
