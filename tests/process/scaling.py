"""A name grows and shrinks while clients make tasks and poll them: no call fails, and no task is lost.

`python -m tests.process.scaling` is the long run. Backends listen on loopback addresses of their own, all on one port.
Each time one leaves, it is first drained by command, or simply taken out of the name; it ends once the proxy says that
it holds nothing.
"""

import argparse
import asyncio
import json
import random
import sys
from dataclasses import dataclass, field
from typing import Any

import uvloop

from tests.discovery.dns_server import NameServer, name_server
from tests.process.harness import config_text
from tests.process.lives import Life, life
from tests.wire.harness import BackendSide, ScriptedBackend, call, client, closed_port, task
from tests.wire.task_backend import UNKNOWN, created, state

NAME = "agents.test"
LEAST, MOST = 2, 8  # backends
CLIENTS = 8
POLLS = 5  # of each task; at the last it has ended
PAUSE = 0.005  # seconds between a client's requests
LIMIT = 20.0  # seconds for a step


@dataclass
class Seen:
    """What came of it."""

    made: int = 0
    polled: int = 0
    faults: list[str] = field(default_factory=list)
    """Calls that failed, and tasks that were lost."""
    came: int = 0
    went: int = 0
    served: set[str] = field(default_factory=set)
    """The addresses that have made tasks."""

    def told(self) -> str:
        """The figures."""
        return (
            f"backends came {self.came} times and went {self.went} times\n"
            f"tasks made: {self.made}, on {len(self.served)} addresses; polls: {self.polled}\n"
        )


class Maker:
    """A backend that makes tasks, and knows its own alone."""

    def __init__(self, address: str, port: int) -> None:
        self.address = address
        self.asked: dict[str, int] = {}
        self.server = ScriptedBackend(self.script, address, port)

    async def script(self, side: BackendSide) -> None:
        while True:
            request = await side.request()
            name = request.get("Mcp-Name") or ""
            if request.get("Mcp-Method") == "tools/call":
                made = f"{self.address}-{len(self.asked)}-{id(self)}"
                self.asked[made] = 0
                side.answer(created(made))
            elif name not in self.asked:
                side.answer(UNKNOWN)
            else:
                self.asked[name] += 1
                side.answer(state(name, "completed" if self.asked[name] >= POLLS else "working"))


class Scaling:
    """The name's growing and shrinking, and the clients meanwhile."""

    def __init__(self, one: Life, names: NameServer, port: int, makers: dict[str, Maker], rng: random.Random) -> None:
        self.seen = Seen()
        self._one = one
        self._names = names
        self._port = port
        self._makers = makers
        self._rng = rng
        self._over = asyncio.Event()

    async def run(self, steps: int) -> None:
        """So many changes of the name."""
        async with asyncio.TaskGroup() as tasks:
            for _ in range(CLIENTS):
                tasks.create_task(self._use())
            try:
                for turn in range(steps):
                    await asyncio.wait_for(self._step(turn), LIMIT)
            finally:
                self._over.set()

    async def _use(self) -> None:
        while not self._over.is_set():
            try:
                async with client(self._one.port) as caller:
                    for _ in range(10):
                        await self._use_once(caller)
            except (OSError, EOFError) as error:
                self.seen.faults.append(f"a connection broke: {error!r}")

    async def _use_once(self, caller: Any) -> None:
        answer = await caller.ask(call())
        made = json.loads(answer.body).get("result", {}).get("taskId")
        if answer.status != 200 or made is None:
            self.seen.faults.append(f"a call failed: {answer.status} {answer.body!r}")
            return
        self.seen.made += 1
        self.seen.served.add(made.split("-")[0])
        for turn in range(1, POLLS + 1):
            await asyncio.sleep(PAUSE)
            answer = await caller.ask(task(b"get", made.encode()))
            self.seen.polled += 1
            status = json.loads(answer.body).get("result", {}).get("status")
            if status != ("completed" if turn == POLLS else "working"):
                self.seen.faults.append(f"a poll failed: {answer.status} {answer.body!r}")

    # ---- changes
    async def _step(self, turn: int) -> None:
        count = len(self._makers)
        if count <= LEAST or (count < MOST and turn % 2 == 0):
            await self._grow()
        else:
            await self._shrink(drained=self._rng.random() < 0.5)

    async def _grow(self) -> None:
        free = [address for address in addresses(MOST) if address not in self._makers]
        address = self._rng.choice(free)
        self._makers[address] = maker = Maker(address, self._port)
        await maker.server.listen()
        self._publish()
        await self._until(address, lambda told: told is not None and not told["departed"])
        while not maker.asked:
            await asyncio.sleep(0.01)
        self.seen.came += 1

    async def _shrink(self, *, drained: bool) -> None:
        address = self._rng.choice(list(self._makers))
        if drained:
            status, _ = await self._one.post(f"/api/backends/agents/{address}:{self._port}/drain")
            assert status == 200
            await self._until(address, lambda told: told is not None and told["empty"])
        maker = self._makers.pop(address)
        self._publish()
        await self._until(address, lambda told: told is None or (told["departed"] and told["empty"]))
        await maker.server.end()
        self.seen.went += 1

    def _publish(self) -> None:
        self._names.names = {NAME: list(self._makers)}

    async def _until(self, address: str, condition: Any) -> None:
        while True:
            told = {shown["id"]: shown for shown in (await self._one.pools())[0]["backends"]}
            if condition(told.get(f"{address}:{self._port}")):
                return
            await asyncio.sleep(0.05)


def addresses(count: int) -> list[str]:
    """So many of this machine's own."""
    return [f"127.0.0.{number}" for number in range(1, count + 1)]


def discovering(names: NameServer, port: int, **settings: Any) -> str:
    """A configuration whose pool has the backends of the name, on this port."""
    discover = {"dns": f"{NAME}:{port}", "resolver": names.place, "hold": "0s"}
    return config_text(pools={"agents": {"discover": discover}}, **settings)


async def measure(*, steps: int, workers: int, seed: int = 1) -> Seen:
    """So many changes, under load."""
    port = closed_port()
    makers = {address: Maker(address, port) for address in addresses(LEAST)}
    for maker in makers.values():
        await maker.server.listen()
    try:
        with name_server() as names:
            names.names = {NAME: list(makers)}
            async with life(discovering(names, port, workers=workers)) as one:
                scaling = Scaling(one, names, port, makers, random.Random(seed))
                await scaling.run(steps)
                return scaling.seen
    finally:
        for maker in makers.values():
            await maker.server.end()


def main() -> int:
    """The command."""
    parser = argparse.ArgumentParser(prog="python -m tests.process.scaling")
    parser.add_argument("--steps", type=int, default=40)
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        seen = runner.run(measure(steps=options.steps, workers=options.workers, seed=options.seed))
    sys.stdout.write(f"{options.workers} workers, {options.steps} steps\n{seen.told()}")
    sys.stdout.write("\n".join(seen.faults[:20] or ["no call failed, and no task was lost"]) + "\n")
    return 1 if seen.faults else 0


if __name__ == "__main__":
    sys.exit(main())
