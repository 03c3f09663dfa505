"""Notices that files have changed, by looks: also where a symbolic link on the way to one is exchanged.

So a ConfigMap counts, whose files are links into a folder that is a link itself. A change is told once it is as it was
at the look before: an editor may write a file in several steps, and a link may go before its target has come.
"""

import os
from collections.abc import Iterable
from pathlib import Path
from typing import TypeAlias

_State: TypeAlias = tuple[tuple[str, int, int, int] | None, ...]


class Watch:
    """Watches these files as they are from now on."""

    def __init__(self, files: Iterable[Path]) -> None:
        self._known = self._seen = _state(files)

    def changed(self, files: Iterable[Path]) -> bool:
        """True once after one of the files has changed, appeared or gone, or others are to be watched."""
        now = _state(files)
        settled, self._seen = now == self._seen, now
        if not settled or now == self._known:
            return False
        self._known = now
        return True


def _state(files: Iterable[Path]) -> _State:
    return tuple(_state_of(file) for file in files)


def _state_of(file: Path) -> tuple[str, int, int, int] | None:
    try:
        there = file.stat()
    except (OSError, ValueError):
        return None
    return os.path.realpath(file), there.st_ino, there.st_mtime_ns, there.st_size
