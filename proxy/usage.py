"""What this process uses of its machine, as far as the machine tells."""

import os
import resource
import time
from functools import cache
from pathlib import Path

from proxy.snapshot import Snapshot

_PROC = Path("/proc")  # proc(5); not there on every system
_PAGE = resource.getpagesize()
_TICKS = os.sysconf("SC_CLK_TCK")  # a second


def usage() -> Snapshot:
    """A snapshot of these numbers alone. Without /proc, those that are only told there have no series."""
    snapshot = Snapshot()
    snapshot.cpu[()] = time.process_time()
    limit = descriptor_limit()
    if limit is not None:
        snapshot.max_files[()] = limit
    try:
        # The name in parentheses may hold anything, parentheses too; fields count from the state behind it.
        parts = (_PROC / "self/stat").read_bytes().rpartition(b")")[2].split()
        snapshot.virtual[()] = int(parts[20])
        snapshot.resident[()] = int(parts[21]) * _PAGE
        files = _PROC / "self/fd"
        # Linux 6.2 and later tell their number as the size; older ones tell 0, and thousands of names take a while.
        snapshot.open_files[()] = files.stat().st_size or len(os.listdir(files))
        snapshot.started[()] = _boot_time() + int(parts[19]) / _TICKS
    except OSError:
        pass
    return snapshot


def descriptor_limit() -> int | None:
    """How many descriptors this process may open; None: as many as it likes."""
    limit, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return None if limit == resource.RLIM_INFINITY else limit


@cache  # it stays, and the file grows with the machine
def _boot_time() -> int:
    """Seconds since 1970. Raises OSError where it is not told."""
    for line in (_PROC / "stat").read_text().splitlines():
        if line.startswith("btime "):
            return int(line.split()[1])
    raise OSError("no boot time in /proc/stat")
