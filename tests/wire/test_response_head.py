"""Heads of responses: what is read, refused and sent to clients."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from proxy.routing.errors import BadResponse, ProxyError
from proxy.wire.limits import MAX_FIELDS
from proxy.wire.response_head import ResponseHeadReader, response_for_client
from tests.wire.response_heads import (
    CHUNKED,
    CLOSE,
    CONTINUE,
    HOP_BY_HOP,
    KEEP,
    LENGTH,
    LINES,
    NO_CONTENT,
    OK,
    STARTS,
    parses,
    read,
    sent,
    text,
)


@pytest.mark.parametrize(
    ("start", "status", "line"),
    [
        (b"HTTP/1.1 200 OK", 200, b"HTTP/1.1 200 OK"),
        (b"HTTP/1.0 200 OK", 200, b"HTTP/1.1 200 OK"),
        (b"HTTP/1.1 200 ", 200, b"HTTP/1.1 200 "),
        (b"HTTP/1.1 200", 200, b"HTTP/1.1 200 "),
        (b"HTTP/1.1 404 Not \tFound \xe9", 404, b"HTTP/1.1 404 Not \tFound \xe9"),
        (b"HTTP/1.1 100 Continue", 100, b"HTTP/1.1 100 Continue"),
        (b"HTTP/1.1 999 x", 999, b"HTTP/1.1 999 x"),
        (b"HTTP/1.1 200  OK", 200, b"HTTP/1.1 200  OK"),
    ],
)
def test_status_line(start: bytes, status: int, line: bytes) -> None:
    head = read(start=start)
    assert head.frame.status == status
    assert head.frame.interim is (status < 200)
    assert sent(head)[0] == line


@pytest.mark.parametrize(
    "start",
    [
        b"HTTP/1.1 099 x",
        b"HTTP/1.1 20 x",
        b"HTTP/1.1 2000 x",
        b"HTTP/1.1  200 OK",
        b"HTTP/1.2 200 OK",
        b"HTTP/2 200 OK",
        b"http/1.1 200 OK",
        b"HTTP/1.1 200 O\x00K",
        b"HTTP/1.1 200 O\x7fK",
        b"HTTP/1.1 2x0 OK",
        b"HTTP/1.1",
        b"",
    ],
)
def test_status_lines_that_are_refused(start: bytes) -> None:
    with pytest.raises(BadResponse):
        read(start=start)


@pytest.mark.parametrize(
    ("start", "lines", "to_head", "body_length", "chunked", "until_close"),
    [
        (OK, [LENGTH], False, 5, False, False),
        (OK, [b"content-length: \t005 "], False, 5, False, False),
        (OK, [b"Content-Length: 0"], False, 0, False, False),
        (OK, [CHUNKED], False, None, True, False),
        (OK, [b"transfer-encoding: Chunked"], False, None, True, False),
        (OK, [], False, None, False, True),
        (b"HTTP/1.0 200 OK", [], False, None, False, True),
        (b"HTTP/1.0 200 OK", [LENGTH], False, 5, False, False),
        # without a body, whatever the fields say
        (OK, [LENGTH], True, 0, False, False),
        (OK, [CHUNKED], True, 0, False, False),
        (OK, [], True, 0, False, False),
        (b"HTTP/1.1 204 No Content", [], False, 0, False, False),
        (b"HTTP/1.1 204 No Content", [LENGTH], False, 0, False, False),
        (b"HTTP/1.1 204 No Content", [CHUNKED], False, 0, False, False),
        (b"HTTP/1.1 304 Not Modified", [LENGTH], False, 0, False, False),
        (b"HTTP/1.1 100 Continue", [], False, 0, False, False),
        (b"HTTP/1.1 205 Reset Content", [LENGTH], False, 5, False, False),
    ],
)
def test_framing(
    start: bytes, lines: list[bytes], to_head: bool, body_length: int | None, chunked: bool, until_close: bool
) -> None:
    head = read(*lines, start=start, to_head=to_head)
    assert (head.body_length, head.frame.chunked, head.until_close) == (body_length, chunked, until_close)


@pytest.mark.parametrize(
    ("start", "lines"),
    [
        (OK, [LENGTH, LENGTH]),
        (OK, [LENGTH, b"content-length: 6"]),
        (OK, [b"Content-Length: 5, 5"]),
        (OK, [b"Content-Length:"]),
        (OK, [b"Content-Length: +5"]),
        (OK, [b"Content-Length: 5_0"]),
        (OK, [b"Content-Length: \xb2"]),
        (OK, [LENGTH, CHUNKED]),
        (OK, [CHUNKED, LENGTH]),
        (OK, [CHUNKED, CHUNKED]),
        (OK, [b"Transfer-Encoding: gzip, chunked"]),
        (OK, [b"Transfer-Encoding: gzip"]),
        (OK, [b"Transfer-Encoding:"]),
        (b"HTTP/1.0 200 OK", [CHUNKED]),
        (b"HTTP/1.1 204 No Content", [LENGTH, CHUNKED]),
        (OK, [b"X-%d: 1" % number for number in range(MAX_FIELDS + 1)]),
    ],
)
def test_heads_that_are_refused(start: bytes, lines: list[bytes]) -> None:
    for to_head in (False, True):
        with pytest.raises(BadResponse):
            read(*lines, start=start, to_head=to_head)


def test_as_many_fields_as_allowed() -> None:
    assert len(sent(read(*[b"X-%d: 1" % number for number in range(MAX_FIELDS)]))) == MAX_FIELDS + 2


def test_a_length_of_many_zeros_is_read_or_refused() -> None:
    line = b"Content-Length: " + b"0" * 5000 + b"5"
    assert parses(text(line))
    try:
        length = read(line).length
    except ProxyError:
        return
    assert length == 5


@pytest.mark.parametrize(
    ("start", "lines", "keep_alive"),
    [
        (OK, [LENGTH], True),
        (OK, [CHUNKED], True),
        (OK, [], False),
        (OK, [b"Connection: keep-alive"], False),
        (OK, [LENGTH, b"Connection: close"], False),
        (OK, [LENGTH, b"connection: Keep-Alive , CLOSE"], False),
        (OK, [LENGTH, b"Connection: keep-alive", b"Connection: close"], False),
        (OK, [LENGTH, b"Connection: x"], True),
        (b"HTTP/1.1 204 No Content", [], True),
        (b"HTTP/1.0 200 OK", [LENGTH], False),
        (b"HTTP/1.0 200 OK", [LENGTH, b"Connection: keep-alive"], True),
        (b"HTTP/1.0 200 OK", [b"Connection: keep-alive"], False),
    ],
)
def test_keep_alive(start: bytes, lines: list[bytes], keep_alive: bool) -> None:
    assert read(*lines, start=start).frame.keep_alive is keep_alive


@pytest.mark.parametrize(
    ("lines", "content_type", "encoded"),
    [
        ([], b"", False),
        ([b"Content-Type: application/json"], b"application/json", False),
        ([b"content-type:Text/Event-Stream ; charset=UTF-8"], b"text/event-stream", False),
        ([b"Content-Type: application/json;"], b"application/json", False),
        ([b"Content-Type:"], b"", False),
        ([b"Content-Encoding: gzip"], b"", True),
        ([b"Content-Encoding: Identity "], b"", False),
        ([b"Content-Encoding: identity", b"Content-Encoding: br"], b"", True),
        ([b"Content-Encoding: br", b"Content-Encoding: identity"], b"", True),
    ],
)
def test_what_a_watcher_asks(lines: list[bytes], content_type: bytes, encoded: bool) -> None:
    frame = read(*lines).frame
    assert (frame.content_type, frame.encoded) == (content_type, encoded)


def test_end_to_end_fields_leave_as_they_came_and_hop_by_hop_fields_do_not() -> None:
    kept = [b"Content-Type: text/html", b"x-a:  1 ", b"X-A: 2", b"X-Empty:", b"Mcp-Session-Id: s", b"Set-Cookie: \xe9"]
    kept += [b"X-Accel-Buffering: no", b"Content-Encoding: gzip"]
    head = read(*kept[:3], *HOP_BY_HOP, LENGTH, *kept[3:])
    session = kept.pop(4)
    assert sent(head) == [OK, *kept, LENGTH, session]


def test_every_field_that_connection_names_ends_here() -> None:
    """RFC 9110, 7.6.1."""
    assert sent(read(b"Connection: X-A, x-b", b"X-A: 1", b"X-B: 2", b"X-C: 3", LENGTH)) == [OK, b"X-C: 3", LENGTH]
    assert sent(read(b"X-A: 1", b"x-a:2", LENGTH, b"Connection: close", b"Connection: ,x-A ,")) == [OK, LENGTH]


@pytest.mark.parametrize(
    "line", [b"Content-Type: a/b", b"Content-Length: 5", b"Mcp-Session-Id: s-1", b"Content-Encoding: gzip", b"Mcp-X: y"]
)
def test_connection_takes_no_field_that_tells_what_the_answer_is(line: bytes) -> None:
    head = read(line, b"Connection: " + line.partition(b":")[0].lower(), b"X-A: 1")
    assert line in sent(head)
    assert (head.frame.content_type, head.frame.encoded, head.length, head.frame.session) == {
        b"Content-Type: a/b": (b"a/b", False, None, ""),
        b"Content-Length: 5": (b"", False, 5, ""),
        b"Mcp-Session-Id: s-1": (b"", False, None, "s-1"),
        b"Content-Encoding: gzip": (b"", True, None, ""),
        b"Mcp-X: y": (b"", False, None, ""),
    }[line]


@pytest.mark.parametrize(
    ("line", "session", "plain", "tagged"),
    [
        (b"Mcp-Session-Id: s-1", "s-1", b"Mcp-Session-Id: s-1", b"Mcp-Session-Id: 0123456789.s-1"),
        (b"mcp-session-id:s-1 \t", "s-1", b"mcp-session-id: s-1", b"mcp-session-id: 0123456789.s-1"),
        (b"Mcp-Session-Id: a.b.c", "a.b.c", b"Mcp-Session-Id: a.b.c", b"Mcp-Session-Id: 0123456789.a.b.c"),
        (b"Mcp-Session-Id: \xe9", "\xe9", b"Mcp-Session-Id: \xe9", b"Mcp-Session-Id: 0123456789.\xe9"),
        (b"Mcp-Session-Id:", "", b"Mcp-Session-Id: ", b"Mcp-Session-Id: "),
        (b"Mcp_Session_Id: s-1", "", b"Mcp_Session_Id: s-1", b"Mcp_Session_Id: s-1"),
        (b"X: s-1", "", b"X: s-1", b"X: s-1"),
    ],
)
@pytest.mark.parametrize("keep_alive", [True, False])
@pytest.mark.parametrize("start", [OK, b"HTTP/1.1 404 Not Found", NO_CONTENT])
def test_a_session_s_id_gets_its_tag(
    start: bytes, keep_alive: bool, line: bytes, session: str, plain: bytes, tagged: bytes
) -> None:
    """Where sessions are kept on their backends; else it is passed with the value it came with."""
    head = read(LENGTH, line, b"X-A: 1", start=start)
    assert head.frame.session == session
    assert bool(head.frame.session_prefix) is line.lower().startswith(b"mcp-")
    for tag, expected in (("", plain), ("0123456789", tagged)):
        for http10 in (False, True):
            out = sent(head, http10=http10, keep_alive=keep_alive, tag=tag)
            assert sorted(out) == sorted(
                [
                    start,
                    expected,
                    b"X-A: 1",
                    *([LENGTH] if start != NO_CONTENT else []),
                    *([CLOSE] if not keep_alive else [KEEP] if http10 else []),
                ]
            )


def test_a_session_s_id_must_come_once() -> None:
    for line in (b"Mcp-Session-Id: b", b"mcp-session-id: a", b"Mcp-Session-Id:"):
        with pytest.raises(BadResponse, match="Mcp-Session-Id twice"):
            read(b"Mcp-Session-Id: a", LENGTH, line)


@pytest.mark.parametrize(
    ("start", "lines", "to_head", "http11", "http10"),
    [
        (OK, [LENGTH], False, [LENGTH], [LENGTH]),
        (OK, [b"content-length: 005"], False, [LENGTH], [LENGTH]),
        (OK, [CHUNKED], False, [CHUNKED], []),
        (OK, [], False, [CHUNKED], []),
        (OK, [LENGTH], True, [LENGTH], [LENGTH]),
        (OK, [CHUNKED], True, [], []),
        (OK, [], True, [], []),
        (NO_CONTENT, [], False, [], []),
        (NO_CONTENT, [LENGTH], False, [], []),
        (NO_CONTENT, [CHUNKED], False, [], []),
        (b"HTTP/1.1 304 Not Modified", [LENGTH], False, [LENGTH], [LENGTH]),
        (b"HTTP/1.1 304 Not Modified", [], False, [], []),
        (CONTINUE, [LENGTH], False, [], []),
    ],
)
def test_how_a_body_is_announced(
    start: bytes, lines: list[bytes], to_head: bool, http11: list[bytes], http10: list[bytes]
) -> None:
    head = read(*lines, start=start, to_head=to_head)
    assert sent(head) == [start, *http11]
    assert sent(head, keep_alive=False) == [start, *http11, CLOSE]
    assert sent(head, http10=True) == [start, *http10, KEEP]
    assert sent(head, http10=True, keep_alive=False) == [start, *http10, CLOSE]


@settings(deadline=None, max_examples=200)
@given(st.lists(st.one_of(st.sampled_from(LINES), st.binary(max_size=20)), max_size=8), st.sampled_from(STARTS))
def test_any_head_that_parses_is_read_or_refused(lines: list[bytes], start: bytes) -> None:
    """And what is sent to a client parses again, and is framed by one thing alone."""
    head = text(*lines, start=start)
    if not parses(head):
        return
    try:
        found = ResponseHeadReader().read(head, to_head=False)
    except BadResponse:
        return
    for http10 in (False, True):
        out = response_for_client(found, http10=http10, keep_alive=False, tag="0123456789")
        again = ResponseHeadReader().read(out, to_head=False)
        assert parses(out)
        assert again.frame.status == found.frame.status
        assert not again.frame.keep_alive
        assert again.body_length == found.body_length
        assert again.frame.session == (f"0123456789.{found.frame.session}" if found.frame.session else "")
        if not found.frame.bodyless:
            assert again.frame.chunked is (found.length is None and not http10)
