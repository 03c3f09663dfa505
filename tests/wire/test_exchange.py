"""What a client and a backend see of an exchange: bodies, keep-alive, order, hang-ups, early and unusual responses."""

import asyncio
import socket
import struct

import pytest

from proxy.routing import rounds
from tests.wire.harness import (
    BackendSide,
    answering,
    backend,
    call,
    chunks,
    client,
    config_text,
    metric,
    post,
    read_head,
    running,
    until,
)

OK = b"HTTP/1.1 200 OK\r\n"


async def test_bytes_pass_unread_and_unchanged_both_ways() -> None:
    body = bytes(range(256)) * 64
    script = answering(OK + b"X-Odd:  two  blanks \r\nContent-Length: %d\r\n\r\n" % len(body) + body)
    async with backend(script) as a, running(config_text(a.port)) as proxy, client(proxy.port) as c:
        answer = await c.ask(call(b"t", b"X-Kept: caf\xe9 ;  x", body=body))
        assert answer.body == body
        assert b"\r\nX-Odd:  two  blanks \r\n" in answer.head
        assert a.requests[0].body == body
        assert b"\r\nX-Kept: caf\xe9 ;  x\r\n" in a.requests[0].head


async def test_backend_sees_its_own_path_and_the_clients_host() -> None:
    async with backend() as a, running(config_text(a.port).replace("/mcp'", "/inner/mcp'")) as proxy:
        async with client(proxy.port) as c:
            await c.ask(post(target=b"/mcp?session=1&x=%2F"))
            assert a.requests[0].first == b"POST /inner/mcp?session=1&x=%2F HTTP/1.1"
            assert a.requests[0].get("Host") == "mcp.test"


async def test_a_glob_path_is_kept() -> None:
    routes = "  - {name: all, match: {path: '/.well-known/*'}, pool: agents}"
    async with backend() as a, running(config_text(a.port, routes=routes)) as proxy, client(proxy.port) as c:
        await c.ask(b"GET /.well-known/oauth-protected-resource/mcp?a=b HTTP/1.1\r\nHost: x\r\n\r\n")
        assert a.requests[0].first == b"GET /.well-known/oauth-protected-resource/mcp?a=b HTTP/1.1"
        assert (await c.ask(post())).status == 404


async def test_hop_by_hop_fields_end_here() -> None:
    fields = (
        b"Connection: keep-alive, X-Hop",
        b"X-Hop: 1",
        b"Keep-Alive: timeout=5",
        b"TE: trailers",
        b"Trailer: X-T",
        b"Proxy-Authorization: Basic eA==",
        b"Proxy-Connection: keep-alive",
        b"Upgrade: h2c",
        b"Mcp_Name: other",
        b"X_Forwarded_For: 1.2.3.4",
        b"Transfer_Encoding: chunked",
        b"Authorization: Bearer x",
        b"X_Other: kept",
    )
    response = OK + b"Connection: X-R\r\nKeep-Alive: timeout=5\r\nX-R2: kept\r\nContent-Length: 0\r\n\r\n"
    async with backend(answering(response)) as a, running(config_text(a.port)) as proxy, client(proxy.port) as c:
        answer = await c.ask(call(b"t", *fields))
        names = {line.split(b":")[0].lower() for line in a.requests[0].head.split(b"\r\n")[1:] if line}
        assert names == {
            *(b"host", b"mcp-protocol-version", b"content-type", b"mcp-method", b"mcp-name", b"content-length"),
            *(b"authorization", b"x_other", b"x-forwarded-for", b"x-forwarded-proto", b"x-forwarded-host"),
            b"accept-encoding",
        }
        assert a.requests[0].all("Mcp-Name") == ["t"]
        assert answer.get("Keep-Alive") is None
        assert answer.get("Connection") is None
        assert answer.get("X-R2") == "kept"


@pytest.mark.parametrize(
    ("trusted", "expected"),
    [
        ("", ["127.0.0.1", "http", "mcp.test"]),
        ("trusted_proxies: [127.0.0.0/8]", ["1.2.3.4, 5.6.7.8, 127.0.0.1", "https", "outer.test"]),
        ("trusted_proxies: [10.0.0.0/8]", ["127.0.0.1", "http", "mcp.test"]),
    ],
)
async def test_forwarded_fields_are_replaced_unless_the_peer_is_trusted(trusted: str, expected: list[str]) -> None:
    sent = (
        b"X-Forwarded-For: 1.2.3.4",
        b"X-Forwarded-For: 5.6.7.8",
        b"X-Forwarded-Proto: https",
        b"X-Forwarded-Host: outer.test",
    )
    async with backend() as a:
        text = config_text(a.port, listen=f"{{address: '127.0.0.1:0', {trusted}}}")
        async with running(text) as proxy, client(proxy.port) as c:
            await c.ask(call(b"t", *sent))
    got = [a.requests[0].all(f"X-Forwarded-{name}") for name in ("For", "Proto", "Host")]
    assert got == [[value] for value in expected]


async def test_host_backend_replaces_host_and_checks_the_clients() -> None:
    async with backend() as a, running(config_text(a.port, pool="    host: backend")) as proxy, client(proxy.port) as c:
        answer = await c.ask(call())
        assert (answer.status, answer.get("Mcp-Proxy-Error")) == (421, "forbidden_host")
        assert (await c.ask(call().replace(b"Host: mcp.test", b"Host: LOCALHOST:9"))).status == 200
        assert a.requests[0].get("Host") == f"127.0.0.1:{a.port}"


async def test_allowed_origins() -> None:
    async with backend() as a:
        text = config_text(a.port, listen="{address: '127.0.0.1:0', allowed_origins: ['https://app.test']}")
        async with running(text) as proxy, client(proxy.port) as c:
            answer = await c.ask(call(b"t", b"Origin: https://evil.test"))
            assert (answer.status, answer.get("Mcp-Proxy-Error")) == (403, "forbidden_origin")
            assert (await c.ask(call(b"t", b"Origin: https://app.test"))).status == 200
            assert (await c.ask(call())).status == 200


async def test_connections_are_kept_on_both_sides() -> None:
    async with backend() as a, running(config_text(a.port)) as proxy, client(proxy.port) as c:
        for _ in range(5):
            assert (await c.ask(call())).status == 200
        assert a.connections == 1


async def test_idle_backend_connections_are_closed_before_the_backend_would() -> None:
    """uvicorn and Node close theirs after 5 s; a request that crosses their close cannot be repeated."""
    closed = asyncio.Event()

    async def script(side: BackendSide) -> None:
        await side.request()
        side.answer()
        start = asyncio.get_running_loop().time()
        assert await side.reader.read() == b""
        assert asyncio.get_running_loop().time() - start < 4
        closed.set()

    async with backend(script) as a, running(config_text(a.port)) as proxy, client(proxy.port) as c:
        await c.ask(call())
        async with asyncio.timeout(5):
            await closed.wait()


@pytest.mark.parametrize(
    ("response", "body"),
    [
        (OK + b"Content-Length: 5\r\n\r\nhello", b"hello"),
        (OK + b"Transfer-Encoding: chunked\r\n\r\n3;x=y\r\nhel\r\n2\r\nlo\r\n0\r\nT: t\r\n\r\n", b"hello"),
        (OK + b"Content-Length: 0\r\n\r\n", b""),
        (b"HTTP/1.1 202 Accepted\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n", b""),
        (b"HTTP/1.1 204 No Content\r\n\r\n", b""),
        (b"HTTP/1.1 304 Not Modified\r\nContent-Length: 5\r\n\r\n", b""),
        (b"HTTP/1.1 404 \r\nContent-Length: 2\r\n\r\nno", b"no"),
        (b"HTTP/1.1 500\r\nContent-Length: 2\r\n\r\nno", b"no"),
        (b"HTTP/1.0 200 OK\r\nConnection: keep-alive\r\nContent-Length: 5\r\n\r\nhello", b"hello"),
    ],
)
async def test_bodies_of_every_framing_pass_and_the_connection_is_kept(response: bytes, body: bytes) -> None:
    async with backend(answering(response)) as a, running(config_text(a.port)) as proxy, client(proxy.port) as c:
        for _ in range(3):
            answer = await c.ask(post())
            assert answer.status == int(response[9:12])
            assert answer.body == body
        assert a.connections == 1


@pytest.mark.parametrize("version", [b"1.1", b"1.0"])
async def test_a_body_until_close_passes(version: bytes) -> None:
    async def script(side: BackendSide) -> None:
        await side.request()
        side.send(b"HTTP/%b 200 OK\r\n\r\nfirst " % version)
        await side.writer.drain()
        side.send(b"second")

    async with backend(script) as a, running(config_text(a.port)) as proxy, client(proxy.port) as c:
        for _ in range(2):
            answer = await c.ask(post())
            assert answer.body == b"first second"
            assert answer.get("Transfer-Encoding") == "chunked"
        assert a.connections == 2


@pytest.mark.parametrize(
    "response",
    [
        OK + b"Content-Length: 5\r\n\r\n",
        OK + b"Transfer-Encoding: chunked\r\n\r\n",
        OK + b"\r\n",
    ],
)
async def test_an_answer_to_head_has_no_body_and_keeps_the_connection_in_step(response: bytes) -> None:
    """httptools would read the next response as this one's body."""
    turns = 0

    async def script(side: BackendSide) -> None:
        nonlocal turns
        while True:
            request = await side.request()
            if request.first.startswith(b"HEAD"):
                turns += 1
                side.send(response)
            else:
                side.answer(b'{"second":1}')

    async with backend(script) as a, running(config_text(a.port)) as proxy, client(proxy.port) as c:
        for _ in range(2):
            c.send(b"HEAD /mcp HTTP/1.1\r\nHost: x\r\n\r\n")
            assert (await c.response(to_head=True)).status == 200
            assert (await c.ask(post())).body == b'{"second":1}'
        assert (turns, a.connections) == (2, 1)


async def test_head_of_an_error_of_the_proxys_own_has_no_body() -> None:
    async with backend() as a, running(config_text(a.port)) as proxy, client(proxy.port) as c:
        c.send(b"HEAD /nowhere HTTP/1.1\r\nHost: x\r\n\r\n")
        assert (await c.response(to_head=True)).status == 404
        assert (await c.ask(post())).status == 200


async def test_pipelined_requests_are_answered_in_order() -> None:
    async def script(side: BackendSide) -> None:
        while True:
            request = await side.request()
            if request.body == b"slow":
                await asyncio.sleep(0.05)
            side.answer(request.body)

    bodies = [b"slow", b"quick", b"", b"slow", b"last"]
    async with backend(script) as a, running(config_text(a.port)) as proxy, client(proxy.port) as c:
        c.send(b"".join(call(b"t", body=body) for body in bodies))
        assert [(await c.response()).body for _ in bodies] == bodies


async def test_many_pipelined_errors_do_not_pile_up() -> None:
    """Each is answered without waiting; none may nest in the one before."""
    async with backend() as a, running(config_text(a.port)) as proxy, client(proxy.port) as c:
        c.send(b"GET /nowhere HTTP/1.1\r\nHost: x\r\n\r\n" * 3000 + post())
        for _ in range(3000):
            assert (await c.response()).status == 404
        assert (await c.response()).status == 200


async def test_connection_close_is_honoured() -> None:
    async with backend() as a, running(config_text(a.port)) as proxy, client(proxy.port) as c:
        answer = await c.ask(call(b"t", b"Connection: close"))
        assert answer.get("Connection") == "close"
        assert await c.rest() == b""
        assert a.requests[0].get("Connection") is None


async def test_http_1_0() -> None:
    script = answering(OK + b"Transfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\n\r\n")
    async with backend(script) as a, running(config_text(a.port)) as proxy:
        async with client(proxy.port) as c:
            answer = await c.ask(b"GET /mcp HTTP/1.0\r\n\r\n")
            assert (answer.body, answer.get("Transfer-Encoding")) == (b"hello", None)
            assert a.requests[0].get("Host") == f"127.0.0.1:{a.port}"
    async with backend() as a, running(config_text(a.port)) as proxy:
        async with client(proxy.port) as c:
            keep = b"POST /mcp HTTP/1.0\r\nConnection: keep-alive\r\nContent-Length: 2\r\n\r\n{}"
            for _ in range(2):
                assert (await c.ask(keep)).get("Connection") == "keep-alive"


async def test_expect_100_continue_passes_both_ways() -> None:
    async def script(side: BackendSide) -> None:
        head = await side.reader.readuntil(b"\r\n\r\n")
        assert b"Expect: 100-continue" in head
        side.send(b"HTTP/1.1 100 Continue\r\n\r\n")
        assert await side.reader.readexactly(2) == b"{}"
        side.send(b"HTTP/1.1 103 Early Hints\r\nLink: </x>\r\n\r\n")
        side.answer()

    async with backend(script) as a, running(config_text(a.port)) as proxy, client(proxy.port) as c:
        c.send(b"POST /mcp HTTP/1.1\r\nHost: x\r\nExpect: 100-continue\r\nContent-Length: 2\r\n\r\n")
        assert (await c.response()).status == 100
        c.send(b"{}")
        hints = await c.response()
        assert (hints.status, hints.get("Link")) == (103, "</x>")
        assert (await c.response()).status == 200


async def test_an_early_response_passes_and_closes_both_sides() -> None:
    """The backend refuses before it has the body; nothing that is still sent may be taken for a next request."""

    async def script(side: BackendSide) -> None:
        await side.reader.readuntil(b"\r\n\r\n")
        side.send(b"HTTP/1.1 413 Content Too Large\r\nContent-Length: 3\r\n\r\nbig")
        await side.peer_closes()

    async with backend(script) as a, running(config_text(a.port)) as proxy, client(proxy.port) as c:
        c.send(b"POST /mcp HTTP/1.1\r\nHost: x\r\nContent-Length: 1000000\r\n\r\n")
        answer = await c.response()
        assert (answer.status, answer.body, answer.get("Connection")) == (413, b"big", "close")
        c.send(call() * 10)
        assert await c.rest() == b""
        await until(lambda: not a.open)
        assert a.connections == 1


@pytest.mark.parametrize("announced", [b"Content-Length: 100\r\n", b"Transfer-Encoding: chunked\r\n"])
async def test_a_response_cut_by_the_backend_is_cut_at_the_client(announced: bytes) -> None:
    async def script(side: BackendSide) -> None:
        await side.request()
        side.send(OK + announced + b"\r\n" + (b"5\r\nhello\r\n" if b"chunked" in announced else b"hello"))

    async with backend(script) as a, running(config_text(a.port)) as proxy, client(proxy.port) as c:
        c.send(post())
        await read_head(c.reader)
        rest = await c.rest()
        assert b"hello" in rest
        assert not rest.endswith(b"0\r\n\r\n")
        await until(lambda: not a.open)
        assert await metric(proxy, "rejected_total", reason="backend_closed") == 1


async def test_a_cut_body_until_close_is_a_reset_for_http_1_0() -> None:
    """A clean end would pass for the whole."""

    async def script(side: BackendSide) -> None:
        await side.request()
        side.send(OK + b"Content-Length: 100\r\n\r\nhello")
        await side.writer.drain()
        await go.wait()

    go = asyncio.Event()
    chunked = answering(OK + b"Transfer-Encoding: chunked\r\n\r\n5\r\nhello\r\nzz\r\n")
    async with backend(chunked) as a, running(config_text(a.port)) as proxy, client(proxy.port) as c:
        c.send(b"GET /mcp HTTP/1.0\r\n\r\n")
        with pytest.raises(ConnectionResetError):
            await c.rest()


async def test_client_that_hangs_up_on_a_quiet_stream_closes_the_backends_side() -> None:
    """Trial 17, [T] Cancellation."""
    left = asyncio.Event()

    async def script(side: BackendSide) -> None:
        await side.request()
        side.send(OK + b"Content-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n8\r\n: ping\n\n\r\n")
        await side.peer_closes()
        left.set()

    async with backend(script) as a, running(config_text(a.port)) as proxy:
        async with client(proxy.port) as c:
            c.send(call())
            await read_head(c.reader)
            assert [await anext(chunks(c.reader))] == [b": ping\n\n"]
            assert await metric(proxy, "streams_open", pool="agents") == 1
        async with asyncio.timeout(1):
            await left.wait()
        assert await metric(proxy, "streams_open", pool="agents") == 0
        assert await metric(proxy, "backend_in_flight", pool="agents") == 0


@pytest.mark.parametrize("reset", [False, True], ids=["closed", "reset"])
async def test_client_that_leaves_before_any_answer(reset: bool) -> None:
    left = asyncio.Event()

    async def script(side: BackendSide) -> None:
        await side.request()
        await side.peer_closes()
        left.set()

    async with backend(script) as a, running(config_text(a.port)) as proxy:
        async with client(proxy.port) as c:
            c.send(call())
            await until(lambda: a.requests)
            if reset:
                c.writer.get_extra_info("socket").setsockopt(
                    socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0)
                )
                c.writer.transport.abort()
        async with asyncio.timeout(1):
            await left.wait()
        assert await metric(proxy, "requests_total", code="499") == 1
        assert await metric(proxy, "rejected_total") == 0


async def test_every_event_leaves_as_it_comes() -> None:
    """Trial 15: held back until the tool ends, an elicitation would deadlock."""

    async def script(side: BackendSide) -> None:
        await side.request()
        side.send(OK + b"Content-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n")
        while True:
            await go.wait()
            go.clear()
            side.send(b'12\r\ndata: {"a":{}}\r\n\r\n\r\n')

    go = asyncio.Event()
    async with backend(script) as a, running(config_text(a.port)) as proxy, client(proxy.port) as c:
        c.send(call())
        await read_head(c.reader)
        events = chunks(c.reader)
        for _ in range(5):
            go.set()
            async with asyncio.timeout(1):
                assert await anext(events) == b'data: {"a":{}}\r\n\r\n'


async def test_an_encoded_stream_leaves_as_it_comes_unread() -> None:
    async def script(side: BackendSide) -> None:
        await side.request()
        side.send(
            OK + b"Content-Type: text/event-stream\r\nContent-Encoding: gzip\r\nTransfer-Encoding: chunked\r\n\r\n"
        )
        while True:
            await go.wait()
            go.clear()
            side.send(b"4\r\n\x1f\x8b\x08}\r\n")

    go = asyncio.Event()
    async with backend(script) as a, running(config_text(a.port)) as proxy, client(proxy.port) as c:
        c.send(call())
        assert b"Content-Encoding: gzip" in await read_head(c.reader)
        events = chunks(c.reader)
        for _ in range(3):
            go.set()
            async with asyncio.timeout(1):
                assert await anext(events) == b"\x1f\x8b\x08}"
        assert await metric(proxy, "unlearned_total", reason="encoded") == 1


async def test_options_passes_untouched() -> None:
    """Trial 14: a browser's preflight is the backend's to answer."""
    preflight = (
        b"OPTIONS /mcp HTTP/1.1\r\nHost: mcp.test\r\nOrigin: https://app.test\r\n"
        b"Access-Control-Request-Method: POST\r\nAccess-Control-Request-Headers: mcp-param-x, mcp-name\r\n\r\n"
    )
    routes = "  - {name: modern, match: {protocol: '>=2026-07-28', method: tools/call, name: x}, pool: agents}"
    script = answering(b"HTTP/1.1 204 No Content\r\nAccess-Control-Allow-Headers: mcp-param-x\r\n\r\n")
    async with backend(script) as a, running(config_text(a.port, routes=routes)) as proxy, client(proxy.port) as c:
        answer = await c.ask(preflight)
        assert (answer.status, answer.get("Access-Control-Allow-Headers")) == (204, "mcp-param-x")
        for line in preflight.split(b"\r\n")[1:-2]:
            assert line in a.requests[0].head


async def test_the_pages_of_a_list_come_from_one_backend(monkeypatch: pytest.MonkeyPatch) -> None:
    """A cursor is the backend's own; siblings may not know it, or hold another list for a while."""
    monkeypatch.setattr(rounds, "PAGES_LIFE", 0.0)  # other connections are other callers here
    async with backend() as a, backend() as b, running(config_text(a.port, b.port)) as proxy:
        listed = post(b"MCP-Protocol-Version: 2026-07-28", b"Mcp-Method: tools/list")
        for _ in range(6):
            async with client(proxy.port) as c:
                before = len(a.requests), len(b.requests)
                for _ in range(4):
                    assert (await c.ask(listed)).status == 200
                assert sorted((len(a.requests) - before[0], len(b.requests) - before[1])) == [0, 4]
        assert len(a.requests) == len(b.requests) == 12
        async with client(proxy.port) as c:
            await c.ask(listed)
            one, other = (a, b) if len(a.requests) > 12 else (b, a)
            pool = proxy.pools["agents"]
            pool.set_draining(pool.members[0 if one is a else 1], True)  # then another one's list is all there is
            assert (await c.ask(listed)).status == 200
            assert (len(one.requests), len(other.requests)) == (13, 13)


async def test_the_pages_of_a_list_may_come_over_several_connections() -> None:
    async with backend() as a, backend() as b, running(config_text(a.port, b.port)) as proxy:
        for _ in range(6):
            async with client(proxy.port) as c:
                listed = post(b"MCP-Protocol-Version: 2026-07-28", b"Mcp-Method: tools/list")
                assert (await c.ask(listed)).status == 200
        assert sorted((len(a.requests), len(b.requests))) == [0, 6]
