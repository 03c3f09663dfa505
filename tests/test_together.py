"""A costly thing is done once for all who ask at the same time, and nobody is told what is older than his question."""

import asyncio

import pytest

from proxy.together import Together


class Work:
    """Takes as long as the test likes."""

    def __init__(self) -> None:
        self.begun = 0
        self.going = asyncio.Event()
        self.failure: Exception | None = None

    async def __call__(self) -> int:
        self.begun += 1
        mine = self.begun
        await self.going.wait()
        if self.failure is not None:
            raise self.failure
        return mine


async def turn() -> None:
    for _ in range(5):
        await asyncio.sleep(0)


async def test_who_asks_while_it_is_done_gets_the_next_with_all_others_who_did() -> None:
    work = Work()
    together = Together(work)
    first = asyncio.create_task(together())
    await turn()
    others = [asyncio.create_task(together()) for _ in range(9)]
    await turn()
    assert work.begun == 1
    work.going.set()
    assert await first == 1
    assert await asyncio.gather(*others) == [2] * 9
    assert work.begun == 2


async def test_it_is_done_anew_for_who_asks_later() -> None:
    work = Work()
    work.going.set()
    together = Together(work)
    assert [await together() for _ in range(3)] == [1, 2, 3]


async def test_a_failure_is_told_to_who_it_was_done_for_and_the_next_does_it_anew() -> None:
    work = Work()
    together = Together(work)
    work.failure = OSError("no")
    first, second = (asyncio.create_task(together()) for _ in range(2))
    await turn()
    work.going.set()
    with pytest.raises(OSError, match="no"):
        await first
    with pytest.raises(OSError, match="no"):
        await second
    work.failure = None
    assert await together() == 3


async def test_who_leaves_keeps_nobody_from_an_answer() -> None:
    work = Work()
    together = Together(work)
    first, second = (asyncio.create_task(together()) for _ in range(2))
    await turn()
    first.cancel()
    await turn()
    work.going.set()
    assert await second == 2
    assert await together() == 3
