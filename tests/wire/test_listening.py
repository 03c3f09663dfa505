"""A subscription to a pool with `listen: all`: every backend serves it, and the client sees one stream."""

import asyncio
import gc
import ssl
from contextlib import AsyncExitStack

import pytest

from proxy.config import Config, parse
from proxy.wire import listening as module
from proxy.wire.connections import BackendTls
from proxy.wire.part import Part
from tests.wire.harness import (
    BackendSide,
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
from tests.wire.listeners import (
    ALL,
    ERROR,
    HEAD,
    RESULT,
    Listened,
    Stream,
    Watch,
    ack,
    fleet,
    left_over,
    listen,
    note,
    opened,
)
from tests.wire.listeners import listening as listening_to


def abc(ids: str = "abc") -> list[Listened]:
    return [Listened(one) for one in ids]


# ---- what the client sees
async def test_one_acknowledgement_names_what_any_backend_knows_and_the_events_of_all_follow() -> None:
    made = abc()
    body = b'{"id":7,  "params":{"notifications":{"taskIds":["t-a"]}}}'
    async with fleet(*made) as (proxy, backends), client(proxy.port) as c:
        stream = await opened(c, listen(b"Authorization: Bearer x", body=body))
        assert await stream.acknowledged() == ["t-a", "t-b", "t-c"]
        for one in made:
            for half in (note(f"of {one.name}")[:20], note(f"of {one.name}")[20:]):
                one.tell(half)
            assert await stream.uri() == f"of {one.name}"
        for asked in backends:
            (request,) = asked.requests
            assert request.body == body, "the same bytes for all"
            assert request.get("Authorization") == "Bearer x"
            assert request.get("Accept-Encoding") == "identity"
            assert request.get("Content-Length") == str(len(body))


async def test_halves_of_events_never_mix() -> None:
    made = abc()
    async with fleet(*made) as (proxy, _), listening_to(proxy, made) as (_, stream):
        texts = {one.name: note(f"of {one.name} " + "x" * 500) for one in made}
        for at in range(0, 600, 50):
            for one in made:
                one.tell(texts[one.name][at : at + 50] or b": more\r\n")
            await asyncio.sleep(0)
        for one in made:
            one.tell(texts[one.name][600:])
        assert sorted([(await stream.uri())[:4] for _ in made]) == ["of a", "of b", "of c"]


async def test_the_head_is_that_of_a_stream_without_length_or_session() -> None:
    text = HEAD + b"Mcp-Session-Id: s-1\r\nContent-Length: %d\r\nKeep-Alive: 5\r\n\r\n%b"
    async with AsyncExitStack() as stack:
        backends = [
            await stack.enter_async_context(backend(answering(text % (len(ack() + RESULT), ack() + RESULT))))
            for _ in range(2)
        ]
        proxy = await stack.enter_async_context(running(config_text(*(b.port for b in backends), pool=ALL)))
        c = await stack.enter_async_context(client(proxy.port))
        response = await c.ask(listen())
        assert response.get("Content-Type") == "text/event-stream"
        assert response.get("X-Accel-Buffering") == "no"
        assert response.get("Transfer-Encoding") == "chunked"
        assert [response.get(name) for name in ("Content-Length", "Mcp-Session-Id", "Keep-Alive")] == [None] * 3
        assert response.body.endswith(RESULT)


async def test_an_older_client_gets_the_stream_until_the_end_of_its_connection() -> None:
    made = abc("ab")
    async with fleet(*made) as (proxy, _), client(proxy.port) as c:
        c.send(listen().replace(b"HTTP/1.1", b"HTTP/1.0"))
        head = await read_head(c.reader)
        assert b"Transfer-Encoding" not in head and b"Connection: close" in head
        await c.reader.readuntil(b"\n\n")
        made[0].tell(note("of a") + RESULT)
        assert await c.rest() == note("of a") + RESULT


async def test_an_older_client_sees_a_broken_stream_as_a_reset() -> None:
    made = abc("ab")
    async with fleet(*made) as (proxy, _), client(proxy.port) as c:
        c.send(listen().replace(b"HTTP/1.1", b"HTTP/1.0"))
        await read_head(c.reader)
        await c.reader.readuntil(b"\n\n")
        made[0].kill()
        with pytest.raises(ConnectionError):
            await c.rest()


async def test_sixteen_backends_serve_one_subscription() -> None:
    made = [Listened(f"{i:02}") for i in range(16)]
    async with asyncio.timeout(60), AsyncExitStack() as stack:
        ports = [(await stack.enter_async_context(backend(one.script))).port for one in made]
        urls = ", ".join(f"'http://127.0.0.1:{port}/mcp'" for port in ports)
        text = config_text(ports[0], pool=ALL).replace("    backends:\n", f"    backends: [{urls}]\n")
        text = "\n".join(line for line in text.split("\n") if "{id: a" not in line)
        proxy = await stack.enter_async_context(running(text))
        async with listening_to(proxy, made) as (_, stream):
            for one in made:
                one.tell(note(one.name))
            assert sorted([await stream.uri() for _ in made]) == [one.name for one in made]
            assert await metric(proxy, "backend_in_flight") == 16
            assert await metric(proxy, "streams_open") == 1
        await until(lambda: [one.ended for one in made] == [1] * 16)


# ---- who does not answer
@pytest.mark.parametrize("wait", [0.5, None])
async def test_a_backend_that_is_slow_to_acknowledge_holds_up_the_others_for_two_seconds_at_most(
    wait: float | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    if wait is not None:
        monkeypatch.setattr(module, "ACK_WAIT", wait)
    limit = 2.0 if wait is None else wait
    made = [Listened("a"), Listened("b", acknowledges=False), Listened("c")]
    async with fleet(*made) as (proxy, _), client(proxy.port) as c:
        since = Watch()
        stream = await opened(c)
        assert since.seconds < limit - 0.05, "the head waits for nobody"
        assert await stream.acknowledged() == ["t-a", "t-c"]
        assert limit - 0.05 < since.seconds < limit + 1
        made[1].tell(ack(taskIds=["t-b"]) + note("of b"))
        assert await stream.uri() == "of b", "a later acknowledgement is dropped"


async def test_a_silent_backend_holds_up_nobody_and_may_still_join(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "ACK_WAIT", 0.1)
    answer = asyncio.Event()

    async def silent(side: BackendSide) -> None:
        await side.request()
        await answer.wait()
        side.send(HEAD + b"\r\n" + ack(taskIds=["t-b"]) + note("of b"))
        await side.peer_closes()

    made = Listened("a")
    async with AsyncExitStack() as stack:
        ports = [(await stack.enter_async_context(backend(script))).port for script in (made.script, silent)]
        proxy = await stack.enter_async_context(running(config_text(*ports, pool=ALL)))
        c = await stack.enter_async_context(client(proxy.port))
        stream = await opened(c)
        assert await stream.acknowledged() == ["t-a"]
        answer.set()
        assert await stream.uri() == "of b"


REFUSALS = {
    "over HTTP": b"HTTP/1.1 404 Not Found\r\nContent-Length: 2\r\n\r\n{}",
    "unavailable": b"HTTP/1.1 503 No\r\nContent-Length: 2\r\n\r\n{}",
    "in a stream": HEAD + b"Content-Length: %d\r\n\r\n%b" % (len(ERROR), ERROR),
    "an encoded stream": HEAD + b"Content-Encoding: gzip\r\n\r\nnonsense",
    "a result alone": b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: 25\r\n\r\n"
    b'{"id":7,"result":{"a":1}}',
    "broken off": HEAD + b"Content-Length: 100\r\n\r\n: ping\r\n",
    "no HTTP": b"nonsense\r\n\r\n",
}


@pytest.mark.parametrize("refusal", REFUSALS.values(), ids=REFUSALS)
async def test_a_backend_that_refuses_is_no_part_of_it(refusal: bytes) -> None:
    async def refuse(side: BackendSide) -> None:
        await side.request()
        side.send(refusal)
        if b"broken" in refusal or refusal.endswith(b": ping\r\n"):
            side.writer.close()
        await side.peer_closes()

    made = Listened("b")
    async with AsyncExitStack() as stack:
        ports = [(await stack.enter_async_context(backend(script))).port for script in (refuse, made.script)]
        proxy = await stack.enter_async_context(running(config_text(*ports, closed_port(), pool=ALL)))
        async with client(proxy.port) as c:
            since = Watch()
            stream = await opened(c)
            assert await stream.acknowledged() == ["t-b"]
            assert since.seconds < module.ACK_WAIT, "nobody waits for what cannot come"
            made.tell(note("of b"))
            assert await stream.uri() == "of b"
            assert await metric(proxy, "backend_in_flight") == 1
        await until(lambda: made.ended == 1)
        assert await metric(proxy, "backend_in_flight") == 0


def answer(status: bytes, code: int) -> bytes:
    body = b'{"jsonrpc":"2.0","id":7,"error":{"code":%d,"message":"no"}}' % code
    return b"HTTP/1.1 %b\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n%b" % (status, len(body), body)


NO_METHOD, BAD = answer(b"404 Not Found", -32601), answer(b"400 Bad Request", -32602)
LARGE = b"HTTP/1.1 500 Large\r\nContent-Length: 200000\r\n\r\n" + b"x" * 200_000
NO_STREAM = [
    ([NO_METHOD, answer(b"401 Unauthorized", -1), BAD], 401),
    ([NO_METHOD, answer(b"403 Forbidden", -1), BAD], 403),
    ([NO_METHOD, BAD], 400),
    ([answer(b"500 Oops", -32603), NO_METHOD], 404),
    ([None, answer(b"500 Oops", -32603)], 500),
    ([LARGE, None], 500),
    ([None, HEAD + b"Content-Encoding: gzip\r\nContent-Length: 3\r\n\r\nabc"], 200),
    ([NO_METHOD, REFUSALS["a result alone"]], 200),
]


@pytest.mark.parametrize(("answers", "status"), NO_STREAM)
async def test_where_none_opens_a_stream_the_most_telling_answer_is_relayed(
    answers: list[bytes | None], status: int
) -> None:
    async with AsyncExitStack() as stack:
        ports = [
            closed_port() if one is None else (await stack.enter_async_context(backend(answering(one)))).port
            for one in answers
        ]
        proxy = await stack.enter_async_context(running(config_text(*ports, pool=ALL)))
        c = await stack.enter_async_context(client(proxy.port))
        for _ in range(2):
            response = await c.ask(listen())
            assert response.status == status
            assert response.get("Mcp-Proxy-Error") is None
            (sent,) = [one for one in answers if one is not None and one.startswith(b"HTTP/1.1 %d" % status)]
            assert response.body == sent.partition(b"\r\n\r\n")[2]
        assert await metric(proxy, "backend_in_flight") == 0
        assert await metric(proxy, "requests_total", code=str(status)) == 2


async def test_an_answer_waits_for_a_stream_only_so_long(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "ACK_WAIT", 0.1)

    async def silent(side: BackendSide) -> None:
        await side.request()
        await side.peer_closes()

    async with backend(silent) as a, backend(answering(NO_METHOD)) as b:
        async with running(config_text(a.port, b.port, pool=ALL)) as proxy, client(proxy.port) as c:
            assert (await c.ask(listen())).status == 404
            await until(lambda: not a.open)


@pytest.mark.parametrize(
    ("script", "status", "reason"), [(None, 502, "connect_failed"), (b"nonsense\r\n\r\n", 502, "bad_response")]
)
async def test_where_nobody_answers_the_error_says_why(script: bytes | None, status: int, reason: str) -> None:
    async with AsyncExitStack() as stack:
        port = closed_port()
        if script is not None:
            port = (await stack.enter_async_context(backend(answering(script)))).port
        proxy = await stack.enter_async_context(running(config_text(closed_port(), port, closed_port(), pool=ALL)))
        c = await stack.enter_async_context(client(proxy.port))
        response = await c.ask(listen())
        assert (response.status, response.get("Mcp-Proxy-Error")) == (status, reason)
        assert (await c.ask(listen())).status == status, "the connection lives on"
        assert await metric(proxy, "requests_total", code=str(status), route="rest") == 2
        assert await metric(proxy, "backend_in_flight") == 0


# ---- the end
async def test_a_result_ends_the_whole_is_relayed_last_and_the_connection_lives_on() -> None:
    made = abc()
    async with fleet(*made) as (proxy, _), listening_to(proxy, made) as (c, stream):
        made[0].tell(note("of a"))
        assert await stream.uri() == "of a"
        made[1].tell(RESULT)
        made[1].end()
        assert "result" in await stream.message()
        with pytest.raises(EOFError):
            await stream.message()
        await until(lambda: made[0].ended == made[2].ended == 1)
        assert (await c.ask(call())).status == 200
        assert await metric(proxy, "streams_open") == 0
        assert await metric(proxy, "requests_total", method="subscriptions/listen", code="200") == 1
        assert await metric(proxy, "decisions_total", source="balance", kind="none", outcome="served") == 2
        assert await metric(proxy, "backend_in_flight") == 0


@pytest.mark.parametrize("way", ["killed", "ended"])
async def test_a_backend_that_leaves_without_a_result_cuts_the_whole_and_the_client_listens_again(way: str) -> None:
    made = abc()
    async with fleet(*made) as (proxy, backends), listening_to(proxy, made) as (_, stream):
        made[1].tell(note("of b"))
        assert await stream.uri() == "of b"
        await backends[2].stop_listening()
        if way == "killed":
            made[2].kill()
        else:
            made[2].end()
        with pytest.raises(asyncio.IncompleteReadError):
            await stream.message()
        await until(lambda: made[0].ended == made[1].ended == 1)
        async with listening_to(proxy, made[:2]) as (_, again):
            made[0].tell(note("of a"))
            assert await again.uri() == "of a"
        assert await metric(proxy, "requests_total", method="subscriptions/listen") >= 1
        await until(lambda: made[0].ended == 2)
        assert await metric(proxy, "backend_in_flight") == 0
        assert await metric(proxy, "streams_open") == 0


async def test_a_client_that_hangs_up_ends_the_stream_at_every_backend_at_once() -> None:
    made = [Listened("a"), Listened("b"), Listened("c", acknowledges=False)]
    async with fleet(*made) as (proxy, _):
        async with client(proxy.port) as c:
            await opened(c)
            await until(lambda: all(one.streams for one in made))
        since = Watch()
        await until(lambda: [one.ended for one in made] == [1, 1, 1])
        assert since.seconds < 1
        assert await metric(proxy, "backend_in_flight") == 0
        assert await metric(proxy, "streams_open") == 0


async def test_a_client_that_hangs_up_before_any_answer_ends_all_requests() -> None:
    async def silent(side: BackendSide) -> None:
        await side.request()
        await side.peer_closes()

    async with backend(silent) as a, backend(silent) as b, running(config_text(a.port, b.port, pool=ALL)) as proxy:
        async with client(proxy.port) as c:
            c.send(listen())
            await until(lambda: a.requests and b.requests)
        await until(lambda: not a.open and not b.open)
        assert await metric(proxy, "requests_total", code="499") == 1
        assert await metric(proxy, "backend_in_flight") == 0


async def test_the_end_of_a_drain_cuts_the_stream_at_every_backend() -> None:
    made = abc("ab")
    async with fleet(*made) as (proxy, _), listening_to(proxy, made) as (_, stream):
        await proxy.drain()
        with pytest.raises(asyncio.IncompleteReadError):
            await stream.message()
        await until(lambda: made[0].ended == made[1].ended == 1)


async def test_subscriptions_are_freed_without_the_garbage_collector() -> None:
    made = abc("ab")
    async with fleet(*made) as (proxy, _):
        gc.collect()
        gc.disable()
        try:
            for way in range(6):
                async with listening_to(proxy, made) as (_, stream):
                    if way % 3 == 1:
                        made[0].tell(RESULT)
                        assert "result" in await stream.message()
                    elif way % 3 == 2:
                        made[0].kill()
                await until(lambda: not any(one.streams for one in made))
            await until(lambda: not proxy.clients)
            assert [found for found in gc.get_objects() if isinstance(found, module.Listening | Part)] == []
        finally:
            gc.enable()


# ---- how much is under way
async def test_a_client_that_does_not_read_stops_every_backend() -> None:
    made = abc("ab")
    text = note("x" * 60_000)
    async with fleet(*made) as (proxy, _), listening_to(proxy, made) as (_, stream):
        sent = 0
        for _ in range(400):  # 24 MB from each, more than sockets take
            for one in made:
                one.tell(text)
            sent += 1
        assert min([await left_over(one) for one in made]) > 1_000_000, "there is more than the sockets take"
        (connection,) = proxy.clients
        assert connection._transport.get_write_buffer_size() < 1_000_000, "the proxy took what it could not pass on"
        for _ in range(2 * sent):
            assert len(await stream.uri()) == 60_000


async def test_only_so_much_is_held_until_the_acknowledgement_can_leave() -> None:
    made = [Listened("a"), Listened("b", acknowledges=False)]
    text = note("x" * 60_000)
    async with fleet(*made) as (proxy, _), client(proxy.port) as c:
        stream = await opened(c)
        await until(lambda: made[1].streams)
        for _ in range(400):
            made[0].tell(text)
        assert await left_over(made[0]) > 10_000_000, "the proxy took what it could not pass on"
        made[1].tell(ack(taskIds=["t-b"]))
        assert await stream.acknowledged() == ["t-a", "t-b"]
        for _ in range(400):
            assert len(await stream.uri()) == 60_000


async def test_a_body_that_comes_slowly_is_held_until_it_is_whole() -> None:
    made = abc("ab")
    async with fleet(*made) as (proxy, backends), client(proxy.port) as c:
        text = listen(body=b"x" * 1000)
        for at in range(0, len(text), 250):
            assert not backends[0].requests
            c.send(text[at : at + 250])
            await asyncio.sleep(0.01)
        stream = Stream(await read_head(c.reader), c.reader)
        assert await stream.acknowledged() == ["t-a", "t-b"]
        assert [len(one.requests[0].body) for one in backends] == [1000, 1000]


async def test_a_chunked_body_and_one_that_is_expected_go_to_all_as_a_whole() -> None:
    made = abc("ab")
    start = listen().partition(b"Content-Length")[0]
    async with fleet(*made) as (proxy, backends):
        async with client(proxy.port) as c:
            stream = await opened(c, start + b"Transfer-Encoding: chunked\r\n\r\n2\r\n{}\r\n0\r\n\r\n")
            assert await stream.acknowledged() == ["t-a", "t-b"]
        async with client(proxy.port) as c:
            c.send(start + b"Expect: 100-continue\r\nContent-Length: 2\r\n\r\n")
            assert (await read_head(c.reader)).startswith(b"HTTP/1.1 100 ")
            stream = await opened(c, b"{}")
            assert await stream.acknowledged() == ["t-a", "t-b"]
        for one in backends:
            assert [request.body for request in one.requests] == [b"{}", b"{}"]
            assert [request.get("Content-Length") for request in one.requests] == ["2", "2"]
            assert [request.get("Expect") for request in one.requests] == [None, None]


@pytest.mark.parametrize("framing", ["length", "chunked", "expected"])
async def test_a_body_too_large_to_be_held_goes_to_one_backend(framing: str) -> None:
    made = abc("ab")
    body = bytes(range(256)) * 400
    async with fleet(*made) as (proxy, backends), client(proxy.port) as c:
        text = listen(body=body)
        if framing == "chunked":
            start = text.partition(b"Content-Length")[0]
            text = start + b"Transfer-Encoding: chunked\r\n\r\n%x\r\n%b\r\n0\r\n\r\n" % (len(body), body)
        if framing == "expected":
            c.send(text.removesuffix(body).replace(b"Content-Length", b"Expect: 100-continue\r\nContent-Length"))
            assert (await read_head(c.reader)).startswith(b"HTTP/1.1 100 ")
            text = body
        stream = await opened(c, text)
        (task,) = await stream.acknowledged()
        requests = [request for one in backends for request in one.requests]
        assert [request.body for request in requests] == [body]
        (serving,) = [one for one in made if one.streams]
        assert task == f"t-{serving.name}"
        assert await metric(proxy, "backend_in_flight") == 1


# ---- members that come and go
async def test_a_member_that_cannot_be_reached_at_first_joins_later(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "JOIN_EVERY", 0.05)
    made = abc("ab")
    async with fleet(*made) as (proxy, backends):
        await backends[1].stop_listening()
        async with listening_to(proxy, made[:1]) as (_, stream):
            await backends[1].listen_again()
            await until(lambda: made[1].streams)
            made[1].tell(note("of b"))
            assert await stream.uri() == "of b", "without a second acknowledgement"
            await asyncio.sleep(0.2)  # several looks later
            assert (made[0].opened, made[1].opened) == (1, 1)
            assert await metric(proxy, "backend_in_flight") == 2
        await until(lambda: made[1].ended == 1)
        assert await metric(proxy, "backend_in_flight") == 0


async def test_a_member_that_is_added_joins_and_one_that_departs_stays(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "JOIN_EVERY", 0.05)
    made = abc()
    async with fleet(*made) as (proxy, backends):
        ports = [one.port for one in backends]
        two, three = (
            parse(config_text(*some, pool=ALL).replace("drain: 0s", "drain: 0s\n"), "test.yaml", {})
            for some in (ports[:2], ports)
        )
        proxy.apply(two)
        await until(lambda: True)
        proxy.apply(three)
        proxy.apply(two)  # c has departed, and may own a task
        async with listening_to(proxy, made) as (_, stream):
            made[2].tell(note("of c"))
            assert await stream.uri() == "of c"


async def test_a_member_added_by_a_new_configuration_joins(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "JOIN_EVERY", 0.05)
    made = abc()
    async with AsyncExitStack() as stack:
        ports = [(await stack.enter_async_context(backend(one.script))).port for one in made]
        proxy = await stack.enter_async_context(running(config_text(*ports[:2], pool=ALL)))
        async with listening_to(proxy, made[:2]) as (_, stream):
            proxy.apply(parse(config_text(*ports, pool=ALL), "test.yaml", {}))
            await until(lambda: made[2].streams)
            made[2].tell(note("of c"))
            assert await stream.uri() == "of c"
            proxy.apply(parse(config_text(*ports), "test.yaml", {}))
            async with client(proxy.port) as other:
                alone = await opened(other)
                assert len(await alone.acknowledged()) == 1, "the new rule holds for the next subscription"
            made[0].tell(note("of a"))
            assert await stream.uri() == "of a", "the old stream lives on"


def moved(ports: list[int], *, to: int, path: str = "/mcp") -> Config:
    """The configuration with the last backend somewhere else, under the same id."""
    return parse(config_text(*ports[:-1], to, pool=ALL).replace(f"{to}/mcp", f"{to}{path}"), "test.yaml", {})


@pytest.mark.parametrize("path", ["/mcp", "/elsewhere"])
async def test_a_member_that_moves_cuts_the_whole_and_the_client_listens_at_its_new_address(
    path: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "JOIN_EVERY", 0.05)
    made, new = abc("ab"), Listened("b")
    async with fleet(*made) as (proxy, backends), backend(new.script) as at:
        ports = [one.port for one in backends]
        async with listening_to(proxy, made) as (_, stream):
            proxy.apply(moved(ports, to=at.port, path=path))
            with pytest.raises(asyncio.IncompleteReadError):
                await stream.message()
            await until(lambda: [one.ended for one in made] == [1, 1])
            assert not new.opened, "the client would not know what it missed"
        async with listening_to(proxy, [made[0], new]):
            assert at.requests[-1].first.split()[1] == path.encode()
        await until(lambda: not new.streams)
        assert await metric(proxy, "streams_open") == 0
        assert await metric(proxy, "backend_in_flight") == 0


async def test_a_member_that_moves_before_it_has_acknowledged_is_asked_at_its_new_address(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(module, "JOIN_EVERY", 0.05)
    monkeypatch.setattr(module, "ACK_WAIT", 0.05)

    async def silent(side: BackendSide) -> None:
        await side.request()
        await side.peer_closes()

    first, slow, new = Listened("a"), Listened("b", acknowledges=False), Listened("b")
    for script in (slow.script, silent):
        async with backend(first.script) as a, backend(script) as b, backend(new.script) as at:
            async with running(config_text(a.port, b.port, pool=ALL)) as proxy, listening_to(proxy, [first]) as (_, s):
                await until(lambda: b.requests)
                proxy.apply(moved([a.port, b.port], to=at.port))
                await until(lambda: new.streams)
                await until(lambda: not b.open)
                new.tell(note("of b"))
                assert await s.uri() == "of b", "nothing was promised, so nothing is broken"
                assert await metric(proxy, "backend_in_flight") == 2


async def test_a_member_that_is_forgotten_and_comes_back_elsewhere_has_moved(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "JOIN_EVERY", 0.05)
    made, new = abc(), Listened("c")
    async with fleet(*made) as (proxy, backends), backend(new.script) as at, listening_to(proxy, made) as (_, stream):
        ports = [one.port for one in backends]
        pool = proxy.pools["agents"]
        for _ in range(2):
            proxy.apply(parse(config_text(*ports[:2], pool=ALL), "test.yaml", {}))
            if (gone := pool.member("c")) is not None:
                pool.forget(gone)
        made[2].tell(note("of c"))
        assert await stream.uri() == "of c", "it may still say something"
        proxy.apply(moved(ports, to=at.port))
        with pytest.raises(asyncio.IncompleteReadError):
            await stream.message()


async def test_new_certificates_do_not_move_a_member(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "JOIN_EVERY", 0.05)
    made = abc("ab")
    async with fleet(*made) as (proxy, backends), listening_to(proxy, made) as (_, stream):
        ports = [one.port for one in backends]
        connections = proxy.lanes["agents"].connections
        before = dict(connections)
        for one in connections.values():
            one.tls = BackendTls(ssl.create_default_context(), "b.test")  # as it was at the last look
        proxy.apply(parse(config_text(*ports, pool=ALL), "test.yaml", {}))
        assert all(connections[member] is not before[member] for member in before)
        await asyncio.sleep(0.2)  # several looks later
        made[1].tell(note("of b"))
        assert await stream.uri() == "of b"


async def test_a_member_that_refuses_to_join_is_asked_once_and_one_that_fails_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(module, "JOIN_EVERY", 0.05)
    made = Listened("a")
    async with AsyncExitStack() as stack:
        scripts = [made.script, answering(NO_METHOD), answering(REFUSALS["in a stream"]), answering(LARGE)]
        backends = [await stack.enter_async_context(backend(script)) for script in scripts]
        proxy = await stack.enter_async_context(running(config_text(*(b.port for b in backends), pool=ALL)))
        async with listening_to(proxy, [made]) as (_, stream):
            await until(lambda: len(backends[3].requests) > 3)
            assert [len(one.requests) for one in backends[:3]] == [1, 1, 1]
            made.tell(note("of a"))
            assert await stream.uri() == "of a"


async def test_draining_members_are_listened_to_and_a_departed_one_that_is_gone_is_forgotten() -> None:
    made = abc()
    async with fleet(*made) as (proxy, backends):
        ports = [one.port for one in backends]
        proxy.set_draining(pool="agents", backend="a", draining=True)
        proxy.apply(parse(config_text(*ports[:2], pool=ALL), "test.yaml", {}))
        await backends[2].stop_listening()
        async with listening_to(proxy, made[:2]):
            assert [member.backend.id for member in proxy.pools["agents"].everyone] == ["a", "b"]


async def test_an_idle_connection_that_was_closing_is_replaced_by_a_new_one() -> None:
    made = abc("ab")
    listens = 0

    async def closes_when_asked_again(side: BackendSide) -> None:
        nonlocal listens
        request = await side.request()
        if request.get("Mcp-Method") == "tools/call":
            side.answer()
            await side.request()
            listens += 1
            side.writer.transport.abort()
            return
        side.send(HEAD + b"\r\n" + ack(taskIds=["t-b"]))
        await side.peer_closes()

    async with backend(made[0].script) as a, backend(closes_when_asked_again) as b:
        text = config_text(a.port, b.port, pool=f"{ALL}\n    balance: round_robin")
        async with running(text) as proxy, client(proxy.port) as c:
            for _ in range(2):
                assert (await c.ask(call())).status == 200
            stream = await opened(c)
            assert await stream.acknowledged() == ["t-a", "t-b"]
            assert (listens, b.connections) == (1, 2)
            assert await metric(proxy, "backend_in_flight") == 2


# ---- what is not merged
async def test_other_requests_and_older_clients_go_to_one_backend() -> None:
    made = abc("ab")
    legacy = post(b"MCP-Protocol-Version: 2025-11-25", b"Mcp-Method: subscriptions/listen")
    async with fleet(*made) as (proxy, backends), client(proxy.port) as c:
        await c.ask(call())
        c.send(legacy)
        stream = Stream(await read_head(c.reader), c.reader)
        assert len(await stream.acknowledged()) == 1
        assert sum(len(one.requests) for one in backends) == 2


async def test_a_pool_of_one_is_listened_to_as_it_is() -> None:
    made = Listened("a")
    async with fleet(made) as (proxy, _), client(proxy.port) as c:
        stream = await opened(c)
        assert await stream.acknowledged() == ["t-a"]
        made.tell(note("of a"))
        assert await stream.uri() == "of a"
        made.end()
        with pytest.raises(EOFError):
            await stream.message()
