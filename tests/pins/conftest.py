"""Stores on uvloop, as in a running proxy, and a Redis for those that need one."""

import asyncio
from collections.abc import AsyncIterator, Callable

import pytest
import uvloop

from proxy.background import Background
from tests.redis_server import RedisServer, redis_server


def pytest_asyncio_loop_factories(
    config: pytest.Config, item: pytest.Item
) -> dict[str, Callable[[], asyncio.AbstractEventLoop]]:
    return {"uvloop": uvloop.new_event_loop}


@pytest.fixture
async def server() -> AsyncIterator[RedisServer]:
    async with redis_server() as running:
        yield running


@pytest.fixture
async def background() -> AsyncIterator[Background]:
    made = Background()
    yield made
    await made.close()
