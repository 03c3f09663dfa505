"""Makes the parts of a running proxy from its configuration: pools with their connections, pins, admission, trust."""

import ipaddress
from collections.abc import Callable, Iterable, Mapping

from proxy.background import Background
from proxy.config import Config, Listen, Pins, PoolConfig
from proxy.config.values import LOCAL_HOSTS, Network
from proxy.pins.memory import MemoryPinStore
from proxy.pins.redis import RedisPinStore
from proxy.routing.admission import Admission
from proxy.routing.balancing import BalancingPolicy, LeastInFlight, RoundRobin
from proxy.routing.members import Member
from proxy.routing.pools import Pool, Standing
from proxy.wire.backend import BackendConnections
from proxy.wire.destination import Lane


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
        return Pool(
            pool.name,
            pool.backends,
            policy=_policy(pool),
            ring_key=pool.ring_key,
            owner_tag=pool.owner_tag,
            state=pool.state,
            search=pool.search,
            sticky=pool.sticky,
            listen=pool.listen,
            tells=tells,
        )
    before.configure(
        policy=_policy(pool),
        ring_key=pool.ring_key,
        owner_tag=pool.owner_tag,
        state=pool.state,
        search=pool.search,
        sticky=pool.sticky,
        listen=pool.listen,
    )
    before.replace(pool.backends)
    return before


def lane_of(
    pool: PoolConfig,
    clock: Callable[[], float],
    before: Lane | None = None,
    *,
    standing: Standing | None = None,
    tells: bool = False,
) -> Lane:
    """The lane of a pool; `before` and `tells` as in `pool_of`. `standing`: of the pool in another process."""
    built = pool_of(pool, None if before is None else before.pool, tells=tells)
    if standing is not None:
        built.take_over(standing)
    # The same dict as before: requests under way know their lane, and may be sent to a member that has come since.
    connections: dict[Member, BackendConnections] = {} if before is None else before.connections
    for member in built.everyone:
        host, port = member.backend.host, member.backend.port
        known = connections.get(member)
        if known is not None and (known.host, known.port) == (host, port):
            known.connect_timeout = pool.connect_timeout
            continue
        if known is not None:
            known.close()
        connections[member] = BackendConnections(host, port, connect_timeout=pool.connect_timeout, clock=clock)
    for gone in connections.keys() - set(built.everyone):
        connections.pop(gone).close()
    return Lane(built, connections, own_host=pool.host == "backend", owner_wait=pool.owner_wait)


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
