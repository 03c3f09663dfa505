"""Heads of responses: made, read, and turned into those for clients."""

from httptools import HttpParserError, HttpParserUpgrade, HttpResponseParser

from proxy.wire.response_head import ResponseHead, ResponseHeadReader, response_for_client

OK = b"HTTP/1.1 200 OK"
LENGTH, CHUNKED = b"Content-Length: 5", b"Transfer-Encoding: chunked"
NO_CONTENT, CONTINUE = b"HTTP/1.1 204 No Content", b"HTTP/1.1 100 Continue"
CLOSE, KEEP = b"Connection: close", b"Connection: keep-alive"
HOP_BY_HOP = [b"Connection: keep-alive", b"Keep-Alive: timeout=5", b"Upgrade: h2", b"Trailer: X", b"TE: x"]
HOP_BY_HOP += [b"Proxy-Connection: x", b"Proxy-Authenticate: Basic"]
JSON_ANSWER = [b"date: today", b"content-type: application/json", b"content-length: 17", b"server: x"]
LINES = [
    *JSON_ANSWER,
    *HOP_BY_HOP,
    LENGTH,
    CHUNKED,
    CLOSE,
    b"content-length: 5",
    b"content-length:",
    b"content-length: 005",
    b"content-length: 5, 5",
    b"transfer-encoding: gzip",
    b"content-type: text/event-stream",
    b"content-encoding: gzip",
    b"content-encoding: identity",
    b"mcp-session-id: s",
    b"set-cookie: content-length: 5",
    b"date: tomorrow",
    b"connection: x-a",
    b"x-a: 1",
    b"x-empty:",
]
STARTS = [OK, OK, OK, b"HTTP/1.0 200 OK", NO_CONTENT, CONTINUE, b"HTTP/1.1 304 Not Modified", b"HTTP/1.1 404 "]


def text(*lines: bytes, start: bytes = OK) -> bytes:
    return b"\r\n".join([start, *lines, b"", b""])


def read(*lines: bytes, start: bytes = OK, to_head: bool = False) -> ResponseHead:
    return ResponseHeadReader().read(text(*lines, start=start), to_head=to_head)


def sent(head: ResponseHead, *, http10: bool = False, keep_alive: bool = True, tag: str = "") -> list[bytes]:
    """The lines for a client."""
    lines = response_for_client(head, http10=http10, keep_alive=keep_alive, tag=tag).split(b"\r\n")
    assert lines[-2:] == [b"", b""]
    return lines[:-2]


def parses(head: bytes) -> bool:
    """Whether the parser in front takes this for one whole head."""

    class Ended:
        done = False

        def on_headers_complete(self) -> None:
            self.done = True

    ended = Ended()
    try:
        HttpResponseParser(ended).feed_data(head)
    except (HttpParserError, HttpParserUpgrade):
        return False
    return ended.done and head.find(b"\r\n\r\n") + 4 == len(head)
