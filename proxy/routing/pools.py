"""Who gets this attempt: the owner, the ring's order, or the balancing policy; counts what is in flight.

Rules:
* The ring spans all configured members; who takes new work (`fit`) is asked when its order is walked, so that a drain
  or an ejection moves nobody else's keys. It is replaced whole when the configured members change.
* A member that left the configuration has *departed*: it takes no new work, but serves what it owns until nothing is
  left to serve, or until it refuses connections.
* Methods never await, so each is atomic on the event loop.
"""

import re
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from math import ceil, inf
from typing import Literal

from proxy.routing.backends import Backend
from proxy.routing.balancing import MANY, BalancingPolicy, LeastInFlight
from proxy.routing.errors import NoBackend
from proxy.routing.fitness import Fitness
from proxy.routing.headers import RoutingHeaders
from proxy.routing.health import Health
from proxy.routing.members import Choice, Member
from proxy.routing.outliers import OutlierRule
from proxy.routing.queueing import USUAL_LIMITS, Limits, Queue
from proxy.routing.ring import Ring

RING_LOAD = 1.25
"""With the ring, no backend gets more than this many times its share of what is in flight (bounded loads): the busiest
of 10 backends would otherwise get 2.5 times the mean with ordinary tool popularity."""

_GUESSES = 8  # that one of many members suits, before it is asked which do

STRANGE = 60.0
"""Seconds for which the owner of a task may be a backend that is not configured here yet."""
_MOST_STRANGERS = 1000

State = Literal["local", "shared"]
"""Where a pool's tasks live: `local` in the backend that made them, `shared` where every backend can answer."""

ListenRule = Literal["one", "all"]
"""Where a subscription is served: by `one` backend, or by `all`, their event streams merged."""
MOST_LISTENERS = 16
"""Configured backends that one subscription is opened at: each client's costs as many connections."""
_MOST_WITH_DEPARTED = 32
"""The same with those that left the configuration, and may still own a task that a subscription names."""


@dataclass(frozen=True, slots=True)
class RingKey:
    """Where the ring's key comes from: `kind` is name, authorization, param or header; `field` names the last two."""

    kind: str
    field: str = ""

    def of(self, request: RoutingHeaders) -> str | None:
        """The request's key, or None when it has none. Raises MalformedHeader."""
        if self.kind == "name":
            return request.decoded_name() if request.modern else None
        if self.kind == "param":
            return request.decoded_param(self.field) if request.modern else None
        return request.fields.get("authorization" if self.kind == "authorization" else self.field)


@dataclass(frozen=True, slots=True)
class Standing:
    """What is true of a pool's members beyond their configuration."""

    drains: Mapping[str, bool]
    """Whether a backend takes no new work, by id, where a command made it differ from its configuration."""
    departed: tuple[Backend, ...]
    """Those that left the configuration and may still own something."""
    down: tuple[str, ...] = ()
    """Ids of those that probes found down."""
    members: tuple[Backend, ...] = field(default=(), compare=False)
    """Those that have not departed."""
    incomplete: bool = field(default=False, compare=False)
    """As in Pool."""


class Pool:
    """Interchangeable backends. Members keep their configured order."""

    def __init__(
        self,
        name: str,
        backends: Sequence[Backend],
        *,
        policy: BalancingPolicy,
        ring_key: RingKey | None = None,
        owner_tag: re.Pattern[str] | None = None,
        state: State = "local",
        search: bool = True,
        sticky: bool = True,
        listen: ListenRule = "one",
        health: Health | None = None,
        outlier: OutlierRule | None = None,
        limits: Limits = USUAL_LIMITS,
        tells: bool = False,
    ) -> None:
        """`tells`: members keep news of their sessions for whoever shares them with other processes."""
        self.name = name
        self._tells = tells
        self.in_flight = 0
        self.ring_generation = 0
        self.members: tuple[Member, ...] = ()
        """The configured ones."""
        self.incomplete = False
        """True until those that are to be discovered are known: an owner may be one of them."""
        self.fitness = Fitness()
        """Which of them take new work; how attempts at them end is told there."""
        self.queue = Queue(lambda: self.fitness.fit)
        """How much may be in flight, and who waits."""
        self._unkeyed = LeastInFlight()
        self._by_id: dict[str, Member] = {}
        self._by_tag: dict[str, Member] = {}
        self._strangers: dict[str, float] = {}
        self._weights: dict[str, int] = {}
        self._ring = Ring(self._weights)
        self.configure(
            policy=policy,
            ring_key=ring_key,
            owner_tag=owner_tag,
            state=state,
            search=search,
            sticky=sticky,
            listen=listen,
            health=health,
            outlier=outlier,
            limits=limits,
        )
        self.replace(backends)

    def __repr__(self) -> str:
        return f"<Pool {self.name} {list(self._by_id.values())}>"

    def configure(
        self,
        *,
        policy: BalancingPolicy,
        ring_key: RingKey | None,
        owner_tag: re.Pattern[str] | None,
        state: State,
        search: bool,
        sticky: bool,
        listen: ListenRule,
        health: Health | None,
        outlier: OutlierRule | None,
        limits: Limits = USUAL_LIMITS,
    ) -> None:
        """Sets all that does not name members."""
        self.state = state
        self.search = search
        """True to ask the backends for the owner of a task that nobody knows."""
        self.sticky = sticky
        """True to keep legacy sessions on their backend."""
        self.listen: ListenRule = listen
        self._policy = policy
        self.ring_key = ring_key
        """What work that nobody owns is spread by, or None where a policy spreads all of it."""
        self._owner_tag = owner_tag
        self.queue.limits = limits
        self.fitness.configure(health, outlier)

    # ---- members
    @property
    def everyone(self) -> tuple[Member, ...]:
        """All that may own something: the configured members and the departed ones."""
        return tuple(self._by_id.values())

    def member(self, backend_id: str) -> Member | None:
        """The member with this id, departed ones included, or None."""
        return self._by_id.get(backend_id)

    @property
    def listeners(self) -> tuple[Member, ...]:
        """All members that serve each subscription together, in configured order; none where one serves it alone.

        Draining and departed ones are among them: a subscription may name tasks that they own. Where too many have
        departed, those that left first are left out.
        """
        if self.listen != "all":
            return ()
        departed = self.everyone[len(self.members) :]
        return (*self.members[:MOST_LISTENERS], *departed)[:_MOST_WITH_DEPARTED]

    @property
    def ring(self) -> Ring:
        """The ring of the configured members. Never changed, only replaced."""
        return self._ring

    @property
    def policy(self) -> str:
        """The name of the policy that picks where no key does."""
        return (self._policy if self.ring_key is None else self._unkeyed).name

    def tagged(self, tag: str) -> Member | None:
        """The member whose sessions carry this tag, departed ones included, or None."""
        return self._by_tag.get(tag)

    def tagged_owner(self, task_id: str) -> Member | None:
        """The member that the operator's `owner_tag` pattern reads from the task id, or None."""
        if self._owner_tag is None:
            return None
        found = self._owner_tag.match(task_id)
        return None if found is None else self._by_id.get(found["backend"])

    def spreads(self, backends: Iterable[Backend]) -> bool:
        """True if the ring for these backends is the one in use."""
        return self._weights == _weights_of(backends)

    def replace(self, backends: Sequence[Backend], *, ring: Ring | None = None) -> None:
        """Makes these the configured members. Those that stay keep their state; those no longer named depart.

        `ring`: that of these backends, where it was built before; for a thousand that takes a tenth of a second.
        """
        before = self._by_id
        members: list[Member] = []
        for backend in backends:
            member = before.get(backend.id)
            if member is None:
                member = Member(self.name, backend, tells=self._tells)
            elif member.departed or member.backend.drain is not backend.drain:
                member.draining = backend.drain
                if member.departed:  # nobody probed it meanwhile
                    member.set_up(True)
            member.backend, member.departed = backend, False
            members.append(member)
            self._strangers.pop(backend.id, None)
        staying = {member.backend.id for member in members}
        for member in before.values():
            if member.backend.id not in staying:
                member.departed, member.fit = True, False
        departed = [member for member in before.values() if member.departed]
        self.members = tuple(members)
        self._by_id = {member.backend.id: member for member in (*members, *departed)}
        self._by_tag = {member.tag: member for member in self._by_id.values()}
        if ring is not None or not self.spreads(backends):
            self._weights = _weights_of(backends)
            self._ring = Ring(self._weights) if ring is None else ring
        self.ring_generation += 1
        self.fitness.recount(self.members)

    @property
    def is_missing_owners(self) -> bool:
        """True if tasks may be on backends that are not discovered yet."""
        return self.incomplete and self.state == "local"

    @property
    def standing(self) -> "Standing":
        """What another process needs to know of this pool beside its configuration."""
        drains = {m.backend.id: m.draining for m in self.everyone if m.draining is not m.backend.drain}
        down = tuple(member.backend.id for member in self.members if not member.up)
        departed = tuple(member.backend for member in self.everyone if member.departed)
        return Standing(drains, departed, down, tuple(member.backend for member in self.members), self.incomplete)

    def take_over(self, standing: "Standing") -> None:
        """Makes that of a process before this one, or beside it, our own. Members we have and it has not stay."""
        self.incomplete = self.incomplete and standing.incomplete
        for backend in standing.departed:
            if backend.id not in self._by_id:
                member = self._by_id[backend.id] = Member(self.name, backend, tells=self._tells)
                member.departed, member.fit = True, False
                self._by_tag[member.tag] = member
        for backend_id, draining in standing.drains.items():
            if backend_id in self._by_id:
                self._by_id[backend_id].draining = draining
        for backend_id in standing.down:
            if backend_id in self._by_id:
                self._by_id[backend_id].set_up(False)
        self.fitness.recount(self.members)

    def set_draining(self, member: Member, draining: bool) -> None:
        """Takes a member out of new work, or back in."""
        member.draining = draining
        self.fitness.recount(self.members)

    def forget(self, member: Member) -> None:
        """Drops a departed member: nothing is left that it could serve."""
        if member.departed and self._by_id.get(member.backend.id) is member:
            del self._by_id[member.backend.id]
            del self._by_tag[member.tag]
            self._meet(member.backend.id, -inf)

    def may_come(self, backend_id: str, now: float) -> bool:
        """True if this owner, which is no member, may be one that others know already; `now`: monotonic, in seconds.

        A pin that several proxies share can name a backend before its configuration has reached all of them. So it is
        waited for, but not for ever: if it does not come within STRANGE seconds, or was forgotten here, it is gone.
        """
        self._meet(backend_id, now)
        return self.is_strange(backend_id, now)

    def is_strange(self, backend_id: str, now: float) -> bool:
        """The same, without taking note that it was asked for."""
        return now - self._strangers.get(backend_id, now) < STRANGE

    def _meet(self, backend_id: str, now: float) -> None:
        if len(self._strangers) >= _MOST_STRANGERS and backend_id not in self._strangers:
            self._strangers.pop(next(iter(self._strangers)))
        self._strangers.setdefault(backend_id, now)

    # ---- attempts
    def start(self, member: Member, now: float) -> None:
        """An attempt at this member begins. `now`: monotonic, in seconds."""
        member.in_flight += 1
        member.last_used = now
        self.in_flight += 1

    def end(self, member: Member) -> None:
        """An attempt at this member has ended, however."""
        member.in_flight -= 1
        self.in_flight -= 1

    def balance(self, request: RoutingHeaders, tried: Collection[Member] = ()) -> Choice:
        """A fit, untried member for work that nobody owns. Raises NoBackend, and MalformedHeader for the ring's key."""
        return self.spread(None if self.ring_key is None else self.ring_key.of(request), tried)

    def spread(self, key: str | None, tried: Collection[Member] = ()) -> Choice:
        """The same for a request with this key of the pool's ring, None without. Raises NoBackend."""
        if key is not None:
            return self._bounded(key, tried).chosen("ring")
        policy = self._policy if self.ring_key is None else self._unkeyed
        fit, queue = self.fitness.fit, self.queue
        if len(fit) > MANY:  # whoever is picked mostly will do
            for _ in range(_GUESSES):
                picked = policy.pick(fit)
                if picked not in tried and queue.has_room_at(picked):
                    return picked.chosen("balance")
        candidates = fit if not tried else tuple(member for member in fit if member not in tried)
        if not candidates:
            raise self._no_backend(tried)
        if queue.limits.per_backend is not None:  # of none with room, any is awaited
            candidates = tuple(filter(queue.has_room_at, candidates)) or candidates
        return policy.pick(candidates).chosen("balance")

    def by_ring(self, key: str, tried: Collection[Member] = ()) -> Choice:
        """The first fit, untried member in the ring's order for this key that has room at all, however busy.

        Raises NoBackend.
        """
        return self._first_taker(key, tried, lambda member: True).chosen("ring")

    def candidates(self) -> Sequence[Member]:
        """Those that take new work, in configured order. Raises NoBackend."""
        if not self.fitness.fit:
            raise self._no_backend(())
        return tuple(filter(self.queue.has_room_at, self.fitness.fit)) or self.fitness.fit

    def in_order(self, key: str) -> list[Member]:
        """The configured members in the ring's order for this key, fit or not."""
        return [self._by_id[backend_id] for backend_id in self._ring.order(key)]

    def _bounded(self, key: str, tried: Collection[Member]) -> Member:
        """The first in the ring's order that has not more than its share of what is under way."""
        if self.fitness.fit and not tried:  # mostly the very first
            first = self._by_id[self._ring.first(key)]
            if first.fit and self._has_room(first) and self.queue.has_room_at(first):
                return first
        return self._first_taker(key, tried, self._has_room)

    def _first_taker(self, key: str, tried: Collection[Member], suits: Callable[[Member], bool]) -> Member:
        """The first in the ring's order that takes new work, has room and suits; else the first with room; else the
        first. Raises NoBackend.
        """
        first: Member | None = None
        roomy: Member | None = None
        for backend_id in self._ring.walk(key):
            member = self._by_id[backend_id]
            if not member.fit or member in tried:
                continue
            first = first or member
            if self.queue.has_room_at(member):
                roomy = roomy or member
                if suits(member):
                    return member
        if first is None:
            raise self._no_backend(tried)
        return roomy or first

    def _has_room(self, member: Member) -> bool:
        share = RING_LOAD * (self.in_flight + 1) * member.backend.weight / self.fitness.weight
        return member.in_flight < ceil(share)

    def _no_backend(self, tried: Collection[Member]) -> NoBackend:
        what = "every backend was tried" if tried and self.fitness.fit else "no backend takes new work"
        return NoBackend(f"pool {self.name}: {what}")


def _weights_of(backends: Iterable[Backend]) -> dict[str, int]:
    return {backend.id: backend.weight for backend in backends}
