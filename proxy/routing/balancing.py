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
    def weight(self) -> float:
        """Its share of new work relative to the others now; more than 0, and an integer but for a short time."""
        ...

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

    @property
    def name(self) -> str:
        """What it is called in configurations."""
        ...

    def pick(self, candidates: Sequence[C]) -> C: ...


class RoundRobin:
    """Each candidate in turn, in exact proportion to the weights, interleaved (smooth weighted round robin)."""

    name = "round_robin"

    def __init__(self) -> None:
        self._credit: dict[str, float] = {}

    def pick(self, candidates: Sequence[C]) -> C:
        credit, best = self._credit, candidates[0]
        total: float = 0
        most: float | None = None
        for candidate in candidates:
            weight = candidate.weight
            total += weight
            owed = credit[candidate.backend.id] = credit.get(candidate.backend.id, 0) + weight
            if most is None or owed > most:
                best, most = candidate, owed
        credit[best.backend.id] -= total
        return best


class LeastInFlight:
    """The candidate with the least work under way per weight; among equals each in turn, by weight as well."""

    name = "least_in_flight"

    def __init__(self) -> None:
        self._turns = RoundRobin()

    def pick(self, candidates: Sequence[C]) -> C:
        least: float | None = None
        equals: list[C] = []
        for candidate in candidates:
            load = candidate.in_flight / candidate.weight
            if least is None or load < least:
                least, equals = load, [candidate]
            elif load == least:
                equals.append(candidate)
        return equals[0] if len(equals) == 1 else self._turns.pick(equals)
