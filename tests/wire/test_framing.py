"""A body is cut out of what follows its head exactly, together with the parser, wherever the bytes are cut."""

from collections.abc import Iterable

import pytest
from httptools import HttpParserError, HttpRequestParser, HttpResponseParser
from hypothesis import given, settings
from hypothesis import strategies as st

from proxy.routing.errors import FramingError
from proxy.wire.framing import BodyCursor, Counted, UntilClose, cursor_for
from tests.wire.bodies import BODIES, CUTS, EMPTY_LINE, MADE_UP, SIZES, TEXTS, TRICKY, Body, cut

CHUNKED_HEAD = b"POST /mcp HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n"
NEXT = b"POST /next HTTP/1.1\r\nHost: x\r\nContent-Le"


class Receiver:
    """Reads requests from pieces of a connection as the proxy does: each message's bytes to the parser alone."""

    def __init__(self, bodies: Iterable[Body]) -> None:
        self.texts: list[bytes] = []
        self._bodies = iter(bodies)
        self._parser = HttpRequestParser(self)
        self._input = b""
        self._at = 0
        self._body: BodyCursor | None = None
        self._text = b""
        self._complete = False

    def on_body(self, data: bytes) -> None:
        assert not self._complete
        self._text += data

    def on_message_complete(self) -> None:
        assert not self._complete  # never two messages in one call
        self._complete = True

    def receive(self, data: bytes) -> None:
        """Raises HttpParserError, FramingError."""
        self._input, self._at = self._input[self._at :] + data, 0
        while self._at < len(self._input):
            start = self._at
            if self._body is None:
                end = self._input.find(EMPTY_LINE, start) + 4
                if end < 4:
                    return
                self._body = next(self._bodies).cursor()
            else:
                end = self._body.end(self._input, start)
                assert start < end <= len(self._input)
            self._at = end
            self._parser.feed_data(self._input[start:end])
            if self._body.ended is not self._complete:
                raise FramingError("parser and cursor see different ends")
            if self._complete:
                self.texts.append(self._text)
                self._text, self._body, self._complete = b"", None, False

    @property
    def left(self) -> bytes:
        """What belongs to no message yet."""
        return self._input[self._at :]


def requests(bodies: Iterable[Body]) -> bytes:
    return b"".join(
        b"POST /mcp HTTP/1.1\r\nHost: x\r\n" + body.framing + EMPTY_LINE + body.on_the_wire for body in bodies
    )


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("body", BODIES.values(), ids=BODIES)
def test_a_body_and_what_follows_it(body: Body, size: int) -> None:
    """Nothing behind the body reaches its parser, and nothing of it is left out."""
    receiver = Receiver([body])
    for piece in cut(requests([body]) + NEXT, size):
        receiver.receive(piece)
    assert receiver.texts == [body.text]
    assert receiver.left == NEXT


@pytest.mark.parametrize("body", BODIES.values(), ids=BODIES)
def test_a_body_in_pieces_of_every_size_and_cut_in_two_at_every_place(body: Body) -> None:
    text = requests([body]) + NEXT
    for cuts in [*range(1, len(text)), *([place] for place in range(1, len(text)))]:
        receiver = Receiver([body])
        for piece in cut(text, cuts):
            receiver.receive(piece)
        assert (receiver.texts, receiver.left) == ([body.text], NEXT)


@pytest.mark.parametrize("size", SIZES)
def test_pipelined_messages_of_every_kind(size: int) -> None:
    bodies = [*BODIES.values(), *reversed(BODIES.values())]
    receiver = Receiver(bodies)
    for piece in cut(requests(bodies), size):
        receiver.receive(piece)
    assert receiver.texts == [body.text for body in bodies]
    assert receiver.left == b""


@settings(deadline=None, max_examples=200)
@given(st.lists(MADE_UP, min_size=1, max_size=3), CUTS)
def test_any_messages_cut_anywhere(bodies: list[Body], cuts: int | list[int]) -> None:
    receiver = Receiver(bodies)
    for piece in cut(requests(bodies) + NEXT, cuts):
        receiver.receive(piece)
    assert receiver.texts == [body.text for body in bodies]
    assert receiver.left == NEXT


@pytest.mark.parametrize(
    ("length", "chunked", "kind", "ended"),
    [
        (None, False, "UntilClose", False),
        (0, False, "Counted", True),
        (5, False, "Counted", False),
        (None, True, "Chunks", False),
        (0, True, "Chunks", False),  # a request's length is 0 where the field is absent
    ],
)
def test_the_cursor_of_a_framing(length: int | None, chunked: bool, kind: str, ended: bool) -> None:
    cursor = cursor_for(length, chunked=chunked)
    assert (type(cursor).__name__, cursor.ended) == (kind, ended)


@settings(deadline=None, max_examples=200)
@given(TEXTS, CUTS, st.integers(0, 5))
def test_a_body_until_close_takes_everything_and_never_ends(text: bytes, cuts: int | list[int], start: int) -> None:
    cursor = UntilClose()
    for piece in cut(text, cuts):
        data = b"x" * start + piece
        assert cursor.end(data, start) == len(data)
        assert cursor.ended is False


@pytest.mark.parametrize("length", [0, 1, 5, 2**40])
@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("start", [0, 3])
def test_a_body_of_known_length_is_counted(length: int, size: int, start: int) -> None:
    cursor, text, taken, left = Counted(length), b"hello\r\n\r\nworld", b"", b""
    assert cursor.ended is (length == 0)
    for piece in cut(text, size):
        data = b"y" * start + piece
        end = cursor.end(data, start)
        taken, left = taken + data[start:end], left + data[end:]
        assert cursor.ended is (len(taken) == length)
    assert (taken, left) == (text[:length], text[length:])


class Response:
    """What a response parser says."""

    def __init__(self) -> None:
        self.text = b""
        self.complete = False

    def on_body(self, data: bytes) -> None:
        self.text += data

    def on_message_complete(self) -> None:
        self.complete = True


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("chunked", [True, False])
def test_a_response_s_body_chunked_or_until_close(chunked: bool, size: int) -> None:
    body, response = Body([TRICKY, b"x", TRICKY]), Response()
    parser, cursor = HttpResponseParser(response), cursor_for(None, chunked=chunked)
    parser.feed_data(b"HTTP/1.1 200 OK\r\n" + (body.framing if chunked else b"Connection: close") + EMPTY_LINE)
    for piece in cut(body.on_the_wire if chunked else body.text, size):
        assert not response.complete
        assert cursor.end(piece, 0) == len(piece)
        parser.feed_data(piece)
        assert cursor.ended is response.complete
    assert response.text == body.text
    assert response.complete is chunked


@pytest.mark.parametrize(
    "wire",
    [
        b"x\r\n\r\n",
        b"5\r\nhello0\r\n\r\n",
        b"5\r\nhello\r\n\r\n",
        b"5 \r\nhello\r\n0\r\n\r\n",
        b" 5\r\nhello\r\n0\r\n\r\n",
        b"5\nhello\r\n0\r\n\r\n",
        b"5\r\nhello\n0\r\n\r\n",
        b"5\r\nhello\r\n0\n\n",
        b"5\r\nhello\r\n0\r\n\n",
        b"5\r\nhello\r\n0\r\nA: b\n\n",
        b"5\r\nhello\r\n0\r\nA: b\nC: d\r\n\r\n",
        b"5;a\nb\r\nhello\r\n0\r\n\r\n",
        b'5;a="\n"\r\nhello\r\n0\r\n\r\n',
        b"-5\r\nhello\r\n0\r\n\r\n",
        b"0x5\r\nhello\r\n0\r\n\r\n",
        b"5_0\r\nhello\r\n0\r\n\r\n",
        b"fffffffffffffffff\r\nhello\r\n0\r\n\r\n",
        b";a=b\r\nhello\r\n0\r\n\r\n",
    ],
)
@pytest.mark.parametrize("size", SIZES)
def test_chunks_that_two_parsers_could_read_differently_never_complete(wire: bytes, size: int) -> None:
    receiver = Receiver([Body([])])
    with pytest.raises((HttpParserError, FramingError)):
        for piece in cut(CHUNKED_HEAD + wire + b"\r\n" * 4, size):
            receiver.receive(piece)
    assert receiver.texts == []
