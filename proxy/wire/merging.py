"""Merges the event streams of several backends that all serve one subscription.

Rules (MCP 2026-07-28, Subscriptions; WHATWG HTML, 9.2.6):
* Whole events leave as they came, never two mixed; a comment between events leaves as a whole line.
* One acknowledgement leaves, before any other message: once every backend has acknowledged, refused or failed, or the
  time for that is over. It names what any of them agreed to. What came meanwhile follows; later ones are dropped.
* A message that answers the request ends the whole, and leaves last. An error that comes instead of a backend's
  acknowledgement is a refusal of that one alone, as long as another may serve.
* A backend that ends after its acknowledgement has broken a promise: the whole is broken, so that the client listens
  again. Of one that had not acknowledged, nothing was promised: the others go on.
"""

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from enum import Enum
from typing import Any, NamedTuple

from proxy.routing.ownership import strict_json

EVENT_LIMIT = 1024 * 1024
"""Bytes of one event; a backend that sends a larger one counts as broken. A task's result may travel in one."""
HELD_LIMIT = 64 * 1024
"""Bytes of one backend's events that wait for the acknowledgement before no more should be read from it."""

_ACKNOWLEDGED = "notifications/subscriptions/acknowledged"
_LINE_BREAK = re.compile(rb"[\r\n]")
_LINE_ENDS = re.compile(rb"\r\n|\n|\r")
_BOM = b"\xef\xbb\xbf"
_CR, _LF, _COLON = b"\r\n:"
_TELLING = (b"acknowledged", b'"result"', b'"error"', b"\\u")  # one is in every message that is more than an event


class EventSplitter:
    """Cuts a text/event-stream into pieces that may stand between those of another: events, comments, empty lines."""

    def __init__(self) -> None:
        self.oversized = False
        """True once an event was over the limit: nothing more can be read."""
        self._text = bytearray()  # the event that is not complete yet
        self._line = 0  # where its last line begins
        self._seen = 0  # up to where no line break is to be found
        self._begun = False
        self._after_cr = False  # the last piece ended in a CR: a LF belongs to it

    def feed(self, data: bytes) -> list[bytes]:
        """The pieces that became complete."""
        if self.oversized:
            return []
        text, pieces = self._text, []
        if self._after_cr and data:
            self._after_cr = False
            if data[0] == _LF:
                data = data[1:]
        text += data
        if not self._begun:
            if len(text) < len(_BOM) and _BOM.startswith(text):
                return []
            self._begun = True
            if text.startswith(_BOM):
                del text[: len(_BOM)]
        while not self.oversized and (found := _LINE_BREAK.search(text, self._seen)) is not None:
            start, end = found.span()
            is_piece = start == self._line or (self._line == 0 and text[0] == _COLON)
            if text[start] == _CR:
                if end < len(text):
                    end += text[end] == _LF
                elif is_piece:
                    self._after_cr = True  # the piece need not wait for what may never come
                else:
                    self._seen = start
                    break
            if not is_piece:
                self._line = self._seen = end
                continue
            self.oversized = end > EVENT_LIMIT
            if not self.oversized:
                pieces.append(bytes(text[:end]))
            del text[:end]
            self._line = self._seen = 0
        else:
            self._seen = len(text)
        if len(text) > EVENT_LIMIT:
            self.oversized = True
        return pieces


class Ending(Enum):
    """How a merged stream ends."""

    ANSWERED = "answered"
    """The request's answer has left last."""
    BROKEN = "broken"
    """There is no answer: the end must not look like one."""


class _Part:
    """One backend's stream."""

    __slots__ = ("acknowledged", "held", "splitter")

    def __init__(self) -> None:
        self.splitter = EventSplitter()
        self.acknowledged = False
        self.held = 0  # bytes


class _Acknowledgement(NamedTuple):
    event: bytes
    message: Mapping[str, Any]
    params: Mapping[str, Any]


class Merger:
    """The merged stream. Its parts go by numbers, in the order of their backends; methods return what leaves now.

    `parts`: those that are being opened, whose acknowledgements are awaited. One that comes later is just `opened`.
    """

    def __init__(self, parts: Iterable[int]) -> None:
        self.ending: Ending | None = None
        """How the whole has ended: behind what was returned last, nothing more leaves."""
        self.refusers: set[int] = set()
        """Parts that refused in their stream."""
        self._awaited = set(parts)
        self._open: dict[int, _Part] = {}
        self._begun = False
        self._acknowledgements: dict[int, _Acknowledgement] = {}
        self._acknowledged = False
        self._released = False  # nothing is held any more
        self._held: list[bytes] = []
        self._refusals: list[bytes] = []

    def opened(self, part: int) -> None:
        """A backend answers with an event stream."""
        self._begun = True
        self._open[part] = _Part()

    def absent(self, part: int) -> bytes:
        """A backend cannot be reached, or answers with something else."""
        self._awaited.discard(part)
        return self._look()

    def feed(self, part: int, data: bytes) -> bytes:
        """Some bytes of an open stream came."""
        one = self._open.get(part)
        if one is None or self.ending is not None:
            return b""
        out = []
        for piece in one.splitter.feed(data):
            out.append(self._take(part, one, piece))
            if part not in self._open or self.ending is not None:
                return b"".join(out)
        if one.splitter.oversized:
            out.append(self.ended(part))
        return b"".join(out)

    def ended(self, part: int) -> bytes:
        """An open stream has ended or broken."""
        one = self._open.get(part)
        if one is None or self.ending is not None:
            return b""
        if not one.acknowledged:
            return self._leave(part)
        self.ending = Ending.BROKEN
        return self._release()

    def expire(self) -> bytes:
        """The time for acknowledgements is over."""
        self._awaited.clear()
        return self._look()

    def is_open(self, part: int) -> bool:
        """True if more of this part may leave."""
        return part in self._open and self.ending is None

    def is_full(self, part: int) -> bool:
        """True if no more should be read from this part for now."""
        one = self._open.get(part)
        return one is not None and not self._released and one.held > HELD_LIMIT

    # ----
    def _take(self, part: int, one: _Part, piece: bytes) -> bytes:
        data = _data(piece)
        if data is None:
            return piece
        message = _telling(data)
        if message.get("method") == _ACKNOWLEDGED and isinstance(message.get("params"), dict):
            one.acknowledged = True
            self._awaited.discard(part)
            if self._acknowledged:
                return b""
            self._acknowledgements[part] = _Acknowledgement(piece, message, message["params"])
            return self._release() if self._released else self._look()
        if "method" not in message and ("result" in message or "error" in message):
            if "error" in message and not one.acknowledged:
                self.refusers.add(part)
                self._refusals.append(piece)
                return self._leave(part)
            self.ending = Ending.ANSWERED
            return self._release() + piece
        if self._released:
            return piece
        self._held.append(piece)
        one.held += len(piece)
        return b""

    def _leave(self, part: int) -> bytes:
        """One that has promised nothing is gone."""
        del self._open[part]
        return self.absent(part)

    def _look(self) -> bytes:
        """Goes on if nothing has to be awaited any more."""
        if self._awaited or not self._begun or self.ending is not None:
            return b""
        out = self._release()
        if not self._open:
            self.ending = Ending.ANSWERED if self._refusals else Ending.BROKEN
            out += b"".join(self._refusals[:1])
        return out

    def _release(self) -> bytes:
        """What was held, behind the acknowledgement if there is one."""
        self._released = True
        held, self._held = self._held, []
        if not self._acknowledgements or self._acknowledged:
            return b"".join(held)
        self._acknowledged = True
        first = _united([self._acknowledgements[part] for part in sorted(self._acknowledgements)])
        self._acknowledgements.clear()
        return first + b"".join(held)


def _data(piece: bytes) -> bytes | None:
    """An event's data, or None where there is none."""
    lines = [line[5:].removeprefix(b" ") for line in _LINE_ENDS.split(piece) if line.startswith(b"data:")]
    return b"\n".join(lines) if lines else None


def _telling(data: bytes) -> dict[str, Any]:
    """The message, if it may be an acknowledgement or an answer; else an empty one."""
    if not any(word in data for word in _TELLING):
        return {}
    try:
        message = strict_json(data)
    except ValueError:
        return {}
    return message if isinstance(message, dict) else {}


def _united(acknowledgements: Sequence[_Acknowledgement]) -> bytes:
    """The event that acknowledges what any of them does: as the first came, if that says it all."""
    first = acknowledgements[0]
    if len(acknowledgements) == 1:
        return first.event
    agreed: dict[str, Any] = {}
    try:
        for one in acknowledgements:
            notifications = one.params.get("notifications")
            if isinstance(notifications, dict):
                for kind, value in notifications.items():
                    agreed[kind] = _joined(agreed[kind], value) if kind in agreed else value
        params = {**first.params, "notifications": agreed}
        if params == first.params:
            return first.event
        text = json.dumps({**first.message, "params": params}, separators=(",", ":"), allow_nan=False)
    except (ValueError, RecursionError):  # a number that JSON cannot write, or nested too deep
        return first.event
    return b"event: message\ndata: " + text.encode() + b"\n\n"


def _joined(known: object, more: object) -> object:
    """What two backends agree to: switches that either sets, lists without repeats; else the first one's word."""
    if isinstance(known, bool) and isinstance(more, bool):
        return known or more
    if isinstance(known, list) and isinstance(more, list):
        by_text: dict[str, object] = {}
        for item in (*known, *more):
            by_text.setdefault(json.dumps(item, sort_keys=True), item)
        return list(by_text.values())
    return known
