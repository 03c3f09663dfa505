"""Pins in the memory of one worker, which keeps news of its tasks for whoever counts those of all workers."""

from collections.abc import Callable
from typing import NamedTuple

from proxy.pins.memory import MemoryPinStore
from proxy.routing.ownership import PinKey


class TaskNews(NamedTuple):
    """What became of a task since the news were taken away."""

    pool: str
    backend: str
    ttl: float | None
    """Seconds that its server keeps it, from when the news were made."""
    made: float
    """When; by the store's clock."""
    finished: bool


class TellingPinStore(MemoryPinStore):
    """A MemoryPinStore with `news`. The latest of each task is kept, at most one for each pin."""

    def __init__(self, *, ttl: float, capacity: int, clock: Callable[[], float]) -> None:
        super().__init__(ttl=ttl, capacity=capacity, clock=clock)
        self._now = clock
        self._most = capacity
        self._news: dict[PinKey, TaskNews] = {}

    def take_news(self) -> dict[PinKey, TaskNews]:
        """What happened since they were last taken, the oldest first."""
        news, self._news = self._news, {}
        return news

    def put(self, key: PinKey, pool: str, backend: str, *, ttl: float | None, replace: bool = False) -> str:
        owner = super().put(key, pool, backend, ttl=ttl, replace=replace)
        if owner == backend:
            self._tell(key, self.holder(key), ttl)
        return owner

    def refresh(self, key: PinKey, *, ttl: float | None) -> None:
        super().refresh(key, ttl=ttl)
        self._tell(key, self.holder(key), ttl)

    def finish(self, key: PinKey) -> None:
        holder = self.holder(key)
        super().finish(key)
        self._tell(key, holder, None, finished=True)

    def _tell(self, key: PinKey, holder: tuple[str, str] | None, ttl: float | None, *, finished: bool = False) -> None:
        if holder is not None and (key in self._news or len(self._news) < self._most):
            self._news[key] = TaskNews(*holder, ttl, self._now(), finished=finished)
