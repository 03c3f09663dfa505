"""What an answer teaches is stored before the answer can be complete at the client.

The client may poll the task the moment it has the id, and through another replica; so the pin comes first. A store that
answers later holds back what follows, at most `STORE_LIMIT`: a tool that has run is never held up longer by its pin.
What was not remembered is counted.
"""

import asyncio
from collections.abc import Callable, Iterator
from typing import Protocol

from proxy.background import Background
from proxy.pins.store import POOL_ITSELF, PinStore, PinStoreError
from proxy.routing.headers import RoutingHeaders
from proxy.routing.members import Member
from proxy.routing.ownership import Learned, Lesson, learn, pin_key
from proxy.routing.pools import Pool
from proxy.wire.events import AnswerReader
from proxy.wire.response_head import ResponseFrame

STORE_LIMIT = 0.25  # seconds


class Tally(Protocol):
    """Who counts what could not be learned."""

    def unlearned(self, reason: str) -> None:
        """`reason`: oversized, unreadable, encoded, store_failed or store_slow."""
        ...


class Watch:
    """Watches one answer.

    `method` and `name`: what was asked of this backend of the pool (Mcp-Name decoded); `found`: a search found it to
    own the task, so that its answer makes a pin; `released` takes what a store held back, `noticed` every lesson.
    """

    __slots__ = (
        "_backend",
        "_background",
        "_found",
        "_held",
        "_method",
        "_name",
        "_noticed",
        "_pins",
        "_pool",
        "_reader",
        "_released",
        "_tally",
        "_waiting",
        "outcome",
    )

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
        noticed: Callable[[Learned], None],
        found: bool,
    ) -> None:
        self.outcome = "served"
        """served; unknown: the backend does not know the task; conflict: another backend owns an id it made."""
        self._reader = reader
        self._method = method
        self._name = name
        self._pool = pool
        self._backend = backend if pool.state == "local" else POOL_ITSELF
        self._pins = pins
        self._tally = tally
        self._background = background
        self._released = released
        self._noticed = noticed
        self._found = found
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
        self._noticed(learned)
        if learned.lesson is Lesson.UNKNOWN:
            self.outcome = "unknown"
            return
        if learned.lesson is Lesson.ASKED:
            return
        steps = self._steps(learned)
        try:
            for answer in steps:
                if isinstance(answer, asyncio.Future):
                    self._waiting += 1
                    self._background.spawn(self._await(answer, steps), "store what an answer teaches")
                    return
        except PinStoreError:
            self._tally.unlearned("store_failed")

    def _steps(self, learned: Learned) -> Iterator[object]:
        """Stores a lesson, one call of the store after the other; yields each answer, which may be a future.

        A future is awaited before the next step. Raises PinStoreError.
        """
        pins, pool, backend = self._pins, self._pool.name, self._backend
        key = pin_key(pool, learned.task_id)
        if learned.lesson is Lesson.CREATED or self._found:
            answer = pins.put(key, pool, backend, ttl=learned.ttl)
            yield answer
            owner = answer.result() if isinstance(answer, asyncio.Future) else answer
            if owner != backend:
                if backend != POOL_ITSELF and self._pool.member(owner) is not None:
                    self.outcome = "conflict"
                    return
                yield pins.put(key, pool, backend, ttl=learned.ttl, replace=True)  # the first writer has left the pool
        elif learned.lesson is Lesson.ALIVE:
            yield pins.refresh(key, ttl=learned.ttl)
        if learned.finished or learned.lesson is Lesson.FINISHED:
            yield pins.finish(key)

    async def _await(self, answer: "asyncio.Future[object]", steps: Iterator[object]) -> None:
        """Goes on with the steps from one whose answer comes later."""
        try:
            async with asyncio.timeout(STORE_LIMIT):
                await answer
                for later in steps:
                    if isinstance(later, asyncio.Future):
                        await later
        except TimeoutError:
            self._tally.unlearned("store_slow")
        except PinStoreError:
            self._tally.unlearned("store_failed")
        finally:
            self._waiting -= 1
            if not self._waiting:
                held, self._held = b"".join(self._held), []
                self._released(held)


def note_session(member: Member, own: str, request: RoutingHeaders, response: ResponseFrame, now: float) -> None:
    """Keeps count of the backend's sessions: made, ended by DELETE, or no longer known to it.

    `own`: the id of the request's, as the backend knows it; "" without. `now`: monotonic, in seconds.
    """
    if request.modern:
        return
    if own and (response.status == 404 or (request.verb == "DELETE" and response.status < 300)):
        member.session_ended(own)
    elif response.status < 300 and (own or response.session):  # only the backend knows which ids are real
        member.session_seen(own or response.session, now)
