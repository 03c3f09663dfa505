"""Tells Prometheus what was counted: a Snapshot, of one process or of many, becomes families and their text."""

import asyncio
from collections.abc import Awaitable, Callable, Iterator, Mapping
from itertools import accumulate
from typing import TypeAlias

from prometheus_client import CONTENT_TYPE_PLAIN_0_0_4, Metric, PlatformCollector, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily

from proxy.snapshot import BUCKETS, Histogram, Snapshot, Values
from proxy.together import Together

Held: TypeAlias = Mapping[tuple[str, str], int | None]
"""Tasks held by each (pool, backend id), None where that is not known; those with none may be missing."""

_LE = (*map(str, BUCKETS), "+Inf")
_PLATFORM = PlatformCollector(registry=None)  # python_info


class Metrics:
    """What a scrape gets. `snapshot` and `held` are asked at each; `held` answers None where nobody can tell."""

    def __init__(
        self, *, version: str, snapshot: Callable[[], Snapshot], held: Callable[[], Awaitable[Held | None]]
    ) -> None:
        self._version = version
        self._snapshot = snapshot
        self._held = held
        self._rendered = Together(self._render)

    def snapshot(self) -> Snapshot:
        """The numbers that are told, as they were last heard of."""
        return self._snapshot()

    async def render(self) -> tuple[bytes, str]:
        """Everything in Prometheus's text format, and the content type of that."""
        return await self._rendered()

    async def _render(self) -> tuple[bytes, str]:
        held = await self._held()
        # A fleet makes thousands of lines; writing them out must not stop the loop.
        return await asyncio.to_thread(exposition, self._snapshot(), held=held, version=self._version)


def exposition(snapshot: Snapshot, *, held: Held | None, version: str) -> tuple[bytes, str]:
    """The snapshot in Prometheus's text format, and the content type of that. `held`: None where nobody can tell.

    Backends that nobody counts in flight for have left, and have no series.
    """
    families = _Families(snapshot, held, version)
    return b"".join(map(generate_latest, (families, _PLATFORM))), CONTENT_TYPE_PLAIN_0_0_4


class _Families:
    """A collector, as prometheus_client names it."""

    def __init__(self, snapshot: Snapshot, held: Held | None, version: str) -> None:
        self._snapshot = snapshot
        self._version = version
        backends = snapshot.in_flight
        self._responses = {values: count for values, count in snapshot.responses.items() if values[:2] in backends}
        self._tasks: dict[Values, float] = {}
        if held is not None:
            self._tasks = {
                (pool, backend): count
                for pool, backend in backends
                if (count := held.get((pool, backend), 0)) is not None
            }

    def collect(self) -> Iterator[Metric]:
        now = self._snapshot
        yield _own("build_info", "Always 1; the label tells the version.", "version", {(self._version,): 1})
        yield _own("requests_total", "Requests by the client's status.", "route method code", now.requests)
        yield _own("backend_responses_total", "Answers of backends.", "pool backend class", self._responses)
        yield _histogram("request_duration_seconds", "From head to end.", "route method", now.durations)
        yield _histogram("time_to_first_byte_seconds", "From head to the backend's.", "pool method", now.first_bytes)
        yield _own("decisions_total", "What named the backend.", "pool kind source outcome", now.decisions)
        yield _own("searches_total", "Searches for the owners of tasks.", "pool outcome", now.searches)
        yield _own("rejected_total", "Answers of the proxy's own.", "reason", now.rejected)
        yield _own("request_bytes_total", "Bytes of request bodies.", "pool", now.bytes_in)
        yield _own("response_bytes_total", "Bytes of response bodies.", "pool", now.bytes_out)
        yield _own("client_hangups_total", "Clients that left before the end.", "", {(): now.hangups[()]})
        yield _own("tls_handshake_failures_total", "Clients' handshakes that failed.", "reason", now.handshakes_failed)
        yield _own("unlearned_total", "Answers about tasks that left no pin.", "reason", now.unlearned)
        yield _own("retries_total", "Attempts after one that failed.", "pool reason", now.retries)
        yield _own("retries_withheld_total", "Repeats that were not safe, or too many.", "pool method", now.withheld)
        yield _own("ejections_total", "Backends taken out for failures in a row.", "pool", now.ejections)
        yield _own("streams_open", "Responses of server-sent events under way.", "pool", now.streams)
        yield _own("client_connections", "Connections of clients.", "", {(): now.clients[()]})
        yield _own("queued", "Requests that wait for others to end.", "pool", now.queued)
        yield _own("backend_in_flight", "Requests under way.", "pool backend", now.in_flight)
        yield _own("backend_up", "0 if probes or failures keep it from new work.", "pool backend", now.up)
        yield _own("backend_draining", "1 if an operator keeps it from new work.", "pool backend", now.draining)
        yield _own("tasks_held", "Tasks not known to have ended.", "pool backend", self._tasks)
        yield _own("discovered_backends", "Members that were discovered.", "pool", now.discovered)
        yield _own("discovery_failures_total", "Looks that told nothing.", "pool reason", now.discovery_failures)
        answered = "When discovery answered last."
        yield _own("discovery_last_success_timestamp_seconds", answered, "pool", now.discovery_success)
        yield _own("ring_generation", "How often the ring was built.", "pool", now.generations)
        yield _own("config_reloads_total", "Changes of the configuration.", "outcome", now.reloads)
        loaded = "When the configuration in force was loaded."
        yield _own("config_last_reload_success_timestamp_seconds", loaded, "", now.loaded)
        in_order = "0 if the last change of the configuration was refused."
        yield _own("config_last_reload_successful", in_order, "", now.reload_ok)
        yield _own("pins", "Owners remembered by the processes, each its own.", "kind", now.pins)
        yield _own("pins_evicted_total", "Owners forgotten for want of room.", "", {(): now.evicted[()]})
        yield _own("pin_store_up", "1 if the pin store answers.", "", now.store_up)
        yield _own("workers", "Processes that are counted here.", "", {(): now.workers[()]})
        yield _own("worker_restarts_total", "Processes started for one that died.", "", {(): now.restarts[()]})
        yield from self._process()

    def _process(self) -> Iterator[Metric]:
        """The families that client libraries name alike, over all processes; none that the system does not tell."""
        now = self._snapshot
        for name, documentation, series in (
            ("cpu_seconds_total", "User and system time in seconds.", now.cpu),
            ("resident_memory_bytes", "Resident memory in bytes.", now.resident),
            ("virtual_memory_bytes", "Virtual memory in bytes.", now.virtual),
            ("open_fds", "Open file descriptors.", now.open_files),
            ("max_fds", "How many file descriptors a process may open.", now.max_files),
            ("start_time_seconds", "When the first process started, in seconds since 1970.", now.started),
        ):
            if series:
                yield _numbers(f"process_{name}", documentation, "", series)


def _own(name: str, documentation: str, labels: str, series: Mapping[Values, float]) -> Metric:
    return _numbers(f"mcp_proxy_{name}", documentation, labels, series)


def _numbers(name: str, documentation: str, labels: str, series: Mapping[Values, float]) -> Metric:
    """A counter or, where the name does not end like one's, a gauge."""
    kind = CounterMetricFamily if name.endswith("_total") else GaugeMetricFamily
    family = kind(name, documentation, labels=labels.split())
    for values, number in series.items():
        family.add_metric(values, number)
    return family


def _histogram(name: str, documentation: str, labels: str, series: Mapping[Values, Histogram]) -> Metric:
    family = HistogramMetricFamily(f"mcp_proxy_{name}", documentation, labels=labels.split())
    for values, histogram in series.items():
        family.add_metric(values, list(zip(_LE, accumulate(histogram.counts), strict=True)), histogram.total)
    return family
