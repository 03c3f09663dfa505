"""What a process tells another of its pools arrives as it was meant."""

import json

import pytest

from proxy.routing.backends import Backend
from proxy.routing.balancing import LeastInFlight
from proxy.routing.health import Health
from proxy.routing.pools import Pool, Standing
from proxy.workers.state import read_standings, standings_of

GONE = Backend("gone", "10.0.0.9", 80, "/other", weight=3)


def pool(name: str) -> Pool:
    backends = [Backend(one, "10.0.0.1", 80) for one in ("a", "b")]
    return Pool(name, [*backends, GONE], policy=LeastInFlight(), health=Health("/health", fall=1))


@pytest.mark.parametrize("drained", [False, True])
@pytest.mark.parametrize("departed", [False, True])
@pytest.mark.parametrize("down", [False, True])
def test_standings(drained: bool, departed: bool, down: bool) -> None:
    one, other = pool("one"), pool("other")
    a, b, _ = one.members
    if drained:
        one.set_draining(a, True)
    if departed:
        one.replace([a.backend, b.backend])
    if down:
        one.fitness.probed(b, False, "answered 503", 0.0)
    told = read_standings(json.loads(json.dumps(standings_of({"one": one, "other": other}))))
    expected = Standing({"a": True} if drained else {}, (GONE,) if departed else (), ("b",) if down else ())
    another = Pool(
        "one",
        [a.backend, b.backend] + [GONE] * (not departed),
        policy=LeastInFlight(),
        health=Health("/health", fall=1),
    )
    another.take_over(told["one"])
    assert another.standing == expected
    gone = another.member("gone")
    assert gone is not None and gone.backend.path == "/other"
    assert told["other"].down == () and told["other"].drains == {}


def test_one_of_an_earlier_version_says_nothing_of_health() -> None:
    assert read_standings({"one": {"drains": {}, "members": []}}) == {"one": Standing({}, (), ())}
