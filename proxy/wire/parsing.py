"""What httptools tells of a message is kept in two lists.

So nothing calls back into Python while it parses, and no circle of references is left of a connection, which only the
garbage collector would free.
"""

from collections.abc import Callable
from typing import NamedTuple

DUE = (None, None)
"""The marks of a message that has not begun: one for its end, one for the end of its head."""
ONLY_END = 1
"""How many are left when the head has passed."""


class Callbacks(NamedTuple):
    """What a parser calls."""

    on_headers_complete: Callable[[], None]
    on_body: Callable[[bytes], None]
    on_message_complete: Callable[[], None]


def into(marks: list[None], pieces: list[bytes]) -> Callbacks:
    """For a parser that takes a mark off at the end of a head and of a message, and adds content to the pieces.

    A message too many finds no mark to take, which the parser reports as an error.
    """
    passed = marks.pop
    return Callbacks(passed, pieces.append, passed)


def joined(pieces: list[bytes]) -> bytes:
    """All pieces as one; none are left."""
    data = pieces[0] if len(pieces) == 1 else b"".join(pieces)
    pieces.clear()
    return data
