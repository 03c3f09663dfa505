"""Requests are read off the bytes one by one, wherever the bytes are cut; read by calling, without a connection."""

from dataclasses import dataclass, field

import pytest
from hypothesis import given

from proxy.routing.errors import BadRequest, HeadTooLarge, ProxyError, Unsupported
from proxy.wire.limits import MAX_HEAD
from proxy.wire.parsing import joined
from proxy.wire.request_head import RequestHeadReader
from proxy.wire.request_reader import RequestReader
from tests.wire.bodies import BODIES, CUTS, MADE_UP, SIZES, Body, cut

HEADS = RequestHeadReader()


@dataclass
class Reading:
    """What a reader made of the bytes so far."""

    reader: RequestReader = field(default_factory=RequestReader)
    requests: list[list[bytes]] = field(default_factory=list)
    """Path and content of each request whose head has come."""
    error: ProxyError | None = None

    def receive(self, data: bytes) -> None:
        reader = self.reader
        reader.text += data
        try:
            while reader.at < len(reader.text):
                if reader.in_body:
                    reader.read_body()
                else:
                    head = reader.read_head(HEADS)
                    if head is None:
                        return
                    self.requests.append([head.frame.path, b""])
                self.requests[-1][1] += joined(reader.pieces)
        except ProxyError as error:
            self.error = error

    @property
    def complete(self) -> bool:
        return self.error is None and not self.reader.in_body and self.reader.at == len(self.reader.text)


def reading(text: bytes, cuts: int | list[int]) -> Reading:
    found = Reading()
    for piece in cut(text, cuts):
        if found.error is None:
            found.receive(piece)
    return found


def request(path: bytes, body: Body) -> bytes:
    return b"POST %b HTTP/1.1\r\nHost: x\r\n%b\r\n\r\n%b" % (path, body.framing, body.on_the_wire)


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("name", BODIES)
def test_a_request_is_read_whole_and_so_is_what_is_pipelined_behind_it(name: str, size: int) -> None:
    body = BODIES[name]
    found = reading(request(b"/a", body) + request(b"/b", body) + b"GET /c HTTP/1.1\r\nHost: x\r\n\r\n", size)
    assert found.requests == [[b"/a", body.text], [b"/b", body.text], [b"/c", b""]]
    assert found.complete


@given(first=MADE_UP, second=MADE_UP, cuts=CUTS)
def test_any_two_requests_are_told_apart(first: Body, second: Body, cuts: int | list[int]) -> None:
    found = reading(request(b"/a", first) + request(b"/b", second), cuts)
    assert found.requests == [[b"/a", first.text], [b"/b", second.text]]
    assert found.complete


def test_a_request_that_comes_at_once_is_read_at_once() -> None:
    found = RequestReader()
    found.text = request(b"/a", Body([b"hello"], chunked=False))
    assert found.read_head(HEADS) is not None
    assert (found.at, found.in_body, found.pieces) == (len(found.text), False, [b"hello"])


def test_a_head_shares_the_frame_of_the_one_before() -> None:
    reader, frames = RequestReader(), []
    for number in (1, 22):
        reader.text, reader.at = request(b"/a", Body([b"x" * number], chunked=False)), 0
        head = reader.read_head(HEADS)
        assert head is not None
        frames.append(head.frame)
        joined(reader.pieces)
    assert frames[0] is frames[1]


@pytest.mark.parametrize("size", SIZES)
def test_a_few_empty_lines_before_a_request_are_passed_over(size: int) -> None:
    found = reading(b"\r\n" * 8 + request(b"/a", BODIES["plain"]), size)
    assert found.requests == [[b"/a", b"hello"]]
    assert found.complete


@pytest.mark.parametrize("size", SIZES)
def test_half_a_request_is_waited_for(size: int) -> None:
    for body in (BODIES["plain"], BODIES["length"]):
        text = request(b"/a", body)
        for end in range(1, len(text)):
            found = reading(text[:end], size)
            assert found.error is None
            assert found.reader.in_body or not found.requests
            found.receive(text[end:])
            assert found.requests == [[b"/a", body.text]]
            assert found.complete


HEAD = b"POST /mcp HTTP/1.1\r\nHost: x\r\n"


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize(
    ("text", "kind"),
    [
        (b"GET /\r\n\r\n", BadRequest),
        (HEAD + b"A : b\r\n\r\n", BadRequest),
        (HEAD + b"Content-Length: 1\r\nContent-Length: 1\r\n\r\na", BadRequest),
        (HEAD + b"Content-Length: 1\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n", BadRequest),
        (HEAD + b"Transfer-Encoding: chunked\r\n\r\nx\r\n", BadRequest),
        (HEAD + b"Transfer-Encoding: chunked\r\n\r\n1\r\nab\r\n0\r\n\r\n", BadRequest),
        (b"CONNECT a:1 HTTP/1.1\r\nHost: a:1\r\n\r\n", Unsupported),
        (HEAD + b"Connection: upgrade\r\nUpgrade: websocket\r\n\r\n", Unsupported),
        (HEAD + b"A: %b\r\n\r\n" % (b"a" * MAX_HEAD), HeadTooLarge),
        (HEAD + b"A: %b" % (b"a" * MAX_HEAD), HeadTooLarge),
        (HEAD + b"\0\r\n\r\n", BadRequest),
    ],
)
def test_what_cannot_be_read_is_refused(text: bytes, kind: type[ProxyError], size: int) -> None:
    found = reading(text, size if len(text) < 1000 else max(size, 999))
    assert type(found.error) is kind


@pytest.mark.parametrize("size", SIZES)
def test_a_reader_that_rests_reads_on(size: int) -> None:
    found = Reading()
    for _ in range(3):
        for piece in cut(request(b"/a", BODIES["plain"]), size):
            found.receive(piece)
            found.reader.rest()
    assert found.requests == [[b"/a", b"hello"]] * 3
    assert found.complete


def test_what_was_read_before_a_rest_is_no_model_for_the_next_head() -> None:
    reader, frames = RequestReader(), []
    for rests in (True, False, False):
        reader.text, reader.at = request(b"/a", Body([b"x"], chunked=False)), 0
        head = reader.read_head(HEADS)
        assert head is not None
        frames.append(head.frame)
        joined(reader.pieces)
        if rests:
            reader.rest()
    assert frames[0].lines == []
    assert frames[0] is not frames[1]
    assert frames[1] is frames[2]


def test_text_that_was_read_can_be_let_go_of_between_and_within_heads() -> None:
    text, found = request(b"/a", BODIES["plain"]), Reading()
    for piece in cut(text * 20, 50):
        found.receive(piece)
        found.reader.forget_read()
        assert len(found.reader.text) < len(text)
    assert found.requests == [[b"/a", b"hello"]] * 20
    assert found.complete
