"""That heads of one connection share a frame is never observable, and spares the bytes to send on."""

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from proxy.routing.errors import ProxyError
from proxy.routing.headers import FORWARDED_FOR, FORWARDED_HOST, FORWARDED_PROTO
from proxy.wire.forwarding import Forwarded
from proxy.wire.limits import MAX_FIELDS, MAX_ROUTING_VALUE
from proxy.wire.request_frame import Frame
from proxy.wire.request_head import RequestHeadReader
from tests.wire.request_heads import FROM_CLIENT, FROM_PROXY, LINES, STARTS, WANTED, for_backend, parses, text

MODERN_CALL = [
    b"Accept: application/json, text/event-stream",
    b"MCP-Protocol-Version: 2026-07-28",
    b"Mcp-Method: tools/call",
    b"Mcp-Name: whoami",
    b"Content-Length: 17",
    b"Accept-Encoding: gzip",
]
HOSTS = [b"a:1", b"mcp.test", *(b"h%d" % number for number in range(9))]
UNSEEN = {
    "likeness",
    "memo",
    "name_start",
    "reader",
    "routing",
    "forwarded",
    "sent",
}  # of a frame: kept for itself, or seen in what is read and sent


def outcome(reader: RequestHeadReader, head: bytes, before: Frame | None, forwarded: Forwarded) -> dict[str, Any]:
    """Everything that can be seen of a head: why it is refused, or what is read and sent on."""
    try:
        found = reader.read(head, before)
    except ProxyError as error:
        return {"refused": (type(error), str(error))}
    frame = found.frame
    seen = {name: getattr(frame, name) for name in Frame.__slots__ if name not in UNSEEN}
    seen |= found._asdict()
    seen["frame"] = None  # itself is what may be shared
    seen["fault"] = (type(found.fault), str(found.fault))
    seen["told"] = {kind: frame.forwarded.get(kind) for kind in (FORWARDED_FOR, FORWARDED_PROTO, FORWARDED_HOST)}
    seen["sent"] = []
    for host in HOSTS:
        for target, session in ((b"/mcp", b"own-1"), (frame.path + frame.query, b"own-1"), (b"/mcp", b"own-2")):
            out = for_backend(found, target=target, host=host, session=session, forwarded=forwarded)
            assert out.startswith(b"%b %b HTTP/1.1\r\nHost: %b\r\n" % (frame.verb, target, host))
            assert (b": %b\r\n" % session in out) is bool(frame.session_prefix)
            seen["sent"].append(out)
        seen["sent"].append(for_backend(found, host=host, forwarded=forwarded, whole=5))
    return seen


def check_sequence(heads: list[bytes], forwarded: Forwarded = FROM_CLIENT) -> int:
    """Each head is read the same with any frame before it as anew; returns how often a frame was shared."""
    reader, frames, shared = RequestHeadReader(WANTED), list[Frame](), 0
    for head in heads:
        anew = outcome(RequestHeadReader(WANTED), head, None, forwarded)
        assert outcome(reader, head, None, forwarded) == anew  # nor does what a reader remembers change anything
        for before in frames:
            assert outcome(reader, head, before, forwarded) == anew
        if "refused" in anew:
            continue
        found = reader.read(head, frames[-1] if frames else None)
        shared += bool(frames) and found.frame is frames[-1]
        frames.append(found.frame)
    return shared


def changed(at: int, *lines: bytes) -> list[bytes]:
    """The modern call with other lines in place of one."""
    return [*MODERN_CALL[:at], *lines, *MODERN_CALL[at + 1 :]]


@pytest.mark.parametrize(
    ("lines", "shared"),
    [
        (MODERN_CALL, True),
        (changed(3, b"Mcp-Name: other"), True),
        (changed(3, b"Mcp-Name:other\t"), True),
        (changed(3, b"Mcp-Name:"), True),
        (changed(3, b"Mcp-Name: Mcp-Name: x"), True),
        (changed(3, b"Mcp-Name: \xe9"), True),
        (changed(3, b"Mcp-Name: " + b"x" * 7000), True),
        (changed(4, b"Content-Length: 0"), True),
        (changed(4, b"Content-Length:5"), True),
        (changed(4, b"Content-Length: 0099 "), True),
        (changed(4, b"Content-Length: 9223372036854775807"), True),
        (changed(4, b"Content-Length: 18446744073709551615"), False),
        (changed(3, b"Mcp-Name: " + b"x" * (MAX_ROUTING_VALUE + 1)), False),
        (changed(3, b"mcp-name: whoami"), False),
        (changed(3, b"Mcp-Names: whoami"), False),
        (changed(3, b"Mcp-Nam: whoami"), False),
        (changed(3, b"Mcp_Name: whoami"), False),
        (changed(3, b"X: whoami"), False),
        (changed(3), False),
        (changed(3, b"Mcp-Name: whoami", b"Mcp-Name: whoami"), False),
        (changed(0, b"Mcp-Name: other"), False),
        (changed(4, b"content-length: 17"), False),
        (changed(4, b"Content-Length: 17", b"Content-Length: 17"), False),
        (changed(4, b"Transfer-Encoding: chunked"), False),
        (changed(4, b"X: 17"), False),
        (changed(4), False),
        (changed(4, b"Content-Length: x"), False),
        (changed(4, b"Content-Length: 1_7"), False),
        (changed(4, b"Content-Length: 17, 17"), False),
        (changed(0, b"Content-Length: 17"), False),
        (changed(0, b"Connection: close"), False),
        (changed(0, b"Connection: mcp-name"), False),
        (changed(1, b"MCP-Protocol-Version: 2025-11-25"), False),
        (changed(2, b"Mcp-Method: tasks/get"), False),
        (changed(5, b"Accept-Encoding: br"), False),
        ([*MODERN_CALL, b"X: y"], False),
        (MODERN_CALL[::-1], False),
    ],
)
def test_a_frame_is_shared_only_by_heads_that_differ_in_name_and_length(lines: list[bytes], shared: bool) -> None:
    assert check_sequence([text(*MODERN_CALL), text(*lines)]) == shared


def test_request_lines_and_hosts_are_not_shared() -> None:
    for start in (b"GET /mcp HTTP/1.1", b"POST /mcp?x HTTP/1.1", b"POST /mcp HTTP/1.0", b"HEAD /mcp HTTP/1.1"):
        assert check_sequence([text(*MODERN_CALL), text(*MODERN_CALL, start=start)]) == 0
    for host in (b"Host: other", b"Host: mcp.test:80", b"host: mcp.test"):
        assert check_sequence([text(*MODERN_CALL), text(*MODERN_CALL, host=host)]) == 0


def test_heads_without_name_or_length_share_too() -> None:
    for lines in ([], [b"Mcp-Name: a"], [b"Content-Length: 1"], [b"Content-Length: 1", b"X: y", b"Mcp-Name: a"]):
        assert check_sequence([text(*lines)] * 3) == 2


def test_a_head_with_a_fault_is_never_shared() -> None:
    """Otherwise a head that follows it could do without its fault, or one without fault with it."""
    faulty = text(*MODERN_CALL, b"Mcp-Name: again")
    assert check_sequence([faulty, faulty, text(*MODERN_CALL), faulty]) == 0


def test_heads_around_the_size_up_to_which_frames_are_shared() -> None:
    empty = len(text(*changed(3, b"Mcp-Name: ")))
    lengths = [MAX_ROUTING_VALUE + more for more in (-empty - 1, -empty, 1 - empty, -11, -1, 0, 1, 2)]
    heads = [text(*changed(3, b"Mcp-Name: " + b"x" * length)) for length in lengths]
    assert check_sequence([text(*MODERN_CALL), *heads, *reversed(heads)]) > 2


def test_a_frame_belongs_to_its_reader() -> None:
    """Another one may look at other fields: its configuration is not the same."""
    first = RequestHeadReader(frozenset()).read(text(*MODERN_CALL, b"X-Tenant: acme"))
    second = RequestHeadReader(WANTED).read(text(*MODERN_CALL, b"X-Tenant: acme"), first.frame)
    assert second.frame is not first.frame
    assert second.routing.fields == {"x-tenant": "acme"}


def test_what_is_kept_ready_is_used_again() -> None:
    """For the same target, host and session alone; whatever the name, the length, and who has the body."""
    reader = RequestHeadReader(WANTED)
    first = reader.read(text(*MODERN_CALL, b"Mcp-Session-Id: x"))
    for_backend(first)
    (key,) = first.frame.sent
    assert key == (b"/mcp", b"a:1", b"s-1")
    first.frame.sent[key] = b"ready "
    for number in range(3):
        head = reader.read(text(*changed(3, b"Mcp-Name: %d" % number), b"Mcp-Session-Id: x"), first.frame)
        assert for_backend(head) == b"ready Mcp-Name: %d\r\nContent-Length: 17\r\n\r\n" % number
        assert for_backend(head, whole=5) == b"ready Mcp-Name: %d\r\nContent-Length: 5\r\n\r\n" % number
    for other in (for_backend(first, target=b"/x"), for_backend(first, host=b"b:1"), for_backend(first, session=b"s")):
        assert other.startswith(b"POST ")
    assert len(first.frame.sent) == 4
    anew = reader.read(text(*MODERN_CALL, b"Mcp-Session-Id: x"))
    assert for_backend(anew).startswith(b"POST /mcp HTTP/1.1\r\n")


@pytest.mark.parametrize("which", ["target", "host", "session"])
def test_no_more_is_kept_ready_than_a_few_heads(which: str) -> None:
    """Targets come from clients, but a frame has one; sessions differ from frame to frame as well."""
    head = RequestHeadReader(WANTED).read(text(*MODERN_CALL, b"Mcp-Session-Id: x"))
    for number in range(100):
        value = b"v%d" % number
        out = for_backend(
            head,
            target=value if which == "target" else b"/mcp",
            host=value if which == "host" else b"a:1",
            session=value if which == "session" else b"s-1",
        )
        assert value in out
        assert len(head.frame.sent) <= 8


def test_what_a_reader_remembers_is_bounded() -> None:
    """Names of fields and hosts come from clients."""
    reader = RequestHeadReader(WANTED)
    for number in range(30):
        lines = [b"X-%d-%d: 1" % (number, other) for other in range(MAX_FIELDS - 1)]
        assert reader.read(text(*lines, host=b"Host: h%d" % number)).fault is None
        assert len(reader.memos()) <= 2 * 4096
    reader.read(text(b"X" * 1000 + b": 1"))
    assert max(map(len, reader.memos())) <= 100
    assert b"X-29-0" in reader.memos()


def test_more_hosts_than_are_kept_ready() -> None:
    """With `host: backend` each backend is sent its own name."""
    reader = RequestHeadReader(WANTED)
    first = reader.read(text(*MODERN_CALL))
    for number in [*range(50), *range(50)]:
        head = reader.read(text(*changed(3, b"Mcp-Name: %d" % number)), first.frame)
        out = for_backend(head, host=b"h%d" % number)
        assert b"\r\nHost: h%d\r\n" % number in out
        assert b"\r\nMcp-Name: %d\r\n" % number in out
        assert len(first.frame.sent) <= 8


NAMES = [line for line in LINES if line.lower().startswith((b"mcp-name", b"mcp_name"))]
LENGTHS = [line for line in LINES if line.lower().startswith((b"content", b"transfer"))]
HOST_LINES = [b"Host: mcp.test", b"Host: other.test:80", b"host: mcp.test", b"Host:mcp.test "]


VALUES = st.one_of(st.binary(max_size=12), st.integers(8000, 8300).map(lambda size: b"v" * size)).filter(
    lambda value: not any(byte < 32 or byte == 127 for byte in value)
)
DIGITS = st.text("0123456789 \t,+", max_size=21).map(str.encode)


def change(draw: st.DrawFn, lines: list[bytes]) -> None:
    """Changes some of a head's fields: mostly the two that may differ between heads that share a frame."""
    kind = draw(
        st.sampled_from(["name"] * 4 + ["length"] * 4 + ["set", "drop", "swap", "again", "case", "add", "blank"])
    )
    if kind in ("name", "length"):
        start, others, values = (
            (b"mcp-name:", NAMES, VALUES) if kind == "name" else (b"content-length:", LENGTHS, DIGITS)
        )
        for at, line in enumerate(lines):
            if line.lower().startswith(start):
                lines[at] = draw(st.one_of(st.sampled_from(others), values.map(line[: len(start)].__add__)))
        return
    if kind == "add" or not lines:
        lines.insert(draw(st.integers(0, len(lines))), draw(st.sampled_from(LINES)))
        return
    at, other = draw(st.integers(0, len(lines) - 1)), draw(st.integers(0, len(lines) - 1))
    if kind == "set":
        lines[at] = draw(st.sampled_from(LINES))
    elif kind == "drop":
        del lines[at]
    elif kind == "swap":
        lines[at], lines[other] = lines[other], lines[at]
    elif kind == "again":
        lines.insert(other, lines[at])
    elif kind == "case":
        lines[at] = lines[at].swapcase()
    elif kind == "blank":
        lines[at] = draw(st.sampled_from([lines[at] + b" ", lines[at].replace(b": ", b":", 1)]))


@st.composite
def heads(draw: st.DrawFn) -> list[bytes]:
    """Heads of which each is the one before with some changes."""
    start, host = draw(st.sampled_from(STARTS)), draw(st.sampled_from(HOST_LINES))
    lines = list(draw(st.one_of(st.permutations(MODERN_CALL), st.lists(st.sampled_from(LINES), max_size=8))))
    lines.insert(draw(st.integers(0, len(lines))), host)
    made = [text(*lines, start=start, host=None)]
    for _ in range(draw(st.integers(1, 5))):
        for _ in range(draw(st.integers(0, 2))):
            change(draw, lines)
        if draw(st.integers(0, 7)) == 0:
            start = draw(st.sampled_from(STARTS))
        made.append(text(*lines, start=start, host=None))
    return [head for head in made if parses(head)]


@settings(deadline=None, max_examples=300)
@given(heads(), st.sampled_from([FROM_CLIENT, FROM_PROXY]))
def test_no_sequence_of_heads_shows_that_frames_are_shared(sequence: list[bytes], forwarded: Forwarded) -> None:
    check_sequence(sequence, forwarded)
