"""A poll whose owner goes away without an answer is sent to that owner again; nothing else that was sent ever is."""

import asyncio
from collections.abc import Callable

import pytest

from tests.wire.harness import (
    MODERN,
    BackendSide,
    Client,
    ScriptedBackend,
    answer_always,
    backend,
    call,
    client,
    config_text,
    metric,
    post,
    running,
    task,
    until,
)
from tests.wire.task_backend import created, state

BODY = b'{"jsonrpc":"2.0","id":1,"method":"tasks/get","params":{"taskId":"t-1"}}'
WAIT = "    timeouts: {owner_wait: 5s}"
OK = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\n"


def close(side: BackendSide) -> None:
    side.writer.close()


def reset(side: BackendSide) -> None:
    side.writer.transport.abort()


def close_in_the_head(side: BackendSide) -> None:
    """Of which the client sees nothing."""
    side.send(OK)
    side.writer.close()


def close_in_the_body(side: BackendSide) -> None:
    side.send(OK + b"Content-Length: 90\r\n\r\n{")
    side.writer.close()


def close_in_a_stream(side: BackendSide) -> None:
    head = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n"
    side.send(head + b"e\r\n: on its way\n\n\r\n")
    side.writer.close()


class Owner:
    """Makes the task `t-1`, leaves the next `silent` requests unanswered, and knows the task from then on."""

    def __init__(self, silent: int, end: Callable[[BackendSide], None] = close) -> None:
        self.silent = silent
        self.end = end
        self.asked = 0

    async def script(self, side: BackendSide) -> None:
        while True:
            request = await side.request()
            if request.get("Mcp-Method") == "tools/call":
                side.answer(created("t-1"))
                continue
            self.asked += 1
            if self.asked <= self.silent:
                self.end(side)
                return
            side.answer(state("t-1"))


async def make(c: Client, owner: ScriptedBackend) -> None:
    while not owner.requests:
        await c.ask(call())


def get(*lines: bytes, body: bytes = BODY) -> bytes:
    return post(*MODERN, b"Mcp-Method: tasks/get", b"Mcp-Name: t-1", *lines, body=body)


@pytest.mark.parametrize("end", [close, reset, close_in_the_head])
@pytest.mark.parametrize("silent", [1, 4])
async def test_the_same_bytes_go_to_the_same_owner(end: Callable[[BackendSide], None], silent: int) -> None:
    owner = Owner(silent, end)
    async with backend(owner.script) as a, backend() as b, running(config_text(a.port, b.port, pool=WAIT)) as proxy:
        async with client(proxy.port) as c:
            await make(c, a)
            others = len(b.requests)
            answer = await c.ask(get())
            assert (answer.status, answer.body) == (200, state("t-1"))
            polls = a.requests[1:]
            assert len(polls) == silent + 1
            assert {(poll.head, poll.body) for poll in polls} == {(polls[0].head, BODY)}
            assert len(b.requests) == others
            assert await metric(proxy, "retries_total", pool="agents", reason="backend_closed") == silent
            assert await metric(proxy, "decisions_total", kind="task", source="pin", outcome="served") == 1
            assert await metric(proxy, "backend_in_flight") == 0
            assert (await c.ask(get())).status == 200  # client and backend are still in step


async def test_a_body_in_pieces_and_a_chunked_one() -> None:
    for lines, pieces in (
        ((b"Content-Length: 71",), [BODY[:1], BODY[1:40], BODY[40:]]),
        ((b"Transfer-Encoding: chunked",), [b"3\r\n", b"%b\r\n44\r\n" % BODY[:3], BODY[3:] + b"\r\n", b"0\r\n\r\n"]),
    ):
        owner = Owner(2)
        async with backend(owner.script) as a, running(config_text(a.port, pool=WAIT)) as proxy:
            async with client(proxy.port) as c:
                await make(c, a)
                head = (b"Host: mcp.test", *MODERN, b"Mcp-Method: tasks/get", b"Mcp-Name: t-1", *lines)
                c.send(b"\r\n".join((b"POST /mcp HTTP/1.1", *head, b"", b"")))
                for piece in pieces:
                    c.send(piece)
                    await metric(proxy, "pins")  # takes a while, in which the proxy reads it
                assert (await c.response()).body == state("t-1")
                assert [request.body for request in a.requests[1:]] == [BODY] * 3


async def test_an_owner_that_restarts_is_awaited() -> None:
    owner = Owner(1)
    async with backend(owner.script) as a, running(config_text(a.port, pool=WAIT)) as proxy, client(proxy.port) as c:
        await make(c, a)
        await a.stop_listening()
        c.send(get())
        await until(lambda: owner.asked)
        await until(lambda: not a.open)
        while not await metric(proxy, "retries_total"):
            pass  # asking takes a while, in which the proxy goes on
        await a.listen_again()
        assert (await c.response()).status == 200


async def test_an_owner_that_stays_away_is_down() -> None:
    """Whether it refuses connections from then on, or closes each without an answer."""
    for refuses in (True, False):
        owner = Owner(10_000)
        async with backend(owner.script) as a, backend() as b:
            text = config_text(a.port, b.port, pool="    timeouts: {owner_wait: 300ms}")
            async with running(text) as proxy, client(proxy.port) as c:
                await make(c, a)
                if refuses:
                    await a.stop_listening()
                others, began = len(b.requests), asyncio.get_running_loop().time()
                answer = await c.ask(get())
                assert asyncio.get_running_loop().time() - began < 1.0
                assert (answer.status, answer.get("Mcp-Proxy-Error")) == (503, "owner_down")
                assert answer.get("Retry-After") == "1"
                assert owner.asked == 1 if refuses else 3 <= owner.asked <= 7
                assert len(b.requests) == others
                assert await metric(proxy, "decisions_total", source="pin", outcome="owner_down") == 1
                assert await metric(proxy, "backend_in_flight") == 0


@pytest.mark.parametrize("method", [b"update", b"cancel"])
async def test_what_may_have_changed_a_task_is_not_sent_again(method: bytes) -> None:
    owner = Owner(1)
    async with backend(owner.script) as a, running(config_text(a.port, pool=WAIT)) as proxy, client(proxy.port) as c:
        await make(c, a)
        answer = await c.ask(task(method, b"t-1"))
        assert (answer.status, answer.get("Mcp-Proxy-Error")) == (502, "backend_closed")
        assert owner.asked == 1
        assert await metric(proxy, "retries_total") == 0


async def test_a_poll_that_nobody_owns_is_not_sent_again() -> None:
    """Whoever is asked by the ring, for want of an owner, is none."""
    owner = Owner(1)
    text = WAIT + "\n    tasks: {search: false}"
    async with backend(owner.script) as a, backend(owner.script) as b:
        async with running(config_text(a.port, b.port, pool=text)) as proxy, client(proxy.port) as c:
            answer = await c.ask(get())
            assert (answer.status, answer.get("Mcp-Proxy-Error")) == (502, "backend_closed")
            assert owner.asked == 1


async def test_a_poll_too_large_to_be_kept_is_not_sent_again() -> None:
    for size, expected in ((64 * 1024, 200), (64 * 1024 + 1, 502)):
        owner = Owner(1)
        async with backend(owner.script) as a, running(config_text(a.port, pool=WAIT)) as proxy:
            async with client(proxy.port) as c:
                await make(c, a)
                assert (await c.ask(get(body=b" " * size))).status == expected


async def test_of_an_answer_that_breaks_off_the_client_sees_nothing() -> None:
    """Servers write head and body apart, and may die between the two."""
    owner = Owner(1, close_in_the_body)
    async with backend(owner.script) as a, running(config_text(a.port, pool=WAIT)) as proxy, client(proxy.port) as c:
        await make(c, a)
        assert (await c.ask(get())).status == 200
        assert owner.asked == 2
        assert await metric(proxy, "decisions_total", kind="task", outcome="served") == 1


async def test_an_answer_that_the_client_has_seen_the_beginning_of_is_cut() -> None:
    owner = Owner(1, close_in_a_stream)
    async with backend(owner.script) as a, running(config_text(a.port, pool=WAIT)) as proxy, client(proxy.port) as c:
        await make(c, a)
        c.send(get())
        assert (await c.rest()).endswith(b": on its way\n\n\r\n")
        assert owner.asked == 1


async def test_an_answer_that_does_not_parse_is_not_asked_for_again() -> None:
    owner = Owner(1, lambda side: side.send(b"HTTP/1.1 200 OK\r\nno field\r\n\r\n"))
    async with backend(owner.script) as a, running(config_text(a.port, pool=WAIT)) as proxy, client(proxy.port) as c:
        await make(c, a)
        answer = await c.ask(get())
        assert (answer.status, answer.get("Mcp-Proxy-Error")) == (502, "bad_response")
        assert owner.asked == 1


async def test_a_client_that_leaves_while_its_owner_is_awaited() -> None:
    owner = Owner(1)
    async with backend(owner.script) as a, backend(answer_always), running(config_text(a.port, pool=WAIT)) as proxy:
        async with client(proxy.port) as c:
            await make(c, a)
            await a.stop_listening()
            c.send(get())
            await until(lambda: owner.asked and not a.open)
            c.close()
        await until(lambda: not proxy.pools["agents"].everyone[0].in_flight)
        await a.listen_again()
        assert owner.asked == 1


async def test_the_only_backend_is_awaited_though_nothing_says_that_it_owns_the_task() -> None:
    """Who else could? A proxy that starts while a pool's only backend is away must not call that a failure."""
    owner = Owner(1)
    async with backend(owner.script) as a:
        for wait, expected in (("300ms", (503, "owner_down", "1")), ("5s", (200, None, None))):
            await a.stop_listening()
            text = config_text(a.port, pool=f"    timeouts: {{owner_wait: {wait}}}")
            async with running(text) as proxy, client(proxy.port) as c:
                c.send(get())
                while not proxy.pools["agents"].everyone[0].in_flight:
                    await asyncio.sleep(0)
                if expected[0] == 200:
                    await a.listen_again()
                answer = await c.response()
                assert (answer.status, answer.get("Mcp-Proxy-Error"), answer.get("Retry-After")) == expected
        assert owner.asked == 2  # the first one was taken along, and the poll sent again
