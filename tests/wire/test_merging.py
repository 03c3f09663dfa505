"""Event streams of several backends become one: whole events, one acknowledgement, one end."""

import json
import re
from collections.abc import Iterator, Sequence
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from proxy.wire import merging
from proxy.wire.merging import EVENT_LIMIT, HELD_LIMIT, Ending, EventSplitter, Merger

SIZES = [1, 2, 3, 7, 10**9]
META = {"io.modelcontextprotocol/subscriptionId": 7}


def event(message: dict[str, Any], end: str = "\r\n") -> bytes:
    return f"event: message{end}data: {json.dumps({'jsonrpc': '2.0', **message})}{end}{end}".encode()


def ack(end: str = "\r\n", meta: object = META, **agreed: object) -> bytes:
    method = "notifications/subscriptions/acknowledged"
    return event({"method": method, "params": {"_meta": meta, "notifications": agreed}}, end)


def note(name: str, end: str = "\r\n") -> bytes:
    return event({"method": "notifications/resources/updated", "params": {"_meta": META, "uri": name}}, end)


RESULT = event({"id": 7, "result": {"resultType": "complete", "_meta": META}})
ERROR = event({"id": 7, "error": {"code": -32601, "message": "Method not found"}})


def read(stream: bytes) -> list[str]:
    """The data of a stream's events, as a client reads them (WHATWG HTML, 9.2.6)."""
    events: list[str] = []
    data: list[str] = []
    for line in re.split("\r\n|\n|\r", stream.decode())[:-1]:
        if line.startswith("data:"):
            data.append(line[5:].removeprefix(" "))
        elif not line:
            if data:
                events.append("\n".join(data))
            data = []
        else:
            assert re.match("(event|id|retry)?:", line), line
    assert not data, "an event is not whole"
    return events


def seen(stream: bytes) -> list[str]:
    """What a client sees, in short: `ack [kinds]`, the resource's name, result, error or the text."""
    short = []
    for text in read(stream):
        try:
            message = json.loads(text)
        except ValueError:
            message = None
        if not isinstance(message, dict):
            short.append(text)
        elif message.get("method", "").endswith("acknowledged"):
            short.append(f"ack {json.dumps(message['params']['notifications'])}")
        elif "method" in message:
            short.append(message["params"].get("uri", message["method"]))
        else:
            short.append("result" if "result" in message else "error")
    return short


def pieces(data: bytes, size: int) -> Iterator[bytes]:
    for at in range(0, len(data), size):
        yield data[at : at + size]


def merger(parts: int, *, opened: Sequence[int] | None = None) -> Merger:
    made = Merger(range(parts))
    for part in range(parts) if opened is None else opened:
        made.opened(part)
    return made


# ---- splitting
STREAMS = {
    "LF": (b"data: a\n\ndata: b\n\n", ["a", "b"]),
    "CRLF": (b"data: a\r\n\r\ndata: b\r\n\r\n", ["a", "b"]),
    "CR": (b"data: a\r\rdata: b\r\r", ["a", "b"]),
    "mixed": (b"data: a\n\r\ndata: b\r\n\ndata: c\r\n\rdata: d\r\n\r\n", ["a", "b", "c", "d"]),
    "several lines": (b"id: 1\ndata: a\ndata: b\n\n", ["a\nb"]),
    "byte order mark": (b"\xef\xbb\xbfdata: a\n\n", ["a"]),
    "comments": (b": ping\r\n\r\ndata: a\r\n\r\n:\r\ndata: b\r\n\r\n: ping\r\n", ["a", "b"]),
    "a comment within": (b"data: a\n: ping\ndata: b\n\n", ["a\nb"]),
    "empty lines": (b"\n\r\n\rdata: a\n\n\n\r\n", ["a"]),
    "incomplete": (b"data: a\n\ndata: b\n", ["a"]),
    "no data": (b"retry: 5\n\ndata: a\n\n", ["a"]),
}


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize(("stream", "expected"), STREAMS.values(), ids=STREAMS)
def test_each_piece_may_stand_between_the_events_of_another_stream(
    stream: bytes, expected: list[str], size: int
) -> None:
    splitter = EventSplitter()
    found = [piece for data in pieces(stream, size) for piece in splitter.feed(data)]
    assert [text for piece in found for text in read(piece)] == expected
    other = b"data: other\n\n"
    assert [text for text in read(other.join([b"", *found, b""])) if text != "other"] == expected
    assert not splitter.oversized


def test_an_event_leaves_with_its_last_byte() -> None:
    for text in (b"data: a\n\n", b"data: a\r\n\r\n", b"data: a\r\r", b": ping\n", b":\r\n"):
        splitter = EventSplitter()
        last = 2 if text.endswith(b"\r\n") else 1  # what comes after a CR is not waited for
        assert splitter.feed(text[:-last]) == []
        assert splitter.feed(text[-last:]) == [text]


@pytest.mark.parametrize("size", [7, 65536, 10**9])
@pytest.mark.parametrize(("length", "fits"), [(EVENT_LIMIT, True), (EVENT_LIMIT + 1, False)])
def test_an_event_has_a_limit(length: int, fits: bool, size: int, monkeypatch: pytest.MonkeyPatch) -> None:
    if size == 7:  # the same at a limit that small pieces reach soon
        monkeypatch.setattr(merging, "EVENT_LIMIT", 1000)
        length = length - EVENT_LIMIT + 1000
    large = b"data: " + b"x" * (length - 8) + b"\n\n"
    splitter = EventSplitter()
    found = [piece for data in pieces(b"data: a\n\n" + large + b"data: b\n\n", size) for piece in splitter.feed(data)]
    assert found == ([b"data: a\n\n", large, b"data: b\n\n"] if fits else [b"data: a\n\n"])
    assert splitter.oversized is not fits


# ---- the acknowledgement
def test_one_acknowledgement_says_what_any_backend_agreed_to() -> None:
    merged = merger(3)
    assert merged.feed(2, ack(toolsListChanged=False, taskIds=["t-2", "t-1"], more={"a": 1})) == b""
    assert merged.feed(0, ack(meta={"first": True}, toolsListChanged=False, taskIds=[])) == b""
    out = merged.feed(1, ack(toolsListChanged=True, promptsListChanged=True, taskIds=["t-1", "t-3"], more={"a": 2}))
    (text,) = read(out)
    assert json.loads(text) == {
        "jsonrpc": "2.0",
        "method": "notifications/subscriptions/acknowledged",
        "params": {
            "_meta": {"first": True},
            "notifications": {
                "toolsListChanged": True,
                "taskIds": ["t-1", "t-3", "t-2"],
                "promptsListChanged": True,
                "more": {"a": 2},
            },
        },
    }


def test_an_acknowledgement_that_says_it_all_leaves_as_it_came() -> None:
    merged = merger(2)
    merged.feed(1, ack(taskIds=[]))
    assert merged.feed(0, ack(taskIds=["t-1"], toolsListChanged=True)) == ack(taskIds=["t-1"], toolsListChanged=True)


@pytest.mark.parametrize("odd", [1e999, [[[["deep"]]]], None, "text"])
def test_an_acknowledgement_that_nobody_expects_is_passed_all_the_same(odd: object) -> None:
    merged = merger(2)
    merged.feed(0, ack(taskIds=["t-1"]).replace(b'["t-1"]', json.dumps(odd).replace("Infinity", "1e999").encode()))
    out = merged.feed(1, ack(taskIds=["t-2"], toolsListChanged=True))
    assert len(read(out)) == 1
    assert b"Infinity" not in out


@pytest.mark.parametrize(
    ("written", "known"),
    [
        ("notifications/subscriptions/acknowledged", True),
        ("notifications\\/subscriptions\\/acknowledged", True),
        ("notifications/subscriptions/\\u0061cknowledged", True),
        ("notifications/subscriptions/Acknowledged", False),
    ],
)
def test_an_acknowledgement_is_known_however_it_is_written(written: str, known: bool) -> None:
    merged = merger(2)
    text = ack().decode().replace("notifications/subscriptions/acknowledged", written).encode()
    merged.feed(0, ack())
    assert bool(merged.feed(1, text)) is known


def test_events_wait_for_the_acknowledgement_and_follow_in_order() -> None:
    merged = merger(3)
    assert merged.feed(0, ack() + note("a1")) == b""
    assert merged.feed(1, ack() + note("b1")) == b""
    assert merged.feed(0, note("a2")) == b""
    assert merged.feed(0, b": ping\r\n\r\n") == b": ping\r\n\r\n", "comments keep the client's connection alive"
    assert seen(merged.feed(2, note("c1") + ack() + note("c2"))) == ["ack {}", "a1", "b1", "a2", "c1", "c2"]
    assert merged.feed(1, note("b2")) == note("b2")


def test_the_acknowledgement_waits_for_none_that_cannot_come() -> None:
    merged = merger(4, opened=[0, 1])
    assert merged.feed(0, ack(taskIds=["t-1"])) == b""
    assert merged.absent(2) == b""
    assert merged.absent(3) == b""
    assert merged.ended(1) != b""
    assert merged.ending is None


def test_when_the_time_is_over_what_was_acknowledged_leaves_and_later_ones_are_dropped() -> None:
    merged = merger(3, opened=[0, 1])
    merged.feed(0, ack(taskIds=["t-1"]) + note("a1"))
    assert seen(merged.expire()) == ['ack {"taskIds": ["t-1"]}', "a1"]
    assert seen(merged.feed(1, ack(taskIds=["t-2"]) + note("b1"))) == ["b1"]
    merged.opened(2)
    assert seen(merged.feed(2, ack(taskIds=["t-3"]) + note("c1"))) == ["c1"]
    merged.opened(3)
    assert seen(merged.feed(3, ack() + note("d1"))) == ["d1"]


def test_the_first_acknowledgement_after_the_time_is_the_one() -> None:
    merged = merger(2)
    assert merged.feed(0, note("a1")) == b""
    assert seen(merged.expire()) == ["a1"], "nobody holds back what a backend says too early for good"
    assert seen(merged.feed(1, ack(taskIds=["t-2"]))) == ['ack {"taskIds": ["t-2"]}']
    assert merged.feed(0, ack()) == b""


def test_one_backend_can_have_only_so_much_held() -> None:
    merged = merger(2)
    merged.feed(0, ack())
    while not merged.is_full(0):
        assert merged.feed(0, note("x" * 1000)) == b""
    assert not merged.is_full(1)
    held = len(merged.feed(1, ack()))
    assert HELD_LIMIT < held < HELD_LIMIT + 3000
    assert not merged.is_full(0)


# ---- the end
@pytest.mark.parametrize("answer", [RESULT, ERROR])
def test_an_answer_ends_the_whole_and_leaves_last(answer: bytes) -> None:
    merged = merger(2)
    merged.feed(0, ack(taskIds=["t-1"]) + note("a1"))
    assert merged.ending is None
    assert seen(merged.feed(0, answer + note("a2"))) == ['ack {"taskIds": ["t-1"]}', "a1", seen(answer)[0]]
    assert merged.ending is Ending.ANSWERED
    assert merged.feed(1, ack() + note("b1")) == merged.ended(1) == merged.ended(0) == merged.expire() == b""


@pytest.mark.parametrize("broken", ["ended", "oversized"])
def test_one_that_breaks_its_promise_breaks_the_whole(broken: str) -> None:
    merged = merger(2)
    merged.feed(0, ack())
    merged.feed(1, ack() + note("b1"))
    if broken == "ended":
        assert merged.feed(0, note("a1")[:-2]) == b"", "half an event never leaves"
        assert merged.ended(0) == b""
    else:
        assert merged.feed(0, note("a1") + b"data: " + b"x" * EVENT_LIMIT) == note("a1")
    assert merged.ending is Ending.BROKEN
    assert merged.feed(1, note("b2")) == b""


def test_what_is_whole_leaves_before_the_whole_is_broken() -> None:
    merged = merger(2)
    merged.feed(0, ack() + note("a1"))
    assert seen(merged.ended(0)) == ["ack {}", "a1"]
    assert merged.ending is Ending.BROKEN


def test_one_that_had_not_acknowledged_yet_breaks_nothing() -> None:
    merged = merger(2)
    merged.feed(0, ack())
    assert seen(merged.feed(1, b"data: " + b"x" * (EVENT_LIMIT + 1))) == ["ack {}"]
    assert merged.ending is None
    assert not merged.is_open(1)
    assert merged.feed(0, note("a1")) == note("a1")
    merged.opened(2)
    assert merged.ended(2) == b""
    assert merged.ending is None


def test_the_last_one_to_end_ends_the_whole() -> None:
    merged = merger(3, opened=[0, 1])
    assert merged.ended(0) == merged.ended(1) == b""
    assert merged.ending is None, "one may still come"
    merged.absent(2)
    assert merged.ending is Ending.BROKEN


def test_a_refusal_is_that_of_one_backend_as_long_as_another_serves() -> None:
    merged = merger(2)
    assert merged.feed(0, ERROR) == b""
    assert (merged.is_open(0), merged.refusers, merged.ending) == (False, {0}, None)
    assert seen(merged.feed(1, ack() + note("b1"))) == ["ack {}", "b1"]


def test_where_all_refuse_the_first_refusal_is_the_answer() -> None:
    merged = merger(3, opened=[0, 1])
    assert merged.feed(1, ERROR) == merged.feed(0, ERROR.replace(b"-32601", b"-32602")) == b""
    assert merged.expire() == ERROR, "the silent one is not waited for"
    assert merged.ending is Ending.ANSWERED


def test_what_only_looks_like_an_answer_ends_nothing() -> None:
    merged = merger(1)
    merged.feed(0, ack())
    for text in (
        b'data: {"method":"notifications/tasks","params":{"result":{},"error":{}}}\n\n',
        b'data: {"method":"notifications/tasks","result":{}}\n\n',
        b'data: ["result"]\n\n',
        b'data: {"result": NaN}\n\n',
        b'data: "result"\n\n',
        b"data:\n\n",
    ):
        assert merged.feed(0, text) == text
    assert merged.ending is None


# ---- any streams, in any pieces
NAMES = st.sampled_from(["", "x", "t-1", "long " * 9])
ENDS = st.sampled_from(["\r\n", "\n", "\r"])


@st.composite
def streams(draw: st.DrawFn) -> list[bytes]:
    """Streams of backends that acknowledge first; each name is told by one alone."""
    made = []
    for part in range(draw(st.integers(1, 4))):
        end = draw(ENDS)
        texts = [draw(st.sampled_from([b"", b"\xef\xbb\xbf"])), ack(end, taskIds=[f"t-{part}"])]
        for number in range(draw(st.integers(0, 4))):
            texts.append(note(f"{part}.{number} {draw(NAMES)}", end))
            texts.append(draw(st.sampled_from([b"", f": ping{end}{end}".encode(), f":{end}".encode(), end.encode()])))
        made.append(b"".join(texts))
    return made


@settings(deadline=None, max_examples=300)
@given(made=streams(), data=st.data())
def test_any_cut_of_the_streams_gives_the_same_events(made: list[bytes], data: st.DataObject) -> None:
    merged, out, rest = merger(len(made)), b"", list(made)
    while any(rest):
        part = data.draw(st.sampled_from([i for i, text in enumerate(rest) if text]))
        size = data.draw(st.sampled_from([1, 2, 3, 7, 40, 10**6]))
        out += merged.feed(part, rest[part][:size])
        rest[part] = rest[part][size:]
    first, *others = seen(out)
    assert json.loads(first.removeprefix("ack "))["taskIds"] == [f"t-{part}" for part in range(len(made))]
    assert merged.ending is None
    for part, text in enumerate(made):  # every event once, and each backend's in its order
        assert [one for one in others if one.startswith(f"{part}.")] == seen(text.removeprefix(b"\xef\xbb\xbf"))[1:]
    assert len(others) == sum(text.count(b"resources/updated") for text in made)
