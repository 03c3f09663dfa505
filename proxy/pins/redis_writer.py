"""Tells Redis what this process learns of pins: now, or, what could not be told, as soon as it can be.

A Redis that came back may have lost its data: then it is told all that this process knows. Each Redis has a random
word, its epoch, for as long as it keeps its data, by which that is noticed.
"""

import asyncio
import secrets
from collections.abc import Callable, Sequence
from functools import partial

from proxy.background import Background
from proxy.pins.redis_cache import Known, KnownPins, Unwritten
from proxy.pins.redis_link import Link
from proxy.pins.redis_scripts import Mode, holder_in, naming_epoch, setting_up
from proxy.pins.store import PinStoreError
from proxy.routing.ownership import PinKey

_TOGETHER = 200  # pins told later, at a time: requests under way find room between them
_REFUSED_PAUSE = 5.0  # seconds before a Redis that refuses to write is asked again


class RedisWriter:
    """Writes what `known` has. `clock`: monotonic, in seconds. Raises ValueError for a URL that is none of Redis."""

    def __init__(self, url: str, known: KnownPins, *, clock: Callable[[], float], background: Background) -> None:
        self.link = Link(url, background=background, setting_up=_setting_up, came_up=self._link_came_up)
        self._known = known
        self._clock = clock
        self._background = background
        self._epoch: object = None
        self._writing = False

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
        if epoch is None:  # lost under an open connection
            naming, asking = naming_epoch(_word())
            self.link.send(naming, lambda reply: None)
            self.link.send(asking, lambda reply: None if reply is None else self.note_epoch(reply))
        elif isinstance(epoch, bytes):
            if self._epoch not in (None, epoch):
                self._known.restore(self._clock())
                self._write_soon()
            self._epoch = epoch

    def _link_came_up(self, replies: Sequence[object]) -> None:
        self.note_epoch(replies[-1])
        self._write_soon()

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
                if await self._write_some():
                    await asyncio.sleep(_REFUSED_PAUSE)
        finally:
            self._writing = False

    async def _write_some(self) -> bool:
        """Tells the oldest; True if Redis refused some of it."""
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

        for key, later in self._known.oldest_unwritten(_TOGETHER, now):
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
