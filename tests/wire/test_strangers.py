"""A pin that several proxies share may name a backend before its configuration has reached all of them."""

import json

import pytest

from proxy.app import Proxy
from proxy.config import parse
from proxy.pins.memory import MemoryPinStore
from proxy.routing.backends import Backend
from proxy.routing.balancing import RoundRobin
from proxy.routing.pools import STRANGE, Pool
from tests.wire.harness import backend, call, client, config_text, running, task
from tests.wire.task_backend import TaskBackend


def pool(ids: str) -> Pool:
    return Pool("agents", [Backend(one, "127.0.0.1", 1) for one in ids], policy=RoundRobin())


def test_a_stranger_may_come_for_a_while() -> None:
    known = pool("ab")
    assert known.may_come("c", 100.0)
    assert known.may_come("c", 100.0 + STRANGE - 1)
    assert not known.may_come("c", 100.0 + STRANGE)
    assert known.may_come("d", 100.0 + STRANGE)


def test_a_backend_that_was_forgotten_here_does_not_come() -> None:
    known = pool("ab")
    known.replace([Backend("a", "127.0.0.1", 1)])
    gone = known.member("b")
    assert gone is not None
    known.forget(gone)
    assert not known.may_come("b", 0.0)


def test_a_stranger_that_came_and_went_is_met_anew_only_as_forgotten() -> None:
    known = pool("a")
    assert known.may_come("b", 0.0)
    known.replace([Backend("a", "127.0.0.1", 1), Backend("b", "127.0.0.1", 1)])
    assert known.may_come("b", 1000.0)  # nobody asks while it is a member; what was met before counts no longer


def test_strangers_are_few() -> None:
    known = pool("a")
    for number in range(5000):
        known.may_come(f"x{number}", 0.0)
    assert len(known._strangers) <= 1000


async def poll(proxy: Proxy, task_id: str, method: bytes = b"get") -> tuple[int, str, bool]:
    """Status, reason and whether there is a Retry-After."""
    async with client(proxy.port) as caller:
        answer = await caller.ask(task(method, task_id.encode()))
    reason = answer.get("mcp-proxy-error") or ""
    return answer.status, reason, answer.get("retry-after") is not None


@pytest.mark.parametrize("known", [1, 2])
async def test_a_task_of_a_backend_that_is_not_configured_yet_is_not_denied(known: int) -> None:
    makers = [TaskBackend(f"{name}-1") for name in "abc"]
    pins = MemoryPinStore(ttl=60, capacity=100, clock=lambda: 0.0)
    async with backend(makers[0].script) as a, backend(makers[1].script) as b, backend(makers[2].script) as c:
        servers = [a, b, c]
        before = config_text(*(server.port for server in servers[:known]))
        after = config_text(*(server.port for server in servers))
        async with running(after, pins=pins) as first, running(before, pins=pins) as second:
            first.set_draining(pool="agents", backend="a", draining=True)
            first.set_draining(pool="agents", backend="b", draining=True)
            async with client(first.port) as caller:
                made = json.loads((await caller.ask(call())).body)["result"]["taskId"]
            assert await poll(second, made) == (503, "owner_unknown", True)
            assert await poll(second, made, b"cancel") == (503, "owner_unknown", True)
            second.apply(parse(after, "later.yaml", {}))
            assert (await poll(second, made))[0] == 200


async def test_a_task_of_a_backend_that_never_comes_is_denied_at_last(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("proxy.routing.pools.STRANGE", 0.0)
    makers = [TaskBackend(f"{name}-1") for name in "abc"]
    pins = MemoryPinStore(ttl=60, capacity=100, clock=lambda: 0.0)
    async with backend(makers[0].script) as a, backend(makers[1].script) as b, backend(makers[2].script) as c:
        async with running(config_text(c.port), pins=pins) as first:
            async with client(first.port) as caller:
                made = json.loads((await caller.ask(call())).body)["result"]["taskId"]
        others = config_text(a.port, b.port).replace("id: a,", "id: x,")
        async with running(others, pins=pins) as second, client(second.port) as caller:
            answer = await caller.ask(task(b"get", made.encode()))
            assert json.loads(answer.body)["error"]["code"] == -32602
