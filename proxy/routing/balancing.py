"""Who gets work that nobody owns: the seam BalancingPolicy and the policies that need no key.

Policies see only candidates that are fit and untried; health, drains and owners are the pool's business, before them.
"""

import heapq
from collections.abc import Sequence
from typing import Protocol, TypeVar

from proxy.routing.backends import Backend

MANY = 32
"""Candidates beyond which a policy does not look at all of them for every request."""
_LOOKS = 4  # of many candidates, at most so many are compared; with two, the most loaded is as good as ever found


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


class _Turns:
    """The turns of many candidates, by weight, interleaved: each comes again after 1/weight of a round.

    The next one costs as much as the logarithm of their number. They are those of one sequence; where another comes,
    who had a place keeps it.
    """

    def __init__(self) -> None:
        self._of: Sequence[Candidate] = ()
        self._due: list[tuple[float, int]] = []  # a heap of (place in the round, number of the candidate)

    def next(self, candidates: Sequence[C]) -> C:
        if candidates is not self._of:
            self._take(candidates)
        due, number = self._due[0]
        candidate = candidates[number]
        heapq.heapreplace(self._due, (due + 1 / candidate.weight, number))
        return candidate

    def _take(self, candidates: Sequence[Candidate]) -> None:
        before = {self._of[number].backend.id: due for due, number in self._due}
        now = min(before.values(), default=0.0)
        self._of = candidates
        self._due = [
            (before.get(one.backend.id, now + 0.5 / one.weight), number) for number, one in enumerate(candidates)
        ]
        heapq.heapify(self._due)


class RoundRobin:
    """Each candidate in turn, in exact proportion to the weights, interleaved (smooth weighted round robin).

    Of more than MANY, each comes when its turn is by weight.
    """

    name = "round_robin"

    def __init__(self) -> None:
        self._credit: dict[str, float] = {}
        self._turns = _Turns()

    def pick(self, candidates: Sequence[C]) -> C:
        if len(candidates) > MANY:
            return self._turns.next(candidates)
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
    """The candidate with the least work under way per weight; among equals each in turn, by weight as well.

    Of more than MANY, the first idle one, or the least busy, of the next _LOOKS whose turn it is.
    """

    name = "least_in_flight"

    def __init__(self) -> None:
        self._equals = RoundRobin()
        self._turns = _Turns()

    def pick(self, candidates: Sequence[C]) -> C:
        least: float | None = None
        if len(candidates) > MANY:
            best = candidates[0]
            for _ in range(_LOOKS):
                candidate = self._turns.next(candidates)
                load = candidate.in_flight / candidate.weight
                if least is None or load < least:
                    best, least = candidate, load
                if not load:
                    break
            return best
        equals: list[C] = []
        for candidate in candidates:
            load = candidate.in_flight / candidate.weight
            if least is None or load < least:
                least, equals = load, [candidate]
            elif load == least:
                equals.append(candidate)
        return equals[0] if len(equals) == 1 else self._equals.pick(equals)
