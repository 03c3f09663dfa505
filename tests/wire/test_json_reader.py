"""Watched JSON answers, cut anywhere; and which reader an answer gets, how little each keeps."""

from unittest.mock import patch

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from proxy.wire import events
from proxy.wire.events import MESSAGE_LIMIT, AnswerReader, EventReader, JsonReader, reader_for
from tests.wire.bodies import cut
from tests.wire.event_streams import CUTS, JSON, retained


@settings(deadline=None, max_examples=300)
@given(JSON, st.sampled_from([b"", b"\n", b" \r\n\t"]), CUTS)
def test_any_json_body_cut_anywhere(message: bytes, space: bytes, cuts: int | list[int]) -> None:
    text = space + message + space
    reader, fed, released = JsonReader(), 0, 0
    for piece in cut(text, cuts):
        fed += len(piece)
        out, messages = reader.feed(piece)
        assert messages == []
        assert out == text[released : released + len(out)]
        released += len(out)
        assert released <= text.rindex(b"}")  # no client has the whole before it is handed over
        last = text.rfind(b"}", 0, fed)
        assert released >= (fed if last < 0 else last)  # and nothing else is held back
    out, messages = reader.end()
    assert text[:released] + out == text
    assert messages == [text]
    assert (reader.oversized, retained(reader)) == (0, 0)


@settings(deadline=None, max_examples=200)
@given(st.binary(max_size=80), CUTS, st.integers(1, 90))
def test_any_body_leaves_unchanged(text: bytes, cuts: int | list[int], limit: int) -> None:
    with patch.object(events, "MESSAGE_LIMIT", limit):
        reader, out = JsonReader(), b""
        for piece in cut(text, cuts):
            left, messages = reader.feed(piece)
            out += left
            assert messages == []
            assert retained(reader) <= limit
        left, messages = reader.end()
    assert out + left == text
    assert messages == ([text] if 0 < len(text) <= limit else [])


@pytest.mark.parametrize("size", [1000, 4096, 10**9])
@pytest.mark.parametrize(("more", "read"), [(0, True), (1, False), (100_000, False)])
def test_a_json_body_over_the_limit_is_not_read(size: int, more: int, read: bool) -> None:
    text = b'{"taskId":"%b"}' % (b"x" * (MESSAGE_LIMIT - len(b'{"taskId":""}') + more))
    reader, out = JsonReader(), b""
    for piece in cut(text, size):
        left, messages = reader.feed(piece)
        out += left
        assert messages == []
    left, messages = reader.end()
    assert out + left == text
    assert messages == ([text] if read else [])
    assert reader.oversized == (not read)


def test_an_empty_body_is_no_message() -> None:
    assert JsonReader().end() == (b"", [])
    assert EventReader().end() == (b"", [])


@pytest.mark.parametrize("make", [JsonReader, EventReader])
@pytest.mark.parametrize(
    "piece",
    [b"x" * 4096, b"}" * 4096, b"} \t" * 4096, b"data: {}\n" * 400, b": ping}\r" * 400, b"\xef\xbb\xbf" * 999],
)
def test_an_endless_message_is_kept_up_to_the_limit_and_flows(make: type[AnswerReader], piece: bytes) -> None:
    reader, fed, released = make(), 0, 0
    for _ in range(100):
        fed += len(piece)
        released += len(reader.feed(piece)[0])
        assert retained(reader) <= MESSAGE_LIMIT
        assert fed - released <= MESSAGE_LIMIT
    assert fed == released  # by now it is no message any more


@pytest.mark.parametrize(
    ("content_type", "reader"),
    [
        (b"application/json", JsonReader),
        (b"text/event-stream", EventReader),
        (b"text/plain", None),
        (b"application/json-seq", None),
        (b"application/problem+json", None),
        (b"text/event-stream-x", None),
        (b"", None),
    ],
)
def test_reader_for_a_media_type(content_type: bytes, reader: type[AnswerReader] | None) -> None:
    made = reader_for(content_type)
    assert (made and type(made)) is reader
