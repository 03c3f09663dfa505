"""Two proxies on one Redis: what one of them told a client, the other knows before the client can ask."""

import asyncio
import json
import time
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager

import pytest

from proxy.app import Proxy
from proxy.background import Background
from proxy.config import Pins
from proxy.control.backends import standing
from proxy.parts import pin_store_of
from proxy.pins.held import tasks_held
from proxy.pins.redis import RedisPinStore
from proxy.routing.ownership import PinKey, pin_key
from tests.redis_server import RedisServer, redis_server
from tests.wire.harness import Client, backend, call, client, config_text, metric, running, task, until
from tests.wire.task_backend import TaskBackend

TASKS = 200


class Fleet:
    """Two proxies in front of three backends, each with a client and a store on one Redis."""

    def __init__(self, server: RedisServer, makers: list[TaskBackend]) -> None:
        self.server = server
        self.makers = makers
        self.proxies: list[Proxy] = []
        self.clients: list[Client] = []
        self.stores: list[RedisPinStore] = []

    async def make(self, number: int) -> str:
        """A task made through one proxy."""
        answer = await self.clients[number].ask(call())
        return str(json.loads(answer.body)["result"]["taskId"])

    async def poll(self, number: int, task_id: str) -> None:
        """The same task asked for through another."""
        answer = await self.clients[number].ask(task(b"get", task_id.encode()))
        assert json.loads(answer.body)["result"]["taskId"] == task_id

    async def searches(self) -> float:
        return sum([await metric(proxy, "searches_total") for proxy in self.proxies])

    async def unlearned(self) -> float:
        return sum([await metric(proxy, "unlearned_total") for proxy in self.proxies])


@asynccontextmanager
async def fleet(tell: str = "json", options: tuple[str, ...] = ()) -> AsyncIterator[Fleet]:
    makers = [TaskBackend(*(f"{name}-{i}" for i in range(2 * TASKS)), tell=tell) for name in "abc"]
    background = Background()
    async with AsyncExitStack() as stack:
        server = await stack.enter_async_context(redis_server(*options))
        made = Fleet(server, makers)
        ports = [(await stack.enter_async_context(backend(maker.script))).port for maker in makers]
        pins = Pins(store="redis", url=server.url)
        stack.push_async_callback(background.close)
        for _ in range(2):
            store = pin_store_of(pins, clock=time.monotonic, background=background)
            assert isinstance(store, RedisPinStore)
            stack.push_async_callback(store.close)
            proxy = await stack.enter_async_context(running(config_text(*ports), pins=store))
            made.stores.append(store)
            made.proxies.append(proxy)
            made.clients.append(await stack.enter_async_context(client(proxy.port)))
        yield made


@pytest.mark.parametrize("tell", ["json", "chunked", "sse"])
async def test_a_task_made_through_one_proxy_is_found_at_once_through_the_other(tell: str) -> None:
    async with fleet(tell) as two:
        for number in range(TASKS):
            answer = await two.clients[number % 2].ask(call())
            body = answer.body if tell != "sse" else answer.body.split(b"data: ")[-1]
            await two.poll(1 - number % 2, json.loads(body)["result"]["taskId"])
        assert await two.searches() == 0
        assert await two.unlearned() == 0
        assert all(name in maker.known for maker in two.makers for name in maker.asked)
        assert sum(await asyncio.gather(*(metric(proxy, "tasks_held") for proxy in two.proxies))) == 2 * TASKS


async def test_without_redis_tasks_are_searched_and_the_rest_goes_on() -> None:
    async with fleet() as two:
        known = await two.make(0)
        two.server.kill()
        made = [await two.make(number % 2) for number in range(10)]
        await two.poll(0, known)
        assert await two.searches() == 0  # this proxy saw it made
        for number, task_id in enumerate(made):
            await two.poll(1 - number % 2, task_id)
        assert await two.searches() == 10
        assert await two.unlearned() >= 10
        await two.server.start()
        await until(lambda: all(store.up and not store.unwritten for store in two.stores))
        before = await two.searches()
        for number in range(20):
            await two.poll(1 - number % 2, await two.make(number % 2))
        assert await two.searches() == before


@pytest.mark.parametrize("policy", ["volatile-lru", "allkeys-lru"])
async def test_with_a_redis_that_dropped_pins_no_drained_backend_is_told_to_be_empty(policy: str) -> None:
    """Until the last task of which nobody knows has outlived what its server said."""
    async with fleet(options=("--maxmemory", "3mb", "--maxmemory-policy", policy)) as two:
        store, proxy = two.stores[0], two.proxies[0]
        proxy.set_draining(pool="agents", backend="a", draining=True)
        pool = proxy.pools["agents"]
        member = pool.member("a")
        assert member is not None

        async def empty() -> object:
            return standing(pool, member, await tasks_held(proxy.pins), time.monotonic())["empty"]

        assert await empty()
        tasks = [pin_key("agents", f"many-{number}") for number in range(15_000)]
        for first in range(0, len(tasks), 100):
            await asyncio.gather(*(put(store, key) for key in tasks[first : first + 100]))
        assert not await empty()
        for number, key in enumerate(tasks):
            store.finish(key)  # those that are known; Redis dropped many
            if number % 100 == 0:
                await put(store, tasks[0])
        assert store.evicted > 1000
        assert not await empty()
        text, _ = await proxy.metrics.render()
        assert b'tasks_held{backend="a"' not in text  # nobody knows
        if policy == "volatile-lru":
            assert b'tasks_held{backend="b"' in text  # which lost nothing


async def put(store: RedisPinStore, key: PinKey) -> None:
    answer = store.put(key, "agents", "a", ttl=None)
    if isinstance(answer, asyncio.Future):
        await answer
