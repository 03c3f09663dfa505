"""Both walks are the same while a request is under way: what is long in coming, who leaves, who ends what."""

import asyncio
from collections.abc import Awaitable, Callable
from functools import partial

import pytest

from proxy.routing.errors import Draining
from tests.wire.harness import MODERN, BackendSide, call, config_text, post, task, until
from tests.wire.task_backend import created, state
from tests.wire.test_express import JSON, OK, WARM, whole
from tests.wire.test_express_streams import PROGRESS, SSE, chunk, one_backend
from tests.wire.walks import World, told_alike

# ---- what is long in coming


async def test_answers_that_take_a_while() -> None:
    """Long enough for whoever looks after time to have looked."""

    async def story(world: World) -> None:
        c = await world.client()
        await world.ask(c, *WARM, call(b"slow"), *WARM)

    async def script(side: BackendSide) -> None:
        while True:
            if (await side.request()).get("Mcp-Name") == "slow":
                await asyncio.sleep(1.2)
            side.answer()

    assert (await told_alike(story, script))["short"]


@pytest.mark.parametrize("method", ["tools/call", "prompts/get"])
async def test_an_answer_that_is_too_long_in_coming(method: str) -> None:
    async def story(world: World) -> None:
        c = await world.client()
        ask = [post(*MODERN, b"Mcp-Method: " + method.encode(), b"Mcp-Name: " + name) for name in (b"x", b"y", b"z")]
        await world.ask(c, *ask, ask[0].replace(b"Name: x", b"Name: never"), *ask)

    async def script(side: BackendSide) -> None:
        while True:
            if (await side.request()).get("Mcp-Name") == "never":
                await side.peer_closes()
                return
            side.answer()

    text: Callable[..., str] = lambda *ports: config_text(*ports, pool="    timeouts: {head: 1s}\n")  # noqa: E731
    assert (await told_alike(story, script, text=text))["short"]


# ---- who leaves


def more(world: World, closed: int) -> bool:
    """True if the proxy has closed more connections than those."""
    return world.backends[0].closed_by_peer > closed


@pytest.mark.parametrize("sent", [b"", whole(b"{}")[:20], whole(b"{}")[:-1], SSE, SSE + chunk(PROGRESS)])
async def test_a_client_that_leaves(sent: bytes) -> None:
    """Its backend's connection closes at once."""

    async def story(world: World) -> None:
        for _ in range(2):
            c = await world.client()
            await world.ask(c, *WARM)
            count, closed = world.count, world.backends[0].closed_by_peer
            c.send(call(b"half"))
            await world.sent(count + 1)
            await asyncio.sleep(0.05)
            c.close()
            await until(partial(more, world, closed))

    async def script(side: BackendSide) -> None:
        while True:
            if (await side.request()).get("Mcp-Name") == "half":
                side.send(sent)
            else:
                side.answer()

    assert (await told_alike(story, script))["short"]


async def retired(world: World) -> None:
    for each in list(world.proxy.clients):
        each.retire(Draining("over"))


async def abandoned(world: World) -> None:
    for each in list(world.proxy.clients):
        each.abandon(Draining("over"))


async def ejected(world: World) -> None:
    world.proxy.set_draining(pool="agents", backend="a", draining=True)


async def moved(world: World) -> None:
    """The pool's limits are others now."""
    world.apply(lambda *ports: config_text(*ports, pool="    limits: {in_flight: 7}\n"))


async def gone(world: World) -> None:
    """The backend is another now; the one before has departed."""
    world.apply(lambda port: config_text(port).replace("id: a", "id: z"))


@pytest.mark.parametrize("happens", [retired, abandoned, ejected, moved, gone])
@pytest.mark.parametrize("method", ["tools/call", "tasks/get"])
async def test_what_happens_while_a_request_is_under_way(
    happens: Callable[[World], Awaitable[None]], method: str
) -> None:
    async def story(world: World) -> None:
        c = await world.client()
        await world.ask(c, *WARM)
        request = call(b"slow") if method == "tools/call" else task(b"get", b"slow")
        await world.ask(c, *[request.replace(b"slow", b"fast")] * 3)
        count = world.count
        c.send(request.replace(b"slow", b"fast") if method == "tasks/get" else request)
        await world.sent(count + 1)
        await happens(world)
        await world.sees(c)
        if happens in (retired, abandoned):
            assert await c.rest() == b""
            return
        c.send(request)
        await world.sees(c)
        await world.ask(c, *WARM)

    async def script(side: BackendSide) -> None:
        times = 0
        while True:
            request = await side.request()
            times += request.get("Mcp-Name") in ("fast", "slow")
            if times == 4:
                await asyncio.sleep(0.1)
            name = request.get("Mcp-Name") or ""
            if name == "three" and request.get("Mcp-Method") == "tools/call":
                side.answer(created("fast"))
            else:
                side.answer(state(name) if request.get("Mcp-Method") == "tasks/get" else b"{}")

    assert (await told_alike(story, script, text=one_backend))["short"]


# ---- backends that fail


LAST_ANSWERS: dict[str, bytes] = {
    "it closes": whole(b"{}", b"Connection: close"),
    "until close": OK + JSON + b"\r\n{}",
    "nothing": b"",
    "half a head": OK,
    "a head": whole(b"{}")[:-2],
    "half a body": whole(b"{}")[:-1],
    "half a chunk": OK + JSON + b"Transfer-Encoding: chunked\r\n\r\n2\r\n{",
    "no last chunk": OK + JSON + b"Transfer-Encoding: chunked\r\n\r\n2\r\n{}\r\n",
    "nonsense": b"nonsense\r\n\r\n",
    "more behind it": whole(b"{}") + b"x",
    "an answer behind it": whole(b"{}") * 2,
    "interim alone": b"HTTP/1.1 100 Continue\r\n\r\n",
    "too many interim": b"HTTP/1.1 100 Continue\r\n\r\n" * 20,
    "a wrong length": whole(b"{}").replace(b"Content-Length: 2", b"Content-Length: 2, 2"),
    "too short": whole(b"{}")[:-1],
}


@pytest.mark.parametrize("abort", [False, True])
@pytest.mark.parametrize("method", ["tools/call", "prompts/get"])
@pytest.mark.parametrize("case", LAST_ANSWERS)
async def test_answers_behind_which_the_backend_closes(case: str, method: str, abort: bool) -> None:
    """A call is never sent twice; what may be is."""

    def ask(name: bytes) -> bytes:
        return post(*MODERN, b"Mcp-Method: " + method.encode(), b"Mcp-Name: " + name)

    async def story(world: World) -> None:
        for _ in range(3):
            c = await world.client()
            try:
                await world.ask(c, *map(ask, (b"a", b"b", b"c", b"special")))
            except asyncio.IncompleteReadError as error:
                world.seen.append(bytes(error.partial))
            await world.ask(await world.client(), ask(b"d"))

    async def script(side: BackendSide) -> None:
        while True:
            if (await side.request()).get("Mcp-Name") != "special":
                side.answer()
                continue
            side.send(LAST_ANSWERS[case])
            if abort:
                await asyncio.sleep(0.02)
                side.writer.transport.abort()
            return

    assert (await told_alike(story, script, text=lambda port: config_text(port, pool="    outlier: off")))["short"]


FAILURE = whole(b"{}", start=b"HTTP/1.1 503 Busy\r\n")


@pytest.mark.parametrize("failing", ["503", "close", "both"])
async def test_failures_in_a_row_eject_a_backend(failing: str) -> None:
    async def story(world: World) -> None:
        c = await world.client()
        for _ in range(3):
            await world.ask(c, *WARM, call(b"w"))
            await world.ask(c, *[call(b"bad") for _ in range(3)], *[call(b"x") for _ in range(4)])
        await world.ask(c, *[call(b"bad") for _ in range(8)], *[call(b"x") for _ in range(8)])

    def script_of(bad: bool) -> Callable[[BackendSide], Awaitable[None]]:
        async def script(side: BackendSide) -> None:
            number = 0
            while True:
                number += 1
                if (await side.request()).get("Mcp-Name") != "bad" or not bad:
                    side.answer()
                elif failing == "503" or (failing == "both" and number % 2):
                    side.send(FAILURE)
                else:
                    return

        return script

    text: Callable[..., str] = lambda *ports: config_text(  # noqa: E731
        *ports, pool="    balance: round_robin\n    outlier: {consecutive: 3, ejection: 60s}\n"
    )
    assert (await told_alike(story, script_of(True), script_of(False), text=text))["short"]


@pytest.mark.parametrize("size", [10, 60_000, 70_000, 200_000])
@pytest.mark.parametrize("method", ["tools/call", "prompts/get", "tasks/get"])
async def test_a_backend_that_ends_while_it_is_sent_a_request(method: str, size: int) -> None:
    """What is small, and may be sent again, is; another backend gets it whole."""
    body = b"x" * size

    async def story(world: World) -> None:
        c = await world.client()
        await world.ask(c, *WARM, call(b"w"))
        for name in (b"t", b"t", b"t", b"end", b"t"):
            c.send(post(*MODERN, b"Mcp-Method: " + method.encode(), b"Mcp-Name: " + name, body=body))
            answer = await c.response()
            world.seen.append((answer.status, answer.body))
            if answer.get("Connection") == "close":
                c = await world.client()

    def script_of(bad: bool) -> Callable[[BackendSide], Awaitable[None]]:
        async def script(side: BackendSide) -> None:
            while True:
                head = await side.reader.readuntil(b"\r\n\r\n")
                if b"Mcp-Name: end\r\n" in head and bad:
                    side.writer.transport.abort()
                    return
                await side.reader.readexactly(int(head.lower().partition(b"content-length: ")[2].split(b"\r")[0]))
                side.answer(b'{"result":{}}')

        return script

    text: Callable[..., str] = lambda *ports: config_text(  # noqa: E731
        *ports,
        pool="    balance: round_robin\n    outlier: off\n    tasks: {search: false}\n    timeouts: {owner_wait: 9ms}",
    )
    assert (await told_alike(story, script_of(True), script_of(False), text=text))["short"]
