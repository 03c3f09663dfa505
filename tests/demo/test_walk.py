"""The newcomer's walk of docs/walk.md, against a real demo: where a task went, a drain, and a server that is empty."""

import asyncio
import re
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import aiohttp

from proxy.demo.messages import CAPABILITIES_KEY, TASKS_EXTENSION, VERSION, VERSION_KEY
from proxy.demo.run import lines_to_try
from tests.process.harness import PROJECT, Command, started
from tests.process.test_demo import Demo

START_LIMIT, WALK_LIMIT = 30.0, 20.0  # seconds
# As `mcp-routing-proxy demo`, with tasks that are over sooner, and on ports that nobody else has a reason to ask.
DEMO = """
import sys
from proxy.cli import main
from proxy.demo import run
run.SHORTEST, run.LONGEST = 2.0, 4.0
run.free_address = lambda preferred, of_choice=run.free_address: of_choice(0)
sys.exit(main(["demo"]))
"""


async def test_a_drained_server_ends_its_tasks_and_shows_as_empty() -> None:
    with demo() as command:
        await command.until(lambda: "Ctrl-C" in command.output, START_LIMIT)
        proxy, admin = (re.search(rf"^  {name}  (\S+)$", command.output, re.M) for name in ("proxy", "admin"))
        assert proxy is not None and admin is not None
        async with aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=5)) as session:
            walk = Walk(session, proxy[1], admin[1])
            for name, member in (await walk.backends()).items():
                assert not member["draining"] and not member["empty"], name

            task, maker = await walk.make_task(2.0)
            assert await walk.owner(task) == (maker, "pin")

            drained = await walk.post(f"api/backends/agents/{maker}/drain")
            assert drained["draining"] and not drained["empty"]
            assert drained["unfinished_tasks"] >= 1

            assert await walk.polled_to_its_end(task) == ({maker}, "completed")
            await walk.until_empty(maker)
            others = [member for name, member in (await walk.backends()).items() if name != maker]
            assert all(member["up"] and member["unfinished_tasks"] > 0 for member in others)

            assert not (await walk.post(f"api/backends/agents/{maker}/undrain"))["empty"]
            assert await walk.losses() == []
        command.terminate()
        assert await command.ended() == 0
        assert re.search(r"^Meanwhile completed: [1-9]\d* tasks; lost: 0$", command.output, re.M), command.output


@contextmanager
def demo() -> Iterator[Command]:
    """A demo, of which nothing is left at the end, also when it fails."""
    with started("-c", DEMO, program=(sys.executable,)) as command:
        running = Demo(command)
        try:
            yield command
        finally:
            running.end_servers()


class Walk:
    """What the newcomer does."""

    def __init__(self, session: aiohttp.ClientSession, url: str, admin: str) -> None:
        self._session = session
        self._url = url
        self._admin = admin
        self._deadline = time.monotonic() + WALK_LIMIT

    async def post(self, path: str, question: object = None) -> dict[str, Any]:
        async with self._session.post(self._admin + path, json=question or {}) as response:
            assert response.status == 200
            told: dict[str, Any] = await response.json()
            return told

    async def backends(self) -> dict[str, dict[str, Any]]:
        async with self._session.get(f"{self._admin}api/pools") as response:
            (pool,) = (await response.json())["pools"]
            return {member["id"]: member for member in pool["backends"]}

    async def losses(self) -> list[dict[str, Any]]:
        """What the proxy counted of tasks that were not served."""
        async with self._session.get(f"{self._admin}api/overview") as response:
            told: dict[str, list[dict[str, Any]]] = await response.json()
            assert sum(row["count"] for row in told["decisions"]) > 0
            return [row for row in told["decisions"] if row["outcome"] != "served"] + told["rejected"]

    async def make_task(self, seconds: float) -> tuple[str, str]:
        """Its id, and the server that made it."""
        result, maker = await self._call(
            "tools/call", {"name": "slow_compute", "arguments": {"seconds": seconds}}, "slow_compute"
        )
        return result["taskId"], maker

    async def owner(self, task: str) -> tuple[str, str]:
        """Who has the task, and what names it, as the dashboard's form is told."""
        headers = [["MCP-Protocol-Version", VERSION], ["Mcp-Method", "tasks/get"], ["Mcp-Name", task]]
        told = await self.post("api/explain", {"headers": headers})
        (place,) = told["places"]
        (backend,) = place["backends"]
        return backend["id"], place["source"]

    async def polled_to_its_end(self, task: str) -> tuple[set[str], str]:
        """Who answered, and the last status."""
        answered = set()
        while True:
            result, server = await self._call("tasks/get", {"taskId": task}, task)
            answered.add(server)
            if result["status"] != "working":
                return answered, result["status"]
            await self._breath()

    async def until_empty(self, backend: str) -> None:
        while not (member := (await self.backends())[backend])["empty"]:
            assert member["draining"] and member["up"]
            await self._breath()
        assert (member["in_flight"], member["unfinished_tasks"]) == (0, 0)

    async def _breath(self) -> None:
        assert time.monotonic() < self._deadline, "the walk takes too long"
        await asyncio.sleep(0.1)

    async def _call(self, method: str, params: dict[str, Any], name: str) -> tuple[dict[str, Any], str]:
        meta = {VERSION_KEY: VERSION, CAPABILITIES_KEY: {"extensions": {TASKS_EXTENSION: {}}}}
        message = {"jsonrpc": "2.0", "id": 1, "method": method, "params": params | {"_meta": meta}}
        headers = {"MCP-Protocol-Version": VERSION, "Mcp-Method": method, "Mcp-Name": name}
        async with self._session.post(self._url, json=message, headers=headers) as response:
            assert response.status == 200
            return (await response.json())["result"], response.headers["Served-By"]


def test_the_walk_has_the_lines_that_the_demo_prints() -> None:
    text = Path(PROJECT, "docs/walk.md").read_text(encoding="utf-8")
    for line in lines_to_try("http://127.0.0.1:8080/mcp"):
        assert line in text
    for image in re.findall(r"\]\((images/[^)]+)\)", text):
        assert Path(PROJECT, "docs", image).is_file(), image
