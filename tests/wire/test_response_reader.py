"""Responses are read off the bytes of a backend's connection, wherever these are cut; by calling, without a socket."""

from dataclasses import dataclass, field

import pytest
from hypothesis import given

from proxy.routing.errors import BadResponse, ProxyError
from proxy.wire.limits import MANY_PIECES, MAX_HEAD
from proxy.wire.parsing import joined
from proxy.wire.response_head import ResponseHead, ResponseHeadReader
from proxy.wire.response_reader import Progress, ResponseReader
from tests.wire.bodies import BODIES, CUTS, MADE_UP, SIZES, Body, cut

OK = b"HTTP/1.1 200 OK\r\n"


@dataclass
class Received:
    """A ResponseSink that notes what it is handed."""

    interims: list[int] = field(default_factory=list)
    head: ResponseHead | None = None
    body: bytes = b""
    """What came behind the head."""

    def interim(self, head: ResponseHead) -> None:
        assert self.head is None
        self.interims.append(head.frame.status)

    def response_head(self, head: ResponseHead) -> None:
        assert self.head is None
        self.head = head

    def response_body(self, data: bytes) -> None:
        assert self.head is not None
        assert data
        self.body += data

    def flush_response(self) -> None:
        raise AssertionError("a reader does not write")

    def response_chunk(self, data: bytes, chunk: bytes) -> None:
        self.response_body(data)

    def response_complete(self, *, reusable: bool) -> None:
        raise AssertionError("whether it may be used again, a reader cannot know")

    def response_whole(self, head: ResponseHead, body: bytes, *, reusable: bool, text: bytes = b"") -> None:
        raise AssertionError("whether it may be used again, a reader cannot know")

    def backend_failed(self, error: ProxyError) -> None:
        raise AssertionError("a reader raises")

    def hold_request(self, hold: bool) -> None:
        raise AssertionError("a reader does not write")


def reader() -> ResponseReader:
    return ResponseReader(ResponseHeadReader())


def read(
    reader: ResponseReader, text: bytes, cuts: int | list[int] = 10**9, *, to_head: bool = False
) -> tuple[Received, Progress]:
    """What one response is read as, and how far it has come. Raises BadResponse."""
    received, progress = Received(), Progress.HEADLESS
    reader.begin(to_head=to_head)
    for piece in cut(text, cuts):
        assert progress not in (Progress.ENDED, Progress.WHOLE), "it ended too early"
        reader.text += piece
        progress = reader.read(received)
    if progress is Progress.WHOLE:
        assert reader.head is not None
        received.response_head(reader.head)
        received.body = joined(reader.pieces)
    return received, progress


def response(body: Body) -> bytes:
    return OK + body.framing + b"\r\n\r\n" + body.on_the_wire


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("name", BODIES)
def test_a_response_is_read_to_its_end_and_so_is_the_next(name: str, size: int) -> None:
    body, one = BODIES[name], reader()
    for _ in range(2):
        received, progress = read(one, response(body), size)
        assert received.body == body.text
        assert progress in (Progress.ENDED, Progress.WHOLE)
        assert one.end()


@given(first=MADE_UP, second=MADE_UP, cuts=CUTS)
def test_any_response_is_followed_by_any_other(first: Body, second: Body, cuts: int | list[int]) -> None:
    one = reader()
    for body in (first, second):
        received, _ = read(one, response(body), cuts)
        assert received.body == body.text
        assert one.end()


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize(
    ("text", "to_head"),
    [
        (OK + b"Content-Length: 5\r\n\r\n", True),
        (OK + b"Transfer-Encoding: chunked\r\n\r\n", True),
        (OK + b"\r\n", True),
        (b"HTTP/1.1 204 No Content\r\n\r\n", False),
        (b"HTTP/1.1 304 Not Modified\r\nContent-Length: 5\r\n\r\n", False),
    ],
)
def test_a_response_without_a_body_ends_with_its_head_and_does_not_spoil_the_next(
    text: bytes, to_head: bool, size: int
) -> None:
    one = reader()
    for _ in range(2):
        received, progress = read(one, text, size, to_head=to_head)
        assert (received.body, progress) == (b"", Progress.ENDED)
        assert one.end()
        received, _ = read(one, response(BODIES["length"]), size)
        assert received.body == b"hello"
        assert one.end()


@pytest.mark.parametrize("size", SIZES)
def test_interim_responses_go_before_the_one_that_counts(size: int) -> None:
    one = reader()
    text = b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 103 Early Hints\r\nLink: x\r\n\r\n"
    received, _ = read(one, text + response(BODIES["plain"]), size)
    assert (received.interims, received.body) == ([100, 103], b"hello")
    assert one.end()


def test_one_interim_response_too_many_is_no_answer() -> None:
    read(reader(), b"HTTP/1.1 102 Processing\r\n\r\n" * 16 + response(BODIES["plain"]))
    with pytest.raises(BadResponse, match="interim"):
        read(reader(), b"HTTP/1.1 102 Processing\r\n\r\n" * 17)


@pytest.mark.parametrize("size", SIZES)
def test_a_body_until_close_never_ends_by_itself(size: int) -> None:
    one = reader()
    received, progress = read(one, OK + b"\r\n" + b"hello" * 10, size)
    assert (received.body, progress) == (b"hello" * 10, Progress.BEGUN)
    assert one.head is not None
    assert one.head.until_close


@pytest.mark.parametrize("name", ["plain", "length", "length zero"])
def test_nothing_may_follow_what_has_bytes_behind_its_end(name: str) -> None:
    one, sink = reader(), Received()
    one.begin(to_head=False)
    one.text = response(BODIES[name]) + b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n"
    assert one.read(sink) is Progress.ENDED
    assert sink.body == BODIES[name].text
    assert not one.end()


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize(
    "text",
    [
        b"SSH-2.0-x\r\n\r\n",
        OK + b"A : b\r\n\r\n",
        OK + b"Content-Length: 1\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
        OK + b"Transfer-Encoding: chunked\r\n\r\nx\r\n",
        OK + b"Transfer-Encoding: chunked\r\n\r\n1\r\nab\r\n0\r\n\r\n",
        b"HTTP/1.1 101 Switching Protocols\r\nConnection: upgrade\r\nUpgrade: x\r\n\r\n",
        OK + b"A: %b\r\n\r\n" % (b"a" * MAX_HEAD),
        OK + b"A: %b" % (b"a" * MAX_HEAD),
    ],
)
def test_what_cannot_be_read_is_a_bad_response(text: bytes, size: int) -> None:
    with pytest.raises(BadResponse):
        read(reader(), text, size if len(text) < 1000 else max(size, 999))


def test_a_response_that_may_last_is_no_model_for_the_next_head() -> None:
    one, sinks = reader(), []
    for lasting in (False, True, False, False):
        sink = Received()
        one.begin(to_head=False, lasting=lasting)
        one.text = response(BODIES["plain"])
        assert one.read(sink) is Progress.ENDED
        assert one.end()
        sinks.append(sink)
    assert all(sink.body == b"hello" for sink in sinks)
    frames = [sink.head.frame for sink in sinks if sink.head is not None]
    assert [bool(frame.lines) for frame in frames] == [False, False, True, True]
    assert frames[0] is frames[1]
    assert frames[1] is not frames[2]
    assert frames[2] is frames[3]


@pytest.mark.parametrize(("chunks", "crowded"), [(MANY_PIECES, False), (MANY_PIECES + 1, True)])
def test_a_read_of_very_many_chunks_is_told(chunks: int, crowded: bool) -> None:
    one = reader()
    received, _ = read(one, OK + b"Transfer-Encoding: chunked\r\n\r\n" + b"1\r\na\r\n" * chunks)
    assert (len(received.body), one.crowded) == (chunks, crowded)
    one.text += b"0\r\n\r\n"
    assert one.read(received) is Progress.ENDED
    assert not one.crowded
