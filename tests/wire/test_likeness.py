"""A message that is told by comparing it with one before is what reading it would find, to the byte."""

import re

from hypothesis import given, settings
from hypothesis import strategies as st

from proxy.routing.errors import ProxyError
from proxy.routing.headers import RoutingHeaders
from proxy.wire.limits import MAX_ROUTING_VALUE
from proxy.wire.request_frame import Frame
from proxy.wire.request_head import RequestHeadReader
from proxy.wire.request_reader import RequestReader
from tests.wire.request_heads import LINES, STARTS, WANTED, parses, text

CALL = [
    b"Accept: application/json, text/event-stream",
    b"MCP-Protocol-Version: 2026-07-28",
    b"Mcp-Method: tools/call",
    b"Mcp-Name: whoami",
    b"Content-Length: 17",
    b"Accept-Encoding: gzip",
]


# ---- requests


def named(name: bytes) -> list[bytes]:
    """The call with this name."""
    return [*CALL[:3], b"Mcp-Name: " + name, *CALL[4:]]


def likeness(lines: list[bytes], start: bytes = b"POST /mcp HTTP/1.1") -> Frame | None:
    """The frame that two heads with these lines share; None where they share none."""
    reader = RequestHeadReader(WANTED)
    try:
        first = reader.read(text(*lines, start=start))
        second = reader.read(text(*lines, start=start), first.frame)
    except ProxyError:
        return None
    return second.frame if second.frame is first.frame and parses_whole(text(*lines, start=start)) else None


def parses_whole(head: bytes) -> bool:
    """Whether the parser takes it with its body."""
    found = re.search(rb"(?i)\r\ncontent-length:[ \t]*(\d{1,3})[ \t]*\r\n", head)
    return parses(re.sub(rb"(?i)\r\ncontent-length:[^\r]*", b"", head) if found else head)


def read_whole(request: bytes) -> tuple[RoutingHeaders, int, bytes, bytes] | None:
    """What a reader finds that has seen nothing else: of one whole request, and nothing behind it."""
    reader = RequestReader()
    reader.text = request
    try:
        head = reader.read_head(RequestHeadReader(WANTED))
        while reader.in_body and reader.at < len(reader.text):
            reader.read_body()
    except ProxyError:
        return None
    if head is None or head.fault is not None or reader.in_body or reader.at < len(request):
        return None
    return head.routing, head.length, head.name_line, b"".join(reader.pieces)


def check_alike(frame: Frame, request: bytes) -> bool:
    """What is told by comparing is what a reader finds. True if it is told so."""
    alike = frame.alike(request)
    if alike is None:
        return False
    name, name_line, body = alike
    routing = frame.routing if name is None else RoutingHeaders(*frame.routing[:-1], name)
    assert read_whole(request) == (routing, len(body), name_line, body)
    return True


NAMES = st.one_of(
    st.text("ab =?-:", max_size=6).map(str.encode),
    st.binary(max_size=6),
    st.sampled_from(
        [b"a\r\nX: y", b"a\r\n", b"\r\n", b"a\r", b"\n", b"a\tb", b"\x7f", b"\xc3\xa9", b"x" * 8200, b"x" * 7000]
    ),
    st.sampled_from([b"x\r\nContent-Length: 2", b"=?base64?YQ==?=", b"x\r\n\r\n", b"x\0"]),
)
SIZES_SPELT = st.sampled_from(
    [b"%d", b"0%d", b"+%d", b" %d", b"%d ", b"%d\t", b"\t%d", b"%d, %d", b"0x%x", b"-%d", b""]
)
ORDERS = [
    CALL,
    CALL[::-1],
    [*CALL[:3], CALL[4]],
    [b"content-length:3", b"x: y", b"mcp-name:  a"],
]


@settings(deadline=None, max_examples=1500)
@given(st.sampled_from(ORDERS), NAMES, st.binary(max_size=12), st.data())
def test_a_request_that_is_told_by_comparing_is_what_a_reader_finds(
    lines: list[bytes], name: bytes, body: bytes, data: st.DataObject
) -> None:
    frame = likeness(lines)
    assert frame is not None
    changed_lines = []
    for line in lines:
        field, _, value = line.partition(b":")
        blanks = value[: len(value) - len(value.lstrip())]
        if field.lower() == b"mcp-name":
            line = b"%b:%b%b" % (field, data.draw(st.sampled_from([blanks, blanks, b"", b"  ", b"\t"])), name)
        elif field.lower() == b"content-length":
            size = len(body) + data.draw(st.sampled_from([0, 0, 0, 0, 1, -1]))
            spelt = data.draw(st.one_of(st.just(b"%d"), SIZES_SPELT))
            line = b"%b:%b%b" % (field, blanks, spelt % ((size,) * spelt.count(b"%")))
        changed_lines.append(line)
    if data.draw(st.integers(0, 9)) == 0:
        changed_lines.insert(data.draw(st.integers(0, len(lines))), data.draw(st.sampled_from(LINES)))
    check_alike(frame, text(*changed_lines) + body)


@settings(deadline=None, max_examples=500)
@given(
    st.lists(st.sampled_from(LINES), max_size=6), st.sampled_from(STARTS), st.lists(st.sampled_from(LINES), max_size=6)
)
def test_whatever_lines_the_first_had(first: list[bytes], start: bytes, second: list[bytes]) -> None:
    frame = likeness(first, start)
    if frame is not None:
        for lines in (first, second):
            for body in (b"", b"12345", b"1234567"):
                check_alike(frame, text(*lines, start=start) + body)


def test_most_requests_are_told_by_comparing() -> None:
    for lines in ORDERS:
        frame = likeness(lines)
        assert frame is not None
        for size in (0, 1, 9, 10, 999, 1000):
            sized = [
                line.partition(b":")[0] + b": %d" % size if line.startswith(b"Content-L") else line for line in lines
            ]
            sized = [b"content-length:%d" % size if line.startswith(b"content-l") else line for line in sized]
            assert check_alike(frame, text(*sized) + b"x" * size)
            assert not check_alike(frame, text(*sized) + b"x" * (size + 1))
            assert not check_alike(frame, (text(*sized) + b"x" * size)[:-1])


def test_nothing_is_told_by_comparing_that_is_answered_otherwise() -> None:
    """What closes, what is awaited with `Expect`, and what has no length."""
    for lines in ([b"Connection: close"], [b"Expect: 100-continue"], [b"Proxy-Connection: close"]):
        frame = likeness([*CALL, *lines])
        assert frame is not None and frame.likeness is None
    frame = likeness(CALL, b"POST /mcp HTTP/1.0")
    assert frame is not None and frame.likeness is None
    frame = likeness([b"Transfer-Encoding: chunked", b"Mcp-Name: a"])
    assert frame is not None and frame.likeness is None


def test_heads_around_the_limits_are_read() -> None:
    frame = likeness(CALL)
    assert frame is not None
    empty = len(text(*named(b"")))
    told = [
        check_alike(frame, text(*named(b"x" * length)) + b"x" * 17)
        for length in (
            MAX_ROUTING_VALUE - empty - 1,
            MAX_ROUTING_VALUE - empty,
            MAX_ROUTING_VALUE - empty + 1,
            MAX_ROUTING_VALUE,
        )
    ]
    assert told == [True, True, False, False]
