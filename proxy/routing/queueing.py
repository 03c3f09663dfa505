"""Who may be sent to a pool's backends now, and who waits: the limits of what is in flight, and the queue beyond them.

Rules:
* A pool has so many slots, and each of its backends as well where `per_backend` says so. An attempt holds one of both.
* Streams that last as long as their client likes (subscriptions, the GET of a session) hold none: they are no work, and
  would use up what is meant for it. `server/discover` holds none and never waits: official clients take an error for a
  server of the older protocol.
* Beyond the limits requests wait. Those about a task or a session and those that answer a server's question go before
  new work: they finish what was begun. Among equals, client addresses take turns, and each keeps its own order.
* A full queue sends the last of the new work away for one that finishes what was begun; and for one of its kind, the
  last of an address that has clearly more waiting. Else it refuses who comes.
* Who has an owner waits for that owner's slot, anybody else for a slot of any backend that takes new work.
"""

from collections import OrderedDict, deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from proxy.routing.headers import LISTEN, RoutingHeaders
from proxy.routing.members import Member

DISCOVER = "server/discover"
_UNLIMITED = frozenset({LISTEN, DISCOVER})


@dataclass(frozen=True, slots=True)
class Limits:
    """What a pool takes at once, in this process."""

    in_flight: int = 1000
    per_backend: int | None = None
    """Of that, at each of its backends; None: as much as comes."""
    queue: int = 100
    """Requests that wait; 0: none, whatever is beyond the limits is refused at once."""
    queue_wait: float = 1.0
    """Seconds that each may wait."""


USUAL_LIMITS = Limits()
"""Where nothing else is configured."""


def is_limited(request: RoutingHeaders) -> bool:
    """True for a request that holds a slot while it is under way."""
    if request.modern:
        return request.method not in _UNLIMITED
    return request.verb != "GET" or request.session is None


def is_discovery(request: RoutingHeaders) -> bool:
    """True for a request that is never told of an overload."""
    return request.modern and request.method == DISCOVER


@dataclass(eq=False, slots=True)
class Ticket:
    """One request that waits."""

    address: str
    """The client's."""
    begun: bool
    """True if it finishes what was begun."""
    owner: Member | None
    """The one backend that can serve it, if it has one."""
    tell: Callable[[bool], None]
    """To be called, by whoever is given this ticket: with True when a slot is its own, with False if it has to go."""
    admitted: bool = False
    """True once a slot is its own."""


_Line = OrderedDict[str, deque[Ticket]]


class Queue:
    """The slots of one pool, and who waits for them. `takers`: the members that take new work, asked each time."""

    def __init__(self, takers: Callable[[], Sequence[Member]]) -> None:
        self.limits = USUAL_LIMITS
        """Those in force."""
        self.taken = 0
        """Slots of the pool that are taken."""
        self._takers = takers
        self._promised = 0  # slots taken by those that have not chosen a backend yet
        self._waiting = 0
        self._begun: _Line = OrderedDict()
        self._new: _Line = OrderedDict()

    def __len__(self) -> int:
        """How many wait."""
        return self._waiting

    # ---- slots
    def enter(self, member: Member) -> bool:
        """Takes a slot at this member, if there is one. On the fast path."""
        limits = self.limits
        if self.taken >= limits.in_flight:
            return False
        if limits.per_backend is not None and not self._has_room(member, limits.per_backend):
            return False
        self.taken += 1
        member.working += 1
        return True

    def leave(self, member: Member | None) -> Sequence[Ticket]:
        """Gives a slot back; returns those that have one from now on, to be told so.

        `member` is None for a slot that was got by waiting, without an owner, and has not been settled.
        """
        self.taken -= 1
        if member is None:
            self._promised -= 1
        else:
            member.working -= 1
        return self.admit() if self._waiting else ()

    def settle(self, member: Member) -> None:
        """A slot that was got by waiting, without an owner, is used at this member."""
        self._promised -= 1
        member.working += 1

    def has_room_at(self, member: Member) -> bool:
        """True unless the member has all that one backend may have."""
        return self.limits.per_backend is None or member.working < self.limits.per_backend

    # ---- waiting
    def join(self, ticket: Ticket) -> Ticket | None:
        """Lets the ticket wait. Returns who has to go for it, itself where there is no place for it; None: nobody."""
        leaving = None
        if self._waiting >= self.limits.queue:
            leaving = self._displaced_by(ticket)
            if leaving is None:
                return ticket
            self.give_up(leaving)
        line = self._begun if ticket.begun else self._new
        line.setdefault(ticket.address, deque()).append(ticket)
        self._waiting += 1
        return leaving

    def give_up(self, ticket: Ticket) -> None:
        """The ticket waits no longer."""
        line = self._begun if ticket.begun else self._new
        waiting = line.get(ticket.address)
        if waiting is not None and ticket in waiting:
            waiting.remove(ticket)
            self._waiting -= 1
            if not waiting:
                del line[ticket.address]

    def _displaced_by(self, ticket: Ticket) -> Ticket | None:
        """Who makes place for it in a full queue; None: nobody has to."""
        line = self._new if self._new or not ticket.begun else self._begun
        if not line:
            return None
        longest = max(line.values(), key=len)
        ahead = len(longest) - (len(line.get(ticket.address, ())) + 1)
        return longest[-1] if ahead > 0 or (ticket.begun and line is self._new) else None

    def admit(self) -> Sequence[Ticket]:
        """Those that have a slot from now on, to be told so; to be asked when limits or backends have changed."""
        if not self._waiting:
            return ()
        admitted: list[Ticket] = []
        while self.taken < self.limits.in_flight:
            ticket = self._next()
            if ticket is None:
                break
            self.taken += 1
            if ticket.owner is None:
                self._promised += 1
            else:
                ticket.owner.working += 1
            ticket.admitted = True
            admitted.append(ticket)
        return admitted

    def _next(self) -> Ticket | None:
        """Takes out of the queue whose turn it is, and whose backends have room."""
        most = self.limits.per_backend
        anywhere = most is None or self._is_free_somewhere(most)
        for line in (self._begun, self._new):
            for address, waiting in line.items():
                for ticket in waiting:
                    owner = ticket.owner
                    if anywhere if owner is None else most is None or self._has_room(owner, most):
                        self.give_up(ticket)
                        if address in line:
                            line.move_to_end(address)  # the others' turn first
                        return ticket
        return None

    def _has_room(self, member: Member, most: int) -> bool:
        """True if this member has, and is not the last room of somebody who waited and is about to choose."""
        if member.working >= most:
            return False
        return not self._promised or member not in self._takers() or self._is_free_somewhere(most)

    def _is_free_somewhere(self, most: int) -> bool:
        return sum(max(0, most - member.working) for member in self._takers()) > self._promised
