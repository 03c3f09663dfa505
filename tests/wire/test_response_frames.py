"""That heads of one backend connection share a frame is never observable."""

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from proxy.routing.errors import ProxyError
from proxy.wire.response_head import ResponseFrame, ResponseHeadReader, response_for_client
from tests.wire.response_heads import (
    CHUNKED,
    CONTINUE,
    JSON_ANSWER,
    LINES,
    NO_CONTENT,
    STARTS,
    text,
)


def outcome(reader: ResponseHeadReader, head: bytes, *, to_head: bool, before: ResponseFrame | None) -> dict[str, Any]:
    """Everything that can be seen of a head: why it is refused, or what is read and sent to clients."""
    try:
        found = reader.read(head, to_head=to_head, before=before)
    except ProxyError as error:
        return {"refused": (type(error), str(error))}
    seen = {name: getattr(found.frame, name) for name in ResponseFrame.__slots__ if name != "likeness"}
    seen |= {"length": found.length, "body_length": found.body_length, "until_close": found.until_close}
    seen["interim"] = found.frame.interim
    seen["sent"] = [
        response_for_client(found, http10=http10, keep_alive=keep_alive, tag=tag)
        for tag in ("", "0123456789")
        for http10 in (False, True)
        for keep_alive in (False, True)
    ]
    return seen


def check_sequence(heads: list[tuple[bytes, bool]]) -> int:
    """Each head is read the same with any frame before it as anew; returns how often a frame was shared."""
    reader, frames, shared = ResponseHeadReader(), list[ResponseFrame](), 0
    for head, to_head in heads:
        anew = outcome(ResponseHeadReader(), head, to_head=to_head, before=None)
        assert outcome(reader, head, to_head=to_head, before=None) == anew
        for before in frames:
            assert outcome(reader, head, to_head=to_head, before=before) == anew
        if "refused" in anew:
            continue
        found = reader.read(head, to_head=to_head, before=frames[-1] if frames else None)
        shared += bool(frames) and found.frame is frames[-1]
        frames.append(found.frame)
    return shared


def changed(at: int, *lines: bytes) -> list[bytes]:
    return [*JSON_ANSWER[:at], *lines, *JSON_ANSWER[at + 1 :]]


@pytest.mark.parametrize(
    ("lines", "shared"),
    [
        (JSON_ANSWER, True),
        (changed(2, b"content-length: 0"), True),
        (changed(2, b"content-length:5"), True),
        (changed(2, b"content-length: 0099 \t"), True),
        (changed(2, b"content-length: 9223372036854775807"), True),
        (changed(2, b"content-length: 18446744073709551615"), False),
        (changed(2, b"mcp-session-id: s"), False),
        (changed(0, b"mcp-session-id: s"), False),
        (changed(2, b"Content-Length: 17"), False),
        (changed(2, b"content-length: x"), False),
        (changed(2, b"content-length:"), False),
        (changed(2, b"content-length: 1, 1"), False),
        (changed(2, b"content-lengths: 17"), False),
        (changed(2, b"transfer-encoding: chunked"), False),
        (changed(2, b"x: 17"), False),
        (changed(2), False),
        (changed(2, b"content-length: 17", b"content-length: 17"), False),
        (changed(0, b"content-length: 17"), False),
        (changed(0, b"transfer-encoding: chunked"), False),
        (changed(0, b"date: tomorrow"), False),
        (changed(0, b"connection: close"), False),
        (changed(1, b"content-type: text/event-stream"), False),
        ([*JSON_ANSWER, b"x: y"], False),
        (JSON_ANSWER[::-1], False),
    ],
)
def test_a_frame_is_shared_only_by_heads_that_differ_in_length(lines: list[bytes], shared: bool) -> None:
    assert check_sequence([(text(*JSON_ANSWER), False), (text(*lines), False)]) == shared


@pytest.mark.parametrize("start", [b"HTTP/1.1 200 ok", b"HTTP/1.1 201 OK", b"HTTP/1.0 200 OK", NO_CONTENT, CONTINUE])
def test_status_lines_are_not_shared(start: bytes) -> None:
    assert check_sequence([(text(*JSON_ANSWER), False), (text(*JSON_ANSWER, start=start), False)]) == 0


def test_answers_to_head_do_not_share_with_others() -> None:
    head = text(*JSON_ANSWER)
    assert check_sequence([(head, False), (head, True), (head, True), (head, False)]) == 1


def test_heads_without_a_length_share_too() -> None:
    for lines in ([], [CHUNKED], [b"x: y"]):
        assert check_sequence([(text(*lines), False)] * 3) == 2


LENGTHS = st.text("0123456789 \t,+", max_size=21).map(str.encode)


@st.composite
def heads(draw: st.DrawFn) -> list[tuple[bytes, bool]]:
    """Heads of which each is the one before with some changes, mostly of its length; and whether HEAD was asked."""
    start, to_head = draw(st.sampled_from(STARTS)), draw(st.booleans())
    lines = list(draw(st.one_of(st.permutations(JSON_ANSWER), st.lists(st.sampled_from(LINES), max_size=6))))
    made = [(text(*lines, start=start), to_head)]
    for _ in range(draw(st.integers(1, 5))):
        for kind in draw(
            st.lists(st.sampled_from(["length"] * 6 + ["set", "drop", "swap", "case", "add"]), max_size=2)
        ):
            at = draw(st.integers(0, max(0, len(lines) - 1)))
            if kind == "add" or not lines:
                lines.insert(at, draw(st.sampled_from(LINES)))
            elif kind == "length":
                for place, line in enumerate(lines):
                    if line.lower().startswith(b"content-length:"):
                        lines[place] = line[:15] + draw(LENGTHS)
            elif kind == "set":
                lines[at] = draw(st.sampled_from(LINES))
            elif kind == "drop":
                del lines[at]
            elif kind == "swap":
                lines[at], lines[0] = lines[0], lines[at]
            elif kind == "case":
                lines[at] = lines[at].swapcase()
        if draw(st.integers(0, 7)) == 0:
            start, to_head = draw(st.sampled_from(STARTS)), draw(st.booleans())
        made.append((text(*lines, start=start), to_head))
    return made


@settings(deadline=None, max_examples=300)
@given(heads())
def test_no_sequence_of_heads_shows_that_frames_are_shared(sequence: list[tuple[bytes, bool]]) -> None:
    """Not even heads that the parser in front would refuse."""
    check_sequence(sequence)


SESSION = [b"Content-Type: application/json", b"Mcp-Session-Id: s-1", b"content-length: 17"]


@pytest.mark.parametrize(
    ("lines", "shared"),
    [
        (SESSION, 1),
        ([*SESSION[:2], b"content-length: 5"], 1),
        ([SESSION[0], b"Mcp-Session-Id: s-2", SESSION[2]], 0),
        ([SESSION[0], b"Mcp-Session-Id:", SESSION[2]], 0),
        ([SESSION[0], b"mcp-session-id: s-1", SESSION[2]], 0),
        ([SESSION[0], SESSION[2], SESSION[1]], 0),
        ([SESSION[0], SESSION[2]], 0),
        ([SESSION[0], SESSION[2], b"X: y"], 0),
        ([*SESSION, SESSION[1]], 0),
    ],
)
def test_answers_of_one_session_share_a_frame_and_those_of_two_do_not(lines: list[bytes], shared: int) -> None:
    assert check_sequence([(text(*SESSION), False), (text(*lines), False)]) == shared
    assert check_sequence([(text(*lines), False), (text(*SESSION), False)]) == shared
