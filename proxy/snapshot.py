"""All numbers of one process at one moment, and how those of several processes become one.

Rules:
* Counters and histograms are summed, and outlive their process: `lasting` is what a dead one leaves behind.
* Of gauges, amounts are summed; of what has to hold everywhere the least is told, of what may hold anywhere the most. A
  dead process has none.
* What a process does not know has no series, and does not count as 0 for the least.
"""

from collections.abc import Collection, Mapping
from typing import Any, ClassVar, Self, TypeAlias

BUCKETS = (
    *(0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5),
    *(1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 300.0, 1800.0, 7200.0, 28800.0),
)
"""Upper bounds in seconds: from what the proxy itself takes to a stream listened to for a working day."""

_GRAIN = 2**20
"""Parts of a second that sums are added up in: a power of two, so that floats hold them exactly, for 270 years."""

Values: TypeAlias = tuple[str, ...]
"""Of a series' labels, in the order in which its family names them; () where it has none."""
Rows: TypeAlias = list[list[Any]]
"""Series as values for JSON: the values of the labels, then what is counted."""


class Series(dict[Values, float]):
    """The numbers of one family. What is not there reads as 0; looking leaves no trace."""

    lasting: ClassVar[bool] = False
    """True for what a dead process leaves behind."""

    def __missing__(self, values: Values) -> float:
        return 0

    def merged(self, mine: float, more: float) -> float:
        """What two processes' numbers of one series amount to."""
        return mine + more

    def add(self, other: Self) -> None:
        for values, number in other.items():
            self[values] = self.merged(self[values], number) if values in self else number

    def as_rows(self) -> Rows:
        return [[*values, number] for values, number in self.items()]

    def read(self, rows: Rows) -> None:
        """Takes in what `as_rows` gave."""
        self.update((tuple(values), number) for *values, number in rows)


class Counted(Series):
    """Counters."""

    lasting = True


class Least(Series):
    """Gauges of which the smallest is told."""

    def merged(self, mine: float, more: float) -> float:
        return min(mine, more)


class Most(Series):
    """Gauges of which the largest is told."""

    def merged(self, mine: float, more: float) -> float:
        return max(mine, more)


class Histogram:
    """How many times fell into which bucket, and their sum in seconds."""

    __slots__ = ("counts", "total")

    def __init__(self) -> None:
        self.counts = [0] * (len(BUCKETS) + 1)  # not yet cumulative; the last bucket has no bound
        self.total = 0.0

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Histogram) and (self.counts, self.total) == (other.counts, other.total)

    __hash__ = None  # type: ignore[assignment] # it changes

    def __repr__(self) -> str:
        return f"Histogram({self.counts}, {self.total})"

    def add(self, *others: "Histogram") -> None:
        """Many at once take a third of the time that they take one by one.

        Of their sums what is less than a microsecond is left out. So whatever is added in whatever order comes to the
        same, to the last bit: a sum that falls by its last bit is read as a restart, and makes rates jump.
        """
        self.counts = list(map(sum, zip(self.counts, *(other.counts for other in others), strict=True)))
        self.total += sum([int(other.total * _GRAIN) for other in others]) / _GRAIN


class Histograms(dict[Values, Histogram]):
    """The histograms of one family."""

    lasting: ClassVar[bool] = True

    def __missing__(self, values: Values) -> Histogram:
        made = self[values] = Histogram()
        return made

    def add(self, other: Self) -> None:
        for values, histogram in other.items():
            self[values].add(histogram)

    def as_rows(self) -> Rows:
        return [[*values, histogram.counts, histogram.total] for values, histogram in self.items()]

    def read(self, rows: Rows) -> None:
        """Takes in what `as_rows` gave. Raises ValueError where the buckets are others."""
        for *values, counts, total in rows:
            histogram = Histogram()
            if len(counts) != len(histogram.counts):
                raise ValueError("the buckets of a histogram are not these")
            histogram.counts, histogram.total = list(counts), total
            self[tuple(values)] = histogram


class Snapshot:
    """The numbers by the values of their labels, which are named where proxy/metrics.py makes families of them."""

    def __init__(self) -> None:
        self.requests = Counted()
        self.responses = Counted()
        self.decisions = Counted()
        self.searches = Counted()
        self.rejected = Counted()
        self.bytes_in = Counted()
        self.bytes_out = Counted()
        self.hangups = Counted()
        self.handshakes_failed = Counted()
        self.unlearned = Counted()
        self.retries = Counted()
        self.withheld = Counted()
        self.reloads = Counted()
        self.evicted = Counted()
        self.ejections = Counted()
        self.restarts = Counted()  # of workers that died; known to who starts them
        self.discovery_failures = Counted()  # as all of discovery, known to the one process that does it
        self.cpu = Counted()  # seconds
        self.durations = Histograms()
        self.first_bytes = Histograms()

        self.streams = Series()
        self.queued = Series()
        self.clients = Series()
        self.in_flight = Series()  # has a series for every backend there is
        self.pins = Series()
        self.workers = Series()
        self.discovered = Series()
        self.resident = Series()  # bytes, as `virtual`
        self.virtual = Series()
        self.open_files = Series()

        self.up = Least()  # 1 unless probes or failures keep a backend from new work
        self.generations = Least()
        self.loaded = Least()  # when the configuration in force was loaded, in seconds since 1970, as `started`
        self.reload_ok = Least()  # 0 while the last attempt to change the configuration was refused
        self.store_up = Least()
        self.max_files = Least()
        self.started = Least()
        self.draining = Most()
        self.discovery_success = Most()  # in seconds since 1970

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Snapshot) and vars(self) == vars(other)

    __hash__ = None  # type: ignore[assignment] # it changes

    def __repr__(self) -> str:
        return f"Snapshot.of_values({self.as_values()})"

    def add(self, other: "Snapshot") -> None:
        """Takes in the numbers of another process, or of one that is gone."""
        more = other._families()
        for name, family in self._families().items():
            family.add(more[name])

    def lasting(self) -> "Snapshot":
        """What is left of these numbers when their process is dead."""
        left, mine = Snapshot(), self._families()
        for name, family in left._families().items():
            if family.lasting:
                family.add(mine[name])
        return left

    def keep(self, backends: Collection[Values]) -> None:
        """Drops the series of backends other than these (pool, id): they left, and their names must not pile up.

        For the numbers of the dead; a living process does so by itself. No sum loses by it.
        """
        for values in [values for values in self.responses if values[:2] not in backends]:
            del self.responses[values]

    def as_values(self) -> dict[str, Rows]:
        """As values for JSON, from which `of_values` makes the same again."""
        return {name: family.as_rows() for name, family in self._families().items() if family}

    @classmethod
    def of_values(cls, values: Mapping[str, Rows]) -> "Snapshot":
        """From what `as_values` gave. Families that are not known here are passed over: another version has others."""
        snapshot = cls()
        for name, family in snapshot._families().items():
            family.read(values.get(name, []))
        return snapshot

    def _families(self) -> dict[str, Any]:  # Any: Series or Histograms, each to be added to its like
        return vars(self)
