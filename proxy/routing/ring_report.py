"""How a pool's ring spreads keys over its backends, and how many keys a change of backends would move.

The keys are made up and always the same, so that two runs can be compared. A share is that of *first* places: it counts
configured members, fit or not, and knows nothing of load.
"""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from proxy.routing.ring import Ring

DEFAULT_KEYS = 10_000
"""What is due to the choice of keys is then at most half a percent of a share, one standard deviation."""
MOST_KEYS = 1_000_000
"""Some seconds of work, and of no further use."""


class WrongChange(ValueError):
    """A change that cannot be made; the text says what was found and what there is."""


@dataclass(frozen=True, slots=True)
class RingRow:
    """One backend's part. Keys whose first place it is; None on the side of the change where it is not there."""

    backend: str
    weight: int
    before: int | None
    after: int | None


@dataclass(frozen=True, slots=True)
class RingReport:
    """`rows` are in configured order, added backends last. `moved`: keys whose first place changes, None if unasked."""

    keys: int
    rows: tuple[RingRow, ...]
    moved: int | None

    @property
    def moved_share(self) -> float:
        """The part of the keys that move, from 0 to 1."""
        return (self.moved or 0) / self.keys


def ring_report(
    weights: Mapping[str, int], *, add: Sequence[str] = (), remove: Sequence[str] = (), keys: int = DEFAULT_KEYS
) -> RingReport:
    """The shares of the backends in `weights` (id to weight), and with them what adding and removing ids would do.

    Added backends have weight 1. Raises WrongChange; ValueError unless `keys` is between 1 and MOST_KEYS.
    """
    if not 1 <= keys <= MOST_KEYS:
        raise ValueError(f"between 1 and {MOST_KEYS} keys")
    changed = _changed(weights, add, remove)
    sample = [f"key-{number}" for number in range(keys)]
    before = _firsts(weights, sample)
    if not add and not remove:
        return RingReport(keys, _rows(weights, before, {}, None), None)
    after = _firsts(changed, sample)
    moved = sum(old != new for old, new in zip(before, after, strict=True))
    return RingReport(keys, _rows(weights, before, changed, after), moved)


def _changed(weights: Mapping[str, int], add: Sequence[str], remove: Sequence[str]) -> dict[str, int]:
    there = ", ".join(weights)
    for backend, count in Counter((*add, *remove)).items():
        if count > 1:
            raise WrongChange(f"{backend!r} is named twice among the backends to add and to remove")
    for backend in add:
        if backend in weights:
            raise WrongChange(f"{backend!r} cannot be added: it is there already; the pool has {there}")
        if not backend.strip():
            raise WrongChange("a backend to add needs an id")
    for backend in remove:
        if backend not in weights:
            raise WrongChange(f"{backend!r} cannot be removed: the pool has {there}")
    changed = {backend: weight for backend, weight in weights.items() if backend not in remove}
    changed |= dict.fromkeys(add, 1)
    if not changed:
        raise WrongChange(f"a pool needs a backend: all it has are to be removed ({there})")
    return changed


def _firsts(weights: Mapping[str, int], sample: Iterable[str]) -> list[str]:
    ring = Ring(weights)
    return [ring.first(key) for key in sample]


def _rows(
    old: Mapping[str, int], before: Sequence[str], new: Mapping[str, int], after: Sequence[str] | None
) -> tuple[RingRow, ...]:
    had, gets = Counter(before), Counter(after or ())
    return tuple(
        RingRow(
            backend,
            weight,
            had[backend] if backend in old else None,
            gets[backend] if backend in new else None,
        )
        for backend, weight in {**old, **new}.items()
    )


def report_text(pool: str, report: RingReport) -> str:
    """The report as a small table: lines, the last one ended."""
    moves = report.moved is not None
    rows: list[tuple[str, ...]] = [("backend", "weight", "share", "after") if moves else ("backend", "weight", "share")]
    for row in report.rows:
        shares = (row.before, row.after) if moves else (row.before,)
        rows.append((row.backend, str(row.weight), *(_percent(share, report.keys) for share in shares)))
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    lines = [f"pool {pool}: {report.keys} sample keys by the backend that comes first"]
    for first, *others in rows:
        cells = [text.rjust(width) for text, width in zip(others, widths[1:], strict=True)]
        lines.append("  ".join([first.ljust(widths[0]), *cells]))
    if report.moved is not None:
        lines.append(f"the change moves {report.moved} of them, {_percent(report.moved, report.keys)}")
    return "".join(f"{line}\n" for line in lines)


def _percent(count: int | None, keys: int) -> str:
    return "-" if count is None else f"{100 * count / keys:.1f} %"
