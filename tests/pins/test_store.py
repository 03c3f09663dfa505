"""One contract for every PinStore."""

import asyncio
from collections.abc import Callable
from typing import TypeVar

import pytest

from proxy.pins.memory import MemoryPinStore
from proxy.pins.store import Answer, Pin, PinStore
from proxy.routing.ownership import pin_key

T = TypeVar("T")


class Clock:
    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture(params=["memory"])
def make(request: pytest.FixtureRequest, clock: Clock) -> Callable[..., PinStore]:
    def memory(*, ttl: float = 100.0, capacity: int = 1000) -> PinStore:
        return MemoryPinStore(ttl=ttl, capacity=capacity, clock=clock)

    return {"memory": memory}[request.param]


async def now(answer: Answer[T]) -> T:
    return await answer if isinstance(answer, asyncio.Future) else answer


K = [pin_key("pool", f"task-{i}") for i in range(10)]


async def test_what_was_put_is_there_and_the_first_writer_wins(make: Callable[..., PinStore]) -> None:
    store = make()
    assert await now(store.get(K[0])) is None
    assert await now(store.put(K[0], "pool", "a", ttl=None)) == "a"
    assert await now(store.put(K[0], "pool", "b", ttl=None)) == "a"
    assert await now(store.get(K[0])) == Pin("a")
    assert await now(store.put(K[0], "pool", "b", ttl=None, replace=True)) == "b"
    assert await now(store.get(K[0])) == Pin("b")
    assert await now(store.held()) == {("pool", "b"): 1}
    assert len(store) == 1


@pytest.mark.parametrize(
    ("ttl", "lives"),
    [(None, 100), (50, 100), (300, 300), (0, 100)],
)
async def test_a_pin_lives_for_the_longer_of_two_times(
    make: Callable[..., PinStore], clock: Clock, ttl: float | None, lives: float
) -> None:
    store = make()
    await now(store.put(K[0], "pool", "a", ttl=ttl))
    clock.now += lives - 1
    assert await now(store.get(K[0])) == Pin("a")
    clock.now += 2
    assert await now(store.get(K[0])) is None
    assert await now(store.held()) == {}


async def test_a_refresh_starts_life_anew_and_makes_nothing(make: Callable[..., PinStore], clock: Clock) -> None:
    store = make()
    await now(store.put(K[0], "pool", "a", ttl=None))
    for _ in range(5):
        clock.now += 90
        await now(store.refresh(K[0], ttl=None))
    assert await now(store.get(K[0])) == Pin("a")
    await now(store.refresh(K[1], ttl=None))
    assert await now(store.get(K[1])) is None


async def test_the_least_recently_used_leaves_first(make: Callable[..., PinStore]) -> None:
    store = make(capacity=3)
    for key in K[:3]:
        await now(store.put(key, "pool", "a", ttl=None))
    await now(store.get(K[0]))
    await now(store.put(K[3], "pool", "a", ttl=None))
    assert [await now(store.get(key)) is not None for key in K[:4]] == [True, False, True, True]
    assert (len(store), store.evicted) == (3, 1)
    assert await now(store.held()) == {("pool", "a"): 3}


async def test_a_peek_sees_living_pins_and_is_no_use(make: Callable[..., PinStore], clock: Clock) -> None:
    store = make(capacity=3)
    for key in K[:3]:
        await now(store.put(key, "pool", "a", ttl=None))
    assert await now(store.peek(K[0])) == Pin("a")
    await now(store.put(K[3], "pool", "b", ttl=None))
    assert [await now(store.peek(key)) for key in K[:5]] == [None, Pin("a"), Pin("a"), Pin("b"), None]
    clock.now += 101
    assert await now(store.peek(K[3])) is None


async def test_room_is_made_from_the_expired_first_and_is_no_eviction(
    make: Callable[..., PinStore], clock: Clock
) -> None:
    store = make(capacity=2)
    await now(store.put(K[0], "pool", "a", ttl=None))
    clock.now += 101
    await now(store.put(K[1], "pool", "a", ttl=None))
    await now(store.put(K[2], "pool", "a", ttl=None))
    assert (len(store), store.evicted) == (2, 0)


async def test_held_counts_unfinished_tasks(make: Callable[..., PinStore]) -> None:
    store = make()
    for i, key in enumerate(K[:6]):
        await now(store.put(key, "pool", "ab"[i % 2], ttl=None))
    await now(store.finish(K[0]))
    await now(store.finish(K[0]))
    await now(store.finish(K[9]))
    await now(store.forget(K[1]))
    await now(store.forget(K[9]))
    assert await now(store.held()) == {("pool", "a"): 2, ("pool", "b"): 2}
    assert await now(store.get(K[0])) == Pin("a")
    await now(store.put(K[0], "pool", "a", ttl=None))
    await now(store.refresh(K[0], ttl=5))
    assert await now(store.held()) == {("pool", "a"): 2, ("pool", "b"): 2}


async def test_a_passed_ttl_ends_the_holding_but_not_the_pin(make: Callable[..., PinStore], clock: Clock) -> None:
    store = make(ttl=1000.0)
    await now(store.put(K[0], "pool", "a", ttl=10))
    await now(store.put(K[1], "pool", "a", ttl=10))
    await now(store.put(K[2], "pool", "a", ttl=None))
    clock.now += 8
    await now(store.refresh(K[1], ttl=10))
    clock.now += 3
    assert await now(store.held()) == {("pool", "a"): 2}
    assert await now(store.get(K[0])) == Pin("a")
    clock.now += 8
    assert await now(store.held()) == {("pool", "a"): 1}
    await now(store.refresh(K[2], ttl=1))
    await now(store.refresh(K[2], ttl=None))  # the server now keeps it for ever
    clock.now += 100
    assert await now(store.held()) == {("pool", "a"): 1}


async def test_many_refreshes_of_one_task_cost_no_memory(make: Callable[..., PinStore], clock: Clock) -> None:
    store = make(ttl=1000.0)
    await now(store.put(K[0], "pool", "a", ttl=10))
    for i in range(1000):
        clock.now += 1
        await now(store.refresh(K[0], ttl=10 if i % 2 else None))
    if isinstance(store, MemoryPinStore):
        assert store.deadlines <= 2
    assert await now(store.held()) == {("pool", "a"): 1}
