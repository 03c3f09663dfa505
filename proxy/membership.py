"""The backends of pools that discover some of theirs: the configured ones and those that were found.

Rules:
* A configuration names a recipe, and never what it finds. What was found lives in the pool, as members that are marked.
* The configured ones come first, and of two with one id the configured one counts.
* Where a configuration brings another recipe, or the first one, the pool keeps all members it has until that has an
  answer; so does a process that takes over from another.
"""

import asyncio
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from typing import NamedTuple

from proxy.config import Config, PoolConfig
from proxy.routing.backends import Backend
from proxy.routing.pools import Pool, Standing
from proxy.routing.ring import Ring

_AT_ONCE = 50  # units of weight, each some dozens of points: their ring is built in 5 ms


class Membership(NamedTuple):
    """What a pool's members are to be, and the ring for them where it had to be built."""

    pool: PoolConfig
    """With all its backends."""
    ring: Ring | None


def with_found(pool: PoolConfig, found: Iterable[Backend]) -> PoolConfig:
    """The pool with what was found besides, if it discovers backends."""
    if pool.discover is None:
        return pool
    own = {backend.id for backend in pool.backends}
    others = [backend for backend in found if backend.id not in own]
    marked = (backend if backend.discovered else replace(backend, discovered=True) for backend in others)
    return replace(pool, backends=(*pool.backends, *marked))


def with_those_before(pool: PoolConfig, was: PoolConfig | None, before: Pool | None) -> PoolConfig:
    """The pool with what it keeps of another configuration; `was`: that, and `before`: the pool under it."""
    if was is None or before is None:
        return pool
    anew = pool.discover != was.discover
    return with_found(pool, [one.backend for one in before.members if anew or one.backend.discovered])


def with_those_of(pool: PoolConfig, standing: Standing | None) -> PoolConfig:
    """The pool with what it keeps of a process before this one, or beside it."""
    return pool if standing is None else with_found(pool, standing.members)


def in_force(config: Config, pools: Iterable[Pool]) -> list[PoolConfig]:
    """The configurations of these pools, with all backends that they have now."""
    return [
        replace(config.pools[pool.name], backends=tuple(member.backend for member in pool.members))
        for pool in pools
        if pool.name in config.pools
    ]


async def membership(
    pool: str, found: Sequence[Backend], config: Callable[[], Config], built: Callable[[], Pool | None]
) -> Membership | None:
    """What the members of a pool are to be, now that these were found; None if it discovers none any more.

    A large ring is built in a thread, and whatever configuration has come meanwhile counts: `config` and `built` give
    the one in force, and the pool. They are as they were told when this returns.
    """
    while True:
        known, now = config().pools.get(pool), built()
        if known is None or known.discover is None or now is None:
            return None
        whole = with_found(known, found)
        weights = {backend.id: backend.weight for backend in whole.backends}
        if now.spreads(whole.backends) or sum(weights.values()) <= _AT_ONCE:
            return Membership(whole, None)
        ring = await asyncio.to_thread(Ring, weights)
        if config().pools.get(pool) is known and built() is now:
            return Membership(whole, ring)
