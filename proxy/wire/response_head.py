"""Heads of responses: a backend's read, checked and turned into the bytes for the client; and the proxy's own answers.

As with requests, httptools has validated the syntax, and here stands what two parsers could frame differently. The
heads that a backend sends on one connection mostly differ in Content-Length alone; what follows from the other lines is
shared from one head to the next.
"""

import json
import re
from http import HTTPStatus
from typing import NamedTuple

from proxy.routing.errors import BadResponse, ProxyError
from proxy.routing.headers import HOP_BY_HOP, is_protected
from proxy.wire.likeness import OneDiffers, free_value
from proxy.wire.limits import MAX_FIELDS, OWS, content_length, remember, tokens_of

_PASSED, _DROPPED, _CONNECTION, _PROXIED, _LENGTH, _TRANSFER, _TYPE, _ENCODING, _SESSION = range(9)
_KINDS = {
    b"connection": _CONNECTION,
    b"proxy-connection": _PROXIED,
    b"content-length": _LENGTH,
    b"transfer-encoding": _TRANSFER,
    b"content-type": _TYPE,
    b"content-encoding": _ENCODING,
    b"mcp-session-id": _SESSION,
}
_STATUS_LINE = re.compile(rb"HTTP/1\.([01]) ([1-9][0-9]{2})(?: ([\t -~\x80-\xff]*))?")
_BODYLESS = frozenset({204, 304})


class ResponseFrame:
    """What follows from a head's lines other than Content-Length."""

    __slots__ = (
        "bodyless",
        "chunked",
        "content_type",
        "encoded",
        "has_length",
        "keep_alive",
        "length_at",
        "length_prefix",
        "likeness",
        "lines",
        "plain",
        "session",
        "session_prefix",
        "start",
        "status",
        "to_head",
        "verbatim",
    )

    lines: list[bytes]
    """All lines of the head, that of Content-Length left empty."""
    length_at: int
    length_prefix: bytes
    likeness: OneDiffers | None
    """Made for the second head with this frame; None before, and where there is no length."""
    plain: bool
    """True for JSON in the clear that names no session and whose status tells of no failure."""
    verbatim: bool
    """True if a client on HTTP/1.1 whose connection is kept may be sent the head as it came."""
    to_head: bool
    """True for the answer to a HEAD request."""
    status: int
    session: str
    """The Mcp-Session-Id, or empty."""
    session_prefix: bytes
    """Its field name as it came, with the colon."""
    start: bytes
    """The status line as HTTP/1.1 and the end-to-end fields but Mcp-Session-Id as they came, with the last CRLF."""
    has_length: bool
    chunked: bool
    bodyless: bool
    """By status or by the request's method, whatever the fields say (RFC 9112, 6.3)."""
    keep_alive: bool
    content_type: bytes
    """In lower case, without parameters."""
    encoded: bool
    """True if a content coding hides the body's text."""

    @property
    def interim(self) -> bool:
        return self.status < 200

    def stop_sharing(self) -> None:
        """No other head can share this frame from now on."""
        self.lines, self.likeness = [], None

    def expect_alike(self, head: bytes) -> None:
        """A second head had this frame: further ones are told by their likeness, if they announce a length."""
        if self.has_length and self.keep_alive and not self.bodyless:
            lines = head.split(b"\r\n")
            self.likeness = OneDiffers(lines, free_value(lines, self.length_at, self.length_prefix))


class ResponseHead(NamedTuple):
    """One response's head, read."""

    frame: ResponseFrame
    length: int | None
    """Content-Length; None when absent. In a response without a body it tells nothing about the framing."""

    @property
    def body_length(self) -> int | None:
        """How many bytes follow; None if chunked or until close."""
        return 0 if self.frame.bodyless else self.length

    @property
    def until_close(self) -> bool:
        return self.length is None and not self.frame.chunked and not self.frame.bodyless


class ResponseHeadReader:
    """Reads response heads."""

    def __init__(self) -> None:
        self._kinds: dict[bytes, int] = {}

    def read(self, head: bytes, *, to_head: bool, before: ResponseFrame | None = None) -> ResponseHead:
        """Reads one head; `to_head`: it answers a HEAD request; `before`: the frame of the connection's last one.

        Raises BadResponse.
        """
        lines = head.split(b"\r\n")
        if before is not None and len(lines) == len(before.lines) and to_head is before.to_head:
            length_line = lines[before.length_at]
            lines[before.length_at] = b""
            if lines == before.lines and length_line.startswith(before.length_prefix):
                if before.likeness is None:
                    before.expect_alike(head)
                return ResponseHead(before, _length(length_line[len(before.length_prefix) :]) if length_line else None)
            lines[before.length_at] = length_line
        return self._read_anew(lines, to_head=to_head)

    def _read_anew(self, lines: list[bytes], *, to_head: bool) -> ResponseHead:
        if len(lines) - 3 > MAX_FIELDS:
            raise BadResponse(f"the backend's head has more than {MAX_FIELDS} fields")
        status_line = _STATUS_LINE.fullmatch(lines[0])
        if status_line is None:
            raise BadResponse("the backend's status line is not `HTTP/1.1 code reason`")
        http10 = status_line[1] == b"0"
        frame = ResponseFrame()
        frame.status = int(status_line[2])
        frame.to_head = to_head
        frame.bodyless = to_head or frame.status < 200 or frame.status in _BODYLESS
        frame.content_type, frame.encoded = b"", False
        frame.session, frame.session_prefix = "", b""
        frame.length_at, frame.length_prefix = -1, b""  # the last line, which is empty
        kept = [b"HTTP/1.1 %b %b" % (status_line[2], status_line[3] or b"")]
        coding: bytes | None = None
        length: int | None = None
        tokens: set[bytes] = set()
        for at, line in enumerate(lines[1:-2], start=1):
            name, _, value = line.partition(b":")
            kind = self._kind(name)
            if kind in (_PASSED, _TYPE, _ENCODING):
                kept.append(line)
            if kind == _TYPE:
                frame.content_type = value.partition(b";")[0].strip(OWS).lower()
            elif kind == _ENCODING:
                frame.encoded = frame.encoded or value.strip(OWS).lower() != b"identity"
            elif kind == _LENGTH:
                if length is not None:
                    raise BadResponse("the backend sent Content-Length twice")
                length, frame.length_at, frame.length_prefix = _length(value), at, name + b":"
            elif kind == _SESSION:
                if frame.session_prefix:
                    raise BadResponse("the backend sent Mcp-Session-Id twice")
                frame.session, frame.session_prefix = value.strip(OWS).decode("latin-1"), name + b":"
            elif kind == _TRANSFER:
                coding = value.strip(OWS).lower() if coding is None else b"several"
            elif kind == _CONNECTION:
                tokens |= tokens_of(value)
            elif kind == _PROXIED and b"close" in tokens_of(value):  # the parser obeys it as well
                tokens.add(b"close")
        if coding is not None and (http10 or length is not None or coding != b"chunked"):
            raise BadResponse("the backend's Transfer-Encoding is not `chunked` alone on HTTP/1.1")
        frame.has_length = length is not None
        frame.chunked = coding is not None and not frame.bodyless
        frame.keep_alive = (b"keep-alive" in tokens or not http10) and b"close" not in tokens
        if length is None and not frame.chunked and not frame.bodyless:
            frame.keep_alive = False
        named = {token for token in tokens - HOP_BY_HOP - {b"close", b""} if not is_protected(token)}
        if named:  # RFC 9110, 7.6.1
            kept[1:] = [line for line in kept[1:] if line.partition(b":")[0].lower() not in named]
        frame.start = b"\r\n".join([*kept, b""])
        passed = [line for at, line in enumerate(lines[:-2]) if at != frame.length_at]
        frame.verbatim = kept == passed and frame.has_length
        frame.likeness = None
        frame.plain = (
            frame.content_type == b"application/json"
            and not frame.encoded
            and not frame.session_prefix
            and 200 <= frame.status < 500
        )
        frame.lines = lines
        frame.lines[frame.length_at] = b""
        return ResponseHead(frame, length)

    def _kind(self, name: bytes) -> int:
        kind = self._kinds.get(name)
        if kind is None:
            lower = name.lower()
            kind = remember(self._kinds, name, _KINDS.get(lower, _DROPPED if lower in HOP_BY_HOP else _PASSED))
        return kind


def _length(value: bytes) -> int:
    length = content_length(value.strip(OWS))
    if length is None:
        raise BadResponse("the backend's Content-Length is not one number")
    return length


def response_for_client(head: ResponseHead, *, http10: bool, keep_alive: bool, tag: str) -> bytes:
    """The head to send to a client. A body without length goes chunked to HTTP/1.1, until close to HTTP/1.0.

    `tag` goes before the session's id, if there is one; empty: the id is passed as it came.
    """
    frame, end = head.frame, b"\r\n"
    if not keep_alive:
        end = b"Connection: close\r\n\r\n"
    elif http10:
        end = b"Connection: keep-alive\r\n\r\n"
    if frame.session_prefix:
        session = f"{tag}.{frame.session}" if tag and frame.session else frame.session
        end = b"%b %b\r\n%b" % (frame.session_prefix, session.encode("latin-1"), end)
    if head.length is not None and frame.status >= 200 and frame.status != 204:
        return b"%bContent-Length: %d\r\n%b" % (frame.start, head.length, end)
    if frame.bodyless or http10:
        return frame.start + end
    return b"%bTransfer-Encoding: chunked\r\n%b" % (frame.start, end)


def merged_for_client(head: ResponseHead, *, http10: bool, keep_alive: bool) -> bytes:
    """The head of a stream that this backend's is only a part of: without its length, and without its session."""
    if http10:
        return head.frame.start + b"Connection: close\r\n\r\n"
    end = b"\r\n" if keep_alive else b"Connection: close\r\n\r\n"
    return b"%bTransfer-Encoding: chunked\r\n%b" % (head.frame.start, end)


def error_response(error: ProxyError, *, modern: bool, keep_alive: bool, http10: bool, with_body: bool) -> bytes:
    """The proxy's own answer: JSON-RPC without an id, which stands in a body that nobody parses."""
    content = {
        "jsonrpc": "2.0",
        "error": {"code": error.code_for(modern=modern), "message": str(error), "data": {"reason": error.reason}},
    }
    body = json.dumps(content).encode()
    lines = [
        f"HTTP/1.1 {error.status} {HTTPStatus(error.status).phrase}",
        "Content-Type: application/json",
        f"Content-Length: {len(body)}",
        f"Mcp-Proxy-Error: {error.reason}",
    ]
    if error.retry_after is not None:
        lines.append(f"Retry-After: {error.retry_after}")
    if not keep_alive:
        lines.append("Connection: close")
    elif http10:
        lines.append("Connection: keep-alive")
    return "\r\n".join([*lines, "", ""]).encode() + (body if with_body else b"")
