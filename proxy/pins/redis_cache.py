"""What one process knows of the pins in Redis: what can be answered without asking, and what need not be said again.

* A pin that was read, or written, is answered from here for `FRESH` seconds, and never beyond its life. After that it
  is asked for again, since another proxy may have changed it; but it is still known, so that it can be told to a Redis
  that lost it.
* What Redis knows is brought up to date when it is off by more than `TOLD_EVERY` seconds or a quarter of the time that
  the server gave, whichever is less. So a task that is polled many times a second costs a write now and then.
* What could not be told is unwritten: the latest of each pin, the oldest forgotten first.
* What Redis lost is unwritten as well, and told after that, the last used first.
"""

from collections import OrderedDict
from itertools import islice
from typing import TypeAlias

from proxy.pins.redis_scripts import Command, Holder, Mode, settling
from proxy.pins.store import LATELY, Pin
from proxy.routing.ownership import PinKey

FRESH = 30.0  # seconds; so long another proxy's change may go unseen
TOLD_EVERY = 5.0  # seconds
_TOLD_AT_LEAST = 0.01  # seconds; a server that gives its tasks no time at all is not written about at every poll
MOST_KNOWN = 100_000  # some 50 MB
MOST_UNWRITTEN = 100_000
# Seconds that a task is held which Redis lost, unless it is heard of again: it may have ended by another proxy.
RESTORED = 300.0


class Known:
    """A pin as this process knows it. Times are those of its clock, in seconds."""

    __slots__ = ("expires", "fresh", "held", "holder", "over", "pin", "stale", "told", "ttl")

    def __init__(self, holder: Holder, pin: Pin, *, expires: float, held: float | None) -> None:
        self.holder = holder
        self.pin = pin
        self.expires = expires
        """When its life ends."""
        self.held = held
        """When its server drops the task; None if it does not say."""
        self.stale = float("-inf")
        """When to renew it as before will be worth while."""
        self.ttl: float | None = None
        """What the server said when it was renewed, in seconds."""
        self.over = False
        """True once the task has ended, as far as is known here."""
        self.fresh = float("-inf")
        """Until when it is answered without asking."""
        self.told: tuple[float, float | None, bool] | None = None
        """`expires`, `held` and `over` as Redis has them; None if that is not known."""

    def renew(self, now: float, *, life: float, ttl: float | None) -> None:
        """Starts life anew; `ttl`: what the server says, in seconds."""
        self.expires = now + life
        self.held = None if ttl is None else now + ttl
        self.ttl = ttl
        self.stale = now + min(LATELY, (life if ttl is None else ttl) / 4)

    def needs_telling(self, now: float) -> bool:
        """True if Redis is too far behind what is known here."""
        if self.told is None or self.told[2] is not self.over:
            return True
        expires, held, _ = self.told
        if (held is None) is not (self.held is None):
            return True
        left = (self.expires if self.held is None else self.held) - now
        tolerated = max(_TOLD_AT_LEAST, min(TOLD_EVERY, left / 4))
        off = abs(self.expires - expires)
        if held is not None and self.held is not None:
            off = max(off, abs(self.held - held))
        return off >= tolerated

    def note_told(self) -> None:
        """It is on its way to Redis."""
        self.told = (self.expires, self.held, self.over)

    def telling(self, key: PinKey, mode: Mode, now: float) -> Command:
        """The command that brings Redis up to date."""
        hold = (self.expires if self.held is None else self.held) - now
        if mode is Mode.RESTORE:
            hold = min(hold, RESTORED)
        return settling(key, self.holder, mode, life=self.expires - now, hold=hold, over=self.over)


Unwritten: TypeAlias = tuple[Mode, Known]
"""What is to be told of a pin."""


class KnownPins:
    """The pins that this process knows, the least recently used leaving first, and what of them is unwritten."""

    def __init__(self, *, capacity: int) -> None:
        self._capacity = min(capacity, MOST_KNOWN)
        self._known: OrderedDict[PinKey, Known] = OrderedDict()
        self._unwritten: OrderedDict[PinKey, Unwritten] = OrderedDict()
        self._lost: dict[PinKey, None] = {}  # in order
        self._pins: dict[Holder, tuple[Holder, Pin]] = {}  # one of each, shared by all

    def __len__(self) -> int:
        return len(self._known)

    @property
    def unwritten(self) -> int:
        """Pins of which something could not be told, or is to be told again."""
        return len(self._unwritten) + len(self._lost)

    def look_up(self, key: PinKey, now: float, *, use: bool = True) -> Known | None:
        """The pin if it is known and lives; `use`: this is one."""
        known = self._known.get(key)
        if known is None:
            later = self._unwritten.get(key)
            known = None if later is None else later[1]
            if known is None:
                return None
        elif use:
            self._known.move_to_end(key)
        if known.expires <= now:
            self.drop(key)
            return None
        return known

    def is_current(self, key: PinKey, known: Known, now: float) -> bool:
        """True if it may be answered without asking: what is unwritten is newer than what Redis would say."""
        return now < known.fresh or key in self._unwritten or key in self._lost

    def learn(self, key: PinKey, holder: Holder, now: float, *, expires: float) -> Known:
        """Redis named the holder, and when its life ends. Of the same holder more may be known, and stays so."""
        known = self._known.get(key)
        if known is None or known.holder != holder:
            known = self.make(holder, expires=expires, held=None)
            self.keep(key, known)
        elif known.told is not None:
            known.told = (expires, *known.told[1:])
        known.expires = expires
        known.fresh = now + FRESH
        return known

    def make(self, holder: Holder, *, expires: float, held: float | None) -> Known:
        """A pin that is not kept yet."""
        if len(self._pins) > 10_000:  # backends that came and went
            self._pins.clear()
        holder, pin = self._pins.setdefault(holder, (holder, Pin(holder[1])))
        return Known(holder, pin, expires=expires, held=held)

    def keep(self, key: PinKey, known: Known) -> None:
        """Knows this pin from now on."""
        self._known[key] = known
        self._known.move_to_end(key)
        if len(self._known) > self._capacity:
            self._known.popitem(last=False)

    def drop(self, key: PinKey) -> None:
        """Knows nothing of it any more, and has nothing to write."""
        self._known.pop(key, None)
        self.tell_no_more(key)

    # ---- what could not be told
    def is_unwritten(self, key: PinKey) -> bool:
        """True if something is yet to be told of it."""
        return key in self._unwritten  # what was lost waits for nothing: whoever has a newer word tells it at once

    def tell_no_more(self, key: PinKey) -> None:
        """Redis was told something newer."""
        self._unwritten.pop(key, None)
        self._lost.pop(key, None)

    def put_off(self, key: PinKey, known: Known, mode: Mode) -> None:
        """This is to be told later, and is what this process knows."""
        self.keep(key, known)
        before = self._unwritten.pop(key, None)
        if before is not None and before[1].holder == known.holder:
            mode = max(mode, before[0])
        known.told = None
        self._unwritten[key] = (mode, known)
        self._lost.pop(key, None)
        if len(self._unwritten) > MOST_UNWRITTEN:
            self._unwritten.popitem(last=False)

    def restore(self, now: float) -> set[Holder]:
        """Redis lost its data: all that is known and lives is to be told again. Returns whose it is."""
        holders = set()
        for key, known in reversed(self._known.items()):
            known.told = None
            if known.expires > now and key not in self._unwritten:
                self._lost[key] = None
                holders.add(known.holder)
        return holders

    def oldest_unwritten(self, most: int, now: float) -> list[tuple[PinKey, Unwritten]]:
        """The oldest of what is unwritten and lives; if there is none, of what is lost. It stays so until `written`."""
        oldest = list(islice(self._unwritten.items(), most))
        if not oldest:
            lost = [(key, self._known.get(key)) for key in islice(self._lost, most)]
            for key, known in lost:
                if known is None:  # others were used since
                    del self._lost[key]
            oldest = [(key, (Mode.RESTORE, known)) for key, known in lost if known is not None]
        for key, (_, known) in oldest:
            if known.expires <= now:
                self.drop(key)
        return [(key, later) for key, later in oldest if later[1].expires > now]

    def written(self, key: PinKey, told: Unwritten) -> None:
        """Redis was told this, which may not be the latest any more."""
        if told[0] is Mode.RESTORE:
            self._lost.pop(key, None)
        elif self._unwritten.get(key) is told:
            del self._unwritten[key]
