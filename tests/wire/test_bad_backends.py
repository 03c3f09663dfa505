"""Backends that are down, close too early or answer nonsense: each has a clear answer, and no call is made twice."""

import asyncio
import socket

import pytest

from tests.wire.harness import (
    BackendSide,
    answering,
    backend,
    call,
    client,
    closed_port,
    config_text,
    metric,
    post,
    read_head,
    running,
    task,
    until,
)

OK = b"HTTP/1.1 200 OK\r\n"
UNREADABLE = {
    "length and coding": OK + b"Content-Length: 2\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
    "two lengths": OK + b"Content-Length: 2\r\nContent-Length: 2\r\n\r\nhi",
    "list of lengths": OK + b"Content-Length: 2, 2\r\n\r\nhi",
    "other coding": OK + b"Transfer-Encoding: gzip\r\n\r\n",
    "two codings": OK + b"Transfer-Encoding: gzip, chunked\r\n\r\n0\r\n\r\n",
    "chunked not last": OK + b"Transfer-Encoding: chunked, gzip\r\n\r\n0\r\n\r\n",
    "chunked twice": OK + b"Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
    "coding on HTTP/1.0": b"HTTP/1.0 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
    "obs-fold": OK + b"A: b\r\n c\r\nContent-Length: 0\r\n\r\n",
    "bare LF": b"HTTP/1.1 200 OK\nContent-Length: 0\n\n",
    "bare CR": OK + b"A: b\rc\r\nContent-Length: 0\r\n\r\n",
    "blank before the colon": OK + b"Content-Length : 0\r\n\r\n",
    "NUL": OK + b"A: \0\r\nContent-Length: 0\r\n\r\n",
    "no HTTP": b"SSH-2.0-OpenSSH_9.2\r\n",
    "HTTP/2": b"HTTP/2.0 200 OK\r\nContent-Length: 0\r\n\r\n",
    "status of two digits": b"HTTP/1.1 99 x\r\nContent-Length: 0\r\n\r\n",
    "status of four digits": b"HTTP/1.1 1000 x\r\nContent-Length: 0\r\n\r\n",
    "status zero": b"HTTP/1.1 000 x\r\nContent-Length: 0\r\n\r\n",
    "control character in the reason": b"HTTP/1.1 200 a\x01b\r\nContent-Length: 0\r\n\r\n",
    "switching protocols": b"HTTP/1.1 101 Switching\r\nConnection: upgrade\r\nUpgrade: x\r\n\r\n",
    "a flood of interim responses": b"HTTP/1.1 102 Processing\r\n\r\n" * 20,
    "a head of 70 KB": OK + b"A: " + b"x" * 70_000 + b"\r\nContent-Length: 0\r\n\r\n",
    "201 fields": OK + b"A: b\r\n" * 201 + b"\r\n",
}


@pytest.mark.parametrize("response", UNREADABLE.values(), ids=UNREADABLE)
async def test_unreadable_response_is_502(response: bytes) -> None:
    async with backend(answering(response)) as a, running(config_text(a.port)) as proxy, client(proxy.port) as c:
        answer = await c.ask(call())
        while answer.status == 102:
            answer = await c.response()
        assert (answer.status, answer.get("Mcp-Proxy-Error")) == (502, "bad_response")
        assert answer.error["data"] == {"reason": "bad_response"}
        await until(lambda: not a.open)
        assert len(a.requests) == 1
        assert await metric(proxy, "rejected_total", reason="bad_response") == 1
        assert await metric(proxy, "backend_in_flight") == 0


@pytest.mark.parametrize("sent", [b"", b"HTTP/1.1 20", OK, OK + b"Content-Length: 5\r\n"])
async def test_backend_that_closes_before_or_in_its_head_is_502_and_never_asked_again(sent: bytes) -> None:
    """A tools/call that may have been received is not repeated."""

    async def script(side: BackendSide) -> None:
        await side.request()
        side.send(sent)

    async with backend(script) as a, backend(script) as b, running(config_text(a.port, b.port)) as proxy:
        async with client(proxy.port) as c:
            answer = await c.ask(call())
            assert (answer.status, answer.get("Mcp-Proxy-Error")) == (502, "backend_closed")
            assert len(a.requests) + len(b.requests) == 1


async def test_backend_that_closes_mid_body_cuts_the_response() -> None:
    async def script(side: BackendSide) -> None:
        await side.request()
        side.send(OK + b"Content-Type: application/json\r\nContent-Length: 50\r\n\r\n" + b'{"jsonrpc":')

    async with backend(script) as a, running(config_text(a.port)) as proxy, client(proxy.port) as c:
        c.send(call())
        await read_head(c.reader)
        assert await c.rest() == b'{"jsonrpc":'
        assert await metric(proxy, "rejected_total", reason="backend_closed") == 1
        assert await metric(proxy, "requests_total", code="200") == 1


async def test_backend_that_closes_mid_event_cuts_the_stream() -> None:
    async def script(side: BackendSide) -> None:
        await side.request()
        side.send(OK + b"Content-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n")
        side.send(b"11\r\ndata: 1\n\ndata: 2\n\r\n")

    async with backend(script) as a, running(config_text(a.port)) as proxy, client(proxy.port) as c:
        c.send(call())
        await read_head(c.reader)
        rest = await c.rest()
        assert b"data: 1\n\n" in rest
        assert b"0\r\n\r\n" not in rest


async def test_bytes_behind_a_response_close_that_connection() -> None:
    """They could be taken for the answer to someone else's request."""
    smuggled = b"HTTP/1.1 200 OK\r\nContent-Length: 6\r\n\r\nstolen"

    async def script(side: BackendSide) -> None:
        while True:
            await side.request()
            side.send(OK + b"Content-Length: 2\r\n\r\nhi" + smuggled)

    async with backend(script) as a, running(config_text(a.port)) as proxy, client(proxy.port) as c:
        for _ in range(3):
            assert (await c.ask(call())).body == b"hi"
        assert a.connections == 3


async def test_bytes_on_an_idle_connection_close_it() -> None:
    async def script(side: BackendSide) -> None:
        await side.request()
        side.answer(b"first")
        await go.wait()
        side.send(b"HTTP/1.1 408 Request Timeout\r\nContent-Length: 0\r\n\r\n")
        await side.peer_closes()

    go = asyncio.Event()
    async with backend(script) as a, running(config_text(a.port)) as proxy, client(proxy.port) as c:
        assert (await c.ask(call())).body == b"first"
        go.set()
        await until(lambda: not a.open)
        assert (await c.ask(call())).body == b"first"
        assert a.connections == 2


async def test_backend_down_at_start_is_502_until_it_is_up() -> None:
    port = closed_port()
    async with running(config_text(port)) as proxy, client(proxy.port) as c:
        answer = await c.ask(call())
        assert (answer.status, answer.get("Mcp-Proxy-Error")) == (502, "connect_failed")
        assert "refused" in answer.error["message"]
        assert await metric(proxy, "rejected_total", reason="connect_failed") == 1


async def test_what_was_not_sent_goes_to_another_backend() -> None:
    async with backend() as b, running(config_text(closed_port(), b.port, closed_port())) as proxy:
        async with client(proxy.port) as c:
            for _ in range(6):
                assert (await c.ask(call(body=b"whole"))).status == 200
        assert [request.body for request in b.requests] == [b"whole"] * 6
        assert await metric(proxy, "retries_total", reason="connect_failed") > 0
        assert await metric(proxy, "backend_in_flight") == 0


async def test_a_list_does_not_stay_with_a_backend_that_is_gone() -> None:
    """What a connection prefers for its lists is given up with the first attempt that fails."""
    async with backend() as a, backend() as b, running(config_text(a.port, b.port)) as proxy:
        async with client(proxy.port) as c:
            listed = post(b"MCP-Protocol-Version: 2026-07-28", b"Mcp-Method: tools/list")
            await c.ask(listed)
            gone = a if a.requests else b
            await gone.stop_listening()
            for side in list(gone.open):
                side.writer.transport.abort()
            await until(lambda: not gone.open)
            await metric(proxy, "pins")  # takes a while, in which the proxy notices
            for _ in range(4):
                assert (await c.ask(listed)).status == 200
            assert await metric(proxy, "retries_total", reason="connect_failed") <= 1


async def test_a_backend_that_does_not_accept_is_504() -> None:
    with socket.socket() as full:
        full.bind(("127.0.0.1", 0))
        full.listen(0)
        port = full.getsockname()[1]
        fillers = [socket.socket() for _ in range(4)]
        try:
            for filler in fillers:
                filler.setblocking(False)
                filler.connect_ex(("127.0.0.1", port))
            text = config_text(port, pool="    timeouts: {connect: 200ms}")
            async with running(text) as proxy, client(proxy.port) as c:
                answer = await c.ask(call())
                assert (answer.status, answer.get("Mcp-Proxy-Error")) == (504, "connect_timeout")
        finally:
            for filler in fillers:
                filler.close()


async def test_the_owner_is_never_replaced() -> None:
    """Another backend would say that the task is unknown, which a client takes as final."""
    made = b'{"jsonrpc":"2.0","id":1,"result":{"resultType":"task","taskId":"t-1","status":"working"}}'

    async def owner(side: BackendSide) -> None:
        await side.request()
        side.answer(made)

    text = "    timeouts: {owner_wait: 300ms}"
    async with backend() as b, backend(owner) as a, running(config_text(a.port, b.port, pool=text)) as proxy:
        async with client(proxy.port) as c:
            while not a.requests:
                await c.ask(call())
            await until(lambda: not a.open)
            await a.stop_listening()
            others = len(b.requests)
            answer = await c.ask(task(b"get", b"t-1"))
            assert (answer.status, answer.get("Mcp-Proxy-Error")) == (503, "owner_down")
            assert answer.get("Retry-After") == "1"
            assert len(b.requests) == others
            assert await metric(proxy, "decisions_total", kind="task", source="pin", outcome="owner_down") == 1


async def test_no_route_is_404() -> None:
    async with backend() as a, running(config_text(a.port)) as proxy, client(proxy.port) as c:
        answer = await c.ask(post(target=b"/elsewhere"))
        assert (answer.status, answer.get("Mcp-Proxy-Error")) == (404, "no_route")
        assert (await c.ask(post())).status == 200


async def test_a_pool_that_takes_no_new_work_is_503() -> None:
    async with backend() as a:
        text = config_text(a.port).replace("/mcp'}", "/mcp', drain: true}")
        async with running(text) as proxy, client(proxy.port) as c:
            answer = await c.ask(call())
            assert (answer.status, answer.get("Mcp-Proxy-Error")) == (503, "no_backend")
            assert answer.get("Retry-After") == "1"
