"""Heads that are byte for byte like one before, but for one or two values, are told by comparing, not by reading.

What was found out about the first head then holds for the next one too: its syntax, its framing, where it goes. Only
the values that differ are still to be judged. A head is anything up to its empty line; a value anything up to CRLF.
"""

from collections.abc import Sequence
from typing import TypeAlias

Free: TypeAlias = tuple[int, bytes]
"""A value that may differ: the number of its line, and what stands before it there."""


def free_value(lines: Sequence[bytes], at: int, name: bytes) -> Free:
    """The value of the field in that line, which begins with `name`; blanks before it stay as they are."""
    return at, lines[at][: len(lines[at]) - len(lines[at][len(name) :].lstrip(b" \t"))]


class OneDiffers:
    """Heads with these lines, as split at CRLF, where one value may differ."""

    __slots__ = ("_after", "_before", "_skip", "_tail")

    def __init__(self, lines: Sequence[bytes], free: Free) -> None:
        at, prefix = free
        self._before = b"\r\n".join([*lines[:at], prefix])
        self._after = b"\r\n".join([b"", *lines[at + 1 :]])
        self._skip, self._tail = len(self._before), len(self._after)

    def value(self, text: bytes) -> tuple[bytes, int] | None:
        """That of the head that `text` begins with, and where the head ends; None if it differs in more."""
        if text.startswith(self._before):
            stop = text.find(b"\r\n", self._skip)
            if text.startswith(self._after, stop):
                return text[self._skip : stop], stop + self._tail
        return None


class TwoDiffer:
    """The same where two values may differ, given in the order of their lines."""

    __slots__ = ("_after", "_before", "_between", "_skip", "_step", "_tail")

    def __init__(self, lines: Sequence[bytes], first: Free, second: Free) -> None:
        at, prefix = first
        last, last_prefix = second
        self._before = b"\r\n".join([*lines[:at], prefix])
        self._between = b"\r\n".join([b"", *lines[at + 1 : last], last_prefix])
        self._after = b"\r\n".join([b"", *lines[last + 1 :]])
        self._skip, self._step, self._tail = len(self._before), len(self._between), len(self._after)

    def values(self, text: bytes) -> tuple[bytes, bytes, int] | None:
        """Those of the head that `text` begins with, and where the head ends; None if it differs in more."""
        if not text.startswith(self._before):
            return None
        stop = text.find(b"\r\n", self._skip)
        if not text.startswith(self._between, stop):
            return None
        first, start = text[self._skip : stop], stop + self._step
        stop = text.find(b"\r\n", start)
        if not text.startswith(self._after, stop):
            return None
        return first, text[start:stop], stop + self._tail
