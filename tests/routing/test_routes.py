"""The first route whose conditions are met; reachable pools in route order; splits in exact shares."""

from collections import Counter

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from proxy.routing.headers import RoutingHeaders
from proxy.routing.routes import Pattern, ProtocolCondition
from proxy.routing.table import RoutingTable
from tests.routing.asking import IN_EU, LEGACY, asked, route

TABLE = RoutingTable(
    [
        route("gpu", "gpu", method=Pattern("tools/call"), name=Pattern("render_*")),
        route("eu", "eu", params={"region": IN_EU}),
        route("legacy", "legacy", protocol=ProtocolCondition("<2026-07-28")),
        route("acme", "acme", headers={"x-tenant": Pattern("acme")}),
        route("staging", {"staging": 1, "agents": 1}, host=Pattern("staging.*")),
        route("rest", {"agents": 95, "canary": 5, "old": 0}),
        route("well-known", "agents", path=Pattern("/.well-known/*")),
    ]
)


@pytest.mark.parametrize(
    ("request_headers", "name"),
    [
        (asked(method="tools/call", name="render_image"), "gpu"),
        (asked(method="tools/call", name="render_image", params=(("region", "eu-1"),)), "gpu"),
        (asked(method="prompts/get", name="render_image"), "rest"),
        (asked(method="tools/call", name="whoami", params=(("region", "eu-1"),)), "eu"),
        (asked(version=LEGACY, method="tools/call", name="render_image"), "legacy"),
        (asked(version="", params=(("region", "eu-1"),)), "legacy"),
        (asked(version="", host="staging.example"), "legacy"),
        (asked(fields={"x-tenant": "acme"}), "acme"),
        (asked(host="staging.example"), "staging"),
        (asked(), "rest"),
        (asked("DELETE"), "rest"),
        (asked("OPTIONS", version=""), "gpu"),
        (asked("GET", "/.well-known/oauth"), "well-known"),
        (asked("GET", "/.well-known/oauth", version=""), "well-known"),
        (asked(path="/other"), None),
        (asked("OPTIONS", "/other"), None),
    ],
)
def test_the_first_route_that_matches(request_headers: RoutingHeaders, name: str | None) -> None:
    found = TABLE.route_for(request_headers)
    assert (found and found.name) == name


@pytest.mark.parametrize(
    ("request_headers", "pools"),
    [
        (asked(method="tasks/get"), {"gpu": "gpu", "eu": "eu", "agents": "rest", "canary": "rest", "old": "rest"}),
        (
            asked(method="tasks/get", host="staging.example"),
            {"gpu": "gpu", "eu": "eu", "staging": "staging", "agents": "staging", "canary": "rest", "old": "rest"},
        ),
        (
            asked(method="tasks/get", fields={"x-tenant": "acme"}),
            {"gpu": "gpu", "eu": "eu", "acme": "acme", "agents": "rest", "canary": "rest", "old": "rest"},
        ),
        (
            asked(version=LEGACY),
            {"gpu": "gpu", "eu": "eu", "legacy": "legacy", "agents": "rest", "canary": "rest", "old": "rest"},
        ),
        (asked(method="tasks/get", path="/.well-known/x"), {"agents": "well-known"}),
        (asked(method="tasks/get", path="/other"), {}),
    ],
)
def test_reachable_pools_in_route_order_each_with_its_first_route(
    request_headers: RoutingHeaders, pools: dict[str, str]
) -> None:
    """A task's request names no tool, so every tool's pool is reachable, and none behind another host or path."""
    found = TABLE.reachable(request_headers)
    assert [(pool, way.name) for pool, way in found.items()] == list(pools.items())


@pytest.mark.parametrize(
    ("request_headers", "pools"),
    [
        (
            asked(version=LEGACY),
            {"gpu": "gpu", "eu": "eu", "legacy": "legacy", "agents": "rest", "canary": "rest", "old": "rest"},
        ),
        (
            asked("DELETE", version="", host="staging.example"),
            {
                "gpu": "gpu",
                "eu": "eu",
                "legacy": "legacy",
                "staging": "staging",
                "agents": "staging",
                "canary": "rest",
                "old": "rest",
            },
        ),
        (asked(version=LEGACY, path="/.well-known/x"), {"agents": "well-known"}),
        (asked(version=LEGACY, path="/other"), {}),
    ],
)
def test_pools_that_may_hold_a_session_in_route_order(request_headers: RoutingHeaders, pools: dict[str, str]) -> None:
    found = TABLE.reachable_by_session(request_headers)
    assert [(pool, way.name) for pool, way in found.items()] == list(pools.items())


def test_sessions_are_not_held_behind_routes_of_the_other_era() -> None:
    table = RoutingTable(
        [
            route("modern", "modern", protocol=ProtocolCondition(">=2026-07-28")),
            route("june", "june", protocol=ProtocolCondition("2025-06-18")),
            route("rest", "rest"),
        ]
    )
    assert list(table.reachable_by_session(asked(version=LEGACY))) == ["june", "rest"]
    assert list(table.reachable(asked(version=LEGACY))) == ["rest"]


def turns(shares: dict[str, int], count: int) -> str:
    way = route("split", shares)
    table = RoutingTable([way])
    return "".join(table.pool_for(way) for _ in range(count))


@pytest.mark.parametrize(
    ("shares", "expected"),
    [
        ({"a": 1}, "aaa"),
        ({"a": 7}, "aaa"),
        ({"a": 1, "b": 1}, "abab"),
        ({"a": 2, "b": 2}, "abab"),
        ({"a": 3, "b": 1}, "aabaaaba"),
        ({"a": 1, "b": 0}, "aaaa"),
        ({"a": 0, "b": 1}, "bbbb"),
        ({"a": 0, "b": 2, "c": 1}, "bcbbcb"),
    ],
)
def test_turns_of_a_split(shares: dict[str, int], expected: str) -> None:
    assert turns(shares, len(expected)) == expected


@pytest.mark.parametrize("shares", [{"a": 95, "b": 5}, {"a": 90, "b": 9, "c": 1}, {"a": 1, "b": 999}])
def test_shares_of_a_split_are_exact_and_spread_out(shares: dict[str, int]) -> None:
    total = sum(shares.values())
    seen = turns(shares, 3 * total)
    for start in (0, total, 2 * total):
        assert Counter(seen[start : start + total]) == shares
    for pool, share in shares.items():
        for count in range(0, len(seen), 7):
            assert abs(seen[:count].count(pool) - count * share / total) <= 1


@settings(deadline=None, max_examples=100)
@given(st.dictionaries(st.sampled_from("abcde"), st.integers(0, 20), min_size=1).filter(lambda s: any(s.values())))
def test_any_split_is_exact_after_every_whole_round(shares: dict[str, int]) -> None:
    total = sum(shares.values())
    seen = turns(shares, 4 * total)
    for start in range(0, 4 * total, total):
        assert Counter(seen[start : start + total]) == {pool: share for pool, share in shares.items() if share}


def test_each_split_takes_its_own_turns() -> None:
    one, two, plain = route("one", {"a": 1, "b": 1}), route("two", {"a": 1, "b": 1}), route("plain", "c")
    table = RoutingTable([one, two, plain])
    assert "".join(table.pool_for(way) for way in (one, two, plain, one, two, plain)) == "aacbbc"


def test_a_new_table_starts_its_turns_anew() -> None:
    way = route("split", {"a": 1, "b": 1})
    first = RoutingTable([way])
    assert first.pool_for(way) == "a"
    assert RoutingTable(first.routes).pool_for(way) == "a"
    assert first.pool_for(way) == "b"
