"""Where a request goes: the owner of its task, or a backend of the first matching route's pool.

Pins are asked first, pool by pool in route order, then tags; a task without a known owner goes by the ring. A pin store
may answer later, and then so does this; everything else is known at once.
"""

import asyncio
from collections.abc import Collection, Coroutine, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from proxy.pins.store import Answer, Pin, PinStore, PinStoreError
from proxy.routing.errors import NoRoute
from proxy.routing.headers import RoutingHeaders
from proxy.routing.ownership import pin_key
from proxy.routing.pools import Choice, Member, Pool
from proxy.routing.routes import Route, RoutingTable
from proxy.wire.backend import BackendConnections


@dataclass(frozen=True, slots=True)
class Lane:
    """A pool as exchanges use it: who may serve, and the connections to each."""

    pool: Pool
    connections: Mapping[Member, BackendConnections]
    own_host: bool
    """True to send each backend its own name as Host instead of the client's."""


class Destination(NamedTuple):
    """Where one attempt goes, and by which rule."""

    route: Route
    lane: Lane
    choice: Choice


class Directory:
    """Finds destinations with the routes, pools and pins in force."""

    def __init__(self, table: RoutingTable, lanes: Mapping[str, Lane], pins: PinStore) -> None:
        self._table = table
        self._lanes = lanes
        self._pins = pins

    def find(self, request: RoutingHeaders, task: str | None) -> Destination | Coroutine[None, None, Destination]:
        """Where the request goes; `task`: the decoded id for a request about one.

        At once, or as a coroutine where the pin store answers later. Both raise NoRoute, NoBackend, MalformedHeader.
        """
        if request.is_task:
            return self._find_owner(request, task)
        route = self._table.route_for(request)
        if route is None:
            raise NoRoute("no route matches this request")
        lane = self._lanes[self._table.pool_for(route)]
        return Destination(route, lane, lane.pool.balance(request))

    def find_another(
        self, request: RoutingHeaders, task: str | None, failed: Destination, tried: Collection[Member]
    ) -> Destination:
        """Where the request goes after an attempt that sent nothing, in the same pool. Raises NoBackend."""
        pool = failed.lane.pool
        choice = pool.balance(request, tried) if task is None else pool.by_ring(task, tried)
        return Destination(failed.route, failed.lane, choice)

    def _find_owner(
        self, request: RoutingHeaders, task: str | None
    ) -> Destination | Coroutine[None, None, Destination]:
        reachable = self._table.reachable(request)
        if not reachable:
            raise NoRoute("no route matches this request")
        if task is None:
            return self._without_owner(request, task, reachable)
        names = list(reachable)
        for index, name in enumerate(names):
            pin = self._pins.get(pin_key(name, task))
            if isinstance(pin, asyncio.Future):
                return self._find_owner_later(request, task, reachable, names[index:], pin)
            owner = self._owner(name, pin)
            if owner is not None:
                return Destination(reachable[name], self._lanes[name], owner.chosen("pin"))
        return self._without_pin(request, task, reachable)

    async def _find_owner_later(
        self,
        request: RoutingHeaders,
        task: str,
        reachable: Mapping[str, Route],
        names: Sequence[str],
        answer: Answer[Pin | None],
    ) -> Destination:
        """Goes on from the first of `names`, whose pin is `answer`. A store that fails knows nothing."""
        try:
            for index, name in enumerate(names):
                if index:
                    answer = self._pins.get(pin_key(name, task))
                owner = self._owner(name, await answer if isinstance(answer, asyncio.Future) else answer)
                if owner is not None:
                    return Destination(reachable[name], self._lanes[name], owner.chosen("pin"))
        except PinStoreError:
            pass
        return self._without_pin(request, task, reachable)

    def _owner(self, pool: str, pin: Pin | None) -> Member | None:
        return None if pin is None else self._lanes[pool].pool.member(pin.backend)

    def _without_pin(self, request: RoutingHeaders, task: str, reachable: Mapping[str, Route]) -> Destination:
        for name, route in reachable.items():
            owner = self._lanes[name].pool.tagged_owner(task)
            if owner is not None:
                return Destination(route, self._lanes[name], owner.chosen("tag"))
        return self._without_owner(request, task, reachable)

    def _without_owner(self, request: RoutingHeaders, task: str | None, reachable: Mapping[str, Route]) -> Destination:
        name, route = next(iter(reachable.items()))
        lane = self._lanes[name]
        choice = lane.pool.balance(request) if task is None else lane.pool.by_ring(task)
        return Destination(route, lane, choice)
