"""The official SDK's sessions and multi-round tools with the proxy between client and servers."""

from collections.abc import AsyncIterator

import pytest
import pytest_asyncio

from proxy.app import Proxy
from proxy.config import parse
from proxy.routing import rounds
from tests.interop.fleet import run_client, task_servers
from tests.process.harness import config_text, proxy_process

CALLS = 12


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def servers() -> AsyncIterator[list[int]]:
    """Three servers, each with sessions, and a key for what it seals, of its own."""
    async with task_servers(3) as ports:
        yield ports


async def test_every_session_holds_together(servers: list[int]) -> None:
    async with proxy_process(config_text(*servers)) as proxy:
        counts = await run_client(proxy.url, "--n", "6", "--calls", "4", client="sessions_client")
        assert (counts["held"], counts["calls"]) == (6, 24)
        assert {name for name in counts if name.startswith("by:")} == {"by:a", "by:b", "by:c"}
        assert await proxy.count("decisions_total", kind="session", source="tag", outcome="served") >= 24


@pytest.mark.parametrize("conc", ["1", "4"])
async def test_every_round_reaches_the_server_that_asked(servers: list[int], conc: str) -> None:
    """Trial 23: each server seals what the client must bring back with a key of its own."""
    async with proxy_process(config_text(*servers)) as proxy:
        counts = await run_client(proxy.url, "--n", str(CALLS), "--conc", conc, client="rounds_client")
        assert counts["ok"] == CALLS
        # Two of each call's three requests; and later calls go where their caller was asked before.
        assert await proxy.count("decisions_total", kind="round", source="pin", outcome="served") >= 2 * CALLS


async def test_without_soft_pins_rounds_go_astray(servers: list[int], monkeypatch: pytest.MonkeyPatch) -> None:
    """Shows that the test above can fail: pins that end at once are none."""
    monkeypatch.setattr(rounds, "LIFE", 0.0)
    proxy = Proxy(parse(config_text(*servers, listen="127.0.0.1:0", admin="127.0.0.1:0"), "test.yaml", {}))
    await proxy.start()
    try:
        url = f"http://127.0.0.1:{proxy.port}/mcp"
        counts = await run_client(url, "--n", str(CALLS), "--conc", "4", client="rounds_client")
        assert counts["failed"] > CALLS / 3
    finally:
        await proxy.drain()
