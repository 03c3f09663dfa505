"""What a chaos run does things to: backends, proxies and a store, each in processes of their own, ended by their id.

A proxy here is a *replica*: one of several with the same configuration, at ports of its own that it keeps through every
death. A backend is drained by command, as an operator would do it, and noted in the file for replicas that start anew;
workers that are replaced and generations that take over have to know without it.
"""

import asyncio
import os
import random
import re
import signal
import socket
import sys
import time
from collections import Counter
from collections.abc import Callable
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import aiohttp

from tests.chaos.ledger import Journal
from tests.process.harness import Command, ProxyProcess, children_of, config_text, serving, started

POOL = "agents"
OWNER_WAIT = 3.0  # seconds; an owner is never away here, so nobody should wait as long
DRAIN = 5.0  # seconds for the requests of a generation that leaves
FAULT = re.compile(r"^(?:.* CRITICAL .*|Traceback .*\n(?: .*\n)*.*|\S*(?:Error|Exception|Warning): .*)$", re.MULTILINE)
PATIENCE = 30.0  # seconds until something that a process was told must be so


@dataclass(frozen=True)
class Setting:
    """How the proxies are configured. `store`: a Redis's URL, or None for memory."""

    replicas: int = 2
    workers: int = 2
    store: str | None = None
    search: bool = True


@dataclass
class Backend:
    """One that runs."""

    instance: str
    command: Command
    port: int

    async def stats(self) -> Counter[str]:
        """What it did so far."""
        async with aiohttp.ClientSession() as session:
            async with session.get(f"http://127.0.0.1:{self.port}/stats") as response:
                return Counter(await response.json(content_type=None))


@dataclass
class Replica:
    """A proxy, through all its lives."""

    number: int
    fleet: "Fleet"
    file: Path
    port: int = field(default_factory=lambda: free_port())
    admin_port: int = field(default_factory=lambda: free_port())
    lock: asyncio.Lock = field(default_factory=asyncio.Lock)
    """Held by whoever changes its processes or its configuration."""
    pid: int = 0
    lives: list[Command] = field(default_factory=list)
    drained: set[str] = field(default_factory=set)
    """Backends that were drained by command, here."""

    @property
    def proxy(self) -> ProxyProcess:
        return ProxyProcess(self.lives[-1], self.port, self.admin_port)

    @property
    def workers(self) -> list[int]:
        """The process ids of its workers; none if it is a single process."""
        return [pid for pid in children_of(self.pid) if not self._serves(pid)]

    async def start(self) -> None:
        """Starts it anew, and returns when it is ready."""
        self.write_config()
        self.drained.clear()
        self.lives.append(self.fleet.stack.enter_context(started("serve", "-c", str(self.file))))
        self.pid = self.lives[-1].pid
        await serving(self.lives[-1])

    async def kill(self) -> None:
        """SIGKILL, to the one process that was started; its workers have to notice."""
        workers = self.workers
        await self.scrape()
        os.kill(self.pid, signal.SIGKILL)
        await until(lambda: not alive(self.pid), "a killed proxy is gone")
        try:
            await until(lambda: not any(map(alive, workers)), "the workers of a killed proxy are gone")
        except AssertionError:
            for pid in filter(alive, workers):
                os.kill(pid, signal.SIGKILL)
            raise

    async def renew(self) -> None:
        """SIGUSR2: the next generation takes over, and the one before ends. Drains by command go over to it."""
        await self.scrape()
        before, command = self.pid, self.lives[-1]
        said = self._said("serving on ")
        os.kill(before, signal.SIGUSR2)
        await until(lambda: self._said("serving on ") > said, "the next generation serves")
        (self.pid,) = (pid for pid in children_of(before) if self._serves(pid))
        await until(lambda: not alive(before) or not command.running, "the generation before is gone")
        for instance in self.drained & set(self.fleet.members):
            assert (await self.standing(instance))["draining"], "the next generation knows who drains"

    async def hang_up(self) -> None:
        """SIGHUP, and waits until the configuration in its file is in force."""
        self.write_config()
        said = self._said("the new configuration is in force")
        os.kill(self.pid, signal.SIGHUP)
        await until(lambda: self._said("the new configuration is in force") > said, "a configuration is in force")

    async def stop(self) -> None:
        """SIGTERM, and its end. Raises AssertionError if a life of it wrote a traceback."""
        await self.scrape()
        os.kill(self.pid, signal.SIGTERM)
        await until(lambda: not alive(self.pid), "a proxy ends")

    def write_config(self) -> None:
        self.file.write_text(self.fleet.config(self))

    def _serves(self, pid: int) -> bool:
        """True if this is the process of a generation of this replica."""
        try:
            return str(self.file).encode() in Path(f"/proc/{pid}/cmdline").read_bytes()
        except OSError:
            return False

    def _said(self, text: str) -> int:
        return self.lives[-1].complaints.count(text)

    # ---- the admin interface
    async def drain(self, instance: str) -> None:
        """What `mcp-routing-proxy drain` does."""
        await self._api("POST", f"/api/backends/{POOL}/{instance}/drain")
        self.drained.add(instance)

    async def standing(self, instance: str) -> dict[str, Any]:
        """How this backend stands, by /api/pools."""
        (pool,) = (await self._api("GET", "/api/pools"))["pools"]
        (found,) = (entry for entry in pool["backends"] if entry["id"] == instance)
        return dict(found)

    async def _api(self, verb: str, path: str) -> dict[str, Any]:
        timeout = aiohttp.ClientTimeout(total=10)
        async with aiohttp.ClientSession(timeout=timeout) as session:
            body: dict[str, str] | None = {} if verb == "POST" else None
            async with session.request(verb, f"http://127.0.0.1:{self.admin_port}{path}", json=body) as response:
                assert response.status == 200, (path, response.status, await response.text())
                answer: dict[str, Any] = await response.json()
                return answer

    async def scrape(self) -> None:
        """Adds what it counted to the fleet's sums. Once for each life: its counts die with it."""
        for (name, labels), value in (await self.proxy.series()).items():
            if name == "mcp_proxy_searches_total":
                self.fleet.searches[dict(labels)["outcome"]] += int(value)
            elif name == "mcp_proxy_unlearned_total":
                self.fleet.unlearned[dict(labels)["reason"]] += int(value)


class Fleet:
    """Backends `a`, `b`, `c` …, and replicas in front of all of them. `stack` ends what it starts."""

    def __init__(self, setting: Setting, stack: AsyncExitStack, folder: Path, journal: Journal) -> None:
        self.setting = setting
        self.stack = stack
        self.journal = journal
        self.backends: dict[str, Backend] = {}
        self.members: list[str] = []
        """The backends in the configuration."""
        self.draining: list[str] = []
        """Those that are drained in the file, for replicas that read it from now on."""
        self.replicas = [Replica(n, self, folder / f"proxy-{n}.yaml") for n in range(setting.replicas)]
        self.stopped: dict[str, Counter[str]] = {}
        self.searches: Counter[str] = Counter()
        self.unlearned: Counter[str] = Counter()

    async def start(self, backends: str) -> None:
        """The backends of these names, then the replicas."""
        for instance in backends:
            await self.add_backend(instance)
        self.stack.callback(self._kill_replicas)
        await asyncio.gather(*(replica.start() for replica in self.replicas))

    async def add_backend(self, instance: str) -> None:
        """Starts it and takes it into the configuration, which is not in force before the replicas are told."""
        program = (sys.executable, "-m", "tests.chaos.backend")
        command = self.stack.enter_context(started("--instance", instance, program=program))
        port = int((await command.wrote(r"port (\d+)\n"))[1])
        self.backends[instance] = Backend(instance, command, port)
        self.members.append(instance)

    async def stop_backend(self, instance: str) -> None:
        """Ends it; what it did is kept."""
        backend = self.backends[instance]
        self.stopped[instance] = await backend.stats()
        backend.command.terminate()
        await backend.command.ended()

    async def stats(self) -> dict[str, Counter[str]]:
        """What each backend did, those that were stopped included."""
        running = {name: backend for name, backend in self.backends.items() if name not in self.stopped}
        return self.stopped | {name: await backend.stats() for name, backend in running.items()}

    def troubles(self) -> list[str]:
        """What processes wrote that tells of a fault in one of them."""
        lives = [life for replica in self.replicas for life in replica.lives]
        commands = [*lives, *(backend.command for backend in self.backends.values())]
        return [line for command in commands for line in FAULT.findall(command.complaints)]

    def config(self, replica: Replica) -> str:
        """The replica's configuration as it should now be."""
        backends = [
            {
                "id": instance,
                "url": f"http://127.0.0.1:{self.backends[instance].port}/mcp",
                "drain": instance in self.draining,
            }
            for instance in self.members
        ]
        pool = {
            "backends": backends,
            "tasks": {"search": self.setting.search},
            "timeouts": {"owner_wait": f"{OWNER_WAIT:g}s"},
        }
        store = self.setting.store
        return config_text(
            listen=f"127.0.0.1:{replica.port}",
            admin=f"127.0.0.1:{replica.admin_port}",
            workers=self.setting.workers,
            pools={POOL: pool},
            pins={"store": "memory"} if store is None else {"store": "redis", "url": store},
            drain=f"{DRAIN:g}s",
        )

    def _kill_replicas(self) -> None:
        """At the end, whatever happened: a generation after SIGUSR2 is not a child of ours."""
        for replica in self.replicas:
            if replica.pid and alive(replica.pid):
                os.kill(replica.pid, signal.SIGKILL)


def alive(pid: int) -> bool:
    """False for a process that ended, whether or not somebody took note."""
    try:
        text = Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return False
    return text.rpartition(")")[2].split()[0] != "Z"


def free_port() -> int:
    """A free port that no outgoing connection takes while its owner is dead: below those the system gives out."""
    lowest = int(Path("/proc/sys/net/ipv4/ip_local_port_range").read_text().split()[0])
    while True:
        port = random.randrange(10_000, min(lowest, 32_768))
        with socket.socket() as sock:
            try:
                sock.bind(("127.0.0.1", port))
            except OSError:
                continue
            return port


async def until(condition: Callable[[], object], what: str) -> None:
    """Waits for what a process brings about. Raises AssertionError."""
    deadline = time.monotonic() + PATIENCE
    while not condition():
        assert time.monotonic() < deadline, f"not within {PATIENCE:g} s: {what}"
        await asyncio.sleep(0.02)
