"""What readers of request and response heads share: limits, bounded memos, how numbers and lists are read."""

import errno
from typing import TypeVar

MAX_HEAD = 64 * 1024  # bytes
MAX_FIELDS = 200
MAX_ROUTING_VALUE = 8 * 1024  # bytes of one Mcp-* value
OWS = b" \t"
MANY_PIECES = 512
"""Chunks in one read from which on the connection rests for a turn of the loop: libuv hands out up to 8 MB a turn, and
tiny chunks take a microsecond each, in which all other connections wait."""
EXHAUSTED = frozenset({errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM})
"""What the system says when it has no descriptor or memory for another connection."""
_MEMO_LIMIT = 4096  # entries of each memo: the other side chooses the keys
_LONGEST_KEY = 100  # bytes
_MAX_DIGITS = 19  # of a Content-Length: httptools reads 64 bits

V = TypeVar("V")


def remember(memo: dict[bytes, V], key: bytes, value: V) -> V:
    """Puts a value into a memo that is emptied when it is full, and returns it. Long keys are not remembered."""
    if len(key) <= _LONGEST_KEY:
        if len(memo) >= _MEMO_LIMIT:
            memo.clear()
        memo[key] = value
    return value


def content_length(digits: bytes) -> int | None:
    """The number that these digits, trimmed, stand for; None for anything else."""
    return int(digits) if len(digits) <= _MAX_DIGITS and digits.isdigit() else None


def tokens_of(value: bytes) -> set[bytes]:
    """The tokens of a list such as Connection's, in lower case."""
    return {token.strip(OWS) for token in value.lower().split(b",")}
