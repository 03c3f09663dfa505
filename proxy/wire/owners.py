"""Who owns a task: its pin, pool by pool in route order; then the tag in its id; then whoever a search finds.

A search is for where more than one backend may be the owner and the pool has it switched on; elsewhere the ring says. A
pin store may answer later, and then so does this; everything else is known at once.
"""

import asyncio
from collections.abc import Callable, Coroutine, Mapping, Sequence

from proxy.pins.store import POOL_ITSELF, Answer, Pin, PinStore, PinStoreError
from proxy.routing.errors import NoBackend, NoRoute, OwnerUnknown
from proxy.routing.headers import RoutingHeaders
from proxy.routing.ownership import pin_key
from proxy.routing.rounds import ConnectionMemory
from proxy.routing.routes import Route
from proxy.routing.table import RoutingTable
from proxy.wire.destination import Destination, Found, Lane, SearchPlan


class Owners:
    """Finds the owners of tasks with the routes, pools and pins in force. `clock`: monotonic, in seconds."""

    def __init__(
        self, table: RoutingTable, lanes: Mapping[str, Lane], pins: PinStore, clock: Callable[[], float]
    ) -> None:
        self._table = table
        self._lanes = lanes
        self._pins = pins
        self._clock = clock

    def find(
        self, request: RoutingHeaders, task: str | None, memory: ConnectionMemory
    ) -> Found | Coroutine[None, None, Found]:
        """Where a request about a task goes, as `Directory.find`."""
        reachable = self._table.reachable(request)
        if not reachable:
            raise NoRoute("no route matches this request")
        if task is None:
            return self._unnamed(request, reachable, memory)
        names = list(reachable)
        doubtful = False
        try:
            for index, name in enumerate(names):
                pin = self._pins.get(pin_key(name, task))
                if isinstance(pin, asyncio.Future):
                    return self._find_later(request, task, reachable, names[index:], pin)
                owner = self._pinned(reachable[name], name, pin, request, task)
                if owner is not None:
                    return owner
                doubtful = doubtful or self._is_stranger(name, pin)
        except PinStoreError:
            pass  # it knows nothing
        return self._without_pin(request, task, reachable, doubtful=doubtful)

    async def _find_later(
        self,
        request: RoutingHeaders,
        task: str,
        reachable: Mapping[str, Route],
        names: Sequence[str],
        answer: Answer[Pin | None],
    ) -> Found:
        """Goes on from the first of `names`, whose pin is `answer`. A store that fails knows nothing."""
        doubtful = False
        try:
            for index, name in enumerate(names):
                if index:
                    answer = self._pins.get(pin_key(name, task))
                pin = await answer if isinstance(answer, asyncio.Future) else answer
                owner = self._pinned(reachable[name], name, pin, request, task)
                if owner is not None:
                    return owner
                doubtful = doubtful or self._is_stranger(name, pin)
        except PinStoreError:
            pass
        return self._without_pin(request, task, reachable, doubtful=doubtful)

    def _pinned(
        self, route: Route, name: str, pin: Pin | None, request: RoutingHeaders, task: str
    ) -> Destination | None:
        if pin is None:
            return None
        lane = self._lanes[name]
        if pin.backend == POOL_ITSELF:
            return self._by_ring(route, lane, request, task)
        owner = lane.pool.member(pin.backend)
        return None if owner is None else Destination(route, lane, owner.chosen("pin"), "task")

    def _is_stranger(self, name: str, pin: Pin | None) -> bool:
        """True if the pin names a backend that this configuration lacks, and that may be about to come."""
        return pin is not None and self._lanes[name].pool.may_come(pin.backend, self._clock())

    def _without_pin(
        self, request: RoutingHeaders, task: str, reachable: Mapping[str, Route], *, doubtful: bool
    ) -> Found:
        for name, route in reachable.items():
            owner = self._lanes[name].pool.tagged_owner(task)
            if owner is not None:
                return Destination(route, self._lanes[name], owner.chosen("tag"), "task")
        return self._search(request, task, reachable, doubtful=doubtful)

    def _unnamed(
        self, request: RoutingHeaders, reachable: Mapping[str, Route], memory: ConnectionMemory
    ) -> Destination | SearchPlan:
        """A request about a task that does not say which (FastMCP's client never does)."""
        pool, backend = memory.latest or ("", "")
        owner = self._lanes[pool].pool.member(backend) if pool in reachable else None
        if owner is None:
            return self._search(request, None, reachable)
        known = Destination(reachable[pool], self._lanes[pool], owner.chosen("search"), "task")
        if request.method != "tasks/get":
            return self._search(request, None, {pool: known.route}) if known.lane.pool.search else known
        plan = self._search(request, None, reachable)
        if isinstance(plan, SearchPlan):
            others = [place for place in plan.candidates if place.choice.member is not owner]
        elif plan.choice.member is owner:
            return plan
        elif plan.lane.pool.search:
            others = [plan._replace(choice=plan.choice.member.chosen("search"))]
        else:
            return known
        return SearchPlan((known, *others), likely=True)

    def _search(
        self, request: RoutingHeaders, task: str | None, reachable: Mapping[str, Route], *, doubtful: bool = False
    ) -> Destination | SearchPlan:
        """Whom to ask; a single candidate is simply sent to. `doubtful` as in SearchPlan.

        Raises OwnerUnknown, NoBackend.
        """
        searched = {name: route for name, route in reachable.items() if self._lanes[name].pool.search}
        if not searched:
            name, route = next(iter(reachable.items()))
            if self._lanes[name].pool.is_missing_owners:
                raise OwnerUnknown("the backends are not all discovered yet: one of them may have this task")
            return self._by_ring(route, self._lanes[name], request, task)
        doubtful = doubtful or any(self._lanes[name].pool.is_missing_owners for name in searched)
        changes = request.method != "tasks/get"
        if doubtful and changes:  # others may acknowledge what they do not know
            raise OwnerUnknown("the owner of this task may be a backend that is not known here yet")
        candidates: list[Destination] = []
        for name, route in searched.items():
            lane = self._lanes[name]
            if lane.pool.state == "local":
                members = lane.pool.everyone
            else:
                try:
                    members = (self._by_ring(route, lane, request, task).choice.member,)
                except NoBackend:
                    members = ()
            candidates += [Destination(route, lane, member.chosen("search"), "task") for member in members]
        if len(candidates) == 1 and not doubtful:
            return self._by_ring(candidates[0].route, candidates[0].lane, request, task)
        if not candidates:
            raise NoBackend("no backend takes new work")
        if changes and len(searched) > 1:
            raise OwnerUnknown("more than one pool may own this task: ask for its state first")
        return SearchPlan(tuple(candidates), everyone=changes, doubtful=doubtful)

    @staticmethod
    def _by_ring(route: Route, lane: Lane, request: RoutingHeaders, task: str | None) -> Destination:
        """The ring's member, or, of a pool with none that takes new work, its only one."""
        everyone = lane.pool.everyone
        if len(everyone) == 1:
            return Destination(route, lane, everyone[0].chosen("ring"), "task", alone=True)
        choice = lane.pool.balance(request) if task is None else lane.pool.by_ring(task)
        return Destination(route, lane, choice, "task")
