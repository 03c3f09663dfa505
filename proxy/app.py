"""The composition root of a proxy in one process: a Config becomes traffic and an admin interface, and both end."""

from collections.abc import Sequence

from proxy.config import Config
from proxy.control.admin import AdminServer, admin_app, serve_admin
from proxy.control.prober import Prober
from proxy.control.reload import Reload, nothing_to_read
from proxy.discovery.following import Discovery
from proxy.explaining import Question
from proxy.metrics import Metrics
from proxy.pins.held import tasks_held
from proxy.routing.backends import Backend
from proxy.routing.telling import Told, told_of
from proxy.snapshot import Snapshot
from proxy.traffic import Traffic
from proxy.version import proxy_version
from proxy.workers.sockets import Endpoints, Given, endpoints_of


class Proxy(Traffic):
    """A proxy of one configuration in this process alone: `start` it, `drain` it."""

    _admin: AdminServer | None = None
    _endpoints: Endpoints | None = None
    _prober: Prober | None = None
    _discovery: Discovery | None = None

    @property
    def admin_port(self) -> int:
        """The port of the admin interface; 0 before `start`."""
        return 0 if self._admin is None else self._admin.port

    @property
    def endpoints(self) -> Endpoints:
        """What it listens on. Raises RuntimeError before `start`."""
        if self._endpoints is None:
            raise RuntimeError("the proxy does not listen yet")
        return self._endpoints

    @property
    def metrics(self) -> Metrics:
        """What a scrape gets."""
        return Metrics(version=proxy_version(), snapshot=self._snapshot, held=lambda: tasks_held(self.pins))

    async def start(self, given: Given | None = None, reload: Reload = nothing_to_read) -> None:
        """Listens, on sockets that are `given` as far as there are any; `reload`: for the admin interface.

        Raises OSError, naming the address.
        """
        config = self._config
        endpoints = await endpoints_of(config, 1, given or Given())
        try:
            app = admin_app(
                metrics=self.metrics,
                pools=lambda: self.pools,
                pins=self.pins,
                refresh=_nothing_to_ask,
                set_draining=self.set_draining,
                explain=self._explain,
                reload=reload,
                clock=self._clock,
                readiness=self._readiness,
                discovery=lambda: {} if self._discovery is None else self._discovery.told(),
                version=proxy_version(),
                token=config.admin.token,
                allowed_hosts=("localhost", "127.0.0.1", "[::1]"),
            )
            self._admin = await serve_admin(app, endpoints.admin)
        except BaseException:
            endpoints.close()
            raise
        self._endpoints = endpoints
        self.accept_from(dict(enumerate(endpoints.clients)))
        self.begin_work()
        self._prober = Prober(
            self.background,
            pools=lambda: self.pools,
            changed=lambda pool, backend, up: None,
            clock=self._clock,
            version=proxy_version(),
        )
        self._prober.watch(self._prober.targets(self.in_force))
        self._discovery = Discovery(
            self.background, pools=lambda: self.pools, changed=self.set_found, clock=self._clock
        )
        self._discovery.follow(config.pools.values())

    def apply(self, config: Config) -> None:
        if self._prober is not None:
            self._prober.targets(config.pools.values())  # its files are read before anything is changed
        super().apply(config)
        self._probe_all()
        if self._discovery is not None:
            self._discovery.follow(config.pools.values())

    async def set_found(self, pool: str, found: Sequence[Backend]) -> None:
        await super().set_found(pool, found)
        self._probe_all()

    async def close_admin(self) -> None:
        """Leaves the admin address to the next generation."""
        if self._admin is not None:
            await self._admin.close()

    async def drain(self) -> None:
        """Accepts no more, lets what is under way finish within the configured time, then closes everything."""
        if self._endpoints is not None:
            self.draining = True
            self.accept_from({})
            for sock in self._endpoints.clients:
                sock.close()
        if self._discovery is not None:
            self._discovery.close()
        if self._prober is not None:
            await self._prober.close()
            self._prober = None
        await super().drain()
        await self.close_admin()

    def _probe_all(self) -> None:
        if self._prober is not None:
            self._prober.watch(self._prober.targets(self.in_force))

    def _snapshot(self) -> Snapshot:
        snapshot = self.counts.snapshot()
        if self._discovery is not None:
            self._discovery.add_to(snapshot)
        return snapshot

    def _readiness(self) -> str | None:
        if self.draining:
            return "draining"
        return None if self._discovery is None else self._discovery.awaited

    async def _explain(self, question: Question) -> Told:
        return told_of(await self.explain(question))


async def _nothing_to_ask() -> None:
    """All that the admin interface tells is of this process."""
