"""What a pool stands like comes out of its values as it went in."""

import json

import pytest

from proxy.routing.backends import Backend
from proxy.routing.balancing import LeastInFlight
from proxy.routing.members import Member
from proxy.routing.pools import Pool
from proxy.workers.state import changed_drains, read_standings, standings_of


def pool_of(name: str, *backends: Backend) -> Pool:
    return Pool(name, backends, policy=LeastInFlight())


def member(pool: Pool, backend_id: str) -> Member:
    found = pool.member(backend_id)
    assert found is not None
    return found


A = Backend("a", "127.0.0.1", 8000)
B = Backend("b", "::1", 8001, path="/b", weight=3, drain=True)
C = Backend("ü, {}", "c.test", 8002, weight=0)


def test_drains_and_departures_reach_another_process() -> None:
    pool = pool_of("agents", A, B, C)
    pool.set_draining(member(pool, "a"), True)
    pool.set_draining(member(pool, "b"), False)  # against its configuration
    pool.replace([A, B])
    told = json.loads(json.dumps(standings_of({"agents": pool, "others": pool_of("others", A)})))

    other = pool_of("agents", A, B)
    other.take_over(read_standings(told)["agents"])
    assert (member(other, "a").draining, member(other, "b").draining) == (True, False)
    gone = member(other, C.id)
    assert (gone.backend, gone.departed, gone.fit) == (C, True, False)
    assert other.tagged(gone.tag) is gone
    assert [one.backend.id for one in other.candidates()] == ["b"]
    assert other.standing == pool.standing
    assert standings_of({"agents": other}) == standings_of({"agents": pool})


def test_a_process_with_another_configuration_takes_over_what_it_can() -> None:
    pool = pool_of("agents", A, B, C)
    pool.set_draining(member(pool, "a"), True)
    pool.replace([B])
    pool.set_draining(member(pool, "a"), True)
    standing = read_standings(standings_of({"agents": pool}))["agents"]

    other = pool_of("agents", A, C)  # what departed there is configured here
    other.take_over(standing)
    assert [one.backend.id for one in other.members] == ["a", C.id]
    assert not any(one.departed for one in other.members)
    # Configured there and not here: by our configuration it has departed, and serves what it owns.
    assert (member(other, "b").departed, member(other, "b").fit) == (True, False)
    assert [one.backend.id for one in other.candidates()] == [C.id]


def test_it_is_told_who_has_not_departed() -> None:
    """All of them, so that who discovers them knows them from the start."""
    found = Backend("d", "10.0.0.1", 80, name="agents.test", discovered=True)
    pool = pool_of("agents", A, B, found)
    pool.replace([A, found])
    told = read_standings(json.loads(json.dumps(standings_of({"agents": pool}))))["agents"]
    assert [repr(one) for one in told.members] == [repr(A), repr(found)]
    assert read_standings({"agents": {"drains": {}, "members": []}})["agents"].members == ()  # of an earlier version


@pytest.mark.parametrize("here", [False, True])
@pytest.mark.parametrize("there", [False, True])
def test_a_pool_is_incomplete_until_anybody_knows_who_is_there(here: bool, there: bool) -> None:
    pool, other = pool_of("agents", A), pool_of("agents", A)
    pool.incomplete, other.incomplete = there, here
    other.take_over(read_standings(json.loads(json.dumps(standings_of({"agents": pool}))))["agents"])
    assert other.incomplete is (here and there)


def test_a_drain_that_the_configuration_asks_for_is_the_configuration_s_affair() -> None:
    other = pool_of("agents", Backend("b", "::1", 8001, drain=False))
    other.take_over(read_standings(standings_of({"agents": pool_of("agents", B)}))["agents"])
    assert member(other, "b").draining is False


def test_the_standing_of_a_process_with_the_same_configuration_changes_nothing() -> None:
    pool, other = pool_of("agents", A, B), pool_of("agents", A, B)
    other.take_over(read_standings(standings_of({"agents": pool}))["agents"])
    assert other.everyone == other.members
    assert other.standing == pool.standing
    assert read_standings({}) == {}


@pytest.mark.parametrize(
    ("before", "after", "changes"),
    [
        ({}, {}, []),
        ({}, {"b": True}, [("agents", "b", True)]),
        ({"b": True}, {"b": True}, []),
        ({"b": True}, {}, [("agents", "b", False)]),  # undrained: as the configuration says
        (
            {"c": False},
            {},
            [("agents", "c", True)],
        ),  # undrained by command before
        ({"b": True}, {"b": False, "d": True}, [("agents", "b", False), ("agents", "d", True)]),
    ],
)
def test_drains_that_came_during_a_hand_over(
    before: dict[str, bool], after: dict[str, bool], changes: list[tuple[str, str, bool]]
) -> None:
    told = [{"agents": {"drains": drains, "members": []}} for drains in (before, after)]
    assert changed_drains(*told) == changes


def test_a_pool_that_only_one_of_two_generations_has_changes_nothing() -> None:
    one = {"agents": {"drains": {"b": True}, "members": []}}
    assert changed_drains(one, {}) == changed_drains({}, one) == []
