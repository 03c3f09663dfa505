"""What may have been sent is sent again only where that changes nothing; no call is ever executed twice."""

import asyncio
from collections.abc import Callable

import pytest

from proxy.app import Proxy
from proxy.config import parse
from proxy.records import KNOWN_METHODS
from proxy.routing.retries import RetryBudget
from tests.wire.harness import (
    MODERN,
    BackendSide,
    answer_always,
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
    until,
)

HARMLESS = {
    *("tools/list", "prompts/list", "resources/list", "resources/templates/list"),
    *("prompts/get", "resources/read"),
}
"""Those that another backend may be asked, so often as the rule says."""
OTHERS = sorted(KNOWN_METHODS - HARMLESS - {"server/discover", "tasks/get"})
LATE = "    timeouts: {owner_wait: 200ms}\n"


def close(side: BackendSide) -> None:
    side.writer.close()


def reset(side: BackendSide) -> None:
    side.writer.transport.abort()


def close_in_the_head(side: BackendSide) -> None:
    side.send(b"HTTP/1.1 200 OK\r\nContent-Ty")
    side.writer.close()


def close_after_the_head(side: BackendSide) -> None:
    side.send(b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: 9\r\n\r\n")
    side.writer.close()


class Losing:
    """Reads each request whole, executes it, and loses the connection instead of answering, the first `times`."""

    def __init__(self, times: int = 10_000, end: Callable[[BackendSide], None] = reset) -> None:
        self.times = times
        self.end = end
        self.executed = 0

    async def script(self, side: BackendSide) -> None:
        while True:
            await side.request()
            self.executed += 1
            if self.executed <= self.times:
                self.end(side)
                return
            side.answer()


def ask(method: str, *lines: bytes, body: bytes = b'{"id":1}') -> bytes:
    return post(*MODERN, b"Mcp-Method: " + method.encode(), b"Mcp-Name: n", *lines, body=body)


def get(*lines: bytes) -> bytes:
    return b"\r\n".join((b"GET /mcp HTTP/1.1", b"Host: mcp.test", *lines, b"", b""))


def apply(proxy: Proxy, text: str) -> None:
    proxy.apply(parse(text, "test.yaml", {}))


LEGACY = (b"MCP-Protocol-Version: 2025-11-25", b"Content-Type: application/json")


@pytest.mark.parametrize("end", [close, reset, close_in_the_head])
@pytest.mark.parametrize("method", [*OTHERS, "acme/list", "tools/list2", ""])
async def test_a_call_whose_backend_is_lost_was_executed_once(method: str, end: Callable[[BackendSide], None]) -> None:
    """Even if another backend could serve it at once."""
    losing = Losing(end=end)
    async with backend(losing.script) as a, running(config_text(a.port, pool=LATE)) as proxy:
        async with client(proxy.port) as c:
            answer = await c.ask(ask(method))
            assert (answer.status, answer.get("Mcp-Proxy-Error")) == (502, "backend_closed")
            assert losing.executed == 1
            assert await metric(proxy, "retries_total") == 0
            label = method if method in KNOWN_METHODS else "other"
            assert await metric(proxy, "retries_withheld_total", pool="agents", method=label) == 1
            assert await metric(proxy, "backend_in_flight") == 0


@pytest.mark.parametrize("method", [method for method in OTHERS if not method.startswith("tasks/")])
async def test_nor_does_another_backend_execute_it(method: str) -> None:
    one, two = Losing(), Losing()
    async with backend(one.script) as a, backend(two.script) as b, running(config_text(a.port, b.port)) as proxy:
        async with client(proxy.port) as c:
            assert (await c.ask(ask(method))).status == 502
            assert one.executed + two.executed == 1


@pytest.mark.parametrize("method", sorted(KNOWN_METHODS))
async def test_nothing_of_an_older_protocol_is_sent_again(method: str) -> None:
    """Whatever its headers say."""
    losing = Losing()
    async with backend(losing.script) as a, running(config_text(a.port)) as proxy, client(proxy.port) as c:
        answer = await c.ask(post(*LEGACY, b"Mcp-Method: " + method.encode()))
        assert answer.status == 502
        assert losing.executed == 1
        assert await metric(proxy, "retries_withheld_total", method="other") == 1


@pytest.mark.parametrize("end", [close, reset, close_in_the_head])
@pytest.mark.parametrize("method", sorted(HARMLESS))
async def test_what_changes_nothing_is_asked_of_another_backend(
    method: str, end: Callable[[BackendSide], None]
) -> None:
    one, two = Losing(1, end), Losing(0)
    body, text = b'{"jsonrpc":"2.0","id":7}', "    balance: round_robin"
    async with backend(one.script) as a, backend(two.script) as b:
        async with running(config_text(a.port, b.port, pool=text)) as proxy, client(proxy.port) as c:
            assert (await c.ask(ask(method, body=body))).status == 200
            assert (one.executed, two.executed) == (1, 1)
            sent = [*a.requests, *b.requests]
            assert [(request.get("Mcp-Method"), request.body) for request in sent] == [(method, body)] * 2
            assert await metric(proxy, "retries_total", pool="agents", reason="backend_closed") == 1
            assert await metric(proxy, "retries_withheld_total") == 0
            assert await metric(proxy, "backend_in_flight") == 0
            assert (await c.ask(ask(method))).status == 200  # client and backends are still in step


async def test_the_only_backend_is_asked_again_over_a_new_connection() -> None:
    """A kept connection may have been closing when the request was sent."""
    losing = Losing(0)
    async with backend(losing.script) as a, running(config_text(a.port)) as proxy, client(proxy.port) as c:
        for _ in range(3):
            assert (await c.ask(ask("tools/list"))).status == 200
        assert a.connections == 1
        losing.times, losing.executed = 1, 0
        assert (await c.ask(ask("tools/list"))).status == 200
        assert (losing.executed, a.connections) == (2, 2)


@pytest.mark.parametrize(("attempts", "executed"), [(1, 1), (2, 2), (4, 4)])
async def test_so_often_as_the_rule_says(attempts: int, executed: int) -> None:
    losing = Losing()
    text = f"    retry: {{attempts: {attempts}}}"
    async with backend(losing.script) as a, running(config_text(a.port, pool=text)) as proxy, client(proxy.port) as c:
        answer = await c.ask(ask("tools/list"))
        assert (answer.status, answer.get("Mcp-Proxy-Error")) == (502, "backend_closed")
        assert losing.executed == executed
        assert await metric(proxy, "retries_withheld_total") == 0
        assert await metric(proxy, "retries_total") == executed - 1


async def test_repeats_have_a_budget() -> None:
    """When every answer is lost, so many repeats follow, and no more; what is held back is counted."""
    losing = Losing()
    async with backend(losing.script) as a, running(config_text(a.port, pool="    outlier: off")) as proxy:
        async with client(proxy.port) as c:
            for _ in range(10):
                assert (await c.ask(ask("tools/list"))).status == 502
        assert losing.executed == 10 + RetryBudget.ALWAYS
        assert await metric(proxy, "retries_withheld_total", pool="agents", method="tools/list") == 7
        losing.times = 0
        async with client(proxy.port) as c:
            assert (await c.ask(ask("tools/list"))).status == 200


async def test_a_budget_outlives_a_reload() -> None:
    losing = Losing()
    async with backend(losing.script) as a, running(config_text(a.port, pool="    outlier: off")) as proxy:
        before = proxy.lanes["agents"].budget
        from_text = config_text(a.port, pool="    outlier: off\n    retry: {attempts: 3, budget: 50%}")
        apply(proxy, from_text)
        assert proxy.lanes["agents"].budget is before
        async with client(proxy.port) as c:
            assert (await c.ask(ask("tools/list"))).status == 502
        assert losing.executed == 3


async def test_a_body_too_large_to_be_kept_is_not_sent_again() -> None:
    for size, executed, withheld in ((64 * 1024, 2, 0), (64 * 1024 + 1, 1, 1)):
        losing = Losing()
        async with backend(losing.script) as a, running(config_text(a.port)) as proxy, client(proxy.port) as c:
            assert (await c.ask(ask("resources/read", body=b" " * size))).status == 502
            assert losing.executed == executed
            assert await metric(proxy, "retries_withheld_total", method="resources/read") == withheld


async def test_a_body_that_comes_in_chunks_is_the_same_again() -> None:
    body = b'{"jsonrpc":"2.0","id":1}'
    losing = Losing(1)
    async with backend(losing.script) as a, running(config_text(a.port)) as proxy, client(proxy.port) as c:
        head = (b"POST /mcp HTTP/1.1", b"Host: x", *MODERN, b"Mcp-Method: tools/list", b"Transfer-Encoding: chunked")
        c.send(b"\r\n".join((*head, b"", b"")) + b"3\r\n" + body[:3] + b"\r\n")
        await until(lambda: a.connections)
        c.send(b"15\r\n" + body[3:] + b"\r\n0\r\n\r\n")
        assert (await c.response()).status == 200
        assert [request.body for request in a.requests] == [body, body]


async def test_a_connection_that_is_lost_while_the_body_still_comes() -> None:
    """What is there is sent again, and the rest as it comes."""
    seen: list[bytes] = []

    async def script(side: BackendSide) -> None:
        if not seen:
            await read_head(side.reader)
            seen.append(await side.reader.readexactly(3))
            side.writer.transport.abort()
        else:
            await answer_always(side)

    async with backend(script) as a, running(config_text(a.port)) as proxy, client(proxy.port) as c:
        text = ask("prompts/get", body=b"123456")
        c.send(text[:-3])
        await until(lambda: seen and a.connections == 2)
        c.send(text[-3:])
        assert (await c.response()).status == 200
        assert (seen, [request.body for request in a.requests]) == ([b"123"], [b"123456"])


async def test_an_answer_that_the_client_has_seen_the_beginning_of_is_cut() -> None:
    losing = Losing(1, close_after_the_head)
    async with backend(losing.script) as a, running(config_text(a.port)) as proxy, client(proxy.port) as c:
        c.send(ask("tools/list"))
        assert (await c.rest()).endswith(b"\r\n\r\n")
        assert losing.executed == 1
        assert await metric(proxy, "retries_withheld_total") == 0


async def test_an_answer_that_does_not_parse_is_not_asked_for_again() -> None:
    losing = Losing(1, lambda side: side.send(b"HTTP/1.1 200 OK\r\nno field\r\n\r\n"))
    async with backend(losing.script) as a, running(config_text(a.port)) as proxy, client(proxy.port) as c:
        answer = await c.ask(ask("tools/list"))
        assert (answer.status, answer.get("Mcp-Proxy-Error")) == (502, "bad_response")
        assert losing.executed == 1
        assert await metric(proxy, "retries_withheld_total") == 0


# ---- GET


@pytest.mark.parametrize("lines", [(), MODERN[:1], LEGACY[:1]])
async def test_a_get_without_a_body_is_sent_again(lines: tuple[bytes, ...]) -> None:
    losing = Losing(1)
    async with backend(losing.script) as a, running(config_text(a.port)) as proxy, client(proxy.port) as c:
        assert (await c.ask(get(*lines))).status == 200
        assert losing.executed == 2


async def test_a_get_with_a_body_is_not() -> None:
    for text in (get(b"Content-Length: 2") + b"{}", get(b"Transfer-Encoding: chunked") + b"0\r\n\r\n"):
        losing = Losing(1)
        async with backend(losing.script) as a, running(config_text(a.port)) as proxy, client(proxy.port) as c:
            assert (await c.ask(text)).status == 502
            assert losing.executed == 1


async def test_the_stream_of_a_session_is_asked_for_again_at_its_backend_alone() -> None:
    one, two = Losing(0), Losing(0)

    async def opens(side: BackendSide) -> None:
        while True:
            request = await side.request()
            if request.first.startswith(b"GET"):
                one.executed += 1
                if one.executed == 1:
                    side.writer.transport.abort()
                    return
            side.send(b"HTTP/1.1 200 OK\r\nMcp-Session-Id: s\r\nContent-Length: 2\r\n\r\n{}")

    async with backend(opens) as a, backend(two.script) as b, running(config_text(a.port, b.port)) as proxy:
        async with client(proxy.port) as c:
            session = None
            while session is None:
                session = (await c.ask(post(*LEGACY))).get("Mcp-Session-Id")
            others = two.executed
            answer = await c.ask(get(*LEGACY[:1], b"Mcp-Session-Id: " + session.encode()))
            assert answer.status == 200
            assert (one.executed, two.executed) == (2, others)


# ---- nothing was sent


async def test_what_was_not_sent_goes_to_all_others_whatever_the_rule() -> None:
    """It costs no backend anything, and executes nothing: even a call may go on to the only one that lives."""
    text = "    balance: round_robin\n    outlier: off\n    retry: {attempts: 1, budget: 1%}"
    ports = [closed_port() for _ in range(5)]
    async with backend() as a, running(config_text(*ports, a.port, pool=text)) as proxy, client(proxy.port) as c:
        for _ in range(12):
            assert (await c.ask(call())).status == 200
        assert len(a.requests) == 12
        assert await metric(proxy, "retries_withheld_total") == 0
        assert await metric(proxy, "retries_total", reason="connect_failed") > 12


async def test_a_list_goes_on_where_it_began_though_another_backend_was_chosen_first() -> None:
    """The first page came from the second choice, whose cursor means nothing to the first."""
    text = "    balance: round_robin\n    outlier: off"
    async with backend() as a, backend() as b, backend() as d:
        async with running(config_text(a.port, b.port, d.port, pool=text)) as proxy, client(proxy.port) as c:
            await a.stop_listening()
            assert (await c.ask(ask("tools/list"))).status == 200
            served = b if b.requests else d
            await a.listen_again()
            for _ in range(6):
                assert (await c.ask(ask("tools/list"))).status == 200
            assert len(served.requests) == 7


# ---- server/discover


DISCOVER = ask("server/discover")


@pytest.mark.parametrize(
    "fault",
    [
        reset,
        close,
        close_in_the_head,
        lambda side: side.send(b"HTTP/1.1 200 OK\r\nno field\r\n\r\n"),
        lambda side: side.send(b"nonsense\r\n\r\n"),
    ],
)
async def test_discovery_asks_every_backend_before_it_fails(fault: Callable[[BackendSide], None]) -> None:
    """One 5xx of ours, and official clients speak the older protocol from then on. Rule and budget do not count."""
    losing = [Losing(end=fault) for _ in range(4)]
    text = "    outlier: off\n    retry: {attempts: 1}"
    async with backend(losing[0].script) as a, backend(losing[1].script) as b, backend(losing[2].script) as d:
        async with backend() as living:
            ports = (a.port, b.port, closed_port(), d.port, living.port)
            async with running(config_text(*ports, pool=text)) as proxy, client(proxy.port) as c:
                for _ in range(8):
                    assert (await c.ask(DISCOVER)).status == 200
                assert len(living.requests) == 8
                assert max(one.executed for one in losing) <= 8
                assert await metric(proxy, "retries_withheld_total") == 0
                assert await metric(proxy, "backend_in_flight") == 0
                await living.stop_listening()
                for side in living.open:
                    side.writer.close()
                answer = await c.ask(DISCOVER)
                assert answer.status == 502  # nobody lives who could answer


async def test_discovery_asks_backends_that_take_no_new_work_if_no_other_lives() -> None:
    async with backend() as a, backend() as b:
        async with running(config_text(a.port, b.port, closed_port())) as proxy, client(proxy.port) as c:
            for member in proxy.pools["agents"].members[:2]:
                proxy.pools["agents"].set_draining(member, True)
            assert (await c.ask(DISCOVER)).status == 200
            assert (await c.ask(call())).get("Mcp-Proxy-Error") == "connect_failed"
            proxy.pools["agents"].set_draining(proxy.pools["agents"].members[2], True)
            assert (await c.ask(DISCOVER)).status == 200
            assert (await c.ask(call())).get("Mcp-Proxy-Error") == "no_backend"


async def test_discovery_waits_for_a_restart() -> None:
    text = "    outlier: off\n    timeouts: {owner_wait: 5s}"
    async with backend() as a, running(config_text(a.port, closed_port(), pool=text)) as proxy:
        async with client(proxy.port) as c:
            await a.stop_listening()
            c.send(DISCOVER)
            while await metric(proxy, "retries_total", reason="connect_failed") < 4:
                pass  # asking takes a while, in which the proxy goes on
            await a.listen_again()
            assert (await c.response()).status == 200


async def test_discovery_does_not_wait_for_longer_than_for_an_owner() -> None:
    text = "    outlier: off\n    timeouts: {owner_wait: 300ms}"
    ports = closed_port(), closed_port()
    async with running(config_text(*ports, pool=text)) as proxy, client(proxy.port) as c:
        began = asyncio.get_running_loop().time()
        answer = await c.ask(DISCOVER)
        assert (answer.status, answer.get("Mcp-Proxy-Error")) == (502, "connect_failed")
        assert 0.1 < asyncio.get_running_loop().time() - began < 2.0
        assert await metric(proxy, "backend_in_flight") == 0


async def test_a_backends_own_error_passes() -> None:
    answers = answering(b"HTTP/1.1 503 Service Unavailable\r\nContent-Length: 0\r\n\r\n")
    async with backend(answers) as a, backend(answers) as b, running(config_text(a.port, b.port)) as proxy:
        async with client(proxy.port) as c:
            answer = await c.ask(DISCOVER)
            assert (answer.status, answer.get("Mcp-Proxy-Error")) == (503, None)
            assert len(a.requests) + len(b.requests) == 1


async def test_a_client_that_leaves_while_all_are_asked() -> None:
    text = "    outlier: off\n    timeouts: {owner_wait: 5s}"
    async with running(config_text(closed_port(), pool=text)) as proxy:
        async with client(proxy.port) as c:
            c.send(DISCOVER)
            while not await metric(proxy, "retries_total"):
                pass
            c.close()
        while not await metric(proxy, "client_hangups_total"):
            pass
        assert await metric(proxy, "backend_in_flight") == 0
