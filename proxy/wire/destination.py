"""Where a request can go: to one backend, to those that may own a task, or to all that serve a subscription."""

from dataclasses import dataclass, field
from typing import Literal, NamedTuple, TypeAlias

from proxy.config.values import DEFAULT_HEAD_TIMEOUT, DEFAULT_IDLE_TIMEOUT
from proxy.routing.headers import RoutingHeaders
from proxy.routing.members import Choice, Member
from proxy.routing.pools import Pool
from proxy.routing.retries import ONE_REPEAT, RetryBudget, RetryRule
from proxy.routing.routes import Route
from proxy.wire.connections import BackendConnections


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
    head_timeout: float = DEFAULT_HEAD_TIMEOUT
    """Seconds from a request's last byte to the head of its response."""
    idle_timeout: float = DEFAULT_IDLE_TIMEOUT
    """Seconds in which nothing passes, either way, of a request or response that is under way."""
    comment_every: float | None = None
    """Seconds without a byte after which an event stream gets a comment; None: never."""
    retry: RetryRule = ONE_REPEAT
    budget: RetryBudget = field(default_factory=RetryBudget)
    """Of the pool, for its whole life."""


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
    """True if the owner may be a backend that is not known here yet: that nobody knows the task proves nothing."""


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
