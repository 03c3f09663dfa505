"""What a proxy's processes hold of the machine over time: memory, by regression, and descriptors."""

import statistics
from collections.abc import Iterable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

from tests.process.harness import children_of, memory_of

WARM_UP = 0.3
"""Of a run, in which caches, pools of memory and pins fill up."""
SHORTEST = 120.0
"""Seconds of a run from which a growth per minute can be told from noise."""
LIMIT = 1.0
"""MiB per minute, from which a proxy would have to be restarted every few weeks."""
MIB = 1024 * 1024


class Sample(NamedTuple):
    """Of all processes of a proxy together. `at`: seconds from the start of the run; `resident`: bytes."""

    at: float
    resident: int


def processes_of(pid: int) -> list[int]:
    """A proxy's own and those of its workers."""
    return [pid, *children_of(pid)]


def resident(pids: Iterable[int]) -> int:
    return sum(memory_of(pid).now for pid in pids)


def descriptors(pids: Iterable[int]) -> int:
    """How many are open, over these processes."""
    count = 0
    for pid in pids:
        with suppress(OSError):
            count += sum(1 for _ in Path(f"/proc/{pid}/fd").iterdir())
    return count


def per_minute(samples: Sequence[Sample], seconds: float) -> float | None:
    """MiB by which memory grows each minute after the warm-up, by least squares; None if the run was too short."""
    later = [sample for sample in samples if sample.at >= WARM_UP * seconds]
    if seconds < SHORTEST or len(later) < 10:
        return None
    slope, _ = statistics.linear_regression([s.at for s in later], [s.resident for s in later])
    return slope * 60 / MIB
