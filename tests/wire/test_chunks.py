"""Where a chunked body ends: as an independent encoder and the parser see it, within limits, however it is cut."""

import pytest
from httptools import HttpParserError, HttpRequestParser
from hypothesis import given, settings
from hypothesis import strategies as st

from proxy.routing.errors import FramingError
from proxy.wire.framing import Chunks
from tests.wire.bodies import BODIES, CUTS, EMPTY_LINE, MADE_UP, SIZES, Body, cut

HEAD = b"POST /mcp HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n"
MAX_SIZE_LINE = 4096
MAX_TRAILERS = 16 * 1024


def walk(pieces: list[bytes], start: int = 0) -> tuple[int, bool]:
    """How many bytes of the pieces belong to the body, and whether it ended. Raises FramingError."""
    cursor, taken = Chunks(), 0
    for piece in pieces:
        if cursor.ended:
            break
        data = b"\n" * start + piece
        end = cursor.end(data, start)
        assert start < end <= len(data)
        assert end == len(data) or cursor.ended
        taken += end - start
    return taken, cursor.ended


CHUNKED = {name: body for name, body in BODIES.items() if body.chunked}


@pytest.mark.parametrize("body", CHUNKED.values(), ids=CHUNKED)
@pytest.mark.parametrize("behind", [b"", b"\r\n", b"0\r\n\r\n", b"GET / HTTP/1.1\r\n\r\n"])
def test_every_way_to_cut_what_was_encoded(body: Body, behind: bytes) -> None:
    wire = body.on_the_wire
    text = wire + behind
    for cuts in [*range(1, len(text) + 1), *([place] for place in range(1, len(text)))]:
        assert walk(cut(text, cuts)) == (len(wire), True)
    for missing in range(1, len(wire)):
        assert walk([wire[:-missing]]) == (len(wire) - missing, False)


@settings(deadline=None, max_examples=200)
@given(MADE_UP.filter(lambda body: body.chunked), st.binary(max_size=10), CUTS, st.integers(0, 5))
def test_whatever_was_encoded_ends_where_the_encoder_ended(
    body: Body, behind: bytes, cuts: int | list[int], start: int
) -> None:
    wire = body.on_the_wire
    assert walk(cut(wire + behind, cuts), start) == (len(wire), True)


def test_an_ended_body_takes_no_more() -> None:
    cursor = Chunks()
    assert cursor.end(b"xx0\r\n\r\nrest", 2) == 7
    assert cursor.ended
    assert cursor.end(b"rest", 0) == 0


class OneBody:
    """Reads one chunked body byte by byte, so that it is known where the parser sees the end."""

    def __init__(self) -> None:
        self.text = b""
        self.complete = False

    def on_body(self, data: bytes) -> None:
        self.text += data

    def on_message_complete(self) -> None:
        self.complete = True

    def end_of(self, wire: bytes) -> int | None:
        """Where the body ends; None: it does not, or is refused before."""
        parser = HttpRequestParser(self)
        parser.feed_data(HEAD)
        for at in range(len(wire)):
            try:
                parser.feed_data(wire[at : at + 1])
            except HttpParserError:
                return None
            if self.complete:
                return at + 1
        return None


SCRAPS = [b"\r\n", b"\r", b"\n", b"0", b"1", b"5", b"a", b";a=b", b';"\n"', b"hello", b"A: b", b" ", b"\t"]
SCRAPS += [b"\r\n0\r\n\r\n", b"5\r\nhello\r\n", b"0" * 16, b"F" * 17, b"5\r\nhello", b"\xff", b"_", b"+"]
ANY = st.one_of(st.lists(st.sampled_from(SCRAPS), max_size=12).map(b"".join), st.binary(max_size=20))


@settings(deadline=None, max_examples=400)
@given(ANY, CUTS)
def test_any_bytes_end_where_the_parser_ends_them_however_they_are_cut(wire: bytes, cuts: int | list[int]) -> None:
    """Or are refused, and by nothing but a FramingError; what only the parser refuses, it refuses before that end."""
    pieces: list[bytes] = cut(wire, cuts)
    found: list[tuple[int, bool] | None] = []
    for way in (cut(wire, len(wire) + 1), pieces):
        try:
            found.append(walk(way))
        except FramingError:
            found.append(None)
    assert found[0] == found[1]
    end = OneBody().end_of(wire)
    if end is not None:
        assert found[0] == (end, True)
        assert wire[:end].endswith(EMPTY_LINE)


@pytest.mark.parametrize("size", SIZES)
def test_zeros_before_a_size_are_no_digits_of_it(size: int) -> None:
    wire = b"0" * 16 + b"5\r\nhello\r\n" + b"0" * 30 + b"\r\n\r\n"
    assert OneBody().end_of(wire) == len(wire)
    assert walk(cut(wire, size)) == (len(wire), True)


@pytest.mark.parametrize("line", [b"5", b"0", b"5;a", b"0;a"])
@pytest.mark.parametrize("size", [*SIZES, 4095, 4096, 4097])
def test_the_longest_line_of_a_size(line: bytes, size: int) -> None:
    """Counted with its CRLF; where it comes in pieces, no more than the limit is kept of it."""
    fill = b"" if b";" in line else b";"
    start = line + fill
    rest = b"hello\r\n0\r\n\r\n" if line.startswith(b"5") else b"\r\n"
    longest = start + b"x" * (MAX_SIZE_LINE - 2 - len(start)) + b"\r\n"
    wire = longest + rest
    assert walk(cut(wire, size)) == (len(wire), True)
    with pytest.raises(FramingError):
        walk(cut(start + b"x" + longest[len(start) :] + rest, size))


@pytest.mark.parametrize("size", [1, 7, 1000, 4096])
def test_a_line_without_end_is_refused_before_more_than_the_limit_is_kept(size: int) -> None:
    for begun, limit in ((b"5;", MAX_SIZE_LINE), (b"0\r\nX: ", MAX_TRAILERS)):
        cursor, fed = Chunks(), len(begun)
        cursor.end(begun, 0)
        with pytest.raises(FramingError):
            while fed <= 2 * limit:
                fed += size
                cursor.end(b"x" * size, 0)
        assert fed <= len(begun) + limit + size


@pytest.mark.parametrize("size", [1, 7, 1000, 10**9])
@pytest.mark.parametrize("count", [1, 2, 100])
def test_the_longest_trailers(size: int, count: int) -> None:
    """Counted together, with the empty line that ends them."""
    whole = MAX_TRAILERS - 2
    lengths = [whole // count] * (count - 1)
    lengths.append(whole - sum(lengths))
    trailers = [b"T: " + b"x" * (length - 5) for length in lengths]
    body = Body([b"hello"], trailers=trailers)
    assert walk(cut(body.on_the_wire, size)) == (len(body.on_the_wire), True)
    with pytest.raises(FramingError):
        walk(cut(Body([b"hello"], trailers=[*trailers[:-1], trailers[-1] + b"x"]).on_the_wire, size))


@pytest.mark.parametrize("digits", [b"5", b"05", b"0000000000000005", b"a", b"A", b"fF"])
def test_sizes_that_are_read(digits: bytes) -> None:
    length = int(digits, 16)
    wire = digits + b"\r\n" + b"\n" * length + b"\r\n0\r\n\r\n"
    assert walk([wire]) == (len(wire), True)


@pytest.mark.parametrize(
    "digits",
    [b"", b";", b"g", b"5g", b"0x5", b"-5", b"+5", b"5_0", b"5 5", b"1" * 17, b"\xb2", b"5.", b"\0"],
)
def test_sizes_that_are_refused(digits: bytes) -> None:
    for wire in (digits + b"\r\nhello\r\n0\r\n\r\n", b"5\r\nhello\r\n" + digits + b"\r\n\r\n"):
        for size in SIZES:
            with pytest.raises(FramingError):
                walk(cut(wire, size))


def test_chunks_of_any_size_are_counted_without_being_kept() -> None:
    cursor, piece = Chunks(), b"\n" * 2**20
    cursor.end(b"fffffffffffffff\r\n", 0)
    for _ in range(50):
        assert cursor.end(piece, 0) == len(piece)
    assert not cursor.ended
