"""A Redis that is away, stalls, refuses or forgets: nothing but PinStoreError, in time, and later all is told."""

import asyncio
import logging
import time
from collections.abc import AsyncIterator, Callable
from contextlib import suppress

import pytest
from redis.exceptions import ResponseError

from proxy.background import Background
from proxy.pins import redis_writer
from proxy.pins.redis import RedisPinStore
from proxy.pins.store import Pin, PinStoreError
from tests.pins.stores import K, RedisWorld, keys, now, redis_world
from tests.redis_server import RedisServer, redis_server

PATIENCE = 10.0  # seconds; the longest pause between attempts is 5
IN_TIME = 0.25  # seconds


@pytest.fixture
async def world(server: RedisServer, background: Background) -> AsyncIterator[RedisWorld]:
    async with redis_world(server, background) as made:
        yield made


async def until(condition: Callable[[], object]) -> None:
    deadline = time.monotonic() + PATIENCE
    while not condition():
        assert time.monotonic() < deadline, "it did not happen in time"
        await asyncio.sleep(0.005)


async def fails(call: Callable[[], object]) -> float:
    """Seconds until it failed, as it has to."""
    started = time.monotonic()
    with pytest.raises(PinStoreError):
        answer = call()
        if isinstance(answer, asyncio.Future):
            await answer
    return time.monotonic() - started


def errors(error: BaseException | None) -> str:
    """What an error and those behind it say, whether a traceback would show them or not."""
    return "" if error is None else f"{error!r} {error} {errors(error.__cause__)} {errors(error.__context__)}"


def every_operation(store: RedisPinStore) -> list[Callable[[], object]]:
    """Of a pin that this process does not know."""
    key = K[9]
    return [
        lambda: store.get(key),
        lambda: store.peek(key),
        lambda: store.put(K[8], "pool", "a", ttl=None),
        lambda: store.refresh(key, ttl=None),
        lambda: store.finish(key),
        lambda: store.forget(key),
        store.held,
    ]


async def test_a_proxy_starts_without_its_redis_and_finds_it_later(
    server: RedisServer, world: RedisWorld, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "proxy")
    server.kill()
    store = world.make()
    store.start()
    assert await fails(lambda: store.put(K[0], "pool", "a", ttl=None)) < IN_TIME
    assert not store.up
    for operation in every_operation(store):
        assert await fails(operation) < 0.05
    assert store.get(K[0]) == Pin("a")
    assert store.unwritten == 2
    await server.start()
    await until(lambda: store.up and not store.unwritten)
    other = world.make()
    assert await now(other.get(K[0])) == await now(other.get(K[8])) == Pin("a")
    assert await now(other.held()) == {("pool", "a"): 2}
    lines = [record.getMessage() for record in caplog.records]
    assert len(lines) == 2
    assert lines[0].startswith("Redis is down (")
    assert lines[1].startswith("Redis answers again after ")


@pytest.mark.parametrize("keeps", [True, False])
async def test_it_goes_and_comes_under_load_and_knows_the_latest_of_every_task(
    background: Background, keeps: bool
) -> None:
    """`keeps`: Redis comes back with its data, or with none."""
    files = ("--appendonly", "yes", "--appendfsync", "always") if keeps else ()
    async with redis_server(*files) as server, redis_world(server, background) as world:
        store = world.make(ttl=1000.0)
        before, during = keys(300, name="before"), keys(300, name="during")
        for key in before:
            await now(store.put(key, "pool", "a", ttl=None))
        failed = 0

        async def lives(key: bytes, index: int) -> None:
            nonlocal failed
            for step in (
                lambda: store.put(during[index], "pool", "b", ttl=None),
                lambda: store.get(before[index]),
                lambda: store.refresh(before[index], ttl=None),
                lambda: store.finish(before[index]) if index % 3 == 0 else None,
                lambda: store.finish(during[index]) if index % 2 == 0 else None,
            ):
                try:
                    answer = step()
                    if isinstance(answer, asyncio.Future):
                        await answer
                except PinStoreError:
                    failed += 1
                await asyncio.sleep(0)

        tasks = list(enumerate(before))
        load = [background.spawn(lives(key, index), "load") for index, key in tasks[:150]]
        await asyncio.sleep(0)  # some of these are answered, some are under way
        await asyncio.sleep(0)
        server.stall()
        load += [background.spawn(lives(key, index), "load") for index, key in tasks[150:]]
        await asyncio.sleep(0.01)
        server.kill()
        await asyncio.gather(*load)  # nothing but PinStoreError was raised
        assert failed > 100
        await until(lambda: not store.up)
        assert [store.get(key) for key in before] == [Pin("a")] * 300
        await server.start()
        await until(lambda: store.up and not store.unwritten)
        other = world.make()
        assert [await now(other.get(key)) for key in before] == [Pin("a")] * 300
        assert [await now(other.get(key)) for key in during] == [Pin("b")] * 300
        async with asyncio.timeout(PATIENCE):  # unknown until all is told again
            while await now(other.held()) != {("pool", "a"): 200, ("pool", "b"): 150}:
                await asyncio.sleep(0.01)


async def test_a_stall_fails_what_waits_in_time_and_heals(server: RedisServer, world: RedisWorld) -> None:
    store = world.make()
    await now(store.put(K[0], "pool", "a", ttl=None))
    server.stall()
    try:
        taken = await asyncio.gather(*(fails(operation) for operation in every_operation(store)[:3]))
        assert max(taken) < IN_TIME
        assert not store.up
        for operation in every_operation(store):
            assert await fails(operation) < 0.05
        assert store.get(K[0]) == Pin("a")
        world.clock.now += 31
        assert store.get(K[0]) == Pin("a")  # nobody can be asked: what was known counts as long as it lives
        world.clock.now += 70
        assert await fails(lambda: store.get(K[0])) < 0.05
    finally:
        server.go_on()
    await until(lambda: store.up and not store.unwritten)
    assert await now(world.make().get(K[8])) == Pin("a")


async def test_a_long_outage_does_not_make_the_next_one_longer(server: RedisServer, world: RedisWorld) -> None:
    store = world.make()
    await now(store.put(K[0], "pool", "a", ttl=None))
    server.kill()
    await asyncio.sleep(3.5)  # that is what is tested: pauses have grown to seconds
    await server.start()
    await until(lambda: store.up)
    await asyncio.sleep(1.3)  # and so long it serves
    server.kill()
    await until(lambda: not store.up)
    await server.start()
    started = time.monotonic()
    await until(lambda: store.up)
    assert time.monotonic() - started < 0.6


async def test_a_stall_while_nobody_asks_is_noticed(server: RedisServer, world: RedisWorld) -> None:
    store = world.make()
    await now(store.held())
    server.stall()
    try:
        await until(lambda: not store.up)
    finally:
        server.go_on()
    await until(lambda: store.up)


async def test_a_connection_that_was_closed_while_it_was_quiet_is_made_again_unnoticed(
    server: RedisServer, world: RedisWorld, caplog: pytest.LogCaptureFixture
) -> None:
    store = world.make()
    await now(store.put(K[0], "pool", "a", ttl=None))
    async with server.asking() as client:
        await client.client_kill_filter(skipme=True)
        assert await now(store.put(K[1], "pool", "a", ttl=None)) == "a"
    assert caplog.text == ""


async def test_a_busy_process_does_not_take_its_redis_for_down(
    world: RedisWorld, caplog: pytest.LogCaptureFixture
) -> None:
    """The answer came in time, and lay there unread."""
    store = world.make()
    await now(store.put(K[0], "pool", "a", ttl=None))
    answer = store.put(K[1], "pool", "a", ttl=None)
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    time.sleep(0.3)  # noqa: ASYNC251  # that is what is tested
    later = store.put(K[2], "pool", "a", ttl=None)
    time.sleep(0.3)  # noqa: ASYNC251  # that is what is tested
    assert [await now(answer), await now(later)] == ["a", "a"]
    assert store.up
    assert caplog.text == ""


async def test_a_redis_that_lost_all_is_told_what_this_process_knows(server: RedisServer, world: RedisWorld) -> None:
    store = world.make(ttl=1000.0)
    tasks = keys(1000)
    for key in tasks:
        await now(store.put(key, "pool", "a", ttl=None))
    for key in tasks[:10]:
        store.finish(key)
    await now(store.held())
    server.kill()
    await until(lambda: not store.up)
    await server.start()
    other = world.make(ttl=1000.0)
    await now(other.put(tasks[11], "pool", "b", ttl=None))  # another was first this time
    await until(lambda: store.up and not store.unwritten)
    async with asyncio.timeout(PATIENCE):
        while await now(other.held()) != {("pool", "a"): 989, ("pool", "b"): 1}:
            await asyncio.sleep(0.01)
    assert await now(other.get(tasks[0])) == await now(other.get(tasks[999])) == Pin("a")
    assert await now(store.get(tasks[11])) == Pin("b")
    store.refresh(tasks[12], ttl=None)
    await world.passes(301)
    assert await now(other.held()) == {("pool", "a"): 1, ("pool", "b"): 1}


async def test_a_full_redis_refuses_pins_and_still_tells_those_it_has(
    background: Background, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(redis_writer, "_REFUSED_PAUSE", 0.05)
    async with redis_server("--maxmemory-policy", "noeviction") as server, redis_world(server, background) as world:
        store = world.make()
        await now(store.put(K[0], "pool", "a", ttl=None))
        async with server.asking() as client:
            await client.config_set("maxmemory", "1mb")
            with pytest.raises(PinStoreError, match="no room"):
                await now(store.put(K[1], "pool", "a", ttl=None))
            assert store.up
            assert store.get(K[1]) == Pin("a")
            reading = world.make()
            answers = await asyncio.gather(
                now(reading.get(K[0])),
                now(reading.put(K[2], "pool", "a", ttl=None)),
                now(reading.get(K[0])),
                return_exceptions=True,
            )
            assert answers[0] == answers[2] == Pin("a")
            assert isinstance(answers[1], PinStoreError)
            assert await now(reading.held()) == {("pool", "a"): 1}
            await client.config_set("maxmemory", "0")
        await until(lambda: not store.unwritten and not reading.unwritten)
        assert await now(world.make().get(K[1])) == Pin("a")


async def test_a_redis_that_cannot_save_refuses_pins_and_still_tells_those_it_has(
    server: RedisServer, world: RedisWorld
) -> None:
    store = world.make()
    await now(store.put(K[0], "pool", "a", ttl=None))
    async with server.asking() as client:
        await client.config_set("save", "1 1")
        (server.directory / "dump.rdb").mkdir()
        await client.set("x", 1)
        async with asyncio.timeout(PATIENCE):
            while (await client.info("persistence"))["rdb_last_bgsave_status"] != "err":
                with suppress(ResponseError):  # one is under way
                    await client.bgsave(schedule=True)
                await asyncio.sleep(0.05)
        with pytest.raises(PinStoreError, match="MISCONF"):
            await now(store.put(K[1], "pool", "a", ttl=None))
        assert store.up
        later = world.make()
        assert await now(later.get(K[0])) == Pin("a")


async def test_a_replica_is_down(server: RedisServer, world: RedisWorld, background: Background) -> None:
    async with redis_server("--replicaof", f"127.0.0.1 {server.port}") as replica:
        store = world.make(url=replica.url)
        await fails(lambda: store.put(K[0], "pool", "a", ttl=None))
        assert not store.up
        async with replica.asking() as client:
            await client.replicaof("NO", "ONE")
            await until(lambda: store.up and not store.unwritten)
            assert await now(store.get(K[0])) == Pin("a")
            await client.replicaof("127.0.0.1", str(server.port))
            await fails(lambda: store.put(K[1], "pool", "a", ttl=None))
            assert not store.up


async def test_flushed_scripts_are_loaded_again(server: RedisServer, world: RedisWorld) -> None:
    store = world.make()
    await now(store.put(K[0], "pool", "a", ttl=None))
    async with server.asking() as client:
        await client.script_flush()
    await fails(lambda: store.put(K[1], "pool", "a", ttl=None))
    await until(lambda: store.up and not store.unwritten)
    assert await now(world.make().get(K[1])) == Pin("a")


@pytest.mark.parametrize(
    "url", ["redis://:wrong-sesame@127.0.0.1", "redis://me:wrong-sesame@127.0.0.1", "redis://127.0.0.1"]
)
async def test_a_wrong_password_is_down_and_is_never_shown(
    background: Background, caplog: pytest.LogCaptureFixture, url: str
) -> None:
    caplog.set_level(logging.DEBUG)
    async with redis_server("--requirepass", "sesame") as server, redis_world(server, background) as world:
        store = world.make(url=f"{url}:{server.port}")
        with pytest.raises(PinStoreError) as caught:
            await now(store.put(K[0], "pool", "a", ttl=None))
        assert not store.up
        assert "password" in str(caught.value)
        right = world.make(url=f"redis://:sesame@127.0.0.1:{server.port}/3")
        assert await now(right.put(K[0], "pool", "a", ttl=None)) == "a"
        shown = f"{errors(caught.value)}{caplog.text}{store!r}{vars(store)!r}"
        assert "sesame" not in shown


async def test_what_is_no_redis_is_down_and_nothing_of_what_it_says_is_shown(
    background: Background, caplog: pytest.LogCaptureFixture
) -> None:
    """Some servers repeat what they do not understand, the password included."""

    async def repeats(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        said = await reader.read(1000)
        writer.write(b"-ERR unknown command " + said.replace(b"\r\n", b" ") + b"\r\n")
        await reader.read()
        writer.close()

    listening = await asyncio.start_server(repeats, "127.0.0.1", 0)
    port = listening.sockets[0].getsockname()[1]
    store = RedisPinStore(
        f"redis://:sesame@127.0.0.1:{port}", ttl=9, capacity=9, clock=time.monotonic, background=background
    )
    try:
        with pytest.raises(PinStoreError) as caught:
            await now(store.put(K[0], "pool", "a", ttl=None))
        await until(lambda: not store.up)
        assert "sesame" not in f"{errors(caught.value)}{caplog.text}"
    finally:
        await store.close()
        listening.close()


async def test_a_closed_store_fails_at_once_and_has_told_what_it_was_given(world: RedisWorld) -> None:
    store = world.make()
    for key in K[:5]:
        await now(store.put(key, "pool", "a", ttl=None))
        store.finish(key)
    await store.close()
    await store.close()
    for operation in every_operation(store):
        assert await fails(operation) < 0.05
    assert await now(world.make().held()) == {}


async def test_the_end_of_the_background_fails_what_waits(server: RedisServer) -> None:
    background = Background()
    store = RedisPinStore(server.url, ttl=9, capacity=9, clock=time.monotonic, background=background)
    answer = store.get(K[0])
    await background.close()
    assert await fails(lambda: answer) < IN_TIME
    await store.close()


@pytest.mark.parametrize("url", ["http://:sesame@host", "redis://:sesame@host:port", "sesame"])
async def test_what_is_no_url_of_a_redis_is_refused_and_not_shown(background: Background, url: str) -> None:
    with pytest.raises(ValueError, match="URL") as caught:
        RedisPinStore(url, ttl=9, capacity=9, clock=time.monotonic, background=background)
    assert "sesame" not in errors(caught.value)
