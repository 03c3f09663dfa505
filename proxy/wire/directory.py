"""Where a request goes: the owner of its task or session, the backend that asked back, or one of its route's pool.

* A request about a task: its owner, or a search for it: see wire.owners.
* A request of a legacy session: the backend that its id is tagged with.
* A subscription, in a pool whose members serve it together: all of them.
* Anything else: the first matching route; its pool prefers the backend that asked back in a round before this one, or
  that the connection's last page of the same list came from, and balances the rest.
"""

import time
from collections.abc import Callable, Collection, Coroutine, Mapping

from proxy.pins.store import PinStore
from proxy.routing.errors import NoBackend, NoRoute, ProxyError, SessionOwnerGone
from proxy.routing.headers import RoutingHeaders
from proxy.routing.members import Choice, Member
from proxy.routing.ownership import split_session
from proxy.routing.retries import must_be_answered
from proxy.routing.rounds import LISTS, ConnectionMemory, Rounds
from proxy.routing.table import RoutingTable
from proxy.wire.destination import Destination, Found, Lane, ListenPlan
from proxy.wire.owners import Owners


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
        self._rounds = rounds
        self._owners = Owners(table, lanes, pins, clock)

    def find(
        self, request: RoutingHeaders, task: str | None, client: str, memory: ConnectionMemory
    ) -> Found | Coroutine[None, None, Found]:
        """Where the request goes; `task`: the decoded id for a request about one; `client`: the client's address.

        At once, or as a coroutine where the pin store answers later. Both raise NoRoute, NoBackend, MalformedHeader,
        SessionOwnerGone, OwnerUnknown.
        """
        if request.is_task:
            return self._owners.find(request, task, memory)
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

    def find_living(
        self, request: RoutingHeaders, failed: Destination | None = None, tried: Collection[Member] = ()
    ) -> Destination:
        """Where a request goes that any backend that lives has to answer, one that takes no new work included.

        `failed`: where it went before, if it did; the pool stays the same. Raises NoRoute, NoBackend, MalformedHeader.
        """
        if failed is None:
            route = self.table.route_for(request)
            if route is None:
                raise NoRoute("no route matches this request")
            lane = self._lanes[self.table.pool_for(route)]
        else:
            route, lane = failed.route, failed.lane
        try:
            choice = lane.pool.balance(request, tried)
        except NoBackend:
            left = [member for member in lane.pool.everyone if member not in tried]
            if not left:
                raise
            choice = min(left, key=lambda member: member.in_flight).chosen("balance")
        return Destination(route, lane, choice, "none")

    def living_after(self, error: ProxyError, request: RoutingHeaders) -> Destination | None:
        """Where else a request goes that must be answered, though no backend takes new work; None: nowhere."""
        if error.status < 500 or not must_be_answered(request):
            return None
        try:
            return self.find_living(request)
        except ProxyError:
            return None

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
        if any(self._lanes[name].pool.incomplete for name in reachable):
            raise NoBackend("the backends are not all discovered yet: one of them may have this session")
        if all(self._lanes[name].pool.sticky for name in reachable):
            raise SessionOwnerGone("this session's server is not known here: initialize anew")
        return None
