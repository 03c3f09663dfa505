"""Heads of requests: what is read, and what is refused."""

import pytest

from proxy.routing.errors import BadRequest, ProxyError
from proxy.routing.headers import RoutingHeaders
from tests.wire.request_heads import parses, read, text


def test_routing_headers_are_read_trimmed_and_undecoded() -> None:
    head = read(
        b"MCP-Protocol-Version:2026-07-28",
        b"mcp-method: \t tools/call \t",
        b"MCP-NAME: =?base64?d2hvYW1p?= ",
        b"Mcp-Session-Id: s-1",
        b"Mcp-Param-Region: eu ",
        b"mcp-param-SIZE:",
        b"X-Tenant: acme",
        b"x-tenant:  other",
        b"Authorization: Bearer x",
        b"Origin: https://App.example",
        b"Content-Length: 17",
        host=b"hOsT: MCP.Example:8443",
        start=b"POST /mcp?a=b?c HTTP/1.1",
    )
    assert head.routing == RoutingHeaders(
        verb="POST",
        path="/mcp",
        host="mcp.example",
        version="2026-07-28",
        modern=True,
        method="tools/call",
        session="s-1",
        params=(("region", "eu"), ("size", "")),
        fields={"x-tenant": "acme, other", "authorization": "Bearer x"},
        name="=?base64?d2hvYW1p?=",
    )
    frame = head.frame
    assert (frame.verb, frame.path, frame.query, frame.http10) == (b"POST", b"/mcp", b"?a=b?c", False)
    assert (frame.host, frame.origin, frame.expect) == (b"MCP.Example:8443", "https://App.example", b"")
    assert (head.length, frame.has_length, frame.chunked) == (17, True, False)
    assert (head.name_line, head.fault) == (b"MCP-NAME: =?base64?d2hvYW1p?= \r\n", None)
    assert frame.teaches
    assert frame.keep_alive


def test_what_is_absent_is_empty_or_none() -> None:
    head = read(start=b"GET / HTTP/1.0", host=None)
    assert head.routing == RoutingHeaders(verb="GET", path="/")
    frame = head.frame
    assert (frame.host, frame.origin, frame.query, frame.http10) == (b"", None, b"", True)
    assert (head.length, frame.has_length, frame.chunked) == (0, False, False)
    assert (head.name_line, head.fault, frame.teaches) == (b"", None, False)


def test_an_empty_name_is_a_name() -> None:
    assert read(b"Mcp-Name:").routing.name == ""
    assert read(b"Mcp-Name: \t").routing.name == ""


@pytest.mark.parametrize(
    ("host", "name"),
    [
        (b"mcp.test", "mcp.test"),
        (b"MCP.Test:80", "mcp.test"),
        (b"mcp.test:", "mcp.test"),
        (b"127.0.0.1:65535", "127.0.0.1"),
        (b"[::1]:8080", "[::1]"),
        (b"[2001:DB8::1]", "[2001:db8::1]"),
        (b"a_b.c-d~e", "a_b.c-d~e"),
        (b"", None),
        (b"x/y", None),
        (b"u@x", None),
        (b"x y", None),
        (b"x:y", None),
        (b"x:123456", None),
        (b"x:1:2", None),
        (b"::1", None),
        (b"[::1", None),
        (b"[x]", None),
        (b"x?", None),
        (b"x#", None),
        (b"x\\y", None),
        (b"\xe9.test", None),
        (b"x, y", None),
    ],
)
def test_host(host: bytes, name: str | None) -> None:
    if name is None:
        with pytest.raises(BadRequest, match="the Host field"):
            read(host=b"Host: " + host)
    else:
        head = read(host=b"Host:" + host)
        assert (head.routing.host, head.frame.host) == (name, host)


def test_host_must_come_once_and_only_http10_may_lack_it() -> None:
    for lines in ([b"Host: mcp.test"], [b"host: other"]):
        with pytest.raises(BadRequest, match="more than one Host"):
            read(*lines)
    with pytest.raises(BadRequest, match="no Host"):
        read(host=None)
    assert read(host=None, start=b"GET /mcp HTTP/1.0").routing.host == ""


@pytest.mark.parametrize(
    ("target", "path", "query"),
    [
        (b"/", b"/", b""),
        (b"/mcp", b"/mcp", b""),
        (b"/mcp/", b"/mcp/", b""),
        (b"/mcp?", b"/mcp", b"?"),
        (b"/mcp?a=/../b//c%2f", b"/mcp", b"?a=/../b//c%2f"),
        (b"/a.b/..c/d../...", b"/a.b/..c/d../...", b""),
        (b"/.well-known/x", b"/.well-known/x", b""),
        (b"/a%20b%41", b"/a%20b%41", b""),
        (b"/!\"$%&'()*+,-:;<=>@[]^_`{|}~", b"/!\"$%&'()*+,-:;<=>@[]^_`{|}~", b""),
    ],
)
def test_target(target: bytes, path: bytes, query: bytes) -> None:
    frame = read(start=b"POST %b HTTP/1.1" % target).frame
    assert (frame.path, frame.query) == (path, query)


@pytest.mark.parametrize(
    "start",
    [
        *(
            b"POST %b HTTP/1.1" % target
            for target in (
                b"mcp",
                b"*",
                b"http://x/mcp",
                b"x:443",
                b"//mcp",
                b"/a//b",
                b"/a/../b",
                b"/a/./b",
                b"/..",
                b"/.",
                b"/a/..",
                b"/a/.?x",
                b"/%2e",
                b"/a%2Eb",
                b"/%2e%2e/x",
                b"/a%2fb",
                b"/a%2Fb",
                b"/a%5cb",
                b"/a\\b",
                b"/a#b",
                b"/a\tb",
                b"/\xe9",
                b"/\x7f",
                b"/a\x00",
            )
        ),
        b"POST /mcp",
        b"POST  /mcp HTTP/1.1",
        b"POST /mcp  HTTP/1.1",
        b"POST /mcp HTTP/1.1 ",
        b" POST /mcp HTTP/1.1",
        b"POST /m cp HTTP/1.1",
        b"post /mcp HTTP/1.1",
        b"P0ST /mcp HTTP/1.1",
        b"POST /mcp HTTP/2.0",
        b"POST /mcp HTTP/1.2",
        b"POST /mcp http/1.1",
        b"POST /mcp HTTP/1.1x",
    ],
)
def test_request_lines_that_are_refused(start: bytes) -> None:
    with pytest.raises(BadRequest):
        read(start=start)


@pytest.mark.parametrize(
    ("lines", "expected"),
    [
        ([], (0, False, False)),
        ([b"Content-Length: 0"], (0, True, False)),
        ([b"Content-Length:5"], (5, True, False)),
        ([b"content-length: \t5 "], (5, True, False)),
        ([b"Content-Length: 005"], (5, True, False)),
        ([b"Content-Length: 9223372036854775807"], (2**63 - 1, True, False)),
        ([b"Content-Length: 9999999999999999999"], (10**19 - 1, True, False)),
        ([b"Transfer-Encoding: chunked"], (0, False, True)),
        ([b"transfer-encoding: Chunked "], (0, False, True)),
    ],
)
def test_framing(lines: list[bytes], expected: tuple[int, bool, bool]) -> None:
    head = read(*lines)
    assert (head.length, head.frame.has_length, head.frame.chunked) == expected


@pytest.mark.parametrize(
    ("lines", "start"),
    [
        ([b"Content-Length: 5", b"Content-Length: 5"], b"POST /mcp HTTP/1.1"),
        ([b"Content-Length: 5, 5"], b"POST /mcp HTTP/1.1"),
        ([b"Content-Length:"], b"POST /mcp HTTP/1.1"),
        ([b"Content-Length: +5"], b"POST /mcp HTTP/1.1"),
        ([b"Content-Length: -5"], b"POST /mcp HTTP/1.1"),
        ([b"Content-Length: 5_0"], b"POST /mcp HTTP/1.1"),
        ([b"Content-Length: 0x5"], b"POST /mcp HTTP/1.1"),
        ([b"Content-Length: 18446744073709551615"], b"POST /mcp HTTP/1.1"),
        ([b"Content-Length: " + b"0" * 19 + b"5"], b"POST /mcp HTTP/1.1"),
        ([b"Content-Length: \xb2"], b"POST /mcp HTTP/1.1"),
        ([b"Content-Length: 5", b"Transfer-Encoding: chunked"], b"POST /mcp HTTP/1.1"),
        ([b"Transfer-Encoding: chunked", b"Content-Length: 5"], b"POST /mcp HTTP/1.1"),
        ([b"Transfer-Encoding: gzip, chunked"], b"POST /mcp HTTP/1.1"),
        ([b"Transfer-Encoding: gzip"], b"POST /mcp HTTP/1.1"),
        ([b"Transfer-Encoding: chunked", b"Transfer-Encoding: chunked"], b"POST /mcp HTTP/1.1"),
        ([b"Transfer-Encoding: chunked;a=b"], b"POST /mcp HTTP/1.1"),
        ([b"Transfer-Encoding: identity"], b"POST /mcp HTTP/1.1"),
        ([b"Transfer-Encoding:"], b"POST /mcp HTTP/1.1"),
        ([b"Transfer-Encoding: chunked"], b"POST /mcp HTTP/1.0"),
    ],
)
def test_framing_that_is_refused(lines: list[bytes], start: bytes) -> None:
    with pytest.raises(BadRequest):
        read(*lines, start=start)


def test_a_length_of_many_zeros_is_read_or_refused() -> None:
    line = b"Content-Length: " + b"0" * 5000 + b"5"
    assert parses(text(line))
    try:
        length = read(line).length
    except ProxyError:
        return
    assert length == 5


@pytest.mark.parametrize(
    ("start", "lines", "keep_alive"),
    [
        (b"GET / HTTP/1.1", [], True),
        (b"GET / HTTP/1.1", [b"Connection: keep-alive"], True),
        (b"GET / HTTP/1.1", [b"Connection: close"], False),
        (b"GET / HTTP/1.1", [b"connection: CLOSE"], False),
        (b"GET / HTTP/1.1", [b"Connection: keep-alive, close"], False),
        (b"GET / HTTP/1.1", [b"Connection: x-a ,\tclose,"], False),
        (b"GET / HTTP/1.1", [b"Connection: keep-alive", b"Connection: close"], False),
        (b"GET / HTTP/1.1", [b"Connection:"], True),
        (b"GET / HTTP/1.1", [b"Connection: closed"], True),
        (b"GET / HTTP/1.0", [], False),
        (b"GET / HTTP/1.0", [b"Connection: Keep-Alive"], True),
        (b"GET / HTTP/1.0", [b"Connection: keep-alive, close"], False),
    ],
)
def test_keep_alive(start: bytes, lines: list[bytes], keep_alive: bool) -> None:
    assert read(*lines, start=start).frame.keep_alive is keep_alive


@pytest.mark.parametrize(
    "named",
    [
        "Host",
        "authorization",
        "Content-Length",
        "content-type",
        "X-Forwarded-For",
        "Mcp-Name",
        "mcp-param-a",
        "MCP-Protocol-Version",
        "Mcp-Session-Id",
        "close, Host",
        "x-a,\tmcp-method ,x-b",
    ],
)
def test_connection_must_not_name_what_decides_where_a_request_goes(named: str) -> None:
    with pytest.raises(BadRequest, match="Connection names"):
        read(b"Connection: " + named.encode())
    with pytest.raises(BadRequest, match="Connection names"):
        read(b"Connection: keep-alive", b"Connection: " + named.encode())
