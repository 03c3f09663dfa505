"""After which message a connection carries another: both readers of a message say the same, or the next one is lost."""

import pytest

from tests.wire.harness import BackendSide, answer_always, backend, client, config_text, post, running

OK = b"HTTP/1.1 200 OK\r\n"
CHUNKED = b"POST /mcp HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n"


@pytest.mark.parametrize("value", [b"close", b"Close", b"keep-alive, close", b"close,x"])
async def test_a_client_that_says_close_the_old_way_is_told_that_its_connection_closes(value: bytes) -> None:
    async with backend() as a, running(config_text(a.port)) as proxy, client(proxy.port) as c:
        c.send(post(b"Proxy-Connection: " + value) + post())
        answer = await c.response()
        assert (answer.status, answer.get("Connection")) == (200, "close")
        assert await c.rest() == b""
        assert len(a.requests) == 1


@pytest.mark.parametrize("value", [b"keep-alive", b"closed", b"host", b""])
async def test_proxy_connection_means_nothing_else(value: bytes) -> None:
    async with backend() as a, running(config_text(a.port)) as proxy, client(proxy.port) as c:
        for _ in range(2):
            answer = await c.ask(post(b"Proxy-Connection: " + value))
            assert (answer.status, answer.get("Connection")) == (200, None)
        assert all("Proxy-Connection" not in request.head.decode() for request in a.requests)


@pytest.mark.parametrize("value", [b"close", b"Close", b"keep-alive, close", b"close,x"])
async def test_a_backend_that_says_close_the_old_way_gets_the_next_request_on_a_new_connection(value: bytes) -> None:
    async def old(side: BackendSide) -> None:
        while True:
            await side.request()
            side.send(OK + b"Proxy-Connection: " + value + b"\r\nContent-Length: 2\r\n\r\nhi")

    async with backend(old) as a, running(config_text(a.port)) as proxy, client(proxy.port) as c:
        for count in (1, 2, 3):
            answer = await c.ask(post())
            assert (answer.status, answer.body) == (200, b"hi")
            assert answer.get("Connection") is answer.get("Proxy-Connection") is None
            assert a.connections == count


async def test_a_trailer_of_a_request_that_says_close_is_ignored() -> None:
    """RFC 9110, 6.5.1."""
    async with backend() as a, running(config_text(a.port)) as proxy, client(proxy.port) as c:
        assert (await c.ask(CHUNKED + b"2\r\nhi\r\n0\r\nConnection: close\r\n\r\n")).get("Connection") is None
        assert (await c.ask(post())).status == 200
        assert len(a.requests) == 2


async def test_a_trailer_of_a_response_that_says_close_spoils_no_other_response() -> None:
    async def closing(side: BackendSide) -> None:
        await side.request()
        side.send(OK + b"Transfer-Encoding: chunked\r\n\r\n2\r\nhi\r\n0\r\nConnection: close\r\n\r\n")
        await answer_always(side)

    async with backend(closing) as a, running(config_text(a.port)) as proxy, client(proxy.port) as c:
        assert (await c.ask(post())).body == b"hi"
        assert (await c.ask(post())).status == 200
