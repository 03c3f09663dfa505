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

    __slots__ = (
        "_choices",
        "_sessions",
        "backend",
        "departed",
        "draining",
        "in_flight",
        "last_used",
        "session_news",
        "tag",
    )

    def __init__(self, pool: str, backend: Backend, *, tells: bool = False) -> None:
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
        self.session_news: dict[bytes, float | None] | None = {} if tells else None
        """By digest: when a session was last asked for, None if it ended; since whoever shares them took them away.
        None where nobody does."""

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
        self.session_told(_digest(session), now)

    def session_ended(self, session: str) -> None:
        """A session of this backend is over."""
        self.session_told(_digest(session), None)

    def session_told(self, digest: bytes, used: float | None) -> None:
        """The same, by digest, as another process saw it: `used` is when it was asked for, None if it is over."""
        if self.session_news is not None and len(self.session_news) < _MOST_SESSIONS:
            self.session_news[digest] = used
        if used is None:
            self._sessions.pop(digest, None)
            return
        self._sessions[digest] = used
        self._sessions.move_to_end(digest)
        if len(self._sessions) > _MOST_SESSIONS:
            self._sessions.popitem(last=False)

    def recent_sessions(self, now: float) -> int:
        """How many sessions were asked for within RECENT seconds."""
        while self._sessions and next(iter(self._sessions.values())) < now - RECENT:
            self._sessions.popitem(last=False)
        return len(self._sessions)

    def is_done(self, *, tasks: int, life: float, now: float) -> bool:
        """True if it departed and nothing is left that it could serve; `tasks`: held; `life`: of a pin, in seconds.

        A pin lives that long from the last answer about its task, so after as long without a request none is left. Of
        one that was never used here, what it owns is of a process before this one: its time begins when this is asked.
        """
        if self.departed and not self.last_used:
            self.last_used = now
        quiet = now - self.last_used > max(RECENT, life)
        return self.departed and quiet and not (tasks or self.recent_sessions(now) or self.in_flight)


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
