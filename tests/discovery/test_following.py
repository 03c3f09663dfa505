"""Sources are followed: what they find goes to the pool, what they fail to find does not, and both are told."""

import asyncio
import logging
from collections.abc import AsyncGenerator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from proxy.background import Background
from proxy.config import PoolConfig
from proxy.config.values import DnsRecipe, FileRecipe, Recipe
from proxy.discovery.damping import EMPTY_HOLD
from proxy.discovery.dns import DnsSource
from proxy.discovery.file import FileSource
from proxy.discovery.following import PATIENCE, Discovery, source_of
from proxy.discovery.source import DiscoveryFailure, Found
from proxy.routing.backends import Backend
from proxy.routing.balancing import LeastInFlight
from proxy.routing.pools import Pool
from proxy.snapshot import Snapshot
from tests.wire.harness import until

HERE = DnsRecipe("agents.test", 1, hold=10.0)
THERE = DnsRecipe("others.test", 1, hold=10.0)


def backends(ids: str) -> Found:
    return tuple(Backend(one, "127.0.0.1", 1, discovered=True) for one in ids)


class Told:
    """A source that answers what is put in."""

    def __init__(self, recipe: Recipe) -> None:
        self.recipe = recipe
        self.answers: asyncio.Queue[str | Found | Exception] = asyncio.Queue()
        self.watches = 0
        self.left = 0

    async def watch(self) -> AsyncGenerator[Found, None]:
        self.watches += 1
        try:
            while True:
                answer = await self.answers.get()
                if isinstance(answer, Exception):
                    raise answer
                yield backends(answer) if isinstance(answer, str) else answer
        finally:
            self.left += 1


class Fleet:
    """A discovery with made-up sources, a clock of its own, and what the pools were told."""

    def __init__(self, background: Background) -> None:
        self.now = 0.0
        self.told: list[tuple[str, str]] = []
        self.sources: list[Told] = []
        self.pools = {name: Pool(name, [], policy=LeastInFlight()) for name in ("agents", "others")}
        self.discovery = Discovery(
            background,
            pools=lambda: self.pools,
            changed=self._changed,
            clock=lambda: self.now,
            source=self._source,
            chance=lambda: 0.0,
        )

    async def _changed(self, pool: str, found: Sequence[Backend]) -> None:
        self.told.append((pool, "".join(one.id for one in found)))
        self.pools[pool].replace(found)

    def _source(self, recipe: Recipe) -> Told:
        self.sources.append(Told(recipe))
        return self.sources[-1]

    def follow(self, **recipes: Recipe | None) -> None:
        self.discovery.follow([PoolConfig(name, (), discover=recipe) for name, recipe in recipes.items()])

    async def answer(self, *answers: str | Found | Exception, of: int = -1) -> None:
        """Waits until the source has no answer left, and waits for more."""
        source = self.sources[of]
        for answer in answers:
            source.answers.put_nowait(answer)
            await until(lambda: source.answers.empty())
            await asyncio.sleep(0)

    def snapshot(self) -> Snapshot:
        snapshot = Snapshot()
        self.discovery.add_to(snapshot)
        return snapshot


@pytest.fixture
async def fleet() -> AsyncGenerator[Fleet, None]:
    background = Background()
    yield Fleet(background)
    await background.close()


async def test_the_pool_is_told_each_set_once(fleet: Fleet) -> None:
    fleet.follow(agents=HERE, others=None)
    await fleet.answer("ab", "ab", "abc", "abc")
    assert fleet.told == [("agents", "ab"), ("agents", "abc")]


async def test_what_is_told_of_a_backend_is_a_change_as_well(fleet: Fleet) -> None:
    fleet.follow(agents=HERE)
    heavier = (replace(backends("a")[0], weight=2),)
    await fleet.answer("a", heavier, heavier)
    assert fleet.told == [("agents", "a"), ("agents", "a")]
    assert fleet.pools["agents"].members[0].backend.weight == 2


async def test_failures_change_nothing_and_are_counted(fleet: Fleet, caplog: pytest.LogCaptureFixture) -> None:
    fleet.follow(agents=HERE)
    await fleet.answer("ab")
    success = fleet.snapshot().discovery_success["agents",]
    assert success > 0
    with caplog.at_level(logging.INFO, logger="proxy"):
        await fleet.answer(DiscoveryFailure("timeout", "no answer within 5 s"))
        await until(lambda: fleet.sources[0].watches == 2)  # after a pause
        await fleet.answer("ab")
    assert fleet.told == [("agents", "ab")]
    snapshot = fleet.snapshot()
    assert snapshot.discovery_failures == {("agents", "timeout"): 1}
    assert snapshot.discovered == {("agents",): 2}
    assert [record.getMessage() for record in caplog.records] == [
        "pool agents keeps the backends it has: dns agents.test:1: no answer within 5 s",
        "pool agents: discovery works again; times it failed: 1",
    ]


async def test_what_nobody_expected_is_logged_and_watched_anew(fleet: Fleet, caplog: pytest.LogCaptureFixture) -> None:
    fleet.follow(agents=HERE)
    await fleet.answer(ZeroDivisionError())
    await until(lambda: fleet.sources[0].watches == 2)
    await fleet.answer("a")
    assert fleet.told == [("agents", "a")]
    assert "discover the backends of agents failed, and goes on" in caplog.text


async def test_empty_answers_are_counted_while_they_are_not_believed(fleet: Fleet) -> None:
    fleet.follow(agents=HERE)
    await fleet.answer("a", "", "")
    assert fleet.snapshot().discovery_failures == {("agents", "empty"): 2}
    assert fleet.discovery.told()["agents"]["failure"] == "nobody is there, which is not believed yet"
    assert fleet.discovery.told()["agents"]["failures_in_a_row"] == 2
    fleet.now = EMPTY_HOLD
    await fleet.answer("", "")
    assert fleet.told == [("agents", "a"), ("agents", "")]
    assert fleet.snapshot().discovery_failures == {("agents", "empty"): 2}
    assert fleet.discovery.told()["agents"]["failure"] is None
    assert fleet.discovery.told()["agents"]["failures_in_a_row"] == 0


async def test_those_who_leave_are_damped(fleet: Fleet) -> None:
    fleet.follow(agents=HERE)
    await fleet.answer("ab", "a", "a")
    assert fleet.told == [("agents", "ab")]
    assert fleet.discovery.told()["agents"]["missing"] == ["b"]
    fleet.now = 10.0
    await fleet.answer("a")
    assert fleet.told == [("agents", "ab"), ("agents", "a")]
    assert fleet.discovery.told()["agents"]["missing"] == []


async def test_a_recipe_that_stays_is_followed_on_and_another_is_followed_instead(fleet: Fleet) -> None:
    fleet.follow(agents=HERE, others=THERE)
    await fleet.answer("a", of=0)
    fleet.follow(agents=HERE, others=HERE)
    assert [source.recipe for source in fleet.sources] == [HERE, THERE, HERE]
    await fleet.answer("ab", of=0)
    fleet.follow(others=HERE)
    await until(lambda: [source.left for source in fleet.sources] == [1, 1, 0])
    await fleet.answer("c", of=2)
    assert fleet.told == [("agents", "a"), ("agents", "ab"), ("others", "c")]
    assert set(fleet.discovery.told()) == {"others"}


async def test_a_pool_s_numbers_go_with_its_recipe(fleet: Fleet) -> None:
    fleet.follow(agents=HERE)
    await fleet.answer(DiscoveryFailure("timeout", "x"))
    fleet.follow()
    assert fleet.snapshot() == Snapshot()
    assert fleet.discovery.awaited is None


async def test_members_from_before_stay_until_somebody_is_found(fleet: Fleet) -> None:
    fleet.pools["agents"].replace(backends("ab"))
    fleet.follow(agents=HERE)
    assert fleet.discovery.awaited is None
    await fleet.answer("")
    assert fleet.told == [("agents", "ab")]
    await fleet.answer("bc")
    assert fleet.told == [("agents", "ab"), ("agents", "bc")]


async def test_first_answers_are_awaited_for_a_while(fleet: Fleet) -> None:
    fleet.follow(agents=HERE, others=THERE)
    assert fleet.discovery.awaited == "the backends of pool agents are not discovered yet"
    await fleet.answer("a", of=0)
    assert fleet.discovery.awaited == "the backends of pool others are not discovered yet"
    await fleet.answer("", of=1)  # nobody, but an answer
    assert fleet.discovery.awaited is None
    fleet.follow(agents=HERE, others=HERE)
    assert fleet.discovery.awaited is not None
    fleet.now += PATIENCE
    assert fleet.discovery.awaited is None


async def test_it_is_told_where_the_backends_come_from(fleet: Fleet) -> None:
    fleet.follow(agents=HERE, others=FileRecipe(Path("/run/*.json")))
    told = fleet.discovery.told()
    nothing: dict[str, Any] = {"last_success": None, "failure": None, "failures_in_a_row": 0, "missing": []}
    assert told == {
        "agents": {"from": "dns agents.test:1", **nothing},
        "others": {"from": "file /run/*.json", **nothing},
    }


async def test_long_changes_are_told_in_short(fleet: Fleet, caplog: pytest.LogCaptureFixture) -> None:
    fleet.follow(agents=HERE)
    with caplog.at_level(logging.INFO, logger="proxy"):
        await fleet.answer("abcdefghijk")
    assert caplog.messages == [
        "pool agents has 11 discovered backends; come: a, b, c, d, e, f, g, h and 3 more",
    ]


async def test_more_backends_than_a_subscription_is_opened_at_are_a_warning(
    fleet: Fleet, caplog: pytest.LogCaptureFixture
) -> None:
    fleet.pools["agents"].listen = "all"
    fleet.follow(agents=HERE)
    await fleet.answer("abcdefghijklmnop")
    assert "subscriptions" not in caplog.text
    await fleet.answer("abcdefghijklmnopq")
    assert "pool agents: subscriptions are opened at its first 16 backends only" in caplog.text


def test_each_recipe_has_its_source() -> None:
    assert isinstance(source_of(HERE), DnsSource)
    assert isinstance(source_of(FileRecipe(Path("/x.json"))), FileSource)
