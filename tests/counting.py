"""A proxy's state whose counts are read as Prometheus reads them, and requests to count."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Protocol

from prometheus_client import Metric
from prometheus_client.parser import text_string_to_metric_families

from proxy.counts import Counts, PinCounts
from proxy.metrics import Metrics
from proxy.pins.held import Holder, tasks_held
from proxy.pins.memory import MemoryPinStore
from proxy.records import RequestRecord
from proxy.routing.backends import Backend
from proxy.routing.balancing import LeastInFlight
from proxy.routing.pools import Pool


class CountedPins(PinCounts, Holder, Protocol):
    """What is asked of a store here."""


def pool(name: str, *backends: Backend) -> Pool:
    return Pool(name, backends, policy=LeastInFlight())


@dataclass
class Scene:
    """A proxy's state, what counts in it, and what tells of that."""

    pools: dict[str, Pool] = field(
        default_factory=lambda: {
            "agents": pool("agents", Backend("a", "10.0.0.1", 80), Backend("b", "10.0.0.2", 80, drain=True)),
            "gpu": pool("gpu", Backend("a", "10.0.0.3", 80)),
        }
    )
    pins: CountedPins = field(default_factory=lambda: MemoryPinStore(ttl=60, capacity=3, clock=lambda: 0.0))

    def __post_init__(self) -> None:
        self.counts = Counts(pools=lambda: self.pools, pins=self.pins)
        self.metrics = Metrics(version="1.2.3", snapshot=self.counts.snapshot, held=lambda: tasks_held(self.pins))

    async def families(self) -> dict[str, Metric]:
        body, _ = await self.metrics.render()
        return families_of(body)

    async def read(self) -> "Reading":
        return reading_of(await self.families())


def families_of(text: bytes) -> dict[str, Metric]:
    """What Prometheus reads in a scrape's text, by name."""
    return {family.name: family for family in text_string_to_metric_families(text.decode())}


def reading_of(families: Mapping[str, Metric]) -> "Reading":
    return Reading(
        {
            (sample.name.removeprefix("mcp_proxy_"), frozenset(sample.labels.items())): sample.value
            for family in families.values()
            for sample in family.samples
        }
    )


class Reading:
    """A scrape's values by name and labels."""

    def __init__(self, values: Mapping[tuple[str, frozenset[tuple[str, str]]], float]) -> None:
        self._values = values

    def __call__(self, name: str, **labels: str) -> float | None:
        """The value of this one series, None without it. A keyword's last underscore is dropped (`class_`)."""
        return self._values.get((name, frozenset((key.rstrip("_"), value) for key, value in labels.items())))

    def series(self, name: str) -> dict[tuple[tuple[str, str], ...], float]:
        """All series of a name, by their sorted labels."""
        return {tuple(sorted(labels)): value for (known, labels), value in self._values.items() if known == name}

    def names(self) -> set[tuple[str, frozenset[tuple[str, str]]]]:
        return set(self._values)


def record(
    *,
    method: str = "tools/call",
    status: int = 200,
    route: str = "rest",
    pool: str = "agents",
    backend: str = "a",
    kind: str = "none",
    source: str = "balance",
    outcome: str = "served",
    backend_status: int | None = None,
    duration: float = 0.03,
    first_byte: float = 0.02,
    bytes_in: int = 10,
    bytes_out: int = 100,
    error: str = "",
) -> RequestRecord:
    return RequestRecord(
        method=method,
        verb="POST",
        status=status,
        route=route,
        pool=pool,
        backend=backend,
        kind=kind,
        source=source,
        outcome=outcome,
        backend_status=status if backend_status is None else backend_status,
        duration=duration,
        first_byte=first_byte,
        bytes_in=bytes_in,
        bytes_out=bytes_out,
        error=error,
        client="192.0.2.1",
        task="",
        streamed=False,
    )
