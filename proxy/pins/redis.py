"""Pins in a Redis, or Valkey, that several proxies share.

What this process knows is answered at once; the rest is asked for. That an owner is new is told before the answer
comes; that a task lives or has ended is told behind the scenes, and now and then. While Redis is down, what is known
here still serves, and what was to be told is kept and told when Redis is back. The bound on all pins is Redis's own
`maxmemory`, with a policy that drops only keys that expire; `capacity` bounds what one process knows.
"""

import asyncio
from collections.abc import Callable, Mapping
from typing import TypeVar

from proxy.background import Background
from proxy.pins.redis_cache import Known, KnownPins
from proxy.pins.redis_scripts import (
    INFO,
    Holder,
    Mode,
    counting,
    counts_in,
    forgetting,
    holder_in,
    reading,
    settling,
)
from proxy.pins.redis_writer import RedisWriter
from proxy.pins.store import Answer, Pin, PinStoreError
from proxy.routing.ownership import PinKey

T = TypeVar("T")


class RedisPinStore:
    """A PinStore for several processes. `ttl` in seconds, `capacity` in pins, `clock` a monotonic clock in seconds.

    It connects at the first use, or at `start`, and never waits for that. Raises ValueError for a URL that is none of
    Redis.
    """

    def __init__(
        self, url: str, *, ttl: float, capacity: int, clock: Callable[[], float], background: Background
    ) -> None:
        self._ttl = ttl
        self._clock = clock
        self._known = KnownPins(capacity=capacity)
        self._writer = RedisWriter(url, self._known, clock=clock, background=background)
        self._link = self._writer.link

    def __len__(self) -> int:
        """Pins known to this process."""
        return len(self._known)

    @property
    def up(self) -> bool:
        """False while Redis is known to be down: from a failure until it answers again."""
        return self._link.up

    @property
    def evicted(self) -> int:
        """Keys that Redis dropped for want of room, its other users' included, since this process first met it."""
        return self._writer.room.evicted

    @property
    def stores_at_once(self) -> bool:
        return False

    @property
    def unwritten(self) -> int:
        """Pins of which Redis has yet to be told something, since it was down or refused."""
        return self._known.unwritten

    def start(self) -> None:
        """Connects, behind the scenes."""
        self._link.start()

    async def close(self) -> None:
        """Waits shortly for what was sent, and ends the connection. Idempotent."""
        await self._link.close()

    # ---- PinStore
    def get(self, key: PinKey) -> Answer[Pin | None]:
        return self._find(key, use=True)

    def fresh(self, key: PinKey) -> tuple[Pin, float | None] | None:
        now = self._clock()
        known = self._known.look_up(key, now)
        if known is None or known.told is None or now >= known.stale or not self._known.is_current(key, known, now):
            return None  # as where Redis lost it: whoever hears of the task tells it again
        return known.pin, known.ttl

    def peek(self, key: PinKey) -> Answer[Pin | None]:
        return self._find(key, use=False)

    def put(self, key: PinKey, pool: str, backend: str, *, ttl: float | None, replace: bool = False) -> Answer[str]:
        now, holder = self._clock(), (pool, backend)
        before = self._known.look_up(key, now)
        made = self._known.make(holder, expires=now, held=None)
        made.renew(now, life=self._life(ttl), ttl=ttl)
        made.over = before is not None and before.holder == holder and before.over
        mode = Mode.REPLACE if replace else Mode.CLAIM
        answer: asyncio.Future[str] = asyncio.get_running_loop().create_future()

        def done(reply: object) -> None:
            owner = holder_in(reply)
            if owner is None:
                self._writer.put_off(key, made, mode)
                _fail(answer, _error(reply))
            else:
                self._settled(key, made, owner)
                _answer(answer, owner[1])

        try:
            self._link.send(made.telling(key, mode, now), done)
        except PinStoreError:
            self._writer.put_off(key, made, mode)
            raise
        return answer

    def refresh(self, key: PinKey, *, ttl: float | None) -> None:
        now, life = self._clock(), self._life(ttl)
        known = self._known.look_up(key, now)
        if known is not None:
            known.renew(now, life=life, ttl=ttl)
            if known.needs_telling(now):
                self._writer.tell(key, known, Mode.RENEW, now)
            return

        def done(reply: object) -> None:
            owner = holder_in(reply)
            if owner is not None and self._known.look_up(key, self._clock(), use=False) is None:
                renewed = self._known.learn(key, owner, now, expires=now + life)
                renewed.renew(now, life=life, ttl=ttl)
                renewed.note_told()

        hold = life if ttl is None else ttl
        self._link.send(settling(key, None, Mode.RENEW, life=life, hold=hold, over=False), done)

    def finish(self, key: PinKey) -> None:
        now = self._clock()
        known = self._known.look_up(key, now)
        if known is None:
            self._link.send(settling(key, None, Mode.FINISH, life=0, hold=0, over=True), lambda reply: None)
            return
        known.over = True
        if known.needs_telling(now):
            self._writer.tell(key, known, Mode.FINISH, now)

    def forget(self, key: PinKey) -> Answer[None]:
        self._known.drop(key)
        answer: asyncio.Future[None] = asyncio.get_running_loop().create_future()

        def done(reply: object) -> None:
            self._known.drop(key)  # a put before this may have been answered meanwhile
            if isinstance(reply, PinStoreError):
                _fail(answer, reply)
            else:
                _answer(answer, None)

        self._link.send(forgetting(key), done)
        return answer

    def held(self) -> Answer[Mapping[Holder, int | None]]:
        answer: asyncio.Future[Mapping[Holder, int | None]] = asyncio.get_running_loop().create_future()

        def done(reply: object) -> None:
            if not isinstance(reply, list) or not reply:
                _fail(answer, _error(reply))
                return
            self._writer.note_epoch(reply[0])
            if self._writer.is_settling:
                _fail(answer, PinStoreError("Redis lost its data, and is being told what was held"))
            elif self._writer.room.counts_known(self._clock(), life=self._ttl):
                _answer(answer, counts_in(reply))
            else:
                _fail(answer, PinStoreError("Redis may have dropped what it was told of held tasks"))

        self._link.send(INFO, self._writer.note_info)
        self._link.send(counting(), done)
        return answer

    def _find(self, key: PinKey, *, use: bool) -> Answer[Pin | None]:
        now = self._clock()
        known = self._known.look_up(key, now, use=use)
        if known is not None and (self._known.is_current(key, known, now) or not self._link.up):
            return known.pin
        answer: asyncio.Future[Pin | None] = asyncio.get_running_loop().create_future()
        self._link.send(reading(key), lambda reply: self._found(key, reply, answer, use=use))
        return answer

    def _found(self, key: PinKey, reply: object, answer: "asyncio.Future[Pin | None]", *, use: bool) -> None:
        now = self._clock()
        known = self._known.look_up(key, now, use=False)
        if known is not None and (isinstance(reply, PinStoreError) or self._known.is_current(key, known, now)):
            _answer(answer, known.pin)  # what is known still serves; and what is unwritten is newer
        elif isinstance(reply, PinStoreError):
            _fail(answer, reply)
        elif isinstance(reply, list) and (holder := holder_in(reply[0])) is not None:
            if use:
                expires = now + (reply[1] / 1000 if reply[1] >= 0 else self._ttl)
                self._known.learn(key, holder, now, expires=expires)
            _answer(answer, Pin(holder[1]))
        else:
            self._known.drop(key)
            _answer(answer, None)

    def _life(self, ttl: float | None) -> float:
        return self._ttl if ttl is None else max(self._ttl, ttl)

    def _settled(self, key: PinKey, put: Known, owner: Holder) -> None:
        """Redis was told of a pin, and named its owner."""
        self._known.tell_no_more(key)
        if owner == put.holder:
            put.note_told()
            self._known.keep(key, put)
            self._known.learn(key, owner, self._clock(), expires=put.expires)
            return
        before = self._known.look_up(key, self._clock(), use=False)
        if before is not None and before.holder != owner:
            self._known.drop(key)


def _error(reply: object) -> PinStoreError:
    return reply if isinstance(reply, PinStoreError) else PinStoreError("Redis answers something else")


def _answer(answer: "asyncio.Future[T]", value: T) -> None:
    if not answer.done():  # who asked may have left
        answer.set_result(value)


def _fail(answer: "asyncio.Future[T]", error: PinStoreError) -> None:
    if not answer.done():
        answer.set_exception(error)
        answer.exception()  # who asked may never look, and then nobody is to be told of it
