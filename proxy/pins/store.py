"""The seam PinStore: which backend owns which task, remembered by a digest of the id."""

from asyncio import Future
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Protocol, TypeAlias, TypeVar

from proxy.routing.ownership import PinKey

T = TypeVar("T")
Answer: TypeAlias = T | Future[T]
"""Known at once, or later. Callers on the fast path take the value without a task when it is there."""


LATELY = 5.0  # seconds

POOL_ITSELF = ""
"""The backend of a pin in a pool where every backend can answer: it names the pool only."""


class PinStoreError(Exception):
    """The store did not answer, or refused. The only exception a PinStore raises."""


@dataclass(frozen=True, slots=True)
class Pin:
    """A task's owner."""

    backend: str
    """The backend's id in the pool that the key was made with."""


class PinStore(Protocol):
    """Remembers pins, bounded in number and life, the least recently used leaving first.

    Every method may answer at once or with a future; both raise PinStoreError and nothing else. A pin lives
    max(`pins.ttl`, the task's own ttl) seconds from the last `put` or `refresh`. *Held* are pins of tasks not known to
    have ended: neither finished nor past the ttl that their server named.
    """

    def get(self, key: PinKey) -> Answer[Pin | None]:
        """The living pin, or None. Counts as a use."""
        ...

    def fresh(self, key: PinKey) -> tuple[Pin, float | None] | None:
        """The living pin if it is known at once, and was renewed so lately that to renew it now with the same `ttl`,
        which comes with it, would change little: its life by less than LATELY seconds, and by less than a quarter.
        Counts as a use. None says nothing.
        """
        ...

    def peek(self, key: PinKey) -> Answer[Pin | None]:
        """The living pin, or None. Does not count as a use."""
        ...

    def put(self, key: PinKey, pool: str, backend: str, *, ttl: float | None, replace: bool = False) -> Answer[str]:
        """Remembers the owner and returns the id of who owns it now: the first writer wins unless `replace`.

        `ttl`: seconds the server says it keeps the task, None for no word. Writing what is there refreshes it.
        """
        ...

    def refresh(self, key: PinKey, *, ttl: float | None) -> Answer[None]:
        """Starts the pin's life anew. Does nothing without a pin."""
        ...

    def finish(self, key: PinKey) -> Answer[None]:
        """The task ended: no longer held. The pin lives on, since its result may be asked for. Idempotent."""
        ...

    def forget(self, key: PinKey) -> Answer[None]:
        """Drops the pin. Does nothing without one."""
        ...

    def held(self) -> Answer[Mapping[tuple[str, str], int | None]]:
        """How many tasks each (pool, backend id) holds, None where nobody knows; those with none may be missing."""
        ...

    def start(self) -> None:
        """Begins to connect, where there is something to connect to. Never waits, never raises."""
        ...

    async def close(self) -> None:
        """Writes what can be written within a moment, and disconnects. Idempotent."""
        ...

    def __len__(self) -> int:
        """Pins known to this process."""
        ...

    @property
    def stores_at_once(self) -> bool:
        """True if `put`, `refresh` and `finish` never answer later."""
        ...

    @property
    def evicted(self) -> int:
        """Pins dropped for want of room since the start."""
        ...

    @property
    def up(self) -> bool:
        """False while the store is known not to answer. Known at once, without asking it."""
        ...
