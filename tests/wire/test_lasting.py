"""A stream that lasted leaves its connections as any other response does, though less was kept while it was open."""

import pytest

from tests.wire.harness import (
    MODERN,
    BackendSide,
    Message,
    backend,
    call,
    client,
    config_text,
    post,
    read_head,
    running,
)
from tests.wire.listeners import listen

STREAM = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n"
EVENT = b'data: {"jsonrpc":"2.0","method":"notifications/subscriptions/acknowledged"}\n\n'
END = b"0\r\n\r\n"


async def listened_to(side: BackendSide) -> None:
    """Answers calls; a subscription gets one event, and its end with the next call."""
    while True:
        request = await side.request()
        if b"subscriptions/listen" in request.head:
            side.send(STREAM + b"%x\r\n%b\r\n" % (len(EVENT), EVENT) + END)
        else:
            side.answer(request.head.split(b"\r\nMcp-Name: ")[1].split(b"\r\n")[0])


@pytest.mark.parametrize("at_once", [False, True], ids=["after the end", "pipelined"])
async def test_behind_a_subscription_come_other_requests_and_subscriptions(*, at_once: bool) -> None:
    async with backend(listened_to) as a, running(config_text(a.port)) as proxy, client(proxy.port) as c:
        requests = [call(b"one"), listen(), call(b"two"), call(b"three"), listen(), call(b"four")]
        expected = [b"one", EVENT, b"two", b"three", EVENT, b"four"]
        if at_once:
            c.send(b"".join(requests))
        for request, body in zip(requests, expected, strict=True):
            if not at_once:
                c.send(request)
            answer = await c.response()
            assert (answer.status, answer.body) == (200, body)
        assert a.connections == 1


@pytest.mark.parametrize("size", [1, 100, 400])
async def test_a_subscription_may_come_in_pieces(size: int) -> None:
    async with backend(listened_to) as a, running(config_text(a.port)) as proxy, client(proxy.port) as c:
        text = listen()
        for _ in range(2):
            for at in range(0, len(text), size):
                c.send(text[at : at + size])
                await c.writer.drain()
            assert b"\r\nContent-Type: text/event-stream" in (head := await read_head(c.reader)), head
            assert EVENT in await c.reader.readuntil(END)


async def test_what_no_limit_holds_is_sent_whole_again_to_another_backend() -> None:
    """Less is kept of it than of other requests, but its head is, as long as nothing has answered."""
    asked: list[Message] = []

    async def the_first_is_gone(side: BackendSide) -> None:
        asked.append(await side.request())
        if len(asked) > 1:
            side.answer(b"found")

    request = post(*MODERN, b"Mcp-Method: server/discover", b"X-Own: kept")
    async with backend(the_first_is_gone) as a, backend(the_first_is_gone) as b:
        async with running(config_text(a.port, b.port)) as proxy, client(proxy.port) as c:
            answer = await c.ask(request)
            assert (answer.status, answer.body) == (200, b"found")
    assert [message.get("X-Own") for message in asked] == ["kept", "kept"]
