"""What of a request's head is sent on: end-to-end fields as they came, the rest as the proxy says."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from proxy.routing.errors import ProxyError
from proxy.wire.forwarding import Forwarded
from proxy.wire.request_head import RequestHeadReader
from tests.wire.request_heads import FROM_CLIENT, FROM_PROXY, LINES, STARTS, WANTED, for_backend, parses, read, sent


def test_a_modern_call_as_it_is_sent_on() -> None:
    head = read(
        b"Accept-Encoding: gzip",
        b"MCP-Protocol-Version: 2026-07-28",
        b"Mcp-Method:  tools/call",
        b"mcp-name: whoami \t",
        b"Mcp-Param-Region: eu",
        b"Content-Type: application/json",
        b"Content-Length: 007",
        b"Authorization: Bearer x",
        b"X_Tenant: acme",
        b"X_Other: kept",
        b"Connection: keep-alive",
        b"Keep-Alive: timeout=5",
        b"TE: trailers",
        b"Mcp_Name: other",
        b"Proxy-Authorization: Basic x",
        b"X-Forwarded-For: 1.1.1.1",
        b"X-Empty:",
        b"X-Latin: \xe9",
    )
    assert for_backend(head, target=b"/x?a=b").split(b"\r\n") == [
        b"POST /x?a=b HTTP/1.1",
        b"Host: a:1",
        b"MCP-Protocol-Version: 2026-07-28",
        b"Mcp-Method:  tools/call",
        b"Mcp-Param-Region: eu",
        b"Content-Type: application/json",
        b"Authorization: Bearer x",
        b"X_Other: kept",
        b"X-Empty:",
        b"X-Latin: \xe9",
        b"X-Forwarded-For: 192.0.2.7",
        b"X-Forwarded-Proto: http",
        b"X-Forwarded-Host: mcp.test",
        b"Accept-Encoding: identity",
        b"mcp-name: whoami \t",
        b"Content-Length: 7",
        b"",
        b"",
    ]


@pytest.mark.parametrize(
    ("verb", "lines", "expected"),
    [
        (b"GET", [], []),
        (
            b"GET",
            [b"Accept-Encoding: gzip", b"accept-encoding: br"],
            [b"Accept-Encoding: gzip", b"accept-encoding: br"],
        ),
        (b"POST", [b"Content-Length: 0"], [b"Content-Length: 0"]),
        (b"POST", [b"transfer-encoding: Chunked"], [b"Transfer-Encoding: chunked"]),
        (b"POST", [b"Expect: 100-continue"], [b"Expect: 100-continue"]),
        (b"POST", [b"Connection: x-a, X-B", b"X-A: 1", b"x-b: 2", b"X-C: 3"], [b"X-C: 3"]),
        (b"POST", [b"X-A: 1", b"Connection: close, x-a"], []),
        (b"GET", [b"Upgrade: h2c", b"Trailer: X", b"Proxy-Connection: x"], []),
        (b"GET", [b"Origin: null", b"Cookie: a", b"Cookie: b"], [b"Origin: null", b"Cookie: a", b"Cookie: b"]),
    ],
)
def test_fields_that_are_sent_on(verb: bytes, lines: list[bytes], expected: list[bytes]) -> None:
    head = read(*lines, start=verb + b" /mcp HTTP/1.1")
    assert sent(head) == [verb + b" /mcp HTTP/1.1", b"Host: a:1", *expected]


def test_a_request_of_http10_is_sent_on_as_http11_without_its_expectation() -> None:
    """HTTP/1.0 knows no interim response (RFC 9110, 10.1.1)."""
    head = read(b"Expect: 100-continue", b"X: y", start=b"POST /mcp HTTP/1.0")
    assert sent(head) == [b"POST /mcp HTTP/1.1", b"Host: a:1", b"X: y"]


@pytest.mark.parametrize("line", [b"Accept-Encoding: gzip", b"Expect: 100-continue"])
def test_every_field_that_connection_names_ends_here(line: bytes) -> None:
    """RFC 9110, 7.6.1."""
    name = line.partition(b":")[0]
    assert not any(name in one for one in sent(read(line, b"Connection: " + name)))


@pytest.mark.parametrize(
    ("lines", "forwarded", "expected"),
    [
        ([], FROM_CLIENT, ["192.0.2.7", "http", "mcp.test"]),
        ([b"X-Forwarded-For: 1.1.1.1"], FROM_CLIENT, ["192.0.2.7", "http", "mcp.test"]),
        ([b"X-Forwarded-Proto: https", b"X-Forwarded-Host: x"], FROM_CLIENT, ["192.0.2.7", "http", "mcp.test"]),
        ([b"X-Forwarded-For: 1.1.1.1"], FROM_PROXY, ["1.1.1.1, 10.0.0.1", "http", "mcp.test"]),
        (
            [b"x-forwarded-for: 1.1.1.1, 2.2.2.2", b"X-Forwarded-For:  3.3.3.3"],
            FROM_PROXY,
            ["1.1.1.1, 2.2.2.2, 3.3.3.3, 10.0.0.1", "http", "mcp.test"],
        ),
        ([b"X-Forwarded-For:"], FROM_PROXY, ["10.0.0.1", "http", "mcp.test"]),
        ([b"X-Forwarded-Proto: https", b"X-Forwarded-Host: x"], FROM_PROXY, ["10.0.0.1", "https", "x"]),
    ],
)
def test_who_forwards(lines: list[bytes], forwarded: Forwarded, expected: list[str]) -> None:
    out = for_backend(read(*lines), forwarded=forwarded)
    found = [line for line in out.split(b"\r\n") if line.lower().startswith(b"x-forwarded-")]
    names = (b"X-Forwarded-For: ", b"X-Forwarded-Proto: ", b"X-Forwarded-Host: ")
    assert found == [name + value.encode() for name, value in zip(names, expected, strict=True)]


def test_legacy_requests_keep_their_accept_encoding() -> None:
    head = read(b"Accept-Encoding: gzip", b"MCP-Protocol-Version: 2025-11-25", b"Mcp-Method: tools/call")
    assert b"Accept-Encoding: gzip" in sent(head)
    assert not head.frame.teaches


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        (b"Mcp-Session-Id: tag.own", [b"Mcp-Session-Id: s-1"]),
        (b"mcp-session-id:tag.own \t", [b"mcp-session-id: s-1"]),
        (b"Mcp-Session-Id:", [b"Mcp-Session-Id: s-1"]),
        (b"Mcp_Session_Id: tag.own", []),
        (b"X: tag.own", [b"X: tag.own"]),
    ],
)
@pytest.mark.parametrize("version", [b"2025-11-25", b"2026-07-28"])
def test_a_session_is_sent_as_its_backend_knows_it(line: bytes, expected: list[bytes], version: bytes) -> None:
    """And only if the client sent one."""
    version_line = b"MCP-Protocol-Version: " + version
    head = read(b"Accept-Encoding: identity", line, version_line)
    out = [one for one in sent(head) if one not in (version_line, b"Accept-Encoding: identity")]
    assert out == [b"POST /mcp HTTP/1.1", b"Host: a:1", *expected]


def test_of_two_sessions_none_gets_through() -> None:
    """The request is refused; what would be sent names one."""
    head = read(b"Mcp-Session-Id: a", b"Mcp-Session-Id: b")
    assert head.fault is not None
    assert [line for line in sent(head) if b"Session" in line] == [b"Mcp-Session-Id: s-1"]


@pytest.mark.parametrize(
    "lines",
    [
        [b"Content-Length: 5"],
        [b"Content-Length: 0"],
        [b"Transfer-Encoding: chunked"],
        [b"Content-Length: 5", b"Expect: 100-continue"],
        [b"Transfer-Encoding: chunked", b"Expect: 100-continue"],
        [],
    ],
)
@pytest.mark.parametrize("whole", [0, 5, 65_536])
def test_a_body_at_hand_goes_with_its_length_alone(lines: list[bytes], whole: int) -> None:
    """However it came: its expectation was met here (RFC 9110, 10.1.1)."""
    head = read(b"Mcp-Name: t-1", *lines)
    assert sent(head, whole=whole)[2:] == [b"Mcp-Name: t-1", b"Content-Length: %d" % whole]
    assert sent(head)[2:4] == [b"Mcp-Name: t-1", *lines[::-1]][:2]  # the next one is sent as it came


@settings(deadline=None, max_examples=300)
@given(st.lists(st.one_of(st.sampled_from(LINES), st.binary(max_size=20)), max_size=12), st.sampled_from(STARTS))
def test_any_head_that_parses_is_read_or_refused(lines: list[bytes], start: bytes) -> None:
    """And what is sent on parses again, with the same framing and no field that decides where it goes twice."""
    head = b"\r\n".join([start, b"Host: mcp.test", *lines, b"", b""])
    if not parses(head):
        return
    try:
        found = RequestHeadReader(WANTED).read(head)
    except ProxyError:
        return
    out = for_backend(found, session=(found.routing.session or "").encode("latin-1"))
    assert parses(out)
    again = RequestHeadReader(WANTED).read(out)
    assert (again.length, again.frame.chunked, again.frame.has_length) == (
        found.length,
        found.frame.chunked,
        found.frame.has_length,
    )
    if found.fault is None:
        # What a Connection field names is matched, but not sent on.
        assert again.routing._replace(host="", path="", fields={}) == found.routing._replace(
            host="", path="", fields={}
        )
        assert again.fault is None
