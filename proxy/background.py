"""Tasks and loops that outlive their own failures: the one place that starts tasks.

Rules:
* A task is referenced until it ends; the event loop alone would let it be collected half way.
* What escapes a task is logged, with its traceback. To be cancelled is no failure.
* A loop's step that fails is tried again after the usual pause. Of a streak of failures each kind is logged once.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any, NoReturn, TypeVar

T = TypeVar("T")
Step = Callable[[], Awaitable[None] | None]
Sleep = Callable[[float], Awaitable[None]]

_logger = logging.getLogger("proxy")


class Background:
    """What one running proxy does beside its requests. `sleep` takes seconds; tests pass their own."""

    def __init__(self, *, sleep: Sleep = asyncio.sleep) -> None:
        self._sleep = sleep
        self._tasks: set[asyncio.Task[Any]] = set()
        self._closed = False

    def __len__(self) -> int:
        """Tasks under way."""
        return len(self._tasks)

    def spawn(self, coroutine: Coroutine[Any, Any, T], name: str) -> asyncio.Task[T]:
        """Starts a task. After `close` it is cancelled before its first step. The name goes to the log."""
        task = asyncio.get_running_loop().create_task(coroutine, name=name)
        self._tasks.add(task)
        task.add_done_callback(self._ended)
        if self._closed:
            task.cancel()
        return task

    def loop(self, name: str, seconds: float, step: Step) -> asyncio.Task[NoReturn]:
        """Runs the step now and again after each pause of `seconds`, counted from its end, until cancelled.

        Raises ValueError unless `seconds` is positive: without a pause the loop would starve all else.
        """
        if not seconds > 0:
            raise ValueError(f"{name}: a loop needs a pause, not {seconds} seconds")
        return self.spawn(self._repeat(name, seconds, step), name)

    async def close(self) -> None:
        """Cancels every task but the caller's own, and waits until they have ended. Idempotent."""
        self._closed = True
        own = asyncio.current_task()
        while others := self._tasks - {own}:
            for task in others:
                task.cancel()
            # A second round only meets what was spawned meanwhile, and that never takes its first step.
            await asyncio.wait(others)

    def _ended(self, task: asyncio.Task[Any]) -> None:
        self._tasks.discard(task)
        if task.cancelled():
            return
        error = task.exception()
        if error is not None:
            _logger.error("%s failed", task.get_name(), exc_info=error)

    async def _repeat(self, name: str, seconds: float, step: Step) -> NoReturn:
        failures = 0
        logged: set[type[BaseException]] = set()
        while True:
            try:
                pending = step()
                if pending is not None:
                    await pending
            except (Exception, asyncio.CancelledError) as error:
                if _cancelled_from_outside(error):
                    raise
                failures += 1
                if type(error) not in logged:
                    logged.add(type(error))
                    _logger.error("%s failed, and goes on", name, exc_info=error)
            else:
                if failures:
                    _logger.warning("%s works again; times it failed: %d", name, failures)
                    failures = 0
                    logged.clear()
            await self._sleep(seconds)


def _cancelled_from_outside(error: BaseException) -> bool:
    """False also for a CancelledError that only came up from something the step waited for."""
    task = asyncio.current_task()
    return isinstance(error, asyncio.CancelledError) and task is not None and task.cancelling() > 0
