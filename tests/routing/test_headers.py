"""Which era a request belongs to, what it is about, and which of its fields are end to end."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from proxy.routing import headers
from proxy.routing.headers import (
    DROPPED,
    HOP_BY_HOP,
    KEPT,
    RoutingHeaders,
    field_kind,
    is_modern,
    is_protected,
    is_secret,
    protocol_date,
)

WANTED = frozenset({b"x-tenant", b"authorization", b"x_region"})


@pytest.mark.parametrize(
    ("version", "modern", "date"),
    [
        ("2026-07-28", True, "2026-07-28"),
        ("2026-07-29", True, "2026-07-29"),
        ("2026-08-01", True, "2026-08-01"),
        ("2027-01-01", True, "2027-01-01"),
        ("9999-12-31", True, "9999-12-31"),
        ("2026-07-27", False, "2026-07-27"),
        ("2025-11-25", False, "2025-11-25"),
        ("2024-11-05", False, "2024-11-05"),
        ("", False, ""),
        ("2026-7-28", False, ""),
        ("20260728", False, ""),
        ("2026-07-28 ", False, ""),
        (" 2026-07-28", False, ""),
        ("2026-07-28\n", False, ""),
        ("2026-07-28a", False, ""),
        ("2026-07-28-draft", False, ""),
        ("DRAFT-2026-v1", False, ""),
        ("draft", False, ""),
        ("zzzz-zz-zz", False, ""),
        ("2026-07-28, 2026-07-28", False, ""),
        ("12026-07-28", False, ""),
        ("\u0662\u0660\u0662\u0666-\u0660\u0667-\u0662\u0668", False, ""),
        ("=?base64?MjAyNi0wNy0yOA==?=", False, ""),
    ],
)
def test_era_and_date_of_a_version(version: str, modern: bool, date: str) -> None:
    assert is_modern(version) is modern
    assert protocol_date(version) == date


def test_every_modern_version_is_a_date_from_the_first_modern_one_on() -> None:
    versions = [f"{year}-{month:02}-{day:02}" for year in (2025, 2026, 2027) for month in (7, 8) for day in (1, 28)]
    assert [is_modern(version) for version in versions] == [version >= "2026-07-28" for version in versions]


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        ("Host", headers.HOST),
        ("Connection", headers.CONNECTION),
        ("Content-Length", headers.LENGTH),
        ("Transfer-Encoding", headers.TRANSFER),
        ("Expect", headers.EXPECT),
        ("Accept-Encoding", headers.ACCEPT_ENCODING),
        ("X-Forwarded-For", headers.FORWARDED_FOR),
        ("X-Forwarded-Proto", headers.FORWARDED_PROTO),
        ("X-Forwarded-Host", headers.FORWARDED_HOST),
        ("Mcp-Method", headers.METHOD),
        ("Mcp-Name", headers.NAME),
        ("MCP-Protocol-Version", headers.VERSION),
        ("Mcp-Session-Id", headers.SESSION),
        ("Origin", headers.ORIGIN),
        ("Mcp-Param-Region", headers.PARAM),
        ("Mcp-Param-", headers.PARAM),
        ("Mcp-Param-a_b", headers.DROPPED),
        ("X-Tenant", headers.WANTED),
        ("Authorization", headers.WANTED),
        ("X_Region", headers.WANTED),
        ("X_Tenant", headers.DROPPED),  # what a server cannot tell from a field that rules look at
        ("x_tenant", headers.DROPPED),
        ("X-Region", headers.PASSED),
        # hop by hop
        ("Keep-Alive", headers.DROPPED),
        ("Proxy-Authenticate", headers.DROPPED),
        ("Proxy-Authorization", headers.DROPPED),
        ("Proxy-Connection", headers.DROPPED),
        ("TE", headers.DROPPED),
        ("Trailer", headers.DROPPED),
        ("Upgrade", headers.DROPPED),
        # what a CGI-style server cannot tell from one of those above
        ("Content_Length", headers.DROPPED),
        ("Content_Type", headers.DROPPED),
        ("Transfer_Encoding", headers.DROPPED),
        ("Keep_Alive", headers.DROPPED),
        ("Proxy_Connection", headers.DROPPED),
        ("X_Forwarded_For", headers.DROPPED),
        ("X-Forwarded_For", headers.DROPPED),
        ("X_Forwarded_Anything", headers.DROPPED),
        ("Mcp_Method", headers.DROPPED),
        ("Mcp_Name", headers.DROPPED),
        ("MCP_Protocol_Version", headers.DROPPED),
        ("MCP-Protocol_Version", headers.DROPPED),
        ("Mcp_Session_Id", headers.DROPPED),
        ("Mcp_Param_Region", headers.DROPPED),
        ("Mcp-Param_Region", headers.DROPPED),
        ("mcp_", headers.DROPPED),
        # end to end
        ("Content-Type", headers.PASSED),
        ("Accept", headers.PASSED),
        ("Cookie", headers.PASSED),
        ("X-Other", headers.PASSED),
        ("X_Other", headers.PASSED),
        ("_Host", headers.PASSED),
        ("Last-Event-ID", headers.PASSED),
        ("Mcp-Unknown", headers.PASSED),
        ("McpName", headers.PASSED),
        ("X-Forwarded-Port", headers.PASSED),
        ("Forwarded", headers.PASSED),
        ("", headers.PASSED),
    ],
)
def test_kind_of_a_field(name: str, kind: int) -> None:
    """In whatever case it is written."""
    for form in (name, name.lower(), name.upper(), name.swapcase()):
        assert field_kind(form.encode(), WANTED) == kind


def test_a_field_is_wanted_only_where_it_is_asked_for() -> None:
    for name in WANTED:
        assert field_kind(name, frozenset()) == headers.PASSED


def test_the_proxy_keeps_a_meaning_of_its_own_whatever_is_wanted() -> None:
    own = [b"host", b"content-length", b"mcp-name", b"connection", b"te", b"mcp_name", b"mcp-param-a"]
    for name in own:
        assert field_kind(name, frozenset(own)) == field_kind(name, frozenset()) != headers.WANTED


def test_no_hop_by_hop_field_is_forwarded_as_it_came() -> None:
    for name in HOP_BY_HOP:
        for form in (name, name.replace(b"-", b"_")):
            assert field_kind(form, frozenset({form})) < KEPT


@settings(deadline=None, max_examples=300)
@given(st.text("abcdefghimnoprstuvwxy-_", max_size=20).map(str.encode))
def test_no_underscore_makes_a_field_that_is_protected(name: bytes) -> None:
    kind = field_kind(name, frozenset({name}))
    dashed = name.replace(b"_", b"-")
    if b"_" in name and (dashed in HOP_BY_HOP or is_protected(dashed)):
        assert kind == DROPPED
    if dashed != name:
        assert field_kind(name, frozenset({dashed})) == DROPPED


@pytest.mark.parametrize(
    ("name", "protected"),
    [
        ("host", True),
        ("authorization", True),
        ("content-length", True),
        ("content-type", True),
        ("content-", True),
        ("x-forwarded-for", True),
        ("x-forwarded-anything", True),
        ("mcp-name", True),
        ("mcp-method", True),
        ("mcp-session-id", True),
        ("mcp-param-region", True),
        ("mcp-protocol-version", True),
        ("mcp-anything", True),
        ("mcp-a\nb", True),
        ("close", False),
        ("keep-alive", False),
        ("accept", False),
        ("x-tenant", False),
        ("hosts", False),
        ("x-host", False),
        ("content", False),
        ("mcp", False),
        ("", False),
    ],
)
def test_fields_that_connection_must_not_name(name: str, protected: bool) -> None:
    assert is_protected(name.encode()) is protected


@pytest.mark.parametrize(
    ("verb", "version", "method", "is_task"),
    [
        ("POST", "2026-07-28", "tasks/get", True),
        ("POST", "2026-07-28", "tasks/update", True),
        ("POST", "2026-07-28", "tasks/cancel", True),
        ("POST", "2026-07-28", "tasks/list", False),
        ("POST", "2026-07-28", "tasks/result", False),
        ("POST", "2026-07-28", "Tasks/get", False),
        ("POST", "2026-07-28", "tools/call", False),
        ("POST", "2026-07-28", "", False),
        ("GET", "2026-07-28", "tasks/get", False),
        ("OPTIONS", "2026-07-28", "tasks/get", False),
        ("POST", "2025-11-25", "tasks/get", False),
        ("POST", "", "tasks/get", False),
    ],
)
def test_which_requests_are_about_a_task(verb: str, version: str, method: str, is_task: bool) -> None:
    request = RoutingHeaders(verb, "/mcp", version=version, modern=is_modern(version), method=method)
    assert request.is_task is is_task


@pytest.mark.parametrize(
    ("verb", "version", "method", "is_listen"),
    [
        ("POST", "2026-07-28", "subscriptions/listen", True),
        ("GET", "2026-07-28", "subscriptions/listen", False),
        ("POST", "2025-11-25", "subscriptions/listen", False),
        ("POST", "2026-07-28", "subscriptions/listened", False),
        ("POST", "2026-07-28", "tools/call", False),
    ],
)
def test_which_requests_are_subscriptions(verb: str, version: str, method: str, is_listen: bool) -> None:
    request = RoutingHeaders(verb, "/mcp", version=version, modern=is_modern(version), method=method)
    assert request.is_listen is is_listen


@pytest.mark.parametrize(
    ("verb", "version", "session", "is_session"),
    [
        ("POST", "2025-11-25", "s-1", True),
        ("GET", "2025-11-25", "s-1", True),
        ("DELETE", "", "s-1", True),
        ("POST", "2025-11-25", "", True),
        ("POST", "2025-11-25", None, False),
        ("POST", "2026-07-28", "s-1", False),
        ("DELETE", "2026-07-28", "s-1", False),
    ],
)
def test_which_requests_are_of_a_session(verb: str, version: str, session: str | None, is_session: bool) -> None:
    request = RoutingHeaders(verb, "/mcp", version=version, modern=is_modern(version), session=session)
    assert request.is_session is is_session


@pytest.mark.parametrize(
    ("header", "secret"),
    [
        ("authorization", True),
        ("proxy-authorization", False),  # hop by hop: it is never kept
        ("cookie", True),
        ("x-api-key", True),
        ("x-apikey", True),
        ("x-auth-token", True),
        ("client-secret", True),
        ("x-password", True),
        ("x-tenant", False),
        ("x-key", False),
        ("host", False),
        ("", False),
    ],
)
def test_headers_whose_values_are_likely_credentials(header: str, secret: bool) -> None:
    assert is_secret(header) is secret
