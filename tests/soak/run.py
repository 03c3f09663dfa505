"""Mixed load through one proxy while its backends die and come back, for as long as it takes to see what leaks.

`python -m tests.soak.run --seconds 600 --seed 1` prints what was served, what failed and why, what was executed, and
how the proxy grew. It ends with 1 if a call failed in a way that the contract does not name, was executed twice, or if
something leaked. The same seed draws the same plan; what it meets is the machine's affair.
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

from tests.chaos.fleet import FAULT
from tests.process.harness import ProxyProcess, proxy_process
from tests.redis_server import redis_server
from tests.soak.clients import KINDS, Caller
from tests.soak.fleet import Backend, kill_in_turn, planned_kills, proxy_config
from tests.soak.growth import MIB, WARM_UP, Sample, descriptors, per_minute, processes_of, resident
from tests.soak.ledger import Ledger, Report, compared
from tests.soak.outages import Outages

BACKENDS = "abcd"
GAUGES = ("streams_open", "backend_in_flight", "queued", "client_connections")
COUNTED = ("retries_total", "retries_withheld_total", "searches_total", "ejections_total", "unlearned_total")
REQUESTS = (
    *("call", "stream", "task", "poll", "cancel"),
    *("initialize", "session call", "session stream", "session end"),
    *("listen", "listen to all"),
)
OVERTIME = 90.0  # seconds beyond the planned ones until a run is broken off
LET_GO = 20.0  # seconds that the proxy has to let go of everything; its idle connections to backends last for 4
LOOKS = 300  # samples of a run, or one every half second


@dataclass(frozen=True)
class Options:
    """A run. `every`: seconds from one death of a backend to the next."""

    seconds: float = 600.0
    seed: int = 1
    workers: int = 1
    store: str = "memory"
    every: float = 5.0


class Watch:
    """Looks at the proxy's processes while a run lasts."""

    def __init__(self, proxy: ProxyProcess, seconds: float) -> None:
        self.samples: list[Sample] = []
        self.most_descriptors = 0
        self._proxy = proxy
        self._seconds = seconds
        self._began = time.monotonic()

    async def run(self, over: asyncio.Event) -> None:
        """Until the run is over."""
        every = max(0.5, self._seconds / LOOKS)
        while not over.is_set():
            self.look()
            await asyncio.sleep(every)

    def look(self) -> None:
        pids = processes_of(self._proxy.command.pid)
        self.samples.append(Sample(time.monotonic() - self._began, resident(pids)))
        self.most_descriptors = max(self.most_descriptors, descriptors(pids))

    def memory(self) -> tuple[float, float, float]:
        """MiB after the warm-up, at the end, and at most."""
        warm = next(sample for sample in self.samples if sample.at >= WARM_UP * self.samples[-1].at)
        most = max(sample.resident for sample in self.samples)
        return warm.resident / MIB, self.samples[-1].resident / MIB, most / MIB


async def let_go(proxy: ProxyProcess, before: int) -> tuple[dict[str, float], int]:
    """Gauges and descriptors once they are as they were before the clients came, or once the time for that is over."""
    deadline = time.monotonic() + LET_GO
    while True:
        gauges = {name: await proxy.count(name) for name in GAUGES}
        count = descriptors(processes_of(proxy.command.pid))
        if (not any(gauges.values()) and count <= before) or time.monotonic() > deadline:
            return gauges, count
        await asyncio.sleep(0.2)


async def run(options: Options) -> Report:
    """Raises AssertionError if a process does not do what it is told, or a client breaks."""
    rng = random.Random(options.seed)
    ledger, outages, began = Ledger(), Outages(), time.monotonic()
    async with AsyncExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="soak-")))
        redis = await stack.enter_async_context(redis_server()) if options.store == "redis" else None
        backends = [Backend(name, folder) for name in BACKENDS]
        for backend in backends:
            stack.callback(backend.close)
        await asyncio.gather(*(backend.start() for backend in backends))
        text = proxy_config(backends, workers=options.workers, store=None if redis is None else redis.url)
        proxy = await stack.enter_async_context(proxy_process(text))
        await proxy.series()
        before = descriptors(processes_of(proxy.command.pid))
        watch, over = Watch(proxy, options.seconds), asyncio.Event()
        callers: list[Caller] = [
            kind(number, proxy.port, ledger, outages, random.Random(rng.random()))
            for kind, count in KINDS.items()
            for number in range(count)
        ]
        async with asyncio.timeout(options.seconds + OVERTIME), asyncio.TaskGroup() as group:
            for caller in callers:
                group.create_task(caller.run(over))
            group.create_task(watch.run(over))
            await kill_in_turn(backends, outages, rng, every=options.every, seconds=options.seconds)
            await asyncio.sleep(max(0.0, began + options.seconds - time.monotonic()))
            over.set()
        gauges, after = await let_go(proxy, before)
        series = await proxy.series()
        counted = Counter(
            {
                name: int(sum(value for (key, _), value in series.items() if key == f"mcp_proxy_{name}"))
                for name in COUNTED
            }
        )
        executed: Counter[str] = Counter()
        for backend in backends:
            backend.close()
            executed += backend.executed()
        said = [proxy.command.complaints, *(text for backend in backends for text in backend.said)]
    return Report(
        settings=" ".join(f"{name}={value}" for name, value in asdict(options).items()),
        outcomes=ledger.outcomes,
        expected_kinds=REQUESTS,
        longest=ledger.longest,
        executions=compared(ledger.labels, executed),
        kills=len(outages.all),
        expected_kills=planned_kills(options.every, options.seconds),
        mistakes=ledger.mistakes,
        troubles=[line for text in said for line in FAULT.findall(text)],
        growth=per_minute(watch.samples, options.seconds),
        memory=watch.memory(),
        descriptors=(before, watch.most_descriptors, after),
        gauges=gauges,
        counted=counted,
        seconds=time.monotonic() - began,
    )


def main(arguments: Sequence[str] | None = None) -> int:
    """The command."""
    parser = argparse.ArgumentParser(prog="python -m tests.soak.run")
    parser.add_argument("--seconds", type=float, default=Options.seconds)
    parser.add_argument("--seed", type=int, default=Options.seed)
    parser.add_argument("--workers", type=int, default=Options.workers)
    parser.add_argument("--store", choices=("memory", "redis"), default=Options.store)
    parser.add_argument("--every", type=float, default=Options.every, help="seconds from one death to the next")
    options = Options(**vars(parser.parse_args(arguments)))
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        report = runner.run(run(options))
    sys.stdout.write(f"{report.text()}\n")
    return 1 if report.failures() else 0


if __name__ == "__main__":
    sys.exit(main())
