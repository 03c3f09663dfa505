"""What a backend is sent of a request's head: as it came, but for what this proxy says itself."""

from typing import NamedTuple

from proxy.routing import headers as fields
from proxy.wire.request_frame import Frame, RequestHead

_MAX_SENT = 8  # heads kept ready per frame: with `host: backend` there is one for each backend


def request_for_backend(
    head: RequestHead,
    *,
    target: bytes,
    host: bytes,
    session: bytes,
    forwarded: "Forwarded",
    whole: int | None = None,
) -> bytes:
    """The head to send, with `target`, `host` and `session` (the Mcp-Session-Id) as the backend is to see them.

    A body is announced as it came, with its length or chunked; or, `whole`, as so many bytes at hand. An answer that
    has to be watched is asked for uncoded.
    """
    frame = head.frame
    start = start_for_backend(frame, target=target, host=host, session=session, forwarded=forwarded)
    if whole is not None:
        return b"%b%bContent-Length: %d\r\n\r\n" % (start, head.name_line, whole)
    if frame.has_length and not frame.expect:
        return b"%b%bContent-Length: %d\r\n\r\n" % (start, head.name_line, head.length)
    end = [start, head.name_line]
    if frame.expect:
        end.append(b"Expect: %b\r\n" % frame.expect)
    if frame.chunked:
        end.append(b"Transfer-Encoding: chunked\r\n")
    elif frame.has_length:
        end.append(b"Content-Length: %d\r\n" % head.length)
    return b"".join([*end, b"\r\n"])


def start_for_backend(frame: Frame, *, target: bytes, host: bytes, session: bytes, forwarded: "Forwarded") -> bytes:
    """The same up to the lines that may differ from one head with this frame to the next."""
    start = frame.sent.get((target, host, session))
    if start is None:
        lines = [b"%b %b HTTP/1.1\r\nHost: %b" % (frame.verb, target, host), *frame.kept, *forwarded.fields(frame)]
        if frame.session_prefix:
            lines.append(b"%b %b" % (frame.session_prefix, session))
        lines += [b"Accept-Encoding: identity"] if frame.teaches else frame.accept_encoding
        if len(frame.sent) >= _MAX_SENT:
            frame.sent.clear()
        start = frame.sent[target, host, session] = b"\r\n".join([*lines, b""])
    return start


class Forwarded(NamedTuple):
    """Who forwards: the client's address, whether its word on forwarding counts, and how it came in."""

    peer: bytes
    trusted: bool
    scheme: bytes

    def fields(self, frame: Frame) -> list[bytes]:
        """X-Forwarded-For, -Proto and -Host: a trusted proxy's are kept and appended to, anyone else's replaced."""
        told = frame.forwarded if self.trusted else {}
        seen = told.get(fields.FORWARDED_FOR)
        return [
            b"X-Forwarded-For: " + (self.peer if not seen else seen + b", " + self.peer),
            b"X-Forwarded-Proto: " + told.get(fields.FORWARDED_PROTO, self.scheme),
            b"X-Forwarded-Host: " + told.get(fields.FORWARDED_HOST, frame.host),
        ]
