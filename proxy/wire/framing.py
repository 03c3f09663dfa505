"""Where a body ends in the bytes that follow its head, so that each message is fed to its parser alone.

The parser (httptools) checks the framing and hands out the content, but does not tell where in its input a message
ended; what it is fed must end there. So the ends are found here as well, and a parser that sees another end than the
cursor is a message that two readers frame differently. Three kinds of body (RFC 9112, 6.3): of known length, chunked,
until close.
"""

from typing import Protocol

from proxy.routing.errors import FramingError

_MAX_SIZE_LINE = 4096  # bytes: a size of 16 digits and extensions nobody uses
_MAX_TRAILERS = 16 * 1024  # bytes
_PLAIN_SIZE = 10  # bytes: a size of up to 8 digits with its CRLF
_HEX = frozenset(b"0123456789abcdefABCDEF")


def as_chunk(data: bytes) -> bytes:
    """These bytes, not none, as one chunk."""
    return b"%x\r\n%b\r\n" % (len(data), data)


class BodyCursor(Protocol):
    """Walks over a body as its bytes come."""

    ended: bool
    """True once the body's last byte was passed."""

    def end(self, data: bytes, start: int) -> int:
        """Up to where `data`, from `start` on, belongs to this body. Raises FramingError."""
        ...

    def content_of(self, chunk: bytes) -> bytes | None:
        """The content, if these bytes are one whole chunk without extensions, and not the last; they are passed then.

        Else nothing has happened. Judges what the parser would: such bytes need not be shown to it.
        """
        ...


def cursor_for(length: int | None, *, chunked: bool) -> BodyCursor:
    """The cursor of a body with this framing; neither length nor chunked: until close."""
    if chunked:
        return Chunks()
    return UntilClose() if length is None else Counted(length)


class Counted:
    """A body of so many bytes."""

    __slots__ = ("_left", "ended")

    def __init__(self, length: int) -> None:
        self._left = length
        self.ended = length == 0

    def end(self, data: bytes, start: int) -> int:
        taken = min(self._left, len(data) - start)
        self._left -= taken
        self.ended = self._left == 0
        return start + taken

    def content_of(self, chunk: bytes) -> None:
        return None


class UntilClose:
    """A body that its connection's end ends."""

    __slots__ = ()

    ended = False

    def end(self, data: bytes, start: int) -> int:
        return len(data)

    def content_of(self, chunk: bytes) -> None:
        return None


class Chunks:
    """A chunked body: `size [;extensions] CRLF data CRLF` again and again, a chunk of size 0, trailers, an empty line.

    Only borders are looked for; the parser judges what stands between them. A line may come in several pieces.
    """

    __slots__ = ("_in_trailers", "_left", "_line", "_trailers", "ended")

    def __init__(self) -> None:
        self.ended = False
        self._left = 0  # bytes of the current chunk and the CRLF behind it
        self._line = b""  # the beginning of a line that has not come whole
        self._in_trailers = False
        self._trailers = 0  # bytes of them so far

    def content_of(self, chunk: bytes) -> bytes | None:
        if self._left or self._line or self._in_trailers:
            return None
        border = chunk.find(b"\r\n", 1, _PLAIN_SIZE)
        size = chunk[:border]
        if size == b"0" or size != b"%x" % (len(chunk) - border - 4) or not chunk.endswith(b"\r\n"):
            return None
        return chunk[border + 2 : -2]

    def end(self, data: bytes, start: int) -> int:
        at, size = start, len(data)
        while at < size and not self.ended:
            if self._left:
                taken = min(self._left, size - at)
                self._left -= taken
                at += taken
                continue
            found = data.find(b"\n", at)
            stop = size if found < 0 else found + 1
            line = self._line + data[at:stop]
            at = stop
            limit = _MAX_TRAILERS if self._in_trailers else _MAX_SIZE_LINE
            if len(line) + self._trailers > limit:
                raise FramingError("a chunk's extensions or the trailers are too long")
            if found < 0:
                self._line = line
            else:
                self._line = b""
                self._end_line(line)
        return at

    def _end_line(self, line: bytes) -> None:
        if self._in_trailers:
            self._trailers += len(line)
            self.ended = line == b"\r\n"
            return
        digits = line.partition(b";")[0].strip(b"\r\n\t ")
        if not digits or len(digits.lstrip(b"0")) > 16 or not _HEX.issuperset(digits):
            raise FramingError("a chunk's size is not a hexadecimal number")
        length = int(digits, 16)
        if length:
            self._left = length + 2
        else:
            self._in_trailers = True
