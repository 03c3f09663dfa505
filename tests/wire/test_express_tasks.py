"""Both walks are the same for requests about tasks, whatever their servers say of them and wherever they are."""

import asyncio
from collections.abc import Callable

import pytest

from proxy.pins.memory import MemoryPinStore
from tests.wire.harness import BackendSide, call, config_text, task
from tests.wire.task_backend import UNKNOWN, created, state
from tests.wire.test_express import WARM
from tests.wire.test_express_places import pools
from tests.wire.walks import World, told_alike


class Tasks:
    """Makes a task at each call, and tells of it what it is told to tell."""

    def __init__(self, *answers: bytes) -> None:
        self.answers = list(answers)

    async def script(self, side: BackendSide) -> None:
        left = list(self.answers)
        while True:
            request = await side.request()
            if request.get("Mcp-Method") == "tools/call":
                side.answer(created("t-1"))
                left = list(self.answers)
            elif request.get("Mcp-Method") == "tasks/get":
                side.answer(left.pop(0) if left else state("t-1"))
            else:
                side.answer(b'{"jsonrpc":"2.0","id":1,"result":{"resultType":"complete"}}')


POLLED: dict[str, list[bytes]] = {
    "at work": [state("t-1")] * 6,
    "it ends": [*[state("t-1")] * 3, state("t-1", "completed"), state("t-1", "completed")],
    "it fails": [*[state("t-1")] * 3, state("t-1", "failed")],
    "it is cancelled": [*[state("t-1")] * 3, state("t-1", "cancelled")],
    "it ends in escapes": [*[state("t-1")] * 3, state("t-1").replace(b"working", b"complete\\u0064")],
    "it asks": [*[state("t-1")] * 3, state("t-1", "input_required"), state("t-1")],
    "unknown": [*[state("t-1")] * 3, UNKNOWN, UNKNOWN],
    "another's": [*[state("t-1")] * 3, state("t-2"), state("t-2", "completed")],
    "large": [*[state("t-1")] * 3, state("t-1", text="x" * 50_000)],
    "oversized": [*[state("t-1")] * 3, state("t-1", text="x" * 70_000), state("t-1", text="x" * 70_000)],
    "a time to live": [state("t-1", ttlMs=60_000)] * 6,
    "another time to live": [*[state("t-1", ttlMs=60_000)] * 3, state("t-1", ttlMs=7_200_000)],
    "a time to live that is gone": [*[state("t-1", ttlMs=60_000)] * 3, state("t-1")],
    "a time to live of none": [*[state("t-1", ttlMs=60_000)] * 3, state("t-1", ttlMs=0)],
}


@pytest.mark.parametrize("case", POLLED)
async def test_tasks(case: str) -> None:
    answers = POLLED[case]

    async def story(world: World) -> None:
        c = await world.client()
        for _ in range(2):
            await world.ask(c, *WARM)
            await world.ask(c, *[task(b"get", b"t-1") for _ in answers])
            world.seen.append(lives(world))
            await world.ask(c, *[task(method, b"t-1") for method in (b"update", b"cancel") for _ in range(4)])

    assert (await told_alike(story, Tasks(*answers).script))["short"]


def lives(world: World) -> object:
    """How many tasks are held, and roughly how long pins live and tasks are held yet."""
    pins, now = world.proxy.pins, asyncio.get_running_loop().time()
    assert isinstance(pins, MemoryPinStore)
    left = [(each.expires, each.deadline) for each in pins._entries.values()]
    return dict(pins.held()), [[time and round((time - now) / 20) for time in times] for times in left]


# ---- where they are


async def poll(world: World) -> None:
    """Two tasks are made, polled, changed and polled again, from several connections."""
    one, two = await world.client(), await world.client()
    for name in (b"x", b"y"):
        await world.ask(one, call(name))
    for c in (one, two, one):
        for method in (
            b"get",
            b"get",
            b"get",
            b"get",
            b"update",
            b"update",
            b"update",
            b"cancel",
            b"cancel",
            b"cancel",
        ):
            await world.ask(c, task(method, b"t-x"), task(method, b"t-y"))
        await world.ask(c, *[task(b"get", b"t-nobody's")] * 4, *WARM)


async def tasks_by_name(side: BackendSide) -> None:
    """A call makes the task t- and its name; every state is told as it is, of tasks that were made here."""
    made = side.backend.__dict__.setdefault("made", set())
    while True:
        request = await side.request()
        name = request.get("Mcp-Name") or ""
        if request.get("Mcp-Method") == "tools/call":
            made.add(f"t-{name}")
            side.answer(created(f"t-{name}"))
        else:
            side.answer(state(name) if name in made else UNKNOWN)


PLACES: dict[str, Callable[..., str]] = {
    "one pool": lambda *ports: config_text(*ports, pool="    balance: round_robin\n"),
    "a backend that takes no new work": lambda *ports: config_text(*ports, pool="    balance: round_robin\n").replace(
        "id: a,", "id: a, drain: true,"
    ),
    "two pools": lambda *ports: pools(
        *ports, of="", routes="  - {name: x, match: {name: x}, pool: p1}\n  - {name: rest, pool: p0}\n"
    ),
    "a split": lambda *ports: pools(*ports, of="", routes="  - {name: rest, split: {p0: 1, p1: 1}}\n"),
    "without a search": lambda *ports: config_text(
        *ports, pool="    balance: round_robin\n    tasks: {search: false}\n"
    ),
    "state that is shared": lambda *ports: config_text(*ports, pool="    tasks: {state: shared}\n"),
    "a glob for a path": lambda *ports: config_text(
        *ports, routes="  - {name: all, match: {path: '/m*'}, pool: agents}\n"
    ),
}


@pytest.mark.parametrize("case", PLACES)
async def test_places(case: str) -> None:
    walks = await told_alike(poll, tasks_by_name, tasks_by_name, text=PLACES[case])
    assert walks["short"] or case == "state that is shared"


async def test_an_owner_that_comes_back_after_it_was_gone() -> None:
    async def story(world: World) -> None:
        c = await world.client()
        await world.ask(c, call(b"x"), *[task(b"get", b"t-x")] * 4)
        world.proxy.set_draining(pool="agents", backend="a", draining=True)
        await world.ask(c, *[task(b"get", b"t-x")] * 3, *WARM)
        world.apply(lambda port, other: config_text(other).replace("id: a", "id: b"))
        await world.ask(c, *[task(b"get", b"t-x")] * 4)
        world.apply(config_text)
        await world.ask(c, *[task(b"get", b"t-x")] * 4, call(b"z"), *[task(b"get", b"t-z")] * 4)

    assert (await told_alike(story, tasks_by_name, tasks_by_name))["short"]
