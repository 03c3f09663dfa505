"""A proxy through what befalls its processes: workers that come and go, and one generation after the other."""

import asyncio
import json
import os
import signal
import tempfile
import time
from collections.abc import AsyncIterator, Callable, Collection, Mapping
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any

import aiohttp

from tests.process.harness import END_LIMIT, START_LIMIT, Command, ProxyProcess, children_of, serving, started
from tests.wire.harness import Client, call, client

WORKER = b"proxy.workers.worker"
QUEUED = 0
"""Who holds a connection that nobody has accepted."""


class Life(ProxyProcess):
    """A proxy, its workers, and the generations after it. `pid` is that of the generation that serves."""

    def __init__(self, command: Command, port: int, admin_port: int, file: Path) -> None:
        super().__init__(command, port, admin_port)
        self.pid = command.pid
        self.file = file
        self.generations = [command.pid]

    @property
    def workers(self) -> list[int]:
        """The ids of the workers of the generation that serves."""
        return [pid for pid in children_of(self.pid) if WORKER in words_of(pid)]

    async def until(self, condition: Callable[[], object], what: str, limit: float = END_LIMIT) -> None:
        """Waits until it is so."""
        deadline = time.monotonic() + limit
        while not condition():
            assert time.monotonic() < deadline, f"not within {limit:g} s: {what}"
            await asyncio.sleep(0.01)

    async def replaced(self, gone: int, count: int) -> int:
        """Waits until there are `count` workers that accept, without this one; the one that started last."""
        await self.until(lambda: len(self.workers) == count and gone not in self.workers, "a worker is replaced")
        newest = max(self.workers, key=started_at)
        await self.until(lambda: self.holds_sockets(newest), "the replacement accepts")
        return newest

    async def replaced_beside(self, leaving: int) -> int:
        """Waits until a worker that leaves, and may still be there, has a replacement that accepts."""
        others = set(self.workers)
        await self.until(lambda: set(self.workers) - others, "a worker is replaced")
        (new,) = set(self.workers) - others
        await self.until(lambda: self.holds_sockets(new), "the replacement accepts")
        return new

    def holds_sockets(self, pid: int) -> bool:
        """True once this worker listens: it is told to when it serves."""
        inodes = {inode for port, _, state, inode in connections() if port == self.port and state == "0A"}
        # Each listening socket is inherited once; where it accepts, it has a second descriptor of it.
        held = sockets_of(pid)
        return any(held.count(inode) > 1 for inode in inodes)

    def can_accept(self, pid: int) -> bool:
        """True while this process has one of the listening sockets open."""
        held = set(sockets_of(pid)) if alive(pid) else set()
        return any(inode in held for port, _, state, inode in connections() if port == self.port and state == "0A")

    async def holder(self, caller: Client) -> int:
        """Which process has accepted this client's connection; QUEUED if none has."""
        port = caller.writer.get_extra_info("sockname")[1]
        inode = next(inode for local, remote, _, inode in connections() if (local, remote) == (self.port, port))
        for pid in (*self.generations, *self.workers) if inode else ():
            if inode in sockets_of(pid):
                return pid
        return QUEUED

    @asynccontextmanager
    async def client_of(self, pid: int) -> AsyncIterator[Client]:
        """A client whose connection this process has accepted."""
        deadline = time.monotonic() + END_LIMIT
        while True:
            async with client(self.port) as caller:
                looks = 0
                while (holder := await self.holder(caller)) == QUEUED and looks < 50:
                    looks += 1
                    await asyncio.sleep(0.005)
                if holder == pid:
                    yield caller
                    return
            assert time.monotonic() < deadline, "no connection comes to this process"

    async def post(self, path: str, value: Any = None) -> tuple[int, Any]:
        """Status and JSON of the admin interface's answer to a POST."""
        async with aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=5)) as session:
            url = f"http://127.0.0.1:{self.admin_port}{path}"
            async with session.post(url, json={} if value is None else value) as response:
                return response.status, await response.json()

    async def pools(self) -> list[dict[str, Any]]:
        """What the admin interface tells of all pools."""
        status, text = await self.admin("/api/pools")
        assert status == 200
        told = json.loads(text)["pools"]
        assert isinstance(told, list)
        return told

    async def backend_told(self, backend: str, pool: str = "agents") -> dict[str, Any]:
        """What the admin interface tells of a backend."""
        (found,) = (pool_told for pool_told in await self.pools() if pool_told["name"] == pool)
        (told,) = (told for told in found["backends"] if told["id"] == backend)
        assert isinstance(told, dict)
        return told

    def said(self, text: str) -> int:
        """How often its log has this."""
        return self.command.complaints.count(text)

    async def until_said(self, text: str, times: int = 1) -> None:
        """Waits until its log has this so many times."""
        await self.until(lambda: self.said(text) >= times, f"the log says {text!r}", START_LIMIT)

    async def reload(self, text: str, said: str = "the new configuration is in force") -> None:
        """Changes the file, sends SIGHUP, and waits until the log says what came of it."""
        self.file.write_text(text)
        times = self.said(said)
        os.kill(self.pid, signal.SIGHUP)
        await self.until_said(said, times + 1)

    async def renew(self) -> int:
        """Sends SIGUSR2, and waits until the next generation serves; the id of the one before."""
        before, times = self.pid, self.said("draining, at most")
        os.kill(before, signal.SIGUSR2)
        await self.adopt(times + 1)
        return before

    async def adopt(self, drains: int = 1) -> None:
        """Waits until so many generations drain, and turns to the one that serves."""
        await self.until_said("draining, at most", drains)
        (self.pid,) = generations_under(self.pid) or self._orphans()
        self.generations.append(self.pid)
        found = [line for line in self.command.complaints.splitlines() if "serving on" in line][-1].split()
        self.port, self.admin_port = int(found[-6].rstrip(",")), int(found[-1])

    def _orphans(self) -> list[int]:
        """The generation after one that has ended already."""
        own = str(self.file).encode()
        pids = [int(each.name) for each in Path("/proc").iterdir() if each.name.isdigit()]
        unknown = [pid for pid in pids if pid not in self.generations]
        return [pid for pid in unknown if own in (words := words_of(pid)) and WORKER not in words]

    async def gone(self, pid: int) -> None:
        """Waits until this process has ended."""
        await self.until(lambda: not self.command.running if pid == self.command.pid else not alive(pid), "it ends")

    def end_all(self) -> None:
        """Kills what is left of all generations."""
        for pid in self.generations:
            for one in (*children_of(pid), pid):
                with suppress(ProcessLookupError):
                    if words_of(one):
                        os.kill(one, signal.SIGKILL)


@asynccontextmanager
async def life(
    config: str, *arguments: str, environ: Mapping[str, str] | None = None, file: Path | None = None
) -> AsyncIterator[Life]:
    """A proxy with this configuration, or with the one in the file, that is ready. At the end it is told to end, and
    must do so with 0.
    """
    with tempfile.TemporaryDirectory(prefix="proxy-config-") as folder:
        if file is None:
            file = Path(folder, "proxy.yaml")
            file.write_text(config)
        with started("serve", "-c", str(file), *arguments, environ=environ) as command:
            proxy = await serving(command)
            one = Life(command, proxy.port, proxy.admin_port, file)
            try:
                yield one
                if alive(one.pid):
                    os.kill(one.pid, signal.SIGTERM)
                for pid in reversed(one.generations):
                    await one.gone(pid)
                assert await command.ended() in (0, -signal.SIGKILL)
                assert "Traceback" not in command.complaints, command.complaints
                assert "Warning:" not in command.complaints, command.complaints
            finally:
                one.end_all()


def alive(pid: int) -> bool:
    """True if the process has not ended."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in "ZX"
    except OSError:
        return False


def words_of(pid: int) -> bytes:
    """Its command line; empty if it has ended."""
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        return b""


def started_at(pid: int) -> int:
    """When it started, in clock ticks."""
    return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[19])


def descriptors_of(pid: int) -> list[str]:
    """What its descriptors stand for."""
    found = []
    for link in Path(f"/proc/{pid}/fd").iterdir():
        with suppress(OSError):
            found.append(os.readlink(link))
    return found


def sockets_of(pid: int) -> list[int]:
    """The inodes of its sockets, once for each descriptor."""
    try:
        return [int(text[8:-1]) for text in descriptors_of(pid) if text.startswith("socket:[")]
    except OSError:
        return []


def connections() -> list[tuple[int, int, str, int]]:
    """Local port, remote port, state and inode of each IPv4 socket; the inode is 0 where nobody has accepted it."""
    lines = Path("/proc/net/tcp").read_text().splitlines()[1:]
    fields = [line.split() for line in lines]
    return [(int(f[1].split(":")[1], 16), int(f[2].split(":")[1], 16), f[3], int(f[9])) for f in fields]


async def until_state(pids: Collection[int], states: str) -> None:
    """Waits until each of these processes is in one of these states (proc(5))."""
    deadline = time.monotonic() + END_LIMIT
    while not all(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] in states for pid in pids):
        assert time.monotonic() < deadline, f"not in {states}"
        await asyncio.sleep(0.005)


def generations_under(pid: int) -> list[int]:
    """Its children that are proxies themselves, not workers."""
    return [child for child in children_of(pid) if (words := words_of(child)) and WORKER not in words]


async def answered(port: int) -> bool:
    """True if a new connection's request is answered with 200."""
    async with client(port) as caller:
        return (await caller.ask(call())).status == 200
