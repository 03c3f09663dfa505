"""The overview tells the numbers of /metrics by their labels; the spread tells where new work goes."""

import json
from typing import Any

import pytest
from pytest_aiohttp import AiohttpClient

from proxy.control.overview import overview
from proxy.routing.backends import Backend
from proxy.routing.balancing import RoundRobin
from proxy.routing.pools import Pool, RingKey
from proxy.snapshot import BUCKETS, Snapshot
from tests.control.test_admin import Client, Scene


@pytest.fixture
def scene() -> Scene:
    return Scene()


@pytest.fixture
async def client(aiohttp_client: AiohttpClient, scene: Scene) -> Client:
    return await aiohttp_client(scene.app())


def pools() -> dict[str, Pool]:
    backends = [Backend("a", "10.0.0.1", 1), Backend("b", "10.0.0.2", 1)]
    ring = RingKey("header", "x-tenant")
    return {
        "agents": Pool("agents", backends, policy=RoundRobin()),
        "tools": Pool("tools", backends, policy=RoundRobin(), ring_key=ring, state="shared"),
    }


def told(snapshot: Snapshot) -> dict[str, Any]:
    """As it comes out of the JSON."""
    values: dict[str, Any] = json.loads(json.dumps(overview(snapshot, pools())))
    return values


def test_counters_are_told_by_their_labels() -> None:
    snapshot = Snapshot()
    snapshot.requests["rest", "tools/call", "200"] = 3
    snapshot.decisions["agents", "task", "pin", "served"] = 2
    snapshot.rejected["no_backend",] = 1
    snapshot.discovery_failures["agents", "timeout"] = 4
    values = told(snapshot)
    assert values["requests"] == [{"route": "rest", "method": "tools/call", "code": "200", "count": 3}]
    assert values["decisions"] == [{"pool": "agents", "kind": "task", "source": "pin", "outcome": "served", "count": 2}]
    assert values["rejected"] == [{"reason": "no_backend", "count": 1}]
    assert values["discovery_failures"] == [{"pool": "agents", "reason": "timeout", "count": 4}]


def test_pools_are_told_with_what_spreads_them() -> None:
    snapshot = Snapshot()
    snapshot.streams["tools",] = 4
    snapshot.queued["agents",] = 2
    assert told(snapshot)["pools"] == {
        "agents": {
            "policy": "round_robin",
            "ring_key": None,
            "state": "local",
            "streams": 0,
            "queued": 2,
            "ejections": 0,
        },
        "tools": {
            "policy": "least_in_flight",
            "ring_key": "header x-tenant",
            "state": "shared",
            "streams": 4,
            "queued": 0,
            "ejections": 0,
        },
    }


def test_histograms_are_summed_by_method() -> None:
    snapshot = Snapshot()
    for route, place, seconds in (("one", 0, 0.5), ("two", 3, 1.5)):
        snapshot.durations[route, "tools/call"].counts[place] += 2
        snapshot.durations[route, "tools/call"].total += seconds
    values = told(snapshot)
    assert values["buckets"] == list(BUCKETS)
    counts = values["durations"]["tools/call"]["counts"]
    assert (len(counts), counts[:4], sum(counts)) == (len(BUCKETS) + 1, [2, 0, 0, 2], 4)
    assert values["durations"]["tools/call"]["seconds"] == 2.0


def test_answers_of_backends_that_left_are_not_told() -> None:
    snapshot = Snapshot()
    snapshot.in_flight["agents", "a"] = 0
    snapshot.responses["agents", "a", "2xx"] = 1
    snapshot.responses["agents", "gone", "2xx"] = 1
    assert [row["backend"] for row in told(snapshot)["responses"]] == ["a"]


def test_what_nobody_knows_is_null() -> None:
    values = told(Snapshot())
    assert (values["started"], values["loaded"], values["pins"]["store_up"]) == (None, None, None)


async def test_the_overview_is_brought_up_to_date_when_it_is_asked_for(client: Client, scene: Scene) -> None:
    answer = await client.get("/api/overview")
    values = await answer.json()
    assert (answer.status, scene.refreshed) == (200, 1)
    assert (values["version"], values["workers"], values["pins"]["remembered"]) == ("1.2.3", 1, 0)
    assert values["now"] >= values["started"] > 0


async def test_the_spread_of_a_pool(client: Client, scene: Scene) -> None:
    assert await (await client.get("/api/pools/agents/spread")).json() == {
        "pool": "agents",
        "policy": "least_in_flight",
        "ring_key": None,
        "backends": [
            {"id": "a", "configured": 0.25, "now": 1.0, "after": None},
            {"id": "b", "configured": 0.75, "now": 0.0, "after": None},
        ],
        "slices": [],
    }
    scene.pools = pools()
    values = await (await client.get("/api/pools/tools/spread", params={"without": "a"})).json()
    assert (values["ring_key"], set(values["slices"])) == ("header x-tenant", {"a", "b"})
    assert [part["after"] for part in values["backends"]] == [0.0, 1.0]


@pytest.mark.parametrize(
    "path", ["/api/pools/nothing/spread", "/api/pools/agents/spread?without=nothing", "/api/pools/a%0d%0aX:%201/spread"]
)
async def test_the_spread_of_what_is_not_there(client: Client, path: str) -> None:
    answer = await client.get(path)
    assert answer.status == 404
    assert "error" in await answer.json()
