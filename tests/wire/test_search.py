"""A task that nobody knows is found by asking the backends; where nobody can tell, the answer is never a guess."""

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from proxy.app import Proxy
from tests.wire.harness import (
    MODERN,
    BackendSide,
    ScriptedBackend,
    answering,
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
from tests.wire.task_backend import UNKNOWN, TaskBackend, created, encoded, state

OK = b"HTTP/1.1 200 OK\r\n"


def error(code: int, status: bytes = b"400 Bad Request") -> bytes:
    body = json.dumps({"jsonrpc": "2.0", "id": 1, "error": {"code": code, "message": f"error {code}"}}).encode()
    return b"HTTP/1.1 %b\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n%b" % (status, len(body), body)


def answer_json(body: bytes) -> bytes:
    return OK + b"Content-Type: application/json\r\nContent-Length: %d\r\n\r\n%b" % (len(body), body)


Fleet = tuple[Proxy, list[ScriptedBackend]]


@asynccontextmanager
async def fleet(*scripts: object, pool: str = "    timeouts: {owner_wait: 2s}") -> AsyncIterator[Fleet]:
    """A proxy in front of one backend per script: a coroutine function, or the bytes of every answer."""
    async with asyncio.timeout(60):
        backends: list[ScriptedBackend] = []
        entered = []
        for script in scripts:
            manager = backend(answering(script) if isinstance(script, bytes) else script)  # type: ignore[arg-type]
            backends.append(await manager.__aenter__())
            entered.append(manager)
        try:
            async with running(config_text(*(b.port for b in backends), pool=pool)) as proxy:
                yield proxy, backends
        finally:
            for manager in reversed(entered):
                await manager.__aexit__(None, None, None)


@pytest.mark.parametrize("owner", [0, 1, 2])
@pytest.mark.parametrize("form", ["plain", "encoded"])
async def test_the_owner_is_found_and_pinned(owner: int, form: str) -> None:
    makers = [TaskBackend(), TaskBackend(), TaskBackend()]
    makers[owner].known.add("t-1")
    async with fleet(*(maker.script for maker in makers)) as (proxy, _), client(proxy.port) as c:
        name = b"t-1" if form == "plain" else encoded("t-1")
        answer = await c.ask(task(b"get", name))
        assert json.loads(answer.body)["result"]["taskId"] == "t-1"
        assert [len(maker.asked) for maker in makers] == [1, 1, 1]
        for _ in range(3):
            await c.ask(task(b"get", b"t-1"))
        asked = [1, 1, 1]
        asked[owner] = 4
        assert [len(maker.asked) for maker in makers] == asked
        assert await metric(proxy, "searches_total", outcome="found") == 1
        assert await metric(proxy, "decisions_total", kind="task", source="search", outcome="served") == 1
        assert await metric(proxy, "decisions_total", kind="task", source="pin", outcome="served") == 3
        assert await metric(proxy, "tasks_held", backend="abc"[owner]) == 1
        assert await metric(proxy, "backend_in_flight") == 0


async def test_the_servers_own_unknown_is_relayed_when_no_backend_knows_the_task() -> None:
    makers = [TaskBackend(), TaskBackend(), TaskBackend()]
    async with fleet(*(maker.script for maker in makers)) as (proxy, _), client(proxy.port) as c:
        for _ in range(2):
            assert (await c.ask(task(b"get", b"nobody"))).body == UNKNOWN
        assert await metric(proxy, "searches_total", outcome="unknown") == 2
        assert await metric(proxy, "pins", kind="task") == 0
        assert await metric(proxy, "decisions_total", source="search", outcome="unknown") == 2


REFUSALS = [
    ("401 before all", [error(-32602), error(-1, b"403 Forbidden"), error(-1, b"401 Unauthorized")], 401),
    ("403 next", [error(-32602), error(-1, b"403 Forbidden"), error(-32601, b"404 Not Found")], 403),
    ("another error", [error(-32602), error(-32020), error(-32601, b"404 Not Found")], -32020),
    ("an error with 200", [error(-32602), error(-32603, b"200 OK"), error(-32602)], -32603),
    ("405 without JSON", [error(-32602), b"HTTP/1.1 405 No\r\nContent-Length: 0\r\n\r\n", error(-32602)], 405),
    ("unknown task", [error(-32601, b"404 Not Found"), error(-32602), error(-32601, b"404 Not Found")], -32602),
    ("unknown task with 200", [error(-32601, b"404 Not Found"), error(-32602, b"200 OK")], -32602),
    ("unknown method", [error(-32601, b"404 Not Found"), error(-32601, b"404 Not Found")], -32601),
]


@pytest.mark.parametrize(("scripts", "expected"), [row[1:] for row in REFUSALS], ids=[row[0] for row in REFUSALS])
async def test_of_several_refusals_the_most_telling_is_relayed(scripts: list[bytes], expected: int) -> None:
    async with fleet(*scripts) as (proxy, _), client(proxy.port) as c:
        answer = await c.ask(task(b"get", b"t-1"))
        assert answer.get("Mcp-Proxy-Error") is None
        assert expected in (answer.status, answer.body and answer.error["code"])


NOBODY_KNOWS = {
    "503": b"HTTP/1.1 503 Busy\r\nContent-Length: 0\r\n\r\n",
    "500 with unknown task": error(-32602, b"500 Internal Server Error"),
    "429": b"HTTP/1.1 429 Slow\r\nContent-Length: 0\r\n\r\n",
    "no JSON": OK + b"Content-Type: text/plain\r\nContent-Length: 2\r\n\r\nhi",
    "neither result nor error": answer_json(b'{"jsonrpc":"2.0"}'),
    "broken JSON": answer_json(b'{"result":'),
    "a redirect": b"HTTP/1.1 307 T\r\nLocation: /x\r\nContent-Length: 0\r\n\r\n",
    "no HTTP": b"SSH-2.0\r\n\r\n",
    "gzip": OK + b"Content-Type: application/json\r\nContent-Encoding: gzip\r\nContent-Length: 2\r\n\r\n{}",
}


@pytest.mark.parametrize("unreadable", NOBODY_KNOWS.values(), ids=NOBODY_KNOWS)
async def test_an_answer_that_tells_nothing_leaves_the_owner_unknown(unreadable: bytes) -> None:
    async with fleet(error(-32602), unreadable, error(-32602)) as (proxy, _), client(proxy.port) as c:
        answer = await c.ask(task(b"get", b"t-1"))
        assert (answer.status, answer.get("Mcp-Proxy-Error"), answer.get("Retry-After")) == (503, "owner_unknown", "1")
        assert await metric(proxy, "searches_total", outcome="failed") == 1
        assert await metric(proxy, "backend_in_flight") == 0


async def test_a_result_counts_though_others_fail() -> None:
    async with fleet(answer_json(state("t-1")), NOBODY_KNOWS["503"]) as (proxy, _), client(proxy.port) as c:
        for _ in range(3):
            assert (await c.ask(task(b"get", b"t-1"))).body == state("t-1")


async def test_an_unreachable_or_silent_backend_leaves_the_owner_unknown() -> None:
    async def silent(side: BackendSide) -> None:
        await side.request()
        await side.peer_closes()

    async with fleet(error(-32602), error(-32602), pool="    timeouts: {owner_wait: 300ms}") as (proxy, backends):
        async with client(proxy.port) as c:
            await backends[1].stop_listening()
            answer = await c.ask(task(b"get", b"t-1"))
            assert (answer.status, answer.get("Mcp-Proxy-Error")) == (503, "owner_unknown")
    async with fleet(error(-32602), silent, pool="    timeouts: {owner_wait: 300ms}") as (proxy, backends):
        async with client(proxy.port) as c:
            answer = await c.ask(task(b"get", b"t-1"))
            assert (answer.status, answer.get("Mcp-Proxy-Error")) == (503, "owner_unknown")
            await until(lambda: not backends[1].open)


async def test_the_answer_may_be_an_event_stream_and_flows_on() -> None:
    async def streams(side: BackendSide) -> None:
        await side.request()
        side.send(OK + b"Content-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n")
        events = [b'data: {"method":"notifications/progress"}\n\n', b"data: " + state("t-1") + b"\n\n"]
        for event in events:
            side.send(b"%x\r\n%b\r\n" % (len(event), event))
            await side.writer.drain()
        await go.wait()
        side.send(b"9\r\n: later\n\n\r\n0\r\n\r\n")
        await side.peer_closes()

    go = asyncio.Event()
    async with fleet(error(-32602), streams) as (proxy, _), client(proxy.port) as c:
        c.send(task(b"get", b"t-1"))
        assert state("t-1") in await c.reader.readuntil(state("t-1"))
        go.set()
        assert b": later\n\n\r\n0\r\n\r\n" in await c.reader.readuntil(b"\r\n0\r\n\r\n")
        assert await metric(proxy, "tasks_held", backend="b") == 1


async def test_a_large_result_is_relayed_whole() -> None:
    large = state("t-1", "completed", result={"text": "x" * 3_000_000})
    async with fleet(error(-32602), answer_json(large)) as (proxy, _), client(proxy.port) as c:
        for _ in range(2):
            assert (await c.ask(task(b"get", b"t-1"))).body == large
        assert await metric(proxy, "backend_in_flight") == 0


@pytest.mark.parametrize("chunked", [False, True])
async def test_all_are_sent_the_same_bytes_and_credentials(chunked: bool) -> None:
    body = b'\xff not json {"}' * 100
    request = task(b"get", b"t-1", b"Authorization: Bearer x", b"X-Odd:  y ")
    if chunked:
        framed = b"".join(b"%x\r\n%b\r\n" % (len(body[i : i + 7]), body[i : i + 7]) for i in range(0, len(body), 7))
        request = request.replace(b"Content-Length: 2\r\n\r\n{}", b"Transfer-Encoding: chunked\r\n\r\n" + framed)
        request += b"0\r\n\r\n"
    else:
        request = request.replace(b"Content-Length: 2\r\n\r\n{}", b"Content-Length: %d\r\n\r\n%b" % (len(body), body))
    async with fleet(error(-32602), error(-32602), error(-32602)) as (proxy, backends), client(proxy.port) as c:
        assert (await c.ask(request)).status == 400
        for server in backends:
            sent = server.requests[0]
            assert sent.body == body
            assert sent.get("Content-Length") == str(len(body))
            assert sent.get("Authorization") == "Bearer x"
            assert b"\r\nX-Odd:  y \r\n" in sent.head


async def test_expect_is_answered_here_and_not_passed_on() -> None:
    async with fleet(error(-32602), error(-32602)) as (proxy, backends), client(proxy.port) as c:
        request = task(b"get", b"t-1", b"Expect: 100-continue")
        c.send(request[:-2])
        assert (await c.response()).status == 100
        c.send(b"{}")
        assert (await c.response()).status == 400
        assert backends[0].requests[0].get("Expect") is None


@pytest.mark.parametrize("chunked", [False, True])
async def test_a_body_too_large_to_be_held_is_503(chunked: bool) -> None:
    framing = b"Transfer-Encoding: chunked" if chunked else b"Content-Length: 70000"
    request = task(b"get", b"t-1").replace(b"Content-Length: 2\r\n\r\n{}", framing + b"\r\n\r\n")
    body = b"x" * 70_000
    async with fleet(error(-32602), error(-32602)) as (proxy, backends), client(proxy.port) as c:
        c.send(request + (b"%x\r\n%b\r\n0\r\n\r\n" % (len(body), body) if chunked else body))
        answer = await c.response()
        assert (answer.status, answer.get("Mcp-Proxy-Error")) == (503, "owner_unknown")
        assert backends[0].requests == []


async def test_draining_members_are_asked_too() -> None:
    makers = [TaskBackend(), TaskBackend()]
    makers[0].known.add("t-1")
    async with fleet(*(maker.script for maker in makers)) as (proxy, _), client(proxy.port) as c:
        pool = proxy.pools["agents"]
        pool.set_draining(pool.members[0], True)
        for _ in range(3):
            assert b"error" not in (await c.ask(task(b"get", b"t-1"))).body
        assert len(makers[0].asked) == 3


async def test_an_unowned_cancel_reaches_every_member_once_and_pins_nothing() -> None:
    """Trial 24: some servers acknowledge the cancel of any id."""
    acknowledged = b'{"jsonrpc":"2.0","id":1,"result":{"resultType":"complete"}}'

    async def owner(side: BackendSide) -> None:
        while True:
            await side.request()
            await asyncio.sleep(0.05)
            side.answer(acknowledged)

    for method in (b"cancel", b"update"):
        async with fleet(answer_json(acknowledged), owner, error(-32602)) as (proxy, backends):
            async with client(proxy.port) as c:
                assert (await c.ask(task(method, b"t-1"))).body == acknowledged
                assert [len(server.requests) for server in backends] == [1, 1, 1]
                assert await metric(proxy, "pins", kind="task") == 0
                assert (await c.ask(task(b"get", b"t-1"))).status == 200


async def test_an_unowned_cancel_goes_to_all_or_to_none() -> None:
    wait = "    timeouts: {owner_wait: 300ms}"
    async with fleet(error(-32602), error(-32602), pool=wait) as (proxy, backends), client(proxy.port) as c:
        await backends[1].stop_listening()
        answer = await c.ask(task(b"cancel", b"t-1"))
        assert (answer.status, answer.get("Mcp-Proxy-Error")) == (503, "owner_unknown")
        assert backends[0].requests == []


async def test_an_unowned_cancel_in_several_pools_waits_for_a_get() -> None:
    """Trial 9: pools that mint the same ids; who owns this one has to be found by asking first."""
    first, second = TaskBackend(), TaskBackend()
    second.known.add("t-1")
    routes = "  - {name: x, match: {name: x}, pool: other}\n  - {name: rest, pool: agents}"
    async with backend(first.script) as a, backend(second.script) as b:
        text = config_text(a.port, routes=routes)
        text = text.replace("pools:\n", f"pools:\n  other:\n    backends: ['http://127.0.0.1:{b.port}/mcp']\n", 1)
        async with running(text) as proxy, client(proxy.port) as c:
            answer = await c.ask(task(b"cancel", b"t-1"))
            assert (answer.status, answer.get("Mcp-Proxy-Error")) == (503, "owner_unknown")
            assert first.asked == second.asked == []
            assert b"error" not in (await c.ask(task(b"get", b"t-1"))).body
            assert b"error" not in (await c.ask(task(b"cancel", b"t-1"))).body
            assert second.asked == ["t-1", "t-1"]
            assert first.asked == ["t-1"]


async def test_a_search_never_leaves_the_pools_the_path_leads_to() -> None:
    one, two = TaskBackend(), TaskBackend()
    two.known.add("t-1")
    routes = "  - {name: one, match: {path: /one}, pool: agents}\n  - {name: two, match: {path: /two}, pool: other}"
    async with backend(one.script) as a, backend(one.script) as b, backend(two.script) as c2:
        text = config_text(a.port, b.port, routes=routes)
        text = text.replace("pools:\n", f"pools:\n  other:\n    backends: ['http://127.0.0.1:{c2.port}/mcp']\n", 1)
        async with running(text) as proxy, client(proxy.port) as c:
            assert (await c.ask(task(b"get", b"t-1").replace(b"/mcp", b"/two"))).status == 200
            answer = await c.ask(task(b"get", b"t-1").replace(b"/mcp", b"/one"))
            assert answer.body == UNKNOWN
            assert two.asked == ["t-1"]


async def test_a_shared_pool_is_asked_through_one_member() -> None:
    """Every member of a shared pool can answer; a pin then names the pool."""
    local = [TaskBackend(), TaskBackend()]
    shared = [TaskBackend(), TaskBackend()]
    for maker in shared:
        maker.known.add("t-1")
    routes = "  - {name: x, match: {name: x}, pool: agents}\n  - {name: rest, pool: common}"
    async with backend(local[0].script) as a, backend(local[1].script) as b:
        async with backend(shared[0].script) as c1, backend(shared[1].script) as d:
            text = config_text(a.port, b.port, routes=routes)
            common = (
                f"  common:\n    backends: ['http://127.0.0.1:{c1.port}/mcp', 'http://127.0.0.1:{d.port}/mcp']\n"
                "    tasks: {state: shared}\n"
            )
            text = text.replace("pools:\n", "pools:\n" + common, 1)
            async with running(text) as proxy, client(proxy.port) as c:
                assert b"error" not in (await c.ask(task(b"get", b"t-1"))).body
                assert [len(maker.asked) for maker in local] == [1, 1]
                assert sum(len(maker.asked) for maker in shared) == 1
                for _ in range(4):
                    assert b"error" not in (await c.ask(task(b"get", b"t-1"))).body
                assert [len(maker.asked) for maker in local] == [1, 1]
                assert sum(len(maker.asked) for maker in shared) == 5


async def test_a_shared_pool_alone_goes_by_the_ring_and_past_members_that_are_down() -> None:
    makers = [TaskBackend(), TaskBackend(), TaskBackend()]
    for maker in makers:
        maker.known |= {f"t-{i}" for i in range(30)}
    scripts = [maker.script for maker in makers]
    async with fleet(*scripts, pool="    tasks: {state: shared}") as (proxy, backends), client(proxy.port) as c:
        for _ in range(2):
            for i in range(30):
                assert b"error" not in (await c.ask(task(b"get", b"t-%d" % i))).body
        for maker in makers:
            assert sorted(maker.asked[: len(maker.asked) // 2]) == sorted(maker.asked[len(maker.asked) // 2 :])
        await backends[0].stop_listening()
        for side in list(backends[0].open):
            side.writer.transport.abort()
        await until(lambda: not backends[0].open)
        await metric(proxy, "pins")  # takes a while, in which the proxy notices
        for i in range(30):
            assert b"error" not in (await c.ask(task(b"get", b"t-%d" % i))).body
        assert await metric(proxy, "searches_total") == 0


async def test_a_split_of_shared_pools_loses_no_task() -> None:
    makers = [TaskBackend(*(f"a-{i}" for i in range(40))), TaskBackend(*(f"b-{i}" for i in range(40)))]
    routes = "  - {name: split, split: {agents: 1, other: 1}}"
    async with backend(makers[0].script) as a, backend(makers[1].script) as b:
        text = config_text(a.port, routes=routes, pool="    tasks: {state: shared}")
        other = f"  other:\n    backends: ['http://127.0.0.1:{b.port}/mcp']\n    tasks: {{state: shared}}\n"
        async with running(text.replace("pools:\n", "pools:\n" + other, 1)) as proxy, client(proxy.port) as c:
            made = [json.loads((await c.ask(call())).body)["result"]["taskId"] for _ in range(20)]
            for task_id in made:
                assert b"error" not in (await c.ask(task(b"get", task_id.encode()))).body
            assert {len(maker.asked) for maker in makers} == {10}
            assert await metric(proxy, "searches_total") == 0


# ---- requests about tasks that do not say which
def unnamed(method: bytes) -> bytes:
    return post(*MODERN, b"Mcp-Method: tasks/" + method)


class NamelessBackend:
    """Makes one task and answers about it by the order of the day: it cannot be asked by name."""

    def __init__(self, task_id: str, owned: bool) -> None:
        self.task_id = task_id
        self.owned = owned
        self.asked = 0

    async def script(self, side: BackendSide) -> None:
        while True:
            request = await side.request()
            if request.get("Mcp-Method") == "tools/call":
                self.owned = True
                side.answer(created(self.task_id))
            else:
                self.asked += 1
                side.answer(state(self.task_id) if self.owned else UNKNOWN)


async def test_an_unnamed_get_goes_to_the_connections_latest_owner_first() -> None:
    """Trial 10: FastMCP's client sends no Mcp-Name, on purpose."""
    servers = [NamelessBackend(f"t-{i}", owned=False) for i in range(3)]
    async with fleet(*(server.script for server in servers)) as (proxy, _), client(proxy.port) as c:
        await c.ask(call())
        for _ in range(5):
            assert b"result" in (await c.ask(unnamed(b"get"))).body
        assert sorted(server.asked for server in servers) == [0, 0, 5]
        owner = next(server for server in servers if server.asked)
        owner.owned = False
        servers[(servers.index(owner) + 1) % 3].owned = True
        assert b"result" in (await c.ask(unnamed(b"get"))).body
        assert sorted(server.asked for server in servers) == [1, 1, 6]
        assert b"result" in (await c.ask(unnamed(b"get"))).body
        assert sorted(server.asked for server in servers) == [1, 2, 6]


async def test_an_unnamed_get_without_history_asks_everybody() -> None:
    servers = [NamelessBackend(f"t-{i}", owned=i == 1) for i in range(3)]
    async with fleet(*(server.script for server in servers)) as (proxy, _), client(proxy.port) as c:
        assert b"result" in (await c.ask(unnamed(b"get"))).body
        assert [server.asked for server in servers] == [1, 1, 1]
        assert await metric(proxy, "pins", kind="task") == 0


async def test_an_unnamed_cancel_goes_to_every_member_of_that_tasks_pool() -> None:
    servers = [NamelessBackend(f"t-{i}", owned=False) for i in range(3)]
    async with fleet(*(server.script for server in servers)) as (proxy, _), client(proxy.port) as c:
        await c.ask(call())
        assert b"result" in (await c.ask(unnamed(b"cancel"))).body
        assert [server.asked for server in servers] == [1, 1, 1]


# ---- bounds
async def test_a_flood_of_searches_from_one_address_leaves_room_for_others() -> None:
    """At most half of the searches run for one address; the others queue and are answered in turn."""
    running_now = 0
    most = 0

    async def slow(side: BackendSide) -> None:
        nonlocal running_now, most
        while True:
            request = await side.request()
            if request.get("Mcp-Name") == "known":
                side.answer(state("known"))
                continue
            running_now += 1
            most = max(most, running_now)
            await asyncio.sleep(0.02)
            running_now -= 1
            side.answer(UNKNOWN)

    async with fleet(slow, UNKNOWN_ANSWER) as (proxy, _):
        flood = [
            asyncio.create_task(ask_from("127.0.0.2", proxy.port, b"random-%d" % i, TOKEN % i)) for i in range(100)
        ]
        await asyncio.sleep(0.02)
        begun = asyncio.get_running_loop().time()
        answer = await ask_from("127.0.0.1", proxy.port, b"known")
        assert b"result" in answer
        assert asyncio.get_running_loop().time() - begun < 0.5
        for answered in await asyncio.gather(*flood):
            assert b"-32602" in answered
        assert most <= 32
        assert await metric(proxy, "backend_in_flight") == 0


UNKNOWN_ANSWER = answer_json(UNKNOWN)
TOKEN = b"Authorization: Bearer %d"  # another with each request: what counts is where it comes from


async def ask_from(address: str, port: int, name: bytes, *lines: bytes) -> bytes:
    reader, writer = await asyncio.open_connection("127.0.0.1", port, local_addr=(address, 0))
    try:
        writer.write(task(b"get", name, *lines))
        async with asyncio.timeout(20):
            head = await reader.readuntil(b"\r\n\r\n")
            length = int(head.lower().split(b"content-length: ")[1].split(b"\r\n")[0])
            return head + await reader.readexactly(length)
    finally:
        writer.close()


async def test_a_client_that_leaves_ends_its_search() -> None:
    async def silent(side: BackendSide) -> None:
        await side.request()
        await side.peer_closes()

    async with fleet(silent, silent) as (proxy, backends):
        async with client(proxy.port) as c:
            c.send(task(b"get", b"t-1"))
            await until(lambda: all(server.requests for server in backends))
        await until(lambda: not any(server.open for server in backends))
        assert await metric(proxy, "backend_in_flight") == 0


async def test_a_proxy_that_starts_anew_finds_every_task() -> None:
    makers = [TaskBackend(*(f"{name}-{i}" for i in range(100))) for name in "abc"]
    async with backend(makers[0].script) as a, backend(makers[1].script) as b, backend(makers[2].script) as c:
        text = config_text(a.port, b.port, c.port)
        async with running(text) as proxy, client(proxy.port) as one:
            made = [json.loads((await one.ask(call())).body)["result"]["taskId"] for _ in range(60)]
        async with running(text) as proxy, client(proxy.port) as one:
            for _ in range(3):
                for task_id in made:
                    assert b"error" not in (await one.ask(task(b"get", task_id.encode()))).body
            assert await metric(proxy, "searches_total", outcome="found") == 60
            assert await metric(proxy, "decisions_total", source="pin", outcome="served") == 120


async def test_a_stale_connection_does_not_spoil_a_search() -> None:
    """The backend closes its idle connection just when the search sends over it: asking again changes nothing."""
    closing = asyncio.Event()

    async def closes(side: BackendSide) -> None:
        await side.request()
        if side.backend.connections == 1:
            side.answer()
            await side.request()  # the search arrives, and finds the connection closing
            closing.set()
            return
        side.answer(state("t-1"))
        await side.peer_closes()

    async with fleet(closes, error(-32602)) as (proxy, backends), client(proxy.port) as c:
        while not backends[0].requests:
            await c.ask(call())
        assert (await c.ask(task(b"get", b"t-1"))).body == state("t-1")
        assert closing.is_set()


async def test_a_caller_with_a_wrong_token_cannot_disturb_the_owners_polls() -> None:
    right, wrong = b"Authorization: Bearer right", b"Authorization: Bearer wrong"
    makers = [TaskBackend("t-1"), TaskBackend()]

    def guarded(maker: TaskBackend) -> object:
        async def script(side: BackendSide) -> None:
            while True:
                request = await side.request()
                name = request.get("Mcp-Name") or ""
                if request.get("Authorization") != "Bearer right":
                    side.send(b"HTTP/1.1 401 Unauthorized\r\nContent-Length: 0\r\n\r\n")
                elif request.get("Mcp-Method") == "tools/call":
                    maker.known.add(name)
                    side.answer(created(name))
                else:
                    side.answer(state(name) if name in maker.known else UNKNOWN)

        return script

    async with fleet(*(guarded(maker) for maker in makers)) as (proxy, _), client(proxy.port) as c:
        async with client(proxy.port) as other:
            await c.ask(call(b"t-1", right))
            for _ in range(3):
                assert (await other.ask(task(b"get", b"t-1", wrong))).status == 401
                assert (await other.ask(task(b"cancel", b"t-1", wrong))).status == 401
                assert (await other.ask(task(b"get", b"t-2", wrong))).status == 401
                assert b"result" in (await c.ask(task(b"get", b"t-1", right))).body
            assert await metric(proxy, "tasks_held") == 1


async def test_searches_whose_clients_leave_free_their_turns() -> None:
    """A turn given to one that has just left goes to the next; all answers arrive, and no turn is lost."""

    async def slow(side: BackendSide) -> None:
        while True:
            await side.request()
            await asyncio.sleep(0.002)
            side.answer(UNKNOWN)

    async def leaves(port: int, name: bytes, after: float) -> None:
        _, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(task(b"get", name))
        await asyncio.sleep(after)
        writer.transport.abort()

    async with fleet(slow, UNKNOWN_ANSWER) as (proxy, _):
        for turn in range(4):
            crowd = [
                leaves(proxy.port, b"gone-%d" % i, 0.001 * (i % 9))
                if i % 3
                else ask_from("127.0.0.1", proxy.port, b"x")
                for i in range(150)
            ]
            answers = [answer for answer in await asyncio.gather(*crowd) if answer is not None]
            assert len(answers) == 50, turn
            assert all(b"-32602" in answer for answer in answers)
        deadline = asyncio.get_running_loop().time() + 3
        while await metric(proxy, "backend_in_flight"):
            assert asyncio.get_running_loop().time() < deadline
            await asyncio.sleep(0.01)
        assert proxy.searches.under_way == 0


async def test_nothing_is_sent_unless_all_connections_stand() -> None:
    async def closes_at_once(side: BackendSide) -> None:
        side.writer.transport.abort()

    wait = "    timeouts: {owner_wait: 100ms}"
    async with fleet(UNKNOWN_ANSWER, closes_at_once, pool=wait) as (proxy, backends), client(proxy.port) as c:
        for _ in range(20):
            answer = await c.ask(task(b"cancel", b"t-1"))
            assert (answer.status, answer.get("Mcp-Proxy-Error")) == (503, "owner_unknown")
        assert await metric(proxy, "backend_in_flight") == 0
        assert len(backends[0].requests) < 20


async def test_only_an_owner_that_was_found_is_remembered_as_the_latest() -> None:
    first = [NamelessBackend("t-1", owned=False), NamelessBackend("t-2", owned=False)]
    second = [NamelessBackend("t-3", owned=False), NamelessBackend("t-4", owned=False)]
    routes = "  - {name: x, match: {name: x}, pool: other}\n  - {name: rest, pool: agents}"
    async with backend(first[0].script) as a, backend(first[1].script) as b:
        async with backend(second[0].script) as c1, backend(second[1].script) as d:
            text = config_text(a.port, b.port, routes=routes)
            urls = f"'http://127.0.0.1:{c1.port}/mcp', 'http://127.0.0.1:{d.port}/mcp'"
            text = text.replace("pools:\n", f"pools:\n  other:\n    backends: [{urls}]\n", 1)
            async with running(text) as proxy, client(proxy.port) as c:
                await c.ask(call(b"x"))
                owner = next(server for server in second if server.owned)
                owner.owned = False
                assert (await c.ask(task(b"get", b"nobody"))).body == UNKNOWN
                owner.owned = True
                before = [server.asked for server in first]
                await c.ask(unnamed(b"cancel"))
                assert [server.asked for server in first] == before
