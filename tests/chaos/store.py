"""The store that replicas share in a chaos run: a Redis that writes every change down before it answers."""

import shutil
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from proxy.pins.redis_scripts import EPOCH, HELD, HOLDERS, PREFIX
from tests.chaos.fleet import free_port
from tests.redis_server import RedisServer, redis_server

DURABLE = ("--appendonly", "yes", "--appendfsync", "always")
WRITTEN = "appendonlydir"


@asynccontextmanager
async def shared_store() -> AsyncIterator[RedisServer]:
    """One that runs, at a port that nobody takes while it is away."""
    async with redis_server(*DURABLE) as server:
        server.kill()
        server.port = free_port()
        await server.start()
        yield server


async def start_again(server: RedisServer, *, keep: bool) -> None:
    """Starts one that was killed, with what it had written down or empty."""
    if not keep:
        shutil.rmtree(server.directory / WRITTEN)
    await server.start()


async def size(server: RedisServer) -> int:
    """The number of pins in it."""
    async with server.asking() as client:
        keys = [key async for key in client.scan_iter(match=PREFIX + b"*", count=1000)]
    return sum(not key.startswith((HELD, HOLDERS, EPOCH)) for key in keys)
