"""Backends are taken out of new work and back, and what they still hold is told as it is."""

import asyncio
import logging
from collections.abc import Mapping
from typing import Any

import pytest
from aiohttp import ClientSession, web
from aiohttp.test_utils import TestClient
from pytest_aiohttp import AiohttpClient
from yarl import URL

from proxy.app import Proxy
from proxy.config import parse
from proxy.control.backends import SLICE, Backends, standing
from proxy.control.client import backend_path
from proxy.pins.memory import MemoryPinStore
from proxy.routing.backends import Backend
from proxy.routing.balancing import LeastInFlight
from proxy.routing.members import RECENT
from proxy.routing.ownership import pin_key
from proxy.routing.pools import Pool
from tests.control.test_admin import Scene
from tests.wire.harness import backend, call, client, config_text, metric, post, running

Client = TestClient[web.Request, web.Application]
NOTE = "as far as this proxy knows since it started"


def pool_of(*ids: str) -> Pool:
    return Pool("agents", [Backend(one, "127.0.0.1", 1) for one in ids], policy=LeastInFlight())


async def told(proxy: Proxy, path: str) -> tuple[int, Any]:
    """What the admin interface of a running proxy answers to a POST."""
    url = URL(f"http://127.0.0.1:{proxy.admin_port}{path}", encoded=True)
    async with ClientSession() as session, session.post(url, json={}) as answer:
        return answer.status, await answer.json()


async def test_many_backends_are_told_of_in_order_and_others_have_their_turn_in_between(
    aiohttp_client: AiohttpClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    turns = 0
    rest = asyncio.sleep

    async def sleep(seconds: float) -> None:
        nonlocal turns
        turns += seconds == 0
        await rest(seconds)

    scene = Scene()
    ids = [f'agent-"{number}"' for number in range(2 * SLICE + 1)]
    scene.pools = {"agents": pool_of(*ids), "empty": Pool("empty", [], policy=LeastInFlight())}
    client = await aiohttp_client(scene.app())
    monkeypatch.setattr("asyncio.sleep", sleep)
    pools = (await (await client.get("/api/pools")).json())["pools"]
    assert [[member["id"] for member in pool["backends"]] for pool in pools] == [ids, []]
    assert turns == 2


@pytest.mark.parametrize(
    ("draining", "departed", "in_flight", "unfinished", "sessions", "empty"),
    [
        (False, False, 0, 0, 0, False),  # it may get work at any moment
        (True, False, 0, 0, 0, True),
        (False, True, 0, 0, 0, True),
        (True, True, 0, 0, 0, True),
        (True, False, 1, 0, 0, False),
        (True, False, 0, 1, 0, False),
        (True, False, 0, 0, 1, False),
        (True, False, 0, None, 0, False),
        (False, True, 0, None, 0, False),
        (False, True, 2, 3, 4, False),
    ],
)
def test_a_backend_is_empty_when_it_takes_and_holds_nothing(
    draining: bool, departed: bool, in_flight: int, unfinished: int | None, sessions: int, empty: bool
) -> None:
    pool = pool_of("a", "b")
    member = pool.members[0]
    pool.set_draining(member, draining)
    if departed:
        pool.replace([Backend("b", "127.0.0.1", 1)])
        member.draining = draining
    for _ in range(in_flight):
        pool.start(member, 0.0)
    for number in range(sessions):
        member.session_seen(f"session {number}", 100.0)
    held: Mapping[tuple[str, str], int] | None = None
    if unfinished is not None:
        held = {("agents", "a"): unfinished, ("agents", "b"): 7, ("others", "a"): 8}
    assert standing(pool, member, held, 100.0) == {
        "departed": departed,
        "up": True,
        "ejected": None,
        "probe": None,
        "draining": draining,
        "in_flight": in_flight,
        "unfinished_tasks": unfinished,
        "recent_sessions": sessions,
        "empty": empty,
    }


def test_sessions_count_for_as_long_as_they_are_recent() -> None:
    pool = pool_of("a")
    member = pool.members[0]
    pool.set_draining(member, True)
    member.session_seen("one", 0.0)
    assert standing(pool, member, {}, RECENT)["recent_sessions"] == 1
    told = standing(pool, member, {}, RECENT + 0.1)
    assert (told["recent_sessions"], told["empty"]) == (0, True)


async def test_a_drained_backend_gets_no_new_work_until_it_is_undrained(caplog: pytest.LogCaptureFixture) -> None:
    async with backend() as a, backend() as b, running(config_text(a.port, b.port)) as proxy:
        with caplog.at_level(logging.INFO, logger="proxy"):
            status, answer = await told(proxy, "/api/backends/agents/a/drain")
        assert status == 200
        assert answer == {
            "pool": "agents",
            "backend": "a",
            "departed": False,
            "up": True,
            "ejected": None,
            "probe": None,
            "draining": True,
            "in_flight": 0,
            "unfinished_tasks": 0,
            "recent_sessions": 0,
            "empty": True,
            "note": NOTE,
        }
        assert "agents/a takes no new work" in caplog.text
        assert await metric(proxy, "backend_draining", backend="a") == 1
        async with client(proxy.port) as caller:
            for _ in range(4):
                assert (await caller.ask(call())).status == 200
            assert (len(a.requests), len(b.requests)) == (0, 4)

            status, answer = await told(proxy, "/api/backends/agents/a/undrain")
            assert (status, answer["draining"], answer["empty"]) == (200, False, False)
            assert await metric(proxy, "backend_draining", backend="a") == 0
            for _ in range(4):
                assert (await caller.ask(call())).status == 200
        assert len(a.requests) == 2


async def test_a_drained_backend_tells_what_it_still_holds() -> None:
    answer = b"HTTP/1.1 200 OK\r\nMcp-Session-Id: s\r\nContent-Length: 2\r\n\r\n{}"
    pins = MemoryPinStore(ttl=60, capacity=10, clock=lambda: 0.0)

    async def script(side: Any) -> None:
        while True:
            await side.request()
            side.send(answer)

    async with backend(script) as a, running(config_text(a.port), pins=pins) as proxy:
        async with client(proxy.port) as caller:
            session = (await caller.ask(post())).get("Mcp-Session-Id")
            assert session is not None
        pins.put(pin_key("agents", "one"), "agents", "a", ttl=None)
        pins.put(pin_key("agents", "two"), "agents", "a", ttl=None)
        _, told_first = await told(proxy, "/api/backends/agents/a/drain")
        assert (told_first["unfinished_tasks"], told_first["recent_sessions"], told_first["empty"]) == (2, 1, False)

        pins.finish(pin_key("agents", "one"))
        pins.finish(pin_key("agents", "two"))
        proxy.pools["agents"].members[0].session_ended("s")
        _, told_last = await told(proxy, "/api/backends/agents/a/drain")
        assert (told_last["unfinished_tasks"], told_last["recent_sessions"], told_last["empty"]) == (0, 0, True)


@pytest.mark.parametrize("draining", [True, False])
async def test_saying_it_again_changes_nothing(draining: bool) -> None:
    async with backend() as a, running(config_text(a.port)) as proxy:
        action = "drain" if draining else "undrain"
        first = await told(proxy, f"/api/backends/agents/a/{action}")
        assert await told(proxy, f"/api/backends/agents/a/{action}") == first
        assert first[1]["draining"] is draining


@pytest.mark.parametrize(
    ("path", "error"),
    [
        ("/api/backends/agent/a/drain", "no pool 'agent'; there is agents"),
        ("/api/backends/agents/c/drain", "no backend 'c' in pool agents; there is a, b"),
        ("/api/backends/agents/A/undrain", "no backend 'A' in pool agents; there is a, b"),
        ("/api/backends/agents/%0d%0aX:%20y/drain", r"no backend '\r\nX: y' in pool agents; there is a, b"),
        ("/api/backends/agents/a%2Fb/drain", "no backend 'a/b' in pool agents; there is a, b"),
        ("/api/backends/agents/a/b/drain", "Not Found"),
        ("/api/backends/agents/a/stop", "Not Found"),
        ("/api/backends/agents//drain", "Not Found"),
    ],
)
async def test_what_is_not_there_is_named(path: str, error: str) -> None:
    async with backend() as a, running(config_text(a.port, a.port)) as proxy:
        assert await told(proxy, path) == (404, {"error": error})
        assert not any(member.draining for member in proxy.pools["agents"].members)


@pytest.mark.parametrize(
    "backend_id",
    [
        "10.0.0.1:8000",
        "[fd00::1]:80",
        "a%b",
        "a%2Fb",
        "a%25b",
        "a?b",
        "a#b",
        "{id}",
        "ünï",
        "a+b",
        "a;b=c",
        "~",
        "日本",
    ],
)
async def test_ids_of_any_characters_can_be_named(aiohttp_client: AiohttpClient, backend_id: str) -> None:
    pool = pool_of(backend_id, "other")
    drained: list[tuple[str, str, bool]] = []

    def set_draining(*, pool: str, backend: str, draining: bool) -> None:
        drained.append((pool, backend, draining))

    async def up_to_date() -> None:
        pass

    pins = MemoryPinStore(ttl=60, capacity=10, clock=lambda: 0.0)
    backends = Backends(lambda: {"agents": pool}, pins, up_to_date, set_draining, lambda: 0.0, "1")
    async with running(config_text(1)) as proxy:  # the routes are those of the real interface
        found = await told(proxy, backend_path("agents", backend_id, "drain"))
        assert found == (404, {"error": f"no backend {backend_id!r} in pool agents; there is a"})
    app = web.Application()
    app.router.add_post("/api/backends/{pool}/{id:[^/]+}/drain", backends.drain)
    asking: Client = await aiohttp_client(app)
    answer = await asking.post(URL(backend_path("agents", backend_id, "drain"), encoded=True), json={})
    assert answer.status == 200
    assert drained == [("agents", backend_id, True)]


async def test_departed_backends_are_shown_and_marked() -> None:
    async with backend() as a, backend() as b, running(config_text(a.port, b.port)) as proxy:
        pool = proxy.pools["agents"]
        pool.replace([pool.members[1].backend])
        async with ClientSession() as session:
            async with session.get(f"http://127.0.0.1:{proxy.admin_port}/api/pools") as answer:
                shown = (await answer.json())["pools"][0]["backends"]
        assert [(one["id"], one["departed"], one["empty"]) for one in shown] == [("b", False, False), ("a", True, True)]
        status, answered = await told(proxy, "/api/backends/agents/a/undrain")
        assert (status, answered["departed"], answered["draining"]) == (200, True, False)
        assert not pool.everyone[1].fit


def test_only_backends_that_are_there_can_be_drained() -> None:
    proxy = Proxy(parse(config_text(1), "test.yaml", {}))
    with pytest.raises(LookupError):
        proxy.set_draining(pool="agents", backend="b", draining=True)
    with pytest.raises(LookupError):
        proxy.set_draining(pool="other", backend="a", draining=True)
