"""What was counted is told as the contract names it, for one process and for many."""

import asyncio
from collections.abc import Mapping

import pytest
from prometheus_client import ProcessCollector, generate_latest

from proxy.metrics import exposition
from proxy.pins.memory import MemoryPinStore
from proxy.pins.store import PinStoreError
from proxy.routing.backends import Backend
from proxy.snapshot import Snapshot
from tests.counting import Reading, Scene, families_of, pool, reading_of, record


@pytest.fixture
def scene() -> Scene:
    return Scene()


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
    "mcp_proxy_tls_handshake_failures": "counter",
    "mcp_proxy_unlearned": "counter",
    "mcp_proxy_retries": "counter",
    "mcp_proxy_retries_withheld": "counter",
    "mcp_proxy_streams_open": "gauge",
    "mcp_proxy_client_connections": "gauge",
    "mcp_proxy_queued": "gauge",
    "mcp_proxy_backend_in_flight": "gauge",
    "mcp_proxy_backend_up": "gauge",
    "mcp_proxy_backend_draining": "gauge",
    "mcp_proxy_ejections": "counter",
    "mcp_proxy_tasks_held": "gauge",
    "mcp_proxy_ring_generation": "gauge",
    "mcp_proxy_discovered_backends": "gauge",
    "mcp_proxy_discovery_failures": "counter",
    "mcp_proxy_discovery_last_success_timestamp_seconds": "gauge",
    "mcp_proxy_pins": "gauge",
    "mcp_proxy_pins_evicted": "counter",
    "mcp_proxy_build_info": "gauge",
    "mcp_proxy_searches": "counter",
    "mcp_proxy_config_reloads": "counter",
    "mcp_proxy_workers": "gauge",
    "mcp_proxy_worker_restarts": "counter",
    "mcp_proxy_pin_store_up": "gauge",
    "mcp_proxy_config_last_reload_success_timestamp_seconds": "gauge",
    "mcp_proxy_config_last_reload_successful": "gauge",
}


PROCESS = {
    "process_cpu_seconds": "counter",
    "process_resident_memory_bytes": "gauge",
    "process_virtual_memory_bytes": "gauge",
    "process_open_fds": "gauge",
    "process_max_fds": "gauge",
    "process_start_time_seconds": "gauge",
}


async def test_families_are_those_of_the_contract_and_of_the_process(scene: Scene) -> None:
    families = await scene.families()
    kinds = {name: family.type for name, family in families.items() if not name.startswith("python_")}
    assert kinds == FAMILIES | PROCESS
    assert "python_info" in families
    assert all(family.documentation for family in families.values())


async def test_the_numbers_of_the_process_are_those_of_the_client_library(scene: Scene) -> None:
    theirs = families_of(generate_latest(ProcessCollector(registry=None)))
    ours = await scene.families()
    assert {name: family.type for name, family in theirs.items()} == PROCESS
    for name, slack in {
        "process_cpu_seconds": 1.0,  # theirs comes in ticks
        "process_start_time_seconds": 1.0,
        "process_resident_memory_bytes": 50e6,
        "process_virtual_memory_bytes": 500e6,  # a thread's stack and arena
        "process_open_fds": 5.0,
        "process_max_fds": 0.0,
    }.items():
        assert ours[name].samples[0].name == theirs[name].samples[0].name
        assert ours[name].samples[0].value == pytest.approx(theirs[name].samples[0].value, abs=slack)


def test_a_process_of_which_nothing_is_known_has_no_series() -> None:
    families = families_of(exposition(Snapshot(), held=None, version="1")[0])
    assert [name for name in families if name.startswith("process_")] == []
    read = reading_of(families)
    assert read("workers") == read("worker_restarts_total") == read("client_hangups_total") == 0
    assert read("pin_store_up") is None
    assert read("config_last_reload_success_timestamp_seconds") is None


async def test_content_type_is_that_of_the_text_format(scene: Scene) -> None:
    _, content_type = await scene.metrics.render()
    assert content_type == "text/plain; version=0.0.4; charset=utf-8"


@pytest.mark.parametrize("name", ['quote"', "back\\slash", "new\nline", "ümläut", "{a}", "a,b=c"])
async def test_label_values_are_escaped(name: str) -> None:
    scene = Scene(pools={name: pool(name, Backend(name, "10.0.0.1", 80))})
    scene.counts.record(record(route=name, pool=name, backend=name))
    read = await scene.read()
    assert read("requests_total", route=name, method="tools/call", code="200") == 1
    assert read("backend_responses_total", pool=name, backend=name, class_="2xx") == 1
    assert read("backend_in_flight", pool=name, backend=name) == 0


async def test_scrapes_at_the_same_time_agree(scene: Scene) -> None:
    scene.counts.record(record())
    reads = await asyncio.gather(*(scene.read() for _ in range(4)))
    assert {read("requests_total", route="rest", method="tools/call", code="200") for read in reads} == {1}


class NotTold(MemoryPinStore):
    """A store that does not say how many tasks are held."""

    def held(self) -> Mapping[tuple[str, str], int]:
        raise PinStoreError("secret")


async def test_a_scrape_survives_a_store_that_fails(caplog: pytest.LogCaptureFixture) -> None:
    scene = Scene(pins=NotTold(ttl=60, capacity=3, clock=lambda: 0.0))
    scene.counts.record(record())
    read = await scene.read()
    assert read.series("tasks_held") == {}  # not 0: nobody knows
    assert read("requests_total", route="rest", method="tools/call", code="200") == 1
    assert "pin store" in caplog.text
    assert "secret" not in caplog.text


def told(snapshot: Snapshot, held: Mapping[tuple[str, str], int | None] | None = None) -> Reading:
    return reading_of(families_of(exposition(snapshot, held=held, version="1.2.3")[0]))


def test_a_backend_whose_count_nobody_knows_has_no_series() -> None:
    read = told(Scene().counts.snapshot(), {("agents", "a"): None, ("agents", "b"): 2})
    assert read.series("tasks_held") == {
        (("backend", "b"), ("pool", "agents")): 2,
        (("backend", "a"), ("pool", "gpu")): 0,
    }


def test_two_processes_are_told_as_one() -> None:
    one, other = Scene(), Scene()
    for scene in (one, other, other):
        scene.counts.record(record(duration=0.03))
        scene.counts.stream_opened("agents")
    other.counts.record(record(duration=100.0))
    other.pools["agents"].members[0].draining = True
    total = one.counts.snapshot()
    total.add(other.counts.snapshot())
    total.restarts[()] = 7
    read = told(total, {("agents", "a"): 2})
    assert read("workers") == 2
    assert read("worker_restarts_total") == 7
    assert read("requests_total", route="rest", method="tools/call", code="200") == 4
    assert read("request_duration_seconds_bucket", route="rest", method="tools/call", le="0.05") == 3
    assert read("request_duration_seconds_bucket", route="rest", method="tools/call", le="+Inf") == 4
    assert read("streams_open", pool="agents") == 3
    assert read("backend_draining", pool="agents", backend="a") == 1
    assert read.series("tasks_held") == {
        (("backend", "a"), ("pool", "agents")): 2,
        (("backend", "b"), ("pool", "agents")): 0,
        (("backend", "a"), ("pool", "gpu")): 0,
    }


def test_backends_that_only_the_dead_knew_have_no_series_and_no_count_is_lost() -> None:
    dead, living = Scene(), Scene()
    for backend in ("a", "b"):
        dead.counts.record(record(backend=backend))
    left = dead.counts.snapshot().lasting()
    living.pools["agents"] = pool("agents", Backend("a", "10.0.0.1", 80))
    living.counts.record(record(backend="a"))
    total = living.counts.snapshot()
    total.add(left)
    read = told(total)
    assert read.series("backend_responses_total") == {(("backend", "a"), ("class", "2xx"), ("pool", "agents")): 2}
    assert read("requests_total", route="rest", method="tools/call", code="200") == 3
