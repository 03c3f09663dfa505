"""Whoever asks how many tasks are held gets an answer or None, soon, and never an error."""

import asyncio
import logging
from collections.abc import Callable

import pytest

from proxy.pins import held as held_module
from proxy.pins.held import Held, tasks_held
from proxy.pins.store import PinStoreError

DEADLINE = 10.0  # seconds


class LateStore:
    """Answers with a future that the test holds."""

    def __init__(self) -> None:
        self.answer: asyncio.Future[Held] = asyncio.get_running_loop().create_future()
        self.asked = asyncio.Event()

    def held(self) -> asyncio.Future[Held]:
        self.asked.set()
        return self.answer


class BrokenStore:
    """Fails at once."""

    def held(self) -> Held:
        raise PinStoreError("redis://user:secret@redis is down")


def raise_later(store: LateStore) -> None:
    store.answer.set_exception(PinStoreError("secret"))


def say_nothing(store: LateStore) -> None:
    pass


async def test_a_store_that_fails_at_once_leaves_the_number_open(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING, logger="proxy"):
        assert await tasks_held(BrokenStore()) is None
    assert "PinStoreError" in caplog.text
    assert "secret" not in caplog.text


async def test_a_store_that_answers_later_is_awaited() -> None:
    store = LateStore()
    asking = asyncio.gather(tasks_held(store))
    await asyncio.wait_for(store.asked.wait(), DEADLINE)
    assert not asking.done()
    store.answer.set_result({("agents", "a"): 2})
    (held,) = await asyncio.wait_for(asking, DEADLINE)
    assert held == {("agents", "a"): 2}


@pytest.mark.parametrize("failure", [raise_later, say_nothing])
async def test_a_store_that_fails_later_or_never_answers_leaves_the_number_open(
    failure: Callable[[LateStore], None], monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(held_module, "STORE_WAIT", 0.01)
    store = LateStore()
    failure(store)
    assert await tasks_held(store) is None
    assert "pin store" in caplog.text
    assert "secret" not in caplog.text


async def test_a_store_that_stays_silent_is_told_of_once_until_it_has_answered(
    caplog: pytest.LogCaptureFixture,
) -> None:
    class Store:
        up = False

        def held(self) -> Held:
            if not self.up:
                raise PinStoreError("down")
            return {}

    store, other = Store(), Store()
    for answers, told in ((False, 1), (True, 1), (False, 2), (True, 2)):
        store.up = answers
        for _ in range(3):
            assert await tasks_held(store) == ({} if answers else None)
        assert len(caplog.records) == told
    assert await tasks_held(other) is None
    assert len(caplog.records) == 3
