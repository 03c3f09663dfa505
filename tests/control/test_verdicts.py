"""What an answer says of a backend: living servers of every kind pass, dead and wrong ones do not."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from proxy.control.verdicts import Verdict, of_discovery, of_events, of_get

RESULT = b'{"jsonrpc":"2.0","id":"probe","result":{"resultType":"complete","supportedVersions":["2026-07-28"]}}'


def error(code: int) -> bytes:
    return json.dumps({"jsonrpc": "2.0", "id": None, "error": {"code": code, "message": "secret"}}).encode()


@pytest.mark.parametrize(
    ("status", "good"),
    [
        *((200, True), (204, True), (299, True), (199, False), (301, False), (304, False)),
        *((400, False), (404, False), (405, False), (429, False), (500, False), (503, False)),
    ],
)
def test_of_get(status: int, good: bool) -> None:
    assert of_get(status).good is good


@pytest.mark.parametrize(
    ("status", "body", "verdict"),
    [
        (200, RESULT, (True, "answered 200 with a result")),
        (200, error(-32603), (True, "answered 200 with error -32603")),
        (400, error(-32022), (True, "answered 400 with error -32022")),  # knows newer versions only
        (404, error(-32600), (True, "answered 404 with error -32600")),  # a legacy server: no such session
        (404, error(-32601), (True, "answered 404 with error -32601")),
        (400, b"Bad Request: No valid session ID provided", (True, "refused the probe with 400")),
        (401, b'{"error":"invalid_token"}', (True, "refused the probe with 401")),
        (403, b"", (True, "refused the probe with 403")),
        (421, b"Invalid Host header", (True, "refused the probe with 421")),
        (429, b"", (True, "refused the probe with 429")),
        (404, b"<html>not found</html>", (False, "answered 404, and not as an MCP server")),
        (405, b"", (False, "answered 405, and not as an MCP server")),
        (410, b"", (False, "answered 410, and not as an MCP server")),
        (200, b"<html>welcome</html>", (False, "answered 200, and not as an MCP server")),
        (200, b"", (False, "answered 200, and not as an MCP server")),
        (202, b"", (False, "answered 202, and not as an MCP server")),
        (200, b'{"jsonrpc":"2.0","id":1}', (False, "answered 200, and not as an MCP server")),
        (200, b'{"jsonrpc":"2.0","error":"x"}', (False, "answered 200, and not as an MCP server")),
        (200, b'{"jsonrpc":"1.0","result":1}', (False, "answered 200, and not as an MCP server")),
        (200, b"[" * 100_000, (False, "answered 200, and not as an MCP server")),
        (200, b"\xff\xfe", (False, "answered 200, and not as an MCP server")),
        (302, RESULT, (False, "answered 302, which is not followed")),
        (500, error(-32603), (False, "answered 500")),
        (503, RESULT, (False, "answered 503")),
    ],
)
def test_of_discovery(status: int, body: bytes, verdict: tuple[bool, str]) -> None:
    assert of_discovery(status, body) == verdict


@given(st.integers(100, 999), st.binary(max_size=200))
def test_whatever_is_answered_there_is_a_verdict_without_the_answer_s_text(status: int, body: bytes) -> None:
    verdict = of_discovery(status, body)
    assert isinstance(verdict, Verdict)
    assert verdict.good is (400 <= status < 500 and status not in (404, 405, 410))


EVENTS = b': ping\n\nevent: message\ndata: {"jsonrpc":"2.0","method":"notifications/x"}\n\ndata: ' + RESULT + b"\n\n"


@pytest.mark.parametrize("terminator", [b"\n", b"\r\n"])
@pytest.mark.parametrize("size", [1, 2, 3, 7, 1000])
def test_of_an_event_stream_the_answer_counts_whenever_it_is_whole(terminator: bytes, size: int) -> None:
    text = EVENTS.replace(b"\n", terminator)
    found = [of_events(200, text[:end]) for end in range(size, len(text) + size, size)]
    assert found[-1] == Verdict(True, "answered 200 with a result")
    assert all(verdict is None for verdict in found[: -1 - len(terminator)])


def test_an_event_may_have_many_lines() -> None:
    assert of_events(200, b'data: {"jsonrpc":"2.0",\ndata: "result":{}}\n\n') == (True, "answered 200 with a result")
