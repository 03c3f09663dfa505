"""Real MCP servers and a real MCP client as processes, for tests: started, waited for, and ended by their own id."""

import asyncio
import json
import os
import signal
import socket
import string
import subprocess
import sys
import tempfile
import time
from asyncio.subprocess import DEVNULL, PIPE
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

PROJECT = Path(__file__).parents[2]
START_LIMIT = 60.0  # seconds; the SDK takes one or two to import, several times that where cores are few and busy
GRACE = 5.0  # seconds between SIGTERM and SIGKILL
CLIENT_LIMIT = 60.0  # seconds
NONE: Mapping[str, Sequence[str]] = {}


class TaskServer:
    """A server with a store, which can be killed and come back on its port with its tasks."""

    def __init__(self, name: str, folder: Path, *flags: str) -> None:
        self.name = name
        self.store = folder / f"{name}.tasks"
        # Bound and never listening: the port refuses while the server is away, and nobody else is given it.
        self._place = socket.socket()
        self._place.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        self._place.bind(("127.0.0.1", 0))
        self.port: int = self._place.getsockname()[1]
        self._log = folder / f"{name}.log"
        self._flags = ("--port", str(self.port), "--store", str(self.store), *flags)
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}/mcp"

    def start(self) -> None:
        """Starts it, without waiting; `serving` does."""
        self._process = _started(self.name, self._log, *self._flags)

    async def serving(self) -> None:
        """Waits until it can be connected to. Raises `RuntimeError` or `TimeoutError` if it does not start."""
        if self._process is None:
            raise RuntimeError("it was not started")
        await _port(self._process, self._log, time.monotonic() + START_LIMIT)

    async def come_back(self) -> None:
        """Starts it and waits until it can be connected to."""
        self.start()
        await self.serving()

    def freeze(self) -> None:
        """Stops it in the middle of whatever it does: connections still stand, and nothing is answered."""
        self._signal(signal.SIGSTOP)

    def kill(self) -> None:
        """Ends it by SIGKILL, frozen or not; from now on its port refuses connections."""
        self._signal(signal.SIGKILL)
        if self._process is not None:
            self._process.wait()

    def end(self) -> None:
        """Ends it for good and tells on standard error what it had to say."""
        if self._process is not None and self._process.poll() is None:
            self._signal(signal.SIGCONT)
            _end([self._process])
        self._place.close()
        _tell(self.name, self._log)

    def _signal(self, number: int) -> None:
        if self._process is not None:
            self._process.send_signal(number)


@asynccontextmanager
async def durable_servers(n: int, *flags: str) -> AsyncIterator[list[TaskServer]]:
    """`n` servers with a store each, `a`, `b`, ..., that serve. Raises like `task_servers`."""
    with tempfile.TemporaryDirectory(prefix="durable-servers-") as folder:
        servers = [TaskServer(name, Path(folder), *flags) for name in string.ascii_lowercase[:n]]
        try:
            for server in servers:
                server.start()
            for server in servers:
                await server.serving()
            yield servers
        finally:
            for server in servers:
                server.end()


@asynccontextmanager
async def task_servers(n: int, *flags: str, own: Mapping[str, Sequence[str]] = NONE) -> AsyncIterator[list[int]]:
    """The ports of `n` servers, instances `a`, `b`, ..., each started with these flags of `tasks_server.py`.

    `own`: an instance's further flags, by its name, where not all servers are to be alike.
    Nothing in here belongs to an event loop, so a fixture of any scope may hold it. What the servers have to say is
    written to standard error at the end, where pytest shows it beside a failure: they are silent unless there is one.
    Raises `RuntimeError` or `TimeoutError` if a server does not start.
    """
    with tempfile.TemporaryDirectory(prefix="task-servers-") as folder:
        logs = {name: Path(folder, f"{name}.log") for name in string.ascii_lowercase[:n]}
        processes: dict[str, subprocess.Popen[bytes]] = {}
        try:
            for name, log in logs.items():
                processes[name] = _started(name, log, *flags, *own.get(name, ()))
            deadline = time.monotonic() + START_LIMIT
            yield [await _port(processes[name], log, deadline) for name, log in logs.items()]
        finally:
            _end(list(processes.values()))
            for name in processes:
                _tell(name, logs[name])


async def run_client(url: str, *flags: str, client: str = "tasks_client") -> dict[str, Any]:
    """What that client counted at this URL. Its exit status is not looked at, so `--min` adds nothing here.

    Raises `AssertionError` with what it wrote if it printed no counts or took too long.
    """
    command = [sys.executable, "-m", f"tests.interop.{client}", url, *flags]
    process = await asyncio.create_subprocess_exec(*command, cwd=PROJECT, stdin=DEVNULL, stdout=PIPE, stderr=PIPE)
    try:
        output, complaints = await asyncio.wait_for(process.communicate(), CLIENT_LIMIT)
    except TimeoutError:
        raise AssertionError(f"the client was not done within {CLIENT_LIMIT:g} s") from None
    finally:
        if process.returncode is None:
            process.kill()
            await process.communicate()
    lines = output.decode().splitlines()
    if process.returncode not in (0, 1) or not lines:
        raise AssertionError(f"the client ended with {process.returncode}:\n{complaints.decode(errors='replace')}")
    counts: dict[str, Any] = json.loads(lines[-1])
    return counts


def _started(name: str, log: Path, *flags: str) -> subprocess.Popen[bytes]:
    """A server's process, whose log begins anew: the line that names its port is its own."""
    command = [sys.executable, "-m", "tests.interop.tasks_server", "--instance", name, *flags]
    with log.open("wb") as output:
        return subprocess.Popen(command, cwd=PROJECT, stdin=subprocess.DEVNULL, stdout=output, stderr=subprocess.STDOUT)


async def _port(process: subprocess.Popen[bytes], log: Path, deadline: float) -> int:
    """The port that the server names in its log. It queues connections from then on, so nobody need ask again."""
    while time.monotonic() < deadline:
        ended = process.poll() is not None
        for line in log.read_text(errors="replace").splitlines(keepends=True):
            if line.startswith("port ") and line.endswith(os.linesep):
                return int(line.removeprefix("port "))
        if ended:
            raise RuntimeError(f"a server ended with status {process.returncode} instead of starting")
        await asyncio.sleep(0.05)
    raise TimeoutError(f"a server did not start within {START_LIMIT:g} s")


def _end(processes: list[subprocess.Popen[bytes]]) -> None:
    for process in processes:
        process.terminate()
    deadline = time.monotonic() + GRACE
    for process in processes:
        try:
            process.wait(max(0.0, deadline - time.monotonic()))
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def _tell(name: str, log: Path) -> None:
    for line in log.read_text(errors="replace").splitlines() if log.exists() else ():
        if not line.startswith("port "):
            sys.stderr.write(f"server {name}: {line}\n")
