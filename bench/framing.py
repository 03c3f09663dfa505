"""PURE: cuts a byte stream into HTTP/1.1 messages, as cheaply as Python can.

It knows the one framing that the benchmark uses, Content-Length, and refuses any other rather than misread it.
"""

from typing import NamedTuple

END_OF_HEAD = b"\r\n\r\n"
# Far above what the benchmark sends: a stream that reaches it is not the conversation we expect.
MAX_HEAD_BYTES = 65_536


class FramingError(Exception):
    """The stream is not a sequence of messages with Content-Length."""


class Message(NamedTuple):
    """One whole message; the head includes its empty line."""

    head: bytes
    body: bytes


def field(head: bytes, name: bytes) -> bytes | None:
    """The value of the first field called ``name``, which is given in lower case; None if there is none."""
    mark = b"\r\n" + name + b":"
    at = head.lower().find(mark)
    if at < 0:
        return None
    start = at + len(mark)
    return head[start : head.index(b"\r\n", start)].strip(b" \t")


def content_length(head: bytes) -> int:
    """Bytes of the body that follows ``head``; 0 if it names none. Raises FramingError for any other framing."""
    if field(head, b"transfer-encoding") is not None:
        raise FramingError("a message with Transfer-Encoding, where Content-Length is expected")
    value = field(head, b"content-length")
    if value is None:
        return 0
    if not value.isdigit():
        raise FramingError("a Content-Length that is not a number")
    return int(value)


class MessageReader:
    """Gives back the messages of a stream as soon as they are whole, however the stream was cut up on its way."""

    __slots__ = ("_pending",)

    def __init__(self) -> None:
        self._pending = b""

    def feed(self, data: bytes) -> list[Message]:
        """The messages that ``data`` completes, in order. Raises FramingError, after which the stream is lost."""
        if self._pending:
            data = self._pending + data
        messages = []
        start = 0
        while (end_of_head := data.find(END_OF_HEAD, start)) >= 0:
            body_start = end_of_head + len(END_OF_HEAD)
            head = data[start:body_start]
            body_end = body_start + content_length(head)
            if body_end > len(data):
                break
            messages.append(Message(head, data[body_start:body_end]))
            start = body_end
        else:
            if len(data) - start > MAX_HEAD_BYTES:
                raise FramingError(f"more than {MAX_HEAD_BYTES} bytes without the end of a head")
        self._pending = data[start:]
        return messages
