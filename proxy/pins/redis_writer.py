"""Tells Redis what this process learns of pins: now, or, what could not be told, as soon as it can be.

A Redis that came back may have lost its data: then it is told all that this process knows, a part at a time, and for
as long counts are not known. Each Redis has a random word, its epoch, for as long as it keeps its data, by which that
is noticed. Only where Redis drops any key for want of room the word may be gone and the data still there.
"""

import asyncio
import logging
import secrets
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial

from proxy.background import Background
from proxy.pins.redis_cache import Known, KnownPins, Unwritten
from proxy.pins.redis_link import Link
from proxy.pins.redis_room import Room
from proxy.pins.redis_scripts import ASKING_EPOCH, INFO, Mode, doubting, holder_in, naming_epoch, setting_up
from proxy.pins.store import PinStoreError
from proxy.routing.ownership import PinKey

_TOGETHER = 200  # pins told later, at a time: requests under way find room between them
_REFUSED_PAUSE = 5.0  # seconds before a Redis that refuses to write is asked again
_RESTORED_A_SECOND = 500  # pins that Redis lost; all that a process can know in some minutes
_BETWEEN_RESTORES = 300.0  # seconds; a Redis that loses its data again and again is not told all of them each time
SETTLING = 3.0
"""Seconds in which every process has found a Redis that came back, and told it what it had lost."""
_LOOK = 10.0  # seconds between two looks at whether Redis has its data

log = logging.getLogger("proxy")


class RedisWriter:
    """Writes what `known` has. `clock`: monotonic, in seconds. Raises ValueError for a URL that is none of Redis."""

    def __init__(self, url: str, known: KnownPins, *, clock: Callable[[], float], background: Background) -> None:
        self.link = Link(url, background=background, setting_up=_setting_up, came_up=self._link_came_up)
        self._known = known
        self._clock = clock
        self._background = background
        self.room = Room()
        self._epoch: object = None
        self._writing = False
        self._looking = False
        self._warned = False
        self._restored_at = float("-inf")
        self._lost_at = float("-inf")
        self._restoring_later = False

    def tell(self, key: PinKey, known: Known, mode: Mode, now: float) -> None:
        """Tells of a pin behind the scenes. Raises PinStoreError if that cannot be now; it is told later."""
        if self._known.is_unwritten(key):
            self.put_off(key, known, mode)  # its turn comes, with all that is known by then
            if not self.link.up:
                raise PinStoreError("Redis is down")
            return
        try:
            self.link.send(known.telling(key, mode, now), partial(self._told, key, known, mode))
        except PinStoreError:
            self.put_off(key, known, mode)
            raise
        known.note_told()

    def put_off(self, key: PinKey, known: Known, mode: Mode) -> None:
        """Keeps what could not be told. The first writer stays one, as far as known here."""
        before = self._known.look_up(key, self._clock(), use=False)
        if before is not None and before.holder != known.holder and mode is not Mode.REPLACE:
            return
        self._known.put_off(key, known, mode)
        self._write_soon()

    def note_epoch(self, epoch: object) -> None:
        """Redis named its epoch; by another one than before it is known to have lost its data."""
        if self._epoch not in (None, epoch) and not self.room.dropped_since_mark:
            self._lost_at = self._clock()
        if epoch is None:  # lost under an open connection
            naming, asking = naming_epoch(_word())
            self.link.send(naming, lambda reply: None)
            self.link.send(asking, lambda reply: None if reply is None else self.note_epoch(reply))
        elif isinstance(epoch, bytes):
            if self._epoch not in (None, epoch) and not self.room.dropped_since_mark:
                self._restore()
            self._epoch = epoch
            self.room.mark()

    @property
    def is_settling(self) -> bool:
        """True shortly after Redis was seen to have lost its data: others may be about to tell it what they know."""
        return self._clock() - self._lost_at < SETTLING

    def note_info(self, info: object) -> None:
        """Redis told of itself."""
        self.room.note(info, self._clock())
        policy = self.room.policy_that_drops_any
        if policy and not self._warned:
            self._warned = True
            log.warning(
                "Redis may drop any key by its policy %s: from the first on it is not known how many tasks are held;"
                " with volatile-lru it drops pins only",
                policy,
            )

    def _link_came_up(self, replies: Sequence[object]) -> None:
        self.note_info(replies[-3])
        self.note_epoch(replies[-1])
        self._write_soon()
        if not self._looking:
            self._looking = True
            self._background.spawn(self._look(), "look whether Redis has its data")

    async def _look(self) -> None:
        try:
            while self.link.up:
                await asyncio.sleep(_LOOK)
                with suppress(PinStoreError):  # down, or too much waits
                    self.link.send(INFO, self.note_info)
                    self.link.send(ASKING_EPOCH, self.note_epoch)
        finally:
            self._looking = False

    def _restore(self) -> None:
        """Redis lost its data. All that is known is told again; if that was done just now, in a while."""
        now = self._clock()
        wait = self._restored_at + _BETWEEN_RESTORES - now
        if wait <= 0:
            self._restored_at = now
            holders = self._known.restore(now)
            if self._known.unwritten > _TOGETHER:
                with suppress(PinStoreError):
                    took = 1.1 * self._known.unwritten / _RESTORED_A_SECOND
                    self.link.send(doubting(holders, took), lambda reply: None)
            self._write_soon()
        elif not self._restoring_later:
            self._restoring_later = True
            self._background.spawn(self._restore_later(wait), "tell Redis again what it lost")

    async def _restore_later(self, wait: float) -> None:
        await asyncio.sleep(wait)
        self._restoring_later = False
        self._restore()

    def _told(self, key: PinKey, known: Known, mode: Mode, reply: object) -> None:
        owner = holder_in(reply)
        if isinstance(reply, PinStoreError):
            self.put_off(key, known, mode)
        elif owner is not None and owner != known.holder:  # another proxy was first
            self._known.drop(key)  # how long that pin lives is not known here: it is read when it is needed

    def _write_soon(self) -> None:
        if not self._writing and self.link.up and self._known.unwritten:
            self._writing = True
            self._background.spawn(self._write(), "tell Redis what it missed")

    async def _write(self) -> None:
        """Tells what could not be told, until all of it is told or Redis is down again."""
        try:
            while self._known.unwritten and self.link.up:
                some = self._known.oldest_unwritten(_TOGETHER, self._clock())
                refused = await self._tell_all(some)
                restored = sum(mode is Mode.RESTORE for _, (mode, _) in some)
                await asyncio.sleep(_REFUSED_PAUSE if refused else restored / _RESTORED_A_SECOND)
        finally:
            self._writing = False

    async def _tell_all(self, some: Sequence[tuple[PinKey, Unwritten]]) -> bool:
        """Tells what is unwritten; True if Redis refused some of it."""
        now, left, refused = self._clock(), 1, False
        all_told: asyncio.Future[None] = asyncio.get_running_loop().create_future()

        def count_down() -> None:
            nonlocal left
            left -= 1
            if not left and not all_told.done():
                all_told.set_result(None)

        def done(key: PinKey, later: Unwritten, reply: object) -> None:
            nonlocal refused
            mode, known = later
            if isinstance(reply, PinStoreError):
                refused |= self.link.up
            else:
                self._known.written(key, later)
                self._told(key, known, mode, reply)
            count_down()

        for key, later in some:
            left += 1
            mode, known = later
            try:
                self.link.send(known.telling(key, mode, now), partial(done, key, later))
            except PinStoreError as error:
                done(key, later, error)
            else:
                if mode is not Mode.RESTORE:  # after that the next word of its server has to be told
                    known.note_told()
        count_down()
        await all_told
        return refused


def _setting_up() -> Sequence[tuple[str | bytes | int, ...]]:
    return setting_up(_word())


def _word() -> str:
    """A new one each time: one that was used before would hide that the data are others."""
    return secrets.token_hex(8)
