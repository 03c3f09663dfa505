"""Reads a watched answer as it passes, JSON or server-sent events, across the borders of its pieces.

A reader is fed the pieces of a body and says two things: which bytes may leave now, and which JSON-RPC messages became
complete. Rules:
* Of an incomplete message everything from the last `}` received is held back, in JSON until other text follows, in an
  event stream until the empty line; so no client can have the whole message before this reader has handed it over.
* A JSON body is one message, complete at its end. In an event stream (WHATWG HTML, 9.2.6) a message is an event's
  `data` lines, complete at the empty line; lines end in LF, CRLF or CR.
* A message over the limit is not read: its bytes pass, `oversized` counts it if its beginning names a task.
"""

import re
from typing import Protocol

MESSAGE_LIMIT = 64 * 1024  # bytes of one message; a task's creation takes some 350, ids of 3 KB were seen
# CRLF, LF or CR, and never only the CR of a CRLF. Beginning with a set makes the search several times as fast.
_LINE_END = rb"[\r\n](?>(?<=\r)\n?|)"
_EVENT_END = re.compile(_LINE_END + rb"(?>\r\n|\n|\r)")
_LINE_ENDS = re.compile(_LINE_END)
_BOM = b"\xef\xbb\xbf"


class AnswerReader(Protocol):
    """Reads one answer's body. Both methods return (bytes that may leave now, messages that became complete)."""

    oversized: int
    """Messages that were too large to read and whose beginning names a task."""

    def feed(self, data: bytes) -> tuple[bytes, list[bytes]]: ...

    def passes(self, data: bytes) -> bool:
        """True if a piece that holds no message of interest need not be fed, since it begins and ends between two."""
        ...

    def end(self) -> tuple[bytes, list[bytes]]:
        """The body is complete: what is left leaves, and a JSON body is a message."""
        ...


def _safe_length(text: bytes) -> int:
    """How many bytes of an incomplete message may leave: up to the last `}` unless other text follows it."""
    last = text.rfind(b"}")
    return len(text) if last < 0 or text[last + 1 :].strip() else last


class JsonReader:
    """Reads an application/json body."""

    __slots__ = ("_sent", "_skipping", "_text", "oversized")

    def __init__(self) -> None:
        self.oversized = 0
        self._text = b""
        self._sent = 0  # bytes of _text that have left
        self._skipping = False

    def feed(self, data: bytes) -> tuple[bytes, list[bytes]]:
        if self._skipping:
            return data, []
        text = self._text + data if self._text else data
        if len(text) > MESSAGE_LIMIT:
            self._skipping = True
            self.oversized += b'"taskId"' in text
            self._text = b""
            return text[self._sent :], []
        safe = max(_safe_length(text), self._sent)
        out, self._text, self._sent = text[self._sent : safe], text, safe
        return out, []

    def passes(self, data: bytes) -> bool:
        return False

    def end(self) -> tuple[bytes, list[bytes]]:
        text, self._text = self._text, b""
        return text[self._sent :], [text] if text else []


class EventReader:
    """Reads a text/event-stream body."""

    __slots__ = ("_begun", "_sent", "_skipping", "_text", "oversized")

    def __init__(self) -> None:
        self.oversized = 0
        self._text = b""  # the event that is not complete yet; of an oversized one, only its last bytes
        self._sent = 0  # bytes of _text that have left
        self._skipping = False
        self._begun = False

    def feed(self, data: bytes) -> tuple[bytes, list[bytes]]:
        text, sent = self._text + data, self._sent
        scanned = max(0, len(self._text) - 3)  # an end may straddle the pieces
        messages: list[bytes] = []
        start = 0
        while (end := _EVENT_END.search(text, max(start, scanned))) is not None:
            if self._skipping:
                self._skipping = False
                self._begun = True
            elif (message := self._message(text[start : end.end()])) is not None:
                messages.append(message)
            start = end.end()
        rest = text[start:]
        if not self._skipping and len(rest) > MESSAGE_LIMIT:
            self._skipping = True
            self.oversized += b'"taskId"' in rest
        if self._skipping:
            out, self._text = text[sent:], rest[-3:]
            self._sent = len(self._text)
        else:
            last = rest.rfind(b"}")  # what stands behind it is of no use to a client before the empty line
            safe = max(len(rest) if last < 0 else last, sent - start)
            out, self._text, self._sent = text[sent : start + safe], rest, safe
        return out, messages

    def passes(self, data: bytes) -> bool:
        return self._begun and not self._text and not self._skipping and data.endswith((b"\n\n", b"\r\n\r\n"))

    def end(self) -> tuple[bytes, list[bytes]]:
        """What is left leaves; an event without its empty line is none (WHATWG HTML, 9.2.6)."""
        text, self._text = self._text, b""
        return text[self._sent :], []

    def _message(self, event: bytes) -> bytes | None:
        if not self._begun:
            self._begun = True
            event = event.removeprefix(_BOM)
        if len(event) > MESSAGE_LIMIT:
            self.oversized += b'"taskId"' in event
            return None
        lines = [line[5:].removeprefix(b" ") for line in _LINE_ENDS.split(event) if line.startswith(b"data:")]
        return b"\n".join(lines) if lines else None


def reader_for(content_type: bytes) -> AnswerReader | None:
    """The reader for a body of this media type (lower case, without parameters), or None: it holds no messages."""
    if content_type == b"application/json":
        return JsonReader()
    if content_type == b"text/event-stream":
        return EventReader()
    return None
