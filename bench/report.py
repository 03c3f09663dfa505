"""PURE: turns the measurements of all slices into one row for each target, and the rows into text or JSON values."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from statistics import median

from bench.slices import Measurement

BASELINE = "nginx"
HEADINGS = ("target", "CPU us/request", "[min - max]", f"x {BASELINE}", "requests/s", "p50 ms", "p99 ms", "RSS MB")


@dataclass(frozen=True, slots=True)
class Row:
    """One target over all rounds: medians, except where the name says otherwise.

    ``ratio`` is the median of each round's own ratio to the baseline, since neighbours in time saw the same machine;
    it is None where the baseline was not measured.
    """

    target: str
    cpu_us: float
    cpu_us_min: float
    cpu_us_max: float
    ratio: float | None
    requests_per_second: float
    p50_ms: float
    p99_ms: float
    resident_mb_max: float


def summarise(rounds: Sequence[Mapping[str, Measurement]]) -> list[Row]:
    """One row for each target. ``rounds`` holds one round at least, and every round the same targets."""
    return [_row(target, rounds) for target in rounds[0]]


def table(rows: Sequence[Row]) -> str:
    """The rows as lines of text in columns."""
    lines = [HEADINGS, *(_cells(row) for row in rows)]
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    return "\n".join(
        "  ".join(cell.rjust(width) if index else cell.ljust(width) for index, (cell, width) in enumerate(columns))
        for columns in (list(zip(line, widths, strict=True)) for line in lines)
    )


def as_json(
    rows: Sequence[Row], rounds: Sequence[Mapping[str, Measurement]], settings: Mapping[str, object]
) -> dict[str, object]:
    """Everything that was asked and measured, ready for ``json.dump``."""
    return {
        "settings": dict(settings),
        "targets": [asdict(row) for row in rows],
        "rounds": [{target: asdict(measurement) for target, measurement in each.items()} for each in rounds],
    }


def ratio(rounds: Sequence[Mapping[str, Measurement]], target: str, *, to: str) -> float | None:
    """The median of each round's own ratio of costs; None where one of the two was not measured."""
    ratios = [
        each[target].cpu_us_per_request / each[to].cpu_us_per_request
        for each in rounds
        if target in each and to in each
    ]
    return median(ratios) if ratios else None


def _row(target: str, rounds: Sequence[Mapping[str, Measurement]]) -> Row:
    own = [each[target] for each in rounds]
    costs = [measurement.cpu_us_per_request for measurement in own]
    return Row(
        target=target,
        cpu_us=median(costs),
        cpu_us_min=min(costs),
        cpu_us_max=max(costs),
        ratio=ratio(rounds, target, to=BASELINE),
        requests_per_second=median(measurement.requests / measurement.seconds for measurement in own),
        p50_ms=median(measurement.p50_ms for measurement in own),
        p99_ms=median(measurement.p99_ms for measurement in own),
        resident_mb_max=max(measurement.resident_bytes for measurement in own) / 1e6,
    )


def _cells(row: Row) -> tuple[str, ...]:
    return (
        row.target,
        f"{row.cpu_us:.1f}",
        f"[{row.cpu_us_min:.1f} - {row.cpu_us_max:.1f}]",
        "-" if row.ratio is None else f"{row.ratio:.2f}",
        f"{row.requests_per_second:,.0f}",
        f"{row.p50_ms:.2f}",
        f"{row.p99_ms:.2f}",
        f"{row.resident_mb_max:.1f}",
    )
