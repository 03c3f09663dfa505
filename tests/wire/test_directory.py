"""Where requests go: pins before tags before the ring, within the reachable pools, however the pin store answers."""

import asyncio
from collections.abc import Mapping
from typing import Any

import pytest

from proxy.pins.store import POOL_ITSELF, Answer, Pin
from proxy.routing.errors import MalformedHeader, NoBackend, NoRoute, ProxyError
from proxy.routing.headers import RoutingHeaders
from proxy.routing.ownership import pin_key
from proxy.routing.rounds import ConnectionMemory
from proxy.routing.routes import Match, Pattern, ProtocolCondition, Route
from proxy.wire.destination import Destination
from proxy.wire.directory import Directory
from tests.wire.directories import Place, Store, about, asked, directory, found, one_found, pool_of

TAG = r"^(?P<backend>[a-z])\."
POOLS = [
    pool_of("gpu", "abc", drained="c", search=False),
    pool_of("tagged", "ade", tag=TAG, search=False),
    pool_of("other", "xyz", departed="w", tag=TAG, search=False),
    pool_of("acme", "a", search=False),
    pool_of("drained", "ab", drained="ab", search=False),
    pool_of("alone", "a", drained="a", search=False),
]
ROUTES = [
    Route("render", Match(method=Pattern("tools/call"), name=Pattern("render")), {"gpu": 1}),
    Route("acme", Match(headers={"x-tenant": Pattern("acme")}), {"acme": 1}),
    Route("legacy", Match(protocol=ProtocolCondition("<2026-07-28")), {"other": 1}),
    Route("rest", Match(), {"tagged": 1, "other": 1}),
    Route("down", Match(path=Pattern("/down")), {"drained": 1}),
    Route("one", Match(path=Pattern("/one")), {"alone": 1}),
]


PINNED: Mapping[str, tuple[str, str]] = {
    "in-gpu": ("gpu", "b"),
    "in-drained": ("gpu", "c"),
    "in-other": ("other", "y"),
    "in-acme": ("acme", "a"),
    "in-left": ("gpu", "gone"),
    "in-departed": ("other", "w"),
    "a.pinned-elsewhere": ("tagged", "d"),
}
BY_RING = ("render", "gpu", POOLS[0].by_ring("unknown").member.backend.id, "ring")


def here(store: Store | None = None, **more: Any) -> Directory:
    return directory(POOLS, ROUTES, owners("at once") if store is None else store, **more)


def owners(manner: str) -> Store:
    store = Store(manner)
    for task, (pool, backend) in PINNED.items():
        assert store.put(pin_key(pool, task), pool, backend, ttl=None) == backend
    return store


@pytest.mark.parametrize(
    ("task", "more", "expected"),
    [
        # a pin, in the reachable pools in route order, whatever the tool's conditions
        ("in-gpu", {}, ("render", "gpu", "b", "pin")),
        ("in-drained", {}, ("render", "gpu", "c", "pin")),
        ("in-other", {}, ("rest", "other", "y", "pin")),
        ("in-departed", {}, ("rest", "other", "w", "pin")),
        # never a pool that this request's own headers do not lead to
        ("in-acme", {}, None),
        ("in-acme", {"fields": {"x-tenant": "acme"}}, ("acme", "acme", "a", "pin")),
        # a backend that is in the pool no more owns nothing
        ("in-left", {}, None),
        # a pin goes before a tag, a tag before the ring; of tags the first pool's in route order
        ("a.pinned-elsewhere", {}, ("rest", "tagged", "d", "pin")),
        ("a.1", {}, ("rest", "tagged", "a", "tag")),
        ("x.1", {}, ("rest", "other", "x", "tag")),
        ("w.1", {}, ("rest", "other", "w", "tag")),
        ("b.1", {}, None),
        ("unknown", {}, BY_RING),
    ],
)
@pytest.mark.parametrize("method", ["tasks/get", "tasks/update", "tasks/cancel"])
@pytest.mark.parametrize("manner", ["at once", "later", "first at once, then later"])
async def test_the_owner_of_a_task(
    manner: str, method: str, task: str, more: dict[str, Any], expected: Place | None
) -> None:
    """None: the ring of the first reachable pool."""
    ring = ("render", "gpu", POOLS[0].by_ring(task).member.backend.id, "ring")
    store = owners(manner)
    assert await one_found(here(store), asked(method, name="raw", **more), task) == (expected or ring)


@pytest.mark.parametrize("manner", ["fails at once", "fails later"])
@pytest.mark.parametrize(
    ("task", "expected"), [("in-gpu", None), ("a.1", ("rest", "tagged", "a", "tag")), ("unknown", BY_RING)]
)
async def test_a_store_that_fails_knows_nothing(manner: str, task: str, expected: Place | None) -> None:
    ring = ("render", "gpu", POOLS[0].by_ring(task).member.backend.id, "ring")
    assert await one_found(here(owners(manner)), asked("tasks/get"), task) == (expected or ring)


async def test_pins_are_asked_one_pool_after_the_other_and_no_more_than_needed() -> None:
    for manner in ("at once", "later"):
        store = owners(manner)
        await one_found(here(store), asked("tasks/get"), "in-gpu")
        assert store.asked == [pin_key("gpu", "in-gpu")]
        store.asked.clear()
        await one_found(here(store), asked("tasks/get"), "unknown")
        assert store.asked == [pin_key(pool, "unknown") for pool in ("gpu", "tagged", "other")]


def test_what_is_known_at_once_is_found_at_once() -> None:
    """The fast path makes no task."""
    for request, task in ((asked("tasks/get"), "in-gpu"), (asked("tasks/get"), "unknown"), (asked(), None)):
        assert isinstance(here().find(request, task, "::1", ConnectionMemory()), Destination)


@pytest.mark.parametrize(
    ("request_headers", "expected"),
    [
        (asked(name="render"), ("render", "gpu")),
        (asked(name="whoami"), ("rest", "tagged")),
        (asked("tasks/list"), ("rest", "tagged")),
        (asked(name="render", fields={"x-tenant": "acme"}), ("render", "gpu")),
        (asked(name="whoami", fields={"x-tenant": "acme"}), ("acme", "acme")),
        (asked(version="2025-11-25", name="render"), ("legacy", "other")),
        (asked("tasks/get", version="", name="in-gpu"), ("legacy", "other")),
    ],
)
async def test_other_requests_go_by_the_first_matching_route(
    request_headers: RoutingHeaders, expected: tuple[str, str]
) -> None:
    store = owners("at once")
    route, pool, _, source = await one_found(here(store), request_headers)
    assert (route, pool, source) == (*expected, "balance")
    assert store.asked == []


async def test_a_split_takes_turns() -> None:
    place = here()
    pools = [(await one_found(place, asked(name="whoami")))[1] for _ in range(4)]
    assert pools == ["tagged", "other", "tagged", "other"]


async def test_a_task_request_without_a_name_is_balanced_in_the_first_reachable_pool() -> None:
    """FastMCP's client sends none."""
    store = owners("at once")
    route, pool, backend, source = await one_found(here(store), asked("tasks/get"), None)
    assert (route, pool, source) == ("render", "gpu", "balance")
    assert backend in "ab"
    assert store.asked == []


@pytest.mark.parametrize(
    ("request_headers", "task", "error"),
    [
        (asked(path="/elsewhere"), None, NoRoute),
        (asked("tasks/get", path="/elsewhere"), "in-gpu", NoRoute),
        (asked(path="/down"), None, NoBackend),
        (asked("tasks/get", path="/down"), "unknown", NoBackend),
        (asked("tasks/get", path="/down"), None, NoBackend),
        (asked(name="=?base64?!?="), None, MalformedHeader),
    ],
)
@pytest.mark.parametrize("manner", ["at once", "later"])
async def test_errors(manner: str, request_headers: RoutingHeaders, task: str | None, error: type[ProxyError]) -> None:
    with pytest.raises(error):
        await one_found(here(owners(manner)), request_headers, task)


async def test_another_backend_after_one_that_was_not_reached() -> None:
    place, request = here(), asked(name="render")
    failed = await found(place, request)
    assert isinstance(failed, Destination)
    tried = [failed.choice.member]
    again = place.find_another(request, None, failed, tried)
    assert again.choice.member not in tried
    assert (again.route, again.lane, again.kind, again.bound) == (failed.route, failed.lane, "none", False)
    with pytest.raises(NoBackend, match="every backend was tried"):
        place.find_another(request, None, again, [*tried, again.choice.member])


async def test_a_task_goes_on_down_the_ring() -> None:
    place, request = here(), asked("tasks/get")
    failed = await found(place, request, "unknown")
    assert isinstance(failed, Destination)
    again = place.find_another(request, "unknown", failed, [failed.choice.member])
    assert (again.kind, again.bound) == ("task", False)
    assert about(again) == ("render", "gpu", *sorted({"a", "b"} - {failed.choice.member.backend.id}), "ring")


async def test_a_store_answer_is_never_awaited_for_a_request_that_is_about_no_task() -> None:
    store = owners("later")
    assert isinstance(here(store).find(asked(name="whoami"), None, "::1", ConnectionMemory()), Destination)
    assert store.asked == []
    answer: Answer[Pin | None] = store.get(pin_key("gpu", "in-gpu"))
    assert isinstance(answer, asyncio.Future)
    assert await answer == Pin("b")


@pytest.mark.parametrize("task", ["unknown", None])
async def test_the_only_backend_of_a_pool_is_asked_though_it_takes_no_new_work(task: str | None) -> None:
    """What a task's request wants can be nowhere else."""
    assert await one_found(here(), asked("tasks/get", path="/one"), task) == ("one", "alone", "a", "ring")
    with pytest.raises(NoBackend):
        await found(here(), asked(path="/one"))


SHARED = [pool_of("shared", "abc", state="shared"), pool_of("alone", "a", drained="a", state="shared")]
SHARED_ROUTES = [
    Route("many", Match(), {"shared": 1}),
    Route("one", Match(path=Pattern("/one")), {"alone": 1}),
]


@pytest.mark.parametrize("manner", ["at once", "later"])
async def test_a_pin_that_names_the_pool_goes_by_the_ring(manner: str) -> None:
    """Every backend can answer; and another one may, if that one cannot be reached."""
    store = Store(manner)
    store.put(pin_key("shared", "t-1"), "shared", POOL_ITSELF, ttl=None)
    place = directory(SHARED, SHARED_ROUTES, store)
    ring = SHARED[0].by_ring("t-1").member.backend.id
    destination = await found(place, asked("tasks/get"), "t-1")
    assert isinstance(destination, Destination)
    assert about(destination) == ("many", "shared", ring, "ring")
    assert (destination.kind, destination.bound) == ("task", False)
    again = place.find_another(asked("tasks/get"), "t-1", destination, [destination.choice.member])
    assert about(again)[2:] == (SHARED[0].in_order("t-1")[1].backend.id, "ring")


async def test_a_pin_that_names_a_pool_of_one_backend_that_takes_no_new_work() -> None:
    store = Store("at once")
    place = directory(SHARED, SHARED_ROUTES, store)
    request = asked("tasks/get", path="/one")
    assert await one_found(place, request, "t-1") == ("one", "alone", "a", "ring")
    store.put(pin_key("alone", "t-1"), "alone", POOL_ITSELF, ttl=None)
    assert await one_found(place, request, "t-1") == ("one", "alone", "a", "ring")
