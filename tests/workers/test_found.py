"""A worker puts in force who was discovered, and does what is said about members in the order in which it was said."""

import asyncio
from collections.abc import AsyncIterator
from dataclasses import asdict
from threading import Event
from typing import Any

import pytest

from proxy import membership
from proxy.routing.backends import Backend
from proxy.routing.ring import Ring
from proxy.workers.channel import Message
from proxy.workers.worker import Worker
from tests.wire.harness import until

TEXT = """
pools:
  agents: {discover: {dns: 'agents.test:1'}}
  others: {backends: ['http://10.9.9.9']}
routes: [{name: r, split: {agents: 1, others: 1}}]
log: {access: false}
"""


def found(count: int) -> list[dict[str, Any]]:
    return [asdict(Backend(f"b{number}", "10.0.0.1", 1, discovered=True)) for number in range(count)]


class Told(Worker):
    """A worker without a supervisor."""

    def __init__(self) -> None:
        super().__init__()
        self.said: list[Message] = []

    def _send(self, message: Message) -> None:
        self.said.append(message)

    def hear(self, kind: str, **content: Any) -> None:
        self._received({"kind": kind, **content})

    @property
    def members(self) -> dict[str, bool]:
        """By id, whether each of the pool drains."""
        assert self._traffic is not None
        return {one.backend.id: one.draining for one in self._traffic.pools["agents"].members}

    def changes(self, id: int) -> int:
        """How many changes it had seen when it answered this."""
        (report,) = [message for message in self.said if message.get("id") == id]
        return int(report["changes"])

    async def close(self) -> None:
        assert self._traffic is not None
        await self._traffic.drain()


@pytest.fixture
async def worker() -> AsyncIterator[Told]:
    told = Told()
    told.hear("start", config=TEXT, source="test.yaml", sockets=[], accept=[], standings={})
    yield told
    await told.close()


async def test_who_was_found_is_in_force_and_counted_as_a_change(worker: Told) -> None:
    assert worker.members == {}
    worker.hear("found", pool="agents", backends=found(2))
    worker.hear("report", id=1)
    await until(lambda: len(worker.members) == 2)
    await until(lambda: worker.said[-1].get("id") == 1)
    assert worker.changes(1) == 1


async def test_what_is_said_meanwhile_waits_for_a_large_ring(worker: Told, monkeypatch: pytest.MonkeyPatch) -> None:
    go = Event()

    class Slow(Ring):
        def __init__(self, weights: dict[str, int]) -> None:
            assert go.wait(10)
            super().__init__(weights)

    monkeypatch.setattr(membership, "Ring", Slow)
    worker.hear("found", pool="agents", backends=found(60))
    worker.hear("drain", pool="agents", backend="b59", draining=True)
    worker.hear("report", id=1)
    worker.hear("found", pool="agents", backends=found(61))
    worker.hear("drain", pool="agents", backend="b60", draining=True)
    worker.hear("reload", config=TEXT + "drain: 1s\n")
    worker.hear("report", id=2)
    await asyncio.sleep(0)
    assert worker.members == {}
    go.set()
    await until(lambda: any(message.get("id") == 2 for message in worker.said))
    assert [one for one, draining in worker.members.items() if draining] == ["b59", "b60"]
    assert (worker.changes(1), worker.changes(2)) == (1, 3)


async def test_a_pool_that_discovers_nobody_is_left_as_it_is(worker: Told) -> None:
    for pool in ("others", "gone"):
        worker.hear("found", pool=pool, backends=found(2))
    worker.hear("report", id=1)
    await until(lambda: worker.said[-1].get("id") == 1)
    assert worker.members == {}
    assert worker.changes(1) == 2
