"""What clients meet of a running proxy: its listeners and connections, pools, pins and counts, and their changes.

Here the parts of the data path meet. Whoever owns the process, alone or as one of several workers, gives the sockets,
tells of changes, and says when it is over.
"""

import asyncio
import logging
import socket
import time
from collections.abc import Callable, Mapping, Sequence

from proxy.access_log import AccessLog, StandardOutput
from proxy.background import Background
from proxy.certificates import server_context
from proxy.config import Config, PoolConfig
from proxy.config.addresses import bracketed
from proxy.counts import Counts
from proxy.explaining import Explainer, Question
from proxy.membership import in_force, membership, with_those_before, with_those_of
from proxy.parts import (
    SURPLUS,
    admission_of,
    client_contexts,
    close_all,
    connect,
    fixed,
    lane_of,
    most_clients,
    pin_store_of,
    trust_of,
)
from proxy.pins.held import tasks_held
from proxy.pins.store import PinStore
from proxy.routing.backends import Backend
from proxy.routing.errors import Draining, ProxyError
from proxy.routing.explanation import Explanation
from proxy.routing.fitness import news
from proxy.routing.pools import Standing
from proxy.routing.rounds import News, Rounds
from proxy.routing.table import RoutingTable
from proxy.wire.client import ClientConnection
from proxy.wire.courses import Courses
from proxy.wire.destination import Lane
from proxy.wire.directory import Directory
from proxy.wire.exchange import Exchange
from proxy.wire.express import set_out
from proxy.wire.handshakes import Handshakes
from proxy.wire.listener import Listener
from proxy.wire.patience import TICK, Patience
from proxy.wire.request_frame import Alike, Frame, RequestHead
from proxy.wire.request_head import RequestHeadReader
from proxy.wire.search import Searches
from proxy.wire.surroundings import Surroundings
from proxy.wire.turns import admit

_CUT_LIMIT = 1.0  # seconds for clients to take what was sent when the drain is over
_TENDED = 500  # clients looked at in one turn of the loop, which takes less than a millisecond
_TEND = 0.5  # seconds between looks at ejections that end and shares that grow
_FORGET = 1.0  # seconds between looks at members that departed
_PART_EVERY = 0.25  # seconds between looks at clients while draining
_LOG_EVERY = 0.1  # seconds a line of the access log may wait

log = logging.getLogger("proxy")


class Traffic:
    """The traffic of one process. A ClientSide for its client connections.

    `pins`: where owners are remembered, else as configured. `clock`: monotonic, in seconds. `standings`: of the pools
    of a process before this one, or beside it. `told`: who passes on what other processes should know of rounds; where
    there is somebody, sessions are told as well, and he decides when a departed member is forgotten.
    """

    def __init__(
        self,
        config: Config,
        *,
        pins: PinStore | None = None,
        clock: Callable[[], float] = time.monotonic,
        standings: Mapping[str, Standing] | None = None,
        told: Callable[[News], None] | None = None,
    ) -> None:
        self.heads = RequestHeadReader(config.wanted_fields)
        limits = config.listen.limits
        self.patience = Patience(head=limits.head, body=limits.body, idle=limits.idle)
        self._most_clients = most_clients(config.listen)
        self._full = False  # as far as the log has told
        self.clients: set[ClientConnection] = set()
        """Those connected now."""
        self.draining = False
        """True once nothing new is accepted."""
        self.background = Background()
        self._config = config
        self._listeners: dict[int, Listener] = {}
        self._left: list[Listener] = []  # closed; what they accepted may still be on its way
        self._no_clients = asyncio.Event()
        self._no_clients.set()
        if pins is None:
            pins = pin_store_of(config.pins, clock=clock, background=self.background)
        self.pins = pins
        self.trusts = trust_of(config.listen)
        self._clock = clock
        self._alone = told is None
        self._server_context = None if config.listen.tls is None else server_context(config.listen.tls)
        self._client_contexts = client_contexts(config.pools.values(), {})
        self.lanes: dict[str, Lane] = {}
        for name, pool in config.pools.items():
            standing = None if standings is None else standings.get(name)
            whole = with_those_of(pool, standing)
            self.lanes[name] = lane_of(
                whole, clock, standing=standing, tells=told is not None, contexts=self._client_contexts
            )
        self.rounds = Rounds(clock, told=told)
        self.searches = Searches(self.background)
        self.pools = {name: lane.pool for name, lane in self.lanes.items()}
        access_log = AccessLog(StandardOutput(), config.log.format, time.time) if config.log.access else None
        self.counts = Counts(
            pools=lambda: self.pools, pins=pins, access_log=access_log, clients=lambda: len(self.clients)
        )
        self._handshakes = Handshakes(failed=self.counts.handshake_failed)
        table = RoutingTable(config.routes)
        self._around = Surroundings(
            directory=Directory(table, self.lanes, pins, self.rounds, clock),
            courses=Courses(table, self.lanes, pins, self.rounds),
            searches=self.searches,
            rounds=self.rounds,
            pins=pins,
            admission=admission_of(config.listen, config.pools.values()),
            counters=self.counts,
            background=self.background,
            clock=clock,
        )

    @property
    def port(self) -> int:
        """The port that clients reach, also where the configuration leaves the choice; 0 before there is one."""
        return next((listener.port for listener in self._listeners.values()), 0)

    def begin_work(self) -> None:
        """Starts what is done beside the requests."""
        self.pins.start()
        if self._most_clients < self._config.listen.limits.connections // 2:
            log.warning("at most %d clients are served, since there are no descriptors for more", self._most_clients)
        self.background.loop("end what has been idle or slow for too long", TICK, self._sweep)
        self.background.loop("tend the pools' fitness", _TEND, self._tend)
        if self._alone:
            self.background.loop("forget departed backends", _FORGET, self._forget_departed)
        if self.counts.access_log is not None:
            self.background.loop("write the access log", _LOG_EVERY, self.counts.access_log.flush)

    def accept_from(self, sockets: Mapping[int, socket.socket]) -> None:
        """Accepts from these listening sockets from now on, known by number, and from no others.

        They stay the caller's: what waits in the queue of one that is left is whoever else's accepts from it.
        """
        for number in self._listeners.keys() - sockets.keys():
            left = self._listeners.pop(number)
            left.close()
            self._left = [*(known for known in self._left if known.arriving), left]
        if self.draining:
            return
        for number in sockets.keys() - self._listeners.keys():
            own = sockets[number].dup()
            self._listeners[number] = Listener(own, self._newcomer, background=self.background, has_room=self._has_room)

    def apply(self, config: Config) -> None:
        """Makes another configuration the one in force: pools, routes, and who is admitted. Streams and pins live on.

        Raises ValueError, and changes nothing, if it differs in what is only read at the start, or if its certificates
        cannot be loaded.
        """
        changed = fixed(self._config, config)
        if changed:
            raise ValueError(f"only a restart can change {', '.join(changed)}")
        # Files are read here, before anything is changed; connections that stand keep what they were made with.
        contexts = client_contexts(config.pools.values(), self._client_contexts)
        if config.listen.tls != self._config.listen.tls:
            self._server_context = None if config.listen.tls is None else server_context(config.listen.tls)
        lanes = {}
        for name, pool in config.pools.items():
            whole = with_those_before(pool, self._config.pools.get(name), self.pools.get(name))
            lanes[name] = lane_of(whole, self._clock, self.lanes.get(name), tells=not self._alone, contexts=contexts)
        self._client_contexts = contexts
        around = self._around
        table = RoutingTable(config.routes)
        around.directory = Directory(table, lanes, self.pins, around.rounds, self._clock)
        around.courses = Courses(table, lanes, self.pins, around.rounds)
        around.admission = admission_of(config.listen, config.pools.values())
        self.heads = RequestHeadReader(config.wanted_fields)
        self.trusts = trust_of(config.listen)
        limits = config.listen.limits
        self.patience.set_limits(head=limits.head, body=limits.body, idle=limits.idle)
        self._most_clients = most_clients(config.listen)
        for lane in self.lanes.values():
            if lane.pool.name not in lanes:
                close_all(lane.connections)
        self.lanes, self._config = lanes, config
        self.pools = {name: lane.pool for name, lane in lanes.items()}

    async def set_found(self, pool: str, found: Sequence[Backend]) -> None:
        """Makes these the discovered members of a pool, if it discovers any."""
        members = await membership(pool, found, lambda: self._config, lambda: self.pools.get(pool))
        if members is not None:
            lane = self.lanes[pool]
            lane.pool.replace(members.pool.backends, ring=members.ring)
            lane.pool.incomplete = False
            connect(members.pool, lane.pool, lane.connections, self._clock, self._client_contexts)

    @property
    def in_force(self) -> list[PoolConfig]:
        """The pools' configurations, with the backends that they have now."""
        return in_force(self._config, self.pools.values())

    async def drain(self) -> None:
        """Accepts no more, lets what is under way finish within the configured time, then closes everything."""
        self.draining = True
        self.accept_from({})
        for listener in self._left:
            await listener.settled()
        await self._handshakes.settled()
        self.background.loop("part with clients", _PART_EVERY, self._part)
        try:
            async with asyncio.timeout(self._config.drain if self.clients else None):
                await self._no_clients.wait()
        except TimeoutError:
            log.warning("%d connections were not done in time", len(self.clients))
            for client in list(self.clients):
                client.abandon(Draining("the proxy is shutting down"))
            try:
                async with asyncio.timeout(_CUT_LIMIT):
                    await self._no_clients.wait()
            except TimeoutError:  # they do not even take the end of what was sent
                for client in list(self.clients):
                    client.abort()
                await self._no_clients.wait()
        for lane in self.lanes.values():
            close_all(lane.connections)
        await self.pins.close()
        await self.background.close()
        if self.counts.access_log is not None:
            self.counts.access_log.close()

    # ---- operators
    def set_draining(self, *, pool: str, backend: str, draining: bool) -> None:
        """Takes a backend out of new work, or back in. Raises LookupError for a pool or backend that is not there."""
        lane = self.lanes.get(pool)
        member = None if lane is None else lane.pool.member(backend)
        if lane is None or member is None:
            raise LookupError(f"no backend {backend!r} in a pool {pool!r}")
        if member.draining is not draining:
            lane.pool.set_draining(member, draining)
            log.info("%s/%s %s", pool, backend, "takes no new work" if draining else "takes new work again")

    async def explain(self, question: Question) -> Explanation:
        """Where such a request would go now, and why; also before `start`. Changes nothing."""
        listen = self._config.listen
        port = self.port or listen.port
        host = listen.allowed_hosts[0] if listen.allowed_hosts else f"{bracketed(listen.host)}:{port}"
        explainer = Explainer(
            heads=self.heads,
            admission=self._around.admission,
            table=self._around.directory.table,
            pools=self.pools,
            pins=self.pins,
            rounds=self.rounds,
            host=host,
            clock=self._clock,
        )
        return await explainer.explain(question)

    def _has_room(self) -> bool:
        """True if one more client may be accepted, be it to be refused."""
        listeners = (*self._listeners.values(), *self._left)
        connected = len(self.clients) + len(self._handshakes) + sum(listener.arriving for listener in listeners)
        return connected < self._most_clients + SURPLUS

    def _newcomer(self) -> asyncio.Protocol:
        """What receives the bytes of a connection that was accepted."""
        context = self._server_context
        return self._connection() if context is None else self._handshakes.newcomer(context, self._connection)

    def _connection(self) -> ClientConnection:
        return ClientConnection(self)

    # ---- ClientSide
    def begin(self, client: ClientConnection, head: RequestHead) -> Exchange:
        exchange = Exchange(self._around, client, head)
        exchange.begin()
        return exchange

    def begin_alike(self, client: ClientConnection, frame: Frame, alike: Alike) -> bool:
        return set_out(self._around, client, frame, alike)

    def refused(self, client: ClientConnection, error: ProxyError) -> None:
        self.counts.refused(client.peer, error.reason, error.status)

    def opened(self, client: ClientConnection) -> None:
        self.clients.add(client)
        self._no_clients.clear()
        if len(self.clients) > self._most_clients:
            client.serve_once()
            if not self._full:
                self._full = True
                log.warning("more than %d clients are connected: those beyond are refused", self._most_clients)
        if self.draining:
            client.retire(Draining("the proxy is shutting down"))

    def closed(self, client: ClientConnection) -> None:
        self.clients.discard(client)
        if not self.clients:
            self._no_clients.set()

    def _part(self) -> None:
        """Again and again while draining: a client's last request may begin a stream without an end."""
        for client in list(self.clients):
            client.retire(Draining("the proxy is shutting down: listen again"))

    async def _sweep(self) -> None:
        now = self._clock()
        self.patience.tick()
        self._full = self._full and len(self.clients) >= self._most_clients
        clients = list(self.clients)
        for first in range(0, len(clients), _TENDED):
            for client in clients[first : first + _TENDED]:
                client.tend(now)
            await asyncio.sleep(0)  # everybody else's turn
        for lane in self.lanes.values():
            admit(lane.pool.queue)
            for connections in lane.connections.values():
                connections.close_idle()

    def _tend(self) -> None:
        now = self._clock()
        for name, pool in self.pools.items():
            for text in news(pool.fitness.tend(now)):
                log.warning("%s/%s", name, text)

    async def _forget_departed(self) -> None:
        """Drops members that left the configuration and have nothing left to serve."""
        departed = [(lane, member) for lane in self.lanes.values() for member in lane.pool.everyone if member.departed]
        if not departed:
            return
        held = await tasks_held(self.pins)
        if held is None:
            return
        for lane, member in departed:
            tasks = held.get((lane.pool.name, member.backend.id), 0)
            if tasks is not None and member.is_done(tasks=tasks, life=self._config.pins.ttl, now=self._clock()):
                lane.pool.forget(member)
