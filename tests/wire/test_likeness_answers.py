"""An answer or a chunk that is told by comparing it with one before is what reading it would find, to the byte."""

import re
from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from proxy.routing.errors import ProxyError
from proxy.wire.framing import Chunks
from proxy.wire.response_head import ResponseFrame, ResponseHead, ResponseHeadReader, response_for_client
from proxy.wire.response_reader import Progress, ResponseReader
from tests.wire import response_heads
from tests.wire.test_likeness import SIZES_SPELT

JSON_ANSWER = response_heads.JSON_ANSWER


class Sink:
    """Keeps what it is handed."""

    def __init__(self) -> None:
        self.heads: list[ResponseHead] = []
        self.body = b""

    def interim(self, head: ResponseHead) -> None:
        self.heads.append(head)

    def response_head(self, head: ResponseHead) -> None:
        self.heads.append(head)

    def response_body(self, data: bytes) -> None:
        self.body += data


def read_answer(answer: bytes) -> tuple[int, int | None, bytes, bytes] | None:
    """What a reader finds that has seen nothing else: of one whole answer behind which another may follow."""
    reader, sink = ResponseReader(ResponseHeadReader()), Sink()
    reader.begin(to_head=False)
    reader.text = answer
    try:
        progress = reader.read(sink)  # type: ignore[arg-type]
    except ProxyError:
        return None
    head = reader.head
    body = sink.body + b"".join(reader.pieces)
    if progress is not Progress.WHOLE or head is None or not reader.end():
        return None
    return head.frame.status, head.length, head.frame.start, body


def body_by(frame: ResponseFrame, answer: bytes) -> bytes | None:
    """That of an answer which is told by the frame of the one before it."""
    reader = ResponseReader(ResponseHeadReader())
    reader.begin(to_head=False)
    reader._frame = frame
    found = reader.alike(answer)
    return None if found is None else found[1]


def check_answer(lines: list[bytes], start: bytes, answer: bytes) -> bool:
    """As `check_alike`, of an answer that follows two with these lines."""
    reader = ResponseHeadReader()
    before = response_heads.text(*lines, start=start)
    try:
        first = reader.read(before, to_head=False)
        second = reader.read(before, to_head=False, before=first.frame)
    except ProxyError:
        return False
    if second.frame is not first.frame or not response_heads.parses(
        re.sub(rb"(?i)\r\ncontent-length:[^\r]*", b"", before)
    ):
        return False
    body = body_by(first.frame, answer)
    if body is None:
        return False
    frame = first.frame
    assert read_answer(answer) == (frame.status, len(body), frame.start, body)
    if frame.verbatim:
        sent = response_for_client(ResponseHead(frame, len(body)), http10=False, keep_alive=True, tag="")
        head = answer[: len(answer) - len(body)]
        assert sorted(line.lower() for line in sent.split(b"\r\n") if b"ength" in line) == sorted(
            line.lower().replace(b":", b": ", 1).replace(b":  ", b": ")
            for line in head.split(b"\r\n")
            if b"ength" in line
        )
        assert [line for line in sent.split(b"\r\n") if b"ength" not in line] == [
            line for line in head.split(b"\r\n") if b"ength" not in line
        ]
    return True


ANSWER_STARTS = [b"HTTP/1.1 200 OK"] * 4 + [
    b"HTTP/1.1 404 ",
    b"HTTP/1.1 200",
    b"HTTP/1.0 200 OK",
    b"HTTP/1.1 204 No Content",
]


@settings(deadline=None, max_examples=1000)
@given(
    st.one_of(st.permutations(JSON_ANSWER), st.lists(st.sampled_from(response_heads.LINES), max_size=6)),
    st.sampled_from(ANSWER_STARTS),
    st.binary(max_size=12),
    st.data(),
)
def test_an_answer_that_is_told_by_comparing_is_what_a_reader_finds(
    lines: list[bytes], start: bytes, body: bytes, data: st.DataObject
) -> None:
    changed = []
    for line in lines:
        field, _, value = line.partition(b":")
        if field.lower() == b"content-length":
            spelt = data.draw(st.one_of(st.just(b"%d"), SIZES_SPELT))
            size = len(body) + data.draw(st.sampled_from([0, 0, 0, 1, -1]))
            line = field + b":" + value[: len(value) - len(value.lstrip())] + spelt % ((size,) * spelt.count(b"%"))
        changed.append(line)
    if data.draw(st.integers(0, 9)) == 0:
        changed.insert(data.draw(st.integers(0, len(lines))), data.draw(st.sampled_from(response_heads.LINES)))
    behind = data.draw(st.sampled_from([b"", b"", b"", b"x", b"\r\n"]))
    check_answer(lines, start, response_heads.text(*changed, start=start) + body + behind)


def test_most_answers_are_told_by_comparing() -> None:
    for size in (0, 1, 9, 10, 999):
        lines = [*JSON_ANSWER[:2], b"content-length: %d" % size, JSON_ANSWER[3]]
        answer = response_heads.text(*lines) + b"x" * size
        assert check_answer(JSON_ANSWER, response_heads.OK, answer)
        assert not check_answer(JSON_ANSWER, response_heads.OK, answer + b"x")
        assert not check_answer(JSON_ANSWER, response_heads.OK, answer[:-1])


@pytest.mark.parametrize("line", [b"connection: close", b"transfer-encoding: chunked", b"content-length: 17"])
def test_answers_that_end_otherwise_are_read(line: bytes) -> None:
    answer = response_heads.text(*JSON_ANSWER, line) + b"x" * 17
    assert not check_answer([*JSON_ANSWER, line], response_heads.OK, answer)


def test_an_answer_behind_an_interim_one_or_to_head_is_read() -> None:
    reader, sink = ResponseReader(ResponseHeadReader()), Sink()
    answer = response_heads.text(*JSON_ANSWER) + b"x" * 17
    for _ in range(3):
        reader.begin(to_head=False)
        reader.text = answer
        reader.read(sink)  # type: ignore[arg-type]
        reader.end()
        reader.pieces.clear()
    reader.begin(to_head=False)
    assert reader.alike(answer) is not None
    reader.begin(to_head=True)
    assert reader.alike(answer) is None
    reader.begin(to_head=False)
    reader.text = b"HTTP/1.1 100 Continue\r\n\r\n"
    reader.read(sink)  # type: ignore[arg-type]
    assert reader.alike(answer) is None


# ---- chunks


SIZE_LINES = st.sampled_from(
    [b"%x", b"%x", b"%x", b"%X", b"0%x", b"%x;a=b", b"%x ", b" %x", b"+%x", b"0x%x", b"%x\r", b"", b"-%x", b"\n%x"]
)


def passed(reader: ResponseReader, sink: Sink, data: bytes) -> bool:
    """Hands the reader what came; False: it does not parse."""
    content = reader.body.content_of(data) if not reader.text else None
    if content is not None:
        sink.body += content
        return True
    reader.text += data
    try:
        reader.read(sink)  # type: ignore[arg-type]
    except ProxyError:
        return False
    return True


@settings(deadline=None, max_examples=1500)
@given(
    st.lists(
        st.tuples(
            SIZE_LINES,
            st.binary(min_size=1, max_size=40),
            st.sampled_from([b"\r\n"] * 9 + [b"\n", b"", b"xx", b"\n\r"]),
        ),
        max_size=6,
    ),
    st.data(),
)
def test_chunks_that_pass_as_they_came_are_what_a_parser_finds(
    chunks: list[tuple[bytes, bytes, bytes]], data: st.DataObject
) -> None:
    """However they are cut, and whatever is wrong with them."""
    pieces = [b"%b\r\n%b%b" % (size % ((len(text),) * size.count(b"%")), text, end) for size, text, end in chunks]
    pieces.append(
        data.draw(st.sampled_from([b"0\r\n\r\n", b"0\r\n\r\n", b"0;x\r\nT: x\r\n\r\n", b"00\r\n\r\n", b"0\r\n", b""]))
    )
    if data.draw(st.booleans()):
        whole, cuts = b"".join(pieces), sorted(data.draw(st.lists(st.integers(0, 80), max_size=5)))
        pieces = [whole[start:end] for start, end in pairwise([0, *cuts, len(whole)]) if start < end]
    head = response_heads.text(response_heads.CHUNKED)
    outcomes = []
    for short in (True, False):
        reader, sink = ResponseReader(ResponseHeadReader()), Sink()
        reader.begin(to_head=False)
        reader.text = head
        reader.read(sink)  # type: ignore[arg-type]
        for piece in pieces:
            if piece and not (passed(reader, sink, piece) if short else fed(reader, sink, piece)):
                outcomes.append((sink.body, "refused"))
                break
        else:
            ended = isinstance(reader.body, Chunks) and reader.body.ended
            outcomes.append((sink.body, str(ended)))
    assert outcomes[0] == outcomes[1]


def fed(reader: ResponseReader, sink: Sink, data: bytes) -> bool:
    """The same where everything is parsed."""
    reader.text += data
    try:
        reader.read(sink)  # type: ignore[arg-type]
    except ProxyError:
        return False
    return True


def test_most_chunks_pass_as_they_came() -> None:
    for size in (1, 9, 10, 15, 16, 17, 255, 256, 65_536):
        content = b"\r\n" * (size // 2) + b"x" * (size % 2)
        assert Chunks().content_of(b"%x\r\n%b\r\n" % (size, content)) == content
    assert Chunks().content_of(b"0\r\n\r\n") is None


@pytest.mark.parametrize("before", [b"5", b"5\r", b"5\r\nhel", b"5\r\nhello", b"5\r\nhello\r", b"0\r\n", b"0\r\nT: x"])
def test_what_looks_like_a_chunk_within_something_else_is_read(before: bytes) -> None:
    cursor = Chunks()
    assert cursor.end(before, 0) == len(before)
    assert cursor.content_of(b"5\r\nhello\r\n") is None
