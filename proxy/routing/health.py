"""What probes and time say of a backend: whether it is up, and how much new work it gets after it was not.

Rules:
* A backend counts as up until `fall` probes in a row failed, from its first moment on: a start, of the proxy or of a
  whole fleet, is no outage. One that is down is up again after `rise` good probes in a row.
* One that came back gets a growing share of new work for a while, whatever kept it away: caches and pools of its own
  are cold, and with nothing in flight it would look like the least busy of all.
"""

from dataclasses import dataclass

SLOW_START = 10.0
"""Seconds until a backend that came back has its whole share. What breaks again within a few probes' time breaks
while it has little to lose."""
_LEAST_SHARE = 0.1  # at the first moment: enough for failures in a row to show within some seconds

DEFAULT_INTERVAL = 5.0  # seconds
DEFAULT_TIMEOUT = 2.0  # seconds
DEFAULT_RISE = 2
DEFAULT_FALL = 3


@dataclass(frozen=True, slots=True)
class Health:
    """How a pool's backends are probed."""

    path: str | None
    """Asked for by GET, with its query; None to ask `server/discover` where they speak MCP."""
    interval: float = DEFAULT_INTERVAL
    """Seconds from one probe of a backend to the next."""
    timeout: float = DEFAULT_TIMEOUT
    """Seconds for a whole probe; at most the interval."""
    rise: int = DEFAULT_RISE
    fall: int = DEFAULT_FALL


class Hysteresis:
    """Up or down, by what was heard last."""

    __slots__ = ("_against", "up")

    def __init__(self, *, up: bool = True) -> None:
        self.up = up
        self._against = 0  # probes in a row that say otherwise

    def heard(self, ok: bool, *, rise: int, fall: int) -> bool:
        """Takes in a probe's result. True if that changed whether the backend is up."""
        if ok is self.up:
            self._against = 0
            return False
        self._against += 1
        if self._against < (fall if self.up else rise):
            return False
        self._against = 0
        self.up = ok
        return True


def warmth(seconds: float) -> float:
    """The part of its share, more than 0 and at most 1, that a backend gets so long after it came back."""
    return min(1.0, max(_LEAST_SHARE, seconds / SLOW_START))
