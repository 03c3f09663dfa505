"""What is too much waits for a moment, then is refused with 503 and Retry-After; and what was begun goes first."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager

import pytest

from proxy.app import Proxy
from proxy.config import parse
from tests.wire.harness import (
    MODERN,
    BackendSide,
    Client,
    Message,
    ScriptedBackend,
    call,
    client,
    config_text,
    metric,
    post,
    running,
    task,
    until,
)

DISCOVER = post(*MODERN, b"Mcp-Method: server/discover")
LISTEN = post(*MODERN, b"Mcp-Method: subscriptions/listen")
SSE = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n"
TASK = b'{"jsonrpc":"2.0","id":1,"result":{"resultType":"task","taskId":"t-1"}}'


class Slow(ScriptedBackend):
    """Answers a call when it is told to, and all else at once."""

    def __init__(self) -> None:
        super().__init__(self.play)
        self.may_answer: asyncio.Queue[None] = asyncio.Queue()

    def let(self, count: int = 1) -> None:
        """Answers so many calls, those that it has and those that come."""
        for _ in range(count):
            self.may_answer.put_nowait(None)

    async def play(self, side: BackendSide) -> None:
        while True:
            request = await side.request()
            method, name = request.get("Mcp-Method"), request.get("Mcp-Name")
            if method == "subscriptions/listen" or request.first.startswith(b"GET"):
                side.send(SSE)
                await side.peer_closes()
                return
            if method == "tools/call" and name == "make":
                side.answer(TASK)
            elif method == "server/discover":
                side.answer()
            else:
                await self.may_answer.get()
                side.answer()


@asynccontextmanager
async def slow(limits: str, *, backends: int = 1) -> AsyncIterator[tuple[Proxy, list[Slow]]]:
    """A proxy whose pool has these limits, and so many backends."""
    async with AsyncExitStack() as stack:
        started = [Slow() for _ in range(backends)]
        for one in started:
            await one.listen()
            stack.push_async_callback(one.end)
        text = config_text(*(one.port for one in started), pool=f"    limits: {limits}")
        yield await stack.enter_async_context(running(text)), started


async def begun(proxy: Proxy, request: bytes, stack: AsyncExitStack) -> "asyncio.Task[Message]":
    """A client of its own that has sent this request; its answer."""
    one: Client = await stack.enter_async_context(client(proxy.port))
    one.send(request)
    return asyncio.create_task(one.response())


def refused(answer: Message) -> bool:
    return (answer.status, answer.get("Mcp-Proxy-Error"), answer.get("Retry-After")) == (503, "overloaded", "1")


async def test_what_is_beyond_the_limit_waits_and_is_served() -> None:
    async with slow("{in_flight: 2, queue: 5, queue_wait: 5s}") as (proxy, (a,)), AsyncExitStack() as stack:
        answers = [await begun(proxy, call(), stack) for _ in range(5)]
        await until(lambda: len(a.requests) == 2 and len(proxy.pools["agents"].queue) == 3)
        assert await metric(proxy, "queued", pool="agents") == 3
        assert await metric(proxy, "backend_in_flight", backend="a") == 2
        a.let(5)
        assert [answer.status for answer in await asyncio.gather(*answers)] == [200] * 5
        await until(lambda: proxy.pools["agents"].queue.taken == 0)
        assert await metric(proxy, "queued", pool="agents") == 0
        assert await metric(proxy, "rejected_total") == 0


async def test_a_full_queue_refuses_at_once() -> None:
    async with slow("{in_flight: 1, queue: 1, queue_wait: 5s}") as (proxy, (a,)), AsyncExitStack() as stack:
        first = await begun(proxy, call(), stack)
        await until(lambda: a.requests)
        second = await begun(proxy, call(), stack)
        await until(lambda: len(proxy.pools["agents"].queue))
        assert refused(await (await begun(proxy, call(), stack)))
        a.let(2)
        assert [(await answer).status for answer in (first, second)] == [200, 200]
        assert await metric(proxy, "rejected_total", reason="overloaded") == 1
        assert await metric(proxy, "requests_total", route="rest", code="503") == 1
        assert await metric(proxy, "decisions_total") == len(a.requests) == 2  # it was sent to no backend


async def test_who_waits_too_long_is_refused_and_may_go_on_with_its_connection() -> None:
    async with slow("{in_flight: 1, queue: 9, queue_wait: 100ms}") as (proxy, (a,)), AsyncExitStack() as stack:
        first = await begun(proxy, call(), stack)
        await until(lambda: a.requests)
        async with client(proxy.port) as late:
            assert refused(await late.ask(call(b"t", body=b"x" * 1000)))
            assert len(proxy.pools["agents"].queue) == 0
            a.let(2)
            assert (await first).status == 200
            assert (await late.ask(call())).status == 200
        assert len(a.requests) == 2


async def test_a_client_that_leaves_waits_no_longer_and_its_turn_is_somebody_elses() -> None:
    async with slow("{in_flight: 1, queue: 9, queue_wait: 5s}") as (proxy, (a,)), AsyncExitStack() as stack:
        queue = proxy.pools["agents"].queue
        first = await begun(proxy, call(b"first"), stack)
        await until(lambda: a.requests)
        async with client(proxy.port) as leaving:
            leaving.send(call(b"leaving"))
            await until(lambda: len(queue) == 1)
            last = await begun(proxy, call(b"last"), stack)
            await until(lambda: len(queue) == 2)
        await until(lambda: len(queue) == 1)
        a.let(2)
        assert [(await answer).status for answer in (first, last)] == [200, 200]
        assert [request.get("Mcp-Name") for request in a.requests] == ["first", "last"]
        assert queue.taken == 0


@pytest.mark.parametrize("size", [0, 1000, 200_000])
async def test_a_body_that_came_while_its_request_waited_is_sent(size: int) -> None:
    body = b"x" * size
    async with slow("{in_flight: 1, queue: 9, queue_wait: 5s}") as (proxy, (a,)), AsyncExitStack() as stack:
        first = await begun(proxy, call(), stack)
        await until(lambda: a.requests)
        second = await begun(proxy, call(b"late", body=body), stack)
        await until(lambda: len(proxy.pools["agents"].queue) == 1)
        a.let(2)
        assert [(await answer).status for answer in (first, second)] == [200, 200]
        assert a.requests[1].body == body


async def test_what_finishes_something_goes_before_new_work() -> None:
    async with slow("{in_flight: 1, queue: 9, queue_wait: 5s}") as (proxy, (a,)), AsyncExitStack() as stack:
        queue = proxy.pools["agents"].queue
        async with client(proxy.port) as maker:
            assert (await maker.ask(call(b"make"))).body == TASK
        answers = [await begun(proxy, call(b"first"), stack)]
        await until(lambda: len(a.requests) == 2)
        for number, request in enumerate((call(b"new"), task(b"get", b"t-1"), call(b"newer"))):
            answers.append(await begun(proxy, request, stack))
            await until(lambda number=number: len(queue) == number + 1)  # type: ignore[misc]
        a.let(4)
        assert [(await answer).status for answer in answers] == [200] * 4
        assert [request.get("Mcp-Name") for request in a.requests[1:]] == ["first", "t-1", "new", "newer"]


async def test_discovery_and_streams_without_an_end_pass_a_full_pool() -> None:
    """A client that is refused its discovery would fall back to the older protocol."""
    async with slow("{in_flight: 1, queue: 0}") as (proxy, (a,)), AsyncExitStack() as stack:
        first = await begun(proxy, call(), stack)
        await until(lambda: a.requests)
        assert refused(await (await begun(proxy, call(), stack)))
        assert (await (await begun(proxy, DISCOVER, stack))).status == 200
        async with client(proxy.port) as listener:
            listener.send(LISTEN)
            async with asyncio.timeout(5):
                assert (await listener.reader.readuntil(b"\r\n\r\n")).startswith(b"HTTP/1.1 200")
        a.let()
        assert (await first).status == 200


async def test_streams_without_an_end_leave_the_slots_to_work() -> None:
    async with slow("{in_flight: 1, queue: 0}") as (proxy, (a,)), AsyncExitStack() as stack:
        for _ in range(3):
            listener = await stack.enter_async_context(client(proxy.port))
            listener.send(LISTEN)
        await until(lambda: len(a.requests) == 3)
        first = await begun(proxy, call(), stack)
        await until(lambda: len(a.requests) == 4)
        a.let()
        assert (await first).status == 200


async def test_each_backend_has_its_own_limit_and_others_are_used_first() -> None:
    limits = "{in_flight: 100, per_backend: 1, queue: 9, queue_wait: 5s}"
    async with slow(limits, backends=2) as (proxy, (a, b)), AsyncExitStack() as stack:
        answers = [await begun(proxy, call(), stack) for _ in range(3)]
        await until(lambda: len(a.requests) == len(b.requests) == 1 and len(proxy.pools["agents"].queue) == 1)
        b.let()
        await until(lambda: len(b.requests) == 2)
        a.let()
        b.let()
        assert [(await answer).status for answer in answers] == [200] * 3
        assert len(a.requests) == 1


async def test_a_request_with_an_owner_waits_for_that_owner() -> None:
    limits = "{in_flight: 100, per_backend: 1, queue: 9, queue_wait: 5s}"
    async with slow(limits, backends=2) as (proxy, both), AsyncExitStack() as stack:
        async with client(proxy.port) as maker:
            assert (await maker.ask(call(b"make"))).body == TASK
        owner, other = both if both[0].requests else both[::-1]
        answers = [await begun(proxy, call(), stack) for _ in range(2)]
        await until(lambda: len(owner.requests) == 2 and len(other.requests) == 1)
        poll = await begun(proxy, task(b"get", b"t-1"), stack)
        await until(lambda: len(proxy.pools["agents"].queue) == 1)
        other.let()
        await until(lambda: other.requests and not proxy.pools["agents"].member("ab"[both.index(other)]).in_flight)  # type: ignore[union-attr]
        assert len(proxy.pools["agents"].queue) == 1
        owner.let(2)
        assert [(await answer).status for answer in (*answers, poll)] == [200] * 3
        assert owner.requests[-1].get("Mcp-Name") == "t-1"


async def test_a_waiting_request_goes_elsewhere_if_its_backend_is_drained_meanwhile() -> None:
    async with slow("{in_flight: 1, queue: 9, queue_wait: 5s}", backends=2) as (proxy, both), AsyncExitStack() as stack:
        first = await begun(proxy, call(), stack)
        await until(lambda: both[0].requests or both[1].requests)
        busy, free = both if both[0].requests else both[::-1]
        second = await begun(proxy, call(), stack)
        await until(lambda: len(proxy.pools["agents"].queue) == 1)
        proxy.set_draining(pool="agents", backend="ab"[both.index(free)], draining=True)
        busy.let(2)
        assert [(await answer).status for answer in (first, second)] == [200, 200]
        assert (len(busy.requests), len(free.requests)) == (2, 0)


async def test_a_waiting_request_is_refused_if_no_backend_is_left() -> None:
    async with slow("{in_flight: 1, queue: 9, queue_wait: 5s}") as (proxy, (a,)), AsyncExitStack() as stack:
        first = await begun(proxy, call(), stack)
        await until(lambda: a.requests)
        second = await begun(proxy, call(), stack)
        await until(lambda: len(proxy.pools["agents"].queue) == 1)
        proxy.set_draining(pool="agents", backend="a", draining=True)
        a.let()
        assert (await first).status == 200
        answer = await second
        assert (answer.status, answer.get("Mcp-Proxy-Error")) == (503, "no_backend")
        assert proxy.pools["agents"].queue.taken == 0


async def test_new_limits_hold_for_what_waits() -> None:
    async with slow("{in_flight: 1, queue: 9, queue_wait: 5s}") as (proxy, (a,)), AsyncExitStack() as stack:
        answers = [await begun(proxy, call(), stack) for _ in range(3)]
        await until(lambda: len(a.requests) == 1 and len(proxy.pools["agents"].queue) == 2)
        text = config_text(a.port, pool="    limits: {in_flight: 3}", listen=f"127.0.0.1:{proxy._config.listen.port}")
        proxy.apply(parse(text, "test.yaml", {}))
        await until(lambda: len(a.requests) == 3)
        a.let(3)
        assert [(await answer).status for answer in answers] == [200] * 3
