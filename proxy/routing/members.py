"""A backend in its pool: whether it takes new work, what it has under way, which sessions it was seen to hold."""

from collections import OrderedDict
from dataclasses import dataclass
from hashlib import blake2b
from typing import Literal

from proxy.routing.backends import Backend
from proxy.routing.ownership import session_tag

Source = Literal["pin", "tag", "search", "ring", "balance"]
"""What named the backend."""
OWNER_SOURCES = frozenset({"pin", "tag", "search"})
"""Sources that bind: no other backend can serve the request."""
RECENT = 30 * 60.0
"""Seconds for which a session counts as recent after its last request; Python servers end idle ones after as long."""
_MOST_SESSIONS = 100_000  # of one member; servers cap theirs at 10,000


class Member:
    """The one place that knows how much work a backend has under way."""

    __slots__ = ("_choices", "_sessions", "backend", "departed", "draining", "in_flight", "last_used", "tag")

    def __init__(self, pool: str, backend: Backend) -> None:
        self.backend = backend
        self.tag = session_tag(pool, backend.id)
        """What stands before its session ids at the clients."""
        self.draining = backend.drain
        """True while it takes no new work, by configuration or command."""
        self.departed = False
        """True once it is no longer configured."""
        self.in_flight = 0
        self.last_used = 0.0
        """When the last attempt began; monotonic, in seconds."""
        self._choices: dict[Source, Choice] = {}
        self._sessions: OrderedDict[bytes, float] = OrderedDict()  # digest -> last request, the oldest first

    def __repr__(self) -> str:
        return f"<Member {self.backend.id} in_flight={self.in_flight}>"

    @property
    def fit(self) -> bool:
        """True if it takes new work."""
        return not self.draining and not self.departed

    def chosen(self, source: Source) -> "Choice":
        """The choice of this member; one value for each source, since every request needs one."""
        choice = self._choices.get(source)
        if choice is None:
            choice = self._choices[source] = Choice(self, source)
        return choice

    def session_seen(self, session: str, now: float) -> None:
        """A session of this backend was made, or asked for; `session` is the backend's own id."""
        key = _digest(session)
        self._sessions[key] = now
        self._sessions.move_to_end(key)
        if len(self._sessions) > _MOST_SESSIONS:
            self._sessions.popitem(last=False)

    def session_ended(self, session: str) -> None:
        """A session of this backend is over."""
        self._sessions.pop(_digest(session), None)

    def recent_sessions(self, now: float) -> int:
        """How many sessions were asked for within RECENT seconds."""
        while self._sessions and next(iter(self._sessions.values())) < now - RECENT:
            self._sessions.popitem(last=False)
        return len(self._sessions)


@dataclass(frozen=True, slots=True)
class Choice:
    """The backend of one attempt, and what named it."""

    member: Member
    source: Source

    @property
    def bound(self) -> bool:
        """True if no other backend can serve the request."""
        return self.source in OWNER_SOURCES


def _digest(session: str) -> bytes:
    return blake2b(session.encode("utf-8", "surrogatepass"), digest_size=8).digest()
