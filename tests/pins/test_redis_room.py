"""A Redis that runs out of room drops keys: what it dropped is neither taken for lost nor for nothing held."""

import asyncio
import logging
import time
from contextlib import suppress

import pytest

from proxy.background import Background
from proxy.pins import redis_writer
from proxy.pins.held import Held, tasks_held
from proxy.pins.redis import RedisPinStore
from proxy.pins.redis_room import Room
from proxy.pins.store import Pin, PinStoreError
from proxy.routing.ownership import PinKey
from tests.pins.stores import K, keys, now, redis_world, settled
from tests.redis_server import RedisServer, redis_server

SMALL = ("--maxmemory", "3mb")
PINS = 20_000  # several times what fits into that
EPOCH, HELD = "mcp:{pins}:epoch", "mcp:{pins}:held:pool\0a"


async def put(store: RedisPinStore, tasks: list[PinKey], backend: str = "a") -> None:
    """Puts all, also where the machine is so busy that an answer is late."""

    async def put_one(key: PinKey) -> None:
        async with asyncio.timeout(20):
            while True:
                try:
                    await now(store.put(key, "pool", backend, ttl=None))
                    return
                except PinStoreError:
                    await asyncio.sleep(0.05)

    for start in range(0, len(tasks), 200):
        await asyncio.gather(*(put_one(key) for key in tasks[start : start + 200]))


async def told(store: RedisPinStore) -> None:
    """Returns when Redis has been told all."""
    async with asyncio.timeout(20):
        while True:
            with suppress(PinStoreError):
                await settled(store)
                if not store.unwritten:
                    return
            await asyncio.sleep(0.05)


async def finish(store: RedisPinStore, tasks: list[PinKey]) -> None:
    for start in range(0, len(tasks), 200):
        for key in tasks[start : start + 200]:
            with suppress(PinStoreError):  # late, and told later
                store.finish(key)
        await told(store)


async def held(store: RedisPinStore) -> Held:
    async with asyncio.timeout(20):
        while True:
            with suppress(PinStoreError):
                return await now(store.held())
            await asyncio.sleep(0.05)


async def pins_there(server: RedisServer) -> int:
    async with server.asking() as client:
        return int(await client.dbsize())


async def scripts_run(server: RedisServer) -> int:
    async with server.asking() as client:
        stats = await client.info("commandstats")
        return int(stats.get("cmdstat_evalsha", {"calls": 0})["calls"])


@pytest.mark.parametrize("policy", ["volatile-lru", "allkeys-lru"])
async def test_held_tasks_do_not_outnumber_the_pins_that_are_left(background: Background, policy: str) -> None:
    async with (
        redis_server(*SMALL, "--maxmemory-policy", policy) as server,
        redis_world(server, background) as world,
    ):
        store = world.make(ttl=10_000.0, capacity=100_000)
        for part in range(3):  # the last finds no more held than the one before
            await put(store, keys(PINS, name=str(part)))
        async with server.asking() as client:
            tasks, pins = await client.zcard(HELD), await client.dbsize()
        assert pins > 1000
        assert tasks < 2 * pins
        await told(store)  # nothing is refused


async def test_where_held_tasks_were_dropped_the_count_is_unknown_until_their_time_is_over(
    background: Background,
) -> None:
    async with (
        redis_server(*SMALL, "--maxmemory-policy", "volatile-lru") as server,
        redis_world(server, background) as world,
    ):
        store, other = world.make(ttl=1000.0, capacity=100_000), world.make(ttl=1000.0)
        await put(store, keys(PINS))
        await put(store, keys(10, name="other"), backend="b")
        assert await held(store) == {("pool", "a"): None, ("pool", "b"): 10}
        await finish(store, keys(PINS))
        # Of those that were dropped nobody knows the end.
        assert await held(other) == {("pool", "a"): None, ("pool", "b"): 10}
        await world.passes(1001)
        assert await held(other) == {}


async def test_where_only_pins_of_ended_tasks_were_dropped_the_count_is_exact(background: Background) -> None:
    async with (
        redis_server(*SMALL, "--maxmemory-policy", "volatile-ttl") as server,  # exact to the millisecond; -lru to 1 s
        redis_world(server, background) as world,
    ):
        store = world.make(ttl=10_000.0, capacity=100_000)
        living = keys(50, name="living")
        await put(store, living)
        for start in range(0, PINS * 2, 1000):
            ended = keys(1000, name=f"ended-{start}")
            await put(store, ended)
            await finish(store, ended)
            world.clock.now += 6
            for key in living:
                with suppress(PinStoreError):
                    store.refresh(key, ttl=None)
            await told(store)
        assert await held(store) == {("pool", "a"): 50}
        assert store.evicted > 1000


async def test_an_epoch_that_was_dropped_is_no_loss_of_data(background: Background) -> None:
    async with (
        redis_server(*SMALL, "--maxmemory-policy", "allkeys-lru") as server,
        redis_world(server, background) as world,
    ):
        store, other = world.make(ttl=10_000.0, capacity=100_000), world.make(ttl=10_000.0)
        await now(other.put(K[0], "pool", "b", ttl=None))
        await put(store, keys(PINS))
        await told(store)
        async with server.asking() as client:
            await client.delete(EPOCH)  # as if it was among what was dropped
        before = await scripts_run(server)
        for _ in range(2):
            assert await tasks_held(store) is None  # any set of held tasks may have been dropped
            await told(store)
        assert await scripts_run(server) - before < 50
        assert await tasks_held(other) is None
        await world.passes(9_000)  # whoever chooses another policy waits for the life of a pin
        async with server.asking() as client:
            await client.config_set("maxmemory-policy", "volatile-lru")
        assert await tasks_held(store) is None
        world.clock.now += 10_001
        async with asyncio.timeout(10):
            while await tasks_held(store) is None:
                await asyncio.sleep(0.05)


@pytest.mark.parametrize("how", ["flush", "restart"])
async def test_data_that_are_lost_are_told_again_though_keys_were_dropped_before(
    background: Background, how: str
) -> None:
    async with (
        redis_server(*SMALL, "--maxmemory-policy", "volatile-lru") as server,
        redis_world(server, background) as world,
    ):
        store, other = world.make(ttl=10_000.0, capacity=200), world.make(ttl=10_000.0)
        await put(store, keys(PINS))
        await held(store)
        await put(store, keys(500, name="dropping"))
        await told(store)
        if how == "flush":
            async with server.asking() as client:
                await client.flushall()
            with pytest.raises(PinStoreError):
                await now(store.held())
        else:
            server.kill()
            await server.start()
        async with asyncio.timeout(10):
            while await pins_there(server) < 200:
                await asyncio.sleep(0.02)
        assert await now(other.get(keys(500, name="dropping")[-1])) == Pin("a")


async def test_a_process_that_nobody_asks_for_counts_notices_a_loss(
    server: RedisServer, background: Background, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(redis_writer, "_LOOK", 0.05)
    async with redis_world(server, background) as world:
        store = world.make()
        await put(store, K)
        async with server.asking() as client:
            await client.flushall()
        async with asyncio.timeout(5):
            while await pins_there(server) < len(K):
                await asyncio.sleep(0.02)
        assert store.unwritten == 0


async def test_what_was_lost_is_told_a_part_at_a_time_and_counts_are_unknown_meanwhile(
    server: RedisServer, background: Background, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(redis_writer, "_RESTORED_A_SECOND", 400)
    async with redis_world(server, background) as world:
        store, other = world.make(capacity=5000, ttl=10_000.0), world.make()
        tasks = keys(1000)
        await put(store, tasks)
        await now(store.held())
        async with server.asking() as client:
            await client.flushall()
        started = time.monotonic()
        with pytest.raises(PinStoreError):
            await now(store.held())
        await settled(store)
        assert await now(other.held()) == {("pool", "a"): None}
        store.finish(tasks[0])  # what happens meanwhile goes before it
        await now(store.put(keys(1, name="new")[0], "pool", "a", ttl=None))
        while store.unwritten:
            there, passed = await pins_there(server), time.monotonic() - started
            assert there < 400 * passed + 250
            assert passed < 10
            await asyncio.sleep(0.05)
        assert time.monotonic() - started > 1.5
        async with asyncio.timeout(10):
            while await now(other.held()) != {("pool", "a"): 1000}:
                await asyncio.sleep(0.05)


async def test_what_was_lost_twice_is_told_twice_but_not_at_once(
    server: RedisServer, background: Background, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(redis_writer, "_BETWEEN_RESTORES", 1.0)
    async with redis_world(server, background) as world:
        store = world.make(clock=time.monotonic)
        await put(store, K)
        await now(store.held())
        async with server.asking() as client:
            await client.flushall()
            with pytest.raises(PinStoreError):
                await now(store.held())
            started = time.monotonic()
            while await pins_there(server) < len(K):
                await asyncio.sleep(0.01)
            assert time.monotonic() - started < 0.8
            for _ in range(2):
                await client.flushall()
                with pytest.raises(PinStoreError):
                    await now(store.held())
            await asyncio.sleep(0)
            assert await pins_there(server) < len(K)
        async with asyncio.timeout(10):
            while await pins_there(server) < len(K):
                await asyncio.sleep(0.01)
        assert time.monotonic() - started > 0.9


@pytest.mark.parametrize(
    ("options", "warned"),
    [
        ((*SMALL, "--maxmemory-policy", "allkeys-lru"), 1),
        ((*SMALL, "--maxmemory-policy", "allkeys-random"), 1),
        ((*SMALL, "--maxmemory-policy", "volatile-lru"), 0),
        ((*SMALL, "--maxmemory-policy", "noeviction"), 0),
        (("--maxmemory-policy", "allkeys-lru"), 0),  # without a bound nothing is dropped
    ],
)
async def test_a_policy_that_drops_any_key_is_warned_of_once(
    background: Background, caplog: pytest.LogCaptureFixture, options: tuple[str, ...], warned: int
) -> None:
    caplog.set_level(logging.WARNING, "proxy")
    async with redis_server(*options) as server, redis_world(server, background) as world:
        store = world.make()
        for _ in range(3):
            await now(store.held())
        assert [record.getMessage().count("volatile-lru") for record in caplog.records] == [1] * warned


async def test_a_user_who_may_not_ask_for_more_than_pins_need_is_served(
    server: RedisServer, background: Background
) -> None:
    """Without INFO, ZRANGE and ZSCORE drops are not noticed; pins are there all the same."""
    may = "evalsha script|load get set pttl pexpire del zadd zrem zrangebyscore zremrangebyscore zcard sadd srem"
    async with server.asking() as client, redis_world(server, background) as world:
        commands = [f"+{name}" for name in (*may.split(), "smembers", "time", "ping", "select")]
        await client.acl_setuser("me", enabled=True, nopass=True, keys=["mcp:{pins}:*"], commands=commands)
        store = world.make(url=f"redis://me:any@127.0.0.1:{server.port}")
        for key in K:
            await now(store.put(key, "pool", "a", ttl=None))
        assert await now(store.held()) == {("pool", "a"): 10}
        assert store.up


def said(*, run: str = "r", evicted: int = 0, policy: str = "volatile-lru", limit: int = 1, keys: int = 10) -> bytes:
    return (
        f"# Server\r\nrun_id:{run}\r\nmaxmemory:{limit}\r\nmaxmemory_policy:{policy}\r\nevicted_keys:{evicted}\r\n"
        f"# Keyspace\r\ndb0:keys={keys},expires=0,avg_ttl=0\r\ndb3:keys=1,expires=0,avg_ttl=0\r\n"
    ).encode()


@pytest.mark.parametrize(
    ("then", "dropped"),
    [
        (said(evicted=1), True),
        (said(evicted=0), False),  # nothing was dropped, so it is lost
        (said(evicted=1, run="s"), False),  # started anew
        (said(evicted=1, keys=2), False),  # flushed
        (None, False),
        (PinStoreError("refused"), False),
        (b"", False),
    ],
)
def test_what_is_gone_was_dropped_if_others_were_and_most_are_there(then: object, dropped: bool) -> None:
    room = Room()
    room.note(said(), 0)
    room.mark()
    room.note(then, 1)
    assert room.dropped_since_mark is dropped


def test_evictions_are_counted_over_restarts() -> None:
    room = Room()
    counts = []
    for info in (said(evicted=5), said(evicted=7), b"", said(evicted=4, run="s"), said(evicted=9, run="t")):
        room.note(info, 0)
        counts.append(room.evicted)
    assert counts == [0, 2, 2, 6, 15]


@pytest.mark.parametrize(
    ("info", "at", "known"),
    [
        (said(policy="allkeys-lru", evicted=0), 1, True),
        (said(policy="allkeys-lru", evicted=1), 1, False),
        (said(policy="allkeys-lru", evicted=1), 99, False),
        (said(policy="allkeys-lru", evicted=1), 101, True),
        (said(policy="volatile-lru", evicted=1), 1, True),
    ],
)
def test_counts_are_unknown_for_a_life_after_any_key_could_be_dropped(info: bytes, at: float, known: bool) -> None:
    room = Room()
    room.note(info, 0)
    assert room.counts_known(at, life=100) is known
