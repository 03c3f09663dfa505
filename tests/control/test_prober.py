"""Probes against real servers: what they send, what they never do, when they come, and whom they are for."""

import asyncio
import json
import ssl
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path

import pytest
import trustme

from proxy.background import Background
from proxy.config import parse
from proxy.control.prober import NO_SESSION, Prober, Target, targets_of
from proxy.routing.backends import Backend
from proxy.routing.balancing import LeastInFlight
from proxy.routing.health import Health
from proxy.routing.pools import Pool
from proxy.wire.connections import BackendTls
from tests.certificates import Authority
from tests.wire.harness import BackendSide, answering, backend, closed_port, running, until
from tests.wire.tls_sides import place, secure_backend, secure_text

GET = Health("/health?full=1", interval=0.02, timeout=5.0)
DISCOVER = Health(None, interval=0.02, timeout=5.0)
OK = b"HTTP/1.1 204 No Content\r\n\r\n"


def target(port: int, health: Health = GET, *, backend_id: str = "a") -> Target:
    return Target("agents", backend_id, health, f"127.0.0.1:{port}", "/mcp")


class Scene:
    """A prober, the pool it tells, and what it told."""

    def __init__(self, ids: str = "ab", health: Health = GET) -> None:
        self.pool = Pool("agents", [Backend(one, "127.0.0.1", 1) for one in ids], policy=LeastInFlight(), health=health)
        self.changes: list[tuple[str, str, bool]] = []
        self.background = Background()
        self.prober = Prober(
            self.background,
            pools=lambda: {"agents": self.pool},
            changed=lambda pool, backend, up: self.changes.append((pool, backend, up)),
            clock=time.monotonic,
            version="1.2.3",
        )


@asynccontextmanager
async def probing(ids: str = "ab", health: Health = GET) -> AsyncIterator[Scene]:
    scene = Scene(ids, health)
    try:
        yield scene
    finally:
        await scene.prober.close()
        await scene.background.close()


def without_length(head: bytes) -> list[bytes]:
    return [line for line in head.split(b"\r\n") if line and not line.lower().startswith(b"content-length")]


async def test_what_a_get_sends() -> None:
    async with backend(answering(OK)) as one, probing() as scene:
        assert await scene.prober.ask(target(one.port)) == (True, "answered 204")
        (request,) = one.requests
        assert without_length(request.head) == [
            b"GET /health?full=1 HTTP/1.1",
            b"Host: 127.0.0.1:%d" % one.port,
            b"User-Agent: mcp-routing-proxy/1.2.3",
            b"Accept-Encoding: identity",
            b"Accept: */*",
            b"Connection: close",
        ]


async def test_what_a_discovery_sends() -> None:
    async with backend() as one, probing() as scene:
        assert await scene.prober.ask(target(one.port, DISCOVER)) == (True, "answered 200 with a result")
        (request,) = one.requests
        assert request.first == b"POST /mcp HTTP/1.1"
        assert {
            name: request.all(name) for name in ("MCP-Protocol-Version", "Mcp-Method", "Content-Type", "Accept")
        } == {
            "MCP-Protocol-Version": ["2026-07-28"],
            "Mcp-Method": ["server/discover"],
            "Content-Type": ["application/json"],
            "Accept": ["application/json, text/event-stream"],
        }
        assert (request.all("Authorization"), request.all("Cookie")) == ([], [])
        assert json.loads(request.body) == {
            "jsonrpc": "2.0",
            "id": "probe",
            "method": "server/discover",
            "params": {
                "_meta": {
                    "io.modelcontextprotocol/protocolVersion": "2026-07-28",
                    "io.modelcontextprotocol/clientInfo": {"name": "mcp-routing-proxy", "version": "1.2.3"},
                    "io.modelcontextprotocol/clientCapabilities": {},
                }
            },
        }


async def test_an_event_stream_need_not_end() -> None:
    async def script(side: BackendSide) -> None:
        await side.request()
        side.send(b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n\r\n: ping\n\n")
        side.send(b'data: {"jsonrpc":"2.0","id":"probe","result":{}}\n\n')
        await side.peer_closes()

    async with backend(script) as one, probing() as scene:
        assert await scene.prober.ask(target(one.port, DISCOVER)) == (True, "answered 200 with a result")
        await until(lambda: not one.open)


async def test_every_probe_has_a_connection_of_its_own() -> None:
    async with backend(answering(OK)) as one, probing() as scene:
        for _ in range(3):
            await scene.prober.ask(target(one.port))
        await until(lambda: not one.open)
        assert one.connections == 3


async def test_a_redirect_is_not_followed() -> None:
    async with backend(answering(OK)) as elsewhere:
        location = b"Location: http://127.0.0.1:%d/health\r\n" % elsewhere.port
        moved = b"HTTP/1.1 %s\r\n" + location + b"Content-Length: 0\r\n\r\n"
        for status in (b"302 Found", b"307 Temporary Redirect", b"308 Permanent Redirect"):
            async with backend(answering(moved % status)) as one, probing() as scene:
                said = f"answered {status[:3].decode()}, which is not followed"
                assert await scene.prober.ask(target(one.port)) == (False, said)
                assert await scene.prober.ask(target(one.port, DISCOVER)) == (False, said)
        assert elsewhere.requests == []


async def test_cookies_are_not_kept() -> None:
    baked = b"HTTP/1.1 200 OK\r\nSet-Cookie: id=1; Path=/\r\nContent-Length: 0\r\n\r\n"
    async with backend(answering(baked)) as one, probing() as scene:
        for _ in range(3):
            await scene.prober.ask(target(one.port))
        assert len(one.requests) == 3
        assert not any(request.all("Cookie") for request in one.requests)


async def test_proxies_of_the_environment_are_not_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    async with backend(answering(OK)) as between, backend(answering(OK)) as one, probing() as scene:
        for name in ("http_proxy", "HTTP_PROXY", "all_proxy", "ALL_PROXY"):
            monkeypatch.setenv(name, f"http://127.0.0.1:{between.port}")
        assert (await scene.prober.ask(target(one.port))).good
        assert (between.requests, len(one.requests)) == ([], 1)


async def never(side: BackendSide) -> None:
    await side.request()
    await side.peer_closes()


async def slowly(side: BackendSide) -> None:
    await side.request()
    side.send(b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\n\r\n{")
    while True:
        side.send(b" ")
        await asyncio.sleep(0.01)


async def at_once(side: BackendSide) -> None:
    await side.request()


async def endless(side: BackendSide) -> None:
    await side.request()
    side.send(b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\n\r\n")
    while True:
        side.send(b" " * 65_536)
        await side.writer.drain()


@pytest.mark.parametrize(
    ("script", "health", "said"),
    [
        (never, GET, "no answer within 0.1 s"),
        (slowly, DISCOVER, "no answer within 0.1 s"),
        (at_once, GET, "closed the connection, or answered with something other than HTTP"),
        (answering(b"SSH-2.0-x\r\n\r\n"), GET, "closed the connection, or answered with something other than HTTP"),
        (answering(b"HTTP/1.1 503 x\r\nContent-Length: 0\r\n\r\n"), GET, "answered 503"),
        (answering(b"HTTP/1.1 404 x\r\nContent-Length: 0\r\n\r\n"), GET, "answered 404"),
        (answering(b"HTTP/1.1 500 x\r\nContent-Length: 0\r\n\r\n"), DISCOVER, "answered 500"),
        (endless, replace(DISCOVER, timeout=50.0), "answered with more than 1048576 bytes"),
    ],
)
async def test_bad_answers(script: Callable[[BackendSide], Awaitable[None]], health: Health, said: str) -> None:
    timeout = 0.1 if health.timeout == 5.0 and said.startswith("no answer") else health.timeout
    async with backend(script) as one, probing() as scene:
        assert await scene.prober.ask(target(one.port, replace(health, timeout=timeout))) == (False, said)


async def test_nobody_there() -> None:
    async with probing() as scene:
        assert await scene.prober.ask(target(closed_port())) == (False, "cannot be reached: Connection refused")
        lost = replace(target(1), authority="no-such-host.invalid:1")
        assert await scene.prober.ask(lost) == (False, "cannot be reached: its name does not resolve")


async def test_over_tls_a_backend_is_asked_for_by_its_name_and_believed_by_its_certificate() -> None:
    authority, other = trustme.CA(), trustme.CA()
    serving = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    authority.issue_cert("mcp.internal").configure_cert(serving)
    trusting, strange = ssl.create_default_context(), ssl.create_default_context()
    authority.configure_trust(trusting)
    other.configure_trust(strange)
    asked: list[str | None] = []
    serving.sni_callback = lambda sock, name, context: asked.append(name)

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(OK)
        writer.close()

    async with await asyncio.start_server(serve, "127.0.0.1", 0, ssl=serving) as server, probing() as scene:
        one = target(server.sockets[0].getsockname()[1])
        for tls, verdict in (
            (BackendTls(trusting, "mcp.internal"), (True, "answered 204")),
            (BackendTls(trusting, "mcp.other"), (False, "cannot be spoken to over TLS")),
            (BackendTls(strange, "mcp.internal"), (False, "cannot be spoken to over TLS")),
        ):
            assert await scene.prober.ask(replace(one, tls=tls)) == verdict
        assert asked == ["mcp.internal", "mcp.other", "mcp.internal"]
        assert not (await scene.prober.ask(one)).good  # plain HTTP


# ---- sessions
async def test_probes_open_no_session() -> None:
    """Older servers take a request without a session, whatever it asks for, for the start of one, and keep it."""
    sessions = 0

    async def legacy(side: BackendSide) -> None:
        nonlocal sessions
        request = await side.request()
        if not request.all("Mcp-Session-Id"):
            sessions += 1
            opened = b"HTTP/1.1 400 x\r\nMcp-Session-Id: %d\r\nContent-Length: 0\r\n\r\n" % sessions
            side.send(opened)
            return
        assert request.all("Mcp-Session-Id") == [NO_SESSION]
        body = b'{"jsonrpc":"2.0","id":"server-error","error":{"code":-32600,"message":"Session not found"}}'
        side.send(b"HTTP/1.1 404 x\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n" % len(body) + body)

    async with backend(legacy) as one, probing() as scene:
        for _ in range(1000):
            assert await scene.prober.ask(target(one.port, DISCOVER)) == (True, "answered 404 with error -32600")
        assert (len(one.requests), sessions) == (1000, 0)


# ---- when
async def test_a_pool_hears_what_probes_find() -> None:
    healthy = asyncio.Event()

    async def script(side: BackendSide) -> None:
        await side.request()
        side.send(OK if healthy.is_set() else b"HTTP/1.1 503 x\r\nContent-Length: 0\r\n\r\n")

    async with backend(script) as one, probing() as scene:
        scene.prober.watch([target(one.port)])
        await until(lambda: scene.changes)
        assert scene.changes == [("agents", "a", False)]
        assert len(one.requests) >= 3
        assert [(member.up, member.fit, member.probe) for member in scene.pool.members] == [
            (False, False, "answered 503"),
            (True, True, ""),
        ]
        healthy.set()
        await until(lambda: len(scene.changes) == 2)
        assert scene.changes[1] == ("agents", "a", True)


async def test_probes_of_one_backend_do_not_overlap() -> None:
    most = 0

    async def script(side: BackendSide) -> None:
        nonlocal most
        await side.request()
        most = max(most, len(side.backend.open))
        await asyncio.sleep(0.05)  # longer than the interval
        side.send(OK)
        await side.peer_closes()

    async with backend(script) as one, probing() as scene:
        scene.prober.watch([target(one.port, replace(GET, interval=0.005))])
        await until(lambda: len(one.requests) >= 5)
        assert most == 1


async def test_probes_come_once_in_an_interval_and_stray_a_little() -> None:
    times: list[float] = []

    async def script(side: BackendSide) -> None:
        await side.request()
        times.append(time.monotonic())
        side.send(OK)

    async with backend(script) as one, probing() as scene:
        scene.prober.watch([target(one.port, replace(GET, interval=0.1))])
        await until(lambda: len(times) >= 9)
    assert 0.85 < (times[8] - times[0]) / 0.8 < 1.6  # a busy machine may be late, and never early


async def test_many_backends_are_probed_one_after_the_other() -> None:
    """Two hundred in a second, where the interval has room for that."""
    scene, arrivals = Scene(), []

    async def ask(found: Target) -> None:
        arrivals.append(asyncio.get_running_loop().time())
        raise RuntimeError("not sent")

    scene.prober.ask = ask  # type: ignore[method-assign, assignment]
    began = asyncio.get_running_loop().time()
    scene.prober.watch([target(1, replace(GET, interval=60.0), backend_id=str(number)) for number in range(200)])
    await until(lambda: len(arrivals) == 200)
    spread = sorted(arrival - began for arrival in arrivals)
    assert spread[100] > 0.25
    assert spread[-1] < 2.0
    await scene.background.close()


# ---- whom
async def test_only_those_named_last_are_probed() -> None:
    async with backend(answering(OK)) as one, backend(answering(OK)) as two, probing() as scene:
        a, b = target(one.port), target(two.port, backend_id="b")
        scene.prober.watch([a, b])
        await until(lambda: one.requests and two.requests)
        scene.prober.watch([a])
        await until(lambda: not two.open)
        seen, before = len(two.requests), len(one.requests)
        await until(lambda: len(one.requests) > before + 5)
        assert len(two.requests) == seen
        scene.prober.watch([a, replace(b, health=DISCOVER)])
        await until(lambda: len(two.requests) > seen)
        assert two.requests[-1].first == b"POST /mcp HTTP/1.1"
        await scene.prober.close()
        assert len(scene.background) <= 2  # being cancelled
        await until(lambda: len(scene.background) == 0)


async def test_a_configuration_read_again_changes_no_rhythm() -> None:
    """The first probe of a backend that stays is not put off at each reload."""
    async with backend(answering(OK)) as one, probing() as scene:
        scene.prober.watch([target(one.port, replace(GET, interval=60.0))])
        await until(lambda: one.requests)
        for _ in range(5):
            scene.prober.watch([target(one.port, replace(GET, interval=60.0))])
            await asyncio.sleep(0)
        assert (len(one.requests), len(scene.background)) == (1, 1)


async def test_a_verdict_about_one_that_left_meanwhile_is_dropped() -> None:
    asked = asyncio.Event()

    async def script(side: BackendSide) -> None:
        await side.request()
        asked.set()
        await side.peer_closes()

    async with backend(script) as one, probing(health=replace(GET, fall=1)) as scene:
        scene.prober.watch([target(one.port, replace(GET, timeout=0.05, fall=1))])
        await asked.wait()
        scene.pool.replace([Backend("b", "127.0.0.1", 1)])
        scene.prober.watch([])
        await until(lambda: not one.open)
        assert scene.changes == []


async def test_a_running_proxy_probes_https_backends_as_it_speaks_to_them(tmp_path: Path) -> None:
    here = place(tmp_path)
    probes = "    health: {path: /health, interval: 100ms, timeout: 100ms, rise: 1, fall: 2}\n"
    trusted = f"{{ca: {here.authority.file}}}"
    strange = f"{{ca: {Authority(tmp_path, 'other').file}}}"
    async with secure_backend(here.pair.serving(), answering(OK)) as one:
        async with running(secure_text(one.port, tls=trusted, pool=probes)) as proxy:
            member = proxy.pools["agents"].members[0]
            await until(lambda: member.probe)
            assert (member.probe, member.up) == ("answered 204", True)
            proxy.apply(parse(secure_text(one.port, tls=strange, pool=probes), "test.yaml", {}))
            await until(lambda: not member.up)
            assert member.probe == "cannot be spoken to over TLS"
            proxy.apply(parse(secure_text(one.port, tls=trusted, pool=probes), "test.yaml", {}))
            await until(lambda: member.up)


def test_targets_are_the_configured_backends_of_pools_with_health() -> None:
    config = parse(
        "pools:\n"
        "  a: {backends: ['http://x/one', {id: y, url: 'http://[::1]:8000'}], health: {discover: true}}\n"
        "  b: {backends: ['http://z'], health: {path: /up, interval: 1s}}\n"
        "  c: {backends: ['http://z']}\n"
        "routes: [{name: r, split: {a: 1, b: 1, c: 1}}]\n",
        "test.yaml",
        {},
    )
    found = targets_of(config.pools.values(), {})
    assert [(one.pool, one.backend, str(one.url), one.authority) for one in found] == [
        ("a", "x:80", "http://x/one", "x:80"),
        ("a", "y", "http://[::1]:8000/mcp", "[::1]:8000"),
        ("b", "z:80", "http://z/up", "z:80"),
    ]
