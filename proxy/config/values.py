"""What a checked configuration is: frozen values, every default filled in."""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from ipaddress import IPv4Network, IPv6Network
from pathlib import Path
from typing import Literal

from proxy.certificates import ClientTls, ServerTls
from proxy.routing.backends import Backend
from proxy.routing.health import Health
from proxy.routing.outliers import USUAL, OutlierRule
from proxy.routing.pools import ListenRule, RingKey, State
from proxy.routing.queueing import USUAL_LIMITS, Limits
from proxy.routing.retries import ONE_REPEAT, RetryRule
from proxy.routing.routes import Route

Network = IPv4Network | IPv6Network
Balance = Literal["least_in_flight", "round_robin", "ring"]
HostRule = Literal["preserve", "backend"]
LogFormat = Literal["json", "text"]
Store = Literal["memory", "redis"]

DEFAULT_CONNECT_TIMEOUT = 2.0  # seconds
DEFAULT_HEAD_TIMEOUT = 600.0  # seconds; tools take minutes
DEFAULT_IDLE_TIMEOUT = 3600.0  # seconds
DEFAULT_OWNER_WAIT = 10.0  # seconds
DEFAULT_DRAIN = 25.0  # seconds
DEFAULT_HOLD = 10.0  # seconds
MOST_WORKERS = 256  # more processes than a machine has cores only take turns

LOCAL_HOSTS = ("localhost", "127.0.0.1", "[::1]")
"""What a listener on loopback is called by its own machine."""


@dataclass(frozen=True, slots=True)
class ClientLimits:
    """What clients may take of one process, and how slow they may be. Times in seconds."""

    connections: int = 10_000
    head: float = 10.0
    """From the first byte of a request's head to its last."""
    body: float = 30.0
    """In which nothing comes of a body that is still to come."""
    idle: float = 75.0
    """Of a connection without a request; longer than the 60 of common load balancers in front."""


@dataclass(frozen=True, slots=True)
class Listen:
    """Where clients come in. `host` has no brackets; port 0 takes a free one."""

    host: str = "127.0.0.1"
    port: int = 8080
    allowed_hosts: tuple[str, ...] | None = None
    """Host fields that are served: lower case; without a port any port is meant. None: not checked."""
    allowed_origins: tuple[str, ...] | None = None
    """Origin fields that are served, lower case and without a default port. None: not checked."""
    trusted_proxies: tuple[Network, ...] = ()
    """Peers whose X-Forwarded-* fields are continued instead of replaced."""
    tls: ServerTls | None = None
    """None: clients speak plain HTTP."""
    limits: ClientLimits = ClientLimits()


@dataclass(frozen=True, slots=True)
class Admin:
    """Where operators and Prometheus come in. The token is a secret; off loopback there always is one."""

    host: str = "127.0.0.1"
    port: int = 9901
    token: str | None = field(default=None, repr=False)


@dataclass(frozen=True, slots=True)
class DnsRecipe:
    """Backends are all addresses of a name, at one port."""

    name: str
    port: int
    path: str = "/mcp"
    tls: bool = False
    hold: float = DEFAULT_HOLD
    """Seconds for which an address that is missing from answers is kept."""
    resolver: tuple[str, int] | None = None
    """Address and port of who is asked; None: whom the system asks."""


@dataclass(frozen=True, slots=True)
class FileRecipe:
    """Backends are the targets that files list, in Prometheus's format."""

    pattern: Path
    """Of the files; its last part may be a glob."""
    path: str = "/mcp"
    tls: bool = False
    hold: float = DEFAULT_HOLD
    """As above."""


Recipe = DnsRecipe | FileRecipe
"""How backends are discovered."""


@dataclass(frozen=True, slots=True)
class PoolConfig:
    """A pool as configured. `backends` keep their order; `connect_timeout` is in seconds."""

    name: str
    backends: tuple[Backend, ...]
    balance: Balance = "least_in_flight"
    ring_key: RingKey | None = None
    """Given exactly where `balance` is ring."""
    owner_tag: re.Pattern[str] | None = None
    """Its group `backend` names the owner where it matches the start of a task id."""
    host: HostRule = "preserve"
    connect_timeout: float = DEFAULT_CONNECT_TIMEOUT
    head_timeout: float = DEFAULT_HEAD_TIMEOUT
    """Seconds from a request's last byte to the head of its response."""
    idle_timeout: float = DEFAULT_IDLE_TIMEOUT
    """Seconds in which nothing passes, either way, of a request or response that is under way."""
    owner_wait: float = DEFAULT_OWNER_WAIT
    """Seconds to wait for an owner that cannot be reached, and for the answers to a search."""
    state: State = "local"
    search: bool = True
    sticky: bool = True
    """False where `sessions` is off."""
    listen: ListenRule = "one"
    retry: RetryRule = ONE_REPEAT
    comment_every: float | None = None
    """Seconds without a byte after which an event stream gets a comment; None: never."""
    tls: ClientTls | None = None
    """How those backends are spoken to that have https URLs; None where there are none."""
    health: Health | None = None
    """None: backends are not probed."""
    outlier: OutlierRule | None = USUAL
    """None: backends are not ejected."""
    limits: Limits = USUAL_LIMITS
    discover: Recipe | None = None
    """Where more backends come from; None: there are no more."""


@dataclass(frozen=True, slots=True)
class Pins:
    """Where pins are, how long one lives at least, in seconds, and how many this process may know."""

    ttl: float = 86_400.0
    capacity: int = 1_000_000
    store: Store = "memory"
    url: str | None = field(default=None, repr=False)
    """Of the store redis, and only there; with the password."""


@dataclass(frozen=True, slots=True)
class Log:
    """What is logged, and how. `access`: a line for every request."""

    access: bool = True
    format: LogFormat = "json"


@dataclass(frozen=True, slots=True)
class Config:
    """A whole configuration, checked. `drain`: seconds that requests under way may take after SIGTERM."""

    listen: Listen
    admin: Admin
    pools: Mapping[str, PoolConfig]
    routes: tuple[Route, ...]
    pins: Pins = Pins()
    log: Log = Log()
    workers: int = 1
    """Processes that share the port."""
    drain: float = DEFAULT_DRAIN
    warnings: tuple[str, ...] = field(default=(), compare=False)
    """What is no mistake and an operator should know."""

    @property
    def files(self) -> tuple[Path, ...]:
        """The files that it was made from, beside its own."""
        used = [self.listen.tls, *(pool.tls for pool in self.pools.values())]
        return tuple(dict.fromkeys(path for tls in used if tls is not None for path in tls.files.values()))

    @property
    def wanted_fields(self) -> frozenset[bytes]:
        """Lower-case names of the request fields that conditions and ring keys ask for, beside the routing headers."""
        names = {name for route in self.routes for name in route.match.headers}
        names.add("authorization")  # callers are told apart by it
        for pool in self.pools.values():
            if pool.ring_key is not None and pool.ring_key.kind == "header":
                names.add(pool.ring_key.field)
        return frozenset(name.encode("ascii") for name in names)
