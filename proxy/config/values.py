"""What a checked configuration is: frozen values, every default filled in."""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from ipaddress import IPv4Network, IPv6Network
from typing import Literal

from proxy.routing.backends import Backend
from proxy.routing.pools import ListenRule, RingKey, State
from proxy.routing.routes import Route

Network = IPv4Network | IPv6Network
Balance = Literal["least_in_flight", "round_robin", "ring"]
HostRule = Literal["preserve", "backend"]
LogFormat = Literal["json", "text"]
Store = Literal["memory", "redis"]

DEFAULT_CONNECT_TIMEOUT = 2.0  # seconds
DEFAULT_OWNER_WAIT = 10.0  # seconds
DEFAULT_DRAIN = 25.0  # seconds
MOST_WORKERS = 256  # more processes than a machine has cores only take turns

LOCAL_HOSTS = ("localhost", "127.0.0.1", "[::1]")
"""What a listener on loopback is called by its own machine."""


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


@dataclass(frozen=True, slots=True)
class Admin:
    """Where operators and Prometheus come in. The token is a secret; off loopback there always is one."""

    host: str = "127.0.0.1"
    port: int = 9901
    token: str | None = field(default=None, repr=False)


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
    owner_wait: float = DEFAULT_OWNER_WAIT
    """Seconds to wait for an owner that cannot be reached, and for the answers to a search."""
    state: State = "local"
    search: bool = True
    sticky: bool = True
    """False where `sessions` is off."""
    listen: ListenRule = "one"


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

    @property
    def wanted_fields(self) -> frozenset[bytes]:
        """Lower-case names of the request fields that conditions and ring keys ask for, beside the routing headers."""
        names = {name for route in self.routes for name in route.match.headers}
        names.add("authorization")  # callers are told apart by it
        for pool in self.pools.values():
            if pool.ring_key is not None and pool.ring_key.kind == "header":
                names.add(pool.ring_key.field)
        return frozenset(name.encode("ascii") for name in names)
