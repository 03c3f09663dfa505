"""Who gets this attempt: the owner, the ring's order, or the balancing policy; counts what is in flight.

A pool's methods never await, so each is atomic on the event loop. The ring spans all configured members; who takes new
work (`fit`) is asked when the ring's order is walked, so that a drain moves nobody else's keys.
"""

import re
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from math import ceil
from typing import Literal

from proxy.routing.backends import Backend
from proxy.routing.balancing import BalancingPolicy, LeastInFlight
from proxy.routing.errors import NoBackend
from proxy.routing.headers import RoutingHeaders
from proxy.routing.ring import Ring

RING_LOAD = 1.25
"""With the ring, no backend gets more than this many times its share of what is in flight (bounded loads): the busiest
of 10 backends would otherwise get 2.5 times the mean with ordinary tool popularity."""


Source = Literal["pin", "tag", "ring", "balance"]
"""What named the backend."""
OWNER_SOURCES = frozenset({"pin", "tag"})
"""Sources that bind: no other backend can serve the request."""


class Member:
    """A backend in its pool: the one place that knows how much work it has under way."""

    __slots__ = ("_choices", "backend", "in_flight")

    def __init__(self, backend: Backend) -> None:
        self.backend = backend
        self.in_flight = 0
        self._choices: dict[Source, Choice] = {}

    def __repr__(self) -> str:
        return f"<Member {self.backend.id} in_flight={self.in_flight}>"

    @property
    def fit(self) -> bool:
        """True if it takes new work."""
        return not self.backend.drain

    def chosen(self, source: Source) -> "Choice":
        """The choice of this member; one value for each source, since every request needs one."""
        choice = self._choices.get(source)
        if choice is None:
            choice = self._choices[source] = Choice(self, source)
        return choice


@dataclass(frozen=True, slots=True)
class Choice:
    """The backend of one attempt, and what named it."""

    member: Member
    source: Source

    @property
    def bound(self) -> bool:
        """True if no other backend can serve the request."""
        return self.source in OWNER_SOURCES


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
    ) -> None:
        self.name = name
        self.in_flight = 0
        self.members = tuple(Member(backend) for backend in backends)
        self.ring_generation = 1
        self._policy = policy
        self._unkeyed = LeastInFlight()
        self._ring_key = ring_key
        self._owner_tag = owner_tag
        self._by_id = {member.backend.id: member for member in self.members}
        self._fit = tuple(member for member in self.members if member.fit)
        self._fit_weight = sum(member.backend.weight for member in self._fit)
        self._ring = Ring({backend.id: backend.weight for backend in backends})

    def __repr__(self) -> str:
        return f"<Pool {self.name} {list(self.members)}>"

    def member(self, backend_id: str) -> Member | None:
        """The member with this id, or None if it is not of this pool."""
        return self._by_id.get(backend_id)

    def start(self, member: Member) -> None:
        """An attempt at this member begins."""
        member.in_flight += 1
        self.in_flight += 1

    def end(self, member: Member) -> None:
        """An attempt at this member has ended, however."""
        member.in_flight -= 1
        self.in_flight -= 1

    def tagged_owner(self, task_id: str) -> Member | None:
        """The member that the operator's `owner_tag` pattern reads from the task id, or None."""
        if self._owner_tag is None:
            return None
        found = self._owner_tag.match(task_id)
        return None if found is None else self._by_id.get(found["backend"])

    def balance(self, request: RoutingHeaders, tried: Collection[Member] = ()) -> Choice:
        """A fit, untried member for work that nobody owns. Raises NoBackend, and MalformedHeader for the ring's key."""
        if self._ring_key is not None:
            key = self._ring_key.of(request)
            if key is not None:
                return self._bounded(key, tried).chosen("ring")
        candidates = self._untried(tried)
        policy = self._policy if self._ring_key is None else self._unkeyed
        return policy.pick(candidates).chosen("balance")

    def by_ring(self, key: str, tried: Collection[Member] = ()) -> Choice:
        """The first fit, untried member in the ring's order for this key, however busy. Raises NoBackend."""
        candidates = self._untried(tried)
        first = self._by_id[self._ring.first(key)]
        if first not in candidates:
            first = next(member for member in self._in_order(key) if member in candidates)
        return first.chosen("ring")

    def _bounded(self, key: str, tried: Collection[Member]) -> Member:
        candidates = self._untried(tried)
        first = self._by_id[self._ring.first(key)]
        if first in candidates and self._has_room(first):
            return first
        order = [member for member in self._in_order(key) if member in candidates]
        return next((member for member in order if self._has_room(member)), order[0])

    def _has_room(self, member: Member) -> bool:
        share = RING_LOAD * (self.in_flight + 1) * member.backend.weight / self._fit_weight
        return member.in_flight < ceil(share)

    def _in_order(self, key: str) -> list[Member]:
        return [self._by_id[backend_id] for backend_id in self._ring.order(key)]

    def _untried(self, tried: Collection[Member]) -> Sequence[Member]:
        candidates = self._fit if not tried else tuple(member for member in self._fit if member not in tried)
        if not candidates:
            what = "every backend was tried" if tried else "no backend takes new work"
            raise NoBackend(f"pool {self.name}: {what}")
        return candidates
