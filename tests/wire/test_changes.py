"""Members come, drain and go while tasks and sessions live: nothing that a backend owns is lost or moved."""

import asyncio
import json
import socket

import pytest

from proxy.app import Proxy
from proxy.config import parse
from tests.wire.harness import (
    MODERN,
    BackendSide,
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
from tests.wire.task_backend import UNKNOWN, TaskBackend, created


def apply(proxy: Proxy, text: str) -> None:
    proxy.apply(parse(text, "changed.yaml", {}))


def without(text: str, backend_id: str) -> str:
    """The configuration without this backend."""
    return "\n".join(line for line in text.splitlines() if f"{{id: {backend_id}," not in line)


async def make(c: object, count: int) -> list[str]:
    ask = getattr(c, "ask")  # noqa: B009
    return [json.loads((await ask(call())).body)["result"]["taskId"] for _ in range(count)]


async def test_a_member_that_left_serves_what_it_owns_and_nothing_new() -> None:
    makers = [TaskBackend(*(f"{name}-{i}" for i in range(300))) for name in "abc"]
    async with backend(makers[0].script) as a, backend(makers[1].script) as b, backend(makers[2].script) as c:
        text = config_text(a.port, b.port, c.port)
        async with running(text) as proxy, client(proxy.port) as one:
            made = await make(one, 60)
            apply(proxy, without(text, "b"))
            more = await make(one, 30)
            assert {task_id[0] for task_id in more} == {"a", "c"}
            for task_id in made + more:
                assert b"error" not in (await one.ask(task(b"get", task_id.encode()))).body
            assert proxy.pools["agents"].ring_generation == 2
            apply(proxy, text)
            assert {task_id[0] for task_id in await make(one, 30)} == {"a", "b", "c"}


async def test_a_departed_owner_that_refuses_is_forgotten_and_its_tasks_are_searched() -> None:
    makers = [TaskBackend(*(f"{name}-{i}" for i in range(300))) for name in "abc"]
    async with backend(makers[0].script) as a, backend(makers[1].script) as b, backend(makers[2].script) as c:
        text = config_text(a.port, b.port, c.port)
        async with running(text) as proxy, client(proxy.port) as one:
            made = [task_id for task_id in await make(one, 30) if task_id.startswith("b")]
            makers[0].known |= set(made)  # they moved to another backend
            apply(proxy, without(text, "b"))
            await b.stop_listening()
            for side in list(b.open):
                side.writer.transport.abort()
            await until(lambda: not b.open)
            await metric(proxy, "pins")  # takes a while, in which the proxy notices
            for task_id in made:
                assert b"error" not in (await one.ask(task(b"get", task_id.encode()))).body
            assert proxy.pools["agents"].member("b") is None
            assert await metric(proxy, "tasks_held", backend="a") >= len(made)


async def test_a_departed_member_that_refuses_does_not_spoil_searches() -> None:
    makers = [TaskBackend(), TaskBackend(), TaskBackend()]
    async with backend(makers[0].script) as a, backend(makers[1].script) as b, backend(makers[2].script) as c:
        text = config_text(a.port, b.port, c.port)
        for method in (b"get", b"cancel"):
            async with running(text) as proxy, client(proxy.port) as one:
                apply(proxy, without(text, "b"))
                await b.stop_listening()
                assert (await one.ask(task(method, b"nobody"))).body == UNKNOWN
                assert proxy.pools["agents"].member("b") is None
                assert len(makers[1].asked) == 0
            await b.listen_again()


async def test_sessions_of_a_departed_owner_live_on_until_it_refuses() -> None:
    async def script(side: BackendSide) -> None:
        while True:
            request = await side.request()
            session = request.get("Mcp-Session-Id") or "s"
            side.send(b"HTTP/1.1 200 OK\r\nMcp-Session-Id: %b\r\nContent-Length: 0\r\n\r\n" % session.encode())

    async with backend(script) as a, backend(script) as b:
        text = config_text(a.port, b.port)
        async with running(text) as proxy, client(proxy.port) as c:
            while not b.requests:
                session = (await c.ask(post())).get("Mcp-Session-Id") or ""
            follow_up = post(b"Mcp-Session-Id: " + session.encode())
            apply(proxy, without(text, "b"))
            assert (await c.ask(follow_up)).status == 200
            await b.stop_listening()
            for side in list(b.open):
                side.writer.transport.abort()
            await until(lambda: not b.open)
            await metric(proxy, "pins")
            answer = await c.ask(follow_up)
            assert (answer.status, answer.get("Mcp-Proxy-Error")) == (404, "session_owner_gone")
            assert (await c.ask(post())).status == 200


async def test_adding_a_member_moves_no_pinned_task_and_few_others() -> None:
    """Trial 8: 1 of 5 added and removed with 1,000 live tasks."""
    makers = [TaskBackend(*(f"{name}-{i}" for i in range(1000))) for name in "abcde"]
    ring = "    balance: ring\n    ring_key: name"
    async with backend(makers[0].script) as a, backend(makers[1].script) as b, backend(makers[2].script) as c:
        async with backend(makers[3].script) as d, backend(makers[4].script) as e:
            five = config_text(a.port, b.port, c.port, d.port, e.port, pool=ring)
            async with running(without(five, "e")) as proxy, client(proxy.port) as one:
                pool = proxy.pools["agents"]
                made = []
                for i in range(1000):
                    answer = await one.ask(call(b"tool-%d" % i))
                    made.append(json.loads(answer.body)["result"]["taskId"])
                before = {f"key-{i}": pool.by_ring(f"key-{i}").member.backend.id for i in range(2000)}
                apply(proxy, five)
                after = {key: pool.by_ring(key).member.backend.id for key in before}
                moved = [key for key in before if before[key] != after[key]]
                assert len(moved) <= 0.25 * len(before)
                assert {after[key] for key in moved} == {"e"}
                for task_id in made:
                    assert b"error" not in (await one.ask(task(b"get", task_id.encode()))).body
                apply(proxy, without(five, "e"))
                assert {key: pool.by_ring(key).member.backend.id for key in before} == before
                for task_id in made:
                    assert b"error" not in (await one.ask(task(b"get", task_id.encode()))).body
                assert await metric(proxy, "decisions_total", kind="task", source="pin", outcome="served") == 2000
                assert await metric(proxy, "searches_total") == 0


async def test_a_drained_member_becomes_empty_and_can_be_removed_under_load() -> None:
    makers = [TaskBackend(*(f"{name}-{i}" for i in range(10_000))) for name in "abc"]
    finished: set[str] = set()
    errors: list[bytes] = []
    stop = asyncio.Event()

    async def script_of(maker: TaskBackend, side: BackendSide) -> None:
        while True:
            request = await side.request()
            if request.get("Mcp-Method") == "tools/call":
                task_id = maker.ids.pop(0)
                maker.known.add(task_id)
                side.answer(created(task_id))
            else:
                name = request.get("Mcp-Name") or ""
                status = "completed" if name in finished else "working"
                result = {"resultType": "complete", "taskId": name, "status": status}
                side.answer(json.dumps({"result": result}).encode() if name in maker.known else UNKNOWN)

    async def load(port: int) -> None:
        async with client(port) as c:
            while not stop.is_set():
                task_id = (await make(c, 1))[0]
                for _ in range(3):
                    answer = await c.ask(task(b"get", task_id.encode()))
                    if b"error" in answer.body:
                        errors.append(answer.body)
                finished.add(task_id)
                await c.ask(task(b"get", task_id.encode()))

    scripts = [lambda side, maker=maker: script_of(maker, side) for maker in makers]
    async with backend(scripts[0]) as a, backend(scripts[1]) as b, backend(scripts[2]) as c:
        text = config_text(a.port, b.port, c.port)
        async with running(text) as proxy:
            pool = proxy.pools["agents"]
            leaving = pool.member("b")
            assert leaving is not None
            loads = [asyncio.create_task(load(proxy.port)) for _ in range(8)]
            await until(lambda: len(makers[1].known) > 50)
            pool.set_draining(leaving, True)
            async with asyncio.timeout(5):
                while await metric(proxy, "tasks_held", backend="b") or leaving.in_flight:
                    await asyncio.sleep(0.01)
            known = len(makers[1].known)
            apply(proxy, without(text, "b"))
            await b.stop_listening()
            count = len(makers[0].known)
            await until(lambda: len(makers[0].known) > count + 50)
            stop.set()
            await asyncio.gather(*loads)
            assert errors == []
            assert len(makers[1].known) == known


async def test_a_stream_survives_a_change() -> None:
    go = asyncio.Event()

    async def script(side: BackendSide) -> None:
        await side.request()
        side.send(b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n")
        await go.wait()
        side.send(b"9\r\ndata: x\n\n\r\n0\r\n\r\n")
        await side.peer_closes()

    async with backend(script) as a, backend() as b:
        both = config_text(a.port, b.port)
        async with running(without(both, "b")) as proxy, client(proxy.port) as c:
            c.send(call())
            await until(lambda: a.requests)
            apply(proxy, without(both, "a"))
            go.set()
            assert (await c.response()).body == b"data: x\n\n"
            assert (await c.ask(call())).status == 200


async def test_new_conditions_see_fields_the_connection_sent_before() -> None:
    """What is shared between the heads of one connection belongs to the routes that were in force."""
    async with backend() as a, backend() as b:
        text = config_text(a.port)
        other = f"  other:\n    backends: ['http://127.0.0.1:{b.port}/mcp']\n"
        both = text.replace("pools:\n", "pools:\n" + other, 1).replace(
            "routes:\n", "routes:\n  - {name: x, match: {header: {X-To: b}}, pool: other}\n", 1
        )
        request = call(b"t", b"X-To: b")
        async with running(text) as proxy, client(proxy.port) as c:
            assert (await c.ask(request)).status == 200
            apply(proxy, both)
            assert (await c.ask(request)).status == 200
            assert (len(a.requests), len(b.requests)) == (1, 1)


@pytest.mark.parametrize(
    "change", [("drain: 0s", "pins: {ttl: 1h}\ndrain: 0s"), ("admin: 127.0.0.1:0", "admin: 127.0.0.1:1")]
)
async def test_what_only_a_restart_can_change_is_refused_whole(change: tuple[str, str]) -> None:
    async with backend() as a, backend() as b:
        text = config_text(a.port)
        async with running(text) as proxy, client(proxy.port) as c:
            with pytest.raises(ValueError, match="only a restart can change"):
                apply(proxy, config_text(b.port).replace(*change))
            await c.ask(post(*MODERN))
            assert (len(a.requests), len(b.requests)) == (1, 0)


async def test_a_departed_owner_survives_a_hiccup() -> None:
    """Only one that refuses connections is forgotten; one that does not accept in time still owns what it owned,
    whoever asks for what meanwhile."""
    makers = [TaskBackend(*(f"{name}-{i}" for i in range(300))) for name in "ab"]
    async with backend(makers[0].script) as a, backend(makers[1].script) as b:
        text = config_text(a.port, b.port, pool="    timeouts: {connect: 100ms, owner_wait: 300ms}")
        async with running(text) as proxy, client(proxy.port) as c:
            mine = next(task_id for task_id in await make(c, 10) if task_id.startswith("b"))
            apply(proxy, without(text, "b"))
            pool = proxy.pools["agents"]
            connections = proxy.lanes["agents"].connections[pool.everyone[-1]]
            connections.close_idle(limit=-1.0)
            connections.connect_timeout = 0.0  # nobody accepts in no time
            for method in (b"get", b"cancel"):
                answer = await c.ask(task(method, b"random"))
                assert (answer.status, answer.get("Mcp-Proxy-Error")) == (503, "owner_unknown")
                answer = await c.ask(task(method, mine.encode()))
                assert (answer.status, answer.get("Mcp-Proxy-Error")) == (503, "owner_down")
            connections.connect_timeout = 2.0
            assert b"error" not in (await c.ask(task(b"get", mine.encode()))).body


async def test_a_member_that_comes_while_a_request_is_dialled_may_serve_it() -> None:
    with socket.socket() as full:
        full.bind(("127.0.0.1", 0))
        full.listen(0)
        fillers = [socket.socket() for _ in range(4)]
        for filler in fillers:
            filler.setblocking(False)
            filler.connect_ex(full.getsockname())
        try:
            async with backend() as b:
                text = config_text(full.getsockname()[1], b.port, pool="    timeouts: {connect: 300ms}")
                async with running(without(text, "b")) as proxy, client(proxy.port) as c:
                    c.send(call())
                    await until(lambda: proxy.pools["agents"].in_flight)
                    apply(proxy, text)
                    assert (await c.response()).status == 200
                    assert await metric(proxy, "backend_in_flight") == 0
        finally:
            for filler in fillers:
                filler.close()


def forget(proxy: Proxy, text: str, backend_id: str) -> None:
    """The backend leaves the configuration, is found gone by others, and then comes another configuration."""
    pool = proxy.pools["agents"]
    apply(proxy, without(text, backend_id))
    gone = pool.member(backend_id)
    assert gone is not None
    pool.forget(gone)
    apply(proxy, without(text, backend_id))


@pytest.mark.parametrize("method", [b"get", b"cancel"])
async def test_who_waits_for_an_owner_that_is_forgotten_meanwhile_asks_those_that_are_left(method: bytes) -> None:
    makers = [TaskBackend(*(f"{name}-{i}" for i in range(30))) for name in "ab"]
    async with backend(makers[0].script) as a, backend(makers[1].script) as b:
        text = config_text(a.port, b.port, pool="    timeouts: {owner_wait: 4s}")
        async with running(text) as proxy, client(proxy.port) as c:
            mine = next(task_id for task_id in await make(c, 10) if task_id.startswith("b"))
            await b.end()
            proxy.lanes["agents"].connections[proxy.pools["agents"].everyone[1]].close_idle(limit=-1.0)
            c.send(task(method, mine.encode()))
            await until(lambda: proxy.pools["agents"].in_flight)
            forget(proxy, text, "b")
            assert (await c.response()).body == UNKNOWN
            assert makers[0].asked == [mine]
            assert await metric(proxy, "backend_in_flight") == 0
            assert proxy.pools["agents"].in_flight == 0


async def test_who_asks_again_an_owner_that_is_forgotten_meanwhile_asks_those_that_are_left() -> None:
    makers = [TaskBackend(*(f"{name}-{i}" for i in range(30))) for name in "ab"]
    async with backend(makers[0].script) as a, backend(makers[1].script) as b:
        text = config_text(a.port, b.port, pool="    timeouts: {owner_wait: 4s}")
        async with running(text) as proxy, client(proxy.port) as c:
            mine = next(task_id for task_id in await make(c, 10) if task_id.startswith("b"))
            asked = len(b.requests)
            b._script = closes
            for side in list(b.open):
                side.writer.transport.abort()
            await until(lambda: not b.open)
            c.send(task(b"get", mine.encode()))
            await until(lambda: len(b.requests) >= asked + 2)
            forget(proxy, text, "b")
            assert (await c.response()).body == UNKNOWN
            assert makers[0].asked == [mine]
            assert proxy.pools["agents"].in_flight == 0


async def test_who_waits_for_a_slot_at_an_owner_that_is_forgotten_meanwhile_asks_those_that_are_left() -> None:
    makers = [TaskBackend(*(f"{name}-{i}" for i in range(30))) for name in "ab"]
    let_go = asyncio.Event()

    async def holds(side: BackendSide) -> None:
        await side.request()
        await let_go.wait()

    async with backend(makers[0].script) as a, backend(makers[1].script) as b:
        limits = "    limits: {in_flight: 100, per_backend: 1, queue: 9, queue_wait: 5s}"
        text = config_text(a.port, b.port, pool=limits)
        async with running(text) as proxy, client(proxy.port) as c, client(proxy.port) as first:
            mine = next(task_id for task_id in await make(c, 10) if task_id.startswith("b"))
            b._script = holds
            await b.end()
            await b.listen_again()
            first.send(task(b"get", mine.encode()))
            await until(lambda: any(request.get("Mcp-Method") == "tasks/get" for request in b.requests))
            c.send(task(b"get", mine.encode()))
            await until(lambda: len(proxy.pools["agents"].queue) == 1)
            await b.stop_listening()
            forget(proxy, text, "b")
            let_go.set()
            for one in (first, c):
                assert (await one.response()).body == UNKNOWN
            assert proxy.pools["agents"].in_flight == 0
            assert len(proxy.pools["agents"].queue) == 0


async def closes(side: BackendSide) -> None:
    """Closes without an answer."""
    await side.request()
