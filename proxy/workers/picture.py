"""What a supervisor knows of all its workers together: their pools, whose tasks are whose, and their numbers.

Rules:
* Its pools have no connections. Drains and departures are decided on them; sessions and tasks under way are the union
  of what the workers tell.
* With pins in memory there is a ledger: every task that a worker tells of, by digest. Tasks held are counted in it, and
  a worker that does not know a task's owner asks it. With a shared store that one is asked.
* Numbers of the living are those they told last; of the dead, what lasts.
"""

import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from proxy.background import Background
from proxy.config import Config, PoolConfig
from proxy.counts import Counts
from proxy.membership import in_force, membership, with_those_before, with_those_of
from proxy.parts import pin_store_of, pool_of
from proxy.pins.held import Held
from proxy.pins.memory import MemoryPinStore
from proxy.pins.store import PinStore
from proxy.routing.backends import Backend
from proxy.routing.members import Member
from proxy.routing.ownership import PinKey
from proxy.routing.pools import Pool, Standing
from proxy.snapshot import Snapshot
from proxy.workers.hands import Hand


class Picture:
    """The picture for one configuration. `hands` are always those that have told something and are not dead."""

    def __init__(self, config: Config, standings: Mapping[str, Standing] | None, background: Background) -> None:
        self._config = config
        self.pools: dict[str, Pool] = {}
        for name, pool in config.pools.items():
            standing = None if standings is None else standings.get(name)
            built = self.pools[name] = pool_of(with_those_of(pool, standing))
            if standing is not None:
                built.take_over(standing)
        self.pins: PinStore = pin_store_of(
            replace(config.pins, capacity=config.pins.capacity * config.workers),
            clock=time.monotonic,
            background=background,
        )
        """The store that all share, or the ledger."""
        self.counts = Counts(pools=dict, pins=self.pins)
        """The supervisor's own."""
        self._ledger = self.pins if isinstance(self.pins, MemoryPinStore) else None
        self._life = config.pins.ttl
        self._dead = Snapshot()

    def apply(self, config: Config) -> None:
        """Another configuration is in force."""
        pools = {}
        for name, pool in config.pools.items():
            before = self.pools.get(name)
            pools[name] = pool_of(with_those_before(pool, self._config.pools.get(name), before), before)
        self.pools, self._config = pools, config

    async def set_found(self, pool: str, found: Sequence[Backend]) -> bool:
        """These are the discovered members of a pool now. False, and nothing is changed, if it discovers none."""
        members = await membership(pool, found, lambda: self._config, lambda: self.pools.get(pool))
        if members is not None:
            self.pools[pool].replace(members.pool.backends, ring=members.ring)
            self.pools[pool].incomplete = False
        return members is not None

    @property
    def in_force(self) -> list[PoolConfig]:
        """The pools' configurations, with the backends that they have now."""
        return in_force(self._config, self.pools.values())

    def member(self, pool: str, backend: str) -> tuple[Pool, Member]:
        """Raises LookupError for one that is not there."""
        known = self.pools.get(pool)
        member = None if known is None else known.member(backend)
        if known is None or member is None:
            raise LookupError(f"no backend {backend!r} in a pool {pool!r}")
        return known, member

    # ---- what workers tell
    def note_sessions(self, sessions: Iterable[Any]) -> None:
        """Sessions that were asked for, or ended: [pool, backend, [[digest, used], …]] each."""
        for pool, backend, changes in sessions:
            member = self.pools[pool].member(backend) if pool in self.pools else None
            if member is not None:
                for digest, used in changes:
                    member.session_told(bytes.fromhex(digest), used)

    def note_tasks(self, tasks: Iterable[Any]) -> None:
        """What became of tasks: [key, pool, backend, ttl, made, finished] each, `made` being when it was told."""
        ledger = self._ledger
        if ledger is None:
            return
        now = time.monotonic()
        for digest, pool, backend, ttl, made, finished in tasks:
            key = PinKey(bytes.fromhex(digest))
            left = None if ttl is None else max(0.0, ttl - (now - made))
            ledger.put(key, pool, backend, ttl=left, replace=True)
            if finished:
                ledger.finish(key)

    def owner(self, digest: str) -> tuple[str | None, str | None]:
        """The pool and the id of the backend that has a task, as far as workers have told.

        The pool is None once the task has ended, both for a task that is not known.
        """
        key = PinKey(bytes.fromhex(digest))
        pin = None if self._ledger is None else self._ledger.get(key)
        if pin is None or self._ledger is None:
            return None, None
        holder = self._ledger.holder(key)
        return None if holder is None else holder[0], pin.backend

    def bury(self, hand: Hand) -> None:
        """This worker is dead."""
        self._dead.add(hand.snapshot.lasting())

    # ---- what they amount to
    def snapshot(self, hands: Iterable[Hand], *, restarts: int) -> Snapshot:
        """All numbers, those of dead workers and our own included. `restarts`: of workers that died."""
        backends = {(pool.name, member.backend.id) for pool in self.pools.values() for member in pool.everyone}
        self._dead.keep(backends)
        snapshot = _sum(hands)
        snapshot.add(self._dead)
        own = self.counts.snapshot()
        for family in (own.pins, own.workers, own.evicted):  # the ledger's, which are the workers'
            family.clear()
        snapshot.add(own)
        snapshot.restarts[()] = restarts
        return snapshot

    def refresh(self, hands: Iterable[Hand]) -> None:
        """Brings up to date what is under way at the members, when they were last used, and who is ejected."""
        hands = list(hands)
        in_flight = _sum(hands).in_flight
        for pool in self.pools.values():
            for member in pool.everyone:
                key = pool.name, member.backend.id
                member.in_flight = int(in_flight[key])
                member.last_used = max([member.last_used, *(hand.departed.get(key, 0.0) for hand in hands)])
                member.conduct.told([hand.ejected[key] for hand in hands if key in hand.ejected])

    @property
    def has_departed(self) -> bool:
        """True if there are members that departed."""
        return any(member.departed for pool in self.pools.values() for member in pool.everyone)

    def forget_done(self, hands: Iterable[Hand], held: Held | None, *, changes: int) -> list[tuple[str, str]]:
        """Forgets the members that have nothing left to serve, or that a worker found gone; (pool, backend id) of each.

        `changes` of the configuration: what a worker has not seen all of, it may not know.
        """
        forgotten = []
        hands = list(hands)
        self.refresh(hands)
        for pool in self.pools.values():
            for member in pool.everyone:
                key = pool.name, member.backend.id
                if not member.departed:
                    continue
                gone = any(key not in hand.departed for hand in hands if hand.changes == changes)
                tasks = None if held is None else held.get(key, 0)
                done = tasks is not None and member.is_done(tasks=tasks, life=self._life, now=time.monotonic())
                if gone or done:
                    pool.forget(member)
                    forgotten.append(key)
        return forgotten


def _sum(hands: Iterable[Hand]) -> Snapshot:
    living = Snapshot()
    for hand in hands:
        living.add(hand.snapshot)
    return living
