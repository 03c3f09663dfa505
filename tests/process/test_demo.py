"""The demo as a user meets it: a report, a proxy that keeps serving, and nothing left behind."""

import os
import re
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import aiohttp

from tests.process.harness import Command, children_of, started

LIMIT = 30.0  # seconds; four interpreters that start, and thirty tasks
TASK_ID = re.compile(r"[\w-]{32}")  # how the demo's servers make ids, and longer than any word it prints
META = {
    "io.modelcontextprotocol/protocolVersion": "2026-07-28",
    "io.modelcontextprotocol/clientCapabilities": {"extensions": {"io.modelcontextprotocol/tasks": {}}},
}


async def test_the_demo_reports_and_keeps_serving_and_leaves_nothing_behind() -> None:
    with demo(PYTHONUNBUFFERED="1") as running:
        command = running.command
        await command.until(lambda: "Ctrl-C" in command.output, LIMIT)
        servers = await running.servers()
        assert re.search(r"^completed through the proxy: +30 of 30$", command.output, re.MULTILINE)
        lost = shown(r"would be lost by hashing the task id alone: (\d+) of 30", command)
        assert 0 < int(lost) <= 30

        task_id = await make_task(shown(r"  proxy  (http://\S+)", command))
        async with aiohttp.ClientSession() as session:
            async with session.get(shown(r"  admin  (http://\S+)", command) + "healthz") as response:
                assert response.status == 200

        assert all(map(is_server, servers))
        command.terminate()
        assert await command.ended() == 0
        assert not any(map(is_server, servers))
        assert command.complaints == ""
        assert TASK_ID.fullmatch(task_id)  # the pattern does find ids
        assert TASK_ID.search(command.output) is None


async def test_the_demo_shows_what_it_does_while_it_does_it() -> None:
    """Through a pipe as well: `| tee`, or the log of a container."""
    with demo() as running:
        await running.servers()
        await running.command.until(lambda: "Starting 3 MCP servers" in running.command.output, LIMIT)


async def test_a_demo_that_is_ended_early_leaves_nothing_behind() -> None:
    with demo() as running:
        servers = await running.servers()
        running.command.terminate()
        await running.command.ended()
        assert not any(map(is_server, servers))


def shown(pattern: str, command: Command) -> str:
    """What the pattern's group finds on a line of the output."""
    found = re.search(f"^{pattern}$", command.output, re.MULTILINE)
    assert found is not None, command.output
    return found[1]


class Demo:
    """A demo that runs."""

    def __init__(self, command: Command) -> None:
        self.command = command
        self._seen: set[int] = set()

    async def servers(self) -> list[int]:
        """The ids of its servers' processes, when there are three."""
        await self.command.until(lambda: len(children_of(self.command.pid)) == 3, LIMIT)
        found = children_of(self.command.pid)
        self._seen.update(found)
        return found

    def end_servers(self) -> None:
        """Ends what the demo itself has not."""
        for pid in self._seen.union(children_of(self.command.pid)):
            if is_server(pid):
                os.kill(pid, signal.SIGKILL)


def is_server(pid: int) -> bool:
    """True if the process with this id is a server of the demo, and has not ended."""
    try:
        return b"proxy.demo.server" in Path(f"/proc/{pid}/cmdline").read_bytes()  # empty when it has ended
    except OSError:
        return False


@contextmanager
def demo(**environ: str) -> Iterator[Demo]:
    """A demo, of which nothing is left at the end, also when it fails."""
    with started("demo", environ=environ) as command:
        running = Demo(command)
        try:
            yield running
        finally:
            running.end_servers()


async def make_task(url: str) -> str:
    """The id of a new task."""
    params = {"name": "slow_compute", "arguments": {"seconds": 1}, "_meta": META}
    message = {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params}
    headers = {"MCP-Protocol-Version": "2026-07-28", "Mcp-Method": "tools/call", "Mcp-Name": "slow_compute"}
    async with aiohttp.ClientSession() as session:
        async with session.post(url, json=message, headers=headers) as response:
            assert response.status == 200
            return str((await response.json())["result"]["taskId"])
