"""A Redis that several proxies share: they agree, ask little, and see what others did."""

import asyncio
import random
from collections.abc import AsyncIterator

import pytest
from redis.asyncio import Redis

from proxy.background import Background
from proxy.pins.redis import RedisPinStore
from proxy.pins.redis_writer import SETTLING
from proxy.pins.store import Pin, PinStore, PinStoreError
from tests.pins.stores import K, RedisWorld, World, connected, keys, now, redis_world, settled
from tests.redis_server import RedisServer, redis_server


@pytest.fixture
async def world(server: RedisServer, background: Background) -> AsyncIterator[RedisWorld]:
    async with redis_world(server, background) as made:
        yield made


@pytest.fixture
async def client(server: RedisServer) -> AsyncIterator[Redis]:
    async with server.asking() as asking:
        yield asking


async def scripts_run(client: Redis) -> int:
    """How many commands stores have sent, beside those for a new connection."""
    stats = await client.info("commandstats")
    return int(stats.get("cmdstat_evalsha", {"calls": 0})["calls"])


async def test_in_a_race_of_two_proxies_the_first_writer_of_each_task_wins_for_both(world: RedisWorld) -> None:
    one, other = world.make(), world.make()
    await connected(one, other)
    tasks = keys(200)
    answers = await asyncio.gather(
        *(now(store.put(key, "pool", name, ttl=None)) for key in tasks for store, name in ((one, "a"), (other, "b")))
    )
    owners = answers[::2]
    assert owners == answers[1::2]
    assert [await now(one.get(key)) for key in tasks] == [await now(other.get(key)) for key in tasks]
    assert [await now(one.get(key)) for key in tasks] == [Pin(owner) for owner in owners]
    held = await now(one.held())
    assert held == await now(other.held())
    assert held == {("pool", name): owners.count(name) for name in set(owners)}


async def test_what_one_proxy_put_the_other_finds_at_once(world: RedisWorld) -> None:
    one, other = world.make(), world.make()
    for key in K:
        await now(one.put(key, "pool", "a", ttl=None))
        assert await now(other.get(key)) == Pin("a")
    other.finish(K[0])
    await settled(other)
    assert await now(one.held()) == {("pool", "a"): 9}


async def test_a_known_pin_is_answered_at_once_and_asked_for_again_after_a_while(
    world: RedisWorld, client: Redis
) -> None:
    one, other = world.make(), world.make()
    await now(one.put(K[0], "pool", "a", ttl=None))
    await now(other.get(K[0]))
    before = await scripts_run(client)
    for _ in range(50):
        assert one.get(K[0]) == other.get(K[0]) == Pin("a")
    assert await scripts_run(client) == before
    await now(one.put(K[0], "pool", "b", ttl=None, replace=True))
    assert one.get(K[0]) == Pin("b")
    assert other.get(K[0]) == Pin("a")
    await world.passes(31)
    assert await now(other.get(K[0])) == Pin("b")
    await now(one.forget(K[0]))
    await world.passes(31)
    assert await now(other.get(K[0])) is None


async def test_a_pin_that_was_read_is_never_answered_beyond_its_life(world: RedisWorld) -> None:
    one, other = world.make(ttl=20.0), world.make(ttl=20.0)
    await now(one.put(K[0], "pool", "a", ttl=None))
    await world.passes(15)
    assert await now(other.get(K[0])) == Pin("a")
    await world.passes(6)
    assert await now(other.get(K[0])) is None


async def test_polls_of_one_task_are_told_every_five_seconds(world: RedisWorld, client: Redis) -> None:
    store = world.make(ttl=1000.0)
    await now(store.put(K[0], "pool", "a", ttl=60))
    await settled(store)
    before = await scripts_run(client)
    for _ in range(100):  # 20 seconds
        world.clock.now += 0.2
        store.refresh(K[0], ttl=60)
    await settled(store)
    assert 4 <= await scripts_run(client) - before - 1 <= 5
    store.finish(K[0])
    store.finish(K[0])
    await settled(store)
    assert 6 <= await scripts_run(client) - before - 1 <= 7  # one finish, and one look to see that all is told
    assert await now(store.held()) == {}


@pytest.mark.parametrize(("ttl", "told"), [(2.0, 4), (0.4, 20), (20.0, 0), (None, 0)])
async def test_a_task_that_lives_shortly_is_told_of_more_often(
    world: RedisWorld, client: Redis, ttl: float | None, told: int
) -> None:
    """A quarter of the time that the server gives is the most by which Redis may be behind."""
    store = world.make(ttl=1000.0)
    await now(store.put(K[0], "pool", "a", ttl=ttl))
    await settled(store)
    before = await scripts_run(client)
    for _ in range(20):  # 2 seconds
        world.clock.now += 0.1
        store.refresh(K[0], ttl=ttl)
    await settled(store)
    assert abs(await scripts_run(client) - before - 1 - told) <= 1


async def test_a_changed_time_is_told_at_once(world: RedisWorld) -> None:
    store = world.make(ttl=1000.0)
    await now(store.put(K[0], "pool", "a", ttl=None))
    store.refresh(K[0], ttl=10)
    await world.passes(11)
    assert await now(store.held()) == {}


async def test_commands_of_one_turn_travel_together(world: RedisWorld, client: Redis) -> None:
    store = world.make()
    await now(store.get(K[9]))
    before = (await client.info("stats"))["total_reads_processed"]
    await asyncio.gather(*(now(store.put(key, "pool", "a", ttl=None)) for key in keys(400)))
    after = (await client.info("stats"))["total_reads_processed"]
    assert after - before < 15  # reads of up to 16 KB, not one for each of 400


async def test_a_caller_who_leaves_disturbs_nobody(world: RedisWorld) -> None:
    store = world.make()
    answers = [store.put(key, "pool", "a", ttl=None) for key in K]
    for answer in answers[::2]:
        assert isinstance(answer, asyncio.Future)
        answer.cancel()
    assert [await now(answer) for answer in answers[1::2]] == ["a"] * 5
    assert store.get(K[0]) == Pin("a")
    assert await now(store.held()) == {("pool", "a"): 10}


async def test_a_flushed_redis_learns_from_polls_what_it_lost(world: RedisWorld, client: Redis) -> None:
    store, other = world.make(), world.make()
    for key in K[:3]:
        await now(store.put(key, "pool", "a", ttl=None))
    await now(store.put(K[3], "pool", "a", ttl=None))
    store.finish(K[3])
    await client.flushall()
    await now(other.put(K[2], "pool", "b", ttl=None))
    await world.passes(6)
    for key in K[:4]:
        store.refresh(key, ttl=None)
    await settled(store)
    assert [await now(other.get(key)) for key in K[:4]] == [Pin("a"), Pin("a"), Pin("b"), Pin("a")]
    counts = await now(other.held())
    assert counts == {("pool", "a"): 2, ("pool", "b"): 1}  # the finished one is held no more
    assert await now(store.get(K[2])) == Pin("b")


async def test_a_pin_that_redis_lost_is_not_fresh_until_it_is_told(world: RedisWorld, client: Redis) -> None:
    """So whoever hears of its task tells it again, and nobody has to wait for the turn of what was lost."""
    store = world.make()
    await now(store.put(K[0], "pool", "a", ttl=60.0))
    assert store.fresh(K[0]) == (Pin("a"), 60.0)
    await client.flushall()
    store._known.restore(world.clock())
    assert store.fresh(K[0]) is None
    store.refresh(K[0], ttl=60.0)
    await settled(store)
    assert store.fresh(K[0]) == (Pin("a"), 60.0)
    assert await now(world.make().held()) == {("pool", "a"): 1}


async def test_a_flushed_redis_is_noticed_and_told_everything(world: RedisWorld, client: Redis) -> None:
    """What was lost is held for a while only, unless it is heard of: another proxy may have finished it."""
    store, other = world.make(ttl=10_000.0), world.make(ttl=10_000.0)
    for key in K:
        await now(store.put(key, "pool", "a", ttl=None))
    other.finish(K[0])
    await settled(other)
    assert await now(store.held()) == {("pool", "a"): 9}
    await client.flushall()
    with pytest.raises(PinStoreError):  # how many are held is not known before all have told what they know
        await now(store.held())
    await world.passes(SETTLING)
    async with asyncio.timeout(5):
        while await now(store.held()) != {("pool", "a"): 10}:
            await asyncio.sleep(0.01)
    assert [await now(other.get(key)) for key in K] == [Pin("a")] * 10
    store.refresh(K[1], ttl=None)
    await world.passes(301)
    assert await now(store.held()) == {("pool", "a"): 1}
    assert [await now(other.get(key)) for key in K] == [Pin("a")] * 10


async def test_what_redis_drops_for_want_of_room_is_counted(background: Background) -> None:
    async with redis_server("--maxmemory", "3mb", "--maxmemory-policy", "volatile-lru") as server:
        async with redis_world(server, background) as world:
            store = world.make(capacity=10)
            await now(store.held())
            assert store.evicted == 0
            for start in range(0, 30_000, 200):
                tasks = keys(200, name=str(start))
                await asyncio.gather(*(now(store.put(key, "pool", "a", ttl=None)) for key in tasks))
                for key in tasks:
                    store.finish(key)
                await settled(store)
            await now(store.held())
            assert store.evicted > 1000
            assert len(store) == 10


async def test_sets_of_held_tasks_stay_in_bounds_though_nobody_counts_them(world: RedisWorld, client: Redis) -> None:
    store = world.make(ttl=10_000.0)
    for i in range(20):
        await now(store.put(keys(1, name=f"short-{i}")[0], "pool", "a", ttl=10))
        await world.passes(11)
    assert await client.zcard("mcp:{pins}:held:pool\0a") <= 1


async def test_no_id_of_a_task_is_in_redis(world: RedisWorld, client: Redis) -> None:
    await now(world.make().put(K[0], "pool", "a", ttl=None))
    names = [key async for key in client.scan_iter()]
    assert b"mcp:{pins}:" + K[0] in names
    assert not any(b"task-" in name for name in names)


@pytest.mark.parametrize("seed", range(6))
async def test_redis_answers_as_memory_does(world: RedisWorld, seed: int) -> None:
    """Op by op, in random order. Each task's answers pass one of two proxies, and both are asked for its pin.

    Steps of time are longer than Redis may be behind what a proxy was told.
    """
    rng = random.Random(seed)
    memory = World()
    model: PinStore = memory.make(ttl=50.0)
    stores: list[RedisPinStore] = [world.make(ttl=50.0), world.make(ttl=50.0)]
    tasks, ttls = keys(6), [None, None, 0, 1, 8, 40, 120]
    for step in range(250):
        number, ttl = rng.randrange(len(tasks)), rng.choice(ttls)
        key, store = tasks[number], stores[number % 2]
        backend = rng.choice("abc")
        match rng.choice(("get", "peek", "put", "put", "replace", "refresh", "refresh", "finish", "forget", "time")):
            case "get":
                pass  # at the end of each step
            case "peek":
                assert await now(store.peek(key)) == await now(model.peek(key)), step
            case "put":
                expected = await now(model.put(key, "pool", backend, ttl=ttl))
                assert await now(store.put(key, "pool", backend, ttl=ttl)) == expected, step
            case "replace":
                await now(model.put(key, "pool", backend, ttl=ttl, replace=True))
                assert await now(store.put(key, "pool", backend, ttl=ttl, replace=True)) == backend, step
                await elapse(memory, world, 30.5)  # until the other proxy asks again
            case "refresh":
                await now(model.refresh(key, ttl=ttl))
                store.refresh(key, ttl=ttl)
            case "finish":
                await now(model.finish(key))
                store.finish(key)
            case "forget":
                await now(model.forget(key))
                await now(store.forget(key))
                await elapse(memory, world, 30.5)
            case "time":
                await elapse(memory, world, rng.choice((6, 11, 31, 49)))
        await settled(store)
        expected_pins = [await now(model.get(key)) for key in tasks]  # drops what has passed from the counts as well
        found = [[await now(store.get(key)) for key in tasks] for store in stores]
        assert found == [expected_pins, expected_pins], step
        assert await now(store.held()) == await now(model.held()), step


async def elapse(memory: World, redis: RedisWorld, seconds: float) -> None:
    await memory.passes(seconds)
    await redis.passes(seconds)
