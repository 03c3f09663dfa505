"""Pins in this process's memory.

Entries stand in a dict in order of use, so that the first one is the least recently used. Lives end lazily: an expired
pin is dropped when it is asked for, or when it is the oldest at a put. *Held* tasks are counted as they come and go; a
heap of deadlines, one item a pin with a ttl of its own, takes those off the count whose time has passed.
"""

import heapq
from collections import Counter, OrderedDict
from collections.abc import Callable, Mapping

from proxy.pins.store import LATELY, Pin
from proxy.routing.ownership import PinKey


class _Entry:
    __slots__ = ("deadline", "expires", "holder", "pin", "queued", "stale", "ttl")

    def __init__(self, pin: Pin, holder: tuple[str, str]) -> None:
        self.pin = pin
        self.holder: tuple[str, str] | None = holder  # (pool, backend) while the task is held
        self.expires = 0.0
        self.stale = 0.0  # when to renew it as before will be worth while
        self.ttl: float | None = None  # the server's own when it was renewed
        self.deadline: float | None = None  # when the server's own ttl ends
        self.queued: float | None = None  # the time of its item in the heap


class MemoryPinStore:
    """A PinStore that answers at once. `ttl` in seconds, `capacity` in pins, `clock` a monotonic clock in seconds."""

    def __init__(self, *, ttl: float, capacity: int, clock: Callable[[], float]) -> None:
        self._ttl = ttl
        self._capacity = capacity
        self._clock = clock
        self._entries: OrderedDict[PinKey, _Entry] = OrderedDict()
        self._held: Counter[tuple[str, str]] = Counter()
        self._deadlines: list[tuple[float, PinKey]] = []
        self._doubts: dict[tuple[str, str], float] = {}  # until when it is not known how much each holds
        self._pins: dict[str, Pin] = {}  # one value per backend, shared by all its entries
        self._evicted = 0

    def start(self) -> None:
        pass

    async def close(self) -> None:
        pass

    def __len__(self) -> int:
        return len(self._entries)

    @property
    def evicted(self) -> int:
        return self._evicted

    @property
    def up(self) -> bool:
        return True

    @property
    def stores_at_once(self) -> bool:
        return True

    def get(self, key: PinKey) -> Pin | None:
        entry = self._living(key)
        return None if entry is None else entry.pin

    def fresh(self, key: PinKey) -> tuple[Pin, float | None] | None:
        entry = self._entries.get(key)
        if entry is None or entry.stale <= self._clock():
            return None
        self._entries.move_to_end(key)
        return entry.pin, entry.ttl

    def peek(self, key: PinKey) -> Pin | None:
        entry = self._entries.get(key)
        return None if entry is None or entry.expires <= self._clock() else entry.pin

    def put(self, key: PinKey, pool: str, backend: str, *, ttl: float | None, replace: bool = False) -> str:
        entry = self._living(key)
        if entry is not None and entry.pin.backend != backend:
            if not replace:
                return entry.pin.backend
            self._drop(key)
            entry = None
        if entry is None:
            self._make_room()
            holder = (pool, backend)
            pin = self._pins.get(backend) or self._pins.setdefault(backend, Pin(backend))
            entry = self._entries[key] = _Entry(pin, holder)
            self._held[holder] += 1
        self._renew(key, entry, ttl)
        return backend

    def refresh(self, key: PinKey, *, ttl: float | None) -> None:
        entry = self._living(key)
        if entry is not None:
            self._renew(key, entry, ttl)

    def finish(self, key: PinKey) -> None:
        entry = self._living(key)
        if entry is not None:
            self._release(entry)

    def forget(self, key: PinKey) -> None:
        if key in self._entries:
            self._drop(key)

    def held(self) -> Mapping[tuple[str, str], int | None]:
        now, deadlines = self._clock(), self._deadlines
        while deadlines and deadlines[0][0] <= now:
            queued, key = heapq.heappop(deadlines)
            entry = self._entries.get(key)
            if entry is None or entry.queued != queued:  # gone, or an item of a time that was shortened since
                continue
            entry.queued = None
            if entry.deadline is not None and entry.deadline <= now:
                self._release(entry)
            else:
                self._queue(key, entry)
        for holder in [holder for holder, until in self._doubts.items() if until <= now]:
            del self._doubts[holder]
        return {**self._held, **dict.fromkeys(self._doubts)}

    def holder(self, key: PinKey) -> tuple[str, str] | None:
        """(pool, backend id) that holds this task; None once it has ended, or is not known. Not a use of the pin."""
        entry = self._entries.get(key)
        return None if entry is None else entry.holder

    @property
    def deadlines(self) -> int:
        """Items in the heap; never more than twice the pins and a few."""
        return len(self._deadlines)

    def _living(self, key: PinKey) -> _Entry | None:
        entry = self._entries.get(key)
        if entry is None:
            return None
        if entry.expires <= self._clock():
            self._drop(key)
            return None
        self._entries.move_to_end(key)
        return entry

    def _renew(self, key: PinKey, entry: _Entry, ttl: float | None) -> None:
        now = self._clock()
        entry.expires = now + (self._ttl if ttl is None else max(self._ttl, ttl))
        entry.deadline = None if ttl is None else now + ttl
        entry.ttl = ttl
        entry.stale = now + min(LATELY, (self._ttl if ttl is None else ttl) / 4)
        self._queue(key, entry)

    def _queue(self, key: PinKey, entry: _Entry) -> None:
        """Sees to it that a held task with a deadline has one item in the heap, which may be an earlier one."""
        if entry.deadline is None or entry.holder is None:
            return
        if entry.queued is not None and entry.queued <= entry.deadline:
            return
        entry.queued = entry.deadline
        heapq.heappush(self._deadlines, (entry.deadline, key))
        if len(self._deadlines) > 2 * len(self._entries) + 64:  # items of pins that are gone
            self._deadlines = [(entry.queued, key) for key, entry in self._entries.items() if entry.queued is not None]
            heapq.heapify(self._deadlines)

    def _make_room(self) -> None:
        now = self._clock()
        while self._entries:
            oldest = next(iter(self._entries))
            expired = self._entries[oldest].expires <= now
            if not expired:
                if len(self._entries) < self._capacity:
                    return
                self._evicted += 1
                self._doubt(self._entries[oldest])
            self._drop(oldest)

    def _doubt(self, entry: _Entry) -> None:
        """A task at work loses its pin: until it would have ended, nobody knows how many its backend holds."""
        if entry.holder is not None:
            until = entry.expires if entry.deadline is None else entry.deadline
            self._doubts[entry.holder] = max(until, self._doubts.get(entry.holder, until))

    def _drop(self, key: PinKey) -> None:
        self._release(self._entries.pop(key))

    def _release(self, entry: _Entry) -> None:
        if entry.holder is not None:
            self._held[entry.holder] -= 1
            if not self._held[entry.holder]:
                del self._held[entry.holder]
            entry.holder = None
