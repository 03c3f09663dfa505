"""How backends stand: what each still has to do, and whether it can be stopped; taking them out of new work and back.

A backend is *empty* when it takes no new work and holds nothing that this proxy knows of: no request under way, no
unfinished task, no recent session. What was made before the proxy started, or through another one, it cannot know.
"""

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from typing import Protocol

from aiohttp import web

from proxy.pins.held import Held, tasks_held
from proxy.pins.store import PinStore
from proxy.routing.members import Member
from proxy.routing.pools import Pool

NOTE = "as far as this proxy knows since it started"

SLICE = 100
"""Backends that are told of in one go; some 0.4 ms, and a fleet has a thousand."""


class SetDraining(Protocol):
    """Takes a backend out of new work, or back in; called with a pool and a backend that are there."""

    def __call__(self, *, pool: str, backend: str, draining: bool) -> None: ...


def standing(pool: Pool, member: Member, held: Held | None, now: float) -> dict[str, object]:
    """How a backend stands and what it has to do, as values for JSON.

    `held`: None where the store does not say; `now`: monotonic. `ejected`: seconds left.
    """
    unfinished = None if held is None else held.get((pool.name, member.backend.id), 0)
    sessions = member.recent_sessions(now)
    return {
        "departed": member.departed,
        "draining": member.draining,
        "up": member.up,
        "ejected": max(0.0, round(member.conduct.until - now, 1)) if member.ejected else None,
        "probe": member.probe or None,
        "in_flight": member.in_flight,
        "unfinished_tasks": unfinished,
        "recent_sessions": sessions,
        "empty": member.withdrawn and member.in_flight == 0 and unfinished == 0 and sessions == 0,
    }


class Backends:
    """The handlers about pools and their backends. `clock`: monotonic, in seconds."""

    def __init__(
        self,
        pools: Callable[[], Mapping[str, Pool]],
        pins: PinStore,
        refresh: Callable[[], Awaitable[None]],
        set_draining: SetDraining,
        clock: Callable[[], float],
        version: str,
        discovery: Callable[[], Mapping[str, object]] = dict,
    ) -> None:
        """`discovery`: how it stands with each pool that has it, by name."""
        self._pools = pools
        self._discovery = discovery
        self._pins = pins
        self._refresh = refresh
        self._set_draining = set_draining
        self._clock = clock
        self._version = version

    async def pools(self, request: web.Request) -> web.Response:
        """All pools with all their backends, those that departed included."""
        await self._refresh()
        held, now, discovery = await tasks_held(self._pins), self._clock(), self._discovery()
        pools = []
        for pool in list(self._pools().values()):
            members = [text async for text in self._members(pool, held, now)]
            facts = {"name": pool.name, "ring_generation": pool.ring_generation, "discovery": discovery.get(pool.name)}
            pools.append(_with_list(facts, "backends", members))
        facts = {"pins": len(self._pins), "note": NOTE, "version": self._version}
        return web.Response(text=_with_list(facts, "pools", pools), content_type="application/json")

    async def _members(self, pool: Pool, held: Held | None, now: float) -> AsyncIterator[str]:
        """Each backend as JSON. Requests have their turn in between."""
        for place, member in enumerate(list(pool.everyone), 1):
            backend = member.backend
            facts = {"id": backend.id, "address": backend.authority, "weight": backend.weight}
            yield json.dumps({**facts, "discovered": backend.discovered, **standing(pool, member, held, now)})
            if place % SLICE == 0:
                await asyncio.sleep(0)

    async def drain(self, request: web.Request) -> web.Response:
        """Takes a backend out of new work, and tells what it still has to do."""
        return await self._set(request, draining=True)

    async def undrain(self, request: web.Request) -> web.Response:
        """Gives a backend new work again."""
        return await self._set(request, draining=False)

    async def _set(self, request: web.Request, *, draining: bool) -> web.Response:
        pool, member = self._named(request.match_info["pool"], request.match_info["id"])
        self._set_draining(pool=pool.name, backend=member.backend.id, draining=draining)
        await self._refresh()
        held = await tasks_held(self._pins)
        told = {"pool": pool.name, "backend": member.backend.id, **standing(pool, member, held, self._clock())}
        return web.json_response({**told, "note": NOTE})

    def _named(self, pool_name: str, backend_id: str) -> tuple[Pool, Member]:
        """Raises HTTPNotFound, which says what was found and what there is."""
        pools = self._pools()
        pool = pools.get(pool_name)
        if pool is None:
            raise web.HTTPNotFound(reason=f"no pool {pool_name!r}; there is {', '.join(pools)}")
        member = pool.member(backend_id)
        if member is None:
            there = ", ".join(member.backend.id for member in pool.everyone)
            raise web.HTTPNotFound(reason=f"no backend {backend_id!r} in pool {pool.name}; there is {there}")
        return pool, member


def _with_list(facts: Mapping[str, object], name: str, items: Sequence[str]) -> str:
    """An object as JSON: these facts, of which there are some, and a list of what is JSON already."""
    return f"{json.dumps(facts)[:-1]}, {json.dumps(name)}: [{', '.join(items)}]}}"
