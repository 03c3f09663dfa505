"""The proxy's own answers."""

import json

import pytest

from proxy.routing.errors import BadRequest, DuplicateHeader, NoBackend, OwnerDown, ProxyError
from proxy.wire.response_head import error_response
from tests.wire.response_heads import CLOSE, KEEP, parses


@pytest.mark.parametrize(
    ("error", "modern", "status_line", "code", "more"),
    [
        (DuplicateHeader("twice"), True, b"HTTP/1.1 400 Bad Request", -32020, []),
        (DuplicateHeader("twice"), False, b"HTTP/1.1 400 Bad Request", -32000, []),
        (BadRequest("no"), True, b"HTTP/1.1 400 Bad Request", -32000, []),
        (NoBackend("none"), True, b"HTTP/1.1 503 Service Unavailable", -32000, [b"Retry-After: 1"]),
        (OwnerDown("down"), False, b"HTTP/1.1 503 Service Unavailable", -32000, [b"Retry-After: 1"]),
    ],
)
@pytest.mark.parametrize(
    ("http10", "keep_alive", "last"),
    [(False, True, []), (True, True, [KEEP]), (False, False, [CLOSE]), (True, False, [CLOSE])],
)
@pytest.mark.parametrize("with_body", [True, False])
def test_the_proxy_s_own_answer(
    error: ProxyError,
    modern: bool,
    status_line: bytes,
    code: int,
    more: list[bytes],
    http10: bool,
    keep_alive: bool,
    last: list[bytes],
    with_body: bool,
) -> None:
    answer = error_response(error, modern=modern, keep_alive=keep_alive, http10=http10, with_body=with_body)
    head, _, body = answer.partition(b"\r\n\r\n")
    content = {"jsonrpc": "2.0", "error": {"code": code, "message": str(error), "data": {"reason": error.reason}}}
    length = len(json.dumps(content))
    assert head.split(b"\r\n") == [
        status_line,
        b"Content-Type: application/json",
        b"Content-Length: %d" % length,
        b"Mcp-Proxy-Error: " + error.reason.encode(),
        *more,
        *last,
    ]
    if with_body:
        assert len(body) == length
        assert json.loads(body) == content
    else:
        assert body == b""


def test_every_error_has_an_answer() -> None:
    for error in ProxyError.__subclasses__():
        answer = error_response(error("é"), modern=True, keep_alive=True, http10=False, with_body=True)
        assert parses(answer.partition(b"\r\n\r\n")[0] + b"\r\n\r\n")
        assert b" %d " % error.status in answer
