"""Limits on a request's head, and faults of heads that can be read all the same."""

import pytest

from proxy.routing.errors import DuplicateHeader, HeadTooLarge
from proxy.wire.limits import MAX_FIELDS, MAX_HEAD, MAX_ROUTING_VALUE
from proxy.wire.request_head import MAX_PARAMS
from tests.wire.request_heads import read, text


@pytest.mark.parametrize(
    ("lines", "start", "reason"),
    [
        ([b"X-%d: 1" % number for number in range(MAX_FIELDS - 1)], b"POST /mcp HTTP/1.1", None),
        ([b"X-%d: 1" % number for number in range(MAX_FIELDS)], b"POST /mcp HTTP/1.1", "fields"),
        ([b"X: " + b"x" * (MAX_HEAD - len(text(b"X: ")))], b"POST /mcp HTTP/1.1", None),
        ([b"X: " + b"x" * (MAX_HEAD + 1 - len(text(b"X: ")))], b"POST /mcp HTTP/1.1", "bytes"),
        ([], b"POST /" + b"x" * (MAX_HEAD + 1 - len(text(start=b"POST / HTTP/1.1"))) + b" HTTP/1.1", "bytes"),
    ],
)
def test_limits_of_a_head(lines: list[bytes], start: bytes, reason: str | None) -> None:
    if reason is None:
        assert read(*lines, start=start).fault is None
    else:
        with pytest.raises(HeadTooLarge, match=reason):
            read(*lines, start=start)


FIELDS_WITH_A_LIMIT = [b"Mcp-Name", b"Mcp-Method", b"MCP-Protocol-Version", b"Mcp-Session-Id", b"Mcp-Param-Region"]


@pytest.mark.parametrize("name", FIELDS_WITH_A_LIMIT)
def test_a_routing_value_over_the_limit_is_a_fault_of_a_readable_head(name: bytes) -> None:
    """The head can be answered without closing: where its body ends is known."""
    assert read(name + b": " + b"x" * MAX_ROUTING_VALUE + b" ").fault is None
    head = read(name + b": " + b"x" * (MAX_ROUTING_VALUE + 1), b"Content-Length: 3")
    assert isinstance(head.fault, HeadTooLarge)
    assert head.length == 3


def test_the_limit_is_for_every_mcp_field() -> None:
    assert isinstance(read(b"Mcp-Unknown: " + b"x" * (MAX_ROUTING_VALUE + 1)).fault, HeadTooLarge)


def test_a_fault_for_too_many_params() -> None:
    assert read(*[b"Mcp-Param-%d: 1" % number for number in range(MAX_PARAMS)]).fault is None
    assert isinstance(read(*[b"Mcp-Param-%d: 1" % number for number in range(MAX_PARAMS + 1)]).fault, HeadTooLarge)


@pytest.mark.parametrize("name", ["Mcp-Method", "Mcp-Name", "MCP-Protocol-Version", "Mcp-Session-Id"])
def test_a_fault_for_a_routing_header_that_comes_twice(name: str) -> None:
    for lines in ([f"{name}: a", f"{name}: a"], [f"{name}: a", f"{name.upper()}: b"], [f"{name}:", "X: y", f"{name}:"]):
        head = read(*(line.encode() for line in lines))
        assert isinstance(head.fault, DuplicateHeader)
        assert str(head.fault) == f"{name} comes more than once"


@pytest.mark.parametrize(
    ("versions", "modern"),
    [
        (["2026-07-28", "2026-07-28"], True),
        (["2026-07-28", "2027-01-01"], True),
        (["2026-07-28", "2025-11-25"], False),
        (["2025-11-25", "2026-07-28"], False),
        (["2026-07-28", ""], False),
    ],
)
def test_the_era_of_a_repeated_version(versions: list[str], modern: bool) -> None:
    """It decides the code of the refusal: a client that names a legacy version must not see -32020."""
    head = read(*(b"MCP-Protocol-Version: " + version.encode() for version in versions))
    assert isinstance(head.fault, DuplicateHeader)
    assert head.routing.modern is modern


@pytest.mark.parametrize(
    ("lines", "start", "kind", "label"),
    [
        (["2026-07-28", "tasks/get"], b"POST /mcp HTTP/1.1", "task", "tasks/get"),
        (["2026-07-28", "tasks/get"], b"GET /mcp HTTP/1.1", "none", "tasks/get"),
        (["2026-07-28", "tools/call", "s-1"], b"POST /mcp HTTP/1.1", "none", "tools/call"),
        (["2026-07-28", "secret/method"], b"POST /mcp HTTP/1.1", "none", "other"),
        (["2025-11-25", "tools/call", "s-1"], b"POST /mcp HTTP/1.1", "session", "other"),
        (["2025-11-25", "tasks/get", ""], b"DELETE /mcp HTTP/1.1", "session", "other"),
        (["2025-11-25", "tools/call"], b"POST /mcp HTTP/1.1", "none", "other"),
    ],
)
def test_what_a_request_is_to_metrics(lines: list[str], start: bytes, kind: str, label: str) -> None:
    names = ("MCP-Protocol-Version", "Mcp-Method", "Mcp-Session-Id")
    frame = read(*(f"{name}: {value}".encode() for name, value in zip(names, lines, strict=False)), start=start).frame
    assert (frame.kind, frame.label) == (kind, label)


def test_no_fault_for_other_fields_that_come_twice() -> None:
    assert read(b"Mcp-Param-A: 1", b"Mcp-Param-A: 2", b"X: 1", b"X: 1", b"Mcp_Name: a", b"Mcp-Name: b").fault is None
