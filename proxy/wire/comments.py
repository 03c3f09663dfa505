"""Where the proxy's own comments may stand in an event stream that passes, so that no event changes.

Rules (WHATWG HTML, 9.2.5 and 9.2.6):
* A comment is a whole line. It stands at the beginning or behind an empty line, so that no part of an event has left
  that is still to be completed; lines end in LF, CRLF or CR.
* No empty line follows it: some clients take one for an event, if there was an `id` before.
* The CR of a CRLF may come alone. Behind an LF and such a CR no comment stands, since the LF may be on its way; behind
  two CR it does, and an LF that follows belongs to the last of them, and goes.
* A byte order mark stands at the very beginning or nowhere: behind a comment it would spoil the first line, and goes.
"""

COMMENT = b": keep-alive\n"

_BOM = b"\xef\xbb\xbf"
_BORDERS = (b"\n\n", b"\n\r\n", b"\r\r\n", b"\r\r")


class Border:
    """One event stream that passes."""

    __slots__ = ("_first", "_tail", "commented")

    def __init__(self) -> None:
        self._tail = b""  # the last bytes that passed; none yet
        self._first = b""  # the first bytes, while they may be those of a mark
        self.commented = False
        """True if a comment was the last to pass."""

    def passes(self, data: bytes) -> bytes:
        """What is to be sent of the next bytes: all of them, or all but the few that a comment has made wrong."""
        if self.commented and data:
            data = self._behind_comment(data)
        if data:
            self._tail = data[-3:] if len(data) >= 3 else (self._tail + data)[-3:]
        return data

    def ends(self) -> bytes:
        """What is left to be sent at the end."""
        return self._first

    def take_comment(self) -> bytes:
        """The comment to send now; empty where none may stand."""
        if self._first or (self._tail and not self._tail.endswith(_BORDERS)):
            return b""
        self.commented = True
        return COMMENT

    def _behind_comment(self, data: bytes) -> bytes:
        if not self._tail:
            data = self._first + data
            if len(data) < len(_BOM) and _BOM.startswith(data):
                self._first = data
                return b""
            self._first = b""
            if data.startswith(_BOM):
                data = data[len(_BOM) :]
                self._tail = b"\n\n"  # as good as an empty line
        elif self._tail.endswith(b"\r") and data.startswith(b"\n"):
            data = data[1:]
            self._tail = b"\r\r\n"
        self.commented = False
        return data
