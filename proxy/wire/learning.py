"""What an answer teaches is stored before the answer can be complete at the client.

The client may poll the task the moment it has the id, and through another replica; so the pin comes first. A store that
answers later holds back what follows, at most `STORE_LIMIT`: a tool that has run is never held up longer by its pin.
What was not remembered is counted.
"""

import asyncio
from collections.abc import Callable, Iterator
from typing import Protocol, TypeAlias

from proxy.background import Background
from proxy.pins.store import POOL_ITSELF, PinStore, PinStoreError
from proxy.routing.headers import RoutingHeaders
from proxy.routing.members import Member
from proxy.routing.ownership import Learned, Lesson, learn, may_matter, pin_key
from proxy.routing.pools import Pool
from proxy.routing.rounds import ConnectionMemory, Rounds
from proxy.wire.events import AnswerReader
from proxy.wire.response_head import ResponseFrame

STORE_LIMIT = 0.25  # seconds


Later: TypeAlias = tuple[asyncio.Future[object], Iterator[object]]
"""The answer of a store that is awaited, and the steps behind it."""


class Tally(Protocol):
    """Who counts what could not be learned."""

    def unlearned(self, reason: str) -> None:
        """`reason`: oversized, unreadable, encoded, store_failed or store_slow."""
        ...


class Lessons:
    """Stores what the answers to one request teach.

    `method` and `name`: what was asked of this backend of the pool (Mcp-Name decoded); `found`: a search found it to
    own the task, so that its answer makes a pin; `noticed` is told of every lesson.
    """

    __slots__ = ("_backend", "_found", "_name", "_noticed", "_pins", "_pool", "_tally", "method", "outcome")

    def __init__(
        self,
        *,
        method: str,
        name: str | None,
        pool: Pool,
        backend: str,
        pins: PinStore,
        tally: Tally,
        noticed: Callable[[Learned], None],
        found: bool,
    ) -> None:
        self.outcome = "served"
        """served; unknown: the backend does not know the task; conflict: another backend owns an id it made."""
        self.method = method
        self._name = name
        self._pool = pool
        self._backend = backend if pool.state == "local" else POOL_ITSELF
        self._pins = pins
        self._tally = tally
        self._noticed = noticed
        self._found = found

    def study(self, message: bytes) -> Later | None:
        """Stores what a message teaches; the rest of it, where the store answers later, and it is to be awaited."""
        try:
            learned = learn(message, self.method, self._name)
        except ValueError:
            self._tally.unlearned("unreadable")
            return None
        if learned is None:
            return None
        self._noticed(learned)
        if learned.lesson is Lesson.UNKNOWN:
            self.outcome = "unknown"
            return None
        if learned.lesson is Lesson.ASKED:
            return None
        return self._take(self._steps(learned))

    def overlook(self) -> Later | None:
        """A message is too large to be read. One that answers `tasks/get` is as good as always a result: its task has
        ended. Returns as `study`.
        """
        self._tally.unlearned("oversized")
        if self.method != "tasks/get" or self._name is None:
            return None
        return self._take(self._end_of(self._name))

    def _end_of(self, task: str) -> Iterator[object]:
        yield self._pins.finish(pin_key(self._pool.name, task))

    def _take(self, steps: Iterator[object]) -> Later | None:
        """Takes the steps up to the first that answers later."""
        try:
            for answer in steps:
                if isinstance(answer, asyncio.Future):
                    return answer, steps
        except PinStoreError:
            self._tally.unlearned("store_failed")
        return None

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

    async def finish(self, later: Later) -> None:
        """Awaits the answer, and goes on from there, as long as anybody can be made to wait."""
        answer, steps = later
        try:
            async with asyncio.timeout(STORE_LIMIT):
                await answer
                for step in steps:
                    if isinstance(step, asyncio.Future):
                        await step
        except TimeoutError:
            self._tally.unlearned("store_slow")
        except PinStoreError:
            self._tally.unlearned("store_failed")


class Watch:
    """Watches one answer as it passes. `released` takes what a store held back."""

    __slots__ = ("_background", "_held", "_lessons", "_reader", "_released", "_waiting")

    def __init__(
        self,
        reader: AnswerReader,
        lessons: Lessons,
        *,
        background: Background,
        released: Callable[[bytes], None],
    ) -> None:
        self._reader = reader
        self._lessons = lessons
        self._background = background
        self._released = released
        self._waiting = 0
        self._held: list[bytes] = []

    @property
    def outcome(self) -> str:
        """As in Lessons."""
        return self._lessons.outcome

    @property
    def waiting(self) -> bool:
        """True while a store has not answered; then `released` is called with what was held back."""
        return self._waiting > 0

    def feed(self, data: bytes) -> bytes:
        """Takes a piece of the body and returns what may leave now."""
        return self._take(self._reader.feed(data))

    def passes(self, data: bytes) -> bool:
        """True if a piece leaves as it is, since it holds whole messages that teach nothing; else it is to be fed."""
        return not self._waiting and self._reader.passes(data) and not may_matter(data, self._lessons.method)

    def end(self) -> bytes:
        """The body is complete: returns the rest, empty while a store is awaited."""
        return self._take(self._reader.end())

    def _take(self, read: tuple[bytes, list[bytes]]) -> bytes:
        out, messages = read
        while self._reader.oversized:
            self._reader.oversized -= 1
            self._wait_for(self._lessons.overlook())
        for message in messages:
            self._wait_for(self._lessons.study(message))
        if not self._waiting:
            return out
        self._held.append(out)
        return b""

    def _wait_for(self, later: Later | None) -> None:
        if later is not None:
            self._waiting += 1
            self._background.spawn(self._await(later), "store what an answer teaches")

    async def _await(self, later: Later) -> None:
        try:
            await self._lessons.finish(later)
        finally:
            self._waiting -= 1
            if not self._waiting:
                held, self._held = b"".join(self._held), []
                self._released(held)


def note_lesson(
    learned: Learned,
    *,
    request: RoutingHeaders,
    pool: str,
    backend: str,
    rounds: Rounds,
    memory: ConnectionMemory,
    peer: str,
) -> None:
    """Remembers what this backend's answer means for the next requests of the client at the address `peer`."""
    if learned.lesson is Lesson.CREATED:
        memory.latest = (pool, backend)
    elif learned.lesson is Lesson.ASKED:
        rounds.asked(pool, request, peer, memory.rounds, backend)


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
