"""How a pool's new work is spread: what part goes to which backend, and what would if one of them took none.

New work is what nobody owns. Where a key spreads it, shares are those of all possible keys, exactly; but some keys are
asked for more often than others, and bounded loads even that out. Where a policy does, they follow the weights.
"""

from collections.abc import Mapping
from dataclasses import dataclass

from proxy.routing.fitness import fit_among
from proxy.routing.pools import Pool
from proxy.routing.ring import Ring

SLICES = 360
"""Places at which the ring is looked at to draw it: one for each degree."""
MOST_DRAWN = 8
"""Backends whose places on the ring are told apart in a drawing; with more it only flickers."""


@dataclass(frozen=True, slots=True)
class Part:
    """One backend's part of new work, from 0 to 1."""

    backend: str
    configured: float
    """If every backend took new work."""
    now: float
    after: float | None
    """Without the backend that was named; None where none was."""


@dataclass(frozen=True, slots=True)
class Spread:
    """What the parts follow from, taken at one moment; they can then be worked out in another thread."""

    ring: Ring | None
    """None where a policy spreads."""
    configured: Mapping[str, float]
    """Weights of all configured members, in their order."""
    now: Mapping[str, float]
    """Those of the members that take new work."""
    after: Mapping[str, float] | None

    def parts(self) -> list[Part]:
        """One for each configured backend."""
        configured = self._shares(self.configured)
        # Often all take new work, and the ring does not know of shares that still grow.
        same = self.ring is not None and self.now.keys() == self.configured.keys()
        now = configured if same else self._shares(self.now)
        after = None if self.after is None else self._shares(self.after)
        return [
            Part(backend, share, now.get(backend, 0.0), None if after is None else after.get(backend, 0.0))
            for backend, share in configured.items()
        ]

    def slices(self) -> list[str]:
        """Whose keys lie at SLICES places around the ring; none where that is not drawn."""
        if self.ring is None or not 0 < len(self.configured) <= MOST_DRAWN:
            return []
        return self.ring.slices(SLICES)

    def _shares(self, weights: Mapping[str, float]) -> Mapping[str, float]:
        return _by_weight(weights) if self.ring is None else self.ring.shares(weights)


def spread_of(pool: Pool, without: str | None = None) -> Spread:
    """How this pool spreads new work, and how it would if the backend `without` took none."""
    fit = fit_among(pool.members)
    return Spread(
        pool.ring if pool.ring_key is not None else None,
        {member.backend.id: member.backend.weight for member in pool.members},
        {member.backend.id: member.weight for member in fit},
        None if without is None else _left(pool, without),
    )


def _left(pool: Pool, without: str) -> dict[str, float]:
    others = [member for member in pool.members if member.backend.id != without]
    return {member.backend.id: member.weight for member in fit_among(others)}


def _by_weight(weights: Mapping[str, float]) -> dict[str, float]:
    whole = sum(weights.values())
    return {backend: weight / whole for backend, weight in weights.items()}
