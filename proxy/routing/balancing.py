"""Who gets work that nobody owns: the seam BalancingPolicy and the policies that need no key.

Policies see only candidates that are fit and untried; health, drains and owners are the pool's business, before them.
"""

from collections.abc import Sequence
from typing import Protocol, TypeVar

from proxy.routing.backends import Backend


class Candidate(Protocol):
    """A pool's member as a policy sees it."""

    @property
    def backend(self) -> Backend: ...

    @property
    def in_flight(self) -> int:
        """Requests this proxy has under way at the backend."""
        ...


C = TypeVar("C", bound=Candidate)


class BalancingPolicy(Protocol):
    """Picks one of the candidates.

    Called once per attempt, on the event loop, without awaiting. `candidates` are never empty, already fit and untried,
    in configured order; the answer is one of them. May keep turns between calls, keyed by backend; raises nothing.
    """

    def pick(self, candidates: Sequence[C]) -> C: ...


class LeastInFlight:
    """The candidate with the least work under way per weight; among equals the turn goes round."""

    def __init__(self) -> None:
        self._turn = 0

    def pick(self, candidates: Sequence[C]) -> C:
        count = len(candidates)
        turn = self._turn = (self._turn + 1) % count
        best = candidates[turn]
        least = (best.in_flight + 1) / best.backend.weight
        for index in range(turn + 1 - count, turn):
            candidate = candidates[index]
            load = (candidate.in_flight + 1) / candidate.backend.weight
            if load < least:
                best, least = candidate, load
        return best


class RoundRobin:
    """Each candidate in turn, in exact proportion to the weights, interleaved (smooth weighted round robin)."""

    def __init__(self) -> None:
        self._credit: dict[str, int] = {}

    def pick(self, candidates: Sequence[C]) -> C:
        credit, total = self._credit, 0
        best, most = candidates[0], None
        for candidate in candidates:
            weight = candidate.backend.weight
            total += weight
            owed = credit[candidate.backend.id] = credit.get(candidate.backend.id, 0) + weight
            if most is None or owed > most:
                best, most = candidate, owed
        credit[best.backend.id] -= total
        return best
