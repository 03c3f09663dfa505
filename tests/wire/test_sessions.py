"""Legacy sessions stay on the server that made them, through any replica and any restart of the proxy."""

import asyncio
import re
from collections.abc import Callable

import pytest

from tests.wire.harness import (
    MODERN,
    BackendSide,
    Message,
    ScriptedBackend,
    backend,
    client,
    config_text,
    metric,
    post,
    read_head,
    running,
    until,
)

VERSION = b"MCP-Protocol-Version: 2025-11-25"


class SessionBackend:
    """Makes a session for each request without one, and knows only its own."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.sessions: set[str] = set()
        self.misses = 0

    async def script(self, side: BackendSide) -> None:
        while True:
            request = await side.request()
            session = request.get("Mcp-Session-Id")
            if session is None:
                session = f"{self.name}-{len(self.sessions)}"
                self.sessions.add(session)
            elif session not in self.sessions:
                self.misses += 1
                side.send(b"HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\n\r\n")
                continue
            if request.first.startswith(b"DELETE"):
                self.sessions.discard(session)
            body = self.name.encode()
            side.send(
                b"HTTP/1.1 200 OK\r\nmcp-session-id: %b\r\nContent-Length: %d\r\n\r\n%b"
                % (session.encode(), len(body), body)
            )


def with_session(session: str, verb: bytes = b"POST") -> bytes:
    text = post(VERSION, b"Mcp-Session-Id: " + session.encode())
    return verb + text[4:]


def session_of(answer: Message) -> str:
    session = answer.get("Mcp-Session-Id")
    assert session is not None
    assert re.fullmatch(r"[0-9a-f]{10}\..+", session)
    return session


async def test_every_call_of_a_session_reaches_its_server() -> None:
    """Trial 1: 200 sessions with 10 calls each, no miss."""
    kept = [SessionBackend(name) for name in "abc"]
    async with backend(kept[0].script) as a, backend(kept[1].script) as b, backend(kept[2].script) as c:
        async with running(config_text(a.port, b.port, c.port)) as proxy, client(proxy.port) as one:
            sessions = []
            for _ in range(200):
                made = await one.ask(post())
                sessions.append((session_of(made), made.body))
            for _ in range(10):
                for session, name in sessions:
                    answer = await one.ask(with_session(session))
                    assert (answer.status, answer.body) == (200, name)
                    assert session_of(answer) == session
            assert {name for _, name in sessions} == {b"a", b"b", b"c"}
            assert sum(server.misses for server in kept) == 0
            assert await metric(proxy, "decisions_total", kind="session", source="tag", outcome="served") == 2000
        for request in a.requests[-5:]:
            assert (
                request.get(
                    "Mcp-Session-Id",
                )
                in kept[0].sessions
            )


async def test_any_replica_serves_any_session() -> None:
    """Trial 2: two proxies of one configuration, taking turns; and one that starts later."""
    kept = [SessionBackend(name) for name in "abc"]
    async with backend(kept[0].script) as a, backend(kept[1].script) as b, backend(kept[2].script) as c:
        text = config_text(a.port, b.port, c.port)
        async with running(text) as first, running(text) as second:
            async with client(first.port) as one, client(second.port) as two:
                made = [await one.ask(post()) for _ in range(20)]
                for turn in range(4):
                    for answer in made:
                        asked = await (one, two)[turn % 2].ask(with_session(session_of(answer)))
                        assert (asked.status, asked.body) == (200, answer.body)
        async with running(text) as restarted, client(restarted.port) as one:
            for answer in made:
                assert (await one.ask(with_session(session_of(answer)))).body == answer.body


async def test_get_streams_and_delete_reach_the_sessions_server() -> None:
    kept = SessionBackend("a"), SessionBackend("b")
    async with backend(kept[0].script) as a, backend(kept[1].script) as b:
        async with running(config_text(a.port, b.port)) as proxy, client(proxy.port) as one:
            made = [await one.ask(post()) for _ in range(6)]
            for answer in made:
                session = session_of(answer)
                one.send(with_session(session, b"GET").replace(b"Host:", b"Last-Event-ID: 7\r\nHost:"))
                assert (await one.response()).body == answer.body
                assert (await one.ask(with_session(session, b"DELETE"))).status == 200
                assert (await one.ask(with_session(session))).status == 404
            assert any(request.get("Last-Event-ID") == "7" for request in a.requests)
            assert {kept[0].misses, kept[1].misses} == {3}


@pytest.mark.parametrize("session", ["no-tag", "0123456789.unknown", "0123456789", ".x", "f" * 32])
async def test_missing_or_unknown_tag_is_404_so_that_the_client_initializes_anew(session: str) -> None:
    """Trial 3: the session's owner left the configuration, or the session never came from here."""
    async with backend() as a, backend() as b, running(config_text(a.port, b.port)) as proxy:
        async with client(proxy.port) as c:
            answer = await c.ask(with_session(session))
            assert (answer.status, answer.get("Mcp-Proxy-Error")) == (404, "session_owner_gone")
            assert answer.error["code"] == -32001
            assert a.requests + b.requests == []


async def test_the_backends_404_passes_and_a_new_initialize_works() -> None:
    """Trials 3 and 4: the server restarted and forgot its sessions."""
    kept = SessionBackend("a"), SessionBackend("b")
    async with backend(kept[0].script) as a, backend(kept[1].script) as b:
        async with running(config_text(a.port, b.port)) as proxy, client(proxy.port) as c:
            session = session_of(await c.ask(post()))
            for server in kept:
                server.sessions.clear()
            answer = await c.ask(with_session(session))
            assert (answer.status, answer.get("Mcp-Proxy-Error")) == (404, None)
            renewed = await c.ask(post())
            assert (await c.ask(with_session(session_of(renewed)))).status == 200


async def test_without_session_id_requests_are_balanced() -> None:
    """Trial 5: stateless servers mint no sessions."""
    async with backend() as a, backend() as b, running(config_text(a.port, b.port)) as proxy:
        async with client(proxy.port) as c:
            for _ in range(10):
                assert (await c.ask(post(VERSION))).status == 200
            assert len(a.requests) == len(b.requests) == 5


async def test_the_tag_is_put_on_whatever_status_carries_the_field() -> None:
    """Trial 25: TypeScript 1.x clients store the id from any response."""
    seen: list[str] = []

    async def script(side: BackendSide) -> None:
        while True:
            request = await side.request()
            if request.get("Mcp-Session-Id"):
                seen.append(request.get("Mcp-Session-Id") or "")
                side.answer()
            else:
                side.send(b"HTTP/1.1 400 Bad Request\r\nMcp-Session-Id: thrown-away\r\nContent-Length: 2\r\n\r\n{}")

    async with backend(script) as a, running(config_text(a.port)) as proxy, client(proxy.port) as c:
        answer = await c.ask(post(*MODERN, b"Mcp-Method: server/discover"))
        assert answer.status == 400
        assert (await c.ask(with_session(session_of(answer)))).status == 200
        assert seen == ["thrown-away"]


async def test_a_modern_requests_session_is_ignored() -> None:
    async with backend() as a, running(config_text(a.port)) as proxy, client(proxy.port) as c:
        answer = await c.ask(post(*MODERN, b"Mcp-Method: tools/list", b"Mcp-Session-Id: stray"))
        assert answer.status == 200
        assert a.requests[0].get("Mcp-Session-Id") == "stray"


async def test_sessions_off_passes_ids_as_they_are() -> None:
    kept = SessionBackend("a")
    async with backend(kept.script) as a, running(config_text(a.port, pool="    sessions: off")) as proxy:
        async with client(proxy.port) as c:
            made = await c.ask(post())
            assert made.get("Mcp-Session-Id") == "a-0"
            assert (await c.ask(with_session("a-0"))).status == 200


async def test_a_session_stays_inside_the_pools_its_path_leads_to() -> None:
    """Isolation of tenants: a known session of the other one leads nowhere."""
    kept = SessionBackend("a"), SessionBackend("b")
    routes = "  - {name: one, match: {path: /one}, pool: agents}\n  - {name: two, match: {path: /two}, pool: other}"
    async with backend(kept[0].script) as a, backend(kept[1].script) as b:
        text = config_text(a.port, routes=routes)
        text = text.replace("pools:\n", f"pools:\n  other:\n    backends: ['http://127.0.0.1:{b.port}/mcp']\n", 1)
        async with running(text) as proxy, client(proxy.port) as c:
            session = session_of(await c.ask(post(target=b"/one")))
            to_two = with_session(session).replace(b"/mcp", b"/two")
            assert (await c.ask(to_two)).get("Mcp-Proxy-Error") == "session_owner_gone"
            assert (await c.ask(with_session(session).replace(b"/mcp", b"/one"))).status == 200
            assert b.requests == []


@pytest.mark.parametrize(
    ("protocol", "reached"),
    [("'<2026-07-28'", True), ("'2025-11-25'", True), ("'2025-03-26'", True), ("'>=2025-06-18'", True)],
)
async def test_of_a_sessions_protocol_only_the_era_is_asked(protocol: str, reached: bool) -> None:
    """`initialize` has no version field and later requests have one; a session must not fall between routes."""
    kept = SessionBackend("a")
    routes = f"  - {{name: old, match: {{protocol: {protocol}}}, pool: agents}}\n  - {{name: rest, pool: other}}"
    other = SessionBackend("b")
    async with backend(kept.script) as a, backend(other.script) as b:
        text = config_text(a.port, routes=routes)
        text = text.replace("pools:\n", f"pools:\n  other:\n    backends: ['http://127.0.0.1:{b.port}/mcp']\n", 1)
        async with running(text) as proxy, client(proxy.port) as c:
            made = await c.ask(post())
            answer = await c.ask(with_session(session_of(made)))
            assert (answer.status, answer.body) == (200, made.body)


async def test_an_owner_that_is_away_is_awaited_and_never_replaced() -> None:
    kept = SessionBackend("a"), SessionBackend("b")
    pool = "    timeouts: {owner_wait: 5s}"
    async with backend(kept[0].script) as a, backend(kept[1].script) as b:
        async with running(config_text(a.port, b.port, pool=pool)) as proxy, client(proxy.port) as c:
            made = await c.ask(post())
            owner = a if made.body == b"a" else b
            await restart(owner, lambda: c.send(with_session(session_of(made))))
            answer = await c.response()
            assert (answer.status, answer.body) == (200, made.body)


async def restart(server: ScriptedBackend, meanwhile: Callable[[], None]) -> None:
    """Takes the server's port away, lets something happen, and brings it back."""
    await server.stop_listening()
    for side in list(server.open):
        side.writer.transport.abort()
    await until(lambda: not server.open)
    meanwhile()
    await asyncio.sleep(0.2)  # the request meets a closed port
    await server.listen_again()


async def test_sessions_are_counted_until_they_end() -> None:
    kept = SessionBackend("a")
    async with backend(kept.script) as a, running(config_text(a.port)) as proxy, client(proxy.port) as c:
        member = proxy.pools["agents"].members[0]
        sessions = [session_of(await c.ask(post())) for _ in range(3)]
        assert member.recent_sessions(0.0) == 3
        await c.ask(with_session(sessions[0], b"DELETE"))
        kept.sessions.clear()
        await c.ask(with_session(sessions[1]))
        assert member.recent_sessions(0.0) == 1
        assert member.recent_sessions(1e9) == 0


async def test_legacy_streams_pass_as_they_come() -> None:
    async def script(side: BackendSide) -> None:
        await side.request()
        side.send(b"HTTP/1.1 200 OK\r\nmcp-session-id: s\r\nContent-Type: text/event-stream\r\n")
        side.send(b"Transfer-Encoding: chunked\r\n\r\n")
        side.send(b"9\r\ndata: }\n\n\r\n")
        await side.peer_closes()

    async with backend(script) as a, running(config_text(a.port)) as proxy, client(proxy.port) as c:
        c.send(post())
        head = await read_head(c.reader)
        assert re.search(rb"mcp-session-id: [0-9a-f]{10}\.s\r\n", head)
        assert await c.reader.readuntil(b"\n\n\r\n") == b"9\r\ndata: }\n\n\r\n"
