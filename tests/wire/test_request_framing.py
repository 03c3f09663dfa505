"""Requests that two parsers could read differently are refused with 400 and a close, and reach no backend."""

import pytest

from tests.wire.harness import backend, call, client, config_text, metric, post, running, until

START = b"POST /mcp HTTP/1.1\r\nHost: x\r\n"
REFUSED = {
    "length and coding": START + b"Content-Length: 2\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
    "coding and length": START + b"Transfer-Encoding: chunked\r\nContent-Length: 2\r\n\r\n0\r\n\r\n",
    "two lengths": START + b"Content-Length: 2\r\nContent-Length: 2\r\n\r\nhi",
    "two different lengths": START + b"Content-Length: 2\r\nContent-Length: 3\r\n\r\nhi",
    "list of lengths": START + b"Content-Length: 2, 2\r\n\r\nhi",
    "signed length": START + b"Content-Length: +2\r\n\r\nhi",
    "empty length": START + b"Content-Length:\r\n\r\n",
    "hexadecimal length": START + b"Content-Length: 0x2\r\n\r\nhi",
    "huge length": START + b"Content-Length: 99999999999999999999999\r\n\r\n",
    "other coding": START + b"Transfer-Encoding: gzip\r\n\r\n",
    "two codings": START + b"Transfer-Encoding: gzip, chunked\r\n\r\n0\r\n\r\n",
    "chunked not last": START + b"Transfer-Encoding: chunked, gzip\r\n\r\n0\r\n\r\n",
    "chunked twice": START + b"Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
    "identity": START + b"Transfer-Encoding: identity\r\n\r\n",
    "almost chunked": START + b"Transfer-Encoding: xchunked\r\n\r\n0\r\n\r\n",
    "coding on HTTP/1.0": b"POST /mcp HTTP/1.0\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
    "obs-fold": START + b"A: b\r\n c\r\n\r\n",
    "fold of the first field": b"POST /mcp HTTP/1.1\r\n Host: x\r\n\r\n",
    "bare LF at the end of a field": START + b"A: b\nC: d\r\n\r\n",
    "bare LF everywhere": b"POST /mcp HTTP/1.1\nHost: x\n\n",
    "bare LF before the request line": b"\nPOST /mcp HTTP/1.1\r\nHost: x\r\n\r\n",
    "bare CR in a value": START + b"A: b\rc\r\n\r\n",
    "blank before the colon": START + b"A : b\r\n\r\n",
    "tab before the colon": START + b"A\t: b\r\n\r\n",
    "no colon": START + b"A\r\n\r\n",
    "empty name": START + b": b\r\n\r\n",
    "NUL in a value": START + b"A: b\0c\r\n\r\n",
    "NUL in a name": START + b"A\0: b\r\n\r\n",
    "control character": START + b"A: b\x01\r\n\r\n",
    "no host": b"POST /mcp HTTP/1.1\r\nA: b\r\n\r\n",
    "two hosts": START + b"Host: y\r\n\r\n",
    "two equal hosts": START + b"Host: x\r\n\r\n",
    "empty host": b"POST /mcp HTTP/1.1\r\nHost:\r\n\r\n",
    "host with a path": b"POST /mcp HTTP/1.1\r\nHost: x/y\r\n\r\n",
    "host with user info": b"POST /mcp HTTP/1.1\r\nHost: u@x\r\n\r\n",
    "absolute form": b"GET http://x/mcp HTTP/1.1\r\nHost: x\r\n\r\n",
    "asterisk form": b"OPTIONS * HTTP/1.1\r\nHost: x\r\n\r\n",
    "double slash": b"GET //mcp HTTP/1.1\r\nHost: x\r\n\r\n",
    "dot segment": b"GET /a/../mcp HTTP/1.1\r\nHost: x\r\n\r\n",
    "single dot segment": b"GET /./mcp HTTP/1.1\r\nHost: x\r\n\r\n",
    "final dot segment": b"GET /mcp/.. HTTP/1.1\r\nHost: x\r\n\r\n",
    "backslash": b"GET /a\\mcp HTTP/1.1\r\nHost: x\r\n\r\n",
    "encoded slash": b"GET /a%2Fmcp HTTP/1.1\r\nHost: x\r\n\r\n",
    "encoded backslash": b"GET /a%5cmcp HTTP/1.1\r\nHost: x\r\n\r\n",
    "encoded dot": b"GET /%2e%2E/mcp HTTP/1.1\r\nHost: x\r\n\r\n",
    "fragment": b"GET /mcp#a HTTP/1.1\r\nHost: x\r\n\r\n",
    "non-ASCII target": b"GET /m\xe9 HTTP/1.1\r\nHost: x\r\n\r\n",
    "two blanks in the request line": b"GET  /mcp HTTP/1.1\r\nHost: x\r\n\r\n",
    "blank behind the version": b"GET /mcp HTTP/1.1 \r\nHost: x\r\n\r\n",
    "HTTP/2.0": b"GET /mcp HTTP/2.0\r\nHost: x\r\n\r\n",
    "HTTP/0.9": b"GET /mcp\r\n\r\n",
    "HTTP/1.2": b"GET /mcp HTTP/1.2\r\nHost: x\r\n\r\n",
    "HTTP/2 preface": b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
    "RTSP": b"DESCRIBE /mcp RTSP/1.0\r\nHost: x\r\n\r\n",
    "lower-case method": b"post /mcp HTTP/1.1\r\nHost: x\r\n\r\n",
    "unknown method": b"FOO /mcp HTTP/1.1\r\nHost: x\r\n\r\n",
    "TLS": b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + b"\0" * 40,
}
PROTECTED = (
    b"Host Authorization Content-Length Content-Type X-Forwarded-For X-Forwarded-Host Mcp-Name Mcp-Method "
    b"Mcp-Session-Id Mcp-Param-Region MCP-Protocol-Version"
).split()


@pytest.mark.parametrize("request_text", REFUSED.values(), ids=REFUSED)
async def test_ambiguous_request_is_refused_and_closed(request_text: bytes) -> None:
    async with backend() as a, running(config_text(a.port)) as proxy, client(proxy.port) as c:
        answer = await c.ask(request_text)
        assert (answer.status, answer.get("Mcp-Proxy-Error")) == (400, "bad_request")
        assert (answer.error["code"], answer.error["data"]) == (-32000, {"reason": "bad_request"})
        assert answer.get("Connection") == "close"
        assert await c.rest() == b""
        assert a.connections == 0
        assert await metric(proxy, "rejected_total", reason="bad_request") == 1


@pytest.mark.parametrize("name", PROTECTED)
async def test_connection_that_names_a_protected_field_is_refused(name: bytes) -> None:
    """Trial 26: the field would be taken off after it was routed on."""
    async with backend() as a, running(config_text(a.port)) as proxy, client(proxy.port) as c:
        answer = await c.ask(call(b"t", b"Connection: keep-alive, " + name))
        assert (answer.status, answer.get("Mcp-Proxy-Error")) == (400, "bad_request")
        assert a.connections == 0


@pytest.mark.parametrize(
    "request_text",
    [
        b"CONNECT x:1 HTTP/1.1\r\nHost: x\r\n\r\n",
        b"GET /mcp HTTP/1.1\r\nHost: x\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n",
        START + b"Connection: Upgrade\r\nUpgrade: h2c\r\nContent-Length: 2\r\n\r\nhi",
    ],
)
async def test_connect_and_upgrade_are_not_supported(request_text: bytes) -> None:
    async with backend() as a, running(config_text(a.port)) as proxy, client(proxy.port) as c:
        answer = await c.ask(request_text)
        assert (answer.status, answer.get("Mcp-Proxy-Error")) == (501, "unsupported")
        assert a.connections == 0


PARAMS = [b"Mcp-Param-P%d: x" % i for i in range(200)]
TOO_LARGE = {
    "a head of 70 KB": post(b"A: " + b"x" * 70_000),
    "a head of 70 KB without end": START + b"A: " + b"x" * 70_000,
    "a target of 70 KB": post(target=b"/mcp?" + b"x" * 70_000),
    "201 fields": post(*[b"A%d: b" % i for i in range(201)]),
    "65 parameters": call(b"t", *PARAMS[:65]),
    "200 parameters": call(b"t", *PARAMS[:195]),
    "a name of 16 KB": call(b"x" * 16_384),
    "a parameter of 9 KB": call(b"t", b"Mcp-Param-A: " + b"x" * 9_000),
    "a huge encoded name": call(b"=?base64?" + b"A" * 9_000 + b"?="),
}


@pytest.mark.parametrize("request_text", TOO_LARGE.values(), ids=TOO_LARGE)
async def test_head_over_a_limit_is_refused(request_text: bytes) -> None:
    """Trial 13: 431, before anything is decoded."""
    async with backend() as a, running(config_text(a.port)) as proxy, client(proxy.port) as c:
        answer = await c.ask(request_text)
        assert (answer.status, answer.get("Mcp-Proxy-Error")) == (431, "head_too_large")
        assert a.connections == 0


async def test_head_at_the_limits_passes() -> None:
    at_limits = call(b"x" * 8_192, *PARAMS[:64], *[b"A%d: b" % i for i in range(200 - 64 - 7)], b"B: " + b"y" * 40_000)
    assert at_limits.count(b"\r\n") == 202  # the request line, 200 fields and the empty line
    async with backend() as a, running(config_text(a.port)) as proxy, client(proxy.port) as c:
        assert (await c.ask(at_limits)).status == 200
        assert a.requests[0].get("Mcp-Name") == "x" * 8_192


BROKEN_BODIES = {
    "bad chunk size": b"zz\r\nhi\r\n0\r\n\r\n",
    "bare LF behind the size": b"2\nhi\r\n0\r\n\r\n",
    "blank behind the size": b"2 \r\nhi\r\n0\r\n\r\n",
    "chunk longer than its size": b"2\r\nhix\r\n0\r\n\r\n",
    "NUL in a trailer": b"0\r\nA\0: b\r\n\r\n",
}


@pytest.mark.parametrize("body", BROKEN_BODIES.values(), ids=BROKEN_BODIES)
@pytest.mark.parametrize("together", [True, False], ids=["in one write", "behind the head"])
async def test_broken_chunks_are_refused_and_the_backend_sees_no_end(body: bytes, together: bool) -> None:
    head = START + b"Transfer-Encoding: chunked\r\n\r\n"
    async with backend() as a, running(config_text(a.port)) as proxy, client(proxy.port) as c:
        c.send(head + body if together else head)
        if not together:
            await until(lambda: a.connections)
            c.send(body)
        answer = await c.response()
        assert (answer.status, answer.get("Mcp-Proxy-Error")) == (400, "bad_request")
        assert await c.rest() == b""
        assert a.requests == []


@pytest.mark.parametrize("size", [1, 2, 3, 7])
async def test_requests_may_come_in_pieces_of_any_size(size: int) -> None:
    chunked = START + b"Transfer-Encoding: chunked\r\n\r\n2;ext=1\r\nhi\r\n4\r\n\r\n\r\n\r\n0\r\nTrailer: x\r\n\r\n"
    text = call(b"t", body=b"first") + chunked + call(b"u", body=b"third")
    async with backend() as a, running(config_text(a.port)) as proxy, client(proxy.port) as c:
        for start in range(0, len(text), size):
            c.send(text[start : start + size])
            await c.writer.drain()
        for _ in range(3):
            assert (await c.response()).status == 200
        assert [request.body for request in a.requests] == [b"first", b"hi\r\n\r\n", b"third"]
        assert "Trailer" not in a.requests[1].head.decode()


async def test_refusal_of_one_request_leaves_the_answers_before_it_whole() -> None:
    async with backend() as a, running(config_text(a.port)) as proxy, client(proxy.port) as c:
        c.send(call() + START + b"A : b\r\n\r\n")
        assert (await c.response()).status == 200
        assert (await c.response()).status == 400
        assert len(a.requests) == 1
