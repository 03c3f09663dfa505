"""What is fuzzed: each target takes bytes, feeds what they stand for to a reader, and fails if a promise is broken.

The first bytes choose how the rest is cut, or what was asked; `seeds` gives each target inputs to begin with. Nothing
here needs the fuzzer: the targets run over their seeds in the usual tests.
"""

import functools
import re
from collections.abc import Callable, Iterator
from typing import NamedTuple

from httptools import HttpParserError, HttpRequestParser

from proxy.routing.errors import FramingError, MalformedHeader
from proxy.routing.headers import decode_value
from proxy.routing.ownership import Learned, learn
from proxy.wire.framing import Chunks
from proxy.wire.merging import EventSplitter
from tests.config.samples import FULL
from tests.config.test_any_text import outcome
from tests.corpus import chunks as chunk_cases
from tests.corpus.agreement import check_requests, check_response, empty_lines_count, written
from tests.corpus.all_cases import ANSWERS, REQUESTS
from tests.corpus.inside import Inside
from tests.corpus.readers import Read, read_requests
from tests.wire.bodies import cut
from tests.wire.event_streams import check_stream

MODERN = b"MCP-Protocol-Version: 2026-07-28\r\nMcp-Method: tools/call\r\nMcp-Name: t\r\n"
_ASKED = [
    (b"POST", b"POST /mcp HTTP/1.1\r\nHost: x\r\n" + MODERN + b"Content-Length: 0\r\n\r\n"),
    (b"POST", b"POST /mcp HTTP/1.0\r\n" + MODERN + b"Content-Length: 0\r\n\r\n"),
    (b"POST", b"POST /mcp HTTP/1.1\r\nHost: x\r\nContent-Length: 0\r\n\r\n"),
    (b"HEAD", b"HEAD /mcp HTTP/1.1\r\nHost: x\r\n" + MODERN + b"Content-Length: 2\r\n\r\nhi"),
]
_CHUNKED = b"POST /mcp HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n"


class Target(NamedTuple):
    """One target. `check` raises AssertionError, or whatever else should never come up."""

    check: Callable[[bytes], None]
    seeds: Callable[[], Iterator[bytes]]
    longest: int
    """Bytes of an input: short ones are many, and the readers' limits have tests of their own."""


def pieces_of(how: bytes, text: bytes) -> list[bytes]:
    """The text in pieces, as these two bytes say: whole, in pieces of a size, or cut at two places.

    A long text is not cut into single bytes: that takes time, and short ones are.
    """
    first, second = (*how, 0, 0)[:2]
    if first < 64:
        return [text] if text else []
    if first < 128:
        return cut(text, max(1 + second % 16, len(text) // 80))
    scale = max(1, len(text)) / 256
    return cut(text, [int((first * 2 % 256) * scale), int(second * scale)])


@functools.cache
def _inside() -> Inside:
    return Inside()


def requests(data: bytes) -> None:
    """A client's bytes through the whole data path: h11 reads the same, on both sides, however they are cut."""
    text = data[2:]
    inside = _inside()
    with inside.running():
        whole, cut_up = written(inside, pieces_of(b"", text)), written(inside, pieces_of(data[:2], text))
    found = check_requests(text, whole)
    if cut_up != whole:
        again = check_requests(text, cut_up)
        if empty_lines_count(text):
            assert _up_to_an_error(*found) == _up_to_an_error(*again), f"in pieces: {again} instead of {found}"


def _up_to_an_error(requests: list[Read], statuses: list[int]) -> tuple[list[Read], list[int]]:
    """The first answer of the proxy's own ends the connection or does not, as more of its request has come or not."""
    good = next((at for at, status in enumerate(statuses) if status != 200), len(statuses))
    return requests[:good], statuses[: good + 1]


def responses(data: bytes) -> None:
    """A backend's bytes through the whole data path, likewise."""
    asked, text = data[0] % len(_ASKED) if data else 0, data[3:]
    verb, request = _ASKED[asked]
    http10 = b" HTTP/1.0\r\n" in request
    inside = _inside()
    with inside.running():
        whole = written(inside, [request], answer=pieces_of(b"", text))
        cut_up = written(inside, [request], answer=pieces_of(data[1:3], text))
    found = check_response(text, whole, verb=verb, http10=http10)
    if cut_up != whole:
        messages, is_cut = check_response(text, cut_up, verb=verb, http10=http10)
        assert is_cut is found[1]
        assert [message.start for message in messages] == [message.start for message in found[0]]
        if not (messages and messages[-1].start == (b"502",)):  # it says why, and that depends on what came first
            assert messages == found[0], f"in pieces: {messages} instead of {found[0]}"


class _Body:
    def __init__(self) -> None:
        self.text = b""
        self.complete = False

    def on_body(self, data: bytes) -> None:
        self.text += data

    def on_message_complete(self) -> None:
        self.complete = True


def _walked(pieces: list[bytes]) -> tuple[int, bool] | None:
    """How many bytes belong to the body, and whether it ended; None: refused."""
    cursor, taken = Chunks(), 0
    try:
        for piece in pieces:
            if cursor.ended:
                break
            end = cursor.end(piece, 0)
            assert 0 < end <= len(piece)
            assert end == len(piece) or cursor.ended
            taken += end
    except FramingError:
        return None
    return taken, cursor.ended


def chunks(data: bytes) -> None:
    """Where a chunked body ends: the cursor, httptools and h11 agree, or one refuses."""
    text = data[2:]
    found = _walked([text] if text else [])
    assert found == _walked(pieces_of(data[:2], text))
    if found is None or not found[1]:
        return
    body = _Body()
    parser = HttpRequestParser(body)
    try:
        parser.feed_data(_CHUNKED)
        parser.feed_data(text[: found[0] - 1])
        assert not body.complete, "the parser ends it before the cursor does"
        parser.feed_data(text[found[0] - 1 : found[0]])
    except HttpParserError:
        return
    assert body.complete, "the parser does not end it where the cursor does"
    reading = read_requests(_CHUNKED + text[: found[0]])
    assert reading.error or [message.body for message in reading.messages] == [body.text]


def events(data: bytes) -> None:
    """An event stream, cut anyhow: what an EventReader promises, and that pieces to be merged are the whole stream."""
    text = data[2:]
    pieces = pieces_of(data[:2], text)
    check_stream(text, [sum(map(len, pieces[:i])) for i in range(1, len(pieces))], data_last=False)
    whole, split = EventSplitter(), EventSplitter()
    out = whole.feed(text)
    assert not whole.oversized
    parts = [part for piece in pieces for part in split.feed(piece)]
    assert b"".join(map(_lines, parts)) == b"".join(map(_lines, out))
    assert all(part.endswith((b"\n", b"\r")) for part in out)


def _lines(text: bytes) -> bytes:
    """With one spelling of line ends: the LF behind a CR that stood at a piece's end may be left out."""
    return text.replace(b"\r\n", b"\n").replace(b"\r", b"\n")


def answers(data: bytes) -> None:
    """A message: what it teaches is the same whether or not the quick look was asked, and nothing else comes up."""
    method = ("tools/call", "tasks/get", "tasks/cancel", "prompts/get")[data[0] % 4 if data else 0]
    name = (None, "t-1", "é", "")[data[1] % 4 if len(data) > 1 else 0]
    message = data[2:]
    try:
        learned = learn(message, method, name)
    except ValueError:
        return
    if learned is not None:
        assert isinstance(learned, Learned)
        assert learned.ttl is None or learned.ttl >= 0
    try:
        assert learn(b" \r\n" + message + b"\t", method, name) == learned
    except ValueError:
        raise AssertionError("white space changes what it teaches") from None


def values(data: bytes) -> None:
    """A routing header's value decodes to text or is refused, and what is not marked stands for itself."""
    raw = data.decode("latin-1").strip(" \t")
    try:
        decoded = decode_value(raw, "Mcp-Name")
    except MalformedHeader:
        assert raw.startswith("=?base64?") and raw.endswith("?=")
        return
    decoded.encode("utf-8")
    if not raw.startswith("=?base64?"):
        assert decoded.encode("utf-8") == data.strip(b" \t") or decoded == raw


def config(data: bytes) -> None:
    """A configuration is read, or its mistakes are told; what was read describes itself."""
    assert outcome(data.decode("utf-8", "replace")) in ("config", "error")


_STREAMS = [
    b"data: {}\n\ndata: {}\r\n\r\ndata: {}\r\r",
    b"\xef\xbb\xbf: ping\n\nevent: message\nid: 7\ndata: {\ndata: }\n\n",
    b'data:{"result":{"resultType":"task","taskId":"t-1"}}\r\n\r\ndata\n\n:\n\n',
]
_MESSAGES = [
    b'{"jsonrpc":"2.0","id":1,"result":{"resultType":"task","taskId":"t-1","status":"working","ttlMs":60000}}',
    b'{"jsonrpc":"2.0","id":1,"result":{"taskId":"t-1","status":"completed"}}',
    b'{"jsonrpc":"2.0","id":1,"result":{"resultType":"input_required","requestState":"x"}}',
    b'{"jsonrpc":"2.0","id":1,"error":{"code":-32602,"message":"unknown"}}',
    b'{"jsonrpc":"2.0","id":1,"result":{"result\\u0054ype":"task","task\\u0049d":"\\ud83d\\ude00"}}',
]


def _sections() -> Iterator[str]:
    """Small configurations: the least there is, alone and with each section of a full one."""
    least = "pools: {a: {backends: ['http://a']}}\nroutes: [{name: r, pool: a}]\n"
    yield least
    for section in re.split(r"\n(?=\w)", FULL):
        yield least + section + "\n"


def _after(*starts: bytes) -> Callable[[Iterator[bytes] | list[bytes]], Iterator[bytes]]:
    return lambda texts: (start + text for text in texts for start in starts)


TARGETS = {
    "requests": Target(
        requests, lambda: _after(b"\0\0", b"\x40\0")([case.text for case in REQUESTS if len(case.text) < 800]), 800
    ),
    "responses": Target(
        responses,
        lambda: _after(b"\0\0\0", b"\2\x40\0")([case.text for case in ANSWERS if len(case.text) < 800]),
        800,
    ),
    "chunks": Target(
        chunks,
        lambda: _after(b"\0\0", b"\x40\1")(
            [text for case in chunk_cases.CASES if len(text := case.text.partition(b"\r\n\r\n")[2]) < 600]
        ),
        600,
    ),
    "events": Target(events, lambda: _after(b"\0\0", b"\x40\0", b"\xa0\x50")(_STREAMS), 250),
    "answers": Target(answers, lambda: _after(b"\0\1", b"\1\1", b"\2\0")(_MESSAGES), 500),
    "values": Target(values, lambda: iter([b"=?base64?w6k=?=", b"\xc3\xa9", b"=?base64??=", b"\xff"]), 200),
    "config": Target(config, lambda: (text.encode() for text in _sections()), 700),
}
