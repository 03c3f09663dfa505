"""One contract for every PinStore."""

from collections.abc import AsyncIterator

import pytest

from proxy.background import Background
from proxy.pins.store import LATELY, Pin
from tests.pins.stores import K, RedisWorld, World, now, redis_world
from tests.redis_server import redis_server


@pytest.fixture(params=["memory", "redis"])
async def world(request: pytest.FixtureRequest, background: Background) -> AsyncIterator[World]:
    if request.param == "memory":
        yield World()
        return
    async with redis_server() as server, redis_world(server, background) as made:
        yield made


async def test_what_was_put_is_there_and_the_first_writer_wins(world: World) -> None:
    store = world.make()
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
async def test_a_pin_lives_for_the_longer_of_two_times(world: World, ttl: float | None, lives: float) -> None:
    store = world.make()
    await now(store.put(K[0], "pool", "a", ttl=ttl))
    await world.passes(lives - 1)
    assert await now(store.get(K[0])) == Pin("a")
    await world.passes(2)
    assert await now(store.get(K[0])) is None
    assert await now(store.held()) == {}


async def test_a_refresh_starts_life_anew_and_makes_nothing(world: World) -> None:
    store = world.make()
    await now(store.put(K[0], "pool", "a", ttl=None))
    for _ in range(5):
        await world.passes(90)
        await now(store.refresh(K[0], ttl=None))
    assert await now(store.get(K[0])) == Pin("a")
    await now(store.refresh(K[1], ttl=None))
    assert await now(store.get(K[1])) is None


async def test_held_counts_unfinished_tasks(world: World) -> None:
    store = world.make()
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


async def test_a_passed_ttl_ends_the_holding_but_not_the_pin(world: World) -> None:
    store = world.make(ttl=1000.0)
    await now(store.put(K[0], "pool", "a", ttl=10))
    await now(store.put(K[1], "pool", "a", ttl=10))
    await now(store.put(K[2], "pool", "a", ttl=None))
    await world.passes(8)
    await now(store.refresh(K[1], ttl=10))
    await world.passes(3)
    assert await now(store.held()) == {("pool", "a"): 2}
    assert await now(store.get(K[0])) == Pin("a")
    await world.passes(8)
    assert await now(store.held()) == {("pool", "a"): 1}
    await now(store.refresh(K[2], ttl=1))
    await now(store.refresh(K[2], ttl=None))  # the server now keeps it for ever
    await world.passes(100)
    assert await now(store.held()) == {("pool", "a"): 1}


async def test_many_refreshes_of_one_task_leave_one_task(world: World) -> None:
    store = world.make(ttl=1000.0)
    await now(store.put(K[0], "pool", "a", ttl=10))
    for i in range(100):
        await world.passes(1)
        await now(store.refresh(K[0], ttl=10 if i % 2 else None))
    assert await now(store.held()) == {("pool", "a"): 1}


async def test_a_peek_sees_living_pins(world: World) -> None:
    store = world.make()
    await now(store.put(K[0], "pool", "a", ttl=None))
    assert [await now(store.peek(key)) for key in K[:2]] == [Pin("a"), None]
    await world.passes(101)
    assert await now(store.peek(K[0])) is None


async def test_a_new_owner_holds_what_the_old_one_had_finished(world: World) -> None:
    store = world.make()
    await now(store.put(K[0], "pool", "a", ttl=None))
    await now(store.finish(K[0]))
    assert await now(store.put(K[0], "pool", "b", ttl=None, replace=True)) == "b"
    assert await now(store.held()) == {("pool", "b"): 1}
    await now(store.forget(K[0]))
    assert await now(store.get(K[0])) is None
    assert await now(store.held()) == {}


@pytest.mark.parametrize("pool", ["agents", "pöol", "a b"])
@pytest.mark.parametrize("backend", ["", "10.0.0.1:8000", "bäckend", "[::1]:80"])
async def test_names_of_every_kind(world: World, pool: str, backend: str) -> None:
    store, other = world.make(), world.make()
    assert await now(store.put(K[0], pool, backend, ttl=None)) == backend
    assert await now(store.get(K[0])) == Pin(backend)
    assert await now(store.held()) == {(pool, backend): 1}
    if isinstance(world, RedisWorld):
        assert await now(other.get(K[0])) == Pin(backend)


async def test_a_shortened_ttl_ends_the_holding_early(world: World) -> None:
    store = world.make(ttl=1000.0)
    await now(store.put(K[0], "pool", "a", ttl=100))
    await now(store.refresh(K[0], ttl=10))
    await now(store.put(K[1], "pool", "a", ttl=100))
    await now(store.refresh(K[1], ttl=10))
    await now(store.refresh(K[1], ttl=50))
    await world.passes(11)
    assert await now(store.held()) == {("pool", "a"): 1}
    await world.passes(40)
    assert await now(store.held()) == {}


# ---- what was renewed lately


async def test_a_fresh_pin_comes_with_the_time_to_live_that_it_was_renewed_with(world: World) -> None:
    store = world.make()
    assert store.fresh(K[0]) is None
    await now(store.put(K[0], "pool", "a", ttl=None))
    assert store.fresh(K[0]) == (Pin("a"), None)
    await now(store.refresh(K[0], ttl=60.0))
    assert store.fresh(K[0]) == (Pin("a"), 60.0)
    await now(store.refresh(K[0], ttl=None))
    assert store.fresh(K[0]) == (Pin("a"), None)
    assert store.fresh(K[1]) is None


@pytest.mark.parametrize(
    ("ttl", "fresh"), [(None, LATELY), (10_000.0, LATELY), (20.0, LATELY), (12.0, 3.0), (2.0, 0.5), (0.0, 0.0)]
)
async def test_a_pin_is_fresh_for_a_moment_and_for_less_than_a_quarter_of_its_life(
    world: World, ttl: float | None, fresh: float
) -> None:
    store = world.make()
    for renewed in range(2):
        if renewed:
            await now(store.refresh(K[0], ttl=ttl))
        else:
            await now(store.put(K[0], "pool", "a", ttl=ttl))
        if fresh:
            await world.passes(fresh - 0.25)
            assert store.fresh(K[0]) == (Pin("a"), ttl)
            await world.passes(0.25)
        assert store.fresh(K[0]) is None
        assert await now(store.get(K[0])) == Pin("a")


async def test_no_pin_is_fresh_beyond_its_life(world: World) -> None:
    store = world.make(ttl=4.0)
    await now(store.put(K[0], "pool", "a", ttl=None))
    await world.passes(0.75)
    assert store.fresh(K[0]) == (Pin("a"), None)
    await world.passes(0.25)
    assert store.fresh(K[0]) is None
    await world.passes(3)
    assert await now(store.get(K[0])) is None


async def test_what_is_forgotten_or_another_backends_is_not_fresh(world: World) -> None:
    store = world.make()
    await now(store.put(K[0], "pool", "a", ttl=None))
    await now(store.put(K[0], "pool", "b", ttl=None))
    assert store.fresh(K[0]) == (Pin("a"), None)
    await now(store.put(K[0], "pool", "b", ttl=30.0, replace=True))
    assert store.fresh(K[0]) == (Pin("b"), 30.0)
    await now(store.forget(K[0]))
    assert store.fresh(K[0]) is None


async def test_a_finished_task_may_be_fresh_and_is_held_no_more(world: World) -> None:
    store = world.make()
    await now(store.put(K[0], "pool", "a", ttl=None))
    await now(store.finish(K[0]))
    assert store.fresh(K[0]) in (None, (Pin("a"), None))
    assert await now(store.held()) == {}


async def test_to_ask_whether_a_pin_is_fresh_is_a_use(world: World) -> None:
    store = world.make(capacity=3)
    for key in K[:3]:
        await now(store.put(key, "pool", "a", ttl=None))
    assert store.fresh(K[0]) is not None
    await now(store.put(K[3], "pool", "a", ttl=None))
    assert store.fresh(K[0]) is not None
    assert store.fresh(K[1]) is None
