"""Heads of requests: made, read, and sent on."""

from httptools import HttpParserError, HttpParserUpgrade, HttpRequestParser

from proxy.wire.forwarding import Forwarded, request_for_backend
from proxy.wire.request_frame import RequestHead
from proxy.wire.request_head import RequestHeadReader

WANTED = frozenset({b"x-tenant", b"authorization"})
FROM_CLIENT = Forwarded(b"192.0.2.7", trusted=False, scheme=b"http")
FROM_PROXY = Forwarded(b"10.0.0.1", trusted=True, scheme=b"http")


def text(*lines: bytes, start: bytes = b"POST /mcp HTTP/1.1", host: bytes | None = b"Host: mcp.test") -> bytes:
    """A head with these fields behind the Host."""
    return b"\r\n".join([start, *([] if host is None else [host]), *lines, b"", b""])


def read(*lines: bytes, start: bytes = b"POST /mcp HTTP/1.1", host: bytes | None = b"Host: mcp.test") -> RequestHead:
    return RequestHeadReader(WANTED).read(text(*lines, start=start, host=host))


def for_backend(
    head: RequestHead,
    *,
    target: bytes = b"/mcp",
    host: bytes = b"a:1",
    session: bytes = b"s-1",
    forwarded: Forwarded = FROM_CLIENT,
    whole: int | None = None,
) -> bytes:
    """The head for a backend."""
    return request_for_backend(head, target=target, host=host, session=session, forwarded=forwarded, whole=whole)


def sent(head: RequestHead, *, whole: int | None = None) -> list[bytes]:
    """The lines for a backend, without those that say who forwards."""
    lines = for_backend(head, whole=whole).split(b"\r\n")
    assert lines[-2:] == [b"", b""]
    return [line for line in lines[:-2] if not line.startswith(b"X-Forwarded-")]


def parses(head: bytes) -> bool:
    """Whether the parser in front takes this for one whole head."""

    class Ended:
        done = False

        def on_headers_complete(self) -> None:
            self.done = True

    ended = Ended()
    try:
        HttpRequestParser(ended).feed_data(head)
    except (HttpParserError, HttpParserUpgrade):
        return False
    return ended.done and head.find(b"\r\n\r\n") + 4 == len(head)


# Names differ in case and in one letter; values in blanks, emptiness, and in what looks like another line's beginning.
LINES = [
    b"Mcp-Name: whoami", b"Mcp-Name: other", b"Mcp-Name:", b"Mcp-Name: \t", b"Mcp-Name:x ", b"Mcp-Name: =?base64?!?=",
    b"Mcp-Name: Mcp-Name: x", b"Mcp-Name: Content-Length: 5", b"Mcp-Name: \xe9\x80", b"mcp-name: whoami",
    b"Mcp_Name: x", b"Mcp-Names: x", b"Mcp-Name: " + b"n" * 4000, b"Mcp-Name: " + b"n" * 8192,
    b"Mcp-Name: " + b"n" * 8193,
    b"Content-Length: 0", b"Content-Length: 5", b"Content-Length:5", b"Content-Length: 5 \t", b"Content-Length: 0005",
    b"Content-Length: 18446744073709551615", b"content-length: 5", b"Content_Length: 7",
    b"Transfer-Encoding: chunked", b"transfer-encoding: Chunked", b"Transfer-Encoding: gzip, chunked",
    b"MCP-Protocol-Version: 2026-07-28", b"mcp-protocol-version: 2026-07-28", b"MCP-Protocol-Version: 2025-11-25",
    b"Mcp-Method: tools/call", b"Mcp-Method: tasks/get", b"Mcp-Method: tools/list", b"Mcp-Method:",
    b"Mcp-Session-Id: s", b"Mcp-Param-A: 1", b"Mcp-Param-A: 2", b"mcp-param-b:", b"X-Tenant: acme", b"X-Tenant: other",
    b"Authorization: Bearer x", b"Origin: https://a", b"Origin: null", b"Cookie: a=b", b"Accept: */*", b"X-Empty:",
    b"Accept-Encoding: gzip", b"accept-encoding: br", b"Expect: 100-continue", b"Connection: close",
    b"Connection: keep-alive", b"Connection: x-tenant", b"Connection: accept, cookie", b"Connection: mcp-name",
    b"Keep-Alive: timeout=5", b"TE: trailers", b"X-Forwarded-For: 1.1.1.1", b"X-Forwarded-For:",
    b"X-Forwarded-Proto: https", b"X-Forwarded-Host: x", b"Host: again", b"Big: " + b"x" * 4000,
]  # fmt: skip
STARTS = [
    b"POST /mcp HTTP/1.1",
    b"GET /mcp HTTP/1.1",
    b"POST /mcp?a HTTP/1.1",
    b"POST /mcp HTTP/1.0",
    b"HEAD / HTTP/1.1",
]
