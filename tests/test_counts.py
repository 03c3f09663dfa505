"""Every request is counted where the contract says, and no client can make the number of series grow."""

import random
import string
from collections import Counter
from collections.abc import Iterator

import pytest

from proxy.access_log import AccessLog
from proxy.counts import Counts
from proxy.pins.memory import MemoryPinStore
from proxy.records import CLIENT_GONE, KNOWN_METHODS, RequestRecord
from proxy.routing.backends import Backend
from proxy.routing.ownership import pin_key
from proxy.snapshot import BUCKETS
from tests.counting import Scene, pool, record


@pytest.fixture
def scene() -> Scene:
    return Scene()


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


async def test_a_served_request_is_counted_everywhere(scene: Scene) -> None:
    scene.counts.record(record(kind="task", source="pin", method="tasks/get"))
    scene.counts.record(record(kind="task", source="pin", method="tasks/get", bytes_in=5, bytes_out=50))
    read = await scene.read()
    assert read("requests_total", route="rest", method="tasks/get", code="200") == 2
    assert read("backend_responses_total", pool="agents", backend="a", class_="2xx") == 2
    assert read("decisions_total", pool="agents", kind="task", source="pin", outcome="served") == 2
    assert read("request_bytes_total", pool="agents") == 15
    assert read("response_bytes_total", pool="agents") == 150
    assert read("request_duration_seconds_count", route="rest", method="tasks/get") == 2
    assert read("request_duration_seconds_sum", route="rest", method="tasks/get") == pytest.approx(0.06, abs=2e-6)
    assert read("time_to_first_byte_seconds_count", pool="agents", method="tasks/get") == 2
    assert read("time_to_first_byte_seconds_sum", pool="agents", method="tasks/get") == pytest.approx(0.04)
    assert read("client_hangups_total") == 0
    assert read.series("rejected_total") == {}


@pytest.mark.parametrize(
    ("status", "label"),
    [(200, "2xx"), (202, "2xx"), (304, "3xx"), (404, "4xx"), (500, "5xx"), (599, "5xx"), (101, "1xx"), (700, "other")],
)
async def test_backend_responses_are_told_by_class(scene: Scene, status: int, label: str) -> None:
    scene.counts.record(record(status=502, backend_status=status))
    read = await scene.read()
    assert read.series("backend_responses_total") == {(("backend", "a"), ("class", label), ("pool", "agents")): 1}
    assert read("requests_total", route="rest", method="tools/call", code="502") == 1


async def test_a_request_without_route_has_neither_decision_nor_response(scene: Scene) -> None:
    scene.counts.record(no_route())
    read = await scene.read()
    assert read("requests_total", route="", method="tools/call", code="404") == 1
    assert read("rejected_total", reason="no_route") == 1
    assert read("request_duration_seconds_count", route="", method="tools/call") == 1
    for name in ("decisions_total", "backend_responses_total", "time_to_first_byte_seconds_count"):
        assert read.series(name) == {}


async def test_the_proxys_own_answer_has_no_first_byte_of_a_backend(scene: Scene) -> None:
    scene.counts.record(record(status=502, backend_status=0, first_byte=0.5, error="connect_failed"))
    read = await scene.read()
    assert read.series("time_to_first_byte_seconds_count") == {}
    assert read("rejected_total", reason="connect_failed") == 1


async def test_a_hang_up_is_no_rejection(scene: Scene) -> None:
    scene.counts.record(record(status=CLIENT_GONE, backend_status=0, first_byte=-1.0, error="client_gone"))
    scene.counts.record(record(error="client_gone"))
    read = await scene.read()
    assert read("client_hangups_total") == 2
    assert read.series("rejected_total") == {}
    assert read("requests_total", route="rest", method="tools/call", code="499") == 1


async def test_heads_not_understood_are_requests_and_rejections(scene: Scene) -> None:
    scene.counts.refused("192.0.2.1", "bad_request", 400)
    scene.counts.refused("192.0.2.1", "bad_request", 400)
    scene.counts.refused("192.0.2.1", "head_too_large", 431)
    read = await scene.read()
    assert read("rejected_total", reason="bad_request") == 2
    assert read("rejected_total", reason="head_too_large") == 1
    assert read("requests_total", route="", method="other", code="400") == 2
    assert read("requests_total", route="", method="other", code="431") == 1


async def test_rejections_with_and_without_a_record_add_up(scene: Scene) -> None:
    scene.counts.refused("192.0.2.1", "forbidden_host", 421)
    scene.counts.record(record(status=421, route="", method="other", backend_status=0, error="forbidden_host"))
    read = await scene.read()
    assert read("rejected_total", reason="forbidden_host") == 2
    assert read("requests_total", route="", method="other", code="421") == 2


async def test_lessons_retries_and_streams_are_counted(scene: Scene) -> None:
    scene.counts.unlearned("store_failed")
    scene.counts.retried("agents", "connect_failed")
    scene.counts.retried("agents", "connect_failed")
    scene.counts.withheld("agents", "tools/call")
    scene.counts.withheld("agents", "acme/secret-1")
    scene.counts.withheld("agents", "acme/secret-2")
    scene.counts.stream_opened("agents")
    scene.counts.stream_opened("agents")
    scene.counts.stream_closed("agents")
    read = await scene.read()
    assert read("unlearned_total", reason="store_failed") == 1
    assert read("retries_total", pool="agents", reason="connect_failed") == 2
    assert read("retries_withheld_total", pool="agents", method="tools/call") == 1
    assert read("retries_withheld_total", pool="agents", method="other") == 2
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
    for number in range(3):
        scene.pins.put(pin_key("agents", f"t{number}"), "agents", "b", ttl=None)
    read = await scene.read()
    assert read("pins", kind="task") == 3
    assert read.series("tasks_held") == {
        (("backend", "a"), ("pool", "agents")): 0,
        (("backend", "b"), ("pool", "agents")): 3,
        (("backend", "a"), ("pool", "gpu")): 0,
    }
    for number in range(2):  # there is no room for more: how many are held is not known now
        scene.pins.put(pin_key("agents", f"u{number}"), "agents", "b", ttl=None)
    read = await scene.read()
    assert read("pins", kind="task") == 3
    assert read("pins_evicted_total") == 2
    assert read.series("tasks_held") == {
        (("backend", "a"), ("pool", "agents")): 0,
        (("backend", "a"), ("pool", "gpu")): 0,
    }


async def test_unknown_methods_share_one_label(scene: Scene) -> None:
    for method in ("tools/call", "x", "y/z", "", "tools/call "):
        scene.counts.record(record(method=method))
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
        scene.counts.record(item)
    before = (await scene.read()).names()
    for item in records[10_000:]:
        scene.counts.record(item)
    read = await scene.read()
    assert read.names() == before
    assert len(scene.counts._cells) <= (len(KNOWN_METHODS) + 1) * 2**6 * 3  # what random_records can make at most
    assert sum(read.series("requests_total").values()) == 100_000


async def test_histograms_agree_with_their_counts(scene: Scene) -> None:
    records = list(random_records(seed=2, count=3_000))
    for item in records:
        scene.counts.record(item)
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
    scene.counts.record(record(duration=bound))
    read = await scene.read()
    position = BUCKETS.index(bound)
    assert read("request_duration_seconds_bucket", route="rest", method="tools/call", le=str(bound)) == 1
    if position:
        smaller = str(BUCKETS[position - 1])
        assert read("request_duration_seconds_bucket", route="rest", method="tools/call", le=smaller) == 0


async def test_a_request_longer_than_all_bounds_is_counted(scene: Scene) -> None:
    scene.counts.record(record(duration=1e6))
    read = await scene.read()
    assert read("request_duration_seconds_bucket", route="rest", method="tools/call", le=str(BUCKETS[-1])) == 0
    assert read("request_duration_seconds_bucket", route="rest", method="tools/call", le="+Inf") == 1


async def test_backends_that_left_lose_their_series_and_no_count_is_lost(scene: Scene) -> None:
    for backend in ("a", "b", "b"):
        scene.counts.record(record(backend=backend))
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
        scene.counts.record(record(backend=name))
        read = await scene.read()
        assert len(scene.counts._cells) <= 2  # this backend's, and one for all that left
    assert read("requests_total", route="rest", method="tools/call", code="200") == 50


@pytest.mark.parametrize("seed", range(20))
async def test_sums_of_times_do_not_fall_by_a_bit_when_backends_leave(scene: Scene, seed: int) -> None:
    """Floats that are added in another order come to another sum."""
    chance = random.Random(seed)
    backends = [Backend(f"b{number}", "10.0.0.1", 80) for number in range(20)]
    scene.pools["agents"] = pool("agents", *backends)
    for _ in range(300):
        seconds = chance.expovariate(0.3)
        scene.counts.record(record(backend=chance.choice(backends).id, duration=seconds, first_byte=seconds))
    names = ("request_duration_seconds_sum", "time_to_first_byte_seconds_sum")
    before = await scene.read()
    scene.pools["agents"] = pool("agents", *chance.sample(backends, 10))
    after = await scene.read()
    for name in names:
        assert before.series(name)
        assert after.series(name) == before.series(name)


async def test_counters_never_fall_between_scrapes(scene: Scene) -> None:
    """A counter that falls is read as a restart, and makes rates jump."""
    last: dict[tuple[tuple[str, str], ...], float] = {}
    for turn in range(5):
        scene.counts.record(record(backend="b"))
        if turn == 2:
            scene.pools["agents"] = pool("agents", Backend("a", "10.0.0.1", 80))
        now = (await scene.read()).series("requests_total")
        assert all(now[labels] >= value for labels, value in last.items())
        last = now
    assert list(last.values()) == [5]


async def test_reloads_are_counted_and_the_last_that_succeeded_is_dated(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = await scene.read()
    assert before("config_reloads_total", outcome="ok") == 0
    assert before("config_reloads_total", outcome="refused") == 0
    start = before("config_last_reload_success_timestamp_seconds")
    assert start is not None
    monkeypatch.setattr("time.time", lambda: start + 60)
    scene.counts.reloaded(ok=False)
    refused = await scene.read()
    assert refused("config_last_reload_success_timestamp_seconds") == start
    assert (before("config_last_reload_successful"), refused("config_last_reload_successful")) == (1, 0)
    scene.counts.reloaded(ok=True)
    read = await scene.read()
    assert read("config_last_reload_success_timestamp_seconds") == start + 60
    assert read("config_last_reload_successful") == 1
    assert read("config_reloads_total", outcome="ok") == 1
    assert read("config_reloads_total", outcome="refused") == 1


class Lines:
    """A stream that keeps what it is given."""

    def __init__(self) -> None:
        self.text = b""

    def write(self, data: bytes, /) -> int:
        self.text += data
        return len(data)


def test_what_is_counted_is_logged(scene: Scene) -> None:
    lines = Lines()
    log = AccessLog(lines, "text", lambda: 0.0)
    counts = Counts(pools=lambda: scene.pools, pins=scene.pins, access_log=log)
    counts.record(record(method="tasks/get"))
    counts.refused("192.0.2.7", "bad_request", 400)
    log.flush()
    first, second = lines.text.decode().splitlines()
    assert "method=tasks/get" in first
    assert "client=192.0.2.7" in second
    assert "status=400" in second
    assert counts.snapshot().requests == {("rest", "tasks/get", "200"): 1, ("", "other", "400"): 1}


def test_a_process_is_one_worker_and_tells_what_it_uses(scene: Scene) -> None:
    now = scene.counts.snapshot()
    assert now.workers == {(): 1}
    assert now.restarts == {}
    assert now.cpu[()] > 0


def test_a_snapshot_stays_as_it_was_taken(scene: Scene) -> None:
    scene.counts.record(record())
    taken = scene.counts.snapshot()
    kept = taken.as_values()
    text = repr(kept)
    scene.counts.record(record())
    scene.counts.stream_opened("agents")
    assert repr(taken.as_values()) == text
    assert scene.counts.snapshot().requests["rest", "tools/call", "200"] == 2


class StoreDown(MemoryPinStore):
    """As a store elsewhere that does not answer."""

    @property
    def up(self) -> bool:
        return False


@pytest.mark.parametrize(("kind", "up"), [(MemoryPinStore, 1), (StoreDown, 0)])
async def test_whether_the_pin_store_answers_is_told(kind: type[MemoryPinStore], up: int) -> None:
    scene = Scene(pins=kind(ttl=60, capacity=3, clock=lambda: 0.0))
    assert (await scene.read())("pin_store_up") == up
