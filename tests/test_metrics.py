"""Every request is counted where the contract says, and no client can make the number of series grow."""

import asyncio
import logging
import random
import string
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field

import pytest
from prometheus_client import Metric
from prometheus_client.parser import text_string_to_metric_families

from proxy import metrics as metrics_module
from proxy.metrics import BUCKETS, Metrics, tasks_held
from proxy.pins.memory import MemoryPinStore
from proxy.pins.store import PinStoreError
from proxy.records import CLIENT_GONE, KNOWN_METHODS, RequestRecord
from proxy.routing.backends import Backend
from proxy.routing.balancing import LeastInFlight
from proxy.routing.ownership import pin_key
from proxy.routing.pools import Pool

FAMILIES = {
    "mcp_proxy_requests": "counter",
    "mcp_proxy_backend_responses": "counter",
    "mcp_proxy_request_duration_seconds": "histogram",
    "mcp_proxy_time_to_first_byte_seconds": "histogram",
    "mcp_proxy_decisions": "counter",
    "mcp_proxy_rejected": "counter",
    "mcp_proxy_request_bytes": "counter",
    "mcp_proxy_response_bytes": "counter",
    "mcp_proxy_client_hangups": "counter",
    "mcp_proxy_unlearned": "counter",
    "mcp_proxy_retries": "counter",
    "mcp_proxy_streams_open": "gauge",
    "mcp_proxy_backend_in_flight": "gauge",
    "mcp_proxy_backend_draining": "gauge",
    "mcp_proxy_tasks_held": "gauge",
    "mcp_proxy_ring_generation": "gauge",
    "mcp_proxy_pins": "gauge",
    "mcp_proxy_pins_evicted": "counter",
    "mcp_proxy_build_info": "gauge",
    "mcp_proxy_searches": "counter",
    "mcp_proxy_config_reloads": "counter",
    "mcp_proxy_config_last_reload_success_timestamp_seconds": "gauge",
}


def pool(name: str, *backends: Backend) -> Pool:
    return Pool(name, backends, policy=LeastInFlight())


@dataclass
class Scene:
    """A proxy's state, with the metrics that look at it."""

    pools: dict[str, Pool] = field(
        default_factory=lambda: {
            "agents": pool("agents", Backend("a", "10.0.0.1", 80), Backend("b", "10.0.0.2", 80, drain=True)),
            "gpu": pool("gpu", Backend("a", "10.0.0.3", 80)),
        }
    )
    pins: metrics_module.PinCounts = field(
        default_factory=lambda: MemoryPinStore(ttl=60, capacity=3, clock=lambda: 0.0)
    )

    def __post_init__(self) -> None:
        self.metrics = Metrics(version="1.2.3", pools=lambda: self.pools, pins=lambda: self.pins)

    async def families(self) -> dict[str, Metric]:
        body, _ = await self.metrics.render()
        return {family.name: family for family in text_string_to_metric_families(body.decode())}

    async def read(self) -> "Reading":
        families = await self.families()
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


@pytest.fixture
def scene() -> Scene:
    return Scene()


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


def no_route() -> RequestRecord:
    return record(
        status=404,
        route="",
        pool="",
        backend="",
        source="",
        outcome="",
        backend_status=0,
        first_byte=-1.0,
        error="no_route",
    )


async def test_families_are_those_of_the_contract_and_of_the_process(scene: Scene) -> None:
    families = await scene.families()
    own = {name: family.type for name, family in families.items() if name.startswith("mcp_proxy_")}
    assert own == FAMILIES
    others = set(families) - set(own)
    assert "process_open_fds" in others
    assert "python_info" in others
    assert all(name.startswith(("process_", "python_")) for name in others)
    assert all(family.documentation for family in families.values())


async def test_content_type_is_that_of_the_text_format(scene: Scene) -> None:
    _, content_type = await scene.metrics.render()
    assert content_type == "text/plain; version=0.0.4; charset=utf-8"


async def test_a_served_request_is_counted_everywhere(scene: Scene) -> None:
    scene.metrics.record(record(kind="task", source="pin", method="tasks/get"))
    scene.metrics.record(record(kind="task", source="pin", method="tasks/get", bytes_in=5, bytes_out=50))
    read = await scene.read()
    assert read("requests_total", route="rest", method="tasks/get", code="200") == 2
    assert read("backend_responses_total", pool="agents", backend="a", class_="2xx") == 2
    assert read("decisions_total", pool="agents", kind="task", source="pin", outcome="served") == 2
    assert read("request_bytes_total", pool="agents") == 15
    assert read("response_bytes_total", pool="agents") == 150
    assert read("request_duration_seconds_count", route="rest", method="tasks/get") == 2
    assert read("request_duration_seconds_sum", route="rest", method="tasks/get") == pytest.approx(0.06)
    assert read("time_to_first_byte_seconds_count", pool="agents", method="tasks/get") == 2
    assert read("time_to_first_byte_seconds_sum", pool="agents", method="tasks/get") == pytest.approx(0.04)
    assert read("client_hangups_total") == 0
    assert read.series("rejected_total") == {}


@pytest.mark.parametrize(
    ("status", "label"),
    [(200, "2xx"), (202, "2xx"), (304, "3xx"), (404, "4xx"), (500, "5xx"), (599, "5xx"), (101, "1xx"), (700, "other")],
)
async def test_backend_responses_are_told_by_class(scene: Scene, status: int, label: str) -> None:
    scene.metrics.record(record(status=502, backend_status=status))
    read = await scene.read()
    assert read.series("backend_responses_total") == {(("backend", "a"), ("class", label), ("pool", "agents")): 1}
    assert read("requests_total", route="rest", method="tools/call", code="502") == 1


async def test_a_request_without_route_has_neither_decision_nor_response(scene: Scene) -> None:
    scene.metrics.record(no_route())
    read = await scene.read()
    assert read("requests_total", route="", method="tools/call", code="404") == 1
    assert read("rejected_total", reason="no_route") == 1
    assert read("request_duration_seconds_count", route="", method="tools/call") == 1
    for name in ("decisions_total", "backend_responses_total", "time_to_first_byte_seconds_count"):
        assert read.series(name) == {}


async def test_the_proxys_own_answer_has_no_first_byte_of_a_backend(scene: Scene) -> None:
    scene.metrics.record(record(status=502, backend_status=0, first_byte=0.5, error="connect_failed"))
    read = await scene.read()
    assert read.series("time_to_first_byte_seconds_count") == {}
    assert read("rejected_total", reason="connect_failed") == 1


async def test_a_hang_up_is_no_rejection(scene: Scene) -> None:
    scene.metrics.record(record(status=CLIENT_GONE, backend_status=0, first_byte=-1.0, error="client_gone"))
    scene.metrics.record(record(error="client_gone"))
    read = await scene.read()
    assert read("client_hangups_total") == 2
    assert read.series("rejected_total") == {}
    assert read("requests_total", route="rest", method="tools/call", code="499") == 1


async def test_heads_not_understood_are_requests_and_rejections(scene: Scene) -> None:
    scene.metrics.rejected("bad_request", 400)
    scene.metrics.rejected("bad_request", 400)
    scene.metrics.rejected("head_too_large", 431)
    read = await scene.read()
    assert read("rejected_total", reason="bad_request") == 2
    assert read("rejected_total", reason="head_too_large") == 1
    assert read("requests_total", route="", method="other", code="400") == 2
    assert read("requests_total", route="", method="other", code="431") == 1


async def test_rejections_with_and_without_a_record_add_up(scene: Scene) -> None:
    scene.metrics.rejected("forbidden_host", 421)
    scene.metrics.record(record(status=421, route="", method="other", backend_status=0, error="forbidden_host"))
    read = await scene.read()
    assert read("rejected_total", reason="forbidden_host") == 2
    assert read("requests_total", route="", method="other", code="421") == 2


async def test_lessons_retries_and_streams_are_counted(scene: Scene) -> None:
    scene.metrics.unlearned("store_failed")
    scene.metrics.retried("agents", "connect_failed")
    scene.metrics.retried("agents", "connect_failed")
    scene.metrics.stream_opened("agents")
    scene.metrics.stream_opened("agents")
    scene.metrics.stream_closed("agents")
    read = await scene.read()
    assert read("unlearned_total", reason="store_failed") == 1
    assert read("retries_total", pool="agents", reason="connect_failed") == 2
    assert read("streams_open", pool="agents") == 1
    assert read("streams_open", pool="gpu") == 0


async def test_state_is_read_at_the_scrape(scene: Scene) -> None:
    member = scene.pools["agents"].members[0]
    member.in_flight = 7
    read = await scene.read()
    assert read.series("backend_in_flight") == {
        (("backend", "a"), ("pool", "agents")): 7,
        (("backend", "b"), ("pool", "agents")): 0,
        (("backend", "a"), ("pool", "gpu")): 0,
    }
    assert read("backend_draining", pool="agents", backend="a") == 0
    assert read("backend_draining", pool="agents", backend="b") == 1
    assert read("ring_generation", pool="agents") == 1
    assert read("build_info", version="1.2.3") == 1
    member.in_flight = 0
    assert (await scene.read())("backend_in_flight", pool="agents", backend="a") == 0


async def test_pins_and_held_tasks_are_read_at_the_scrape(scene: Scene) -> None:
    assert isinstance(scene.pins, MemoryPinStore)
    for number in range(5):  # two more than there is room for
        scene.pins.put(pin_key("agents", f"t{number}"), "agents", "b", ttl=None)
    read = await scene.read()
    assert read("pins", kind="task") == 3
    assert read("pins_evicted_total") == 2
    assert read.series("tasks_held") == {
        (("backend", "a"), ("pool", "agents")): 0,
        (("backend", "b"), ("pool", "agents")): 3,
        (("backend", "a"), ("pool", "gpu")): 0,
    }


class LateStore:
    """Answers with a future that the test holds."""

    evicted = 4

    def __init__(self) -> None:
        self.answer: asyncio.Future[Mapping[tuple[str, str], int]] = asyncio.get_running_loop().create_future()
        self.asked = asyncio.Event()

    def __len__(self) -> int:
        return 9

    def held(self) -> asyncio.Future[Mapping[tuple[str, str], int]]:
        self.asked.set()
        return self.answer


class BrokenStore:
    """Fails at once."""

    evicted = 0

    def __len__(self) -> int:
        return 0

    def held(self) -> Mapping[tuple[str, str], int]:
        raise PinStoreError("redis://user:secret@redis is down")


async def test_a_store_that_answers_later_is_awaited() -> None:
    store = LateStore()
    scene = Scene(pins=store)
    reading = asyncio.gather(scene.read())
    await asyncio.wait_for(store.asked.wait(), 10)
    assert not reading.done()
    store.answer.set_result({("agents", "a"): 2})
    (read,) = await asyncio.wait_for(reading, 10)
    assert read("tasks_held", pool="agents", backend="a") == 2
    assert read("tasks_held", pool="agents", backend="b") == 0
    assert read("pins_evicted_total") == 4


def raise_later(store: LateStore) -> None:
    store.answer.set_exception(PinStoreError("secret"))


def say_nothing(store: LateStore) -> None:
    pass


@pytest.mark.parametrize("failure", [raise_later, say_nothing])
async def test_a_scrape_survives_a_store_that_fails_later_or_never_answers(
    failure: Callable[[LateStore], None], monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(metrics_module, "STORE_WAIT", 0.01)
    store = LateStore()
    failure(store)
    scene = Scene(pins=store)
    scene.metrics.record(record())
    read = await scene.read()
    assert read.series("tasks_held") == {}  # not 0: nobody knows
    assert read("requests_total", route="rest", method="tools/call", code="200") == 1
    assert "pin store" in caplog.text
    assert "secret" not in caplog.text


async def test_a_store_that_fails_at_once_leaves_the_number_open(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING, logger="proxy"):
        assert await tasks_held(BrokenStore()) is None
    assert "PinStoreError" in caplog.text
    assert "secret" not in caplog.text


async def test_unknown_methods_share_one_label(scene: Scene) -> None:
    for method in ("tools/call", "x", "y/z", "", "tools/call "):
        scene.metrics.record(record(method=method))
    read = await scene.read()
    assert read("requests_total", route="rest", method="tools/call", code="200") == 1
    assert read("requests_total", route="rest", method="other", code="200") == 4
    assert len(read.series("requests_total")) == 2


def random_records(seed: int, count: int) -> Iterator[RequestRecord]:
    chance = random.Random(seed)
    methods = sorted(KNOWN_METHODS)
    for _ in range(count):
        text = "".join(chance.choices(string.printable, k=8))
        yield RequestRecord(
            method=text if chance.random() < 0.5 else chance.choice(methods),
            verb=text,
            status=chance.choice([200, 404]),
            route=chance.choice(["rest", "gpu"]),
            pool=chance.choice(["agents", "gpu"]),
            backend="a",
            kind=chance.choice(["task", "none"]),
            source=chance.choice(["pin", "balance"]),
            outcome="served",
            backend_status=chance.choice([0, 200]),
            duration=chance.expovariate(1),
            first_byte=chance.uniform(-1, 1),
            bytes_in=chance.randrange(1000),
            bytes_out=chance.randrange(1000),
            error=chance.choice(["", "client_gone", "backend_closed"]),
            client=text,
            task=text,
            streamed=chance.random() < 0.5,
        )


async def test_random_names_methods_and_ids_make_no_new_series(scene: Scene) -> None:
    """What a client can choose freely never reaches a label, and is not kept in memory either."""
    records = list(random_records(seed=1, count=100_000))
    for item in records[:10_000]:
        scene.metrics.record(item)
    before = (await scene.read()).names()
    for item in records[10_000:]:
        scene.metrics.record(item)
    read = await scene.read()
    assert read.names() == before
    assert len(scene.metrics._cells) <= (len(KNOWN_METHODS) + 1) * 2**6 * 3  # what random_records can make at most
    assert sum(read.series("requests_total").values()) == 100_000


async def test_histograms_agree_with_their_counts(scene: Scene) -> None:
    records = list(random_records(seed=2, count=3_000))
    for item in records:
        scene.metrics.record(item)
    families = await scene.families()
    durations = [item.duration for item in records]
    first_bytes = [item.first_byte for item in records if item.first_byte >= 0 and item.backend_status]
    for name, values in (("request_duration_seconds", durations), ("time_to_first_byte_seconds", first_bytes)):
        buckets, counts, sums = Counter[tuple[str, str]](), Counter[str](), Counter[str]()
        total = 0.0
        for sample in families[f"mcp_proxy_{name}"].samples:
            labels = str(sorted((key, value) for key, value in sample.labels.items() if key != "le"))
            if sample.name.endswith("_bucket"):
                assert sample.value >= sums[labels]  # cumulative
                sums[labels] = int(sample.value)
                buckets[labels, sample.labels["le"]] = int(sample.value)
            elif sample.name.endswith("_count"):
                counts[labels] = int(sample.value)
            else:
                total += sample.value
        assert counts
        assert {labels: buckets[labels, "+Inf"] for labels in counts} == counts
        assert counts.total() == len(values)
        assert total == pytest.approx(sum(values))
        for bound in BUCKETS:
            below = sum(buckets[labels, str(bound)] for labels in counts)
            assert below == sum(value <= bound for value in values)


@pytest.mark.parametrize("bound", BUCKETS)
async def test_a_bound_belongs_to_its_bucket(scene: Scene, bound: float) -> None:
    scene.metrics.record(record(duration=bound))
    read = await scene.read()
    position = BUCKETS.index(bound)
    assert read("request_duration_seconds_bucket", route="rest", method="tools/call", le=str(bound)) == 1
    if position:
        smaller = str(BUCKETS[position - 1])
        assert read("request_duration_seconds_bucket", route="rest", method="tools/call", le=smaller) == 0


async def test_a_request_longer_than_all_bounds_is_counted(scene: Scene) -> None:
    scene.metrics.record(record(duration=1e6))
    read = await scene.read()
    assert read("request_duration_seconds_bucket", route="rest", method="tools/call", le=str(BUCKETS[-1])) == 0
    assert read("request_duration_seconds_bucket", route="rest", method="tools/call", le="+Inf") == 1


async def test_backends_that_left_lose_their_series_and_no_count_is_lost(scene: Scene) -> None:
    for backend in ("a", "b", "b"):
        scene.metrics.record(record(backend=backend))
    scene.pools["agents"] = pool("agents", Backend("a", "10.0.0.1", 80), Backend("c", "10.0.0.4", 80))
    read = await scene.read()
    assert read.series("backend_responses_total") == {(("backend", "a"), ("class", "2xx"), ("pool", "agents")): 1}
    assert read("requests_total", route="rest", method="tools/call", code="200") == 3
    assert read("decisions_total", pool="agents", kind="none", source="balance", outcome="served") == 3
    assert read("request_duration_seconds_count", route="rest", method="tools/call") == 3
    assert read("time_to_first_byte_seconds_count", pool="agents", method="tools/call") == 3
    assert read("response_bytes_total", pool="agents") == 300
    assert read("backend_in_flight", pool="agents", backend="b") is None
    assert read("tasks_held", pool="agents", backend="c") == 0


async def test_backends_that_come_and_go_leave_no_cells_behind(scene: Scene) -> None:
    for number in range(50):
        name = f"b{number}"
        scene.pools["agents"] = pool("agents", Backend(name, "10.0.0.1", 80))
        scene.metrics.record(record(backend=name))
        read = await scene.read()
        assert len(scene.metrics._cells) <= 2  # this backend's, and one for all that left
    assert read("requests_total", route="rest", method="tools/call", code="200") == 50


async def test_counters_never_fall_between_scrapes(scene: Scene) -> None:
    """A counter that falls is read as a restart, and makes rates jump."""
    last: dict[tuple[tuple[str, str], ...], float] = {}
    for turn in range(5):
        scene.metrics.record(record(backend="b"))
        if turn == 2:
            scene.pools["agents"] = pool("agents", Backend("a", "10.0.0.1", 80))
        now = (await scene.read()).series("requests_total")
        assert all(now[labels] >= value for labels, value in last.items())
        last = now
    assert list(last.values()) == [5]


@pytest.mark.parametrize("name", ['quote"', "back\\slash", "new\nline", "ümläut", "{a}", "a,b=c"])
async def test_label_values_are_escaped(name: str) -> None:
    scene = Scene(pools={name: pool(name, Backend(name, "10.0.0.1", 80))})
    scene.metrics.record(record(route=name, pool=name, backend=name))
    read = await scene.read()
    assert read("requests_total", route=name, method="tools/call", code="200") == 1
    assert read("backend_responses_total", pool=name, backend=name, class_="2xx") == 1
    assert read("backend_in_flight", pool=name, backend=name) == 0


async def test_scrapes_at_the_same_time_agree(scene: Scene) -> None:
    scene.metrics.record(record())
    reads = await asyncio.gather(*(scene.read() for _ in range(4)))
    assert {read("requests_total", route="rest", method="tools/call", code="200") for read in reads} == {1}
