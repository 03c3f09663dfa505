"""The composition root: a Config becomes a running proxy, and ends as one.

Here every part meets its neighbours: pools and routes from the configuration, pins, metrics and access log, listener
and admin interface. `serve` adds the signals of a process.
"""

import asyncio
import ipaddress
import logging
import signal
import time
from collections.abc import Callable, Iterable
from importlib.metadata import PackageNotFoundError, version

from proxy.access_log import AccessLog, standard_output
from proxy.background import Background
from proxy.config import Config, Listen, PoolConfig
from proxy.config.values import LOCAL_HOSTS
from proxy.control.admin import AdminServer, admin_app, serve_admin
from proxy.metrics import Metrics
from proxy.pins.memory import MemoryPinStore
from proxy.pins.store import PinStore
from proxy.records import RequestRecord
from proxy.routing.admission import Admission
from proxy.routing.balancing import BalancingPolicy, LeastInFlight, RoundRobin
from proxy.routing.errors import ProxyError
from proxy.routing.pools import Pool
from proxy.routing.routes import RoutingTable
from proxy.wire.backend import BackendConnections
from proxy.wire.client import ClientConnection
from proxy.wire.destination import Directory, Lane
from proxy.wire.exchange import Exchange, Surroundings
from proxy.wire.listener import Listener, bind
from proxy.wire.request_head import RequestHead, RequestHeadReader

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


class Proxy:
    """A proxy of one configuration: `start` it, `drain` it. A ClientSide for its client connections.

    `pins`: where owners are remembered, else as configured. `clock`: monotonic, in seconds.
    """

    def __init__(
        self, config: Config, *, pins: PinStore | None = None, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self.heads = RequestHeadReader(config.wanted_fields)
        self._config = config
        self._clients: set[ClientConnection] = set()
        self._background = Background()
        self._listener: Listener | None = None
        self._admin: AdminServer | None = None
        self._draining = False
        self._no_clients = asyncio.Event()
        self._no_clients.set()
        if pins is None:
            pins = MemoryPinStore(ttl=config.pins.ttl, capacity=config.pins.capacity, clock=clock)
        self._pins = pins
        self.trusts = _trust(config.listen)
        self._lanes = lanes = {name: _lane(pool, clock) for name, pool in config.pools.items()}
        self._pools = {name: lane.pool for name, lane in lanes.items()}
        self.counts = Counts(version=proxy_version(), pools=lambda: self._pools, pins=lambda: pins)
        if config.log.access:
            self.counts.access_log = AccessLog(standard_output(), config.log.format, time.time)
        self._around = Surroundings(
            directory=Directory(RoutingTable(config.routes), lanes, pins),
            pins=pins,
            admission=_admission(config.listen, config.pools.values()),
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
                pools=lambda: self._pools,
                pins=self._pins,
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

    async def drain(self) -> None:
        """Accepts no more, lets what is under way finish within the configured time, then closes everything."""
        self._draining = True
        if self._listener is not None:
            self._listener.close()
        for client in list(self._clients):
            client.retire()
        try:
            async with asyncio.timeout(self._config.drain if self._clients else None):
                await self._no_clients.wait()
        except TimeoutError:
            log.warning("%d connections were not done in time", len(self._clients))
            for client in list(self._clients):
                client.hang_up()
            await self._no_clients.wait()
        for lane in self._lanes.values():
            for connections in lane.connections.values():
                connections.close()
        if self._admin is not None:
            await self._admin.close()
        await self._background.close()
        if self.counts.access_log is not None:
            self.counts.access_log.close()

    # ---- ClientSide
    def begin(self, client: ClientConnection, head: RequestHead) -> Exchange:
        exchange = Exchange(self._around, client, head)
        exchange.begin()
        return exchange

    def refused(self, error: ProxyError) -> None:
        self.counts.rejected(error.reason, error.status)

    def opened(self, client: ClientConnection) -> None:
        self._clients.add(client)
        self._no_clients.clear()
        if self._draining:
            client.retire()

    def closed(self, client: ClientConnection) -> None:
        self._clients.discard(client)
        if not self._clients:
            self._no_clients.set()

    def _sweep(self) -> None:
        for lane in self._lanes.values():
            for connections in lane.connections.values():
                connections.close_idle()


async def serve(config: Config) -> None:
    """Serves until SIGTERM or SIGINT, then drains. Raises OSError when it cannot listen."""
    proxy = Proxy(config)
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop.set)
    await proxy.start()
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


def _lane(pool: PoolConfig, clock: Callable[[], float]) -> Lane:
    built = Pool(
        pool.name,
        pool.backends,
        policy=_policy(pool),
        ring_key=pool.ring_key,
        owner_tag=pool.owner_tag,
    )
    connections = {
        member: BackendConnections(
            member.backend.host, member.backend.port, connect_timeout=pool.connect_timeout, clock=clock
        )
        for member in built.members
    }
    return Lane(built, connections, own_host=pool.host == "backend")


def _policy(pool: PoolConfig) -> BalancingPolicy:
    return RoundRobin() if pool.balance == "round_robin" else LeastInFlight()


def _admission(listen: Listen, pools: Iterable[PoolConfig]) -> Admission:
    """The proxy checks Host itself where a backend no longer sees the client's."""
    hosts = listen.allowed_hosts
    if hosts is None and any(pool.host == "backend" for pool in pools):
        hosts = LOCAL_HOSTS
    return Admission(hosts=hosts, origins=listen.allowed_origins)


def _trust(listen: Listen) -> Callable[[str], bool]:
    known: dict[str, bool] = {}

    def trusts(peer: str) -> bool:
        answer = known.get(peer)
        if answer is None:
            if len(known) > 4096:
                known.clear()
            address = ipaddress.ip_address(peer.partition("%")[0]) if peer else None
            mapped = getattr(address, "ipv4_mapped", None)
            answer = known[peer] = any((mapped or address) in network for network in listen.trusted_proxies)
        return answer

    return trusts
