"""Where a body ends in the bytes that follow its head, so that each message is fed to its parser alone.

A body of known length ends by counting. A chunked one always ends in an empty line (`0 CRLF CRLF`, or behind trailers),
so it is cut behind every CRLF CRLF, also one that straddles two reads; the parser tells which of those was the end. So
is a body until close, which ends nowhere.
"""

_EMPTY_LINE = b"\r\n\r\n"


class BodyCursor:
    """Cuts a body out of a stream of bytes. `length` in bytes; None for a body that its parser must end."""

    __slots__ = ("_left", "_tail")

    def __init__(self, length: int | None) -> None:
        self._left = length
        self._tail = b""  # the last bytes of the piece before: an empty line may straddle

    @property
    def ended(self) -> bool | None:
        """Whether the body's length is used up; None where only the parser knows."""
        return None if self._left is None else self._left == 0

    def take(self, data: bytes) -> tuple[bytes, bytes]:
        """(what certainly belongs to this body, what may not)."""
        left = self._left
        if left is not None:
            if len(data) > left:
                self._left = 0
                return data[:left], data[left:]
            self._left = left - len(data)
            return data, b""
        seen = self._tail + data
        found = seen.find(_EMPTY_LINE)
        cut = len(data) if found < 0 else found + len(_EMPTY_LINE) - len(self._tail)
        self._tail = (self._tail + data[:cut])[-3:]
        return data[:cut], data[cut:]
