"""The store in memory: what its bound means, and that it stays within it."""

import pytest

from proxy.pins.memory import MemoryPinStore
from proxy.pins.store import Pin
from tests.pins.stores import Clock, K


@pytest.fixture
def clock() -> Clock:
    return Clock()


def make(clock: Clock, *, ttl: float = 100.0, capacity: int = 1000) -> MemoryPinStore:
    return MemoryPinStore(ttl=ttl, capacity=capacity, clock=clock)


def test_the_least_recently_used_leaves_first(clock: Clock) -> None:
    store = make(clock, capacity=3)
    for key in K[:3]:
        store.put(key, "pool", "a", ttl=None)
    store.get(K[0])
    store.put(K[3], "pool", "a", ttl=None)
    assert [store.get(key) is not None for key in K[:4]] == [True, False, True, True]
    assert (len(store), store.evicted) == (3, 1)


def test_how_much_a_backend_holds_is_unknown_until_a_task_without_its_pin_would_have_ended(clock: Clock) -> None:
    store = make(clock, capacity=2)
    store.put(K[0], "pool", "a", ttl=30.0)
    store.put(K[1], "pool", "b", ttl=None)
    store.put(K[2], "pool", "b", ttl=None)  # a's has to go
    assert store.held() == {("pool", "a"): None, ("pool", "b"): 2}
    clock.now += 29
    assert store.held() == {("pool", "a"): None, ("pool", "b"): 2}
    clock.now += 2
    assert store.held() == {("pool", "b"): 2}


def test_a_finished_task_that_loses_its_pin_leaves_no_doubt(clock: Clock) -> None:
    store = make(clock, capacity=1)
    store.put(K[0], "pool", "a", ttl=None)
    store.finish(K[0])
    store.put(K[1], "pool", "b", ttl=None)
    assert store.held() == {("pool", "b"): 1}


def test_a_peek_sees_living_pins_and_is_no_use(clock: Clock) -> None:
    store = make(clock, capacity=3)
    for key in K[:3]:
        store.put(key, "pool", "a", ttl=None)
    assert store.peek(K[0]) == Pin("a")
    store.put(K[3], "pool", "b", ttl=None)
    assert [store.peek(key) for key in K[:5]] == [None, Pin("a"), Pin("a"), Pin("b"), None]
    clock.now += 101
    assert store.peek(K[3]) is None


def test_room_is_made_from_the_expired_first_and_is_no_eviction(clock: Clock) -> None:
    store = make(clock, capacity=2)
    store.put(K[0], "pool", "a", ttl=None)
    clock.now += 101
    store.put(K[1], "pool", "a", ttl=None)
    store.put(K[2], "pool", "a", ttl=None)
    assert (len(store), store.evicted) == (2, 0)


def test_many_refreshes_of_one_task_cost_no_memory(clock: Clock) -> None:
    store = make(clock, ttl=1000.0)
    store.put(K[0], "pool", "a", ttl=10)
    for i in range(1000):
        clock.now += 1
        store.refresh(K[0], ttl=10 if i % 2 else None)
    assert store.deadlines <= 2
    assert store.held() == {("pool", "a"): 1}
