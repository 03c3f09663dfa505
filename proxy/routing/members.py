"""A backend in its pool: what keeps it from new work, what it has under way, which sessions it was seen to hold."""

from collections import OrderedDict
from dataclasses import dataclass
from hashlib import blake2b
from typing import Literal

from proxy.routing.backends import Backend
from proxy.routing.health import Hysteresis, warmth
from proxy.routing.outliers import Conduct
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
        "_health",
        "_sessions",
        "backend",
        "conduct",
        "departed",
        "draining",
        "fit",
        "in_flight",
        "last_used",
        "probe",
        "session_news",
        "tag",
        "warm_since",
        "weight",
        "working",
    )

    def __init__(self, pool: str, backend: Backend, *, tells: bool = False) -> None:
        self.backend = backend
        self.tag = session_tag(pool, backend.id)
        """What stands before its session ids at the clients."""
        self.draining = backend.drain
        """True while it takes no new work, by configuration or command."""
        self.departed = False
        """True once it is no longer configured."""
        self.fit = not backend.drain
        """True if it takes new work; the pool says so."""
        self.conduct = Conduct()
        """How it served lately."""
        self.probe = ""
        """What the last probe found, in words; "" before there was one."""
        self.weight: float = backend.weight
        """Its share of new work now: the backend's weight, or less after it came back."""
        self.warm_since: float | None = None
        """Since when its share grows; None where it has its whole share."""
        self._health = Hysteresis()
        self.in_flight = 0
        self.working = 0
        """Of these, attempts that count for the limits; its pool's queue says which."""
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
    def withdrawn(self) -> bool:
        """True if an operator has taken it out of new work."""
        return self.draining or self.departed

    @property
    def up(self) -> bool:
        """True unless probes say that it is down."""
        return self._health.up

    @property
    def ejected(self) -> bool:
        """True while it is ejected for its failures."""
        return self.conduct.ejected

    def heard(self, ok: bool, *, rise: int, fall: int) -> bool:
        """Takes in a probe's result. True if that changed `up`."""
        return self._health.heard(ok, rise=rise, fall=fall)

    def set_up(self, up: bool) -> None:
        """Says whether it is up; probes start anew from that."""
        self._health = Hysteresis(up=up)

    def warm_up(self, now: float) -> None:
        """It is back: its share begins to grow. `now`: monotonic, in seconds, as below."""
        self.warm_since = now
        self.grow(now)

    def grow(self, now: float) -> None:
        """Gives it the share that it has by now."""
        if self.warm_since is not None:
            warm = warmth(now - self.warm_since)
            self.weight = self.backend.weight * warm if warm < 1.0 else self.backend.weight
            if warm >= 1.0:
                self.warm_since = None

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
