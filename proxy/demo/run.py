"""Runs the demo: three servers, the proxy before them, tasks through it, and what plain hashing would have lost.

Then it serves on, with some tasks always under way, so that there is something to see and to drain.
"""

import asyncio
import json
import shlex
import socket
import string
import sys
from asyncio.subprocess import DEVNULL, PIPE, Process
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass

import aiohttp

from proxy.demo.messages import CAPABILITIES_KEY, TASKS_EXTENSION, VERSION, VERSION_KEY, Json
from proxy.demo.steady import LONGEST, SHORTEST, steady, summary
from proxy.demo.tasks import count_lost_by_hash, report, run_tasks

SERVERS = 3
TASKS = 30
CONCURRENCY = 6
START_LIMIT = 30.0  # seconds; an interpreter that starts on a busy machine
GRACE = 3.0  # seconds between SIGTERM and SIGKILL; a server gives its last calls one

_TASK = "TASK_ID"
_PICK = r"""sed 's/.*"taskId": *"\([^"]*\)".*/\1/'"""  # what is no task passes as it is: an error can be read


@dataclass(frozen=True, slots=True)
class DemoServer:
    """A server that runs and answers."""

    id: str
    url: str
    pid: int


async def run(
    start_proxy: Callable[[str], AbstractAsyncContextManager[object]],
    hash_owner: Callable[[str, Sequence[str]], str],
    keep_serving: Callable[[], Awaitable[object]],
    show: Callable[[str], object] = print,
) -> None:
    """The whole demo, from the first server to the last.

    `start_proxy(config)` serves with the YAML in `config`, is ready when entered, and ends the proxy when left.
    `hash_owner(task_id, backend_ids)` names the backend that plain hashing would choose. `keep_serving` returns when
    the user has seen enough. Raises `RuntimeError` if a server does not start, and what `start_proxy` raises.
    """
    async with spawn_servers(SERVERS) as servers:
        listen, admin = free_address(8080), free_address(9901)
        show(f"Starting {SERVERS} MCP servers, each with its tasks in its own memory, and the proxy in front of them.")
        async with start_proxy(config_text(servers, listen, admin)):
            url = f"http://{listen}/mcp"
            show(f"Running {TASKS} tasks through it, {CONCURRENCY} at a time.\n")
            outcome = await run_tasks(url, TASKS, CONCURRENCY)
            lost_by_hash = count_lost_by_hash(outcome, [server.id for server in servers], hash_owner)
            show(report(outcome, lost_by_hash))
            async with steady(url, shortest=SHORTEST, longest=LONGEST) as fates:
                show(invitation(url, f"http://{admin}/"))
                try:
                    await keep_serving()
                finally:
                    show(summary(fates))


@asynccontextmanager
async def spawn_servers(n: int) -> AsyncIterator[list[DemoServer]]:
    """`n` server processes (at most 26: their names are letters) that answer; they are ended when the block is left.

    Raises `RuntimeError` if one of them ends or stays silent instead of starting.
    """
    processes: dict[str, Process] = {}
    try:
        for name in string.ascii_lowercase[:n]:
            # Each takes a port of the kernel's choice and names it: one chosen here could be lost before it is bound.
            command = (sys.executable, "-m", "proxy.demo.server", "--port", "0", "--instance", name)
            processes[name] = await asyncio.create_subprocess_exec(*command, stdin=DEVNULL, stdout=PIPE)
        try:
            async with asyncio.timeout(START_LIMIT):
                servers = [await _started(name, process) for name, process in processes.items()]
        except (TimeoutError, aiohttp.ClientError) as error:
            raise RuntimeError(f"the demo's servers were not ready within {START_LIMIT:g} s") from error
        yield servers
    finally:
        await asyncio.gather(*(_end(process) for process in processes.values()))


def config_text(servers: Sequence[DemoServer], listen: str, admin: str) -> str:
    """The configuration of the demo's proxy, as a user would write it."""
    backends = "\n".join(f"      - {{id: {server.id}, url: {json.dumps(server.url)}}}" for server in servers)
    return f"""\
listen: {json.dumps(listen)}
admin: {json.dumps(admin)}

pools:
  agents:
    backends:
{backends}
    balance: least_in_flight

routes:
  - {{name: rest, pool: agents}}

log: {{access: false}}
"""


def invitation(url: str, admin_url: str) -> str:
    """What the user may do while the demo keeps serving."""
    make, ask = lines_to_try(url)
    return f"""
The proxy keeps serving, and clients keep making tasks of {SHORTEST:g} to {LONGEST:g} s; Ctrl-C ends it.
  proxy  {url}
  admin  {admin_url}

1. Open the admin address in a browser. The dashboard shows how many tasks each server holds.
2. Make a task of a minute, in another terminal. This prints its id:
  {make}
3. Where did it go? Paste the id into the dashboard's form, and press Explain.
4. Drain that server: press Drain beside it, and confirm. Its tasks end where they are.
5. Ask for your task. It is still found there, and a minute after it was made it is completed:
  {ask}
6. Once it has nothing left, the server shows as empty. Undrain gives it new work again.
"""


def lines_to_try(url: str) -> tuple[str, str]:
    """For a shell: one that makes a task, and keeps and prints its id; one that asks how that task stands."""
    made = _curl(url, "tools/call", {"name": "slow_compute", "arguments": {"seconds": 60}}, name="slow_compute")
    asked = _curl(url, "tasks/get", {"taskId": _TASK}, name=_TASK)
    # The quotes are closed around the variable, and opened again.
    return f"TASK=$({made} | {_PICK}); echo $TASK", asked.replace(_TASK, "'$TASK'")


def _curl(url: str, method: str, params: Json, *, name: str) -> str:
    meta = {VERSION_KEY: VERSION, CAPABILITIES_KEY: {"extensions": {TASKS_EXTENSION: {}}}}
    message = {"jsonrpc": "2.0", "id": 1, "method": method, "params": params | {"_meta": meta}}
    headers = (
        "Content-Type: application/json",
        "Accept: application/json, text/event-stream",
        f"MCP-Protocol-Version: {VERSION}",
        f"Mcp-Method: {method}",
        f"Mcp-Name: {name}",
    )
    fields = [part for header in headers for part in ("-H", header)]
    return shlex.join(["curl", "-s", url, *fields, "-d", json.dumps(message, separators=(",", ":"))])


def free_address(preferred: int) -> str:
    """A loopback address to listen on: the preferred port, or any other if that is taken."""
    try:
        probe = socket.create_server(("127.0.0.1", preferred))
    except OSError:
        probe = socket.create_server(("127.0.0.1", 0))
    with probe:
        return f"127.0.0.1:{probe.getsockname()[1]}"


async def _started(name: str, process: Process) -> DemoServer:
    assert process.stdout is not None  # noqa: S101 - asked for above
    line = await process.stdout.readline()
    if not line:
        raise RuntimeError(f"demo server {name} ended with status {await process.wait()} instead of starting")
    origin = f"http://127.0.0.1:{int(line)}"
    # Its socket already queues connections, so this waits for an answer instead of asking again and again.
    async with aiohttp.ClientSession(raise_for_status=True) as session, session.get(f"{origin}/health"):
        return DemoServer(name, f"{origin}/mcp", process.pid)


async def _end(process: Process) -> None:
    try:
        process.terminate()
    except ProcessLookupError:
        pass  # it has ended by itself
    try:
        # communicate, not wait: the pipe must be drained and closed as well.
        await asyncio.wait_for(process.communicate(), GRACE)
    except TimeoutError:
        process.kill()
        await process.communicate()
