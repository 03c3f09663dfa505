"""Counts what happens in this process, in plain integers on the path, and tells the access log of every request.

Rules:
* Everything about one request comes in one RequestRecord. Records alike in all but times and sizes share a cell; cells
  are added up into a Snapshot when somebody asks.
* Labels stay few: unknown methods are `other`; a backend that left its pool loses its series, and the sums keep its
  counts.
* All numbers of one snapshot are of one moment: they are added up on the event loop, at once.
"""

import time
from bisect import bisect_left
from collections import Counter, defaultdict
from collections.abc import Callable, Mapping
from typing import NamedTuple, Protocol, TypeAlias

from proxy.access_log import AccessLog
from proxy.records import KNOWN_METHODS, RequestRecord, refusal
from proxy.routing.pools import Pool
from proxy.snapshot import BUCKETS, Histogram, Snapshot, Values
from proxy.usage import usage

_CLIENT_GONE = "client_gone"  # RequestRecord.error of a request whose client left: nothing was rejected
_CLASSES = {1: "1xx", 2: "2xx", 3: "3xx", 4: "4xx", 5: "5xx"}
_OTHER = "other"

_Key: TypeAlias = tuple[str, str, int, str, str, int, str, str, str, str]


class PinCounts(Protocol):
    """What is asked of a PinStore here; its contract is in proxy/pins/store.py."""

    def __len__(self) -> int: ...

    @property
    def evicted(self) -> int: ...

    @property
    def up(self) -> bool: ...


class _Labels(NamedTuple):
    """What records of one cell have in common; in the order of the key that `record` makes."""

    route: str
    method: str
    status: int
    pool: str
    backend: str
    backend_class: int
    kind: str
    source: str
    outcome: str
    error: str


class _Cell:
    __slots__ = ("answers", "at_once", "bytes_in", "bytes_out", "durations", "first_bytes", "kin", "labels", "stale")

    def __init__(self, labels: _Labels) -> None:
        self.labels = labels
        self.kin = labels._replace(backend="")
        """What it has in common with the cells of other backends."""
        self.answers: Values | None = None
        """The series that its answers belong to."""
        if labels.backend_class and labels.backend:
            self.answers = labels.pool, labels.backend, _CLASSES.get(labels.backend_class, _OTHER)
        self.stale = False
        """True once its counts are another's."""
        self.durations = Histogram()
        self.first_bytes = Histogram()
        self.at_once = Histogram()
        """Of requests that belong into both."""
        self.bytes_in = 0
        self.bytes_out = 0

    def served(self, seconds: float, *, bytes_in: int, bytes_out: int) -> None:
        """A request that was answered all at once, so many seconds after it came."""
        histogram = self.at_once
        histogram.counts[bisect_left(BUCKETS, seconds)] += 1
        histogram.total += seconds
        self.bytes_in += bytes_in
        self.bytes_out += bytes_out

    def add(self, other: "_Cell") -> None:
        self.durations.add(other.durations)
        self.at_once.add(other.at_once)
        self.first_bytes.add(other.first_bytes)
        self.bytes_in += other.bytes_in
        self.bytes_out += other.bytes_out

    @property
    def count(self) -> int:
        return sum(self.durations.counts) + sum(self.at_once.counts)


class Counts:
    """The counts of one process. When a snapshot is taken, `pools` gives those in force, and `clients` their number."""

    def __init__(
        self,
        *,
        pools: Callable[[], Mapping[str, Pool]],
        pins: PinCounts,
        access_log: AccessLog | None = None,
        clients: Callable[[], int] = int,
    ) -> None:
        self.access_log = access_log
        self.logs = access_log is not None
        """True if every request is to be told of in full."""
        self._pools = pools
        self._clients = clients
        self._pins = pins
        self._cells: dict[_Key, _Cell] = {}
        self._rejected: Counter[tuple[str, int]] = Counter()
        self._unlearned: Counter[Values] = Counter()
        self._handshakes_failed: Counter[Values] = Counter()
        self._retries: Counter[Values] = Counter()
        self._withheld: Counter[Values] = Counter()
        self._streams: Counter[Values] = Counter()
        self._searches: Counter[Values] = Counter()
        self._reloads: Counter[Values] = Counter({("ok",): 0, ("refused",): 0})
        self._loaded = time.time()
        self._refused = False  # the last change of the configuration

    def record(self, record: RequestRecord) -> None:
        """Counts a request that has ended, and logs it. On the fast path."""
        key = (
            record.route,
            record.method,
            record.status,
            record.pool,
            record.backend,
            record.backend_status // 100,
            record.kind,
            record.source,
            record.outcome,
            record.error,
        )
        cell = self._cells.get(key)
        if cell is None:
            cell = self._cell(_Labels(*key))
        seconds = record.duration
        histogram = cell.durations
        histogram.counts[bisect_left(BUCKETS, seconds)] += 1
        histogram.total += seconds
        seconds = record.first_byte
        if seconds >= 0.0:
            histogram = cell.first_bytes
            histogram.counts[bisect_left(BUCKETS, seconds)] += 1
            histogram.total += seconds
        cell.bytes_in += record.bytes_in
        cell.bytes_out += record.bytes_out
        if self.access_log is not None:
            self.access_log.record(record)

    def cell(self, *, route: str, method: str, status: int, pool: str, backend: str, kind: str, source: str) -> _Cell:
        """Where served requests with all this in common are counted; as the records of others are."""
        labels = _Labels(route, method, status, pool, backend, status // 100, kind, source, "served", "")
        return self._cells.get(labels) or self._cell(labels)

    def refused(self, client: str, reason: str, status: int) -> None:
        """A request whose head was not understood was answered: counted, and logged with what is known of it."""
        self._rejected[reason, status] += 1
        if self.access_log is not None:
            self.access_log.record(refusal(client, reason, status))

    def handshake_failed(self, reason: str) -> None:
        """A client's TLS handshake came to nothing; `reason` as in proxy/wire/handshakes.py."""
        self._handshakes_failed[reason,] += 1

    def unlearned(self, reason: str) -> None:
        """An answer that taught nothing, or whose lesson could not be stored."""
        self._unlearned[reason,] += 1

    def retried(self, pool: str, reason: str) -> None:
        """A failed attempt was followed by another; `reason` is the failure's."""
        self._retries[pool, reason] += 1

    def withheld(self, pool: str, method: str) -> None:
        """A repeat that might have helped was not made: it might have done harm, or there were too many."""
        self._withheld[pool, method if method in KNOWN_METHODS else _OTHER] += 1

    def searched(self, pool: str, outcome: str) -> None:
        """A search for a task's owner ended: found, unknown (no backend knows it) or failed (nobody can tell)."""
        self._searches[pool, outcome] += 1

    def reloaded(self, *, ok: bool) -> None:
        """A configuration was put in force (at the start, too), or refused."""
        self._reloads["ok" if ok else "refused",] += 1
        self._refused = not ok
        if ok:
            self._loaded = time.time()

    def in_force(self) -> None:
        """Another configuration is in force here; that it came is counted elsewhere."""
        self._loaded = time.time()

    def stream_opened(self, pool: str) -> None:
        """A response of server-sent events began."""
        self._streams[pool,] += 1

    def stream_closed(self, pool: str) -> None:
        """A response of server-sent events ended."""
        self._streams[pool,] -= 1

    def snapshot(self) -> Snapshot:
        """All numbers of this process as they are now, what it uses of its machine included."""
        self._fold_departed()
        snapshot = usage()
        snapshot.workers[()] = 1
        kin: defaultdict[_Labels, list[_Cell]] = defaultdict(list)
        for cell in self._cells.values():
            kin[cell.kin].append(cell)
        for labels, cells in kin.items():
            _add(labels, cells, snapshot)
        for (reason, status), count in self._rejected.items():
            snapshot.requests["", _OTHER, str(status)] += count
            snapshot.rejected[reason,] += count
        snapshot.unlearned.update(self._unlearned)
        snapshot.handshakes_failed.update(self._handshakes_failed)
        snapshot.retries.update(self._retries)
        snapshot.withheld.update(self._withheld)
        snapshot.streams.update(self._streams)
        snapshot.searches.update(self._searches)
        snapshot.reloads.update(self._reloads)
        snapshot.loaded[()] = self._loaded
        snapshot.reload_ok[()] = int(not self._refused)
        snapshot.clients[()] = self._clients()
        for pool in self._pools().values():
            snapshot.streams[pool.name,] += 0
            snapshot.queued[pool.name,] = len(pool.queue)
            snapshot.generations[pool.name,] = pool.ring_generation
            snapshot.ejections[pool.name,] = pool.fitness.ejections
            for member in pool.members:
                snapshot.up[pool.name, member.backend.id] = int(member.up and not member.ejected)
            for member in pool.everyone:
                key = pool.name, member.backend.id
                snapshot.in_flight[key] = member.in_flight
                snapshot.draining[key] = int(member.withdrawn)
        snapshot.pins["task",] = len(self._pins)
        snapshot.evicted[()] = self._pins.evicted
        snapshot.store_up[()] = int(self._pins.up)
        return snapshot

    def _cell(self, labels: _Labels) -> _Cell:
        """The cell for these labels, made if need be. Unknown methods share one, and never get into a key."""
        if labels.method not in KNOWN_METHODS:
            labels = labels._replace(method=_OTHER)
        cell = self._cells.get(labels)
        if cell is None:
            cell = self._cells[labels] = _Cell(labels)
        return cell

    def _fold_departed(self) -> None:
        """Takes the backend's name off the cells of those that left, so that cells stay few as backends come and go."""
        members = {(pool.name, member.backend.id) for pool in self._pools().values() for member in pool.everyone}
        for key, cell in list(self._cells.items()):
            labels = cell.labels
            if labels.backend and (labels.pool, labels.backend) not in members:
                del self._cells[key]
                cell.stale = True
                self._cell(labels._replace(backend="")).add(cell)


def _add(labels: _Labels, cells: list[_Cell], snapshot: Snapshot) -> None:
    """Adds cells that differ in their backends alone: many at once, since a fleet has thousands."""
    at_once, durations = Histogram(), Histogram()
    at_once.add(*[cell.at_once for cell in cells])
    durations.add(at_once, *[cell.durations for cell in cells])
    count = sum(durations.counts)
    snapshot.durations[labels.route, labels.method].add(durations)
    if labels.backend_class:
        snapshot.first_bytes[labels.pool, labels.method].add(at_once, *[cell.first_bytes for cell in cells])
    snapshot.requests[labels.route, labels.method, str(labels.status)] += count
    snapshot.bytes_in[labels.pool,] += sum([cell.bytes_in for cell in cells])
    snapshot.bytes_out[labels.pool,] += sum([cell.bytes_out for cell in cells])
    for cell in cells:
        if cell.answers is not None:
            snapshot.responses[cell.answers] += cell.count
    if labels.source:
        snapshot.decisions[labels.pool, labels.kind, labels.source, labels.outcome] += count
    if labels.error == _CLIENT_GONE:
        snapshot.hangups[()] += count
    elif labels.error:
        snapshot.rejected[labels.error,] += count
