"""The commands as processes of their own: started, waited for, looked at from outside, and ended by their own id."""

import asyncio
import json
import os
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import aiohttp
from prometheus_client.parser import text_string_to_metric_families

PROJECT = Path(__file__).parents[2]
START_LIMIT = 20.0  # seconds; an interpreter that starts on a busy machine
END_LIMIT = 10.0  # seconds beyond what the configuration gives for the drain
PROXY = (sys.executable, "-m", "proxy")
STREAM_FIELDS = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n"

Labels = tuple[str, frozenset[tuple[str, str]]]
"""A series: its name, and its labels with their values."""


class Command:
    """A process that runs. It writes to files: nothing holds it up, and what it wrote can be read at any time."""

    def __init__(self, process: subprocess.Popen[bytes], folder: Path) -> None:
        self._process = process
        self._folder = folder

    @property
    def pid(self) -> int:
        return self._process.pid

    @property
    def output(self) -> str:
        """Its standard output so far."""
        return (self._folder / "stdout").read_text(errors="replace")

    @property
    def complaints(self) -> str:
        """Its standard error so far."""
        return (self._folder / "stderr").read_text(errors="replace")

    @property
    def running(self) -> bool:
        return self._process.poll() is None

    def signal(self, number: int) -> None:
        self._process.send_signal(number)

    def terminate(self) -> None:
        self._process.terminate()

    async def ended(self, limit: float = END_LIMIT) -> int:
        """Its exit code, negative for a signal. Raises AssertionError if it is still running after `limit` seconds."""
        await self.until(lambda: not self.running, limit, alive=False)
        return self._process.returncode

    async def wrote(self, pattern: str) -> re.Match[str]:
        """Waits for a text on either stream. Raises AssertionError with all it wrote if it ends without."""
        await self.until(lambda: re.search(pattern, self.output + self.complaints), START_LIMIT)
        found = re.search(pattern, self.output + self.complaints)
        assert found is not None
        return found

    async def until(self, condition: Callable[[], object], limit: float, *, alive: bool = True) -> None:
        """Waits for what the process brings about, while it is `alive`."""
        deadline = time.monotonic() + limit
        while True:
            ended = not self.running  # asked first: what it wrote last must still count
            if condition():
                return
            assert not (alive and ended), f"ended with {self._process.returncode}:\n{self.output}{self.complaints}"
            assert time.monotonic() < deadline, f"not within {limit:g} s:\n{self.output}{self.complaints}"
            await asyncio.sleep(0.01)


@dataclass(frozen=True)
class Ended:
    """What is left of a command."""

    code: int
    output: str
    complaints: str


class ProxyProcess:
    """A proxy that serves, in a process of its own."""

    def __init__(self, command: Command, port: int, admin_port: int) -> None:
        self.command = command
        self.port = port
        self.admin_port = admin_port
        self.url = f"http://127.0.0.1:{port}/mcp"

    async def admin(self, path: str) -> tuple[int, str]:
        """Status and text of the admin interface's answer. Raises aiohttp.ClientError."""
        timeout = aiohttp.ClientTimeout(total=5)
        async with aiohttp.ClientSession(timeout=timeout) as session:
            async with session.get(f"http://127.0.0.1:{self.admin_port}{path}") as response:
                return response.status, await response.text()

    async def series(self) -> dict[Labels, float]:
        """Every series that /metrics shows."""
        status, text = await self.admin("/metrics")
        assert status == 200
        samples = [sample for family in text_string_to_metric_families(text) for sample in family.samples]
        return {(sample.name, frozenset(sample.labels.items())): sample.value for sample in samples}

    async def count(self, name: str, **labels: str) -> float:
        """The sum of the series of this name, without its prefix, that have at least these labels."""
        found = await self.series()
        return sum(value for (key, has), value in found.items() if key == f"mcp_proxy_{name}" and labels.items() <= has)

    async def until_count(self, expected: float, name: str, **labels: str) -> None:
        """Waits until the sum is this."""
        deadline = time.monotonic() + END_LIMIT
        while (found := await self.count(name, **labels)) != expected:
            assert time.monotonic() < deadline, f"{name} is {found}, not {expected}"
            await asyncio.sleep(0.01)

    def memory(self) -> "Memory":
        return memory_of(self.command.pid)


@dataclass(frozen=True)
class Memory:
    """What a process keeps in memory, in bytes: now, and at most so far."""

    now: int
    peak: int


def memory_of(pid: int) -> Memory:
    """Reads /proc, which counts in KiB."""
    text = Path(f"/proc/{pid}/status").read_text()
    now, peak = (re.search(rf"^{name}:\s+(\d+) kB$", text, re.MULTILINE) for name in ("VmRSS", "VmHWM"))
    assert now is not None and peak is not None
    return Memory(int(now[1]) * 1024, int(peak[1]) * 1024)


def children_of(pid: int) -> list[int]:
    """The ids of the processes that this one started and that have not ended."""
    found = []
    for status in Path("/proc").glob("[0-9]*/stat"):
        try:
            text = status.read_text()
        except OSError:  # it ended meanwhile
            continue
        state, parent = text.rpartition(")")[2].split()[:2]  # behind the name, which may hold anything
        if int(parent) == pid and state != "Z":
            found.append(int(status.parent.name))
    return sorted(found)


@contextmanager
def started(
    *arguments: str, program: Sequence[str] = PROXY, folder: Path = PROJECT, environ: Mapping[str, str] | None = None
) -> Iterator[Command]:
    """A command, started in `folder`. It is killed if it still runs at the end, and after a failure its words shown."""
    with tempfile.TemporaryDirectory(prefix="proxy-process-") as kept:
        # The project need not be installed; and how output is buffered is the command's affair, not this machine's.
        known = {name: value for name, value in os.environ.items() if name != "PYTHONUNBUFFERED"}
        known |= {"PYTHONPATH": str(PROJECT), **(environ or {})}
        with Path(kept, "stdout").open("wb") as output, Path(kept, "stderr").open("wb") as errors:
            process = subprocess.Popen(
                [*program, *arguments], cwd=folder, env=known, stdin=subprocess.DEVNULL, stdout=output, stderr=errors
            )
        command = Command(process, Path(kept))
        try:
            yield command
        except BaseException:
            sys.stderr.write(command.output + command.complaints)
            raise
        finally:
            if process.poll() is None:
                process.kill()
            process.wait()


async def run(*arguments: str, program: Sequence[str] = PROXY, folder: Path = PROJECT) -> Ended:
    """A command from its start to its end."""
    with started(*arguments, program=program, folder=folder) as command:
        code = await command.ended(START_LIMIT)
        return Ended(code, command.output, command.complaints)


@asynccontextmanager
async def proxy_process(config: str, *, program: Sequence[str] = PROXY) -> AsyncIterator[ProxyProcess]:
    """A proxy with this configuration that is ready. At the end it must exit with 0, without a failure in its log."""
    with tempfile.TemporaryDirectory(prefix="proxy-config-") as folder:
        file = Path(folder, "proxy.yaml")
        file.write_text(config)
        with started("serve", "-c", str(file), program=program) as command:
            proxy = await serving(command)
            yield proxy
            if command.running:
                command.terminate()
            assert await command.ended() == 0
            trouble = re.search(r"^.*( ERROR | CRITICAL |Traceback|Warning:).*$", command.complaints, re.MULTILINE)
            assert trouble is None, command.complaints


async def serving(command: Command) -> ProxyProcess:
    """Waits until the proxy in this process says where it serves and that it is ready."""
    found = await command.wrote(r"serving on \S+ port (\d+), admin on \S+ port (\d+)")
    proxy = ProxyProcess(command, int(found[1]), int(found[2]))
    deadline = time.monotonic() + START_LIMIT
    while await proxy.admin("/readyz") != (200, "ready\n"):
        assert time.monotonic() < deadline, "not ready in time"
        await asyncio.sleep(0.01)
    return proxy


def config_text(*ports: int, **settings: Any) -> str:
    """A configuration with one pool `agents` of backends on these ports, with ids a, b, c ..., on ports of the
    system's choice. `settings` are further keys of the top level, or replace these. JSON is YAML as well.
    """
    backends = [{"id": "abcdefgh"[i], "url": f"http://127.0.0.1:{port}/mcp"} for i, port in enumerate(ports)]
    return json.dumps(
        {
            "listen": "127.0.0.1:0",
            "admin": "127.0.0.1:0",
            "pools": {"agents": {"backends": backends}},
            "routes": [{"name": "rest", "pool": "agents"}],
            "log": {"access": False},
            "drain": "0s",
            **settings,
        }
    )


def chunk(data: bytes) -> bytes:
    """The data as a chunk of a chunked body."""
    return b"%x\r\n%b\r\n" % (len(data), data)
