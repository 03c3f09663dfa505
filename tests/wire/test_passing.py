"""Events that pass without being read are those that teach nothing; what is learned, and what leaves, is the same."""

import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from proxy.background import Background
from proxy.pins.memory import MemoryPinStore
from proxy.wire.events import MESSAGE_LIMIT, EventReader, JsonReader
from tests.wire.bodies import cut
from tests.wire.event_streams import BOM, CUTS
from tests.wire.watching import Scene

CREATED = json.dumps({"result": {"resultType": "task", "taskId": "t-1", "ttlMs": 5}}).encode()
ASKS = b'{"result":{"resultType":"input_required"}}'
STATE = b'{"result":{"taskId":"t-1","status":"completed"}}'
UNKNOWN = b'{"error":{"code":-32602}}'
MESSAGES = [
    *(CREATED, ASKS, STATE, UNKNOWN, CREATED.replace(b"taskId", b"task\\u0049d"), CREATED[:20], b"{}", b"[1]", b"x"),
    b'{"method":"notifications/progress","params":{"progress":1}}',
]
SCRAPS = [b"\n", b"\r\n", b"\r", b": ping", b"event: message", b"data", b"data:", BOM, b"}", b"id: 1"]


@st.composite
def pieces(draw: st.DrawFn) -> list[bytes]:
    """A stream as it may come: mostly event by event, some of it cut anywhere."""
    end = draw(st.sampled_from([b"\n", b"\n", b"\r\n", b"\r"]))
    events = []
    for message in draw(st.lists(st.sampled_from(MESSAGES), min_size=1, max_size=6)):
        lines = [b"data: " + message]
        if draw(st.booleans()):  # in two lines, as one value
            at = draw(st.integers(0, len(message)))
            lines = [b"data: " + message[:at], b"data: " + message[at:]]
        events.append(end.join([*lines, b"", b""]))
    for at in draw(st.lists(st.integers(0, len(events)), max_size=3)):
        events.insert(at, b"".join(draw(st.lists(st.sampled_from(SCRAPS), max_size=4))))
    if draw(st.integers(0, 2)) == 0:
        return cut(b"".join(events), draw(CUTS))
    return [event for event in events if event]


@settings(deadline=None, max_examples=1500)
@given(pieces(), st.sampled_from(["tools/call", "tasks/get", "tasks/update"]))
def test_any_stream_teaches_the_same(stream: list[bytes], method: str) -> None:
    told = []
    for passing in (True, False):
        scene, store = Scene(Background()), MemoryPinStore(ttl=100, capacity=10, clock=lambda: 0.0)
        watch = scene.watch(store, reader=EventReader(), method=method, name="t-1")
        for piece in stream:
            if passing and watch.passes(piece):
                scene.left += piece
            else:
                scene.feed(watch, piece)
        scene.end(watch)
        told.append((scene.left, scene.noticed, scene.counted.reasons, watch.outcome, len(store), store.held()))
    assert told[0] == told[1]
    assert told[0][0] == b"".join(stream)


@pytest.mark.parametrize("end", [b"\n", b"\r\n"])
def test_most_events_pass_once_the_stream_has_begun(end: bytes) -> None:
    scene = Scene(Background())
    watch = scene.watch(MemoryPinStore(ttl=100, capacity=10, clock=lambda: 0.0), reader=EventReader())
    event = b"data: " + MESSAGES[-1] + end + end
    assert not watch.passes(event)
    scene.feed(watch, event)
    assert watch.passes(event)
    assert watch.passes(event * 3)
    assert watch.passes(b": " + b"x" * MESSAGE_LIMIT + end + end)
    assert not watch.passes(event[:-1])
    assert not watch.passes(b"data: " + CREATED + end + end)
    scene.feed(watch, event[:9])
    assert not watch.passes(event)
    scene.feed(watch, event[9:])
    assert watch.passes(event)


def test_nothing_passes_a_reader_of_json() -> None:
    scene = Scene(Background())
    watch = scene.watch(MemoryPinStore(ttl=100, capacity=10, clock=lambda: 0.0), reader=JsonReader())
    assert not watch.passes(b"{}\n\n")
