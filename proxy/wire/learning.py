"""What an answer teaches is stored before the answer can be complete at the client.

The client may poll the task the moment it has the id, and through another replica; so the pin comes first. A store that
answers later holds back what follows, at most `STORE_LIMIT`: a tool that has run is never held up longer by its pin.
What was not remembered is counted.
"""

import asyncio
from collections.abc import Callable
from typing import Protocol

from proxy.background import Background
from proxy.pins.store import Answer, PinStore, PinStoreError
from proxy.routing.ownership import Learned, Lesson, learn, pin_key
from proxy.routing.pools import Pool
from proxy.wire.events import AnswerReader

STORE_LIMIT = 0.25  # seconds


class Tally(Protocol):
    """Who counts what could not be learned."""

    def unlearned(self, reason: str) -> None:
        """`reason`: oversized, unreadable, encoded, store_failed or store_slow."""
        ...


class Watch:
    """Watches one answer. `method` and `name`: what was asked of this backend of the pool (Mcp-Name decoded)."""

    def __init__(
        self,
        reader: AnswerReader,
        *,
        method: str,
        name: str | None,
        pool: Pool,
        backend: str,
        pins: PinStore,
        tally: Tally,
        background: Background,
        released: Callable[[bytes], None],
    ) -> None:
        self.outcome = "served"
        """served; unknown: the backend does not know the task; conflict: another backend owns an id it made."""
        self._reader = reader
        self._method = method
        self._name = name
        self._pool = pool
        self._backend = backend
        self._pins = pins
        self._tally = tally
        self._background = background
        self._released = released
        self._waiting = 0
        self._held: list[bytes] = []

    @property
    def waiting(self) -> bool:
        """True while a store has not answered; then `released` is called with what was held back."""
        return self._waiting > 0

    def feed(self, data: bytes) -> bytes:
        """Takes a piece of the body and returns what may leave now."""
        return self._take(self._reader.feed(data))

    def end(self) -> bytes:
        """The body is complete: returns the rest, empty while a store is awaited."""
        return self._take(self._reader.end())

    def _take(self, read: tuple[bytes, list[bytes]]) -> bytes:
        out, messages = read
        if self._reader.oversized:
            for _ in range(self._reader.oversized):
                self._tally.unlearned("oversized")
            self._reader.oversized = 0
        for message in messages:
            self._study(message)
        if not self._waiting:
            return out
        self._held.append(out)
        return b""

    def _study(self, message: bytes) -> None:
        try:
            learned = learn(message, self._method, self._name)
        except ValueError:
            self._tally.unlearned("unreadable")
            return
        if learned is None:
            return
        if learned.lesson is Lesson.UNKNOWN:
            self.outcome = "unknown"
            return
        answer = self._store(learned)
        if isinstance(answer, asyncio.Future):
            self._waiting += 1
            self._background.spawn(self._await(answer, learned), "store what an answer teaches")
        else:
            self._stored(answer, learned)

    def _store(self, learned: Learned, *, replace: bool = False) -> Answer[str] | Answer[None]:
        key = pin_key(self._pool.name, learned.task_id)
        try:
            if learned.lesson is Lesson.CREATED:
                return self._pins.put(key, self._pool.name, self._backend, ttl=learned.ttl, replace=replace)
            if learned.lesson is Lesson.FINISHED:
                return self._pins.finish(key)
            return self._pins.refresh(key, ttl=learned.ttl)
        except PinStoreError:
            self._tally.unlearned("store_failed")
            return None

    def _stored(self, owner: str | None, learned: Learned) -> None:
        if owner is not None and owner != self._backend:
            if self._pool.member(owner) is not None:
                self.outcome = "conflict"
                return
            self._store(learned, replace=True)  # the first writer has left the pool
        if learned.finished:
            self._pins.finish(pin_key(self._pool.name, learned.task_id))

    async def _await(self, answer: "asyncio.Future[str] | asyncio.Future[None]", learned: Learned) -> None:
        try:
            async with asyncio.timeout(STORE_LIMIT):
                self._stored(await answer, learned)
        except TimeoutError:
            self._tally.unlearned("store_slow")
        except PinStoreError:
            self._tally.unlearned("store_failed")
        finally:
            self._waiting -= 1
            if not self._waiting:
                held, self._held = b"".join(self._held), []
                self._released(held)
