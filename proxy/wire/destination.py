"""Where a request goes: the owner of its task or session, the backend that asked back, or one of its route's pool.

* A request about a task: its pin, pool by pool in route order; then the tag in its id; then a search, where there is
  more than one backend to ask and the pool has it switched on; else the ring.
* A request of a legacy session: the backend that its id is tagged with.
* A subscription, in a pool whose members serve it together: all of them.
* Anything else: the first matching route; its pool prefers the backend that asked back in a round before this one, or
  that the connection's last page of the same list came from, and balances the rest.
A pin store may answer later, and then so does this; everything else is known at once.
"""

import asyncio
import time
from collections.abc import Callable, Collection, Coroutine, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, NamedTuple, TypeAlias

from proxy.pins.store import POOL_ITSELF, Answer, Pin, PinStore, PinStoreError
from proxy.routing.errors import NoBackend, NoRoute, OwnerUnknown, SessionOwnerGone
from proxy.routing.headers import RoutingHeaders
from proxy.routing.members import Choice, Member
from proxy.routing.ownership import pin_key, split_session
from proxy.routing.pools import Pool
from proxy.routing.rounds import LISTS, ConnectionMemory, Rounds
from proxy.routing.routes import Route, RoutingTable
from proxy.wire.backend import BackendConnections


@dataclass(frozen=True, slots=True)
class Lane:
    """A pool as exchanges use it: who may serve, and the connections to each."""

    pool: Pool
    connections: dict[Member, BackendConnections]
    """Of every member, whoever comes and goes: one dict for a pool's whole life."""
    own_host: bool
    """True to send each backend its own name as Host instead of the client's."""
    owner_wait: float
    """Seconds to wait for an owner that cannot be reached, and for the answers to a search."""


Kind = Literal["task", "session", "round", "none"]
"""What binds a request to a backend, or makes it prefer one."""


class Destination(NamedTuple):
    """Where one attempt goes, and by which rule."""

    route: Route
    lane: Lane
    choice: Choice
    kind: Kind
    session: str = ""
    """For the kind session: the id as the backend knows it."""
    alone: bool = False
    """For the kind task: nobody else could own it, so this backend is awaited like an owner that is known."""

    @property
    def bound(self) -> bool:
        """True if no other backend can serve the request."""
        return self.kind in ("task", "session") and (self.alone or self.choice.bound)


class SearchPlan(NamedTuple):
    """Whom to ask for the owner of a task that nobody knows."""

    candidates: tuple[Destination, ...]
    everyone: bool = False
    """True to send to all or to none and to await every answer, for requests that change something."""
    likely: bool = False
    """True to ask the first candidate alone at first, and the others only if it does not know the task."""
    doubtful: bool = False
    """True if the owner may be a backend that is not configured here yet: that nobody knows the task proves nothing."""


class ListenPlan(NamedTuple):
    """A subscription that these members serve together."""

    route: Route
    lane: Lane
    members: tuple[Member, ...]

    def at(self, member: Member) -> Destination:
        """Its part at this member."""
        return Destination(self.route, self.lane, member.chosen("balance"), "none")

    def at_one(self, request: RoutingHeaders) -> Destination:
        """The same at one backend alone. Raises NoBackend, MalformedHeader."""
        return Destination(self.route, self.lane, self.lane.pool.balance(request), "none")


Found: TypeAlias = Destination | SearchPlan | ListenPlan


class Directory:
    """Finds destinations with the routes, pools and pins in force."""

    def __init__(
        self,
        table: RoutingTable,
        lanes: Mapping[str, Lane],
        pins: PinStore,
        rounds: Rounds,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.table = table
        """The routes in force."""
        self._lanes = lanes
        self._pins = pins
        self._rounds = rounds
        self._clock = clock

    def find(
        self, request: RoutingHeaders, task: str | None, client: str, memory: ConnectionMemory
    ) -> Found | Coroutine[None, None, Found]:
        """Where the request goes; `task`: the decoded id for a request about one; `client`: the client's address.

        At once, or as a coroutine where the pin store answers later. Both raise NoRoute, NoBackend, MalformedHeader,
        SessionOwnerGone, OwnerUnknown.
        """
        if request.is_task:
            return self._find_owner(request, task, memory)
        if request.is_session:
            owner = self._find_session(request)
            if owner is not None:
                return owner
        route = self.table.route_for(request)
        if route is None:
            raise NoRoute("no route matches this request")
        lane = self._lanes[self.table.pool_for(route)]
        if request.is_listen and len(lane.pool.listeners) > 1:
            return ListenPlan(route, lane, lane.pool.listeners)
        if request.modern and (memory.rounds or self._rounds):
            asker = self._asker(lane, request, client, memory)
            if asker is not None:
                return Destination(route, lane, asker.chosen("pin"), "round")
        if request.method in LISTS and request.modern:
            return Destination(route, lane, self._for_list(lane, request, client, memory), "none")
        return Destination(route, lane, lane.pool.balance(request), "none")

    def find_another(
        self, request: RoutingHeaders, task: str | None, failed: Destination, tried: Collection[Member]
    ) -> Destination:
        """Where the request goes after an attempt that sent nothing, in the same pool. Raises NoBackend."""
        pool = failed.lane.pool
        choice = pool.balance(request, tried) if task is None else pool.by_ring(task, tried)
        return failed._replace(choice=choice, kind="task" if failed.kind == "task" else "none")

    def _asker(self, lane: Lane, request: RoutingHeaders, client: str, memory: ConnectionMemory) -> Member | None:
        """The backend that waits for this round, if it can be asked."""
        asker = self._rounds.asker(lane.pool.name, request, client, memory.rounds)
        return None if asker is None else lane.pool.member(asker)

    def _for_list(self, lane: Lane, request: RoutingHeaders, client: str, memory: ConnectionMemory) -> Choice:
        """The backend that the last page of such a list came from, on this connection or else just now to this caller,
        if it takes new work; or any other.

        A cursor may mean nothing to a sibling, and siblings may differ for a while, as when a new release comes up.
        """
        name = lane.pool.name
        pool, backend = memory.lists.get(request.method, ("", ""))
        before = backend if pool == name else self._rounds.lister(name, request, client)
        member = None if before is None else lane.pool.member(before)
        if member is not None and member.fit:
            choice = member.chosen("pin")
        else:
            choice = lane.pool.balance(request)
            self._rounds.listed(name, request, client, choice.member.backend.id)
        memory.lists[request.method] = (name, choice.member.backend.id)
        return choice

    # ---- sessions
    def _find_session(self, request: RoutingHeaders) -> Destination | None:
        """The session's backend; None where sessions are balanced like all else. Raises SessionOwnerGone, NoRoute."""
        tag, own = split_session(request.session or "")
        reachable = self.table.reachable_by_session(request)
        for name, route in reachable.items():
            lane = self._lanes[name]
            owner = lane.pool.tagged(tag) if lane.pool.sticky else None
            if owner is not None:
                return Destination(route, lane, owner.chosen("tag"), "session", own)
        if not reachable:
            raise NoRoute("no route matches this request")
        if all(self._lanes[name].pool.sticky for name in reachable):
            raise SessionOwnerGone("this session's server is not known here: initialize anew")
        return None

    # ---- tasks
    def _find_owner(
        self, request: RoutingHeaders, task: str | None, memory: ConnectionMemory
    ) -> Found | Coroutine[None, None, Found]:
        reachable = self.table.reachable(request)
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
                    return self._find_owner_later(request, task, reachable, names[index:], pin)
                owner = self._pinned(reachable[name], name, pin, request, task)
                if owner is not None:
                    return owner
                doubtful = doubtful or self._is_stranger(name, pin)
        except PinStoreError:
            pass  # it knows nothing
        return self._without_pin(request, task, reachable, doubtful=doubtful)

    async def _find_owner_later(
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
            return self._by_ring(route, self._lanes[name], request, task)
        changes = request.method != "tasks/get"
        if doubtful and changes:  # others may acknowledge what they do not know
            raise OwnerUnknown("the owner of this task is not configured here yet")
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
