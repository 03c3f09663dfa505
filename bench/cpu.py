"""What a set of processes has used so far: CPU time to the nanosecond, and memory.

The scheduler's own account (``schedstat``) is read, since the counters in ``stat`` move in steps of 10 ms. It is kept
per thread; a thread that ends between two readings takes what it used since the first one with it.
"""

import os
import time
from collections.abc import Iterable, Mapping
from pathlib import Path

PROC = Path("/proc")
# A busy thread's account is brought up to date at the scheduler's tick, at most 10 ms apart, and when it goes to sleep.
SETTLE_STEP_SECONDS = 0.001
SETTLE_STEPS = 20


def descendants(pid: int) -> tuple[int, ...]:
    """The children of a process and all of theirs, parents first; none if the process is gone."""
    found: list[int] = []
    for children in (PROC / str(pid) / "task").glob("*/children"):
        for child in map(int, children.read_text().split()):
            found += (child, *descendants(child))
    return tuple(found)


def used(pids: Iterable[int]) -> dict[int, int]:
    """CPU nanoseconds, user and system, of each thread of these processes. Raises OSError if a process is gone."""
    reading = {}
    for pid in pids:
        for thread in os.listdir(PROC / str(pid) / "task"):
            try:
                text = (PROC / str(pid) / "task" / thread / "schedstat").read_text()
            except (FileNotFoundError, ProcessLookupError):  # ended since it was listed
                continue
            reading[int(thread)] = runtime(text)
    return reading


def settled(pids: Iterable[int]) -> dict[int, int]:
    """The same, after the load has stopped: waits, 20 ms at most, until the last of the work is on the account."""
    watched = tuple(pids)
    reading = used(watched)
    for _ in range(SETTLE_STEPS):
        time.sleep(SETTLE_STEP_SECONDS)
        previous, reading = reading, used(watched)
        if reading == previous:
            break
    return reading


def runtime(schedstat: str) -> int:
    """CPU nanoseconds from the text of a ``schedstat`` file: running, waiting, number of time slices."""
    return int(schedstat.split()[0])


def spent(before: Mapping[int, int], after: Mapping[int, int]) -> int:
    """CPU nanoseconds between two readings, by the threads that live at the second one."""
    return sum(total - before.get(thread, 0) for thread, total in after.items())


def resident(pids: Iterable[int]) -> int:
    """Resident bytes of these processes, shared pages counted in each. Raises OSError if a process is gone."""
    pages = sum(int((PROC / str(pid) / "statm").read_text().split()[1]) for pid in pids)
    return pages * os.sysconf("SC_PAGE_SIZE")
