"""Where a request would go, and why: the decisions of the data path, told instead of made.

Rules:
* Nothing is used up: no turn of a split or a policy moves, nothing is counted, no pin is touched. So where a turn
  decides, all whose turn it may be are told.
* What was looked up elsewhere comes in as values: the task's pins, and who asked back in a round before.
* What comes out may be shown to an operator: of a task or a secret key only a digest, of a session nothing.
"""

from collections.abc import Callable, Mapping, Sequence

from proxy.routing.conditions import Asked, first_unmet, is_about_tasks, quoted
from proxy.routing.errors import MalformedHeader, NoBackend, NoRoute, OwnerUnknown, ProxyError, SessionOwnerGone
from proxy.routing.explanation import Explanation, Failure, Place, RingOrder, Standing, Verdict
from proxy.routing.headers import RoutingHeaders, is_secret
from proxy.routing.members import Member, Source
from proxy.routing.ownership import short_digest, split_session
from proxy.routing.pools import Pool, RingKey
from proxy.routing.rounds import LISTS
from proxy.routing.routes import Route
from proxy.routing.table import RoutingTable

THE_POOL = ""
"""Instead of a backend's id: the pin names the pool only, since every backend there can answer."""


def explain(
    request: RoutingHeaders,
    task: str | None,
    *,
    table: RoutingTable,
    pools: Mapping[str, Pool],
    pins: Mapping[str, str],
    asker: Callable[[str], str | None],
    lister: Callable[[str], str | None],
    stranger: Callable[[str, str], bool],
) -> Explanation:
    """Where the request would go on a connection that remembers nothing.

    `task`: the decoded id, for a request about one; `pins`: its owner's id by pool (THE_POOL for the pool itself);
    `asker`: by pool, the id of the backend whose question the request may answer; `lister`: whose list it may continue;
    `stranger`: by pool and id, whether a backend that is no member may be about to come.
    """
    return _Case(request, task, table, pools, pins, asker, lister, stranger).explanation()


class _Case:
    """One request, and what has been found out about it."""

    def __init__(
        self,
        request: RoutingHeaders,
        task: str | None,
        table: RoutingTable,
        pools: Mapping[str, Pool],
        pins: Mapping[str, str],
        asker: Callable[[str], str | None],
        lister: Callable[[str], str | None],
        stranger: Callable[[str, str], bool],
    ) -> None:
        self._request = request
        self._task = task
        self._table = table
        self._pools = pools
        self._pins = pins
        self._asker = asker
        self._lister = lister
        self._stranger = stranger
        self._doubtful = False
        self._asked: Asked = "all"
        self._verdicts: list[Verdict] = []
        self._reachable: tuple[str, ...] | None = None
        self._everyone = False
        self._notes: list[str] = []

    def explanation(self) -> Explanation:
        request, failure = self._request, None
        places: tuple[Place, ...] = ()
        try:
            places = self._places()
        except ProxyError as error:
            failure = self._failure(error)
        if len(places) == 1:
            failure = places[0].failure
        routes = {place.route for place in places}
        name = None
        try:
            name = request.decoded_name()
        except MalformedHeader as error:
            if failure is None:
                self._notes.append(str(error))
        return Explanation(
            request,
            kind="task" if request.is_task else "session" if request.is_session else "none",
            name=None if is_about_tasks(request) else name,
            task=short_digest(name) if name is not None and is_about_tasks(request) else None,
            asked=self._asked,
            verdicts=tuple(self._verdicts),
            rule=routes.pop() if len(routes) == 1 else None,
            reachable=self._reachable,
            places=places,
            everyone=self._everyone,
            failure=failure,
            notes=tuple(self._notes),
        )

    def _places(self) -> tuple[Place, ...]:
        if self._request.is_task:
            return self._about_task()
        if self._request.is_session:
            owner = self._of_session()
            if owner is not None:
                return (owner,)
        route = self._first_route()
        whole = sum(route.shares.values())
        return tuple(
            self._in_pool(route, self._pools[name], part, whole) for name, part in route.shares.items() if part
        )

    def _failure(self, error: ProxyError) -> Failure:
        return Failure.of(error, modern=self._request.modern)

    def _ask_every_route(self, asked: Asked) -> None:
        self._asked = asked
        self._verdicts = [Verdict(route.name, self._unmet(route)) for route in self._table.routes]

    def _unmet(self, route: Route) -> str:
        return first_unmet(route.match, self._request, self._asked)

    # ---- work that nobody owns
    def _first_route(self) -> Route:
        self._asked = "all"
        self._verdicts = []
        for route in self._table.routes:
            try:
                unmet = self._unmet(route)
            except MalformedHeader as error:
                self._verdicts.append(Verdict(route.name, str(error)))
                raise
            self._verdicts.append(Verdict(route.name, unmet))
            if not unmet:
                return route
        raise NoRoute("no route matches this request")

    def _in_pool(self, route: Route, pool: Pool, part: int, whole: int) -> Place:
        if self._request.is_listen and len(pool.listeners) > 1:
            standings = self._standings(route, pool.listeners)
            return Place(route.name, pool.name, "none", "balance", standings, together=True, part=part, whole=whole)
        asker = self._asker(pool.name) if self._request.modern else None
        member = None if asker is None else pool.member(asker)
        if member is not None:
            standings = self._standings(route, (member,))
            return Place(route.name, pool.name, "round", "pin", standings, part=part, whole=whole)
        lister = self._lister(pool.name) if self._request.modern and self._request.method in LISTS else None
        member = None if lister is None else pool.member(lister)
        if member is not None and member.fit:
            standings = self._standings(route, (member,))
            return Place(route.name, pool.name, "none", "pin", standings, part=part, whole=whole)
        try:
            source, members, ring, policy = self._balanced(pool)
        except ProxyError as error:
            return Place(route.name, pool.name, "none", None, failure=self._failure(error), part=part, whole=whole)
        standings = self._standings(route, members)
        return Place(route.name, pool.name, "none", source, standings, policy, ring, part=part, whole=whole)

    def _balanced(self, pool: Pool) -> tuple[Source, Sequence[Member], RingOrder | None, str]:
        """As Pool.balance does, but for the policy's turn. Raises NoBackend, MalformedHeader."""
        key = None if pool.ring_key is None else pool.ring_key.of(self._request)
        if pool.ring_key is None or key is None:
            return "balance", pool.candidates(), None, pool.policy
        shown = self._shown_key(pool.ring_key, key)
        return "ring", (pool.balance(self._request).member,), _ring_order(pool, key, shown), ""

    def _shown_key(self, ring_key: RingKey, key: str) -> str:
        secret = {
            "name": is_about_tasks(self._request),
            "authorization": True,
            "header": is_secret(ring_key.field),
        }
        return f"digest {short_digest(key)}" if secret.get(ring_key.kind, False) else quoted(key)

    # ---- sessions
    def _of_session(self) -> Place | None:
        """The session's backend; None where sessions are balanced like all else. Raises SessionOwnerGone, NoRoute."""
        self._ask_every_route("session")
        reachable = self._table.reachable_by_session(self._request)
        self._reachable = tuple(reachable)
        tag, _ = split_session(self._request.session or "")
        for name, route in reachable.items():
            pool = self._pools[name]
            owner = pool.tagged(tag) if pool.sticky else None
            if owner is not None:
                return Place(route.name, name, "session", "tag", self._standings(route, (owner,)))
        if not reachable:
            raise NoRoute("no route matches this request")
        if any(self._pools[name].incomplete for name in reachable):
            raise NoBackend("the backends are not all discovered yet: one of them may have this session")
        if all(self._pools[name].sticky for name in reachable):
            raise SessionOwnerGone("this session's server is not known here: initialize anew")
        self._notes.append("the session's id names no backend, and not all reachable pools keep sessions")
        return None

    # ---- tasks
    def _about_task(self) -> tuple[Place, ...]:
        self._ask_every_route("task")
        reachable = self._table.reachable(self._request)
        self._reachable = tuple(reachable)
        if not reachable:
            raise NoRoute("no route matches this request")
        if self._task is None:
            self._notes.append("there is no Mcp-Name: the owner of a task asked for on the same connection comes first")
            return self._search(None, reachable)
        owner = self._pinned(self._task, reachable) or self._tagged(self._task, reachable)
        return self._search(self._task, reachable) if owner is None else (owner,)

    def _pinned(self, task: str, reachable: Mapping[str, Route]) -> Place | None:
        for name, route in reachable.items():
            pinned = self._pins.get(name)
            if pinned is None:
                continue
            pool = self._pools[name]
            if pinned == THE_POOL:
                self._notes.append(f"the task's pin names the pool {name}, where every backend can answer")
                return self._unsearched(route, pool, task)
            owner = pool.member(pinned)
            if owner is not None:
                return Place(route.name, name, "task", "pin", self._standings(route, (owner,)))
            if self._stranger(name, pinned):
                self._doubtful = True
                self._notes.append(f"the task's pin in pool {name} names a backend that is not configured here yet")
            else:
                self._notes.append(f"the task's pin in pool {name} names a backend that is gone")
        return None

    def _tagged(self, task: str, reachable: Mapping[str, Route]) -> Place | None:
        for name, route in reachable.items():
            owner = self._pools[name].tagged_owner(task)
            if owner is not None:
                return Place(route.name, name, "task", "tag", self._standings(route, (owner,)))
        return None

    def _search(self, task: str | None, reachable: Mapping[str, Route]) -> tuple[Place, ...]:
        """Whom a search asks; a single candidate is simply sent to. Raises OwnerUnknown, NoBackend."""
        searched = {name: route for name, route in reachable.items() if self._pools[name].search}
        if not searched:
            name, route = next(iter(reachable.items()))
            if self._pools[name].is_missing_owners:
                raise OwnerUnknown("the backends are not all discovered yet: one of them may have this task")
            return (self._unsearched(route, self._pools[name], task),)
        self._doubtful = self._doubtful or any(self._pools[name].is_missing_owners for name in searched)
        if self._doubtful and self._request.method != "tasks/get":
            raise OwnerUnknown("the owner of this task may be a backend that is not known here yet")
        asked: list[Place] = []
        candidates = 0
        for name, route in searched.items():
            pool = self._pools[name]
            if pool.state == "local":
                members = self._standings(route, pool.everyone)
                if not members:
                    continue
                place, count = Place(route.name, name, "task", "search", members), len(members)
            else:
                try:
                    found, count = self._unsearched(route, pool, task), 1
                except NoBackend:
                    continue
                place = Place(route.name, name, "task", "search", found.backends, found.policy, found.ring)
            asked.append(place)
            candidates += count
        if candidates == 1 and not self._doubtful:
            name = asked[0].pool
            return (self._unsearched(searched[name], self._pools[name], task),)
        if not candidates:
            raise NoBackend("no backend takes new work")
        self._everyone = self._request.method != "tasks/get"
        if self._everyone and len(searched) > 1:
            raise OwnerUnknown("more than one pool may own this task: ask for its state first")
        return tuple(asked)

    def _unsearched(self, route: Route, pool: Pool, task: str | None) -> Place:
        """The ring's member, or, of a pool with none that takes new work, its only one. Raises NoBackend."""
        everyone = pool.everyone
        if len(everyone) == 1:
            return Place(route.name, pool.name, "task", "ring", self._standings(route, everyone))
        if task is not None:
            return self._by_task(route, pool, task)
        source, members, ring, policy = self._balanced(pool)
        return Place(route.name, pool.name, "task", source, self._standings(route, members), policy, ring)

    def _by_task(self, route: Route, pool: Pool, task: str) -> Place:
        members = (pool.by_ring(task).member,)
        ring = _ring_order(pool, task, f"task {short_digest(task)}")
        return Place(route.name, pool.name, "task", "ring", self._standings(route, members), ring=ring)

    def _standings(self, route: Route, members: Sequence[Member]) -> tuple[Standing, ...]:
        return tuple(_standing(route, member, self._request.path) for member in members)


def _ring_order(pool: Pool, key: str, shown: str) -> RingOrder:
    return RingOrder(shown, tuple(member.backend.id for member in pool.in_order(key)))


def _standing(route: Route, member: Member, path: str) -> Standing:
    backend = member.backend
    return Standing(
        backend.id,
        f"{backend.origin}{path if route.keeps_path else backend.path}",
        backend.weight,
        member.in_flight,
        member.draining,
        member.departed,
        member.up,
        member.ejected,
    )
