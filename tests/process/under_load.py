"""Restarts by SIGUSR2 and kills of workers while clients come and poll: what do they notice?

`python -m tests.process.under_load --restarts 20 --kills 20` prints the figures, and ends with 1 if something is lost
that need not be. Two kinds of clients ask all the time: those that open a connection for each request, and those that
keep theirs and poll. A connection counts as lost when it is refused or reset, or ends without a whole answer. A killed
worker takes with it what it has accepted: it is stopped first, and looked at, so that it is known which those are.
"""

import argparse
import asyncio
import os
import signal
import sys
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field

import uvloop

from tests.process.harness import config_text
from tests.process.lives import Life, connections, life, sockets_of, until_state
from tests.wire.harness import Client, Message, backend, call, client, task

COMING, POLLING = 6, 6  # clients of each kind
PAUSE = 0.005  # seconds between one client's requests
SETTLE = 0.3  # seconds of load between two events, over which nothing may have to be restored
DRAIN = "10s"
LOST = (ConnectionError, EOFError, TimeoutError)  # asyncio.IncompleteReadError is an EOFError


@dataclass
class Seen:
    """What the clients saw."""

    came: int = 0
    """Requests on connections of their own."""
    lost: list[int] = field(default_factory=list)
    """The client's ports of those that got no answer; 0 where there was no connection."""
    polled: int = 0
    cut: list[int] = field(default_factory=list)
    """The client's ports of connections on which a poll got no answer."""
    wrong: int = 0
    """Answers other than 200."""
    reopened: int = 0
    """Kept connections that were opened anew, each after an answer that said it was the last, or after a cut."""
    times: list[float] = field(default_factory=list)
    """Seconds that each request of a new connection took, connecting included."""
    taken: set[int] = field(default_factory=set)
    """The client's ports of connections that a worker had accepted when it was killed."""

    @property
    def faults(self) -> list[str]:
        """What must not be."""
        found = [f"a new connection was lost (port {port})" for port in self.lost if port not in self.taken]
        found += [f"a poll was cut (port {port})" for port in self.cut if port not in self.taken]
        return found + [f"{self.wrong} answers were not 200"] * bool(self.wrong)

    def told(self) -> str:
        """The figures."""
        times = sorted(self.times)
        in_taken = [sum(port in self.taken for port in ports) for ports in (self.lost, self.cut)]
        return (
            f"new connections: {self.came}, lost {len(self.lost)}, of which accepted by a killed worker {in_taken[0]}\n"
            f"  answered within: p50 {times[len(times) // 2] * 1000:.1f} ms, "
            f"p99 {times[len(times) * 99 // 100] * 1000:.1f} ms, at most {times[-1] * 1000:.0f} ms\n"
            f"polls on kept connections: {self.polled}, cut {len(self.cut)}, "
            f"of which accepted by a killed worker {in_taken[1]}; connections opened anew: {self.reopened}\n"
            f"answers other than 200: {self.wrong}\n"
        )


class Load:
    """Clients that ask until they are told to stop."""

    def __init__(self, one: Life) -> None:
        self.seen = Seen()
        self._one = one
        self._over = asyncio.Event()

    async def run(self, events: Callable[[], Awaitable[None]]) -> None:
        """Asks while the events happen."""
        async with asyncio.TaskGroup() as tasks:
            for _ in range(COMING):
                tasks.create_task(self._come())
            for _ in range(POLLING):
                tasks.create_task(self._poll())
            try:
                await events()
            finally:
                self._over.set()

    async def _come(self) -> None:
        """Opens a connection, asks once, closes it; again and again."""
        while not self._over.is_set():
            self.seen.came += 1
            port, start = 0, time.monotonic()
            try:
                async with client(self._one.port) as caller:
                    port = caller.writer.get_extra_info("sockname")[1]
                    self._note(await caller.ask(call()))
                self.seen.times.append(time.monotonic() - start)
            except LOST:
                self.seen.lost.append(port)
            await asyncio.sleep(PAUSE)

    async def _poll(self) -> None:
        """Polls on a connection that is kept as long as the proxy keeps it."""
        while not self._over.is_set():
            try:
                async with client(self._one.port) as caller:
                    await self._poll_on(caller)
            except LOST:
                self.seen.lost.append(0)
            self.seen.reopened += 1

    async def _poll_on(self, caller: Client) -> None:
        while not self._over.is_set():
            self.seen.polled += 1
            try:
                answer = await caller.ask(task(b"get", b"task-1"))
            except LOST:
                self.seen.cut.append(caller.writer.get_extra_info("sockname")[1])
                return
            self._note(answer)
            if answer.get("Connection") == "close":
                return
            await asyncio.sleep(PAUSE)

    def _note(self, answer: Message) -> None:
        self.seen.wrong += answer.status != 200


async def restart(one: Life) -> None:
    """A new generation, and the end of the one before."""
    await one.gone(await one.renew())


async def kill(one: Life, seen: Seen, worker: int) -> None:
    """Kills a worker, and notes which connections it had accepted."""
    count = len(one.workers)
    os.kill(worker, signal.SIGSTOP)
    await until_state([worker], "T")
    held = set(sockets_of(worker))
    seen.taken |= {remote for local, remote, _, inode in connections() if inode in held and local == one.port}
    os.kill(worker, signal.SIGKILL)
    await one.replaced(worker, count)


async def measure(*, restarts: int, kills: int, workers: int) -> Seen:
    """Restarts and kills in turn, under load."""
    async with backend() as server, life(config_text(server.port, workers=workers, drain=DRAIN)) as one:
        load = Load(one)

        async def events() -> None:
            for turn in range(max(restarts, kills)):
                await asyncio.sleep(SETTLE)
                if turn < restarts:
                    await restart(one)
                    await asyncio.sleep(SETTLE)
                if turn < kills:
                    await kill(one, load.seen, one.workers[turn % workers])
            await asyncio.sleep(SETTLE)

        await load.run(events)
        return load.seen


def main() -> int:
    """The command."""
    parser = argparse.ArgumentParser(prog="python -m tests.process.under_load")
    parser.add_argument("--restarts", type=int, default=20)
    parser.add_argument("--kills", type=int, default=20, help="of workers; none with --workers 1")
    parser.add_argument("--workers", type=int, default=2)
    options = parser.parse_args()
    kills = options.kills if options.workers > 1 else 0
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        seen = runner.run(measure(restarts=options.restarts, kills=kills, workers=options.workers))
    faults = seen.faults
    sys.stdout.write(f"{options.workers} workers, {options.restarts} restarts, {kills} kills\n{seen.told()}")
    sys.stdout.write("\n".join(faults[:20] or ["nothing was lost that a killed worker had not accepted"]) + "\n")
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main())
