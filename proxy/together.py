"""Does a costly thing once for all who ask for it at the same time.

Rules:
* It is done once at a time. Who asks meanwhile gets what the next time brings, with all others who did.
* So nobody is told what was found out before he asked.
* If it fails, or whoever it was done for goes away, the next one does it anew.
"""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Generic, TypeVar

T = TypeVar("T")


class Together(Generic[T]):
    """To be awaited in place of `do`."""

    def __init__(self, do: Callable[[], Awaitable[T]]) -> None:
        self._do = do
        self._turn = asyncio.Lock()
        self._begun = 0
        self._asking = 0
        self._last: tuple[int, T] | None = None

    async def __call__(self) -> T:
        """What `do` gives. Raises what it raises."""
        asked = self._begun
        self._asking += 1
        try:
            async with self._turn:
                if self._last is None or self._last[0] <= asked:
                    self._begun += 1
                    self._last = self._begun, await self._do()
                return self._last[1]
        finally:
            self._asking -= 1
            if not self._asking:
                self._last = None
