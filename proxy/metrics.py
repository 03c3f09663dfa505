"""Counts what happens, in plain integers on the path, and tells it to Prometheus when asked.

Rules:
* Everything about one request comes in one RequestRecord. Records alike in all but times and sizes share a cell; cells
  are added up into the families when somebody scrapes.
* Labels stay few: unknown methods are `other`; a backend that left its pool loses its series, and the sums keep its
  counts.
* All numbers of one answer are of one moment: added up on the event loop, written out in a thread beside it.
"""

import asyncio
import logging
import time
from bisect import bisect_left
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Mapping
from itertools import accumulate
from typing import NamedTuple, Protocol, TypeAlias

from prometheus_client import CONTENT_TYPE_PLAIN_0_0_4, Metric, PlatformCollector, ProcessCollector, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily

from proxy.records import KNOWN_METHODS, RequestRecord
from proxy.routing.pools import Pool

BUCKETS = (
    *(0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5),
    *(1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 300.0, 1800.0, 7200.0, 28800.0),
)
"""Upper bounds in seconds: from what the proxy itself takes to a stream listened to for a working day."""
STORE_WAIT = 2.0
"""Seconds that a scrape waits for the pin store; Prometheus gives a scrape up after 10 by default."""

_LE = (*map(str, BUCKETS), "+Inf")
_CLIENT_GONE = "client_gone"  # RequestRecord.error of a request whose client left: nothing was rejected
_CLASSES = {1: "1xx", 2: "2xx", 3: "3xx", 4: "4xx", 5: "5xx"}
_OTHER = "other"
_logger = logging.getLogger("proxy")

_Key: TypeAlias = tuple[str, str, int, str, str, int, str, str, str, str]
Held: TypeAlias = Mapping[tuple[str, str], int]
_Values: TypeAlias = tuple[str, ...]  # of a series' labels


class PinCounts(Protocol):
    """What is asked of a PinStore here; its contract is in proxy/pins/store.py."""

    def held(self) -> Held | asyncio.Future[Held]: ...

    def __len__(self) -> int: ...

    @property
    def evicted(self) -> int: ...


async def tasks_held(pins: PinCounts) -> Held | None:
    """How many tasks each (pool, backend id) holds; None when the store fails or takes longer than STORE_WAIT."""
    try:
        answer = pins.held()
        return await asyncio.wait_for(answer, STORE_WAIT) if isinstance(answer, asyncio.Future) else answer
    except Exception as error:  # noqa: BLE001 - a store that is down must not take the other numbers with it
        _logger.warning("the pin store does not say how many tasks are held: %s", type(error).__name__)
        return None


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


class _Histogram:
    __slots__ = ("counts", "total")

    def __init__(self) -> None:
        self.counts = [0] * len(_LE)  # by bucket, not yet cumulative
        self.total = 0.0

    def add(self, other: "_Histogram") -> None:
        self.counts = [mine + more for mine, more in zip(self.counts, other.counts, strict=True)]
        self.total += other.total


class _Cell:
    __slots__ = ("bytes_in", "bytes_out", "durations", "first_bytes", "labels")

    def __init__(self, labels: _Labels) -> None:
        self.labels = labels
        self.durations = _Histogram()
        self.first_bytes = _Histogram()
        self.bytes_in = 0
        self.bytes_out = 0

    def add(self, other: "_Cell") -> None:
        self.durations.add(other.durations)
        self.first_bytes.add(other.first_bytes)
        self.bytes_in += other.bytes_in
        self.bytes_out += other.bytes_out


class Metrics:
    """The counts of one running proxy. The two callables give what is in force at the time of a scrape."""

    def __init__(self, *, version: str, pools: Callable[[], Mapping[str, Pool]], pins: Callable[[], PinCounts]) -> None:
        self._version = version
        self._pools = pools
        self._pins = pins
        self._cells: dict[_Key, _Cell] = {}
        self._rejected: Counter[tuple[str, int]] = Counter()
        self._unlearned: Counter[_Values] = Counter()
        self._retries: Counter[_Values] = Counter()
        self._streams: Counter[_Values] = Counter()
        self._searches: Counter[_Values] = Counter()
        self._reloads: Counter[_Values] = Counter({("ok",): 0, ("refused",): 0})
        self._loaded = time.time()
        self._standard = (ProcessCollector(registry=None), PlatformCollector(registry=None))

    def record(self, record: RequestRecord) -> None:
        """Counts a request that has ended. On the fast path."""
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

    def rejected(self, reason: str, status: int) -> None:
        """A request that was answered with this status before it had a record: its head was not understood."""
        self._rejected[reason, status] += 1

    def unlearned(self, reason: str) -> None:
        """An answer that taught nothing, or whose lesson could not be stored."""
        self._unlearned[reason,] += 1

    def retried(self, pool: str, reason: str) -> None:
        """A failed attempt was followed by another; `reason` is the failure's."""
        self._retries[pool, reason] += 1

    def searched(self, pool: str, outcome: str) -> None:
        """A search for a task's owner ended: found, unknown (no backend knows it) or failed (nobody can tell)."""
        self._searches[pool, outcome] += 1

    def reloaded(self, *, ok: bool) -> None:
        """A configuration was put in force (at the start, too), or refused."""
        self._reloads["ok" if ok else "refused",] += 1
        if ok:
            self._loaded = time.time()

    def stream_opened(self, pool: str) -> None:
        """A response of server-sent events began."""
        self._streams[pool,] += 1

    def stream_closed(self, pool: str) -> None:
        """A response of server-sent events ended."""
        self._streams[pool,] -= 1

    async def render(self) -> tuple[bytes, str]:
        """Everything in Prometheus's text format, and the content type of that."""
        held = await tasks_held(self._pins())
        snapshot = self._snapshot(held)
        # A fleet makes thousands of lines, and the process's own numbers are read from files.
        return await asyncio.to_thread(self._written, snapshot), CONTENT_TYPE_PLAIN_0_0_4

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
                self._cell(labels._replace(backend="")).add(cell)

    def _snapshot(self, held: Held | None) -> "_Snapshot":
        self._fold_departed()
        snapshot = _Snapshot(self._version)
        for cell in self._cells.values():
            snapshot.add(cell)
        for (reason, status), count in self._rejected.items():
            snapshot.requests["", _OTHER, str(status)] += count
            snapshot.rejected[reason,] += count
        snapshot.unlearned.update(self._unlearned)
        snapshot.retries.update(self._retries)
        snapshot.streams.update(self._streams)
        snapshot.searches.update(self._searches)
        snapshot.reloads.update(self._reloads)
        snapshot.loaded = self._loaded
        for pool in self._pools().values():
            snapshot.add_pool(pool, held)
        pins = self._pins()
        snapshot.pins, snapshot.evicted = len(pins), pins.evicted
        return snapshot

    def _written(self, snapshot: "_Snapshot") -> bytes:
        return b"".join(map(generate_latest, (snapshot, *self._standard)))


class _Snapshot:
    """The sums of one scrape by the values of their labels, and the families made of them."""

    def __init__(self, version: str) -> None:
        self.version = version
        self.requests, self.responses, self.decisions, self.rejected = (Counter[_Values]() for _ in range(4))
        self.bytes_in, self.bytes_out, self.unlearned, self.retries = (Counter[_Values]() for _ in range(4))
        self.streams, self.in_flight, self.draining, self.tasks = (Counter[_Values]() for _ in range(4))
        self.generations, self.searches, self.reloads = (Counter[_Values]() for _ in range(3))
        self.loaded = 0.0
        self.durations: defaultdict[_Values, _Histogram] = defaultdict(_Histogram)
        self.first_bytes: defaultdict[_Values, _Histogram] = defaultdict(_Histogram)
        self.hangups = self.pins = self.evicted = 0

    def add(self, cell: _Cell) -> None:
        labels, count = cell.labels, sum(cell.durations.counts)
        self.requests[labels.route, labels.method, str(labels.status)] += count
        self.durations[labels.route, labels.method].add(cell.durations)
        self.bytes_in[labels.pool,] += cell.bytes_in
        self.bytes_out[labels.pool,] += cell.bytes_out
        if labels.backend_class:
            self.first_bytes[labels.pool, labels.method].add(cell.first_bytes)
            if labels.backend:
                status_class = _CLASSES.get(labels.backend_class, _OTHER)
                self.responses[labels.pool, labels.backend, status_class] += count
        if labels.source:
            self.decisions[labels.pool, labels.kind, labels.source, labels.outcome] += count
        if labels.error == _CLIENT_GONE:
            self.hangups += count
        elif labels.error:
            self.rejected[labels.error,] += count

    def add_pool(self, pool: Pool, held: Held | None) -> None:
        self.streams[pool.name,] += 0
        self.generations[pool.name,] = pool.ring_generation
        for member in pool.everyone:
            key = pool.name, member.backend.id
            self.in_flight[key] = member.in_flight
            self.draining[key] = int(not member.fit)
            if held is not None:
                self.tasks[key] = held.get(key, 0)

    def collect(self) -> Iterator[Metric]:
        yield _numbers("build_info", "Always 1; the label tells the version.", "version", {(self.version,): 1})
        yield _numbers("requests_total", "Requests by the client's status.", "route method code", self.requests)
        yield _numbers("backend_responses_total", "Answers of backends.", "pool backend class", self.responses)
        yield _histogram("request_duration_seconds", "From head to end.", "route method", self.durations)
        yield _histogram("time_to_first_byte_seconds", "From head to the backend's.", "pool method", self.first_bytes)
        yield _numbers("decisions_total", "What named the backend.", "pool kind source outcome", self.decisions)
        yield _numbers("searches_total", "Searches for the owners of tasks.", "pool outcome", self.searches)
        yield _numbers("rejected_total", "Answers of the proxy's own.", "reason", self.rejected)
        yield _numbers("request_bytes_total", "Bytes of request bodies.", "pool", self.bytes_in)
        yield _numbers("response_bytes_total", "Bytes of response bodies.", "pool", self.bytes_out)
        yield _numbers("client_hangups_total", "Clients that left before the end.", "", {(): self.hangups})
        yield _numbers("unlearned_total", "Answers about tasks that left no pin.", "reason", self.unlearned)
        yield _numbers("retries_total", "Attempts after one that failed.", "pool reason", self.retries)
        yield _numbers("streams_open", "Responses of server-sent events under way.", "pool", self.streams)
        yield _numbers("backend_in_flight", "Requests under way.", "pool backend", self.in_flight)
        yield _numbers("backend_draining", "1 if it takes no new work.", "pool backend", self.draining)
        yield _numbers("tasks_held", "Tasks not known to have ended.", "pool backend", self.tasks)
        yield _numbers("ring_generation", "How often the ring was built.", "pool", self.generations)
        yield _numbers("config_reloads_total", "Changes of the configuration.", "outcome", self.reloads)
        loaded = "When the configuration in force was loaded."
        yield _numbers("config_last_reload_success_timestamp_seconds", loaded, "", {(): self.loaded})
        yield _numbers("pins", "Owners remembered by this process.", "kind", {("task",): self.pins})
        yield _numbers("pins_evicted_total", "Owners forgotten for want of room.", "", {(): self.evicted})


def _numbers(name: str, documentation: str, labels: str, series: Mapping[_Values, float]) -> Metric:
    """A counter or, where the name does not end like one's, a gauge."""
    kind = CounterMetricFamily if name.endswith("_total") else GaugeMetricFamily
    family = kind(f"mcp_proxy_{name}", documentation, labels=labels.split())
    for values, number in series.items():
        family.add_metric(values, number)
    return family


def _histogram(name: str, documentation: str, labels: str, series: Mapping[_Values, _Histogram]) -> Metric:
    family = HistogramMetricFamily(f"mcp_proxy_{name}", documentation, labels=labels.split())
    for values, histogram in series.items():
        family.add_metric(values, list(zip(_LE, accumulate(histogram.counts), strict=True)), histogram.total)
    return family
