"""Limits that heads of requests and responses share, and the bounded memos of their readers."""

from typing import TypeVar

MAX_HEAD = 64 * 1024  # bytes
MAX_FIELDS = 200
OWS = b" \t"
_MEMO_LIMIT = 4096  # entries of each memo: the other side chooses the keys

K = TypeVar("K")
V = TypeVar("V")


def remember(memo: dict[K, V], key: K, value: V) -> V:
    """Puts a value into a memo that is emptied when it is full, and returns it."""
    if len(memo) >= _MEMO_LIMIT:
        memo.clear()
    memo[key] = value
    return value
