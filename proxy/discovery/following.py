"""Follows the sources of all pools with `discover:`: what they find goes to the pools, and how they fare to operators.

Rules:
* What a source fails to tell changes nothing: its pool keeps the last set, and the source is watched anew after a
  pause, which grows with failures in a row.
* What it tells goes through the pool's damping, and to the pool where that makes a difference.
* Whoever has no member yet, and a source that has not answered for less than PATIENCE seconds, keeps the proxy from
  being ready. After that it is ready without: other pools have work to do.
"""

import asyncio
import logging
import random
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from contextlib import aclosing
from dataclasses import fields
from operator import attrgetter
from typing import NamedTuple

from proxy.background import Background
from proxy.config import PoolConfig
from proxy.config.values import DnsRecipe, Recipe
from proxy.discovery.damping import Damping
from proxy.discovery.dns import DnsSource
from proxy.discovery.file import FileSource
from proxy.discovery.source import DiscoveryFailure, DiscoverySource, Found
from proxy.routing.backends import Backend
from proxy.routing.pools import MOST_LISTENERS, Pool
from proxy.snapshot import Snapshot, Values

PATIENCE = 5.0
"""Seconds for which the first answer of a source is waited for."""
_FIRST_PAUSE, _LONGEST_PAUSE = 1.0, 30.0  # seconds after a failure; it doubles from one to the next
_BREATH = 0.001  # seconds from the end of one watch to the next; the pause is made before
_MOST_NAMED = 8  # backends in one line of the log

_values = attrgetter(*(field.name for field in fields(Backend)))  # all of a backend, to compare

log = logging.getLogger("proxy")


def source_of(recipe: Recipe) -> DiscoverySource:
    """The source of a recipe."""
    return DnsSource(recipe) if isinstance(recipe, DnsRecipe) else FileSource(recipe)


class _Watch(NamedTuple):
    following: "_Following"
    task: "asyncio.Task[None]"


class Discovery:
    """Follows sources as long as it is not closed.

    `pools`: those in force; `changed` is told what a pool's discovered members are to be, and returns when they are.
    `clock`: monotonic, in seconds. `chance`: from 0 to 1.
    """

    def __init__(
        self,
        background: Background,
        *,
        pools: Callable[[], Mapping[str, Pool]],
        changed: Callable[[str, Sequence[Backend]], Awaitable[None]],
        clock: Callable[[], float],
        source: Callable[[Recipe], DiscoverySource] = source_of,
        chance: Callable[[], float] = random.random,
    ) -> None:
        self.pools = pools
        self.changed = changed
        self.clock = clock
        self.chance = chance
        self.failures: Counter[Values] = Counter()
        """By pool and reason."""
        self._background = background
        self._source = source
        self._watches: dict[str, _Watch] = {}

    def follow(self, pools: Iterable[PoolConfig]) -> None:
        """Follows the sources of these from now on, and no others. Whose recipe stays is followed on."""
        wanted = {pool.name: pool.discover for pool in pools if pool.discover is not None}
        for name, known in list(self._watches.items()):
            if wanted.get(name) != known.following.recipe:
                known.task.cancel()
                del self._watches[name]
        for name, recipe in wanted.items():
            if name not in self._watches:
                following = _Following(self, name, recipe, self._source(recipe))
                task = self._background.loop(f"discover the backends of {name}", _BREATH, following.step)
                self._watches[name] = _Watch(following, task)
        for values in [values for values in self.failures if values[0] not in wanted]:
            del self.failures[values]

    def close(self) -> None:
        """Follows no more. Idempotent."""
        self.follow(())

    @property
    def awaited(self) -> str | None:
        """Why no requests should come yet, if so."""
        now, pools = self.clock(), self.pools()
        for name, (following, _) in self._watches.items():
            if following.success is None and now - following.begun < PATIENCE and not pools[name].members:
                return f"the backends of pool {name} are not discovered yet"
        return None

    def add_to(self, snapshot: Snapshot) -> None:
        """Adds the numbers of discovery."""
        pools = self.pools()
        for name, (following, _) in self._watches.items():
            discovered = sum(member.backend.discovered for member in pools[name].members) if name in pools else 0
            snapshot.discovered[name,] = discovered
            if following.success is not None:
                snapshot.discovery_success[name,] = following.success
        snapshot.discovery_failures.update(self.failures)

    def told(self) -> dict[str, dict[str, object]]:
        """By pool, how its discovery stands, as values for JSON."""
        return {
            name: {
                "from": following.place,
                "last_success": following.success,
                "failure": following.failure or None,
                "failures_in_a_row": following.row,
                "missing": following.missing,
            }
            for name, (following, _) in self._watches.items()
        }


class _Following:
    """One pool's source, from the first look to the last."""

    def __init__(self, discovery: Discovery, pool: str, recipe: Recipe, source: DiscoverySource) -> None:
        known = discovery.pools().get(pool)
        members = () if known is None else known.members
        self.recipe = recipe
        self.begun = discovery.clock()
        self.success: float | None = None
        """When it answered last, in seconds since 1970."""
        self.failure = ""
        """Why its last look came to nothing."""
        self.row = 0
        """Failures in a row."""
        self._discovery = discovery
        self._pool = pool
        self._source = source
        self._damping = Damping(recipe.hold, (one.backend for one in members if one.backend.discovered))
        self._told: tuple[Backend, ...] | None = None

    @property
    def missing(self) -> list[str]:
        """The ids of those who stay although the last answers are without them."""
        return self._damping.missing

    @property
    def place(self) -> str:
        """Where it looks."""
        recipe = self.recipe
        return f"dns {recipe.name}:{recipe.port}" if isinstance(recipe, DnsRecipe) else f"file {recipe.pattern}"

    async def step(self) -> None:
        """Watches the source until it fails, and makes the pause after that."""
        try:
            async with aclosing(self._source.watch()) as answers:
                async for found in answers:
                    await self._answered(found)
        except DiscoveryFailure as failure:
            self._failed(failure.reason, str(failure))
            pause = min(_LONGEST_PAUSE, _FIRST_PAUSE * 2 ** min(self.row - 1, 8))
            await asyncio.sleep(pause * (0.5 + self._discovery.chance() / 2))

    async def _answered(self, found: Found) -> None:
        believed = self._damping.take(found, self._discovery.clock())
        self.success = time.time()
        if self._damping.doubting:
            self._failed("empty", "nobody is there, which is not believed yet")
        elif self.row:
            log.warning("pool %s: discovery works again; times it failed: %d", self._pool, self.row)
            self.row, self.failure = 0, ""
        if not self._same(believed):
            await self._discovery.changed(self._pool, believed)
            self._tell(believed)
            self._told = believed

    def _failed(self, reason: str, text: str) -> None:
        self.row += 1
        self._discovery.failures[self._pool, reason] += 1
        if text != self.failure:
            self.failure = text
            log.warning("pool %s keeps the backends it has: %s: %s", self._pool, self.place, text)

    def _same(self, believed: Sequence[Backend]) -> bool:
        """True if the pool has been told just this; backends are equal by their ids alone."""
        told = self._told
        if told is None or len(told) != len(believed):
            return False
        return all(one is other or _values(one) == _values(other) for one, other in zip(told, believed, strict=True))

    def _tell(self, believed: Sequence[Backend]) -> None:
        before, now = {one.id for one in self._told or ()}, {one.id for one in believed}
        come, gone = _named(now - before), _named(before - now)
        changes = "; ".join(f"{what} {ids}" for what, ids in (("come:", come), ("gone:", gone)) if ids)
        log.info("pool %s has %d discovered backends%s", self._pool, len(now), changes and f"; {changes}")
        pool = self._discovery.pools().get(self._pool)
        if pool is not None and pool.listen == "all" and len(pool.members) > MOST_LISTENERS:
            log.warning("pool %s: subscriptions are opened at its first %d backends only", self._pool, MOST_LISTENERS)


def _named(ids: Iterable[str]) -> str:
    named = sorted(ids)
    more = len(named) - _MOST_NAMED
    return ", ".join(named[:_MOST_NAMED]) + (f" and {more} more" if more > 0 else "")
