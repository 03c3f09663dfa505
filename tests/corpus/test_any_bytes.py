"""Readers of heads and of session ids take any bytes: an answer or a refusal comes out, and nothing is made up."""

import re

from hypothesis import given, settings
from hypothesis import strategies as st

from proxy.routing.errors import BadResponse, ProxyError
from proxy.wire.request_frame import Frame
from proxy.wire.request_head import RequestHeadReader
from proxy.wire.response_head import ResponseFrame, ResponseHeadReader
from tests.corpus.all_cases import ANSWERS, REQUESTS
from tests.corpus.inside import ANSWER, Inside
from tests.corpus.readers import read_requests, read_responses
from tests.wire.request_heads import FROM_CLIENT, WANTED, for_backend
from tests.wire.response_heads import sent

PIECES = [
    b"\r\n",
    b"\n",
    b"\r",
    b":",
    b" ",
    b"\t",
    b",",
    b";",
    b"\0",
    b"\xff",
    b"HTTP/1.1",
    b"HTTP/1.0",
    b"200",
    b"/mcp",
]
PIECES += [
    b"POST",
    b"Host",
    b"Content-Length",
    b"Transfer-Encoding",
    b"chunked",
    b"5",
    b"Connection",
    b"close",
    b"host",
]
PIECES += [b"Mcp-Session-Id", b"Mcp-Name", b"Mcp-Param-A", b"Expect", b"Proxy-Connection", b"_", b"-", b"Content-Type"]
TEXTS = st.one_of(
    st.binary(max_size=80),
    st.lists(st.sampled_from(PIECES), max_size=30).map(b"".join),
    st.sampled_from([case.text[:600] for case in REQUESTS if case.text]),
    st.sampled_from([case.text[:600] for case in ANSWERS if case.text]),
)


@settings(deadline=None, max_examples=300)
@given(st.lists(TEXTS, min_size=1, max_size=3))
def test_any_bytes_are_a_request_s_head_or_refused(texts: list[bytes]) -> None:
    """Also such as the parser in front would never have let through; with the frame of the head before."""
    reader = RequestHeadReader(WANTED)
    before: Frame | None = None
    for text in texts:
        try:
            head = reader.read(text + b"\r\n\r\n", before)
        except ProxyError as error:
            assert error.status in (400, 431)
            continue
        assert head.length >= 0
        out = for_backend(head, forwarded=FROM_CLIENT)
        fields = {line.partition(b":")[0].lower() for line in out.split(b"\r\n")}
        assert not {b"connection", b"proxy-connection", b"upgrade", b"te", b"keep-alive", b"trailer"} & fields
        before = head.frame


@settings(deadline=None, max_examples=300)
@given(st.lists(st.tuples(TEXTS, st.booleans()), min_size=1, max_size=3))
def test_any_bytes_are_a_response_s_head_or_refused(texts: list[tuple[bytes, bool]]) -> None:
    reader = ResponseHeadReader()
    before: ResponseFrame | None = None
    for text, to_head in texts:
        try:
            head = reader.read(text + b"\r\n\r\n", to_head=to_head, before=before)
        except BadResponse:
            continue
        assert head.length is None or head.length >= 0
        names = [line.partition(b":")[0].lower() for line in sent(head)]
        assert names.count(b"content-length") + names.count(b"transfer-encoding") <= 1
        before = head.frame


IDS = st.one_of(
    st.binary(max_size=40),
    st.lists(st.sampled_from([b".", b"s", b"0123456789", b"abcdef0123", b" ", b"\t", b"\xff", b","]), max_size=8).map(
        b"".join
    ),
).map(lambda value: re.sub(rb"[^\t -~\x80-\xff]", b"", value).strip(b" \t"))  # what may stand in a field
OPEN = b"POST /mcp HTTP/1.1\r\nHost: x\r\nContent-Length: 0\r\n\r\n"


def _asked(inside: Inside, request: bytes, answer: bytes = ANSWER) -> tuple[list[bytes], list[dict[bytes, bytes]]]:
    """The sessions that the backend saw, and the fields of what the client got."""
    inside.connect()
    inside.receive([request], answer)
    seen = [
        dict(message.fields).get(b"mcp-session-id", b"none")
        for text in inside.sent()
        for message in read_requests(text).messages
    ]
    got = [dict(message.fields) for message in read_responses(bytes(inside.client.written), [b"POST"]).messages]
    inside.leave()
    return seen, got


@settings(deadline=None, max_examples=150)
@given(IDS)
def test_a_session_s_id_comes_back_to_its_backend_as_it_was(own: bytes) -> None:
    inside = Inside()
    with inside.running():
        answer = ANSWER.replace(b"\r\n\r\n", b"\r\nMcp-Session-Id: " + own + b"\r\n\r\n")
        _, ((told),) = _asked(inside, OPEN, answer)
        session = told[b"mcp-session-id"]
        assert session.endswith(own) and (not own or re.fullmatch(rb"[0-9a-f]{10}\.", session[: -len(own)]))
        if own:
            seen, _ = _asked(inside, OPEN.replace(b"\r\n\r\n", b"\r\nMcp-Session-Id: " + session + b"\r\n\r\n"))
            assert seen == [own]


@settings(deadline=None, max_examples=150)
@given(IDS)
def test_a_session_that_nobody_gave_reaches_no_backend(made_up: bytes) -> None:
    inside = Inside()
    with inside.running():
        seen, got = _asked(inside, OPEN.replace(b"\r\n\r\n", b"\r\nMcp-Session-Id: " + made_up + b"\r\n\r\n"))
    assert seen == []
    assert [fields[b"mcp-proxy-error"] for fields in got] == [b"session_owner_gone"]
