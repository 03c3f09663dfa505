"""Pins of one worker: kept in its memory, told to the supervisor, and asked of it where they are not known here.

Rules:
* What becomes of a task is news: the latest of each is kept, at most one for each pin, until it is taken away. That a
  task was made or has ended is told at once, since another worker may be asked for it next.
* Where this worker knows no owner the supervisor is asked, who has heard of those of all workers. One that does not
  answer in time knows nothing: then the task is searched for.
"""

import asyncio
from collections.abc import Callable, Mapping
from itertools import count
from typing import Any, NamedTuple

from proxy.pins.memory import MemoryPinStore
from proxy.pins.store import Answer, Pin
from proxy.routing.ownership import PinKey

ANSWER_LIMIT = 0.2
"""Seconds that the supervisor has to answer."""
_MOST_ASKED = 4096  # questions under way; beyond it nobody is asked


class TaskNews(NamedTuple):
    """What became of a task since the news were taken away."""

    pool: str
    backend: str
    ttl: float | None
    """Seconds that its server keeps it, from when the news were made."""
    made: float
    """When; by the store's clock."""
    finished: bool


class TellingPinStore:
    """A PinStore of one worker. `ask` puts a numbered question for a pin to the supervisor, whose reply comes by
    `answered`; None: nobody is asked. `hurry` is called soon after there are news that others should have at once.
    """

    def __init__(
        self,
        *,
        ttl: float,
        capacity: int,
        clock: Callable[[], float],
        ask: Callable[[int, PinKey], None] | None = None,
        hurry: Callable[[], None] | None = None,
    ) -> None:
        self._known = MemoryPinStore(ttl=ttl, capacity=capacity, clock=clock)
        self._now = clock
        self._most = capacity
        self._ask = ask
        self._hurry = hurry
        self._hurrying = False
        self._news: dict[PinKey, TaskNews] = {}
        self._numbers = count()
        self._asked: dict[int, tuple[PinKey, asyncio.Future[Pin | None], asyncio.TimerHandle]] = {}

    def __len__(self) -> int:
        return len(self._known)

    @property
    def evicted(self) -> int:
        return self._known.evicted

    @property
    def up(self) -> bool:
        return self._known.up

    def start(self) -> None:
        pass

    async def close(self) -> None:
        pass

    # ---- news
    def take_news(self) -> dict[PinKey, TaskNews]:
        """What happened since they were last taken, the oldest first."""
        news, self._news = self._news, {}
        return news

    def news_as_values(self) -> list[list[Any]]:
        """The same, taken as values for JSON."""
        return [[key.hex(), *news] for key, news in self.take_news().items()]

    # ---- PinStore
    def get(self, key: PinKey) -> Answer[Pin | None]:
        pin = self._known.get(key)
        if pin is not None or self._ask is None or len(self._asked) >= _MOST_ASKED:
            return pin
        loop, number = asyncio.get_running_loop(), next(self._numbers)
        answer: asyncio.Future[Pin | None] = loop.create_future()
        self._asked[number] = key, answer, loop.call_later(ANSWER_LIMIT, self.answered, number, None, None)
        self._ask(number, key)
        return answer

    def answered(self, number: int, pool: str | None, backend: str | None) -> None:
        """The supervisor's reply: the pin's backend id, None for no pin; the pool while the task is held."""
        asked = self._asked.pop(number, None)
        if asked is None:  # too late
            return
        key, answer, limit = asked
        limit.cancel()
        if backend is not None:
            self._known.put(key, pool or "", backend, ttl=None)
            if pool is None:
                self._known.finish(key)
        if not answer.done():
            answer.set_result(self._known.get(key))

    @property
    def stores_at_once(self) -> bool:
        return True

    def fresh(self, key: PinKey) -> tuple[Pin, float | None] | None:
        return self._known.fresh(key)

    def peek(self, key: PinKey) -> Pin | None:
        return self._known.peek(key)

    def put(self, key: PinKey, pool: str, backend: str, *, ttl: float | None, replace: bool = False) -> str:
        owner = self._known.put(key, pool, backend, ttl=ttl, replace=replace)
        if owner == backend:
            self._tell(key, self._known.holder(key), ttl, hurry=True)
        return owner

    def refresh(self, key: PinKey, *, ttl: float | None) -> None:
        self._known.refresh(key, ttl=ttl)
        self._tell(key, self._known.holder(key), ttl)

    def finish(self, key: PinKey) -> None:
        holder = self._known.holder(key)
        self._known.finish(key)
        self._tell(key, holder, None, finished=True, hurry=True)

    def forget(self, key: PinKey) -> None:
        self._known.forget(key)

    def held(self) -> Mapping[tuple[str, str], int | None]:
        return self._known.held()

    # ----
    def _tell(
        self,
        key: PinKey,
        holder: tuple[str, str] | None,
        ttl: float | None,
        *,
        finished: bool = False,
        hurry: bool = False,
    ) -> None:
        if holder is None or (key not in self._news and len(self._news) >= self._most):
            return
        self._news[key] = TaskNews(*holder, ttl, self._now(), finished=finished)
        if hurry and self._hurry is not None and not self._hurrying:
            self._hurrying = True
            asyncio.get_running_loop().call_soon(self._tell_now)

    def _tell_now(self) -> None:
        self._hurrying = False
        if self._hurry is not None:
            self._hurry()
