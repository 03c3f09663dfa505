"""Messages come out whole, however the stream was cut up."""

import pytest

from bench.framing import MAX_HEAD_BYTES, FramingError, Message, MessageReader, content_length, field

FIRST = Message(b"POST /mcp HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\n\r\n", b"hello")
BODILESS = Message(b"GET /health HTTP/1.1\r\nHost: a\r\n\r\n", b"")
# Its body looks like a head.
LAST = Message(b"HTTP/1.1 200 OK\r\ncontent-length:  8 \r\n\r\n", b"a\r\n\r\nb\r\n")
STREAM = b"".join(head + body for head, body in (FIRST, BODILESS, LAST))


@pytest.mark.parametrize("size", [1, 2, 3, 7, len(STREAM)])
def test_messages_are_the_same_at_every_chunk_size(size: int) -> None:
    reader = MessageReader()
    messages = []
    for start in range(0, len(STREAM), size):
        messages += reader.feed(STREAM[start : start + size])
    assert messages == [FIRST, BODILESS, LAST]


def test_a_message_comes_out_with_its_last_byte_and_not_before() -> None:
    reader = MessageReader()
    whole = FIRST.head + FIRST.body
    assert reader.feed(whole[:-1]) == []
    assert reader.feed(whole[-1:]) == [FIRST]


@pytest.mark.parametrize(
    ("name", "value"),
    [
        (b"mcp-name", b"Tool_A"),
        (b"mcp-method", b"tools/call"),
        (b"name", None),  # the end of another field's name is no match
        (b"post /mcp http/1.1", None),
        (b"empty", b""),
    ],
)
def test_field_is_found_by_its_whole_name_in_any_case(name: bytes, value: bytes | None) -> None:
    head = b"POST /mcp HTTP/1.1\r\nMCP-Name: Tool_A\r\nmcp-method:\ttools/call \r\nEmpty:\r\n\r\n"
    assert field(head, name) == value


@pytest.mark.parametrize("line", [b"Content-Length: -1", b"Content-Length: 1x", b"Transfer-Encoding: chunked"])
def test_other_framing_is_refused(line: bytes) -> None:
    with pytest.raises(FramingError):
        content_length(b"HTTP/1.1 200 OK\r\n" + line + b"\r\n\r\n")


def test_a_head_without_end_is_refused() -> None:
    reader = MessageReader()
    reader.feed(b"x" * MAX_HEAD_BYTES)
    with pytest.raises(FramingError):
        reader.feed(b"x")
