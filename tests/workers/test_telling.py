"""Pins that keep news: the latest of each task once, of what this process holds, and no more of them than pins."""

import asyncio
import json
from dataclasses import dataclass

import pytest

from proxy.pins.memory import MemoryPinStore
from proxy.pins.store import Pin
from proxy.routing.ownership import PinKey, pin_key
from proxy.workers.telling import TaskNews, TellingPinStore

ONE, TWO, THREE = (pin_key("agents", name) for name in ("one", "two", "three"))


@dataclass
class Clock:
    now: float = 1000.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def pins(clock: Clock) -> TellingPinStore:
    return TellingPinStore(ttl=100.0, capacity=2, clock=clock)


def test_a_new_task_is_news_once(pins: TellingPinStore) -> None:
    pins.put(ONE, "agents", "a", ttl=5.0)
    assert pins.take_news() == {ONE: TaskNews("agents", "a", 5.0, 1000.0, finished=False)}
    assert pins.take_news() == {}
    pins.get(ONE)
    pins.peek(ONE)
    pins.held()
    assert pins.take_news() == {}


def test_the_latest_of_each_task_is_told(pins: TellingPinStore, clock: Clock) -> None:
    pins.put(ONE, "agents", "a", ttl=None)
    clock.now += 1
    pins.refresh(ONE, ttl=7.0)
    pins.put(TWO, "agents", "b", ttl=None)
    clock.now += 1
    pins.finish(TWO)
    assert pins.take_news() == {
        ONE: TaskNews("agents", "a", 7.0, 1001.0, finished=False),
        TWO: TaskNews("agents", "b", None, 1002.0, finished=True),
    }


def test_a_task_that_is_over_or_unknown_is_no_news(pins: TellingPinStore) -> None:
    pins.refresh(ONE, ttl=1.0)
    pins.finish(ONE)
    assert pins.take_news() == {}
    pins.put(ONE, "agents", "a", ttl=None)
    pins.finish(ONE)
    pins.take_news()
    pins.refresh(ONE, ttl=3.0)  # a late answer
    pins.finish(ONE)
    assert pins.take_news() == {}


def test_a_pin_that_another_was_first_to_write_is_no_news(pins: TellingPinStore) -> None:
    pins.put(ONE, "agents", "a", ttl=None)
    pins.take_news()
    assert pins.put(ONE, "agents", "b", ttl=None) == "a"
    assert pins.take_news() == {}
    assert pins.put(ONE, "agents", "b", ttl=None, replace=True) == "b"
    assert pins.take_news()[ONE].backend == "b"


def test_news_that_nobody_takes_away_are_bounded(pins: TellingPinStore) -> None:
    for key in (ONE, TWO, THREE):
        pins.put(key, "agents", "a", ttl=None)
    assert len(pins.take_news()) == 2
    pins.put(ONE, "agents", "a", ttl=None)
    assert list(pins.take_news()) == [ONE]


def test_news_go_through_json_and_make_the_same_in_another_store(pins: TellingPinStore, clock: Clock) -> None:
    pins.put(ONE, "agents", "a", ttl=50.0)
    pins.put(TWO, "agents", "b", ttl=None)
    pins.finish(TWO)
    told = json.loads(json.dumps([[key.hex(), *news] for key, news in pins.take_news().items()]))
    ledger = MemoryPinStore(ttl=100.0, capacity=10, clock=clock)
    for key, pool, backend, ttl, _, finished in told:
        ledger.put(PinKey(bytes.fromhex(key)), pool, backend, ttl=ttl, replace=True)
        if finished:
            ledger.finish(PinKey(bytes.fromhex(key)))
    assert ledger.held() == pins.held() == {("agents", "a"): 1}
    clock.now += 50.0
    assert ledger.held() == pins.held() == {}


class Supervisor:
    """Notes what it is asked; answers as it is told to."""

    def __init__(self) -> None:
        self.asked: list[tuple[int, PinKey]] = []
        self.hurried = 0

    def ask(self, number: int, key: PinKey) -> None:
        self.asked.append((number, key))

    def hurry(self) -> None:
        self.hurried += 1

    def pins(self, clock: Clock, capacity: int = 10) -> TellingPinStore:
        return TellingPinStore(ttl=100.0, capacity=capacity, clock=clock, ask=self.ask, hurry=self.hurry)


@pytest.mark.parametrize("pool", ["agents", None])
async def test_what_is_not_known_here_is_asked_for_once(clock: Clock, pool: str | None) -> None:
    supervisor = Supervisor()
    pins = supervisor.pins(clock)
    answer = pins.get(ONE)
    assert isinstance(answer, asyncio.Future)
    ((number, key),) = supervisor.asked
    assert key == ONE
    pins.answered(number, pool, "b")
    assert await answer == Pin("b")
    assert pins.get(ONE) == Pin("b")
    assert len(supervisor.asked) == 1
    assert pins.take_news() == {}  # it was the supervisor who told
    assert dict(pins.held()) == ({} if pool is None else {("agents", "b"): 1})
    pins.finish(ONE)
    assert len(pins.take_news()) == (pool is not None)


async def test_nobody_knows(clock: Clock) -> None:
    supervisor = Supervisor()
    pins = supervisor.pins(clock)
    answer = pins.get(ONE)
    assert isinstance(answer, asyncio.Future)
    pins.answered(supervisor.asked[0][0], None, None)
    assert await answer is None
    pins.answered(supervisor.asked[0][0], "agents", "b")  # a second answer means nothing
    assert pins.peek(ONE) is None


async def test_a_supervisor_that_does_not_answer_knows_nothing(clock: Clock, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("proxy.workers.telling.ANSWER_LIMIT", 0.02)
    pins = Supervisor().pins(clock)
    answer = pins.get(ONE)
    assert isinstance(answer, asyncio.Future)
    assert await asyncio.wait_for(answer, 5) is None


async def test_who_gave_up_does_not_mind_an_answer(clock: Clock) -> None:
    supervisor = Supervisor()
    pins = supervisor.pins(clock)
    answer = pins.get(ONE)
    assert isinstance(answer, asyncio.Future)
    answer.cancel()
    pins.answered(supervisor.asked[0][0], "agents", "b")
    assert pins.get(ONE) == Pin("b")


async def test_beyond_so_many_questions_nobody_is_asked(clock: Clock) -> None:
    supervisor = Supervisor()
    pins = supervisor.pins(clock)
    for number in range(5000):
        pins.get(pin_key("agents", str(number)))
    assert len(supervisor.asked) == 4096
    assert pins.get(ONE) is None


async def test_that_a_task_was_made_or_has_ended_is_told_at_once(clock: Clock) -> None:
    supervisor = Supervisor()
    pins = supervisor.pins(clock)
    pins.put(ONE, "agents", "a", ttl=None)
    pins.put(TWO, "agents", "a", ttl=None)
    assert supervisor.hurried == 0
    await asyncio.sleep(0)
    assert supervisor.hurried == 1
    pins.refresh(ONE, ttl=5.0)
    await asyncio.sleep(0)
    assert supervisor.hurried == 1
    pins.finish(ONE)
    await asyncio.sleep(0)
    assert supervisor.hurried == 2
    assert [row[0] for row in pins.news_as_values()] == [ONE.hex(), TWO.hex()]
