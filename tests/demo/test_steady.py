"""What keeps the demo busy: tasks that are always under way, and calls beside them."""

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable

from aiohttp import web
from aiohttp.test_utils import TestServer
from aiohttp.typedefs import Handler

from proxy.demo.run import free_address
from proxy.demo.server import Instance, make_app
from proxy.demo.steady import TASKS, steady, summary
from proxy.demo.tasks import Fate
from tests.wire.harness import until

StartServer = Callable[[web.Application], Awaitable[TestServer]]


async def test_tasks_are_made_and_completed_one_after_the_other_with_calls_beside_them(
    aiohttp_server: StartServer,
) -> None:
    asked = Counter[str]()

    @web.middleware
    async def counting(request: web.Request, handler: Handler) -> web.StreamResponse:
        asked[request.headers["Mcp-Method"]] += 1
        return await handler(request)

    app = make_app(Instance("a"))
    app.middlewares.append(counting)
    url = str((await aiohttp_server(app)).make_url("/mcp"))
    async with steady(url, shortest=0.01, longest=0.1) as fates:
        assert {"make tasks", "make calls"} <= {task.get_name() for task in asyncio.all_tasks()}
        await until(lambda: fates[Fate.COMPLETED] > TASKS and asked["tools/list"])
    assert set(fates) == {Fate.COMPLETED}
    assert asked["tasks/get"] >= fates[Fate.COMPLETED]
    assert not {"make tasks", "make calls"} & {task.get_name() for task in asyncio.all_tasks()}


async def test_tasks_take_as_long_as_is_asked_and_not_all_the_same(aiohttp_server: StartServer) -> None:
    instance = Instance("a")
    url = str((await aiohttp_server(make_app(instance))).make_url("/mcp"))
    async with steady(url, shortest=20, longest=40):
        await until(lambda: len(instance._tasks) == TASKS)
        assert sorted(task.seconds for task in instance._tasks.values()) == [20 + 2.5 * n for n in range(TASKS)]


async def test_where_nobody_answers_that_is_counted_and_nothing_is_raised() -> None:
    async with steady(f"http://{free_address(0)}/mcp") as fates:
        await until(lambda: fates[Fate.FAILED] > TASKS)
    assert set(fates) == {Fate.FAILED}


def test_the_summary_names_failures_only_where_there_are_some() -> None:
    fates = Counter({Fate.COMPLETED: 7})
    assert summary(fates) == "Meanwhile completed: 7 tasks; lost: 0"
    fates += Counter({Fate.LOST: 1, Fate.FAILED: 2})
    assert summary(fates) == "Meanwhile completed: 7 tasks; lost: 1; failed: 2"
