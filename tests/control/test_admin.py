"""The admin interface tells its callers how things stand, and tells nobody else."""

import asyncio
import json
import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Mapping
from contextlib import AsyncExitStack, suppress

import pytest
from aiohttp import web
from aiohttp.test_utils import TestClient
from pytest_aiohttp import AiohttpClient

from proxy.control.admin import MOST_CONNECTIONS, AdminServer, admin_app, serve_admin
from proxy.counts import Counts
from proxy.explaining import Question
from proxy.metrics import Metrics
from proxy.pins import held as held_module
from proxy.pins.held import tasks_held
from proxy.pins.memory import MemoryPinStore
from proxy.pins.store import PinStore, PinStoreError
from proxy.routing.backends import Backend
from proxy.routing.balancing import LeastInFlight
from proxy.routing.errors import NoRoute
from proxy.routing.explanation import refused
from proxy.routing.ownership import pin_key
from proxy.routing.pools import Pool
from proxy.routing.telling import Told, told_of
from proxy.wire.listener import bind

DEADLINE = 10.0  # seconds
TOKEN = "s3cret-token"
Client = TestClient[web.Request, web.Application]
Serve = Callable[[web.Application, str], Awaitable[AdminServer]]


class HeldLater(MemoryPinStore):
    """A store whose count of held tasks the test gives, or never gives."""

    def __init__(self) -> None:
        super().__init__(ttl=60, capacity=10, clock=lambda: 0.0)
        self.asked = asyncio.Event()
        self.answer: asyncio.Future[Mapping[tuple[str, str], int | None]] = asyncio.get_running_loop().create_future()

    def held(self) -> asyncio.Future[Mapping[tuple[str, str], int | None]]:  # type: ignore[override] # as the seam allows
        self.asked.set()
        return self.answer


class Scene:
    """What the admin interface looks at; a test changes it as it likes."""

    def __init__(self, pins: PinStore | None = None) -> None:
        backends = [Backend("a", "10.0.0.1", 8000), Backend("b", "fd00::2", 8001, weight=3, drain=True)]
        self.pools = {"agents": Pool("agents", backends, policy=LeastInFlight())}
        self.pins: PinStore = MemoryPinStore(ttl=60, capacity=10, clock=lambda: 0.0) if pins is None else pins
        self.unready: str | None = None
        self.now = 0.0
        self.refreshed = 0
        self.reloads = 0
        self.mistakes: str | None = None
        counts = Counts(pools=lambda: self.pools, pins=self.pins)
        self.metrics = Metrics(version="1.2.3", snapshot=counts.snapshot, held=lambda: tasks_held(self.pins))

    def app(self, *, token: str | None = None, allowed_hosts: Collection[str] = ()) -> web.Application:
        return admin_app(
            metrics=self.metrics,
            pools=lambda: self.pools,
            pins=self.pins,
            refresh=self.refresh,
            set_draining=self.set_draining,
            explain=self.explain,
            reload=self.reload,
            readiness=lambda: self.unready,
            clock=lambda: self.now,
            version="1.2.3",
            token=token,
            allowed_hosts=allowed_hosts,
        )

    async def refresh(self) -> None:
        self.refreshed += 1

    def set_draining(self, *, pool: str, backend: str, draining: bool) -> None:
        member = self.pools[pool].member(backend)
        assert member is not None
        self.pools[pool].set_draining(member, draining)

    def reload(self) -> str | None:
        self.reloads += 1
        return self.mistakes

    async def explain(self, question: Question) -> Told:
        return told_of(refused(NoRoute(f"no route for {question.target}")))


@pytest.fixture
def scene() -> Scene:
    return Scene()


@pytest.fixture
async def client(aiohttp_client: AiohttpClient, scene: Scene) -> Client:
    return await aiohttp_client(scene.app(allowed_hosts=["Admin.Example"]))


@pytest.fixture
async def guarded(aiohttp_client: AiohttpClient, scene: Scene) -> Client:
    return await aiohttp_client(scene.app(token=TOKEN))


@pytest.fixture
async def serve() -> AsyncIterator[Serve]:
    async with AsyncExitStack() as stack:

        async def start(app: web.Application, host: str) -> AdminServer:
            server = await serve_admin(app, bind(host, 0))
            stack.push_async_callback(server.close)
            return server

        yield start


async def raw(host: str, port: int, head: str) -> str:
    """The whole answer to these bytes."""
    async with asyncio.timeout(DEADLINE):
        reader, writer = await asyncio.open_connection(host, port)
        writer.write(head.encode("latin-1"))
        answer = await reader.read()
        writer.close()
        await writer.wait_closed()
    return answer.decode()


async def test_health(client: Client) -> None:
    answer = await client.get("/healthz")
    assert (answer.status, await answer.text()) == (200, "ok\n")


async def test_readiness_follows_the_proxy(client: Client, scene: Scene) -> None:
    answer = await client.get("/readyz")
    assert (answer.status, await answer.text()) == (200, "ready\n")
    scene.unready = "draining"
    answer = await client.get("/readyz")
    assert (answer.status, await answer.text()) == (503, "draining\n")
    assert (await client.get("/healthz")).status == 200


async def test_metrics_are_in_prometheus_text_format(client: Client) -> None:
    answer = await client.get("/metrics")
    assert answer.status == 200
    assert answer.headers["Content-Type"] == "text/plain; version=0.0.4; charset=utf-8"
    text = await answer.text()
    assert 'mcp_proxy_build_info{version="1.2.3"} 1.0' in text
    assert 'mcp_proxy_backend_draining{backend="b",pool="agents"} 1.0' in text


async def test_index_names_paths_that_exist(client: Client) -> None:
    answer = await client.get("/")
    index = await answer.json()
    assert (answer.status, index["name"], index["version"]) == (200, "mcp-routing-proxy", "1.2.3")
    assert set(index["paths"]) == {
        "/metrics",
        "/healthz",
        "/readyz",
        "/api/pools",
        "/api/pools/{pool}/spread",
        "/api/overview",
    }
    for path in index["paths"]:
        assert (await client.get(path.format(pool="agents"))).status == 200
    assert set(index["posts"]) == {
        "/api/backends/{pool}/{id}/drain",
        "/api/backends/{pool}/{id}/undrain",
        "/api/explain",
        "/api/reload",
    }
    for path in index["posts"]:
        assert (await client.post(path.format(pool="agents", id="a"), json={})).status == 200


async def test_pools_are_told_as_they_are(client: Client, scene: Scene) -> None:
    scene.pools["agents"].members[0].in_flight = 4
    scene.pins.put(pin_key("agents", "secret-task"), "agents", "b", ttl=None)
    answer = await client.get("/api/pools")
    assert scene.refreshed == 1
    assert answer.status == 200
    assert answer.content_type == "application/json"
    assert await answer.json() == {
        "pools": [
            {
                "name": "agents",
                "ring_generation": 1,
                "discovery": None,
                "backends": [
                    {
                        "id": "a",
                        "address": "10.0.0.1:8000",
                        "weight": 1,
                        "discovered": False,
                        "departed": False,
                        "up": True,
                        "ejected": None,
                        "probe": None,
                        "draining": False,
                        "in_flight": 4,
                        "unfinished_tasks": 0,
                        "recent_sessions": 0,
                        "empty": False,
                    },
                    {
                        "id": "b",
                        "address": "[fd00::2]:8001",
                        "weight": 3,
                        "discovered": False,
                        "departed": False,
                        "up": True,
                        "ejected": None,
                        "probe": None,
                        "draining": True,
                        "in_flight": 0,
                        "unfinished_tasks": 1,
                        "recent_sessions": 0,
                        "empty": False,
                    },
                ],
            }
        ],
        "pins": 1,
        "note": "as far as this proxy knows since it started",
        "version": "1.2.3",
    }


async def test_pools_in_force_are_asked_for_each_time(client: Client, scene: Scene) -> None:
    scene.pools = {"other": Pool("other", [Backend("x", "10.0.0.9", 1)], policy=LeastInFlight())}
    answer = await client.get("/api/pools")
    assert [pool["name"] for pool in (await answer.json())["pools"]] == ["other"]


async def test_held_tasks_of_a_store_that_fails_are_null(
    aiohttp_client: AiohttpClient, caplog: pytest.LogCaptureFixture
) -> None:
    pins = HeldLater()
    pins.answer.set_exception(PinStoreError("redis://user:secret@redis"))
    client = await aiohttp_client(Scene(pins).app())
    with caplog.at_level(logging.WARNING, logger="proxy"):
        answer = await client.get("/api/pools")
    assert answer.status == 200
    backends = (await answer.json())["pools"][0]["backends"]
    assert [backend["unfinished_tasks"] for backend in backends] == [None, None]
    assert [backend["empty"] for backend in backends] == [False, False]  # b is drained, but nobody knows
    assert "secret" not in caplog.text


@pytest.mark.parametrize("path", ["/nothing", "/api", "/api/pools/", "/metrics/x", "/%2e%2e/etc"])
async def test_unknown_path(client: Client, path: str) -> None:
    answer = await client.get(path)
    assert answer.status == 404
    assert await answer.json() == {"error": "Not Found"}


@pytest.mark.parametrize("path", ["/api/explain", "/api/backends/agents/a/drain"])
@pytest.mark.parametrize(
    "headers",
    [
        {},
        {"Content-Type": "text/plain"},
        {"Content-Type": "application/x-www-form-urlencoded"},
        {"Content-Type": "application/json-patch+json"},
        {"Content-Type": "text/plain; application/json"},
    ],
)
async def test_what_is_posted_must_say_that_it_is_json(client: Client, path: str, headers: dict[str, str]) -> None:
    """A page's form cannot say that, and a script of another origin is asked about first."""
    answer = await client.post(path, data=b"{}", headers=headers)
    assert answer.status == 415
    assert await answer.json() == {"error": "Content-Type must be application/json"}
    answer = await client.post(path, data=b"{}", headers={"Content-Type": "application/json; charset=utf-8"})
    assert answer.status == 200


@pytest.mark.parametrize("path", ["/api/explain", "/api/backends/agents/a/drain", "/api/backends/agents/a/undrain"])
async def test_what_is_posted_needs_the_token_and_its_own_origin(
    aiohttp_client: AiohttpClient, scene: Scene, path: str
) -> None:
    guarded = await aiohttp_client(scene.app(token=TOKEN))
    shown = {"Authorization": f"Bearer {TOKEN}"}
    assert (await guarded.post(path, json={})).status == 401
    assert (await guarded.post(path, data=b"{}")).status == 401  # nothing is told to those without
    assert (await guarded.post(path, json={}, headers={**shown, "Origin": "http://evil.example"})).status == 403
    assert (await guarded.post(path, json={}, headers={**shown, "Host": "evil.example"})).status == 421
    assert (await guarded.get(path, headers=shown)).status == 405
    assert not scene.pools["agents"].members[0].draining
    assert (await guarded.post(path, json={}, headers=shown)).status == 200


@pytest.mark.parametrize("verb", ["POST", "PUT", "DELETE", "OPTIONS"])
async def test_other_verbs_are_refused_and_the_right_one_named(client: Client, verb: str) -> None:
    answer = await client.request(verb, "/api/pools")
    assert answer.status == 405
    assert "GET" in answer.headers["Allow"]
    assert await answer.json() == {"error": "Method Not Allowed"}


@pytest.mark.parametrize("path", ["/", "/metrics", "/healthz", "/readyz"])
async def test_open_paths_need_no_token(guarded: Client, path: str) -> None:
    assert (await guarded.get(path)).status == 200


@pytest.mark.parametrize("scheme", ["Bearer", "bearer", "BEARER"])
async def test_token_opens_the_api(guarded: Client, scheme: str) -> None:
    answer = await guarded.get("/api/pools", headers={"Authorization": f"{scheme} {TOKEN}"})
    assert answer.status == 200
    assert TOKEN not in await answer.text()


@pytest.mark.parametrize(
    "authorization",
    [
        None,
        "",
        "Bearer",
        "Bearer ",
        "Bearer wrong",
        f"Bearer {TOKEN}x",
        f"Bearer {TOKEN[:-1]}",
        f"Bearer {TOKEN.upper()}",
        f"Bearer  {TOKEN}",
        f"Basic {TOKEN}",
        TOKEN,
        "Bearer ümläut",
    ],
)
async def test_api_without_the_token(guarded: Client, authorization: str | None) -> None:
    answer = await guarded.get("/api/pools", headers={} if authorization is None else {"Authorization": authorization})
    assert answer.status == 401
    assert answer.headers["WWW-Authenticate"].startswith("Bearer")
    text = await answer.text()
    assert json.loads(text) == {"error": "Unauthorized"}
    assert TOKEN not in text


async def test_token_that_is_not_utf_8_is_refused(serve: Serve, scene: Scene) -> None:
    server = await serve(scene.app(token=TOKEN), "127.0.0.1")
    head = "GET /api/pools HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer \xff\xfe\r\nConnection: close\r\n\r\n"
    assert (await raw("127.0.0.1", server.port, head)).startswith("HTTP/1.1 401 ")


def test_an_empty_token_is_a_mistake(scene: Scene) -> None:
    with pytest.raises(ValueError, match="empty"):
        scene.app(token="")


@pytest.mark.parametrize(
    ("host", "status"),
    [
        ("admin.example", 200),
        ("ADMIN.example:9901", 200),
        ("127.0.0.1", 200),
        ("127.0.0.1:1", 200),
        ("localhost:9901", 200),
        ("127.0.0.2", 421),
        ("evil.example", 421),
        ("admin.example.evil.example", 421),
        ("evil.example:admin.example", 421),
        ("admin.example@evil.example", 421),
        ("http://admin.example", 421),
        ("admin.example/", 421),
        ("[::1]", 421),
        ("[::ffff:127.0.0.1]", 200),
        ("", 421),
    ],
)
@pytest.mark.parametrize("path", ["/metrics", "/healthz", "/api/pools", "/nothing"])
async def test_host_must_name_this_server(client: Client, path: str, host: str, status: int) -> None:
    """A page elsewhere can point its own name at our address, and would then be of our origin to a browser."""
    answer = await client.get(path, headers={"Host": host})
    assert answer.status == (404 if path == "/nothing" and status == 200 else status)
    if status == 421:
        assert "error" in await answer.json()


async def test_host_must_be_there(serve: Serve, scene: Scene) -> None:
    server = await serve(scene.app(), "127.0.0.1")
    assert (await raw("127.0.0.1", server.port, "GET /healthz HTTP/1.0\r\n\r\n")).startswith("HTTP/1.0 421 ")


async def test_host_must_not_be_repeated(serve: Serve, scene: Scene) -> None:
    server = await serve(scene.app(), "127.0.0.1")
    head = "GET /healthz HTTP/1.1\r\nHost: localhost\r\nHost: evil.example\r\nConnection: close\r\n\r\n"
    status = (await raw("127.0.0.1", server.port, head)).split()[1]
    assert status in ("400", "421")


@pytest.mark.parametrize(
    ("origin", "status"),
    [
        ("http://admin.example:9901", 200),
        ("HTTP://Admin.Example:9901", 200),
        ("http://admin.example", 403),
        ("http://admin.example:3000", 403),
        ("http://evil.example:9901", 403),
        ("http://localhost:9901", 403),
        ("null", 403),
        ("", 403),
        ("admin.example:9901", 403),
        ("file://", 403),
        ("http://admin.example:9901/", 403),
        ("http://evil@admin.example:9901", 403),
    ],
)
async def test_pages_of_other_origins_are_refused(client: Client, origin: str, status: int) -> None:
    answer = await client.get("/api/pools", headers={"Host": "admin.example:9901", "Origin": origin})
    assert answer.status == status
    assert "Access-Control-Allow-Origin" not in answer.headers


@pytest.mark.parametrize(
    ("host", "origin", "status"),
    [
        ("admin.example", "http://admin.example", 200),
        ("admin.example", "http://admin.example:80", 200),
        ("admin.example:80", "http://admin.example", 200),
        ("admin.example", "https://admin.example", 200),  # something in front speaks TLS
        ("admin.example", "https://admin.example:80", 403),
        ("admin.example:443", "http://admin.example", 403),
    ],
)
async def test_a_default_port_may_be_left_out(client: Client, host: str, origin: str, status: int) -> None:
    answer = await client.get("/healthz", headers={"Host": host, "Origin": origin})
    assert answer.status == status


async def test_port_in_use_is_told(serve: Serve, scene: Scene) -> None:
    server = await serve(scene.app(), "127.0.0.1")
    assert server.port > 0
    head = f"GET /healthz HTTP/1.1\r\nHost: 127.0.0.1:{server.port}\r\nConnection: close\r\n\r\n"
    assert (await raw("127.0.0.1", server.port, head)).startswith("HTTP/1.1 200 OK")


async def test_own_address_may_be_of_ip_6(serve: Serve, scene: Scene) -> None:
    try:
        server = await serve(scene.app(), "::1")
    except OSError:
        pytest.skip("the system has no IPv6")
    for host in ("[::1]", "[0:0:0:0:0:0:0:1]:80", "localhost"):
        head = f"GET /healthz HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n\r\n"
        assert (await raw("::1", server.port, head)).startswith("HTTP/1.1 200 OK")


async def test_after_close_nobody_listens(scene: Scene) -> None:
    server = await serve_admin(scene.app(), bind("127.0.0.1", 0))
    port = server.port
    await asyncio.wait_for(server.close(), DEADLINE)
    with pytest.raises(ConnectionRefusedError):
        await asyncio.open_connection("127.0.0.1", port)
    await asyncio.wait_for(server.close(), DEADLINE)


async def test_a_client_that_leaves_ends_its_request(serve: Serve, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(held_module, "STORE_WAIT", 3600.0)
    pins = HeldLater()
    server = await serve(Scene(pins).app(), "127.0.0.1")
    _, writer = await asyncio.open_connection("127.0.0.1", server.port)
    writer.write(b"GET /api/pools HTTP/1.1\r\nHost: localhost\r\n\r\n")
    await asyncio.wait_for(pins.asked.wait(), DEADLINE)
    writer.close()
    await writer.wait_closed()
    await asyncio.wait_for(asyncio.wait({pins.answer}), DEADLINE)
    assert pins.answer.cancelled()


@pytest.mark.parametrize(
    "sent",
    [
        b"",
        b"GET /metrics HTTP/1.1\r\n",
        b"POST /api/explain HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: 9\r\n\r\n",
    ],
)
async def test_a_flood_of_connections_takes_few_descriptors_and_shuts_nobody_out(
    serve: Serve, scene: Scene, sent: bytes
) -> None:
    server = await serve(scene.app(), "127.0.0.1")
    async with AsyncExitStack() as stack:
        readers = []
        for _ in range(MOST_CONNECTIONS + 20):
            reader, writer = await asyncio.open_connection("127.0.0.1", server.port)
            stack.callback(writer.close)
            writer.write(sent)
            readers.append(reader)
        answer = await raw(
            "127.0.0.1", server.port, "GET /healthz HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n"
        )
        assert answer.startswith("HTTP/1.1 200 ")
        async with asyncio.timeout(DEADLINE):
            for reader in readers[:21]:  # the oldest, one of them for the last one that came
                with suppress(ConnectionResetError):
                    assert await reader.read() == b""
        assert not any(reader.at_eof() for reader in readers[21:])


@pytest.mark.parametrize(
    "head",
    [
        f"GET /api/pools HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {TOKEN}\x01\r\n\r\n",
        f"GET /api/pools HTTP/1.1\r\nHost: localhost\r\nAuthorization Bearer {TOKEN}\r\n\r\n",
        f"GET /{TOKEN}{'x' * 9000} HTTP/1.1\r\nHost: localhost\r\n\r\n",
        f"{TOKEN}\r\n\r\n",
    ],
)
async def test_a_request_that_cannot_be_read_leaves_nothing_in_the_log(
    serve: Serve, scene: Scene, head: str, caplog: pytest.LogCaptureFixture
) -> None:
    server = await serve(scene.app(token=TOKEN), "127.0.0.1")
    assert (await raw("127.0.0.1", server.port, head)).startswith("HTTP/1.0 400 ")
    assert caplog.text == ""


async def test_a_handler_that_fails_is_told_of_in_the_log(
    serve: Serve, scene: Scene, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def fail() -> None:
        raise RuntimeError("a mistake of ours")

    monkeypatch.setattr(scene, "refresh", fail)
    server = await serve(scene.app(), "127.0.0.1")
    answer = await raw(
        "127.0.0.1", server.port, "GET /api/pools HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n"
    )
    assert answer.startswith("HTTP/1.1 500 ")
    assert "RuntimeError: a mistake of ours" in caplog.text


@pytest.mark.parametrize("path", ["/metrics", "/healthz", "/readyz", "/", "/api/pools", "/api/overview", "/nothing"])
async def test_answers_are_guarded_by_their_headers(client: Client, guarded: Client, path: str) -> None:
    for who in (client, guarded):
        fields = (await who.get(path)).headers
        assert fields["Cache-Control"] == "no-store"
        assert fields["X-Content-Type-Options"] == "nosniff"
        assert fields["Cross-Origin-Resource-Policy"] == "same-origin"
        assert fields["Server"] == "mcp-routing-proxy"


async def test_a_reload_is_told_of(client: Client, scene: Scene) -> None:
    answer = await client.post("/api/reload", json={})
    assert (answer.status, await answer.json()) == (200, {"reloaded": True})
    scene.mistakes = "proxy.yaml: line 3: pools: found nothing"
    answer = await client.post("/api/reload", json={})
    assert (answer.status, (await answer.json())["mistakes"]) == (409, scene.mistakes)
    assert scene.reloads == 2


async def test_a_reload_needs_the_token_and_a_post_of_json(guarded: Client, client: Client, scene: Scene) -> None:
    assert (await guarded.post("/api/reload", json={})).status == 401
    assert (await client.get("/api/reload")).status == 405
    assert (await client.post("/api/reload", data="x", headers={"Content-Type": "text/plain"})).status == 415
    assert scene.reloads == 0
