"""Stores under a clock that the test sets: in memory, and in a Redis in which time passes as the test says."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import TypeVar

from proxy.background import Background
from proxy.pins.memory import MemoryPinStore
from proxy.pins.redis import RedisPinStore
from proxy.pins.store import Answer, PinStore, PinStoreError
from proxy.routing.ownership import PinKey, pin_key
from tests.redis_server import RedisServer, pass_time

T = TypeVar("T")

K = [pin_key("pool", f"task-{i}") for i in range(10)]
NOBODY = pin_key("pool", "nobody's")


class Clock:
    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


async def now(answer: Answer[T]) -> T:
    return await answer if isinstance(answer, asyncio.Future) else answer


class World:
    """Where time passes, and where stores are made."""

    def __init__(self) -> None:
        self.clock = Clock()

    def make(self, *, ttl: float = 100.0, capacity: int = 1000) -> PinStore:
        return MemoryPinStore(ttl=ttl, capacity=capacity, clock=self.clock)

    async def passes(self, seconds: float) -> None:
        self.clock.now += seconds

    def __repr__(self) -> str:
        return type(self).__name__


class RedisWorld(World):
    """Several stores of one world share one Redis."""

    def __init__(self, server: RedisServer, background: Background) -> None:
        super().__init__()
        self.server = server
        self.background = background
        self.stores: list[RedisPinStore] = []

    def make(
        self, *, ttl: float = 100.0, capacity: int = 1000, clock: Callable[[], float] | None = None, url: str = ""
    ) -> RedisPinStore:
        store = RedisPinStore(
            url or self.server.url,
            ttl=ttl,
            capacity=capacity,
            clock=clock or self.clock,
            background=self.background,
        )
        self.stores.append(store)
        return store

    async def passes(self, seconds: float) -> None:
        for store in self.stores:
            await settled(store)
        self.clock.now += seconds
        async with self.server.asking() as client:
            await pass_time(client, seconds)


async def settled(store: RedisPinStore) -> None:
    """Returns when Redis has answered all that it was told by this store behind the scenes."""
    await now(store.peek(NOBODY))


async def connected(*stores: RedisPinStore) -> None:
    """Returns when each has its connection, however busy the machine is."""
    async with asyncio.timeout(10):
        for store in stores:
            while True:
                try:
                    await settled(store)
                    break
                except PinStoreError:
                    await asyncio.sleep(0.01)


@asynccontextmanager
async def redis_world(server: RedisServer, background: Background) -> AsyncIterator[RedisWorld]:
    world = RedisWorld(server, background)
    try:
        yield world
    finally:
        for store in world.stores:
            await store.close()


def keys(count: int, name: str = "task") -> list[PinKey]:
    return [pin_key("pool", f"{name}-{i}") for i in range(count)]
