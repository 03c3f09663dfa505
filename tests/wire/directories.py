"""Directories made up, and where they send requests."""

import asyncio
import re
from collections.abc import Iterable
from typing import Any, TypeAlias

from proxy.pins.memory import MemoryPinStore
from proxy.pins.store import Pin, PinStore, PinStoreError
from proxy.routing.backends import Backend
from proxy.routing.balancing import RoundRobin
from proxy.routing.headers import RoutingHeaders, is_modern
from proxy.routing.members import OWNER_SOURCES
from proxy.routing.ownership import PinKey
from proxy.routing.pools import Pool, State
from proxy.routing.rounds import ConnectionMemory, Rounds
from proxy.routing.routes import Route
from proxy.routing.table import RoutingTable
from proxy.wire.destination import Destination, Found, Lane, SearchPlan
from proxy.wire.directory import Directory

PATIENCE = 5.0  # seconds


class Store(MemoryPinStore):
    """Pins in memory, told at once, later, or not at all."""

    def __init__(self, manner: str) -> None:
        super().__init__(ttl=100.0, capacity=100, clock=lambda: 0.0)
        self.manner = manner
        self.asked: list[PinKey] = []

    def get(self, key: PinKey) -> Any:
        self.asked.append(key)
        if self.manner == "fails at once":
            raise PinStoreError("no")
        if self.manner == "at once":
            return super().get(key)
        answer: asyncio.Future[Pin | None] = asyncio.get_running_loop().create_future()
        loop, pin = asyncio.get_running_loop(), super().get(key)
        if self.manner == "later":
            loop.call_soon(answer.set_result, pin)
        elif self.manner == "first at once, then later":
            if len(self.asked) % 2:
                return pin
            loop.call_soon(answer.set_result, pin)
        else:
            loop.call_soon(answer.set_exception, PinStoreError("no"))
        return answer


def pool_of(
    name: str,
    ids: str,
    *,
    drained: str = "",
    departed: str = "",
    tag: str | None = None,
    state: State = "local",
    search: bool = True,
    sticky: bool = True,
) -> Pool:
    """A pool of these backends; the departed ones left it again."""
    backends = [Backend(one, "127.0.0.1", 1, drain=one in drained) for one in ids + departed]
    owner_tag = None if tag is None else re.compile(tag)
    pool = Pool(name, backends, policy=RoundRobin(), owner_tag=owner_tag, state=state, search=search, sticky=sticky)
    pool.replace(backends[: len(ids)])
    return pool


def directory(
    pools: Iterable[Pool], routes: Iterable[Route], store: PinStore | None = None, rounds: Rounds | None = None
) -> Directory:
    lanes = {pool.name: Lane(pool, {}, own_host=False, owner_wait=1.0) for pool in pools}
    return Directory(
        RoutingTable(tuple(routes)),
        lanes,
        Store("at once") if store is None else store,
        Rounds(lambda: 0.0) if rounds is None else rounds,
    )


def asked(
    method: str = "tools/call", *, path: str = "/mcp", version: str = "2026-07-28", **more: Any
) -> RoutingHeaders:
    return RoutingHeaders("POST", path, version=version, modern=is_modern(version), method=method, **more)


Place: TypeAlias = tuple[str, str, str, str]
"""(route, pool, backend, source)"""


def about(destination: Destination) -> Place:
    route, lane, choice = destination[:3]
    assert lane.pool.member(choice.member.backend.id) is choice.member
    known = choice.source in OWNER_SOURCES or destination.alone
    assert destination.bound is (destination.kind in ("task", "session") and known)
    return route.name, lane.pool.name, choice.member.backend.id, choice.source


async def found(
    directory: Directory,
    request: RoutingHeaders,
    task: str | None = None,
    *,
    client: str = "::1",
    memory: ConnectionMemory | None = None,
) -> Found:
    """Where the request goes, however the pin store answers."""
    finding = directory.find(request, task, client, ConnectionMemory() if memory is None else memory)
    return await asyncio.wait_for(finding, PATIENCE) if asyncio.iscoroutine(finding) else finding


async def one_found(directory: Directory, request: RoutingHeaders, task: str | None = None, **more: Any) -> Place:
    """The same where it goes to one backend."""
    destination = await found(directory, request, task, **more)
    assert isinstance(destination, Destination)
    return about(destination)


async def plan_found(directory: Directory, request: RoutingHeaders, task: str | None = None, **more: Any) -> SearchPlan:
    """The same where it is searched."""
    plan = await found(directory, request, task, **more)
    assert isinstance(plan, SearchPlan)
    assert all(place.kind == "task" and place.session == "" for place in plan.candidates)
    return plan
