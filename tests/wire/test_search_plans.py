"""Who is asked for the owner of a task that nobody knows, and on what terms."""

import pytest

from proxy.pins.store import POOL_ITSELF
from proxy.routing.errors import NoBackend, NoRoute, OwnerUnknown, ProxyError
from proxy.routing.headers import RoutingHeaders
from proxy.routing.ownership import pin_key
from proxy.routing.pools import Pool
from proxy.routing.rounds import ConnectionMemory
from proxy.routing.routes import Match, Pattern, Route
from proxy.wire.destination import SearchPlan
from proxy.wire.directory import Directory
from tests.wire.directories import Place, Store, about, asked, directory, found, one_found, plan_found, pool_of

TAG = r"^(?P<backend>[a-z])\."
GPU = pool_of("gpu", "abc", drained="c", departed="d", tag=TAG)
AGENTS = pool_of("agents", "xy")
SHARED = pool_of("shared", "stu", drained="s", departed="v", state="shared")
OFF = pool_of("off", "op", search=False)
DRAINED = pool_of("drained", "mn", drained="mn")
UNFIT = pool_of("unfit", "qr", drained="qr", state="shared")
ALONE = pool_of("alone", "z", drained="z")
ALONE_SHARED = pool_of("alone-shared", "w", drained="w", state="shared")
POOLS = [GPU, AGENTS, SHARED, OFF, DRAINED, UNFIT, ALONE, ALONE_SHARED]
RENDER = Route("render", Match(method=Pattern("tools/call"), name=Pattern("render")), {"gpu": 1})
GET, CHANGES = "tasks/get", ["tasks/update", "tasks/cancel"]
TASK = "t-1"
FIRST_SHARED = next(one.backend.id for one in SHARED.in_order(TASK) if one.fit)


def reaching(*pools: Pool, manner: str = "at once") -> Directory:
    """A directory in which a task's request reaches these pools, in this order; the first by the route of a tool."""
    routes = [Route(f"to-{pool.name}", Match(), {pool.name: 1}) for pool in pools]
    if pools[0] is GPU:
        routes[0] = RENDER
    return directory(POOLS, routes, Store(manner))


def places(plan: SearchPlan) -> list[Place]:
    return [about(candidate) for candidate in plan.candidates]


def asked_in(plan: SearchPlan) -> list[str]:
    """pool/backend of each candidate, in order."""
    assert all(candidate.choice.source == "search" and candidate.bound for candidate in plan.candidates)
    return [f"{pool}/{backend}" for _, pool, backend, _ in places(plan)]


ALL_OF_GPU = ["gpu/a", "gpu/b", "gpu/c", "gpu/d"]


@pytest.mark.parametrize("manner", ["at once", "later", "first at once, then later", "fails at once", "fails later"])
async def test_everyone_in_the_reachable_pools_is_asked_in_route_order(manner: str) -> None:
    """Of local pools all members, draining and departed ones too; of a shared one the ring's first that is fit."""
    plan = await plan_found(reaching(GPU, SHARED, AGENTS, OFF, manner=manner), asked(GET, name=TASK), TASK)
    assert asked_in(plan) == [*ALL_OF_GPU, f"shared/{FIRST_SHARED}", "agents/x", "agents/y"]
    assert [place[0] for place in places(plan)] == ["render"] * 4 + ["to-shared"] + ["to-agents"] * 2
    assert (plan.everyone, plan.likely) == (False, False)


@pytest.mark.parametrize(
    ("pools", "expected"),
    [
        ([AGENTS, GPU], ["agents/x", "agents/y", *ALL_OF_GPU]),
        ([GPU], ALL_OF_GPU),
        ([DRAINED], ["drained/m", "drained/n"]),
        ([SHARED, AGENTS], [f"shared/{FIRST_SHARED}", "agents/x", "agents/y"]),
        ([UNFIT, AGENTS], ["agents/x", "agents/y"]),
        ([OFF, AGENTS], ["agents/x", "agents/y"]),
        ([ALONE, ALONE_SHARED], ["alone/z", "alone-shared/w"]),
        ([ALONE, UNFIT, OFF, AGENTS], ["alone/z", "agents/x", "agents/y"]),
    ],
)
async def test_who_is_asked_for_a_task_s_state(pools: list[Pool], expected: list[str]) -> None:
    plan = await plan_found(reaching(*pools), asked(GET, name=TASK), TASK)
    assert asked_in(plan) == expected
    assert (plan.everyone, plan.likely) == (False, False)


@pytest.mark.parametrize("task", [f"task-{number}" for number in range(20)])
async def test_of_a_shared_pool_the_ring_s_first_that_is_fit_is_asked(task: str) -> None:
    plan = await plan_found(reaching(SHARED, AGENTS), asked(GET, name=task), task)
    assert plan.candidates[0].choice.member is SHARED.by_ring(task).member


@pytest.mark.parametrize(
    ("pools", "expected"),
    [
        ([OFF], ("to-off", "off", OFF.by_ring(TASK).member.backend.id, "ring")),
        ([OFF, UNFIT], None),
        ([SHARED], ("to-shared", "shared", FIRST_SHARED, "ring")),
        ([SHARED, OFF], ("to-shared", "shared", FIRST_SHARED, "ring")),
        ([SHARED, UNFIT], ("to-shared", "shared", FIRST_SHARED, "ring")),
        ([ALONE], ("to-alone", "alone", "z", "ring")),
        ([OFF, ALONE], ("to-alone", "alone", "z", "ring")),
        ([ALONE_SHARED], ("to-alone-shared", "alone-shared", "w", "ring")),
    ],
)
async def test_a_single_candidate_is_simply_sent_to(pools: list[Pool], expected: Place | None) -> None:
    """None: where all candidates' pools are unfit, nobody can be asked."""
    for method in (GET, *CHANGES):
        if expected is None:
            with pytest.raises(NoBackend):
                await found(reaching(*pools), asked(method, name=TASK), TASK)
        else:
            assert await one_found(reaching(*pools), asked(method, name=TASK), TASK) == expected


@pytest.mark.parametrize("method", CHANGES)
@pytest.mark.parametrize(
    ("pools", "expected"),
    [
        ([GPU], ALL_OF_GPU),
        ([AGENTS], ["agents/x", "agents/y"]),
        ([DRAINED], ["drained/m", "drained/n"]),
        ([AGENTS, OFF], ["agents/x", "agents/y"]),
        ([OFF, GPU], ALL_OF_GPU),
    ],
)
async def test_a_change_goes_to_all_members_of_the_one_pool_or_to_none(
    method: str, pools: list[Pool], expected: list[str]
) -> None:
    plan = await plan_found(reaching(*pools), asked(method, name=TASK), TASK)
    assert asked_in(plan) == expected
    assert (plan.everyone, plan.likely) == (True, False)


@pytest.mark.parametrize("method", CHANGES)
@pytest.mark.parametrize("pools", [[GPU, AGENTS], [AGENTS, SHARED], [SHARED, AGENTS], [ALONE, AGENTS], [AGENTS, UNFIT]])
async def test_a_change_is_refused_where_more_than_one_pool_may_own_the_task(method: str, pools: list[Pool]) -> None:
    """A foreign pool should not be told to cancel."""
    with pytest.raises(OwnerUnknown):
        await found(reaching(*pools), asked(method, name=TASK), TASK)


@pytest.mark.parametrize(
    ("pools", "error"), [([UNFIT], NoBackend), ([UNFIT, UNFIT], NoBackend), ([OFF, UNFIT], NoBackend)]
)
async def test_there_must_be_somebody_to_ask(pools: list[Pool], error: type[ProxyError]) -> None:
    for task in (TASK, None):
        with pytest.raises(error):
            await found(reaching(*pools), asked(GET), task)
    with pytest.raises(NoRoute):
        await found(reaching(*pools), asked(GET, path="/elsewhere"), TASK)


@pytest.mark.parametrize("method", [GET, *CHANGES])
async def test_an_owner_that_is_known_is_not_searched_for(method: str) -> None:
    store = Store("at once")
    place = directory(POOLS, [RENDER, Route("rest", Match(), {"agents": 1, "shared": 1})], store)
    store.put(pin_key("agents", "pinned"), "agents", "y", ttl=None)
    store.put(pin_key("gpu", "departed"), "gpu", "d", ttl=None)
    store.put(pin_key("shared", "in-shared"), "shared", POOL_ITSELF, ttl=None)
    assert await one_found(place, asked(method), "pinned") == ("rest", "agents", "y", "pin")
    assert await one_found(place, asked(method), "departed") == ("render", "gpu", "d", "pin")
    assert (await one_found(place, asked(method), "in-shared"))[1::2] == ("shared", "ring")
    assert await one_found(place, asked(method), "c.1") == ("render", "gpu", "c", "tag")


async def test_a_pin_of_a_backend_that_was_forgotten_is_searched_for() -> None:
    pool, store = pool_of("agents", "ab", departed="c"), Store("at once")
    store.put(pin_key("agents", TASK), "agents", "c", ttl=None)
    place = directory([pool], [Route("rest", Match(), {"agents": 1})], store)
    assert await one_found(place, asked(GET), TASK) == ("rest", "agents", "c", "pin")
    gone = pool.member("c")
    assert gone is not None
    pool.forget(gone)
    assert asked_in(await plan_found(place, asked(GET), TASK)) == ["agents/a", "agents/b"]


# ---- requests that do not say which task they are about


def memory_of(latest: str | None) -> ConnectionMemory:
    memory = ConnectionMemory()
    if latest is not None:
        pool, _, backend = latest.partition("/")
        memory.latest = (pool, backend)
    return memory


UNNAMED = {method: asked(method) for method in (GET, *CHANGES)}


async def test_unnamed_requests_ask_no_pin_store() -> None:
    store = Store("fails at once")
    place = directory(POOLS, [RENDER], store)
    await plan_found(place, UNNAMED[GET], memory=memory_of("gpu/a"))
    assert store.asked == []


@pytest.mark.parametrize(
    "latest",
    [
        None,
        "gpu/gone",
        "agents/x",  # not reachable from here
        "nowhere/a",
    ],
)
async def test_an_unnamed_request_without_a_known_task_before_it_is_searched(latest: str | None) -> None:
    place = reaching(GPU)
    plan = await plan_found(place, UNNAMED[GET], memory=memory_of(latest))
    assert (asked_in(plan), plan.everyone, plan.likely) == (ALL_OF_GPU, False, False)
    for method in CHANGES:
        plan = await plan_found(place, UNNAMED[method], memory=memory_of(latest))
        assert (asked_in(plan), plan.everyone, plan.likely) == (ALL_OF_GPU, True, False)
    for method in CHANGES:
        with pytest.raises(OwnerUnknown):
            await found(reaching(GPU, SHARED), UNNAMED[method], memory=memory_of(latest))


@pytest.mark.parametrize(
    ("pools", "latest", "expected"),
    [
        ([GPU], "gpu/b", ["gpu/b", "gpu/a", "gpu/c", "gpu/d"]),
        ([GPU], "gpu/d", ["gpu/d", "gpu/a", "gpu/b", "gpu/c"]),
        ([GPU, AGENTS], "agents/y", ["agents/y", *ALL_OF_GPU, "agents/x"]),
        ([AGENTS, GPU], "gpu/c", ["gpu/c", "agents/x", "agents/y", "gpu/a", "gpu/b", "gpu/d"]),
        ([OFF, AGENTS], "off/p", ["off/p", "agents/x", "agents/y"]),
    ],
)
async def test_the_owner_of_the_latest_task_is_asked_first_for_a_state(
    pools: list[Pool], latest: str, expected: list[str]
) -> None:
    """Alone; the others follow only if it does not know the task."""
    plan = await plan_found(reaching(*pools), UNNAMED[GET], memory=memory_of(latest))
    assert asked_in(plan) == expected
    assert (plan.everyone, plan.likely) == (False, True)


async def test_the_only_candidate_needs_no_search() -> None:
    for request in UNNAMED.values():
        destination = await one_found(reaching(ALONE), request, memory=memory_of("alone/z"))
        assert destination == ("to-alone", "alone", "z", "ring")


@pytest.mark.parametrize("method", CHANGES)
@pytest.mark.parametrize(
    ("pools", "latest", "expected"),
    [
        ([GPU], "gpu/b", ALL_OF_GPU),
        ([GPU, AGENTS], "agents/y", ["agents/x", "agents/y"]),
        ([AGENTS, SHARED, GPU], "gpu/d", ALL_OF_GPU),
    ],
)
async def test_an_unnamed_change_goes_to_all_members_of_the_latest_task_s_pool(
    method: str, pools: list[Pool], latest: str, expected: list[str]
) -> None:
    plan = await plan_found(reaching(*pools), UNNAMED[method], memory=memory_of(latest))
    assert (asked_in(plan), plan.everyone, plan.likely) == (expected, True, False)


@pytest.mark.parametrize("method", CHANGES)
async def test_an_unnamed_change_in_a_shared_pool_goes_to_one_that_is_fit(method: str) -> None:
    for _ in range(4):
        _, pool, backend, source = await one_found(
            reaching(AGENTS, SHARED), UNNAMED[method], memory=memory_of("shared/s")
        )
        assert (pool, source) == ("shared", "balance")
        assert backend in "tu"


@pytest.mark.parametrize(
    "request_headers",
    [asked(GET), asked("tasks/update"), asked("tasks/cancel")],
    ids=["get", "update", "cancel"],
)
async def test_without_a_search_the_owner_of_the_latest_task_is_asked(request_headers: RoutingHeaders) -> None:
    """The README: they go to the backend of the latest task asked for on their connection first."""
    seen = {await one_found(reaching(OFF), request_headers, memory=memory_of("off/p")) for _ in range(4)}
    assert {backend for _, _, backend, _ in seen} == {"p"}


async def test_a_single_candidate_of_another_pool_does_not_replace_the_owner_of_the_latest_task() -> None:
    plan = await plan_found(reaching(OFF, ALONE), UNNAMED[GET], memory=memory_of("off/p"))
    assert (asked_in(plan), plan.likely) == (["off/p", "alone/z"], True)
