"""What follows an attempt that failed: where the next one goes and after which pause, or what is answered."""

from types import SimpleNamespace
from typing import Any

import pytest

from proxy.routing.errors import (
    BackendClosed,
    BadResponse,
    ConnectFailed,
    ConnectRefused,
    HeadTimeout,
    OwnerDown,
    ProxyError,
)
from proxy.routing.members import Member, Source
from proxy.routing.pools import State
from proxy.routing.retries import RetryRule
from proxy.routing.rounds import ConnectionMemory, Rounds
from proxy.routing.routes import Match, Route
from proxy.wire.attempts import Attempts, Next
from proxy.wire.destination import Destination, Kind, Lane
from tests.wire.directories import directory, pool_of
from tests.wire.request_heads import read

CLOSED, REFUSED = BackendClosed("closed"), ConnectRefused("refused")
LIST, CALL, DISCOVER = b"tools/list", b"tools/call", b"server/discover"


class Scene:
    """A request to a pool of these backends, and a clock."""

    def __init__(
        self, method: bytes, ids: str = "abc", *, rule: RetryRule | None = None, state: State = "local"
    ) -> None:
        self.now = 0.0
        self.counted: list[str] = []
        self.memory = ConnectionMemory()
        self.rounds = Rounds(lambda: self.now)
        self.pool = pool_of("agents", ids, state=state)
        route = Route("rest", Match(), {"agents": 1})
        self.lane = Lane(self.pool, {}, own_host=False, owner_wait=1.0, retry=rule or RetryRule())
        self._route = route
        lines = [b"MCP-Protocol-Version: 2026-07-28", b"Mcp-Method: " + method]
        task = "t" if method.startswith(b"tasks/") else None
        around: Any = SimpleNamespace(
            clock=lambda: self.now,
            directory=directory([self.pool], [route]),
            rounds=self.rounds,
            counters=SimpleNamespace(
                retried=lambda pool, reason: self.counted.append(f"retried {pool} {reason}"),
                withheld=lambda pool, label: self.counted.append(f"withheld {pool} {label}"),
            ),
        )
        client: Any = SimpleNamespace(peer="192.0.2.7", memory=self.memory)
        self.attempts = Attempts(around, client, read(*lines, b"Mcp-Name: t"), task=task, started=0.0)

    def at(self, backend: str, source: Source = "balance", kind: Kind = "none") -> Destination:
        return Destination(self._route, self.lane, self.member(backend).chosen(source), kind)

    def member(self, backend: str) -> Member:
        found = self.pool.member(backend)
        assert found is not None
        return found

    def unreached(self, at: Destination, failure: ProxyError = REFUSED) -> Next | type[ProxyError]:
        try:
            return self.attempts.unreached(failure, at)
        except ProxyError as error:
            return type(error)

    def unanswered(
        self, at: Destination, failure: ProxyError = CLOSED, *, kept: bool = True
    ) -> Next | type[ProxyError]:
        try:
            return self.attempts.unanswered(failure, at, kept=kept)
        except ProxyError as error:
            return type(error)


def backend_of(following: Next | type[ProxyError]) -> str:
    assert isinstance(following, Next), following
    return following.place.choice.member.backend.id


# ---- nothing was sent
def test_whatever_the_method_all_are_tried_once_and_the_last_failure_is_the_answer() -> None:
    scene = Scene(CALL)
    tried = ["a"]
    for _ in range(2):
        tried.append(backend_of(scene.unreached(scene.at(tried[-1]))))
    assert sorted(tried) == ["a", "b", "c"]
    assert scene.unreached(scene.at(tried[-1]), ConnectFailed("no")) is ConnectFailed
    assert scene.counted == [f"retried agents {REFUSED.reason}"] * 2


@pytest.mark.parametrize(("kind", "source"), [("task", "pin"), ("task", "search"), ("session", "tag")])
def test_no_other_is_tried_in_an_owners_place(kind: Kind, source: Source) -> None:
    scene = Scene(b"tasks/get")
    assert scene.unreached(scene.at("a", source, kind)) is OwnerDown
    assert scene.counted == []


def test_a_failure_that_may_have_sent_something_is_the_answer() -> None:
    scene = Scene(LIST)
    assert scene.unreached(scene.at("a"), HeadTimeout("late")) is HeadTimeout


def test_the_pages_of_a_list_follow_to_the_one_that_answers() -> None:
    scene = Scene(LIST)
    other = backend_of(scene.unreached(scene.at("a")))
    assert scene.memory.lists == {"tools/list": ("agents", other)}


def test_what_led_to_one_that_failed_leads_there_no_more() -> None:
    scene = Scene(LIST)
    scene.memory.lists["tools/list"] = ("agents", "a")
    for source, kind, left in (("balance", "none", True), ("pin", "task", True), ("pin", "none", False)):
        scene.attempts.prefer_no_longer(scene.at("a", source, kind))  # type: ignore[arg-type]
        assert bool(scene.memory.lists) is left


# ---- it may have been sent
@pytest.mark.parametrize(
    ("method", "failure", "kept", "outcome", "counted"),
    [
        (LIST, CLOSED, True, "again", ["retried agents backend_closed"]),
        (LIST, CLOSED, False, BackendClosed, ["withheld agents tools/list"]),
        (LIST, HeadTimeout("late"), True, HeadTimeout, []),
        (LIST, BadResponse("no"), True, BadResponse, []),
        (CALL, CLOSED, False, BackendClosed, ["withheld agents tools/call"]),
    ],
)
def test_it_is_sent_again_where_that_does_no_harm(
    method: bytes, failure: ProxyError, kept: bool, outcome: object, counted: list[str]
) -> None:
    scene = Scene(method)
    following = scene.unanswered(scene.at("a"), failure, kept=kept)
    if outcome == "again":
        assert backend_of(following) in "bc"
        assert isinstance(following, Next) and not following.stays and following.pause is None
    else:
        assert following is outcome
    assert scene.counted == counted


@pytest.mark.parametrize("attempts", [1, 2, 3, 5])
def test_it_is_sent_as_often_as_the_rule_says_first_to_others_then_to_the_same(attempts: int) -> None:
    scene = Scene(LIST, "ab", rule=RetryRule(attempts=attempts))
    at, went = scene.at("a"), ["a"]
    while isinstance(following := scene.unanswered(at), Next):
        at = following.place
        went.append(backend_of(following))
        assert len(went) <= attempts
    assert following is BackendClosed
    assert went == ["a", "b", "b", "b", "b"][: len(went)], "the same, if there is no other"
    assert len(went) == min(attempts, 4), "a budget of three repeats"


def test_a_round_is_repeated_at_the_one_that_asked_back() -> None:
    scene = Scene(LIST)
    following = scene.unanswered(scene.at("a", "pin", "round"))
    assert backend_of(following) == "a"


@pytest.mark.parametrize(("state", "goes_on"), [("local", False), ("shared", True)])
def test_a_task_of_no_known_owner_goes_elsewhere_only_where_all_know_it(state: State, goes_on: bool) -> None:
    scene = Scene(b"tasks/get", state=state)
    assert isinstance(scene.unanswered(scene.at("a", "ring", "task")), Next) is goes_on


def test_an_owner_is_asked_again_where_it_is_at_once_then_with_pauses_for_so_long() -> None:
    scene = Scene(b"tasks/get")
    owner = scene.at("a", "pin", "task")
    assert scene.unanswered(owner) == Next(owner, 0.0, stays=True)
    pauses = []
    while isinstance(following := scene.unanswered(owner), Next):
        assert following.place is owner and following.stays and following.pause
        pauses.append(following.pause)
        scene.now += following.pause
    assert following is OwnerDown
    assert pauses == sorted(pauses) and 0.5 < sum(pauses) <= 1.0
    assert scene.attempts.silent_since == 0.0
    assert scene.unanswered(owner, BadResponse("no")) is BadResponse, "it would say the same the next time"


# ---- what must be answered
def test_discovery_is_asked_of_all_and_of_all_anew_as_long_as_all_refuse() -> None:
    scene = Scene(DISCOVER, "ab")
    scene.pool.set_draining(scene.member("b"), True)
    at, went = scene.at("a"), ["a"]
    while isinstance(following := scene.unreached(at), Next):
        at = following.place
        went.append(backend_of(following))
        scene.now += following.pause or 0.0
    assert following is ConnectRefused
    assert 0.5 < scene.now <= 1.0
    assert went == ["a", "b"] * (len(went) // 2) + ["a"] * (len(went) % 2), "those that take no new work as well"


def test_discovery_is_asked_of_each_only_once_when_one_has_failed_to_answer() -> None:
    scene = Scene(DISCOVER, "ab")
    following = scene.unanswered(scene.at("a"), HeadTimeout("late"))
    assert isinstance(following, Next) and backend_of(following) == "b"
    assert scene.unanswered(following.place, HeadTimeout("late")) is HeadTimeout
