"""The composition root: a Config becomes a running proxy, and ends as one.

Here every part meets its neighbours: pools and routes from the configuration, pins, metrics and access log, listener
and admin interface. `serve` adds the signals of a process.
"""

import asyncio
import logging
import signal
import time
from collections.abc import Callable
from importlib.metadata import PackageNotFoundError, version

from proxy.access_log import AccessLog, StandardOutput
from proxy.background import Background
from proxy.config import Config, ConfigError
from proxy.config.addresses import bracketed
from proxy.control.admin import AdminServer, admin_app, serve_admin
from proxy.explaining import Explainer, Question
from proxy.metrics import Metrics
from proxy.parts import admission_of, close_all, lane_of, trust_of
from proxy.pins.memory import MemoryPinStore
from proxy.pins.store import PinStore
from proxy.records import RequestRecord, refusal
from proxy.routing.errors import Draining, ProxyError
from proxy.routing.explanation import Explanation
from proxy.routing.members import RECENT
from proxy.routing.rounds import Rounds
from proxy.routing.routes import RoutingTable
from proxy.wire.client import ClientConnection
from proxy.wire.destination import Directory, Lane
from proxy.wire.exchange import Exchange
from proxy.wire.listener import Listener, bind
from proxy.wire.request_head import RequestHead, RequestHeadReader
from proxy.wire.search import Searches
from proxy.wire.surroundings import Surroundings

_CUT_LIMIT = 1.0  # seconds for clients to take what was sent when the drain is over
_SWEEP = 0.5  # seconds between looks at idle backend connections
_LOG_EVERY = 0.1  # seconds a line of the access log may wait

log = logging.getLogger("proxy")


def proxy_version() -> str:
    """The installed version of this distribution."""
    try:
        return version("mcp-routing-proxy")
    except PackageNotFoundError:  # run from a checkout that was never installed
        return "unknown"


class Counts(Metrics):
    """The metrics, with every record told to the access log as well."""

    access_log: AccessLog | None = None

    def record(self, record: RequestRecord) -> None:
        super().record(record)
        if self.access_log is not None:
            self.access_log.record(record)

    def refused(self, client: str, reason: str, status: int) -> None:
        """A request whose head was not understood was answered: counted, and logged with what is known of it."""
        self.rejected(reason, status)
        if self.access_log is not None:
            self.access_log.record(refusal(client, reason, status))


class Proxy:
    """A proxy of one configuration: `start` it, `drain` it. A ClientSide for its client connections.

    `pins`: where owners are remembered, else as configured. `clock`: monotonic, in seconds.
    """

    def __init__(
        self, config: Config, *, pins: PinStore | None = None, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self.heads = RequestHeadReader(config.wanted_fields)
        self._config = config
        self.clients: set[ClientConnection] = set()
        """Those connected now."""
        self._background = Background()
        self._listener: Listener | None = None
        self._admin: AdminServer | None = None
        self._draining = False
        self._no_clients = asyncio.Event()
        self._no_clients.set()
        if pins is None:
            pins = MemoryPinStore(ttl=config.pins.ttl, capacity=config.pins.capacity, clock=clock)
        self._pins = pins
        self.trusts = trust_of(config.listen)
        self._clock = clock
        self.lanes: dict[str, Lane] = {name: lane_of(pool, clock) for name, pool in config.pools.items()}
        rounds = Rounds(clock)
        self.searches = Searches(self._background)
        self.pools = {name: lane.pool for name, lane in self.lanes.items()}
        self.counts = Counts(version=proxy_version(), pools=lambda: self.pools, pins=lambda: pins)
        if config.log.access:
            self.counts.access_log = AccessLog(StandardOutput(), config.log.format, time.time)
        self._around = Surroundings(
            directory=Directory(RoutingTable(config.routes), self.lanes, pins, rounds),
            searches=self.searches,
            rounds=rounds,
            pins=pins,
            admission=admission_of(config.listen, config.pools.values()),
            counters=self.counts,
            background=self._background,
            clock=clock,
        )

    @property
    def port(self) -> int:
        """The port that clients reach, also where the configuration leaves the choice; 0 before `start`."""
        return 0 if self._listener is None else self._listener.port

    @property
    def admin_port(self) -> int:
        """The port of the admin interface; 0 before `start`."""
        return 0 if self._admin is None else self._admin.port

    async def start(self) -> None:
        """Listens. Raises OSError, naming the address, when it cannot."""
        listen, admin = self._config.listen, self._config.admin
        sock = bind(listen.host, listen.port)
        try:
            app = admin_app(
                metrics=self.counts,
                pools=lambda: self.pools,
                pins=self._pins,
                set_draining=self.set_draining,
                explain=self.explain,
                clock=self._clock,
                readiness=lambda: "draining" if self._draining else None,
                version=proxy_version(),
                token=admin.token,
                allowed_hosts=("localhost", "127.0.0.1", "[::1]"),
            )
            self._admin = await serve_admin(app, admin.host, admin.port)
        except BaseException:
            sock.close()
            raise
        self._listener = Listener(sock, lambda: ClientConnection(self), background=self._background)
        self._background.loop("close idle backend connections", _SWEEP, self._sweep)
        if self.counts.access_log is not None:
            self._background.loop("write the access log", _LOG_EVERY, self.counts.access_log.flush)

    def apply(self, config: Config) -> None:
        """Makes another configuration the one in force: pools, routes, and who is admitted. Streams and pins live on.

        Raises ValueError, and changes nothing, if it differs in what is only read at the start.
        """
        old, new = self._config, config
        fixed = {
            "listen.address": (old.listen.host, old.listen.port) == (new.listen.host, new.listen.port),
            "admin": old.admin == new.admin,
            "pins": old.pins == new.pins,
            "log": old.log == new.log,
        }
        changed = [key for key, same in fixed.items() if not same]
        if changed:
            raise ValueError(f"only a restart can change {', '.join(changed)}")
        lanes = {name: lane_of(pool, self._clock, self.lanes.get(name)) for name, pool in config.pools.items()}
        around = self._around
        around.directory = Directory(RoutingTable(config.routes), lanes, self._pins, around.rounds)
        around.admission = admission_of(config.listen, config.pools.values())
        self.heads = RequestHeadReader(config.wanted_fields)
        self.trusts = trust_of(config.listen)
        for lane in self.lanes.values():
            if lane.pool.name not in lanes:
                close_all(lane.connections)
        self.lanes, self._config = lanes, config
        self.pools = {name: lane.pool for name, lane in lanes.items()}

    async def drain(self) -> None:
        """Accepts no more, lets what is under way finish within the configured time, then closes everything."""
        self._draining = True
        if self._listener is not None:
            self._listener.close()
        for client in list(self.clients):
            client.retire()
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
        if self._admin is not None:
            await self._admin.close()
        await self._background.close()
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
            pins=self._pins,
            rounds=self._around.rounds,
            host=host,
        )
        return await explainer.explain(question)

    # ---- ClientSide
    def begin(self, client: ClientConnection, head: RequestHead) -> Exchange:
        exchange = Exchange(self._around, client, head)
        exchange.begin()
        return exchange

    def refused(self, client: ClientConnection, error: ProxyError) -> None:
        self.counts.refused(client.peer, error.reason, error.status)

    def opened(self, client: ClientConnection) -> None:
        self.clients.add(client)
        self._no_clients.clear()
        if self._draining:
            client.retire()

    def closed(self, client: ClientConnection) -> None:
        self.clients.discard(client)
        if not self.clients:
            self._no_clients.set()

    def _sweep(self) -> None:
        for client in list(self.clients):
            client.notice_departure()
        for lane in self.lanes.values():
            for connections in lane.connections.values():
                connections.close_idle()
            if len(lane.pool.everyone) > len(lane.pool.members):
                self._forget_departed(lane)

    def _forget_departed(self, lane: Lane) -> None:
        """Drops members that left the configuration and have nothing left to serve.

        A pin lives its ttl from the last answer about its task, so after as long without a request none is left.
        """
        now, held = self._clock(), self._pins.held()
        if isinstance(held, asyncio.Future):
            return
        for member in lane.pool.everyone:
            quiet = now - member.last_used > max(RECENT, self._config.pins.ttl)
            owns = held.get((lane.pool.name, member.backend.id)) or member.recent_sessions(now) or member.in_flight
            if member.departed and quiet and not owns:
                lane.pool.forget(member)


async def serve(config: Config, reload: Callable[[], Config]) -> None:
    """Serves until SIGTERM or SIGINT, then drains; at SIGHUP, what `reload` returns is put in force.

    `reload` raises ConfigError for a configuration that is refused: the one before stays. Raises OSError when the proxy
    cannot listen.
    """
    proxy = Proxy(config)
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop.set)
    await proxy.start()
    loop.add_signal_handler(signal.SIGHUP, _reload, proxy, reload)
    log.info(
        "serving on %s port %d, admin on %s port %d",
        config.listen.host,
        proxy.port,
        config.admin.host,
        proxy.admin_port,
    )
    await stop.wait()
    log.info("draining, at most %g s", config.drain)
    await proxy.drain()


def _reload(proxy: Proxy, reload: Callable[[], Config]) -> None:
    try:
        proxy.apply(reload())
    except (ConfigError, ValueError) as error:
        proxy.counts.reloaded(ok=False)
        log.error("the new configuration is refused, the one before stays in force:\n%s", error)
    else:
        proxy.counts.reloaded(ok=True)
        log.info("the new configuration is in force")
