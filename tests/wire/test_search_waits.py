"""A search whose answer only a backend that is away can give waits for it, and holds up nobody meanwhile."""

import asyncio
import json
import socket
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

import pytest

from proxy.app import Proxy
from proxy.config import parse
from proxy.wire import search
from tests.wire.harness import (
    MODERN,
    BackendSide,
    Message,
    ScriptedBackend,
    answering,
    backend,
    client,
    config_text,
    metric,
    post,
    read_body,
    running,
    task,
    until,
)
from tests.wire.task_backend import UNKNOWN, TaskBackend, state

Script = Callable[[BackendSide], Awaitable[None]]
LONG = "    timeouts: {owner_wait: 20s}"  # no test waits for its end
OK = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\n"
EACH = 32  # searches of one address that have a turn at the same time


def answer(status: bytes, code: int, message: str = "") -> bytes:
    body = json.dumps({"jsonrpc": "2.0", "id": 1, "error": {"code": code, "message": message}}).encode()
    return b"HTTP/1.1 %b\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n%b" % (status, len(body), body)


@asynccontextmanager
async def fleet(
    *scripts: Script | bytes, away: str = "b", pool: str = LONG
) -> AsyncIterator[tuple[Proxy, list[ScriptedBackend]]]:
    """A proxy before backends a, b, ..., one per script or constant answer; those that are `away` refuse to begin with.

    At the end nothing may be left of any search.
    """
    async with asyncio.timeout(60):
        entered, backends = [], []
        try:
            for name, script in zip("abcdefgh", scripts, strict=False):
                manager = backend(answering(script) if isinstance(script, bytes) else script)
                backends.append(await manager.__aenter__())
                entered.append(manager)
                if name in away:
                    await backends[-1].stop_listening()
            async with running(config_text(*(one.port for one in backends), pool=pool)) as proxy:
                loops = len(proxy.background)
                yield proxy, backends
                await until(lambda: proxy.searches.under_way == proxy.searches.waiting == 0)
                await until(lambda: len(proxy.background) == loops)
                assert await metric(proxy, "backend_in_flight") == 0
        finally:
            for manager in reversed(entered):
                await manager.__aexit__(None, None, None)


async def waiting(proxy: Proxy, count: int = 1) -> None:
    """Waits until so many searches wait for backends that are away, and none has a turn."""
    await until(lambda: (proxy.searches.waiting, proxy.searches.under_way) == (count, 0))


async def ask_from(address: str, proxy: Proxy, request: bytes) -> Message:
    reader, writer = await asyncio.open_connection("127.0.0.1", proxy.port, local_addr=(address, 0))
    try:
        writer.write(request)
        async with asyncio.timeout(30):  # Client.response is less patient
            head = await reader.readuntil(b"\r\n\r\n")
        return Message(head, await read_body(reader, head))
    finally:
        writer.close()


def owner_unknown(message: Message) -> bool:
    found = (message.status, message.get("Mcp-Proxy-Error"), message.get("Retry-After"))
    return found == (503, "owner_unknown", "1")


GET = task(b"get", b"t-1")
UNNAMED = post(*MODERN, b"Mcp-Method: tasks/get")


@pytest.mark.parametrize("request_", [GET, UNNAMED], ids=["named", "unnamed"])
async def test_the_owner_is_found_when_it_is_back(request_: bytes) -> None:
    other, owner = TaskBackend(), answering(OK + b"Content-Length: %d\r\n\r\n%b" % (len(state("t-1")), state("t-1")))
    async with fleet(other.script, owner) as (proxy, backends), client(proxy.port) as c:
        c.send(request_)
        await waiting(proxy)
        assert await metric(proxy, "backend_in_flight") == 0
        await backends[1].listen_again()
        assert (await c.response()).body == state("t-1")
        for _ in range(2):
            assert (await c.ask(request_)).body == state("t-1")
        assert len(backends[0].requests) == 1  # asked once, by the search; from then on the owner is known
        assert len(backends[1].requests) == 3
        assert await metric(proxy, "searches_total", outcome="found") == (1 if request_ is GET else 3)
        assert await metric(proxy, "pins", kind="task") == (1 if request_ is GET else 0)


async def test_one_that_stays_away_is_waited_for_and_no_longer() -> None:
    async with fleet(UNKNOWN_ANSWER, UNKNOWN_ANSWER, pool="    timeouts: {owner_wait: 300ms}") as (proxy, backends):
        async with client(proxy.port) as c:
            for number in range(1, 3):
                began = time.monotonic()
                assert owner_unknown(await c.ask(GET))
                assert time.monotonic() - began > 0.28
                assert len(backends[0].requests) == number
            assert await metric(proxy, "searches_total") == await metric(proxy, "searches_total", outcome="failed") == 2


UNKNOWN_ANSWER = answer(b"400 Bad Request", -32602, "first")
LATER_UNKNOWN = answer(b"400 Bad Request", -32602, "later")
UNKNOWN_METHOD = answer(b"404 Not Found", -32601, "first")
STREAMED = b"data: " + UNKNOWN + b"\n\n"
UNKNOWN_IN_A_STREAM = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nContent-Length: %d\r\n\r\n%b" % (
    len(STREAMED),
    STREAMED,
)


@pytest.mark.parametrize(
    ("first", "later", "relayed"),
    [
        (UNKNOWN_ANSWER, LATER_UNKNOWN, UNKNOWN_ANSWER),
        (UNKNOWN_METHOD, LATER_UNKNOWN, LATER_UNKNOWN),
        (UNKNOWN_ANSWER, answer(b"404 Not Found", -32601, "later"), UNKNOWN_ANSWER),
        (UNKNOWN_ANSWER, answer(b"403 Forbidden", -1), answer(b"403 Forbidden", -1)),
        (UNKNOWN_IN_A_STREAM, LATER_UNKNOWN, UNKNOWN_IN_A_STREAM),
        (UNKNOWN_ANSWER, answer(b"503 Busy", -1), None),
        (UNKNOWN_ANSWER, answer(b"429 Slow", -1), None),
    ],
    ids=["unknown twice", "unknown method", "unknown method later", "403 later", "a stream", "503 later", "429 later"],
)
async def test_when_all_have_answered_the_verdict_is_as_always(
    first: bytes, later: bytes, relayed: bytes | None
) -> None:
    async with fleet(first, later) as (proxy, backends), client(proxy.port) as c:
        for _ in range(2):
            c.send(GET)
            await waiting(proxy)
            await backends[1].listen_again()
            message = await c.response()
            if relayed is None:
                assert owner_unknown(message)
            else:
                assert message.first == relayed.split(b"\r\n", 1)[0]
                assert message.body == relayed.split(b"\r\n\r\n", 1)[1]
            await backends[1].stop_listening()
            for side in list(backends[1].open):
                side.writer.transport.abort()
            await until(lambda: not backends[1].open)
            await until(lambda: not proxy.lanes["agents"].connections[proxy.pools["agents"].members[1]]._idle)
        assert [len(one.requests) for one in backends] == [2, 2]
        assert backends[0].connections == 1  # given back while the search waited
        outcome = "failed" if relayed is None else "unknown"
        assert await metric(proxy, "searches_total") == await metric(proxy, "searches_total", outcome=outcome) == 2


@pytest.mark.parametrize("broken", [False, True])
async def test_an_unknown_in_a_stream_without_an_end_flows_on(broken: bool) -> None:
    """It has said all that counts, and is relayed if it still stands when the last one knows no more."""

    async def streams(side: BackendSide) -> None:
        await side.request()
        side.send(b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n")
        side.send(b"%x\r\n%b\r\n" % (len(STREAMED), STREAMED))
        await go.wait()
        if not broken:
            side.send(b"9\r\n: later\n\n\r\n0\r\n\r\n")
            await side.request()

    go = asyncio.Event()
    async with fleet(streams, LATER_UNKNOWN) as (proxy, backends), client(proxy.port) as c:
        c.send(GET)
        await waiting(proxy)
        if broken:
            go.set()
            await until(lambda: not backends[0].open)
            await metric(proxy, "pins")  # takes a while, in which the proxy notices
        await backends[1].listen_again()
        if broken:
            assert owner_unknown(await c.response())
        else:
            assert STREAMED in await c.reader.readuntil(STREAMED)
            go.set()
            assert await c.reader.readuntil(b"\r\n0\r\n\r\n")


@pytest.mark.parametrize("refusal", [b"503 Busy", b"429 Slow", b"401 Unauthorized", b"400 Bad Request"])
async def test_nobody_waits_where_another_answer_stands_in_the_way(refusal: bytes) -> None:
    """Then the one that is away could not decide it."""
    async with fleet(answer(refusal, -32600), UNKNOWN_ANSWER) as (proxy, _), client(proxy.port) as c:
        assert owner_unknown(await c.ask(GET))


async def test_two_that_are_away_are_asked_as_they_come_back() -> None:
    makers = [TaskBackend(), TaskBackend(), TaskBackend()]
    makers[2].known.add("t-1")
    async with fleet(*(maker.script for maker in makers), away="bc") as (proxy, backends), client(proxy.port) as c:
        c.send(GET)
        await waiting(proxy)
        await backends[1].listen_again()
        await until(lambda: makers[1].asked)
        await waiting(proxy)
        await backends[2].listen_again()
        assert (await c.response()).body == state("t-1")
        assert [maker.asked for maker in makers] == [["t-1"]] * 3


async def test_all_away() -> None:
    makers = [TaskBackend(), TaskBackend()]
    async with fleet(*(maker.script for maker in makers), away="ab") as (proxy, backends), client(proxy.port) as c:
        c.send(GET)
        await waiting(proxy)
        for one in backends:
            await one.listen_again()
        assert (await c.response()).body == UNKNOWN
        assert [maker.asked for maker in makers] == [["t-1"]] * 2


# ---- many
async def test_searches_that_wait_hold_up_nobody() -> None:
    living, owner = TaskBackend(), TaskBackend()
    living.known |= {f"here-{number}" for number in range(20)}
    async with fleet(living.script, owner.script) as (proxy, backends):
        crowd = [asyncio.create_task(ask_from("127.0.0.2", proxy, task(b"get", b"x-%d" % i))) for i in range(500)]
        await waiting(proxy, 500)
        async with client(proxy.port) as c:
            for number in range(20):
                assert (await c.ask(task(b"get", b"here-%d" % number))).status == 200
        assert proxy.searches.waiting == 500
        assert len(living.asked) == 520  # each once
        await backends[1].listen_again()
        assert {(await one).body for one in crowd} == {UNKNOWN}
        assert sorted(owner.asked) == sorted(f"x-{i}" for i in range(500))
        assert len(living.asked) == 520


async def test_a_herd_goes_through_the_turnstile() -> None:
    now = most = 0

    async def owner(side: BackendSide) -> None:
        nonlocal now, most
        while True:
            request = await side.request()
            now += 1
            most = max(most, now)
            await asyncio.sleep(0.002)
            now -= 1
            side.answer(state(request.get("Mcp-Name") or ""))

    async with fleet(UNKNOWN_ANSWER, owner) as (proxy, backends):
        herd = [asyncio.create_task(ask_from("127.0.0.1", proxy, task(b"get", b"t-%d" % i))) for i in range(300)]
        await waiting(proxy, 300)
        await backends[1].listen_again()
        for number, one in enumerate(herd):
            assert (await one).body == state(f"t-{number}")
        assert 1 < most <= EACH
        assert len(backends[1].requests) == 300
        assert await metric(proxy, "searches_total", outcome="found") == 300


async def test_the_time_goes_on_in_the_turnstile() -> None:
    """It is back, and silent: those that have a turn keep it, the others never get one."""
    asked = 0

    async def silent(side: BackendSide) -> None:
        nonlocal asked
        await side.request()
        asked += 1
        await side.reader.read()

    async with fleet(UNKNOWN_ANSWER, silent, pool="    timeouts: {owner_wait: 1s}") as (proxy, backends):
        began = time.monotonic()
        herd = [asyncio.create_task(ask_from("127.0.0.1", proxy, GET)) for _ in range(EACH + 20)]
        await waiting(proxy, EACH + 20)
        await backends[1].listen_again()
        assert all([owner_unknown(await one) for one in herd])
        assert 0.9 < time.monotonic() - began < 5
        assert EACH <= asked < EACH + 20  # some get a turn when the first are out of time, for moments


async def test_only_so_many_wait(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(search, "WAITING", 5)
    monkeypatch.setattr(search, "WAITING_EACH", 3)
    owner = TaskBackend()
    owner.known.add("t-1")
    async with fleet(UNKNOWN_ANSWER, owner.script) as (proxy, backends):
        patient = [asyncio.create_task(ask_from("127.0.0.2", proxy, GET)) for _ in range(3)]
        await waiting(proxy, 3)
        assert owner_unknown(await ask_from("127.0.0.2", proxy, GET))
        patient += [asyncio.create_task(ask_from("127.0.0.1", proxy, GET)) for _ in range(2)]
        await waiting(proxy, 5)
        assert owner_unknown(await ask_from("127.0.0.1", proxy, GET))
        await backends[1].listen_again()
        assert [(await one).status for one in patient] == [200] * 5


async def test_a_flood_of_random_ids_while_a_backend_is_away_reaches_nobody_else() -> None:
    """500 a second from one address; another's polls are answered, by pin and by search, and each backend is asked
    once by each search."""
    living, owner = TaskBackend(), TaskBackend()
    living.known |= {f"here-{number}" for number in range(1000)}
    async with fleet(living.script, owner.script, pool="    timeouts: {owner_wait: 1500ms}") as (proxy, _):
        flood: list[asyncio.Task[Message]] = []
        began, polls = time.monotonic(), 0

        async def poll() -> None:
            nonlocal polls
            async with client(proxy.port) as c:
                while len(flood) < 1000:
                    for name in (b"here-0", b"here-%d" % (polls + 1)):
                        assert (await c.ask(task(b"get", name))).status == 200
                    polls += 1
                    await asyncio.sleep(0.01)

        polling = asyncio.create_task(poll())
        while len(flood) < 1000:
            due = min(1000, int((time.monotonic() - began) * 500) + 1)
            for number in range(len(flood), due):
                request = task(b"get", b"random-%d" % number)
                flood.append(asyncio.create_task(ask_from("127.0.0.2", proxy, request)))
            await asyncio.sleep(0.005)
        await polling
        assert all([owner_unknown(await one) for one in flood])
        assert polls > 5  # many more where the machine is not busy
        random = [name for name in living.asked if name.startswith("random-")]
        assert len(random) == len(set(random)) == 1000
        assert len(living.asked) == 1000 + 2 * polls


# ---- what changes something
@pytest.mark.parametrize("method", [b"cancel", b"update"])
@pytest.mark.parametrize("request_", ["named", "unnamed"])
async def test_a_change_is_sent_once_to_all_when_all_are_there(method: bytes, request_: str) -> None:
    acknowledged = OK + b'Content-Length: 39\r\n\r\n{"jsonrpc":"2.0","id":1,"result":{}}   '
    change = task(method, b"t-1") if request_ == "named" else post(*MODERN, b"Mcp-Method: tasks/" + method)
    async with fleet(UNKNOWN_ANSWER, acknowledged, UNKNOWN_ANSWER, away="bc") as (proxy, backends):
        async with client(proxy.port) as c:
            c.send(change)
            await waiting(proxy)
            await backends[1].listen_again()
            await until(lambda: backends[1].connections)
            await until(lambda: proxy.searches.waiting == 1)
            assert [one.requests for one in backends] == [[], [], []]
            await backends[2].listen_again()
            assert (await c.response()).status == 200
            assert [len(one.requests) for one in backends] == [1, 1, 1]
            assert await metric(proxy, "searches_total") == await metric(proxy, "searches_total", outcome="found") == 1


async def test_a_change_is_sent_to_nobody_where_one_stays_away() -> None:
    async with fleet(UNKNOWN_ANSWER, UNKNOWN_ANSWER, pool="    timeouts: {owner_wait: 300ms}") as (proxy, backends):
        async with client(proxy.port) as c:
            began = time.monotonic()
            assert owner_unknown(await c.ask(task(b"cancel", b"t-1")))
            assert time.monotonic() - began > 0.28
            assert backends[0].requests == backends[1].requests == []


async def test_a_change_that_was_sent_is_never_sent_again() -> None:
    async def breaks(side: BackendSide) -> None:
        await side.request()

    async with fleet(UNKNOWN_ANSWER, breaks, away="") as (proxy, backends), client(proxy.port) as c:
        assert owner_unknown(await c.ask(task(b"cancel", b"t-1")))
        assert [len(one.requests) for one in backends] == [1, 1]


# ---- backends that break, and that leave
@pytest.mark.parametrize("ends", [1, 3])
async def test_one_that_breaks_off_before_it_says_anything_is_asked_again(ends: int) -> None:
    async def breaks(side: BackendSide) -> None:
        await side.request()
        if len(side.backend.requests) > ends:
            side.answer(state("t-1"))
            await side.request()

    async with fleet(UNKNOWN_ANSWER, breaks, away="") as (proxy, backends), client(proxy.port) as c:
        assert (await c.ask(GET)).body == state("t-1")
        assert [len(one.requests) for one in backends] == [1, ends + 1]
        assert await metric(proxy, "searches_total") == 1


async def test_one_that_breaks_off_its_answer_is_not_asked_again() -> None:
    async def breaks(side: BackendSide) -> None:
        await side.request()
        side.send(OK + b"Content-Length: 90\r\n\r\n{")

    async with fleet(UNKNOWN_ANSWER, breaks, away="") as (proxy, backends), client(proxy.port) as c:
        assert owner_unknown(await c.ask(GET))
        assert [len(one.requests) for one in backends] == [1, 1]


async def test_one_that_closes_every_connection_is_tried_less_and_less_often() -> None:
    async def closes(side: BackendSide) -> None:
        side.writer.transport.abort()

    async with fleet(UNKNOWN_ANSWER, closes, away="", pool="    timeouts: {owner_wait: 1500ms}") as (proxy, backends):
        async with client(proxy.port) as c:
            assert owner_unknown(await c.ask(GET))
        assert 5 < backends[1].connections < 40
        assert len(backends[0].requests) == 1


async def test_one_that_does_not_even_refuse_costs_its_connect_timeout_once() -> None:
    """As a machine that is off. Who comes while somebody waits for it does not try."""
    living, owner = TaskBackend(), TaskBackend()
    living.known.add("here")
    owner.known.add("t-1")
    with socket.create_server(("127.0.0.1", 0), backlog=0) as deaf, socket.socket() as first:
        first.connect(deaf.getsockname())  # fills the queue: who comes next is not answered
        timeouts = "    timeouts: {owner_wait: 20s, connect: 500ms}"
        async with backend(living.script) as a, backend(owner.script) as b:
            async with running(config_text(a.port, deaf.getsockname()[1], pool=timeouts)) as proxy:
                began = time.monotonic()
                crowd = [asyncio.create_task(ask_from("127.0.0.2", proxy, GET)) for _ in range(10 * EACH)]
                await waiting(proxy, 10 * EACH)
                assert time.monotonic() - began < 2.5  # and not ten times the connect timeout
                began = time.monotonic()
                assert (await ask_from("127.0.0.1", proxy, task(b"get", b"here"))).status == 200
                assert time.monotonic() - began < 0.4
                serving = await asyncio.start_server(b.serve, sock=deaf.dup())
                assert {(await one).body for one in crowd} == {state("t-1")}
                serving.close()


@pytest.mark.parametrize("when", ["before", "while it is awaited"])
@pytest.mark.parametrize("method", [b"get", b"cancel"])
async def test_one_that_left_and_refuses_is_not_awaited(method: bytes, when: str) -> None:
    async with fleet(UNKNOWN_ANSWER, UNKNOWN_ANSWER, UNKNOWN_ANSWER, away="bc") as (proxy, backends):
        left = parse(config_text(backends[0].port, pool=LONG), "test.yaml", {})
        async with client(proxy.port) as c:
            if when == "before":
                proxy.apply(left)
            c.send(task(method, b"t-1"))
            if when != "before":
                await waiting(proxy)
                proxy.apply(left)
            answered = await c.response()
            assert (answered.status, answered.error["code"]) == (400, -32602)
        await until(lambda: [member.backend.id for member in proxy.pools["agents"].everyone] == ["a"])


async def test_the_latest_owner_of_a_connection_that_left_and_refuses_is_passed_over() -> None:
    """A request about a task that does not say which: the others are asked."""
    makers = [TaskBackend(), TaskBackend(), TaskBackend()]
    makers[2].known.add("t-1")
    for maker in makers[:2]:
        maker.known.add("")
    async with fleet(*(maker.script for maker in makers), away="") as (proxy, backends), client(proxy.port) as c:
        assert (await c.ask(GET)).status == 200
        proxy.apply(parse(config_text(backends[0].port, backends[1].port, pool=LONG), "test.yaml", {}))
        await gone(proxy, backends[2])
        assert (await c.ask(UNNAMED)).status == 200
        assert [maker.asked for maker in makers] == [["t-1", ""], ["t-1", ""], ["t-1"]]


async def gone(proxy: Proxy, one: ScriptedBackend) -> None:
    """It refuses from now on, and no connection to it is left."""
    await one.stop_listening()
    for side in list(one.open):
        side.writer.transport.abort()
    await until(lambda: not one.open)
    lanes = proxy.lanes["agents"].connections.values()
    await until(lambda: not any(known._idle for known in lanes if known.port == one.port))


async def test_one_whose_address_changes_while_it_is_awaited_is_found_at_the_new_one() -> None:
    owner = TaskBackend()
    owner.known.add("t-1")
    async with fleet(UNKNOWN_ANSWER, UNKNOWN_ANSWER) as (proxy, backends), backend(owner.script) as elsewhere:
        async with client(proxy.port) as c:
            c.send(GET)
            await waiting(proxy)
            proxy.apply(parse(config_text(backends[0].port, elsewhere.port, pool=LONG), "test.yaml", {}))
            assert (await c.response()).body == state("t-1")


# ---- clients that leave
@pytest.mark.parametrize("method", [b"get", b"cancel"])
async def test_nothing_is_left_of_a_search_whose_client_leaves(method: bytes) -> None:
    async with fleet(UNKNOWN_ANSWER, UNKNOWN_ANSWER, UNKNOWN_ANSWER, away="bc") as (proxy, _):
        loops = len(proxy.background)
        for _ in range(3):
            writers = []
            for _ in range(20):
                _, writer = await asyncio.open_connection("127.0.0.1", proxy.port)
                writer.write(task(method, b"t-1"))
                writers.append(writer)
            await waiting(proxy, 20)
            assert len(proxy.background) == loops + 20 + 2  # one looks for each that is away
            for writer in writers:
                writer.transport.abort()
            await until(lambda: proxy.searches.waiting == 0 and len(proxy.background) == loops)
            assert await metric(proxy, "backend_in_flight") == 0


async def test_who_stays_is_served_when_others_leave() -> None:
    owner = TaskBackend()
    owner.known.add("t-1")
    async with fleet(UNKNOWN_ANSWER, owner.script) as (proxy, backends), client(proxy.port) as c:
        leaving = [asyncio.create_task(ask_from("127.0.0.1", proxy, GET)) for _ in range(50)]
        await waiting(proxy, 50)
        c.send(GET)
        await waiting(proxy, 51)
        for one in leaving:
            one.cancel()
        await waiting(proxy, 1)
        await backends[1].listen_again()
        assert (await c.response()).body == state("t-1")
        assert owner.asked == ["t-1"]
