"""Watched event streams, cut anywhere: what leaves when, and which messages are handed over."""

from unittest.mock import patch

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from proxy.wire import events
from proxy.wire.events import MESSAGE_LIMIT, EventReader
from tests.wire.bodies import SIZES, cut
from tests.wire.event_streams import BOM, CUTS, LINE_ENDS, SMALL, check_stream, retained, streams


@settings(deadline=None, max_examples=250)
@given(streams(data_last=True), CUTS)
def test_any_stream_cut_anywhere(text: bytes, cuts: int | list[int]) -> None:
    with patch.object(events, "MESSAGE_LIMIT", SMALL):
        check_stream(text, cuts, limit=SMALL)


@settings(deadline=None, max_examples=150)
@given(streams(data_last=False), CUTS)
def test_any_stream_with_fields_behind_its_data(text: bytes, cuts: int | list[int]) -> None:
    with patch.object(events, "MESSAGE_LIMIT", SMALL):
        check_stream(text, cuts, limit=SMALL, data_last=False)


@settings(deadline=None, max_examples=200)
@given(st.lists(st.sampled_from([b"\r", b"\n", b"\r\n", b"data:{}", b"data:", b":", b"}", BOM]), max_size=14), CUTS)
def test_any_mix_of_line_ends(parts: list[bytes], cuts: int | list[int]) -> None:
    check_stream(b"".join(parts), cuts, data_last=False)


MESSAGE = b'{"jsonrpc":"2.0","id":1,"result":{"resultType":"task","taskId":"a}b"}}'
STREAM = [
    b": ping",
    b"",
    b"event: message",
    b"id: 1}",
    b"data: " + MESSAGE[:30],
    b"data:" + MESSAGE[30:],
    b"",
    b"data: " + MESSAGE,
    b"",
    b"",
    b'data: {"id":2}',
]


@pytest.mark.parametrize("start", [b"", BOM], ids=["plain", "BOM"])
@pytest.mark.parametrize("line_end", LINE_ENDS, ids=["LF", "CRLF", "CR"])
@pytest.mark.parametrize("size", SIZES)
def test_a_stream_in_pieces(size: int, line_end: bytes, start: bytes) -> None:
    text = start + line_end.join(STREAM)
    check_stream(text, size)
    reader = EventReader()
    messages = [message for piece in cut(text, size) for message in reader.feed(piece)[1]]
    assert [b"".join(message.split(b"\n")) for message in messages] == [MESSAGE, MESSAGE]


@pytest.mark.parametrize("place", range(1, 30))
def test_every_place_to_cut_a_stream_in_two(place: int) -> None:
    for line_end in LINE_ENDS:
        check_stream(line_end.join([b'data: {"a":{}}', b"", b"data: {}", b"", b""]), [place])


@pytest.mark.parametrize("behind", [b"id: 5", b"retry: 100", b": ping", b"data: ", b"data"])
@pytest.mark.parametrize("line_end", LINE_ENDS, ids=["LF", "CRLF", "CR"])
def test_a_line_behind_the_data_does_not_prove_that_more_data_follows(behind: bytes, line_end: bytes) -> None:
    reader = EventReader()
    begun = b"data: " + MESSAGE + line_end + behind
    out, messages = reader.feed(begun)
    assert messages == []
    assert len(out) <= begun.rindex(b"}")


def test_of_a_message_all_but_its_end_leaves_at_once() -> None:
    reader = EventReader()
    assert reader.feed(b'event: message\ndata: {"a":{"b":1}') == (b'event: message\ndata: {"a":{"b":1', [])
    assert reader.feed(b"\n") == (b"", [])
    assert reader.feed(b"data: ,") == (b"", [])
    assert reader.feed(b'"c":2}') == (b'}\ndata: ,"c":2', [])
    assert reader.feed(b"\n\ndata: 1") == (b"}\n\ndata: 1", [b'{"a":{"b":1}\n,"c":2}'])
    assert reader.end() == (b"", [])


def test_an_event_without_its_empty_line_is_none() -> None:
    reader = EventReader()
    assert reader.feed(b"data: {}\n") == (b"data: {", [])
    assert reader.end() == (b"}\n", [])


@pytest.mark.parametrize("size", [1000, 4096, 10**9])
@pytest.mark.parametrize(("more", "read"), [(0, True), (1, False), (100_000, False)])
def test_an_event_over_the_limit_is_not_read_and_the_next_one_is(size: int, more: int, read: bool) -> None:
    frame = len(b'data: {"taskId":""}\n\n')
    large = b'{"taskId":"%b"}' % (b"x" * (MESSAGE_LIMIT - frame + more))
    text = b"data: %b\n\ndata: {}\n\n" % large
    reader, out, messages = EventReader(), b"", list[bytes]()
    for piece in cut(text, size):
        left, found = reader.feed(piece)
        out, messages = out + left, messages + found
        assert retained(reader) <= MESSAGE_LIMIT
    assert out == text
    assert messages == ([large, b"{}"] if read else [b"{}"])
    assert reader.oversized == (not read)


@pytest.mark.parametrize("size", [100, 10**9])
def test_an_event_over_the_limit_that_names_no_task_is_not_counted(size: int) -> None:
    reader = EventReader()
    for piece in cut(b"data: " + b"x" * 2 * MESSAGE_LIMIT + b"\n\n", size):
        assert reader.feed(piece) == (piece, [])
    assert reader.oversized == 0


@pytest.mark.parametrize("size", [1000, 4096])
def test_a_bom_behind_a_first_event_over_the_limit_is_text(size: int) -> None:
    """To a client the second event has no `data` line; only at a stream's beginning a BOM is none of the text."""
    check_stream(b": " + b"x" * 2 * MESSAGE_LIMIT + b"\n\n" + BOM + b"data: {}\n\n", size)


def test_a_bom_is_left_out_at_the_beginning_alone() -> None:
    reader = EventReader()
    assert reader.feed(BOM + b"data: {}\n\n" + BOM + b"data: {}\n\ndata: 1\n\n")[1] == [b"{}", b"1"]


@pytest.mark.parametrize("event", [b"data: {}\n\n", b": ping\r\n\r\n", b"\n", b"\r", b"\r\n", b"data: {}\r\r"])
@pytest.mark.parametrize("size", [1, 7, 4096])
def test_of_an_endless_stream_nothing_is_kept(event: bytes, size: int) -> None:
    reader = EventReader()
    for piece in cut(event * 1000, size):
        reader.feed(piece)
        assert retained(reader) <= len(event)
