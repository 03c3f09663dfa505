"""What a soak run runs: four backends that are killed in turn and start again, and one proxy before them that stays."""

import asyncio
import os
import random
import signal
import sys
import time
from collections import Counter
from contextlib import ExitStack
from pathlib import Path

from tests.chaos.fleet import free_port
from tests.process.harness import Command, config_text, started
from tests.soak.outages import Outages

AWAY = (0.1, 3.0)
"""Seconds from a backend's death to its next start: some owners come back while they are awaited, others do not."""
OWNER_WAIT = 2.0
CAPACITY = 200
"""Pins in each process: full after the warm-up, so that they are not what grows. Some dozens of tasks live at once."""


class Backend:
    """One, through all its lives, at one port."""

    def __init__(self, instance: str, folder: Path) -> None:
        self.instance = instance
        self.port = free_port()
        self.journal = folder / f"executed-{instance}"
        self.life = 0
        self.said: list[str] = []
        """What each life before this one wrote to its standard error."""
        self._stack = ExitStack()
        self._command: Command | None = None

    async def start(self) -> None:
        """The next life; returns when it listens."""
        self.life += 1
        arguments = {"instance": self.instance, "life": self.life, "port": self.port, "journal": self.journal}
        words = [word for name, value in arguments.items() for word in (f"--{name}", str(value))]
        self._command = self._stack.enter_context(started(*words, program=(sys.executable, "-m", "tests.soak.backend")))
        await self._command.wrote(r"port (\d+)\n")

    async def kill(self) -> None:
        """SIGKILL, and its end."""
        assert self._command is not None
        os.kill(self._command.pid, signal.SIGKILL)
        assert await self._command.ended() == -signal.SIGKILL, "it had ended by itself"
        self.close()

    def close(self) -> None:
        """Ends what runs."""
        if self._command is not None:
            self.said.append(self._command.complaints)
        self._stack.close()
        self._command = None

    def executed(self) -> Counter[str]:
        """How often its journal has each label. Raises AssertionError if a line of it is not whole."""
        text = self.journal.read_text() if self.journal.exists() else ""
        assert not text or text.endswith("\n")
        return Counter(text.splitlines())


async def kill_in_turn(
    backends: list[Backend], outages: Outages, rng: random.Random, *, every: float, seconds: float
) -> None:
    """Kills one of them every so often, drawn anew each time, until so many seconds are over."""
    start = time.monotonic()
    for turn in range(1, planned_kills(every, seconds) + 1):
        await asyncio.sleep(max(0.0, start + turn * every - time.monotonic()))
        backend = rng.choice(backends)
        outage = outages.begin(backend.instance, backend.life, time.monotonic())
        await backend.kill()
        # Most of the time until the next death is lived through with all four.
        await asyncio.sleep(min(rng.uniform(*AWAY), every / 2))
        await backend.start()
        outage.up = time.monotonic()


def planned_kills(every: float, seconds: float) -> int:
    return int(seconds / every) - 1


def proxy_config(backends: list[Backend], *, workers: int, store: str | None) -> str:
    """One pool for all, and the same backends once more where subscriptions are made at every one of them."""
    members = [{"id": one.instance, "url": f"http://127.0.0.1:{one.port}/mcp"} for one in backends]
    shared = {"backends": members, "timeouts": {"owner_wait": f"{OWNER_WAIT:g}s"}, "comment_every": "1s"}
    health = {"path": "/health", "interval": "1s", "timeout": "1s", "rise": 1, "fall": 2}
    pins: dict[str, object] = {"store": "memory"} if store is None else {"store": "redis", "url": store}
    return config_text(
        workers=workers,
        pools={"agents": {**shared, "health": health}, "merged": {**shared, "listen": "all"}},
        routes=[{"name": "merged", "match": {"path": "/all"}, "pool": "merged"}, {"name": "rest", "pool": "agents"}],
        pins={**pins, "capacity": CAPACITY},
        drain="5s",
    )
