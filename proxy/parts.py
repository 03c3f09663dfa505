"""Makes the parts of a running proxy from its configuration: pools with their connections, pins, admission, trust."""

import ipaddress
import ssl
from collections.abc import Callable, Iterable, Mapping

from proxy.background import Background
from proxy.certificates import ClientTls, client_context
from proxy.config import Config, Listen, Pins, PoolConfig
from proxy.config.values import LOCAL_HOSTS, Network
from proxy.pins.memory import MemoryPinStore
from proxy.pins.redis import RedisPinStore
from proxy.routing.admission import Admission
from proxy.routing.backends import Backend
from proxy.routing.balancing import BalancingPolicy, LeastInFlight, RoundRobin
from proxy.routing.members import Member
from proxy.routing.pools import Pool, Standing
from proxy.routing.retries import RetryBudget
from proxy.usage import descriptor_limit
from proxy.wire.connections import BackendConnections, BackendTls
from proxy.wire.destination import Lane

SURPLUS = 64
"""Clients beyond the limit that are accepted nevertheless, to be refused."""
_OWN_DESCRIPTORS = 36  # listeners, the admin interface, probes, the workers' channels
_FEWEST_CLIENTS = 16


def fixed(old: Config, new: Config) -> list[str]:
    """The keys that differ and are only read at the start."""
    same = {
        "listen.address": (old.listen.host, old.listen.port) == (new.listen.host, new.listen.port),
        "admin": old.admin == new.admin,
        "workers": old.workers == new.workers,
        "pins": old.pins == new.pins,
        "log": old.log == new.log,
    }
    return [key for key, is_same in same.items() if not is_same]


def pool_of(pool: PoolConfig, before: Pool | None = None, *, tells: bool = False) -> Pool:
    """The pool of a configuration; `before`: the same one under the configuration before, whose state lives on.

    `tells`: as in Pool.
    """
    if before is None:
        built = Pool(
            pool.name,
            pool.backends,
            policy=_policy(pool),
            ring_key=pool.ring_key,
            owner_tag=pool.owner_tag,
            state=pool.state,
            search=pool.search,
            sticky=pool.sticky,
            listen=pool.listen,
            health=pool.health,
            outlier=pool.outlier,
            limits=pool.limits,
            tells=tells,
        )
        built.incomplete = pool.discover is not None and not any(backend.discovered for backend in pool.backends)
        return built
    before.configure(
        policy=_policy(pool),
        ring_key=pool.ring_key,
        owner_tag=pool.owner_tag,
        state=pool.state,
        search=pool.search,
        sticky=pool.sticky,
        listen=pool.listen,
        health=pool.health,
        outlier=pool.outlier,
        limits=pool.limits,
    )
    before.replace(pool.backends)
    before.incomplete = before.incomplete and pool.discover is not None
    return before


def lane_of(
    pool: PoolConfig,
    clock: Callable[[], float],
    before: Lane | None = None,
    *,
    standing: Standing | None = None,
    tells: bool = False,
    contexts: Mapping[ClientTls, ssl.SSLContext],
) -> Lane:
    """The lane of a pool; `before` and `tells` as in `pool_of`. `standing`: of the pool in another process.

    `contexts`: as `client_contexts` gives them.
    """
    built = pool_of(pool, None if before is None else before.pool, tells=tells)
    if standing is not None:
        built.take_over(standing)
    # The same dict as before: requests under way know their lane, and may be sent to a member that has come since.
    connections: dict[Member, BackendConnections] = {} if before is None else before.connections
    connect(pool, built, connections, clock, contexts)
    return Lane(
        built,
        connections,
        own_host=pool.host == "backend",
        owner_wait=pool.owner_wait,
        head_timeout=pool.head_timeout,
        idle_timeout=pool.idle_timeout,
        comment_every=pool.comment_every,
        retry=pool.retry,
        budget=RetryBudget() if before is None else before.budget,
    )


def connect(
    pool: PoolConfig,
    built: Pool,
    connections: dict[Member, BackendConnections],
    clock: Callable[[], float],
    contexts: Mapping[ClientTls, ssl.SSLContext],
) -> None:
    """Makes these the connections of the members there are now."""
    for member in built.everyone:
        host, port = member.backend.host, member.backend.port
        known, tls = connections.get(member), backend_tls(pool, member.backend, contexts)
        if known is not None and (known.host, known.port, known.tls) == (host, port, tls):
            known.connect_timeout = pool.connect_timeout
            continue
        if known is not None:
            known.close()
        connections[member] = BackendConnections(host, port, connect_timeout=pool.connect_timeout, clock=clock, tls=tls)
    for gone in connections.keys() - set(built.everyone):
        connections.pop(gone).close()


def client_contexts(
    pools: Iterable[PoolConfig], before: Mapping[ClientTls, ssl.SSLContext]
) -> dict[ClientTls, ssl.SSLContext]:
    """The contexts in which backends are spoken to; those of `before` as far as they are still right.

    Raises CertificateError.
    """
    wanted = dict.fromkeys(pool.tls for pool in pools if pool.tls is not None)
    return {tls: before.get(tls) or client_context(tls) for tls in wanted}


def backend_tls(pool: PoolConfig, backend: Backend, contexts: Mapping[ClientTls, ssl.SSLContext]) -> BackendTls | None:
    """How this backend is spoken to over TLS, whoever does; None for plain HTTP."""
    if pool.tls is None or not backend.tls:
        return None
    return BackendTls(contexts[pool.tls], pool.tls.server_name or (backend.name or backend.host).removesuffix("."))


def pin_store_of(pins: Pins, *, clock: Callable[[], float], background: Background) -> MemoryPinStore | RedisPinStore:
    """Where owners are remembered. One in Redis wants its `start`, and its `close` before the background's."""
    if pins.url is None:
        return MemoryPinStore(ttl=pins.ttl, capacity=pins.capacity, clock=clock)
    return RedisPinStore(pins.url, ttl=pins.ttl, capacity=pins.capacity, clock=clock, background=background)


def close_all(connections: Mapping[Member, BackendConnections]) -> None:
    """Closes what is idle now, and the rest when it is given back."""
    for known in connections.values():
        known.close()


def _policy(pool: PoolConfig) -> BalancingPolicy:
    return RoundRobin() if pool.balance == "round_robin" else LeastInFlight()


def admission_of(listen: Listen, pools: Iterable[PoolConfig]) -> Admission:
    """The proxy checks Host itself where a backend no longer sees the client's."""
    hosts = listen.allowed_hosts
    if hosts is None and any(pool.host == "backend" for pool in pools):
        hosts = LOCAL_HOSTS
    return Admission(hosts=hosts, origins=listen.allowed_origins)


def most_clients(listen: Listen) -> int:
    """How many clients are served at once: as many as are configured, and as there are descriptors for, two each."""
    most, descriptors = listen.limits.connections, descriptor_limit()
    if descriptors is None or 2 * most + SURPLUS + _OWN_DESCRIPTORS <= descriptors:
        return most
    return min(most, max(_FEWEST_CLIENTS, (descriptors - SURPLUS - _OWN_DESCRIPTORS) // 2))


def trust_of(listen: Listen) -> Callable[[str], bool]:
    """Tells of a client's address whether its word on forwarding counts; asked once for every connection."""
    known: dict[str, bool] = {}

    def trusts(peer: str) -> bool:
        answer = known.get(peer)
        if answer is None:
            if len(known) > 4096:
                known.clear()
            answer = known[peer] = bool(peer) and _is_in(listen.trusted_proxies, peer)
        return answer

    return trusts


def _is_in(networks: Iterable[Network], peer: str) -> bool:
    address = ipaddress.ip_address(peer.partition("%")[0])
    address = getattr(address, "ipv4_mapped", None) or address
    return any(address in network for network in networks)
