"""What a request's head says, as values: what it shares with others on its connection, and what is its own.

The heads of one connection mostly differ in Mcp-Name and Content-Length alone. What follows from all the other lines is
a `Frame`; a head with the same other lines as the one before shares its frame, and with it the bytes to send on. Such a
request, if it is there whole, is told by comparing (wire.likeness), and needs no reading.
"""

from typing import NamedTuple, TypeAlias

from proxy.routing.errors import ProxyError
from proxy.routing.headers import RoutingHeaders
from proxy.wire.likeness import OneDiffers, TwoDiffer, free_value
from proxy.wire.limits import MAX_ROUTING_VALUE

NO_LINES: list[bytes] = []  # never added to


class Frame:
    """What follows from a head's lines other than Mcp-Name and Content-Length."""

    __slots__ = (
        "accept_encoding",
        "chunked",
        "expect",
        "forwarded",
        "has_length",
        "host",
        "http10",
        "keep_alive",
        "kept",
        "kind",
        "label",
        "length_at",
        "length_prefix",
        "likeness",
        "lines",
        "memo",
        "name_at",
        "name_prefix",
        "name_start",
        "origin",
        "path",
        "query",
        "reader",
        "repeatable",
        "routing",
        "sent",
        "session_prefix",
        "teaches",
        "verb",
    )

    reader: object
    """The one that made it: another may look at other fields."""
    lines: list[bytes]
    """All lines of the head, the two that may differ left empty; no lines at all: not to be shared."""
    name_at: int
    name_prefix: bytes
    length_at: int
    length_prefix: bytes
    likeness: OneDiffers | TwoDiffer | None
    """Made for the second head with this frame; None as long as there is none, or where a body has no length."""
    name_start: bytes
    """What stands before Mcp-Name's value in its line, where there is a likeness."""
    memo: object
    """What the walk remembers of requests with this frame; None at first."""
    verb: bytes
    path: bytes
    query: bytes
    """With its `?`, or empty."""
    http10: bool
    host: bytes
    """The Host value, or empty (possible on HTTP/1.0 only)."""
    kept: list[bytes]
    """The end-to-end fields but those that this proxy writes itself, each as it came, without CRLF."""
    accept_encoding: list[bytes]
    """The Accept-Encoding fields, as lines."""
    has_length: bool
    chunked: bool
    expect: bytes
    origin: str | None
    forwarded: dict[int, bytes]
    """X-Forwarded-For, -Proto and -Host as they came, by field kind."""
    keep_alive: bool
    routing: RoutingHeaders
    """Of the first head with this frame."""
    label: str
    """The Mcp-Method if it may be told to metrics, else `other`."""
    kind: str
    """Whose owner is asked for: task, session or none."""
    teaches: bool
    """True if the answer has to be watched."""
    repeatable: bool
    """True if the request may be sent twice; one without a method of MCP, if it has no body."""
    session_prefix: bytes
    """The name of the Mcp-Session-Id field as it came, with its colon; empty without one."""
    sent: dict[tuple[bytes, bytes, bytes], bytes]
    """The bytes to send on, up to the lines that may differ, by target, host and session."""

    def stop_sharing(self) -> None:
        """No other head can share this frame from now on."""
        self.lines, self.likeness, self.memo = NO_LINES, None, None

    def expect_alike(self, head: bytes) -> None:
        """A second head had this frame: further ones are told by their likeness, if they announce a length.

        Those with anything to be answered or decided beside the usual are read each time.
        """
        if self.has_length and self.keep_alive and not self.http10 and not self.expect:
            lines = head.split(b"\r\n")
            length = free_value(lines, self.length_at, self.length_prefix)
            if self.name_at < 0:
                self.likeness = OneDiffers(lines, length)
            else:
                name = free_value(lines, self.name_at, self.name_prefix)
                self.likeness = TwoDiffer(lines, *sorted((name, length)))
                self.name_start = name[1]

    def alike(self, text: bytes) -> "Alike | None":
        """The request that `text` is, if it is one whole request alike in all but Mcp-Name and Content-Length.

        The syntax of all other lines was validated with the first one. A name is text that needs no further check:
        visible ASCII and blanks.
        """
        likeness = self.likeness
        if isinstance(likeness, TwoDiffer):
            values = likeness.values(text)
            if values is None:
                return None
            name, digits, end = values
            if self.length_at < self.name_at:
                name, digits = digits, name
            value = name.decode("latin-1")
            if not value.isascii() or not value.isprintable() or end > MAX_ROUTING_VALUE:
                return None
            alike: Alike = value.strip(), b"%b%b\r\n" % (self.name_start, name), text[end:]
        else:
            differs = None if likeness is None else likeness.value(text)
            if differs is None:
                return None
            digits, end = differs
            alike = None, b"", text[end:]
        return alike if digits == b"%d" % (len(text) - end) else None

    def let_go(self) -> None:
        """Its head was sent and answered, and no other can share it: the fields are needed no more."""
        self.kept, self.accept_encoding, self.forwarded = NO_LINES, NO_LINES, {}
        self.sent.clear()


Alike: TypeAlias = tuple[str | None, bytes, bytes]
"""Mcp-Name or None, its line with CRLF or empty, and the body."""


class RequestHead(NamedTuple):
    """One request's head, read."""

    frame: Frame
    routing: RoutingHeaders
    length: int
    """Content-Length; 0 when absent."""
    name_line: bytes
    """The Mcp-Name field as it came, with CRLF, or empty."""
    fault: ProxyError | None = None
    """Why the request is to be refused, or None."""


def head_of(frame: Frame, alike: Alike) -> RequestHead:
    """The head of such a request, as if it had been read."""
    name, name_line, body = alike
    return RequestHead(frame, frame.routing if name is None else frame.routing.named(name), len(body), name_line)
