"""Which backends are ejected for how they serve: the failures in a row, the time this costs, and how many may be out.

Rules:
* What counts is that a backend could not be connected to, closed before its answer was complete, or answered 502, 503
  or 504. Any other answer ends the row. What a client or the proxy did, or an answer that does not parse, is neither.
* An ejection ends by itself. Each one that follows another costs more time, up to LONGEST times the first; a good time
  as long as the first takes one step back.
* At most a share of a pool's members is out at once: rounded down, but one where there are two or more. So a pool of
  one loses nobody, and a rule is never without effect.
"""

from collections.abc import Collection
from dataclasses import dataclass

FAILURES = frozenset({502, 503, 504})
"""Answers that say the backend, or what it stands for, cannot serve now."""
LONGEST = 10
"""Times the first ejection that one may last at most."""


@dataclass(frozen=True, slots=True)
class OutlierRule:
    """When a pool's backends are ejected, and how many."""

    consecutive: int = 5
    """Failures in a row."""
    ejection: float = 30.0
    """Seconds, the first time."""
    max_ejected: int = 50
    """Percent of the pool's members."""

    def most(self, members: int) -> int:
        """How many of so many members may be out at once."""
        return 0 if members < 2 else max(1, members * self.max_ejected // 100)


USUAL = OutlierRule()
"""Where nothing else is said."""


class Conduct:
    """How one backend served lately, and whether it is ejected for it. Times: monotonic, in seconds."""

    __slots__ = ("_in_a_row", "ejected", "failures", "until")

    def __init__(self) -> None:
        self.failures = 0
        """In a row, up to now."""
        self.ejected = False
        self.until = 0.0
        """When the ejection ends, or the last one ended."""
        self._in_a_row = 0  # ejections

    def eject(self, rule: OutlierRule, now: float) -> None:
        """Ejects it for a time."""
        good = int(max(0.0, now - self.until) / rule.ejection)
        self._in_a_row = max(0, self._in_a_row - good) + 1
        self.until = now + rule.ejection * min(self._in_a_row, LONGEST)
        self.ejected = True

    def told(self, untils: Collection[float]) -> None:
        """Other processes have ejected it until then, each for itself; none, if there are no times."""
        self.ejected = bool(untils)
        self.until = max(untils, default=self.until)

    def readmit(self, now: float) -> None:
        """Ends the ejection; what it did before is forgiven, how often it was out is not."""
        self.ejected = False
        self.failures = 0
        self.until = min(self.until, now)
