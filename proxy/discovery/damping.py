"""Whom to believe in when the answers about a pool's backends differ: who comes is in at once, who goes is out later.

Rules:
* Who is in an answer is in, as that answer tells of it.
* Who is missing stays until `hold` seconds have passed since the first answer without it, and another one without it
  has come; without a hold the first suffices. Name servers give parts of large sets, and files are written in steps.
* An answer with nobody in it, where there was somebody, is not believed for EMPTY_HOLD seconds, or `hold` if that is
  longer, nor before MOST_EMPTY of them have come in a row: until then everybody stays.
* Those from before the first answer (`seed`) are there until one with somebody in it, which replaces them all.
* No answer is no answer: time alone makes nobody leave.
"""

from collections.abc import Iterable
from dataclasses import dataclass

from proxy.routing.backends import Backend

EMPTY_HOLD = 30.0
"""Seconds; a name server that restarts, or a controller that writes its file anew, may say "nobody" for that long."""
MOST_EMPTY = 3


@dataclass(slots=True)
class _Missing:
    since: float
    answers: int = 0


class Damping:
    """The believed set of one pool. `hold` in seconds; `now`, below, is monotonic, in seconds."""

    def __init__(self, hold: float, seed: Iterable[Backend] = ()) -> None:
        self._hold = hold
        self._believed = {backend.id: backend for backend in seed}
        self._missing: dict[str, _Missing] = {}
        self._empty: _Missing | None = None
        self._seeded = True
        self.doubting = False
        """True if the last answer was empty, and was not believed."""

    @property
    def missing(self) -> list[str]:
        """The ids of those who stay although the last answers are without them."""
        return sorted(self._missing)

    def take(self, answer: Iterable[Backend], now: float) -> tuple[Backend, ...]:
        """The set to believe in after this answer: those in it as it has them, then those that are kept."""
        found = {backend.id: backend for backend in answer}
        self.doubting = False
        if found:
            self._empty = None
            kept = {} if self._seeded else self._kept(found, now)
            self._seeded = False
            self._believed = found | kept
        elif self._believed:
            self.doubting = not self._is_empty(now)
            if not self.doubting:
                self._believed, self._missing = {}, {}
        return tuple(self._believed.values())

    def _kept(self, found: dict[str, Backend], now: float) -> dict[str, Backend]:
        missing = {}
        for backend_id in self._believed.keys() - found.keys():
            known = self._missing.get(backend_id) or _Missing(now)
            known.answers += 1
            if self._hold and (known.answers < 2 or now - known.since < self._hold):
                missing[backend_id] = known
        self._missing = missing
        return {backend.id: backend for backend in self._believed.values() if backend.id in missing}

    def _is_empty(self, now: float) -> bool:
        if self._empty is None:
            self._empty = _Missing(now)
        self._empty.answers += 1
        return self._empty.answers >= MOST_EMPTY and now - self._empty.since >= max(self._hold, EMPTY_HOLD)
