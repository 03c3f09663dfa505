"""Pins that keep news: the latest of each task once, of what this process holds, and no more of them than pins."""

import json
from dataclasses import dataclass

import pytest

from proxy.pins.memory import MemoryPinStore
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
