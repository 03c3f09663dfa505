"""What is said of a route is what its match decides, and tells no secret."""

import base64
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from proxy.routing.conditions import Asked, first_unmet, quoted, shown_name
from proxy.routing.errors import MalformedHeader
from proxy.routing.headers import RoutingHeaders, is_modern
from proxy.routing.ownership import short_digest
from proxy.routing.routes import Match, Pattern, ProtocolCondition

MODERN, LEGACY = "2026-07-28", "2025-11-25"


def request(version: str = MODERN, **more: Any) -> RoutingHeaders:
    plain = RoutingHeaders("POST", "/mcp", "mcp.test", version, is_modern(version), "tools/call", name="search")
    return plain._replace(**more)


TENANT = Match(headers={"x-tenant": Pattern("acme")})
KEY = Match(headers={"x-api-key": Pattern("k3y-wanted")})
REGION = Match(params={"region": Pattern("eu-*")})
MODERN_ONLY, OLD_ONLY = ProtocolCondition(">=2026-07-28"), ProtocolCondition("<2026-07-28")


@pytest.mark.parametrize(
    ("match", "asking", "asked", "unmet"),
    [
        (Match(), request(), "all", ""),
        (Match(), request(path="/x"), "all", "path '/x' is not '/mcp'"),
        (Match(), request(path="/x"), "task", "path '/x' is not '/mcp'"),
        (Match(), request(path="/x"), "session", "path '/x' is not '/mcp'"),
        (Match(host=Pattern("a.test")), request(), "all", "host 'mcp.test' is not 'a.test'"),
        (TENANT, request(), "all", "header x-tenant is not there"),
        (TENANT, request(fields={"x-tenant": "b"}), "all", "header x-tenant 'b' is not 'acme'"),
        (TENANT, request(fields={"x-tenant": "acme"}), "all", ""),
        (KEY, request(fields={"x-api-key": "k3y-given"}), "all", "header x-api-key is another"),
        (Match(protocol=OLD_ONLY), request(), "all", "protocol '2026-07-28' is not <2026-07-28"),
        (Match(protocol=MODERN_ONLY), request(""), "all", "protocol (none) is not >=2026-07-28"),
        (Match(protocol=MODERN_ONLY), request(""), "session", "protocol >=2026-07-28: no session is of that era"),
        (Match(protocol=OLD_ONLY), request(LEGACY), "session", ""),
        (Match(method=Pattern("tools/list")), request(), "all", "method 'tools/call' is not 'tools/list'"),
        (Match(method=Pattern("tools/list")), request(), "task", ""),
        (Match(name=Pattern("render_*")), request(), "all", "name 'search' is not 'render_*'"),
        (Match(name=Pattern("render_*")), request(name=None), "all", "there is no Mcp-Name"),
        (
            Match(name=Pattern("x")),
            request(LEGACY),
            "all",
            "legacy requests meet no condition on method, name or param",
        ),
        (Match(name=Pattern("x")), request(LEGACY), "session", ""),
        (REGION, request(), "all", "param region is not there"),
        (REGION, request(params=(("region", "us"),)), "all", "param region 'us' is not 'eu-*'"),
        (REGION, request(params=(("region", "eu-1"),)), "all", ""),
        (Match(protocol=OLD_ONLY, name=Pattern("x")), request(verb="OPTIONS"), "all", ""),
    ],
)
def test_the_first_condition_that_is_not_met(match: Match, asking: RoutingHeaders, asked: Asked, unmet: str) -> None:
    assert first_unmet(match, asking, asked) == unmet


def test_a_name_that_may_be_a_task_s_id_is_told_as_a_digest() -> None:
    for method in ("tasks/get", "tasks/result", "Tasks/Get"):
        asking = request(method=method, name="secret-id")
        said = first_unmet(Match(name=Pattern("x")), asking)
        assert "secret" not in said
        assert short_digest("secret-id") in said
    assert shown_name(request(), "search") == "'search'"


def test_long_and_odd_values_stay_on_one_line() -> None:
    assert quoted("a\nb\x1b") == r"'a\nb\x1b'"
    assert quoted("x" * 500) == f"'{'x' * 80}'..."


PATTERNS = st.sampled_from([None, *map(Pattern, ("a", "a*", "regex:a|b", "search"))])
NAMES = st.sampled_from([None, "a", "b", "ab", "search", "=?base64?YQ==?=", "=?base64?!?=", "é"])


@given(
    match=st.builds(
        Match,
        host=PATTERNS,
        path=st.sampled_from([Pattern("/mcp"), Pattern("/*")]),
        protocol=st.sampled_from(
            [None, MODERN_ONLY, OLD_ONLY, ProtocolCondition(LEGACY), ProtocolCondition(">=2025-01-01")]
        ),
        method=PATTERNS,
        name=PATTERNS,
        params=st.dictionaries(st.sampled_from("pq"), PATTERNS.filter(bool), max_size=2),
        headers=st.dictionaries(st.sampled_from(["x-h", "authorization"]), PATTERNS.filter(bool), max_size=2),
    ),
    asking=st.builds(
        request,
        st.sampled_from([MODERN, LEGACY, "", "odd", "2027-01-01"]),
        verb=st.sampled_from(["POST", "GET", "OPTIONS"]),
        path=st.sampled_from(["/mcp", "/other"]),
        host=st.sampled_from(["a", "b"]),
        method=st.sampled_from(["a", "b", ""]),
        name=NAMES,
        params=st.lists(st.tuples(st.sampled_from("pq"), NAMES.filter(bool)), max_size=2).map(tuple),
        fields=st.dictionaries(st.sampled_from(["x-h", "authorization"]), st.sampled_from("ab"), max_size=2),
    ),
)
def test_it_decides_as_the_match_does(match: Match, asking: RoutingHeaders) -> None:
    assert (first_unmet(match, asking, "task") == "") is match.reached(asking)
    assert (first_unmet(match, asking, "session") == "") is match.reached_by_session(asking)
    try:
        met = match.met(asking)
    except MalformedHeader as error:
        with pytest.raises(MalformedHeader, match=str(error)):
            first_unmet(match, asking)
    else:
        assert (first_unmet(match, asking) == "") is met


def test_decoded_values_are_told() -> None:
    encoded = f"=?base64?{base64.b64encode('größe'.encode()).decode()}?="
    assert first_unmet(Match(name=Pattern("x")), request(name=encoded)) == "name 'größe' is not 'x'"
