"""The official SDK's client and servers with the proxy between them: every task is completed by the server it is at."""

from collections.abc import AsyncIterator
from typing import Any

import pytest
import pytest_asyncio

from tests.interop.fleet import run_client, task_servers
from tests.process.harness import config_text, proxy_process

TASKS = 20
BRIEF = ("--seconds", "0.1", "--poll", "0.05")  # a task is polled two or three times
STYLES = {  # of ids, each by one server; half of them tell an id in an event of a stream
    "a": ("--id-style", "unicode", "--sse-create"),
    "b": ("--id-style", "spaces"),
    "c": ("--id-style", "sentinel", "--sse-create"),
    "d": ("--id-style", "long"),
}


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def alike() -> AsyncIterator[list[int]]:
    """Three servers whose task ids are UUIDs."""
    async with task_servers(3) as ports:
        yield ports


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def various() -> AsyncIterator[list[int]]:
    """Four servers with a style of task ids each."""
    async with task_servers(4, own=STYLES) as ports:
        yield ports


@pytest.mark.parametrize(
    "flags",
    [("--conc", "1"), ("--conc", "6"), ("--conc", "6", "--fresh-conn")],
    ids=["one at a time", "six at a time", "by fresh connections"],
)
async def test_every_task_is_completed(alike: list[int], flags: tuple[str, ...]) -> None:
    await run_through_proxy(alike, TASKS, *flags)


async def test_every_task_is_completed_whatever_its_id_looks_like(various: list[int]) -> None:
    counts, streams = await run_through_proxy(various, TASKS, "--conc", "6")
    assert streams == counts["by:a"] + counts["by:c"]


async def run_through_proxy(ports: list[int], n: int, *flags: str) -> tuple[dict[str, Any], int]:
    """Runs `n` tasks on the servers at these ports, and returns the client's counts and the number of event streams.

    Each task must be completed, and every poll must have gone by a pin: one that went astray could still find its task
    by chance, so it is the proxy's own counts that show it.
    """
    async with proxy_process(config_text(*ports, log={"access": True})) as proxy:
        counts = await run_client(proxy.url, "--n", str(n), *BRIEF, *flags)
        assert counts["created"] == counts["completed"] == n, counts
        assert not [key for key in counts if "error" in key or key.startswith("connection:")]
        makers = [counts.get(f"by:{name}", 0) for name in "abcdefgh"[: len(ports)]]
        assert sum(makers) == n
        assert min(makers) > 0

        assert counts["polls"] > n
        assert await proxy.count("decisions_total", kind="task", source="pin", outcome="served") == counts["polls"]
        assert await proxy.count("decisions_total", kind="task") == counts["polls"]
        assert await proxy.count("decisions_total", outcome="unknown") == 0
        assert await proxy.count("pins", kind="task") == n
        assert await proxy.count("tasks_held") == 0
        assert await proxy.count("unlearned_total") == 0
        proxy.command.terminate()
        assert await proxy.command.ended() == 0  # now its log is complete
        return counts, proxy.command.output.count('"streamed":true')
