"""What happens to the fleet while clients poll: a plan drawn with a seed, and the hands that carry it out.

Rules:
* Three things go on side by side: processes die and are restarted, the set of backends changes, the store goes away and
  comes back. Within each, one thing happens after the other, so that one replica at a time is down.
* Times are not before, never at: a slow machine makes a run longer, not different.
* A backend joins in two steps: drained, until every replica knows it, then with work. A replica that does not know it
  could not find the tasks that others make there: all it knows would deny them.
* A backend is drained on every replica and leaves the configuration when it is empty: with a shared store when every
  replica says so, with memory when the clients have seen all its tasks end. Its process is stopped after that, when the
  clients have seen all its tasks end.
"""

import asyncio
import os
import random
import signal
import time
from collections.abc import Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass
from typing import Literal, TypeAlias, get_args

from tests.chaos.fleet import Fleet, Replica, until
from tests.chaos.ledger import Journal, Ledger
from tests.chaos.store import start_again
from tests.redis_server import RedisServer

Kind: TypeAlias = Literal[
    "worker killed",
    "proxy killed",
    "proxy restarted",
    "backend added",
    "backend drained",
    "backend removed",
    "store killed, data kept",
    "store killed, data lost",
]
FLEET: tuple[Kind, ...] = ("backend added", "backend drained", "backend removed")
STORE: tuple[Kind, ...] = ("store killed, data kept", "store killed, data lost")
FEWEST = 6  # deaths and restarts of processes in a run, so that each kind is among them
EVERY = 4.0  # seconds between them in a long one
JOINING, LEAVING = "d", "b"
REMOVAL_LIMIT = 120.0  # seconds from the drain; tasks last for a third of a run
LOOK = 0.25  # seconds between looks whether a backend is empty


@dataclass(frozen=True, slots=True, order=True)
class Step:
    """One thing to do, not before `at` seconds from the start."""

    at: float
    kind: Kind


def plan(rng: random.Random, seconds: float, *, workers: int, redis: bool) -> list[list[Step]]:
    """The tracks of a run of about so many seconds. Every kind it knows of is in it."""
    kinds: list[Kind] = ["proxy killed", "proxy restarted"]
    if workers > 1:
        kinds += ["worker killed", "worker killed"]
    number = max(FEWEST, int(seconds / EVERY))
    order: list[Kind] = []
    while len(order) < number:
        order += rng.sample(kinds, len(kinds))
    gap = 0.85 * seconds / number
    processes = [Step(seconds * 0.05 + gap * (i + rng.random()), kind) for i, kind in enumerate(order[:number])]
    changes = [Step(seconds * at, kind) for at, kind in zip((0.15, 0.3, 0.3), FLEET, strict=True)]
    stores = [Step(seconds * rng.uniform(at, at + 0.1), kind) for at, kind in zip((0.1, 0.6), STORE, strict=True)]
    return [processes, changes, *([stores] if redis else [])]


def kinds_of(tracks: Sequence[Sequence[Step]]) -> list[Kind]:
    """The kinds of events in a plan, in the order of their definition."""
    there = {step.kind for track in tracks for step in track}
    return [kind for kind in get_args(Kind) if kind in there]


class Chaos:
    """The hands. `outage`: seconds that a store stays away."""

    def __init__(
        self,
        fleet: Fleet,
        ledger: Ledger,
        journal: Journal,
        rng: random.Random,
        redis: RedisServer | None,
        outage: float,
    ) -> None:
        self._fleet = fleet
        self._ledger = ledger
        self._journal = journal
        self._rng = rng
        self._redis = redis
        self._outage = outage
        self._made_before = 0

    async def run(self, tracks: Sequence[Sequence[Step]]) -> None:
        """Carries the plan out."""
        start = time.monotonic()
        async with asyncio.TaskGroup() as group:
            for track in tracks:
                group.create_task(self._follow(track, start))

    async def _follow(self, track: Sequence[Step], start: float) -> None:
        for step in track:
            await asyncio.sleep(max(0.0, start + step.at - time.monotonic()))
            await self._do(step.kind)

    async def _do(self, kind: Kind) -> None:
        match kind:
            case "worker killed":
                await self._kill_worker()
            case "proxy killed":
                await self._kill_proxy()
            case "proxy restarted":
                await self._restart_proxy()
            case "backend added":
                await self._add_backend()
            case "backend drained":
                await self._drain_backend()
            case "backend removed":
                await self._remove_backend()
            case "store killed, data kept":
                await self._interrupt_store(keep=True)
            case "store killed, data lost":
                await self._interrupt_store(keep=False)

    # ---- processes
    async def _kill_worker(self) -> None:
        replica = self._any_replica()
        async with replica.lock:
            await until(lambda: len(replica.workers) >= self._fleet.setting.workers, "all workers are there")
            self._journal.note("worker killed", f"of proxy {replica.number}")
            os.kill(self._rng.choice(replica.workers), signal.SIGKILL)

    async def _kill_proxy(self) -> None:
        replica = self._any_replica()
        async with replica.lock:
            self._journal.note("proxy killed", str(replica.number))
            await replica.kill()
            await replica.start()
            self._journal.note("proxy started again", str(replica.number))

    async def _restart_proxy(self) -> None:
        replica = self._any_replica()
        async with replica.lock:
            self._journal.note("proxy restarted", str(replica.number))
            await replica.renew()
            self._journal.note("next generation alone", f"at proxy {replica.number}")

    def _any_replica(self) -> Replica:
        return self._rng.choice(self._fleet.replicas)

    # ---- backends
    async def _add_backend(self) -> None:
        self._fleet.draining.append(JOINING)
        await self._fleet.add_backend(JOINING)
        self._journal.note("backend added", JOINING)
        await self._hang_up()
        self._fleet.draining.remove(JOINING)
        self._journal.note("backend takes work", JOINING)
        await self._hang_up()

    async def _hang_up(self) -> None:
        for replica in self._fleet.replicas:
            async with replica.lock:
                await replica.hang_up()

    async def _drain_backend(self) -> None:
        self._fleet.draining.append(LEAVING)
        self._journal.note("backend drained", LEAVING)
        for replica in self._fleet.replicas:
            async with replica.lock:
                await replica.drain(LEAVING)
                while (await replica.standing(LEAVING))["in_flight"]:  # calls from before
                    await asyncio.sleep(LOOK / 10)
        self._made_before = (await self._fleet.backends[LEAVING].stats())["made"]

    async def _remove_backend(self) -> None:
        deadline = time.monotonic() + REMOVAL_LIMIT
        while not await self._removed():
            assert time.monotonic() < deadline, f"{LEAVING} is not empty: {self._ledger.unfinished(LEAVING)} unfinished"
            await asyncio.sleep(LOOK)
        while self._ledger.unfinished(LEAVING):
            assert time.monotonic() < deadline, f"{self._ledger.unfinished(LEAVING)} tasks of a removed backend go on"
            await asyncio.sleep(LOOK)
        await self._fleet.stop_backend(LEAVING)
        if more := self._fleet.stopped[LEAVING]["made"] - self._made_before:
            self._ledger.mismanaged(f"{LEAVING} was given {more} calls after it was drained everywhere")
        self._journal.note("backend stopped", LEAVING)

    async def _removed(self) -> bool:
        """Takes it out of the configuration, if it is empty. No replica starts, forgetful, while that is looked at."""
        async with AsyncExitStack() as held:
            for replica in self._fleet.replicas:
                await held.enter_async_context(replica.lock)
            standings = [await replica.standing(LEAVING) for replica in self._fleet.replicas]
            if self._redis is None:
                empty = not self._ledger.unfinished(LEAVING) and all(s["draining"] for s in standings)
            else:
                empty = all(standing["empty"] for standing in standings)
                if empty and (working := self._ledger.working(LEAVING)):
                    self._ledger.mismanaged(f"{LEAVING} is called empty and works on {working} tasks")
                    return False
            if empty:
                self._fleet.members.remove(LEAVING)
                self._fleet.draining.remove(LEAVING)
                self._journal.note("backend removed", LEAVING)
                for replica in self._fleet.replicas:
                    await replica.hang_up()
            return empty

    # ---- the store
    async def _interrupt_store(self, *, keep: bool) -> None:
        assert self._redis is not None
        kind = "store killed, data kept" if keep else "store killed, data lost"
        self._journal.note(kind)
        self._redis.kill()
        await asyncio.sleep(self._outage)
        await start_again(self._redis, keep=keep)
        self._journal.note("store started again")
