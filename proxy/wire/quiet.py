"""How long an exchange has been quiet, by looking at it now and then.

Nothing is noted when bytes pass, so that they pass at no cost. Whoever looks tells how many have passed since the
exchange began, and it was quiet since the first look at which they were as many. So a quiet time is told too short by
up to the time between two looks, and never too long. Times are monotonic, in seconds.
"""

_SHARE = 16  # looks in the shortest limit: it may be over by a sixteenth when that is seen
_LEAST, _MOST = (
    0.5,
    5.0,
)  # seconds between looks: nobody looks more often; thousands of quiet streams cost next to nothing


def pause_between_looks(*limits: float | None) -> float:
    """Seconds until the next look at an exchange with these limits; None for one that it does not have."""
    return min(max(min(limit for limit in limits if limit is not None) / _SHARE, _LEAST), _MOST)


class Quiet:
    """One exchange with one backend. `waits`: its request is out, and no head of a response has come."""

    __slots__ = ("_commented", "_passed", "_since", "_waits")

    def __init__(self, now: float, *, passed: int, waits: bool) -> None:
        self._since = self._commented = now
        self._passed = passed
        self._waits = waits

    def look(self, now: float, *, passed: int, waits: bool) -> float:
        """Seconds for which no byte has passed, either way, nor the waiting begun or ended."""
        if passed > self._passed or waits is not self._waits:
            self._since, self._passed, self._waits = now, passed, waits
        return now - self._since

    def take_comment(self, now: float, *, every: float | None) -> bool:
        """True if neither bytes nor a comment have passed for so many seconds; then a comment does now."""
        if every is None or now - max(self._since, self._commented) < every:
            return False
        self._commented = now
        return True
