"""A stream with comments is the same stream, whoever reads it, and quiet streams have a place for them."""

import re
from collections.abc import Callable

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from proxy.wire.comments import COMMENT, Border
from tests.wire.bodies import SIZES, cut
from tests.wire.event_streams import BOM, streams

LINE_END = re.compile(rb"\r\n|\n|\r")


def lines(text: bytes) -> list[bytes]:
    """The lines as any reader sees them, comments of ours excepted; the last one is not at its end yet."""
    return [line + b"\n" for line in LINE_END.split(text.removeprefix(BOM)) if line + b"\n" != COMMENT]


def with_comments(pieces: list[bytes], wanted: Callable[[int], bool]) -> tuple[bytes, int]:
    """What is sent of these pieces, with a comment wherever it is wanted and may stand, and how many stand."""
    border, out, comments = Border(), b"", 0
    for number, piece in enumerate([*pieces, b""]):
        if wanted(number):
            comment = border.take_comment()
            assert comment in (b"", COMMENT)
            comments += bool(comment)
            out += comment
        if piece:
            out += border.passes(piece)
    return out + border.ends(), comments


def check(text: bytes, cuts: int | list[int], wanted: Callable[[int], bool]) -> int:
    out, comments = with_comments(cut(text, cuts), wanted)
    assert lines(out) == lines(text)
    return comments


STREAMS = [
    b"data: 1\n\ndata: 2\n\n",
    b"data: 1\r\n\r\nid: 7\r\ndata: 2\r\n\r\n",
    b"data: 1\r\rdata: 2\r\r",
    b"data: 1\r\r\ndata: 2\n\r\n\n",
    BOM + b"data: 1\n\ndata: 2\n\n",
    BOM + BOM + b"data: 1\n\n",
    BOM[:2] + b"data: 1\n\n",
    BOM[:1],
    BOM,
    b"",
    b"\n\n\ndata: 1\n",
    b"\r\r\r\n\n\rdata",
    b": ping\n\n: ping\n\n",
]


@pytest.mark.parametrize("size", [1, 2, 3, 7, 10_000])
@pytest.mark.parametrize("text", STREAMS)
def test_no_line_changes_wherever_comments_are_wanted(text: bytes, size: int) -> None:
    check(text, size, lambda number: True)
    check(text, size, lambda number: number > 0)
    check(text, size, lambda number: number % 2 == 0)


@settings(deadline=None, max_examples=300)
@given(st.data(), st.booleans())
def test_no_event_changes(data: st.DataObject, data_last: bool) -> None:
    text = data.draw(streams(data_last=data_last))
    wanted = data.draw(st.sets(st.integers(0, 40)))
    check(text, data.draw(st.sampled_from(SIZES)), lambda number: number in wanted or not wanted)


@settings(deadline=None, max_examples=500)
@given(
    st.lists(
        st.sampled_from([b"\r", b"\n", b"\r\n", b"data: x", b":", b"id: 7", BOM, *(BOM[i : i + 1] for i in range(3))])
    ),
    st.lists(st.integers(0, 60)),
    st.sets(st.integers(0, 60)),
)
def test_no_line_changes_in_any_mixture_of_line_ends(parts: list[bytes], cuts: list[int], wanted: set[int]) -> None:
    text = b"".join(parts)
    at = sorted({one for one in cuts if 0 < one < len(text)})
    pieces = [text[start:end] for start, end in zip([0, *at], [*at, len(text)], strict=True)]
    out, _ = with_comments([piece for piece in pieces if piece], lambda number: number in wanted)
    assert lines(out) == lines(text)


@pytest.mark.parametrize("end", [b"\n", b"\r\n", b"\r"])
@pytest.mark.parametrize("size", [1, 2, 3, 7, 10_000])
def test_a_stream_that_is_quiet_between_events_gets_its_comment(end: bytes, size: int) -> None:
    border = Border()
    assert border.take_comment() == COMMENT
    assert border.take_comment() == COMMENT
    for _ in range(3):
        for piece in cut(b"event: message" + end + b"data: {}" + end + end, size):
            border.passes(piece)
        assert border.take_comment() == COMMENT
        assert border.take_comment() == COMMENT


@pytest.mark.parametrize(
    "begun",
    [
        *(b"d", b"data: 1", b"data: 1\n", b"data: 1\r", b"data: 1\r\n", b"data: 1\r\n\r", b"data: 1\n\r", b"\n"),
        *(b"\xef", BOM, b"data: 1\n\nd", b"data: 1\n\n:", b"data: 1\n\n: c\n"),
    ],
)
@pytest.mark.parametrize("size", [1, 2, 3, 7, 10_000])
def test_no_comment_stands_within_an_event_or_a_line(begun: bytes, size: int) -> None:
    border = Border()
    for piece in cut(begun, size):
        border.passes(piece)
    assert border.take_comment() == b""
