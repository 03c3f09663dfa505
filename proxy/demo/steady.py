"""Keeps a proxy a little busy while the demo serves: tasks that take a while, polled to their ends, and quick calls."""

from collections import Counter
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, suppress
from functools import partial
from itertools import cycle

import aiohttp

from proxy.background import Background
from proxy.demo.messages import Json
from proxy.demo.tasks import CALL_LIMIT, UNANSWERED, Fate, call, run_task

TASKS = 9
"""Tasks under way: some for each server, so that one that is drained has some to finish."""
SHORTEST, LONGEST = 20.0, 40.0  # seconds of computing: long enough to see a server emptying, short enough to wait for
BETWEEN_TASKS, BETWEEN_CALLS = 0.5, 0.7  # seconds

_STRIDE = 4  # has no divisor in common with TASKS: whoever makes the shortest task now does not next time
_CALLS: tuple[tuple[str, Json, str], ...] = (
    ("tools/call", {"name": "whoami", "arguments": {}}, "whoami"),
    ("tools/list", {}, ""),
    ("tools/call", {"name": "whoami", "arguments": {}}, "whoami"),
    ("server/discover", {}, ""),
)


@asynccontextmanager
async def steady(url: str, *, shortest: float = SHORTEST, longest: float = LONGEST) -> AsyncIterator[Counter[Fate]]:
    """Keeps it up until the block is left; yields how the tasks have ended so far.

    Those under way at the end are abandoned and not counted. Nothing that goes wrong is raised.
    """
    fates, background = Counter[Fate](), Background()
    connector = aiohttp.TCPConnector(limit=TASKS + 1)
    timeout = aiohttp.ClientTimeout(total=CALL_LIMIT)
    calls = cycle(_CALLS)

    async def one_task(places: Iterator[float]) -> None:
        record = await run_task(session, url, seconds=shortest + (longest - shortest) * next(places))
        fates[record.fate] += 1

    async def one_call() -> None:
        method, params, name = next(calls)
        with suppress(*UNANSWERED):  # a call that failed is in the proxy's counts
            await call(session, url, method, params, name=name)

    async with aiohttp.ClientSession(connector=connector, timeout=timeout) as session:
        try:
            for number in range(TASKS):
                places = cycle([(number + _STRIDE * turn) % TASKS / (TASKS - 1) for turn in range(TASKS)])
                background.loop("make tasks", BETWEEN_TASKS, partial(one_task, places))
            background.loop("make calls", BETWEEN_CALLS, one_call)
            yield fates
        finally:
            await background.close()


def summary(fates: Counter[Fate]) -> str:
    """What became of those tasks, in a line."""
    told = f"Meanwhile completed: {fates[Fate.COMPLETED]} tasks; lost: {fates[Fate.LOST]}"
    return f"{told}; failed: {fates[Fate.FAILED]}" if fates[Fate.FAILED] else told
