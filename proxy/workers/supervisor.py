"""Several workers as one proxy: started, replaced when they die, told of changes, and counted as one.

Rules:
* The supervisor owns the listening sockets, and accepts no client itself; so none that waits in a queue is lost with a
  worker. Which worker accepts from which socket is in proxy/workers/seats.py.
* What must be alike everywhere goes through here: the configuration, drains by command, members that departed and when
  they are forgotten, news of rounds. A worker that starts gets all of it but the rounds.
* It keeps pools of its own without connections, as a picture of all workers' for the admin interface: drains and
  departures are decided on it, sessions and tasks under way are the union of what the workers tell.
* With pins in memory the tasks held are a union by digest, kept in a store of the supervisor's own; with a shared store
  that one is asked.
"""

import asyncio
import logging
import time
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from proxy.background import Background
from proxy.config import Config
from proxy.control.admin import AdminServer, admin_app, serve_admin
from proxy.counts import Counts
from proxy.explaining import Question
from proxy.metrics import Metrics
from proxy.parts import fixed, pin_store_of, pool_of
from proxy.pins.held import tasks_held
from proxy.pins.memory import MemoryPinStore
from proxy.routing.ownership import PinKey
from proxy.routing.pools import Pool, Standing
from proxy.routing.telling import Told
from proxy.snapshot import Snapshot
from proxy.version import proxy_version
from proxy.workers.channel import Message
from proxy.workers.hands import Hand, start_hand
from proxy.workers.seats import Pauses, assigned
from proxy.workers.sockets import Endpoints
from proxy.workers.state import standings_of

_LOOK = 1.0  # seconds between looks at members that departed
_BEYOND = 3.0  # seconds that a worker may take beyond the time for draining

log = logging.getLogger("proxy")


class Supervisor:
    """The workers of one configuration, whose YAML is `text` and came from `source`."""

    def __init__(
        self,
        config: Config,
        text: str,
        source: str,
        endpoints: Endpoints,
        *,
        standings: Mapping[str, Standing] | None = None,
    ) -> None:
        self.endpoints = endpoints
        """What the workers accept from, and the admin interface listens on."""
        self.draining = False
        self._config = config
        self._text = text
        self._source = source
        self._changes = 0
        self._background = Background()
        self._hands: list[Hand | None] = [None] * config.workers
        self._leaving: set[Hand] = set()
        self._coming = 0  # workers whose processes are being made
        self._none_coming = asyncio.Event()
        self._none_coming.set()
        self._pauses = [Pauses() for _ in range(config.workers)]
        self._started = asyncio.Event()
        self._failed = False
        self._admin: AdminServer | None = None
        self.pools: dict[str, Pool] = {}
        """The picture of all workers' pools."""
        for name, pool in config.pools.items():
            built = self.pools[name] = pool_of(pool)
            if standings is not None and name in standings:
                built.take_over(standings[name])
        self._pins = pin_store_of(
            replace(config.pins, capacity=config.pins.capacity * config.workers),
            clock=time.monotonic,
            background=self._background,
        )
        self._ledger = self._pins if isinstance(self._pins, MemoryPinStore) else None
        self.counts = Counts(pools=dict, pins=self._pins)
        self._dead = Snapshot()
        self._restarts = 0  # of workers that died

    @property
    def port(self) -> int:
        """The port that clients reach."""
        return int(self.endpoints.clients[0].getsockname()[1])

    @property
    def admin_port(self) -> int:
        """The port of the admin interface."""
        return int(self.endpoints.admin.getsockname()[1])

    async def start(self) -> None:
        """Starts the workers, and returns when all accept clients. Raises OSError if the first ones cannot live."""
        for seat in range(len(self._hands)):
            self._background.spawn(self._fill(seat), f"start worker {seat}")
        await self._started.wait()
        if self._failed:
            raise OSError("a worker ended before it served; its last words are above")
        self._background.loop("forget departed backends", _LOOK, self._forget_departed)
        await self._serve_admin()

    async def _serve_admin(self) -> None:
        """Opens the admin interface. Not before we serve: until then the generation before answers there."""
        self._pins.start()
        admin = self._config.admin
        app = admin_app(
            metrics=Metrics(version=proxy_version(), snapshot=self._snapshot, held=self._held),
            pools=lambda: self.pools,
            pins=self._pins,
            refresh=self._refresh,
            set_draining=self.set_draining,
            explain=self._explain,
            clock=time.monotonic,
            readiness=self._readiness,
            version=proxy_version(),
            token=admin.token,
            allowed_hosts=("localhost", "127.0.0.1", "[::1]"),
        )
        self._admin = await serve_admin(app, self.endpoints.admin)

    # ---- the workers' lives
    async def _fill(self, seat: int) -> None:
        """A worker for this seat."""
        while not self.draining:
            self._coming += 1
            self._none_coming.clear()
            try:
                hand = await start_hand(seat, self.endpoints.clients, self._received)
                break
            except OSError as error:
                log.error("worker %d cannot be started, which is tried again: %s", seat, error)
            finally:
                self._coming -= 1
                if not self._coming:
                    self._none_coming.set()
            await asyncio.sleep(self._pauses[seat].after(0.0) or 1.0)
        else:
            return
        self._hands[seat] = hand
        hand.born = self._changes
        self._background.spawn(self._watch(hand), f"watch worker {seat}")
        if self.draining:  # the sockets are closed
            hand.send("stop")
            return
        hand.send(
            "start",
            config=self._text,
            source=self._source,
            sockets=[sock.fileno() for sock in self.endpoints.clients],
            accept=[],
            standings=standings_of(self.pools),
        )

    async def _watch(self, hand: Hand) -> None:
        """Sees to it that a worker that ends is replaced."""
        code = await hand.ended()
        self._dead.add(hand.snapshot.lasting())
        self._leaving.discard(hand)
        if self._hands[hand.seat] is not hand:
            return  # it was replaced when it began to leave
        self._hands[hand.seat] = None
        if self.draining:
            return
        if not self._started.is_set():
            self._failed = True
            self._started.set()
            return
        log.error("worker %d (pid %d) ended: %s", hand.seat, hand.pid, _cause(code))
        self._restarts += 1
        self._assign()
        await self._replace(hand)

    async def _replace(self, hand: Hand) -> None:
        await asyncio.sleep(self._pauses[hand.seat].after(time.monotonic() - hand.started))
        await self._fill(hand.seat)

    def _assign(self) -> None:
        """Tells every worker from which sockets it accepts now."""
        hands = {hand.seat: hand for hand in self._hands if hand is not None and hand.accepts}
        seats = assigned(sockets=len(self.endpoints.clients), seats=len(self._hands), accepting=hands.keys())
        for seat, accept in seats.items():
            hands[seat].send("accept", accept=list(accept))

    # ---- what workers say
    def _received(self, hand: Hand, message: Message) -> None:
        kind = message["kind"]
        if kind == "report":
            self._note(hand, message)
        elif kind == "round":
            self._tell("round", besides=hand, news=message["news"])
        elif kind == "ready":
            hand.ready = True
            self._assign()
            if all(known is not None and known.ready for known in self._hands):
                self._started.set()
        elif kind == "leaving":
            self._leave(hand)

    def _leave(self, hand: Hand) -> None:
        """This worker accepts no more: its neighbour does, and another takes its seat while it drains."""
        hand.leaving = True
        if self._hands[hand.seat] is not hand or self.draining:
            return
        log.info("worker %d (pid %d) leaves", hand.seat, hand.pid)
        self._leaving.add(hand)
        self._hands[hand.seat] = None
        self._assign()
        self._background.spawn(self._fill(hand.seat), f"replace worker {hand.seat}")

    def _note(self, hand: Hand, report: Message) -> None:
        """Takes in what a worker reports."""
        if "snapshot" not in report:
            return
        hand.snapshot = Snapshot.of_values(report["snapshot"])
        hand.departed = {(pool, backend): used for pool, backend, used in report["departed"]}
        hand.changes = hand.born + report["changes"]
        for pool, backend, sessions in report["sessions"]:
            member = self.pools[pool].member(backend) if pool in self.pools else None
            if member is not None:
                for digest, used in sessions:
                    member.session_told(bytes.fromhex(digest), used)
        if self._ledger is not None:
            for key, pool, backend, ttl, made, finished in report["tasks"]:
                _enter(self._ledger, PinKey(bytes.fromhex(key)), pool, backend, ttl, made, finished=finished)

    def _tell(self, kind: str, besides: Hand | None = None, **content: Any) -> None:
        """Tells all workers something, those that are leaving included."""
        for hand in (*self._hands, *self._leaving):
            if hand is not None and hand is not besides:
                hand.send(kind, **content)

    # ---- changes
    def apply(self, config: Config, text: str) -> None:
        """Makes another configuration, whose YAML is `text`, the one in force in all workers. Raises ValueError."""
        changed = fixed(self._config, config)
        if changed:
            raise ValueError(f"only a restart can change {', '.join(changed)}")
        self.pools = {name: pool_of(pool, self.pools.get(name)) for name, pool in config.pools.items()}
        self._config, self._text = config, text
        self._changes += 1
        self._tell("reload", config=text)

    def set_draining(self, *, pool: str, backend: str, draining: bool) -> None:
        """Takes a backend out of new work in all workers, or back in. Raises LookupError for one that is not there."""
        known = self.pools.get(pool)
        member = None if known is None else known.member(backend)
        if known is None or member is None:
            raise LookupError(f"no backend {backend!r} in a pool {pool!r}")
        if member.draining is not draining:
            known.set_draining(member, draining)
            log.info("%s/%s %s", pool, backend, "takes no new work" if draining else "takes new work again")
        self._tell("drain", pool=pool, backend=backend, draining=draining)

    async def _forget_departed(self) -> None:
        departed = [(pool, member) for pool in self.pools.values() for member in pool.everyone if member.departed]
        if not departed:
            return
        held, now = await tasks_held(self._pins), time.monotonic()
        hands = [hand for hand in self._hands if hand is not None and hand.ready]
        for pool, member in departed:
            key = pool.name, member.backend.id
            member.last_used = max([member.last_used, *(hand.departed.get(key, 0.0) for hand in hands)])
            gone = any(key not in hand.departed for hand in hands if hand.changes == self._changes)
            tasks = None if held is None else held.get(key, 0)
            if gone or (tasks is not None and member.is_done(tasks=tasks, life=self._config.pins.ttl, now=now)):
                pool.forget(member)
                self._tell("forget", pool=pool.name, backend=member.backend.id)

    # ---- for the admin interface
    async def _refresh(self) -> None:
        """Lets all workers report, and brings the picture of their pools up to date."""
        hands = [hand for hand in (*self._hands, *self._leaving) if hand is not None and hand.ready]
        await asyncio.gather(*(hand.ask("report") for hand in hands))
        in_flight = self._living().in_flight
        for pool in self.pools.values():
            for member in pool.everyone:
                member.in_flight = int(in_flight[pool.name, member.backend.id])

    def _living(self) -> Snapshot:
        living = Snapshot()
        for hand in (*self._hands, *self._leaving):
            if hand is not None:
                living.add(hand.snapshot)
        return living

    def _snapshot(self) -> Snapshot:
        """The numbers of all workers, dead ones included, and our own."""
        backends = {(pool.name, member.backend.id) for pool in self.pools.values() for member in pool.everyone}
        self._dead.keep(backends)
        snapshot = self._living()
        snapshot.add(self._dead)
        own = self.counts.snapshot()
        for family in (own.pins, own.workers, own.evicted):  # the picture's, which are the workers'
            family.clear()
        snapshot.add(own)
        snapshot.restarts[()] = self._restarts
        return snapshot

    async def _held(self) -> Mapping[tuple[str, str], int] | None:
        await self._refresh()
        return await tasks_held(self._pins)

    async def _explain(self, question: Question) -> Told:
        """As the worker tells it that has a pin, else as any does."""
        hands = [hand for hand in self._hands if hand is not None and hand.accepts]
        asked = [question.verb, question.target, [list(field) for field in question.fields], question.client]
        answers = [
            Told(answer["values"], answer["text"])
            for answer in await asyncio.gather(*(hand.ask("explain", question=asked) for hand in hands))
            if answer is not None
        ]
        if not answers:
            raise LookupError("no worker answers")
        return next((told for told in answers if _is_pinned(told)), answers[0])

    def _readiness(self) -> str | None:
        if self.draining:
            return "draining"
        return None if any(hand is not None and hand.accepts for hand in self._hands) else "no worker accepts clients"

    # ---- the end
    async def close_admin(self) -> None:
        """Leaves the admin address to the next generation."""
        if self._admin is not None:
            await self._admin.close()

    async def drain(self) -> None:
        """Lets the workers finish what is under way within the configured time, then ends them."""
        self.draining = True
        for sock in self.endpoints.clients:
            sock.close()
        self._tell("stop")
        await self._none_coming.wait()
        hands = {hand for hand in (*self._hands, *self._leaving) if hand is not None}
        if hands:
            watches = [self._background.spawn(hand.ended(), "await a worker's end") for hand in hands]
            _, pending = await asyncio.wait(watches, timeout=self._config.drain + _BEYOND)
            if pending:
                log.warning("%d workers did not end in time, and are killed", len(pending))
                for hand in hands:
                    hand.kill()
                await asyncio.wait(pending)
        await self.close_admin()
        await self._pins.close()
        await self._background.close()


def _enter(
    ledger: MemoryPinStore,
    key: PinKey,
    pool: str,
    backend: str,
    ttl: float | None,
    made: float,
    *,
    finished: bool,
) -> None:
    """Enters a task as a worker told of it; `made` is when."""
    left = None if ttl is None else max(0.0, ttl - (time.monotonic() - made))
    ledger.put(key, pool, backend, ttl=left, replace=True)
    if finished:
        ledger.finish(key)


def _is_pinned(told: Told) -> bool:
    return any(place["source"] == "pin" for place in told.values["places"])


def _cause(code: int) -> str:
    return f"exit code {code}" if code >= 0 else f"signal {-code}"
