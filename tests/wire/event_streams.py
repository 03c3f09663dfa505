"""Event streams made up, read plainly, and held against what is promised of an EventReader."""

import json
from collections.abc import Iterator
from typing import NamedTuple

from hypothesis import strategies as st

from proxy.wire.events import MESSAGE_LIMIT, AnswerReader, EventReader, JsonReader
from tests.wire.bodies import SIZES, cut

BOM = b"\xef\xbb\xbf"
SMALL = 160  # bytes; the limit of a message where large ones are to be cheap
MARGIN = 8  # bytes around the limit that no made-up event has: which line ends count depends on the cuts


class Event(NamedTuple):
    """What a plain reader finds in a whole stream. Positions count bytes of the stream."""

    start: int
    end: int
    """Behind the byte that makes the event complete."""
    data: tuple[bytes, ...]
    brace: int
    """Where the last `}` of its data stands; -1 for none."""


def plainly_read(text: bytes) -> Iterator[Event]:
    """WHATWG HTML, 9.2.6, byte by byte; the last event may be incomplete, and then ends behind the text."""
    start, line_start, brace, data = 0, len(BOM) if text.startswith(BOM) else 0, -1, list[bytes]()
    for at, byte in enumerate(text):
        if byte not in b"\r\n":
            continue
        if byte == 10 and at and text[at - 1] == 13:  # the second half of a line's end
            line_start = at + 1
            continue
        line = text[line_start:at]
        name, _, value = line.partition(b":")
        if name == b"data":
            data.append(value.removeprefix(b" "))
            if b"}" in value:
                brace = line_start + line.rfind(b"}")
        line_start = at + 1
        if not line:
            yield Event(start, at + 1, tuple(data), brace)
            start, brace, data = at + 1, -1, []
    if start < len(text):
        yield Event(start, len(text) + 1, tuple(data), brace)


def meant(lines: tuple[bytes, ...] | bytes) -> bytes:
    """A message without its empty lines, which mean nothing in JSON: a bare `data` line need not be told from none."""
    return b"\n".join(line for line in (lines.split(b"\n") if isinstance(lines, bytes) else lines) if line)


def retained(reader: AnswerReader) -> int:
    """The bytes that a reader keeps."""
    assert isinstance(reader, EventReader | JsonReader)
    values = [getattr(reader, name) for name in reader.__slots__]
    return sum(len(value) for value in values if isinstance(value, bytes))


def check_stream(text: bytes, cuts: int | list[int], *, limit: int = MESSAGE_LIMIT, data_last: bool = True) -> None:
    """Everything that is promised of an EventReader. `data_last`: no event has a field behind its data."""
    found = list(plainly_read(text))
    small = [event for event in found if event.end - event.start <= limit and event.end <= len(text)]
    expected = [meant(event.data) for event in small if meant(event.data)]
    reader, fed, released, handed, oversized = EventReader(), 0, 0, list[bytes](), 0
    for piece in cut(text, cuts):
        fed += len(piece)
        out, messages = reader.feed(piece)
        assert out == text[released : released + len(out)]  # unchanged and in order
        released += len(out)
        handed += [meant(message) for message in messages if meant(message)]
        oversized += reader.oversized
        reader.oversized = 0
        # No client has a message before it was handed over: it is, in the very call that lets its last byte leave.
        complete = [event for event in small if event.end <= fed]
        assert handed == [meant(event.data) for event in complete if meant(event.data)]
        begun = max((event.end for event in found if event.end <= fed), default=0)
        assert released >= begun  # what is complete has left, whole
        # Of the rest nothing is held back but from the last `}` on: the empty line that makes it an event comes later.
        held = text.rfind(b"}", begun, fed)
        assert released >= (fed if held < 0 else held)
        if held >= 0 and any(event.start == begun for event in small):
            assert released == held  # and that is: an event that is not too large is never let go before
        for event in small:
            if event.end > fed and data_last and event.brace >= 0:
                assert released <= event.brace
        assert retained(reader) <= limit
    out, messages = reader.end()
    assert text[:released] + out == text
    assert messages == []
    assert handed == expected
    large = [text[event.start : event.end] for event in found if event.end - event.start > limit + MARGIN]
    oversized += reader.oversized
    assert sum(b'"taskId"' in event[:limit] for event in large) <= oversized
    assert oversized <= sum(b'"taskId"' in event for event in large)
    assert retained(reader) == 0


OBJECTS = st.dictionaries(
    st.sampled_from(["result", "taskId", "a}b", "\n\r", ""]),
    st.recursive(
        st.one_of(st.sampled_from(["task", "}", "{", "}}\n\n", "data: x\n\n", "é"]), st.integers(0, 9), st.none()),
        lambda inner: st.one_of(
            st.lists(inner, max_size=2), st.dictionaries(st.sampled_from(["x", "}"]), inner, max_size=2)
        ),
        max_leaves=4,
    ),
    max_size=3,
)
JSON = st.builds(
    lambda value, indent, more: json.dumps(value, indent=indent).encode() + more,
    OBJECTS,
    st.sampled_from([None, 0, 1]),
    st.sampled_from([b"", b" ", b"\t "]),
)
OTHER_LINES = st.sampled_from(
    b"event: message|id: 7|id: a}b|id|retry: 100|: ping|:|:}|dataset: {}| data: {}|Data: {}|data : {}|}|data|data: "
    b"|data:|xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx".split(b"|")
)
NON_DATA_LINES = OTHER_LINES.filter(lambda line: line.partition(b":")[0] != b"data")
LARGE_LINES = st.sampled_from([b'data: {"taskId":"', b"data: {}", b": "]).map(
    lambda start: start + b"}x" * (SMALL // 2 + 4 * MARGIN)
)
LINE_ENDS = [b"\n", b"\r\n", b"\r"]


def data_lines(message: bytes) -> list[bytes]:
    return [
        b"data: " + line if line.startswith(b" ") or len(line) % 2 else b"data:" + line for line in message.split(b"\n")
    ]


@st.composite
def streams(draw: st.DrawFn, *, data_last: bool) -> bytes:
    """A stream of events, some empty, some without data, some too large, the last one perhaps cut off."""
    ends = st.sampled_from(LINE_ENDS) if draw(st.booleans()) else st.just(draw(st.sampled_from(LINE_ENDS)))
    text = draw(st.sampled_from([b"", BOM]))
    for _ in range(draw(st.integers(0, 5))):
        lines = draw(st.lists(NON_DATA_LINES if data_last else OTHER_LINES, max_size=3))
        lines += draw(st.one_of(JSON.map(data_lines), JSON.map(data_lines), st.just(list[bytes]())))
        if not data_last:
            lines += draw(st.lists(OTHER_LINES, max_size=2))
        if draw(st.integers(0, 5)) == 0:
            lines = [draw(LARGE_LINES), *lines]
        event = b"".join(line + draw(ends) for line in lines)
        empty = draw(ends)
        event += b"\r" if event.endswith(b"\r") and empty == b"\n" else empty  # the two would be one line end
        if not SMALL - 3 * MARGIN < len(event) < SMALL + 3 * MARGIN:
            text += event
    if draw(st.booleans()):
        text = text[: draw(st.integers(0, len(text)))]
    sizes = [event.end - event.start for event in plainly_read(text)]
    return b"" if any(abs(size - SMALL) <= MARGIN for size in sizes) else text


CUTS = st.one_of(st.sampled_from(SIZES), st.lists(st.integers(1, 600), max_size=20))
