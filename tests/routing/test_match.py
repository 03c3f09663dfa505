"""A route's conditions: which requests meet them, and which of them are asked of tasks and sessions."""

from typing import Any

import pytest

from proxy.routing.errors import MalformedHeader
from proxy.routing.headers import RoutingHeaders
from proxy.routing.routes import Match, Pattern, ProtocolCondition
from tests.routing.asking import IN_EU, LEGACY, asked


@pytest.mark.parametrize(
    ("condition", "version", "matches"),
    [
        ("<2026-07-28", "2025-11-25", True),
        ("<2026-07-28", "2026-07-28", False),
        ("<2026-07-28", "2026-12-01", False),
        ("<2026-07-28", "", True),
        ("<2026-07-28", "draft", True),
        ("<2026-07-28", "2026-07-28, 2026-07-28", True),
        (">=2026-07-28", "2026-07-28", True),
        (">=2026-07-28", "2027-01-01", True),
        (">=2026-07-28", "2025-11-25", False),
        (">=2026-07-28", "", False),
        (">=2026-07-28", "zzzz", False),
        (">=2025-06-18", "2025-11-25", True),
        ("2025-11-25", "2025-11-25", True),
        ("2025-11-25", "2025-06-18", False),
        ("2025-11-25", "", False),
    ],
)
def test_protocol_condition(condition: str, version: str, matches: bool) -> None:
    assert ProtocolCondition(condition).matches(version) is matches


MARKED_RENDER = "=?base64?cmVuZGVy?="


@pytest.mark.parametrize(
    ("conditions", "request_headers", "met", "reached"),
    [
        # path: exactly /mcp unless the route says otherwise
        ({}, asked(), True, True),
        ({}, asked(path="/"), False, False),
        ({}, asked(path="/mcp/"), False, False),
        ({}, asked(path="/MCP"), False, False),
        ({}, asked("GET"), True, True),
        ({"path": Pattern("/tools")}, asked(), False, False),
        ({"path": Pattern("/tools")}, asked(path="/tools"), True, True),
        ({"path": Pattern("/.well-known/*")}, asked("GET", "/.well-known/x/y"), True, True),
        ({"path": Pattern("/.well-known/*")}, asked("GET", "/.well-known"), False, False),
        ({"path": Pattern("regex:/t/[a-z]+/mcp")}, asked(path="/t/acme/mcp"), True, True),
        ({"path": Pattern("regex:/t/[a-z]+/mcp")}, asked(path="/t/acme/mcp/x"), False, False),
        # host
        ({"host": Pattern("mcp.example")}, asked(host="mcp.example"), True, True),
        ({"host": Pattern("mcp.example")}, asked(host="mcp.example.evil"), False, False),
        ({"host": Pattern("mcp.example")}, asked(), False, False),
        ({"host": Pattern("*.example")}, asked(host="a.b.example"), True, True),
        # header
        ({"headers": {"x-tenant": Pattern("acme")}}, asked(fields={"x-tenant": "acme"}), True, True),
        ({"headers": {"x-tenant": Pattern("acme")}}, asked(fields={"x-tenant": "acme, acme"}), False, False),
        ({"headers": {"x-tenant": Pattern("acme")}}, asked(fields={"x-tenant": "Acme"}), False, False),
        ({"headers": {"x-tenant": Pattern("*")}}, asked(fields={"x-tenant": ""}), True, True),
        ({"headers": {"x-tenant": Pattern("*")}}, asked(), False, False),
        (
            {"headers": {"x-tenant": Pattern("acme"), "x-beta": Pattern("1")}},
            asked(fields={"x-tenant": "acme"}),
            False,
            False,
        ),
        ({"headers": {"x-tenant": Pattern("acme")}}, asked(version="", fields={"x-tenant": "acme"}), True, True),
        # protocol
        ({"protocol": ProtocolCondition("<2026-07-28")}, asked(version=LEGACY), True, True),
        ({"protocol": ProtocolCondition("<2026-07-28")}, asked(version=""), True, True),
        ({"protocol": ProtocolCondition("<2026-07-28")}, asked(), False, False),
        ({"protocol": ProtocolCondition(">=2026-07-28")}, asked(), True, True),
        # method, name, param: met by modern requests alone, and asked of none that is about a task
        ({"method": Pattern("tools/call")}, asked(method="tools/call"), True, True),
        ({"method": Pattern("tools/call")}, asked(method="tools/list"), False, True),
        ({"method": Pattern("tools/call")}, asked(), False, True),
        ({"method": Pattern("tools/*")}, asked(method="tools/list"), True, True),
        ({"method": Pattern("*")}, asked(version=LEGACY, method="tools/call"), False, True),
        ({"method": Pattern("*")}, asked(version="", method="tools/call"), False, True),
        ({"name": Pattern("render")}, asked(name="render"), True, True),
        ({"name": Pattern("render")}, asked(name=MARKED_RENDER), True, True),
        ({"name": Pattern("render")}, asked(name="Render"), False, True),
        ({"name": Pattern("render")}, asked(), False, True),
        ({"name": Pattern("*")}, asked(), False, True),
        ({"name": Pattern("*")}, asked(name=""), True, True),
        ({"name": Pattern("*")}, asked(version=LEGACY, name="render"), False, True),
        ({"params": {"region": IN_EU}}, asked(params=(("region", "eu-west"),)), True, True),
        ({"params": {"region": IN_EU}}, asked(params=(("region", "=?base64?ZXUtw6k=?="),)), True, True),
        ({"params": {"region": IN_EU}}, asked(params=(("region", "us"),)), False, True),
        ({"params": {"region": IN_EU}}, asked(params=(("other", "eu-west"),)), False, True),
        ({"params": {"region": IN_EU}}, asked(), False, True),
        ({"params": {"region": IN_EU}}, asked(version=LEGACY, params=(("region", "eu-west"),)), False, True),
        (
            {"params": {"region": IN_EU, "size": Pattern("l")}},
            asked(params=(("size", "l"), ("region", "eu-west"))),
            True,
            True,
        ),
        ({"params": {"region": IN_EU, "size": Pattern("l")}}, asked(params=(("region", "eu-west"),)), False, True),
        # all of them together
        (
            {"method": Pattern("tools/call"), "name": Pattern("render"), "host": Pattern("a")},
            asked(method="tools/call", name="render", host="a"),
            True,
            True,
        ),
        (
            {"method": Pattern("tools/call"), "name": Pattern("render"), "host": Pattern("a")},
            asked(method="tools/call", name="render", host="b"),
            False,
            False,
        ),
        (
            {"method": Pattern("tools/call"), "name": Pattern("render")},
            asked(method="prompts/get", name="render"),
            False,
            True,
        ),
        # OPTIONS, a preflight, carries no MCP header and is asked for none
        ({"method": Pattern("tools/call")}, asked("OPTIONS", version=""), True, True),
        ({"name": Pattern("x"), "params": {"region": IN_EU}}, asked("OPTIONS", version=""), True, True),
        ({"protocol": ProtocolCondition(">=2026-07-28")}, asked("OPTIONS", version=""), True, False),
        ({"host": Pattern("a")}, asked("OPTIONS", version="", host="b"), False, False),
        ({"headers": {"x-tenant": Pattern("a")}}, asked("OPTIONS", version=""), False, False),
        ({}, asked("OPTIONS", "/other", version=""), False, False),
    ],
)
def test_conditions(conditions: dict[str, Any], request_headers: RoutingHeaders, met: bool, reached: bool) -> None:
    match = Match(**conditions)
    assert match.met(request_headers) is met
    assert match.reached(request_headers) is reached


@pytest.mark.parametrize(
    ("conditions", "request_headers"),
    [
        ({"name": Pattern("x")}, asked(name="=?base64?!?=")),
        ({"name": Pattern("*")}, asked(name="=?base64?/w==?=")),
        ({"params": {"region": IN_EU}}, asked(params=(("region", "=?base64?!?="),))),
    ],
)
def test_a_value_that_is_needed_and_does_not_decode_is_malformed(
    conditions: dict[str, Any], request_headers: RoutingHeaders
) -> None:
    with pytest.raises(MalformedHeader):
        Match(**conditions).met(request_headers)
    assert Match(**conditions).reached(request_headers)
    assert Match().met(request_headers)
    assert not Match(host=Pattern("elsewhere"), **conditions).met(request_headers)
    assert not Match(method=Pattern("tools/call"), **conditions).met(request_headers)


@pytest.mark.parametrize(
    ("condition", "meets"),
    [
        ("<2026-07-28", True),
        ("<2024-01-01", True),  # also one without a version, which is older than all
        ("<2030-01-01", True),
        (">=2026-07-28", False),
        (">=2026-07-27", True),
        (">=2025-06-18", True),
        (">=2027-01-01", False),
        ("2025-11-25", True),
        ("2026-07-28", False),
        ("2027-01-01", False),
    ],
)
def test_which_conditions_some_legacy_request_meets(condition: str, meets: bool) -> None:
    assert ProtocolCondition(condition).meets_legacy is meets


LEGACY_VERSIONS = ["", "draft", "2024-11-05", "2025-03-26", "2025-06-18", "2025-11-25", "2026-07-27"]


@pytest.mark.parametrize("date", ["2024-11-05", "2025-06-18", "2026-07-27", "2026-07-28", "2026-07-29"])
@pytest.mark.parametrize("sign", ["<", ">=", ""])
def test_a_session_is_asked_for_its_era_so_that_initialize_and_what_follows_agree(sign: str, date: str) -> None:
    """`initialize` names no version, later requests do; where one of them leads, all may be."""
    match = Match(protocol=ProtocolCondition(sign + date))
    met = [match.reached(asked(version=version)) for version in LEGACY_VERSIONS]
    assert {match.reached_by_session(asked(version=version)) for version in LEGACY_VERSIONS} == {any(met)}


@pytest.mark.parametrize(
    ("conditions", "request_headers", "reached"),
    [
        ({}, asked(version=LEGACY), True),
        ({}, asked("DELETE", version=""), True),
        ({}, asked(version=LEGACY, path="/other"), False),
        ({"path": Pattern("/tools")}, asked(version=LEGACY), False),
        ({"host": Pattern("a")}, asked(version=LEGACY, host="a"), True),
        ({"host": Pattern("a")}, asked(version=LEGACY, host="b"), False),
        ({"headers": {"x-tenant": Pattern("acme")}}, asked(version=LEGACY, fields={"x-tenant": "acme"}), True),
        ({"headers": {"x-tenant": Pattern("acme")}}, asked(version=LEGACY), False),
        # no session names a tool that the proxy could trust
        ({"method": Pattern("tools/call"), "name": Pattern("x"), "params": {"region": IN_EU}}, asked(version=""), True),
        ({"name": Pattern("x")}, asked(version=LEGACY, name="=?base64?!?="), True),
    ],
)
def test_what_is_asked_of_a_session_s_request(
    conditions: dict[str, Any], request_headers: RoutingHeaders, reached: bool
) -> None:
    assert Match(**conditions).reached_by_session(request_headers) is reached
