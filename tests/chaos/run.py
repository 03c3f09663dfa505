"""A chaos run: clients that poll tasks through replicas of the proxy, while everything dies that a proxy must outlive.

    python -m tests.chaos.run --tasks 2000 --seconds 60 --store redis --seed 1

prints one report; the exit code is 1 if a task was lost, a poll was answered wrongly, or something planned never
happened. The same seed draws the same plan; what it meets is the machine's affair.
"""

import argparse
import asyncio
import random
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Sequence
from contextlib import AsyncExitStack
from dataclasses import asdict, dataclass
from pathlib import Path

import uvloop

from tests.chaos.clients import Caller, Plan
from tests.chaos.events import Chaos, kinds_of, plan
from tests.chaos.fleet import Fleet, Setting
from tests.chaos.ledger import Journal, Ledger, Report
from tests.chaos.store import shared_store, size

BACKENDS = "abc"
FEWEST_CLIENTS = 20
TASKS_EACH = 20  # by one client, which asks one thing at a time
OVERTIME = 90.0  # seconds beyond the planned ones until a run is broken off


@dataclass(frozen=True)
class Options:
    """A run. `chaos`: False leaves the fleet alone, and clients poll all the same."""

    tasks: int = 2000
    seconds: float = 60.0
    store: str = "memory"
    seed: int = 1
    workers: int = 2
    search: bool = True
    chaos: bool = True


def plans_of(rng: random.Random, options: Options) -> list[Plan]:
    """Half of the tasks are made at the start, the others while things happen; a task works for up to a third."""
    seconds, plans = options.seconds, []
    for i in range(options.tasks):
        at = rng.uniform(0, 0.08) if i % 2 else rng.uniform(0.08, 0.75)
        plans.append(Plan(seconds * at, seconds * rng.uniform(0.05, 0.35)))
    return plans


async def run(options: Options) -> Report:
    """Raises AssertionError if the fleet does not do what it is told, or a client breaks."""
    rng = random.Random(options.seed)
    journal = Journal()
    ledger = Ledger(journal)
    began = time.monotonic()
    async with AsyncExitStack() as stack:
        folder = stack.enter_context(tempfile.TemporaryDirectory(prefix="chaos-"))
        redis = await stack.enter_async_context(shared_store()) if options.store == "redis" else None
        url = None if redis is None else redis.url
        setting = Setting(workers=options.workers, store=url, search=options.search)
        fleet = Fleet(setting, stack, Path(folder), journal)
        await fleet.start(BACKENDS)
        tracks = plan(rng, options.seconds, workers=options.workers, redis=redis is not None) if options.chaos else []
        chaos = Chaos(fleet, ledger, journal, rng, redis, outage=0.08 * options.seconds)
        plans = plans_of(rng, options)
        number = max(FEWEST_CLIENTS, options.tasks // TASKS_EACH)
        ports = [replica.port for replica in fleet.replicas]
        keep = options.seconds / 10
        callers = [Caller(n, ports, ledger, random.Random(rng.random()), keep) for n in range(number)]
        try:
            async with asyncio.timeout(options.seconds + OVERTIME), asyncio.TaskGroup() as group:
                for n, caller in enumerate(callers):
                    group.create_task(caller.run(plans[n::number]))
                group.create_task(chaos.run(tracks))
        except TimeoutError:
            journal.note("broken off")
        for replica in fleet.replicas:
            await replica.stop()
        stored = None if redis is None else await size(redis)
        stats = await fleet.stats()
        troubles = fleet.troubles()
    return Report(
        settings=" ".join(f"{name}={value}" for name, value in asdict(options).items()),
        wanted=options.tasks,
        made=len(ledger.tasks),
        completed=sum(task.done for task in ledger.tasks),
        by_backend=dict(sorted(Counter(task.backend for task in ledger.tasks).items())),
        carried_out=sum(stat["made"] for stat in stats.values()),
        carried_out_twice=sum(stat["twice"] for stat in stats.values()),
        counts=ledger.counts,
        unanswered_after=ledger.unanswered_after,
        events=journal.counts,
        expected_events=kinds_of(tracks),
        stored=stored,
        searches=fleet.searches,
        unlearned=fleet.unlearned,
        mistakes=ledger.mistakes,
        troubles=troubles,
        events_in_order=journal.lines,
        seconds=time.monotonic() - began,
    )


def main(arguments: Sequence[str] | None = None) -> int:
    """The command."""
    parser = argparse.ArgumentParser(prog="python -m tests.chaos.run")
    parser.add_argument("--tasks", type=int, default=Options.tasks)
    parser.add_argument("--seconds", type=float, default=Options.seconds, help="planned; a busy machine takes longer")
    parser.add_argument("--store", choices=("memory", "redis"), default=Options.store)
    parser.add_argument("--seed", type=int, default=Options.seed)
    parser.add_argument("--workers", type=int, default=Options.workers)
    parser.add_argument("--no-search", dest="search", action="store_false", help="tasks: {search: false}: it must fail")
    parser.add_argument("--no-chaos", dest="chaos", action="store_false", help="the fleet is left alone")
    options = Options(**vars(parser.parse_args(arguments)))
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        report = runner.run(run(options))
    sys.stdout.write(f"{report.text()}\n")
    return 1 if report.failures() else 0


if __name__ == "__main__":
    sys.exit(main())
