"""Where sessions and rounds go: the backend that a session's tag names, and the one that asked back."""

from typing import Any

import pytest

from proxy.routing.errors import NoBackend, NoRoute, ProxyError, SessionOwnerGone
from proxy.routing.headers import RoutingHeaders
from proxy.routing.ownership import session_tag
from proxy.routing.rounds import LIFE, ConnectionMemory, Rounds
from proxy.routing.routes import Match, Pattern, ProtocolCondition, Route
from proxy.wire.destination import Destination
from tests.wire.directories import Place, about, asked, directory, found, one_found, pool_of

STICKY = pool_of("sticky", "abc", drained="b", departed="d")
OTHER = pool_of("other", "ax")
LOOSE = pool_of("loose", "lm", sticky=False)
TENANT = pool_of("tenant", "a")
POOLS = [STICKY, OTHER, LOOSE, TENANT]
ROUTES = [
    Route("render", Match(method=Pattern("tools/call"), name=Pattern("render")), {"other": 1}),
    Route("tenant", Match(host=Pattern("acme.test")), {"tenant": 1}),
    Route("modern", Match(path=Pattern("/new"), protocol=ProtocolCondition(">=2026-07-28")), {"sticky": 1}),
    Route("old", Match(protocol=ProtocolCondition("<2025-06-18")), {"sticky": 1}),
    Route("rest", Match(), {"sticky": 9, "other": 1}),
    Route("mixed", Match(path=Pattern("/mixed")), {"sticky": 1, "loose": 1}),
    Route("loose", Match(path=Pattern("/loose")), {"loose": 1}),
]


def tagged(pool: str, backend: str, own: str = "s-1") -> str:
    return f"{session_tag(pool, backend)}.{own}"


def of_session(session: str | None, verb: str = "POST", version: str = "2025-11-25", **more: Any) -> RoutingHeaders:
    return asked(more.pop("method", ""), version=version, session=session, **more)._replace(verb=verb)


async def session_found(request: RoutingHeaders) -> tuple[Place, str]:
    """The owner's place, and the session's id as the backend knows it."""
    destination = await found(directory(POOLS, ROUTES), request)
    assert isinstance(destination, Destination)
    assert (destination.kind, destination.bound) == ("session", True)
    return about(destination), destination.session


@pytest.mark.parametrize(
    ("request_headers", "expected"),
    [
        (of_session(tagged("sticky", "a")), ("old", "sticky", "a", "tag")),
        (of_session(tagged("sticky", "c"), "GET"), ("old", "sticky", "c", "tag")),
        (of_session(tagged("sticky", "c"), "DELETE"), ("old", "sticky", "c", "tag")),
        (of_session(tagged("sticky", "c"), version=""), ("old", "sticky", "c", "tag")),
        (of_session(tagged("sticky", "c"), version="2024-11-05"), ("old", "sticky", "c", "tag")),
        # also one that takes no new work, or has left the configuration
        (of_session(tagged("sticky", "b")), ("old", "sticky", "b", "tag")),
        (of_session(tagged("sticky", "d")), ("old", "sticky", "d", "tag")),
        # any reachable pool, with the first route that leads there; tools are not asked of a session
        (of_session(tagged("other", "a")), ("render", "other", "a", "tag")),
        (of_session(tagged("other", "x"), method="tools/call", name="whoami"), ("render", "other", "x", "tag")),
        (of_session(tagged("tenant", "a"), host="acme.test"), ("tenant", "tenant", "a", "tag")),
        (of_session(tagged("sticky", "a"), path="/mixed"), ("mixed", "sticky", "a", "tag")),
    ],
)
@pytest.mark.parametrize("own", ["s-1", "", "a.b", "0123456789.x", "\xe9"])
async def test_a_session_goes_to_the_backend_of_its_tag(
    request_headers: RoutingHeaders, expected: Place, own: str
) -> None:
    request = request_headers._replace(session=(request_headers.session or "").replace("s-1", own))
    assert await session_found(request) == (expected, own)


@pytest.mark.parametrize(
    ("request_headers", "error"),
    [
        (of_session("s-1"), SessionOwnerGone),
        (of_session(""), SessionOwnerGone),
        (of_session("0123456789.s-1"), SessionOwnerGone),
        (of_session(tagged("sticky", "gone")), SessionOwnerGone),
        (of_session(tagged("sticky", "a").upper()), SessionOwnerGone),
        # never a pool that the request's own host or path does not lead to
        (of_session(tagged("tenant", "a")), SessionOwnerGone),
        (of_session(tagged("loose", "l")), SessionOwnerGone),
        (of_session(tagged("sticky", "a"), path="/elsewhere"), NoRoute),
        (of_session(tagged("sticky", "a"), path="/new"), NoRoute),  # for the other era
    ],
)
async def test_sessions_that_have_no_owner_here(request_headers: RoutingHeaders, error: type[ProxyError]) -> None:
    with pytest.raises(error):
        await found(directory(POOLS, ROUTES), request_headers)


def test_a_session_whose_owner_is_gone_begins_anew() -> None:
    """404 makes the client initialize again."""
    assert (SessionOwnerGone.status, SessionOwnerGone.code) == (404, -32001)


@pytest.mark.parametrize(
    "request_headers",
    [
        of_session("s-1", path="/loose"),
        of_session(tagged("loose", "l"), path="/loose"),
        of_session(tagged("sticky", "a"), path="/loose"),
        of_session("0123456789.s-1", path="/loose"),
    ],
)
async def test_where_sessions_are_not_kept_they_are_balanced_like_all_else(request_headers: RoutingHeaders) -> None:
    place = directory(POOLS, ROUTES)
    seen = set()
    for _ in range(4):
        destination = await found(place, request_headers)
        assert isinstance(destination, Destination)
        assert (destination.kind, destination.session, destination.bound) == ("none", "", False)
        seen.add(about(destination))
    assert seen == {("loose", "loose", "l", "balance"), ("loose", "loose", "m", "balance")}


async def test_an_unknown_session_is_balanced_where_one_of_the_pools_keeps_none() -> None:
    """It may be one of that pool's, which carry no tag."""
    place = directory(POOLS, ROUTES)
    pools = [(await one_found(place, of_session("s-1", path="/mixed")))[1] for _ in range(4)]
    assert pools == ["sticky", "loose", "sticky", "loose"]


@pytest.mark.parametrize(
    "request_headers",
    [
        of_session(None),
        of_session(tagged("sticky", "b"), version="2026-07-28"),
        of_session("unknown", version="2026-07-28"),
    ],
)
async def test_other_requests_are_of_no_session(request_headers: RoutingHeaders) -> None:
    """`initialize` has none yet; a modern request's is ignored."""
    destination = await found(directory([STICKY], [Route("all", Match(), {"sticky": 1})]), request_headers)
    assert isinstance(destination, Destination)
    assert (destination.kind, destination.session) == ("none", "")
    assert about(destination)[3] == "balance"


async def test_a_forgotten_backend_s_sessions_have_no_owner() -> None:
    pool = pool_of("sticky", "ab", departed="c")
    place = directory([pool], [Route("all", Match(), {"sticky": 1})])
    request = of_session(tagged("sticky", "c"))
    assert await one_found(place, request) == ("all", "sticky", "c", "tag")
    gone = pool.member("c")
    assert gone is not None
    pool.forget(gone)
    with pytest.raises(SessionOwnerGone):
        await found(place, request)


# ---- rounds

AGENTS = Route("agents", Match(), {"agents": 1})
CALL = asked(name="book", fields={"authorization": "Bearer a"})


class Scene:
    """One pool of three, and what is remembered of rounds."""

    def __init__(self) -> None:
        self.now = 0.0
        self.rounds = Rounds(lambda: self.now)
        self.pool = pool_of("agents", "abc")
        self.place = directory([self.pool], [AGENTS], rounds=self.rounds)
        self.memory = ConnectionMemory()

    def asked(self, backend: str) -> None:
        self.rounds.asked("agents", CALL, "::1", self.memory.rounds, backend)

    async def destination(
        self, request: RoutingHeaders = CALL, *, client: str = "::1", same: bool = True
    ) -> Destination:
        memory = self.memory if same else ConnectionMemory()
        destination = await found(self.place, request, client=client, memory=memory)
        assert isinstance(destination, Destination)
        return destination


@pytest.mark.parametrize("same", [True, False])
async def test_the_next_round_prefers_the_backend_that_asked(same: bool) -> None:
    scene = Scene()
    scene.asked("c")
    for _ in range(3):
        destination = await scene.destination(same=same)
        assert about(destination) == ("agents", "agents", "c", "pin")
        assert (destination.kind, destination.bound) == ("round", False)


@pytest.mark.parametrize(
    ("request_headers", "client"),
    [
        (CALL._replace(name="buy"), "::1"),
        (CALL._replace(method="prompts/get"), "::1"),
        (CALL._replace(fields={"authorization": "Bearer b"}), "::1"),
        (CALL, "::2"),
        (CALL._replace(version="2025-11-25", modern=False), "::1"),
    ],
)
async def test_other_requests_are_balanced(request_headers: RoutingHeaders, client: str) -> None:
    scene = Scene()
    scene.asked("c")
    kinds = [(await scene.destination(request_headers, client=client, same=False)).kind for _ in range(3)]
    assert kinds == ["none"] * 3


async def test_a_legacy_request_is_of_no_round_even_on_the_same_connection() -> None:
    scene = Scene()
    scene.asked("c")
    assert (await scene.destination(CALL._replace(version="2025-11-25", modern=False))).kind == "none"


async def test_a_round_is_preferred_though_its_backend_takes_no_new_work() -> None:
    """A sibling cannot read what it sealed."""
    scene = Scene()
    scene.asked("c")
    member = scene.pool.member("c")
    assert member is not None
    scene.pool.set_draining(member, True)
    assert (await scene.destination()).choice.member is member
    scene.pool.replace([one.backend for one in scene.pool.members if one is not member])
    assert (await scene.destination()).choice.member is member
    scene.pool.forget(member)
    assert (await scene.destination()).kind == "none"


async def test_a_round_that_is_over_or_too_old_is_balanced() -> None:
    scene = Scene()
    scene.asked("c")
    scene.rounds.over("agents", CALL, "::1", scene.memory.rounds, "c")
    assert (await scene.destination()).kind == "none"
    scene.asked("c")
    scene.now = LIFE
    assert (await scene.destination()).kind == "none"


async def test_a_round_whose_backend_is_not_reached_goes_to_another() -> None:
    """It is a preference; the other one may ask anew."""
    scene = Scene()
    scene.asked("c")
    failed = await scene.destination()
    again = scene.place.find_another(CALL, None, failed, [failed.choice.member])
    assert (again.kind, again.bound, again.choice.source) == ("none", False, "balance")
    assert again.choice.member.backend.id in "ab"


async def test_a_round_in_a_pool_that_takes_no_new_work_at_all() -> None:
    scene = Scene()
    for member in scene.pool.members:
        scene.pool.set_draining(member, True)
    with pytest.raises(NoBackend):
        await scene.destination()
    scene.asked("c")
    assert about(await scene.destination()) == ("agents", "agents", "c", "pin")
