"""Changes of the configuration, and a drain, while clients call, stream, poll, talk in sessions and listen.

`python -m tests.process.changes_under_load --reloads 100 --workers 2` prints the figures, and ends with 1 if a request
failed or a stream was cut. The clients are those of the soak run; here no backend ever dies, so nothing may fail. Each
configuration differs from the one before in backends, weights, routes, policies and times. Both pools stay reachable:
a pool that leaves takes its tasks with it, as an operator is told.
"""

import argparse
import asyncio
import random
import sys
import tempfile
import time
from collections import Counter
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import uvloop

from tests.process.harness import config_text
from tests.process.lives import life
from tests.soak.backend import Conversation, Memory
from tests.soak.clients import KINDS, Caller, call
from tests.soak.connection import Connection
from tests.soak.ledger import Executions, Ledger, compared
from tests.soak.outages import Outages
from tests.soak.verdict import LEFT, SERVED, Verdict, events, judge, progress_of

BACKENDS = "abcd"
PAUSE = (0.0, 0.3)  # seconds from one change to the next, so that some fall upon each other's heels
GOOD = (SERVED, LEFT)
SLOWEST = 30.0  # seconds that clients may take to bring their turns to an end
STREAMS, DRAIN = 50, "10s"


@dataclass(frozen=True)
class Seen:
    """A run, once it is over."""

    reloads: int
    outcomes: dict[str, Counter[str]]
    mistakes: list[str]
    executions: Executions
    used: list[str]
    """Backends that executed something."""
    reload_times: list[float]
    """Seconds from the signal until the new configuration was in force."""

    @property
    def failed(self) -> int:
        """Requests and streams that did not come to the end they should."""
        return sum(count for found in self.outcomes.values() for outcome, count in found.items() if outcome not in GOOD)

    @property
    def faults(self) -> list[str]:
        """What must not be."""
        did = self.executions
        found = [f"{self.failed} requests failed"] * bool(self.failed) + self.mistakes
        found += [f"{did.twice} calls executed twice"] * bool(did.twice)
        return found + [f"{did.served_not_once} calls not executed once"] * bool(did.served_not_once)

    def told(self) -> str:
        """The figures."""
        times = sorted(self.reload_times)
        rows = [f"{kind}: {dict(found)}" for kind, found in sorted(self.outcomes.items())]
        rows.append(f"{self.reloads} reloads, each in force within {times[-1] * 1000:.0f} ms")
        rows.append(f"failed requests and cut streams: {self.failed}; executed twice: {self.executions.twice}")
        return "\n".join(rows) + "\n"


@asynccontextmanager
async def backends(folder: Path) -> AsyncIterator[dict[str, tuple[int, Memory]]]:
    """Port and memory of each, in this loop."""
    made, servers = {}, []
    for instance in BACKENDS:
        memory = Memory(f"{instance}.1", folder / f"executed-{instance}")

        def conversation(memory: Memory = memory) -> Conversation:
            return Conversation(memory)

        server = await asyncio.get_running_loop().create_server(conversation, "127.0.0.1", 0, backlog=1024)
        servers.append(server)
        made[instance] = (server.sockets[0].getsockname()[1], memory)
    try:
        yield made
    finally:
        for server in servers:
            server.close()
        for _, memory in made.values():
            memory.close()


def configurations(ports: dict[str, int], *, workers: int, drain: str = DRAIN) -> list[str]:
    """What alternates; the first one is what the proxy starts with."""

    def members(ids: str, **settings: dict[str, Any]) -> list[dict[str, Any]]:
        return [{"id": one, "url": f"http://127.0.0.1:{ports[one]}/mcp", **settings.get(one, {})} for one in ids]

    def text(agents: dict[str, Any], canary: dict[str, Any], share: int, *routes: dict[str, Any]) -> str:
        merged = {"backends": agents["backends"], "listen": "all", "comment_every": "1s"}
        split = {"agents": 100 - share, "canary": share}
        return config_text(
            workers=workers,
            pools={"agents": agents, "canary": canary, "merged": merged},
            routes=[
                {"name": "merged", "match": {"path": "/all"}, "pool": "merged"},
                *routes,
                {"name": "rest", "split": split},
            ],
            drain=drain,
        )

    quick = {"name": "quick", "match": {"method": "tools/call", "name": "quick"}, "pool": "canary"}
    short, long = {"connect": "1s", "idle": "10m", "owner_wait": "3s"}, {"connect": "5s", "head": "1m", "idle": "2h"}
    health = {"path": "/health", "interval": "1s", "timeout": "1s"}
    return [
        text({"backends": members("ab")}, {"backends": members("d")}, 0),
        text({"backends": members("abc", a={"weight": 5}), "timeouts": short}, {"backends": members("d")}, 30),
        text({"backends": members("bc"), "balance": "round_robin"}, {"backends": members("da")}, 50, quick),
        text({"backends": members("ca"), "health": health, "comment_every": "1s"}, {"backends": members("d")}, 5),
        text(
            {"backends": members("acb", a={"drain": True}), "timeouts": long, "outlier": "off"},
            {"backends": members("db", b={"weight": 9}), "limits": {"in_flight": 500, "queue": 300}},
            100,
        ),
        text(
            {"backends": members("bac"), "balance": "ring", "ring_key": "name", "retry": {"attempts": 1}},
            {"backends": members("bd")},
            20,
            {**quick, "name": "streams", "match": {"name": "stream*"}},
        ),
    ]


async def reloads_under_load(*, reloads: int, workers: int, seed: int = 1, altered: Callable[[str], str] = str) -> Seen:
    """Changes of the configuration one after the other, under load. `altered`: what is made of each before."""
    rng, ledger, times = random.Random(seed), Ledger(), list[float]()
    with tempfile.TemporaryDirectory(prefix="changes-") as folder:
        async with backends(Path(folder)) as fleet:
            texts = configurations({name: port for name, (port, _) in fleet.items()}, workers=workers)
            async with life(texts[0]) as one:
                over = asyncio.Event()
                callers: list[Caller] = [
                    kind(number, one.port, ledger, Outages(), random.Random(rng.random()))
                    for kind, count in KINDS.items()
                    for number in range(count)
                ]
                async with asyncio.TaskGroup() as group:
                    for caller in callers:
                        group.create_task(caller.run(over))
                    for turn in range(1, reloads + 1):
                        await asyncio.sleep(rng.uniform(*PAUSE))
                        start = time.monotonic()
                        await one.reload(altered(texts[turn % len(texts)]))
                        times.append(time.monotonic() - start)
                    over.set()
                assert await one.count("config_reloads_total", outcome="ok") == reloads
        executed = {name: Counter(memory.journal.read_text().split()) for name, (_, memory) in fleet.items()}
    return Seen(
        reloads=reloads,
        outcomes=ledger.outcomes,
        mistakes=ledger.mistakes,
        executions=compared(ledger.labels, sum(executed.values(), Counter())),
        used=[name for name, labels in executed.items() if labels],
        reload_times=times,
    )


@dataclass(frozen=True)
class Drained:
    """Streams that lived when a proxy was told to end. `cut`: those without their result, or with a gap before it."""

    streams: int
    cut: list[Verdict]
    exit_code: int
    seconds: float
    """From the signal to the proxy's end."""


async def drain_under_streams(*, workers: int, drain: str = DRAIN) -> Drained:
    """SIGTERM while so many streams live, the last of which ends within the time that the drain has."""
    rng = random.Random(1)
    with tempfile.TemporaryDirectory(prefix="changes-") as folder:
        async with backends(Path(folder)) as fleet:
            texts = configurations({name: port for name, (port, _) in fleet.items()}, workers=workers, drain=drain)
            async with life(texts[0]) as one:
                numbers = [rng.randint(15, 40) for _ in range(STREAMS)]
                connections = [Connection(one.port, rng) for _ in numbers]
                asked = [
                    asyncio.ensure_future(
                        connection.ask(call("stream", {"label": f"s/{i}", "events": number, "every": 0.08}))
                    )
                    for i, (connection, number) in enumerate(zip(connections, numbers, strict=True))
                ]
                await one.until_count(STREAMS, "streams_open")
                start = time.monotonic()
                one.command.terminate()
                async with asyncio.timeout(SLOWEST):
                    found = await asyncio.gather(*asked)
                code = await one.command.ended()
                seconds = time.monotonic() - start
                for connection in connections:
                    connection.close()
    cut = []
    for seen, number in zip(found, numbers, strict=True):
        verdict = judge(seen, Outages())
        if verdict.outcome != SERVED or progress_of(events(seen.body)) != list(range(1, number + 1)):
            cut.append(verdict)
    return Drained(STREAMS, cut, code, seconds)


def main(arguments: Sequence[str] | None = None) -> int:
    """The command."""
    parser = argparse.ArgumentParser(prog="python -m tests.process.changes_under_load")
    parser.add_argument("--reloads", type=int, default=100)
    parser.add_argument("--workers", type=int, default=1)
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args(arguments)
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        seen = runner.run(reloads_under_load(**vars(options)))
        drained = runner.run(drain_under_streams(workers=options.workers))
    sys.stdout.write(f"{options.workers} workers\n{seen.told()}")
    sys.stdout.write(
        f"SIGTERM with {drained.streams} streams: {len(drained.cut)} cut, "
        f"ended with {drained.exit_code} after {drained.seconds:.1f} s\n"
    )
    faults = seen.faults + [f"cut at the end: {verdict}" for verdict in drained.cut]
    sys.stdout.write("".join(f"FAULT {fault}\n" for fault in faults[:20]))
    return 1 if faults or drained.exit_code else 0


if __name__ == "__main__":
    sys.exit(main())
