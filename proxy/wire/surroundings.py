"""What all exchanges of a running proxy share."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

from proxy.background import Background
from proxy.pins.store import PinStore
from proxy.records import RequestRecord
from proxy.routing.admission import Admission
from proxy.routing.rounds import Rounds
from proxy.wire.courses import Cell, Courses
from proxy.wire.directory import Directory
from proxy.wire.learning import Tally
from proxy.wire.search import Searches


class Counters(Tally, Protocol):
    """Who is told what happens."""

    logs: bool
    """True if a record is wanted of every request."""

    def cell(self, *, route: str, method: str, status: int, pool: str, backend: str, kind: str, source: str) -> Cell:
        """Where requests are counted that were served, with all this in common."""
        ...

    def record(self, record: RequestRecord) -> None:
        """One request is over."""
        ...

    def retried(self, pool: str, reason: str) -> None:
        """A failed attempt was followed by another; `reason` is the failure's."""
        ...

    def withheld(self, pool: str, method: str) -> None:
        """An attempt failed that might have succeeded in a repeat, which would not have been safe, or too many."""
        ...

    def searched(self, pool: str, outcome: str) -> None:
        """A search ended; `outcome`: found, unknown (no backend knows the task) or failed (nobody can tell)."""
        ...

    def stream_opened(self, pool: str) -> None: ...

    def stream_closed(self, pool: str) -> None: ...


@dataclass(slots=True)
class Surroundings:
    """The parts of a running proxy that its exchanges use."""

    directory: Directory
    courses: Courses
    searches: Searches
    pins: PinStore
    rounds: Rounds
    admission: Admission
    counters: Counters
    background: Background
    clock: Callable[[], float]
    """Monotonic, in seconds."""
