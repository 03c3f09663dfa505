"""Looking at the few routes that a request can meet gives what looking at all of them in order gives."""

from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from proxy.routing.errors import MalformedHeader
from proxy.routing.headers import RoutingHeaders
from proxy.routing.routes import Pattern, ProtocolCondition, Route
from proxy.routing.selection import Selection
from proxy.routing.table import RoutingTable
from tests.routing.asking import LEGACY, MODERN, asked, route

BAD = "=?base64?!?="
TEXTS = ["a", "ab", "abc", "b", "", "a*b", "abcdefghijklmnopqrstuvwxyz", "é", "=?base64?YWI=?=", BAD]
PATTERNS = [
    *TEXTS[:5],
    "a*",
    "*b",
    "ab?",
    "?",
    "*",
    "regex:a.*",
    "regex:",
    "abcdefghijklmnopqrst*",
    "abcdefghijklmnopq?*",
]
PATHS = ["/mcp", "/a", "/ab", "/a/b"]

patterns = st.sampled_from(PATTERNS).map(Pattern)
conditions = st.lists(
    st.one_of(
        st.tuples(st.sampled_from(["name", "method", "host"]), patterns),
        st.tuples(st.just("path"), st.sampled_from([*PATHS, "/*", "/a*", "/m?p", "regex:/.*"]).map(Pattern)),
        st.tuples(st.just("params"), st.dictionaries(st.sampled_from(["p", "q"]), patterns, min_size=1)),
        st.tuples(st.just("headers"), st.dictionaries(st.sampled_from(["x-a", "x-b"]), patterns, min_size=1)),
        st.tuples(st.just("protocol"), st.sampled_from([f"<{MODERN}", f">={MODERN}", LEGACY]).map(ProtocolCondition)),
    ),
    max_size=2,
).map(dict)
values = st.sampled_from(TEXTS)
requests = st.builds(
    asked,
    st.sampled_from(["POST", "POST", "POST", "GET", "OPTIONS"]),
    st.sampled_from(PATHS),
    version=st.sampled_from([MODERN, MODERN, MODERN, LEGACY, ""]),
    method=values,
    host=values,
    name=st.one_of(st.none(), values),
    params=st.dictionaries(st.sampled_from(["p", "q"]), values).map(lambda params: tuple(params.items())),
    fields=st.dictionaries(st.sampled_from(["x-a", "x-b"]), values),
)


def in_order(routes: Sequence[Route], request: RoutingHeaders) -> object:
    """What comes of looking at each route."""
    try:
        return next((each for each in routes if each.match.met(request)), None)
    except MalformedHeader as error:
        return str(error)


def found(table: RoutingTable, request: RoutingHeaders) -> object:
    try:
        return table.route_for(request)
    except MalformedHeader as error:
        return str(error)


@settings(deadline=None, max_examples=1500)
@given(st.lists(conditions, max_size=8), st.lists(requests, min_size=1, max_size=6))
def test_the_first_route_is_the_first_of_all(made: list[dict[str, Any]], asked_for: list[RoutingHeaders]) -> None:
    routes = [route(f"r{number}", "pool", **each) for number, each in enumerate(made)]
    table = RoutingTable(routes)
    for request in asked_for:
        assert found(table, request) == in_order(routes, request)


decoded = st.fixed_dictionaries(
    {},
    optional={
        "name": st.sampled_from(["a", "a*", "*a", "regex:a"]).map(Pattern),
        "params": st.dictionaries(st.sampled_from(["p", "q"]), st.sampled_from(["a", "a*", "*a"]).map(Pattern)),
    },
)


@settings(deadline=None, max_examples=500)
@given(st.lists(decoded, min_size=1, max_size=3), *[st.sampled_from(["a", "b", BAD])] * 3)
def test_nor_does_what_does_not_decode_make_a_difference(made: list[dict[str, Any]], name: str, p: str, q: str) -> None:
    routes = [route(f"r{number}", "pool", **each) for number, each in enumerate(made)]
    request = asked(name=name, params=(("p", p), ("q", q)))
    assert found(RoutingTable(routes), request) == in_order(routes, request)


@settings(deadline=None, max_examples=500)
@given(st.lists(conditions, max_size=8), st.lists(requests, min_size=1, max_size=6))
def test_what_can_be_reached_is_remembered_right(made: list[dict[str, Any]], asked_for: list[RoutingHeaders]) -> None:
    routes = [route(f"r{number}", f"p{number % 3}", **each) for number, each in enumerate(made)]
    table = RoutingTable(routes)
    for request in asked_for:
        expected: dict[str, Route] = {}
        for each in routes:
            if each.match.reached(request):
                expected.setdefault(next(iter(each.shares)), each)
        assert list(table.reachable(request).items()) == list(expected.items())


@pytest.mark.parametrize(
    "conditions",
    [
        {"name": Pattern("regex:a.*"), "params": {"p": Pattern("eu")}},
        {"name": Pattern("*a"), "params": {"p": Pattern("eu-*")}},
        {"params": {"q": Pattern("?"), "p": Pattern("eu")}},
    ],
)
def test_a_value_that_a_route_asks_for_and_that_does_not_decode_is_refused(conditions: dict[str, Any]) -> None:
    """Also where another value, asked for later, is none that the route asks for."""
    table = RoutingTable([route("one", "pool", **conditions), route("rest", "pool")])
    with pytest.raises(MalformedHeader):
        table.route_for(asked(name=BAD, params=(("q", BAD), ("p", "us"))))


def test_of_many_routes_few_are_looked_at() -> None:
    """Those that ask for the value, and those that ask for nothing of the kind."""
    looked: list[str] = []

    class Noted(Pattern):
        def matches(self, value: str) -> bool:
            looked.append(self.text)
            return super().matches(value)

    routes = [route(f"r{number}", "pool", name=Noted(f"tool-{number}")) for number in range(1000)]
    routes += [route(f"g{number}", "pool", name=Noted(f"group-{number}-*")) for number in range(1000)]
    selection = Selection(routes)
    assert selection.first(asked(name="tool-7")) is routes[7]
    assert selection.first(asked(name="group-7-x")) is routes[1007]
    assert selection.first(asked(name="other")) is None
    assert looked == ["tool-7", "group-7-*"]


def test_the_turns_of_a_split_that_were_not_used_come_again() -> None:
    split = route("rest", {"a": 3, "b": 1, "c": 2})
    used, other = RoutingTable([split]), RoutingTable([split])
    for number in range(60):
        if number % 3 == 0:
            used.give_back(split, used.pool_for(split))
        assert used.pool_for(split) == other.pool_for(split)


def test_what_was_reached_from_long_values_is_not_remembered() -> None:
    """Clients choose the path, and all that is remembered stays small."""
    table = RoutingTable([route("all", "pool", path=Pattern("/*"))])
    for number in range(2000):
        assert table.reachable(asked(path=f"/{number}" + "x" * 60_000))
    assert sum(sum(len(value or "") for value in place) for place in table._reached) < 4_000_000
