"""One worker: a process that serves clients beside others, and does what its supervisor says over their channel.

Started by the supervisor alone, with the number of the channel's descriptor as its argument. It never listens by
itself: it inherits all the sockets, and accepts from those it is told. It ends when it is told so, or by SIGTERM, or
when the supervisor is gone: what is under way may finish in each case, as far as the time for draining goes.
"""

import asyncio
import logging
import os
import signal
import socket
import sys
import time
from dataclasses import replace
from typing import Any, get_args

import uvloop

from proxy.config import Config, parse
from proxy.explaining import Question
from proxy.pins.store import PinStore
from proxy.process import raise_limits, settle_memory
from proxy.routing.backends import Backend
from proxy.routing.rounds import News, NewsKind
from proxy.routing.telling import told_of
from proxy.traffic import Traffic
from proxy.workers.channel import Channel, Message
from proxy.workers.state import read_standings
from proxy.workers.telling import TellingPinStore

REPORT_EVERY = 1.0  # seconds
_IGNORED = (signal.SIGINT, signal.SIGHUP, signal.SIGUSR2)  # who sends them means the supervisor

_IN_ORDER = frozenset({"reload", "found", "drain", "health", "forget", "report"})  # messages about members

log = logging.getLogger("proxy")


class Worker:
    """A worker from its first message to its end. Its methods named `on_…` are the messages it takes."""

    def __init__(self) -> None:
        self._traffic: Traffic | None = None
        self._telling: TellingPinStore | None = None
        self._sockets: list[socket.socket] = []
        self._source = ""
        self._changes = 0
        self._changing = False  # members are on their way in
        self._later: list[Message] = []  # what was said since, as far as it is about them
        self._over = asyncio.Event()
        self._channel = Channel(self._received, self._over.set)

    async def run(self, sock: socket.socket) -> None:
        """Serves until it is over. `sock` is our end of the channel."""
        loop = asyncio.get_running_loop()
        for number in _IGNORED:
            loop.add_signal_handler(number, _nothing)
        loop.add_signal_handler(signal.SIGTERM, self._over.set)
        await self._channel.open(sock)
        await self._over.wait()
        self._send({"kind": "leaving"})
        if self._traffic is not None:
            self._traffic.accept_from({})
        for listening in self._sockets:  # of the others as well: whoever comes after a killed supervisor needs the port
            listening.close()
        if self._traffic is not None:
            await self._traffic.drain()
            self._send_report()
        self._channel.close()

    # ---- what the supervisor says
    def _received(self, message: Message) -> None:
        if self._changing and message["kind"] in _IN_ORDER:
            self._later.append(message)
            return
        getattr(self, f"on_{message.pop('kind')}")(**message)

    def on_start(
        self, *, config: str, source: str, sockets: list[int], accept: list[int], standings: dict[str, Any]
    ) -> None:
        """Begins to serve: with this configuration, the pools standing so, from those of the sockets."""
        self._source = source
        self._sockets = [socket.socket(fileno=number) for number in sockets]
        parsed = self._parsed(config)
        traffic = self._traffic = Traffic(
            parsed, pins=self._pins(parsed), standings=read_standings(standings), told=self._told
        )
        traffic.begin_work()
        traffic.background.loop("report to the supervisor", REPORT_EVERY, self._send_report)
        self.on_accept(accept=accept)
        self._send({"kind": "ready"})

    def on_accept(self, *, accept: list[int]) -> None:
        """Accepts from these sockets and no others."""
        if self._traffic is not None:
            self._traffic.accept_from({index: self._sockets[index] for index in accept})

    def on_reload(self, *, config: str) -> None:
        """Puts another configuration in force, which the supervisor has found good; if it is not, this worker ends."""
        if self._traffic is None:
            return
        try:
            self._traffic.apply(self._parsed(config))
            self._traffic.counts.in_force()
        except Exception:
            log.exception("a configuration that was found good cannot be put in force: this worker ends")
            self._over.set()
        self._changes += 1

    def on_found(self, *, pool: str, backends: list[dict[str, Any]]) -> None:
        """Puts the discovered members of a pool in force. Their ring may take a while, and what is said then waits."""
        if self._traffic is not None:
            self._changing = True
            found = [Backend(**backend) for backend in backends]
            self._traffic.background.spawn(self._set_found(self._traffic, pool, found), "change the members of a pool")

    def on_drain(self, *, pool: str, backend: str, draining: bool) -> None:
        """Takes a backend out of new work, or back in."""
        lane = None if self._traffic is None else self._traffic.lanes.get(pool)
        member = None if lane is None else lane.pool.member(backend)
        if lane is not None and member is not None:
            lane.pool.set_draining(member, draining)

    def on_health(self, *, pool: str, backend: str, up: bool) -> None:
        """Probes found that a backend is up, or down."""
        lane = None if self._traffic is None else self._traffic.lanes.get(pool)
        member = None if lane is None else lane.pool.member(backend)
        if lane is not None and member is not None:
            lane.pool.fitness.set_up(member, up, time.monotonic())

    def on_forget(self, *, pool: str, backend: str) -> None:
        """Drops a member that departed: nothing is left that it could serve."""
        lane = None if self._traffic is None else self._traffic.lanes.get(pool)
        member = None if lane is None else lane.pool.member(backend)
        if lane is not None and member is not None:
            lane.pool.forget(member)

    def on_round(self, *, news: list[str]) -> None:
        """Another worker's news of a round."""
        if self._traffic is not None:
            self._traffic.rounds.heard(_read_news(news))

    def on_owner(self, *, number: int, pool: str | None, backend: str | None) -> None:
        """Who has the task that was asked for."""
        if self._telling is not None:
            self._telling.answered(number, pool, backend)

    def on_report(self, *, id: int) -> None:
        """Tells now what is else told every REPORT_EVERY seconds."""
        self._send({**self._report(), "id": id})

    def on_explain(self, *, id: int, question: list[Any]) -> None:
        """Where such a request would go."""
        if self._traffic is not None:
            self._traffic.background.spawn(self._explain(id, question), "explain a request")

    def on_stop(self) -> None:
        """Ends, after what is under way."""
        self._over.set()

    # ----
    async def _set_found(self, traffic: Traffic, pool: str, found: list[Backend]) -> None:
        try:
            await traffic.set_found(pool, found)
        except Exception:
            log.exception("the members of a pool cannot be put in force: this worker ends")
            self._over.set()
        self._changes += 1
        self._changing = False
        later, self._later = self._later, []
        for message in later:  # one of them may be of this kind: then the others wait for it again
            self._received(message)

    def _parsed(self, text: str) -> Config:
        # How many workers there are is the supervisor's affair, whose command line may say otherwise than the file.
        return replace(parse(text, self._source, os.environ), workers=1)

    def _pins(self, config: Config) -> PinStore | None:
        """Pins of its own, if they are kept in memory; their news go to the supervisor."""
        if config.pins.url is not None:
            return None
        self._telling = TellingPinStore(
            ttl=config.pins.ttl,
            capacity=config.pins.capacity,
            clock=time.monotonic,
            ask=lambda number, key: self._send({"kind": "whose", "number": number, "key": key.hex()}),
            hurry=self._send_tasks,
        )
        return self._telling

    def _send_tasks(self) -> None:
        if self._telling is not None:
            self._send({"kind": "tasks", "tasks": self._telling.news_as_values()})

    async def _explain(self, id: int, question: list[Any]) -> None:
        verb, target, fields, client = question
        if self._traffic is not None:
            asked = Question(verb, target, tuple((name, value) for name, value in fields), client)
            told = told_of(await self._traffic.explain(asked))
            self._send({"kind": "explained", "id": id, "values": told.values, "text": told.text})

    def _told(self, news: News) -> None:
        self._send({"kind": "round", "news": [news.kind, news.key.hex(), news.backend]})

    def _send_report(self) -> None:
        self._send(self._report())

    def _report(self) -> Message:
        """Its numbers, and the news since the report before."""
        traffic = self._traffic
        if traffic is None:
            return {"kind": "report"}
        tasks = [] if self._telling is None else self._telling.news_as_values()
        sessions = []
        departed = []
        ejected = []
        for name, pool in traffic.pools.items():
            for member in pool.everyone:
                if member.session_news:
                    sessions.append(
                        [name, member.backend.id, [[k.hex(), used] for k, used in member.session_news.items()]]
                    )
                    member.session_news.clear()
                if member.departed:
                    departed.append([name, member.backend.id, member.last_used])
                if member.ejected:
                    ejected.append([name, member.backend.id, member.conduct.until])
        return {
            "kind": "report",
            "snapshot": traffic.counts.snapshot().as_values(),
            "tasks": tasks,
            "sessions": sessions,
            "departed": departed,
            "ejected": ejected,
            "changes": self._changes,
        }

    def _send(self, message: Message) -> None:
        self._channel.send(message)


def _read_news(values: list[str]) -> News:
    kind, key, backend = values
    known: dict[str, NewsKind] = {name: name for name in get_args(NewsKind)}
    return News(known[kind], bytes.fromhex(key), backend)


def _nothing() -> None:
    """A signal that is the supervisor's affair."""


def main() -> None:
    """Runs a worker over the channel whose descriptor is the argument."""
    logging.basicConfig(level=logging.INFO, format=f"%(asctime)s %(levelname)s %(name)s[{os.getpid()}]: %(message)s")
    raise_limits()
    settle_memory()
    sock = socket.socket(fileno=int(sys.argv[1]))
    os.set_inheritable(sock.fileno(), False)
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(Worker().run(sock))


if __name__ == "__main__":
    main()
