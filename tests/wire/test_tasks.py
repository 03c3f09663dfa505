"""Tasks go to the backend that made them, however their creation was told; and what must not teach does not."""

import asyncio
import json

import pytest

from proxy.pins.memory import MemoryPinStore
from proxy.pins.store import Pin, PinStoreError
from proxy.routing.ownership import PinKey
from tests.wire.harness import (
    MODERN,
    BackendSide,
    answering,
    backend,
    call,
    client,
    config_text,
    metric,
    post,
    read_head,
    running,
    task,
    until,
)
from tests.wire.task_backend import UNKNOWN, TaskBackend, created, encoded, state

OK = b"HTTP/1.1 200 OK\r\n"


@pytest.mark.parametrize("tell", ["json", "chunked", "until close", "sse", "sse crlf", "sse cr"])
async def test_a_poll_reaches_the_backend_that_made_the_task(tell: str) -> None:
    """Trial 7: made on one backend, polled many times, always there, whatever the ring says."""
    makers = [TaskBackend(*(f"{name}-{i}" for i in range(30)), tell=tell) for name in "abc"]
    async with backend(makers[0].script) as a, backend(makers[1].script) as b, backend(makers[2].script) as c:
        async with running(config_text(a.port, b.port, c.port)) as proxy, client(proxy.port) as one:
            made: list[str] = []
            for _ in range(12):
                body = (await one.ask(call())).body
                found = json.loads(body if body.startswith(b"{") else body.split(b"data: ")[-1])
                made.append(found["result"]["taskId"])
            for _ in range(3):
                for task_id in made:
                    answer = await one.ask(task(b"get", task_id.encode()))
                    assert json.loads(answer.body)["result"]["taskId"] == task_id
            assert {task_id[0] for task_id in made} == {"a", "b", "c"}
            assert all(name in maker.known for maker in makers for name in maker.asked)
            assert await metric(proxy, "decisions_total", kind="task", source="pin", outcome="served") == 36
            assert await metric(proxy, "tasks_held", pool="agents") == 12


@pytest.mark.parametrize("task_id", ["tâche-1", " padded ", "=?base64?abc?=", "x" * 3_000, "日本語", 'quo"te\\', "a b"])
@pytest.mark.parametrize("tell", ["json", "sse"])
async def test_ids_of_every_kind(task_id: str, tell: str) -> None:
    """Trial 11: decoded before it is compared; the backend gets the bytes that the client sent."""
    makers = [TaskBackend(task_id, tell=tell), TaskBackend(tell=tell)]
    routes = "  - {name: make, match: {header: {X-To: a}}, pool: maker}\n  - {name: rest, pool: agents}"
    async with backend(makers[0].script) as a, backend(makers[1].script) as b:
        text = config_text(a.port, b.port, routes=routes)
        text = text.replace(
            "pools:\n", f"pools:\n  maker:\n    backends: [{{id: a, url: 'http://127.0.0.1:{a.port}/mcp'}}]\n"
        )
        async with running(text) as proxy, client(proxy.port) as c:
            assert (await c.ask(call(b"t", b"X-To: a"))).status == 200
            for _ in range(4):
                answer = await c.ask(task(b"get", encoded(task_id), b"X-To: a"))
                assert json.loads(answer.body)["result"]["taskId"] == task_id
            assert a.requests[-1].get("Mcp-Name") == encoded(task_id).decode()


async def test_plain_and_encoded_form_of_one_id_reach_one_owner() -> None:
    makers = [TaskBackend(*(f"a-{i}" for i in range(9))), TaskBackend(*(f"b-{i}" for i in range(9)))]
    async with backend(makers[0].script) as a, backend(makers[1].script) as b:
        async with running(config_text(a.port, b.port)) as proxy, client(proxy.port) as c:
            task_id = json.loads((await c.ask(call())).body)["result"]["taskId"]
            for form in (task_id.encode(), encoded(task_id), b"  " + task_id.encode() + b"\t"):
                assert b"error" not in (await c.ask(task(b"get", form))).body


@pytest.mark.parametrize("name", [b"=?base64?!!!?=", b"=?base64?/w==?=", b"=?base64?YQ?=", b"=?base64?YQ==YQ==?="])
async def test_a_name_that_does_not_decode_is_refused_where_it_is_needed(name: bytes) -> None:
    async with backend() as a, running(config_text(a.port)) as proxy, client(proxy.port) as c:
        answer = await c.ask(task(b"get", name))
        assert (answer.status, answer.get("Mcp-Proxy-Error"), answer.error["code"]) == (400, "malformed_header", -32020)
        assert (await c.ask(call(name))).status == 200  # no rule asks for it: the server's to judge
        assert len(a.requests) == 1


async def test_markers_in_another_case_are_literal() -> None:
    async with backend() as a, running(config_text(a.port)) as proxy, client(proxy.port) as c:
        assert (await c.ask(task(b"get", b"=?BASE64?!!!?="))).status == 200
        assert a.requests[0].get("Mcp-Name") == "=?BASE64?!!!?="


DUPLICATES = [b"MCP-Protocol-Version: 2026-07-28", b"Mcp-Session-Id: s", b"Mcp-Method: tools/call", b"Mcp-Name: t"]


@pytest.mark.parametrize("line", DUPLICATES)
@pytest.mark.parametrize("modern", [True, False], ids=["modern", "legacy"])
async def test_repeated_routing_headers(line: bytes, modern: bool) -> None:
    lines = [line, line] if modern else [line.replace(b"2026-07-28", b"2025-11-25")] * 2
    if modern and b"Version" not in line:
        lines.append(MODERN[0])
    async with backend() as a, running(config_text(a.port)) as proxy, client(proxy.port) as c:
        answer = await c.ask(post(*lines))
        assert (answer.status, answer.get("Mcp-Proxy-Error")) == (400, "duplicate_header")
        # A legacy client that saw -32020 would take the server for a modern one.
        assert answer.error["code"] == (-32020 if modern else -32000)
        assert a.requests == []


IMITATIONS = {
    "in a tool's text": {"content": [{"type": "text", "text": created("t-1").decode()}]},
    "inside the result": {"resultType": "complete", "inner": {"resultType": "task", "taskId": "t-1"}},
    "structured content": {"structuredContent": {"result": {"resultType": "task", "taskId": "t-1"}}},
    "another result type": {"resultType": "complete", "taskId": "t-1", "status": "working"},
    "an id that is no text": {"resultType": "task", "taskId": 5},
    "an empty id": {"resultType": "task", "taskId": ""},
}


@pytest.mark.parametrize("result", IMITATIONS.values(), ids=IMITATIONS)
async def test_a_result_that_only_contains_a_task_teaches_nothing(result: dict[str, object]) -> None:
    body = json.dumps({"jsonrpc": "2.0", "id": 1, "result": result}).encode()

    async def script(side: BackendSide) -> None:
        while True:
            await side.request()
            side.answer(body)

    async with backend(script) as a, running(config_text(a.port)) as proxy, client(proxy.port) as c:
        assert (await c.ask(call())).body == body
        assert await metric(proxy, "pins", kind="task") == 0


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        (b'{"result":{"resultType":"task","taskId":"t-1","taskId":"t-2"}}', "unreadable"),
        (b'{"result":{"resultType":"task","taskId":"t-1","x":NaN}}', "unreadable"),
        (b'{"result":{"resultType":"task","taskId":"\xff"}}', "unreadable"),
        (b'{"result":{"resultType":"task","taskId":"t-1"}', "unreadable"),
        (b'{"result":{"resultType":"task","taskId":"t-1","x":"' + b"x" * 70_000 + b'"}}', "oversized"),
    ],
)
async def test_what_cannot_be_learned_is_counted_and_passes(text: bytes, reason: str) -> None:
    async def script(side: BackendSide) -> None:
        while True:
            await side.request()
            side.answer(text)

    async with backend(script) as a, running(config_text(a.port)) as proxy, client(proxy.port) as c:
        assert (await c.ask(call())).body == text
        assert await metric(proxy, "unlearned_total", reason=reason) == 1
        assert await metric(proxy, "pins", kind="task") == 0


async def test_escapes_and_key_order_do_not_matter() -> None:
    text = (
        b'{"result":{"status":"working","t\\u0061skId":"t\\u00e2-1","resultType":"\\u0074ask"},"id":1,"jsonrpc":"2.0"}'
    )

    async def script(side: BackendSide) -> None:
        while True:
            await side.request()
            side.answer(text)

    async with backend(script) as a, running(config_text(a.port)) as proxy, client(proxy.port) as c:
        await c.ask(call())
        await c.ask(task(b"get", encoded("tâ-1")))
        assert await metric(proxy, "decisions_total", source="pin") == 1


async def test_only_modern_posts_teach() -> None:
    async def script(side: BackendSide) -> None:
        while True:
            await side.request()
            side.answer(created("t-1"))

    async with backend(script) as a, running(config_text(a.port)) as proxy, client(proxy.port) as c:
        await c.ask(post(b"MCP-Protocol-Version: 2025-11-25", b"Mcp-Method: tools/call"))
        await c.ask(post(b"Mcp-Method: tools/call"))
        for method in (b"server/discover", b"tools/list"):
            await c.ask(post(*MODERN, b"Mcp-Method: " + method))
        assert await metric(proxy, "pins", kind="task") == 0
        encodings = [request.get("Accept-Encoding") for request in a.requests]
        assert encodings == [None] * 4
        await c.ask(call(b"t", b"Accept-Encoding: gzip, deflate"))
        assert a.requests[-1].all("Accept-Encoding") == ["identity"]
        assert await metric(proxy, "pins", kind="task") == 1


async def test_another_callers_task_in_the_name_teaches_nothing() -> None:
    """Trial 27: Python servers do not compare Mcp-Name with the body; the victim's pin and life stay."""
    victim = TaskBackend("victim")

    async def liar(side: BackendSide) -> None:
        while True:
            request = await side.request()
            if request.get("Mcp-Method") == "tools/call":
                side.answer(created("own"))
            else:
                side.answer(state("own", "completed"))  # answers the task of the body, whatever the name says

    async with backend(liar) as a, backend(victim.script) as b:
        routes = "  - {name: x, match: {header: {X-To: liar}}, pool: liars}\n  - {name: rest, pool: agents}"
        text = config_text(b.port, a.port, routes=routes)
        text = text.replace(
            "pools:\n", f"pools:\n  liars:\n    backends: [{{id: liar, url: 'http://127.0.0.1:{a.port}/mcp'}}]\n"
        )
        async with running(text) as proxy, client(proxy.port) as c:
            while "victim" not in victim.known:
                await c.ask(call())
            for _ in range(3):
                await c.ask(task(b"get", b"victim", b"X-To: liar"))
                await c.ask(task(b"cancel", b"victim", b"X-To: liar"))
            victim.asked.clear()
            answer = await c.ask(task(b"get", b"victim"))
            assert json.loads(answer.body)["result"]["status"] == "working"
            assert victim.asked == ["victim"]
            assert await metric(proxy, "tasks_held", pool="agents", backend="a") == 1


async def test_states_of_a_task_in_the_metrics() -> None:
    answers = [created("t-1"), state("t-1"), UNKNOWN, state("t-1", "completed"), state("t-1", "completed")]

    async def script(side: BackendSide) -> None:
        while answers:
            await side.request()
            side.answer(answers.pop(0))

    async with backend(script) as a, running(config_text(a.port)) as proxy, client(proxy.port) as c:
        held = []
        await c.ask(call())
        for _ in range(4):
            held.append(await metric(proxy, "tasks_held", pool="agents", backend="a"))
            await c.ask(task(b"get", b"t-1"))
        assert held == [1, 1, 1, 0]
        assert await metric(proxy, "pins", kind="task") == 1
        assert await metric(proxy, "decisions_total", source="pin", outcome="unknown") == 1
        assert await metric(proxy, "decisions_total", source="pin", outcome="served") == 3


async def test_first_writer_wins() -> None:
    """Two backends that mint the same id: the first one keeps it, and the conflict is counted."""
    makers = [TaskBackend("same"), TaskBackend("same")]
    async with backend(makers[0].script) as a, backend(makers[1].script) as b:
        async with running(config_text(a.port, b.port)) as proxy, client(proxy.port) as c:
            await c.ask(call())
            first = 0 if makers[0].known else 1
            await c.ask(call())
            for _ in range(4):
                await c.ask(task(b"get", b"same"))
            assert makers[first].asked == ["same"] * 4
            assert await metric(proxy, "decisions_total", outcome="conflict") == 1


async def test_owner_tag_names_the_owner_of_a_task_nobody_saw() -> None:
    makers = [TaskBackend(), TaskBackend(), TaskBackend()]
    makers[1].known |= {f"b.{i}" for i in range(20)}
    pool = "    tasks: {state: local, search: false, owner_tag: '^(?P<backend>[a-z0-9-]+)\\.'}"
    async with backend(makers[0].script) as a, backend(makers[1].script) as b, backend(makers[2].script) as c:
        async with running(config_text(a.port, b.port, c.port, pool=pool)) as proxy, client(proxy.port) as one:
            for i in range(20):
                assert b"error" not in (await one.ask(task(b"get", b"b.%d" % i))).body
            assert await metric(proxy, "decisions_total", source="tag", outcome="served") == 20
            assert b"error" in (await one.ask(task(b"get", b"z.1"))).body
            assert await metric(proxy, "decisions_total", source="ring", outcome="unknown") == 1


async def test_without_search_a_task_nobody_knows_goes_by_the_ring_and_the_server_answers() -> None:
    """The server's -32602 carries the request's JSON-RPC id, which the proxy cannot know."""
    makers = [TaskBackend(), TaskBackend(), TaskBackend()]
    pool = "    tasks: {search: false}"
    async with backend(makers[0].script) as a, backend(makers[1].script) as b, backend(makers[2].script) as c:
        async with running(config_text(a.port, b.port, c.port, pool=pool)) as proxy, client(proxy.port) as one:
            for _ in range(5):
                assert (await one.ask(task(b"get", b"nobody"))).body == UNKNOWN
            assert sorted(len(maker.asked) for maker in makers) == [0, 0, 5]


async def test_legacy_requests_match_no_routing_header() -> None:
    """Trial 12: an old client's headers are not checked by its server, so no rule may trust them."""
    routes = "  - {name: admin, match: {method: tools/call, name: 'admin_*'}, pool: agents}"
    async with backend() as a, running(config_text(a.port, routes=routes)) as proxy, client(proxy.port) as c:
        lines = (b"Mcp-Method: tools/call", b"Mcp-Name: admin_x")
        assert (await c.ask(post(MODERN[0], *lines))).status == 200
        for version in ((), (b"MCP-Protocol-Version: 2025-11-25",), (b"MCP-Protocol-Version: zzzz",)):
            answer = await c.ask(post(*version, *lines))
            assert (answer.status, answer.error["code"]) == (404, -32000)


async def test_both_eras_on_one_url() -> None:
    """Trial 22: the version header selects the pool."""
    routes = "  - {name: legacy, match: {protocol: '<2026-07-28'}, pool: old}\n  - {name: rest, pool: agents}"
    async with backend() as new, backend() as old:
        text = config_text(new.port, routes=routes)
        text = text.replace("pools:\n", f"pools:\n  old:\n    backends: ['http://127.0.0.1:{old.port}/mcp']\n")
        async with running(text) as proxy, client(proxy.port) as c:
            await c.ask(call())
            await c.ask(post(b"MCP-Protocol-Version: 2025-11-25"))
            await c.ask(post())
            assert (len(new.requests), len(old.requests)) == (1, 2)


class SlowStore(MemoryPinStore):
    """Answers a put when told to."""

    def __init__(self) -> None:
        super().__init__(ttl=60, capacity=10, clock=lambda: 0.0)
        self.gate: asyncio.Future[None] | None = None
        self.failing = False

    def put(  # type: ignore[override]
        self, key: PinKey, pool: str, backend: str, *, ttl: float | None, replace: bool = False
    ) -> "asyncio.Future[str]":
        async def later() -> str:
            self.gate = asyncio.get_running_loop().create_future()
            await self.gate
            if self.failing:
                raise PinStoreError("down")
            return MemoryPinStore.put(self, key, pool, backend, ttl=ttl, replace=replace)

        return asyncio.ensure_future(later())

    def get(self, key: PinKey) -> "asyncio.Future[Pin | None]":  # type: ignore[override]
        async def later() -> Pin | None:
            if self.failing:
                raise PinStoreError("down")
            return MemoryPinStore.get(self, key)

        return asyncio.ensure_future(later())


@pytest.mark.parametrize("framing", ["length", "chunked", "sse"])
async def test_the_pin_is_stored_before_the_client_has_the_whole_message(framing: str) -> None:
    """Conformance `sep-2663-durable-create-strong-consistency` polls the moment the response is there."""
    message = created("t-1")

    async def script(side: BackendSide) -> None:
        await side.request()
        if framing == "length":
            side.answer(message)
        elif framing == "chunked":
            side.send(OK + b"Content-Type: application/json\r\nTransfer-Encoding: chunked\r\n\r\n")
            side.send(b"%x\r\n%b\r\n0\r\n\r\n" % (len(message), message))
        else:
            event = b"data: " + message + b"\n\n"
            side.send(OK + b"Content-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n")
            side.send(b"%x\r\n%b\r\n" % (len(event), event))
        await side.peer_closes()

    store = SlowStore()
    async with backend(script) as a, running(config_text(a.port), pins=store) as proxy, client(proxy.port) as c:
        c.send(call())
        await until(lambda: store.gate)
        head = await read_head(c.reader)
        seen = b""
        try:
            async with asyncio.timeout(0.05):
                while True:
                    seen += await c.reader.read(1000)
        except TimeoutError:
            pass
        assert seen.count(b"}") < 2
        assert len(store) == 0
        assert store.gate is not None
        store.gate.set_result(None)
        async with asyncio.timeout(2):
            while seen.count(b"}") < 2:
                seen += await c.reader.read(1000)
        assert len(store) == 1
        assert (b"Content-Length" in head) is (framing == "length")


@pytest.mark.parametrize(("failing", "reason"), [(False, "store_slow"), (True, "store_failed")])
async def test_a_store_that_is_slow_or_fails_holds_nothing_up(failing: bool, reason: str) -> None:
    message = created("t-1")
    store = SlowStore()
    head = OK + b"Content-Type: application/json\r\nContent-Length: %d\r\n\r\n" % len(message)
    async with backend(answering(head + message)) as a:
        async with running(config_text(a.port), pins=store) as proxy, client(proxy.port) as c:
            store.failing = failing
            c.send(call())
            await until(lambda: store.gate)
            if failing and store.gate is not None:
                store.gate.set_result(None)
            answer = await c.response()  # within PATIENCE, though a slow store never answers
            assert answer.body == message
            assert await metric(proxy, "unlearned_total", reason=reason) == 1
            assert (await c.ask(task(b"get", b"t-1"))).status == 200  # asked of the store as well, then by the ring


async def test_a_slow_store_answers_for_the_owner() -> None:
    makers = [TaskBackend(*(f"a-{i}" for i in range(9))), TaskBackend(*(f"b-{i}" for i in range(9)))]
    store = SlowStore()
    async with backend(makers[0].script) as a, backend(makers[1].script) as b:
        async with running(config_text(a.port, b.port), pins=store) as proxy, client(proxy.port) as c:
            c.send(call())
            await until(lambda: store.gate)
            assert store.gate is not None
            store.gate.set_result(None)
            task_id = json.loads((await c.response()).body)["result"]["taskId"]
            for _ in range(4):
                assert b"error" not in (await c.ask(task(b"get", task_id.encode()))).body
