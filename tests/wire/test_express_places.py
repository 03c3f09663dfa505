"""Both walks are the same wherever requests may go: routes and pools, splits, limits, and other configurations."""

import asyncio
from collections.abc import Callable

import pytest

from tests.wire.harness import BackendSide, answer_always, backend, call, client, config_text, running, task, until
from tests.wire.task_backend import created, state
from tests.wire.test_express import WARM
from tests.wire.walks import World, numbers_of, told_alike

HERE = "{address: '127.0.0.1:0', allowed_hosts: [mcp.test]}"


def pools(*ports: int, of: str, routes: str) -> str:
    """A configuration with a pool for each backend, with these further lines."""
    ports = ports[: 1 + ("p1" in routes)]
    text = "".join(
        f"  p{at}:\n    backends: [{{id: a, url: 'http://127.0.0.1:{port}/p{at}'}}]\n{of}"
        for at, port in enumerate(ports)
    )
    return f"listen: {HERE}\nadmin: 127.0.0.1:0\nlog: {{access: false}}\ndrain: 0s\npools:\n{text}routes:\n{routes}"


BY_NAME = """
  - {name: x, match: {path: '/m*', name: 'x*'}, pool: p0}
  - {name: y, match: {name: 'y*'}, pool: p0}
  - {name: z, match: {name: z}, pool: p1}
  - {name: rest, pool: p1}
"""
BY_PARAM = """
  - {name: eu, match: {param: {Region: 'eu*'}}, pool: p0}
  - {name: rest, pool: p1}
"""
SPLIT = "  - {name: rest, split: {p0: 50, p1: 50}}\n"
BY_HEADER = """
  - {name: acme, match: {header: {X-Tenant: acme}}, pool: p0}
  - {name: rest, pool: p1}
"""


@pytest.mark.parametrize("of", ["", "    host: backend\n"])
@pytest.mark.parametrize("routes", [BY_NAME, SPLIT])
async def test_each_pool_and_route_has_its_own_path_and_host(of: str, routes: str) -> None:
    async def story(world: World) -> None:
        c = await world.client()
        await world.ask(c, *map(call, (b"x1", b"y1", b"z", b"w", b"x2", b"y2", b"z", b"w", b"x1", b"y1", b"x3", b"z")))

    def text(*ports: int) -> str:
        return pools(*ports, of=of, routes=routes)

    assert (await told_alike(story, answer_always, answer_always, text=text))["short"]


@pytest.mark.parametrize("value", [b"eu-1", b"=?base64?ZXU=?=", b"=?base64?!?=", b""])
async def test_what_a_route_asks_for_beside_the_name(value: bytes) -> None:
    """A value that does not decode is refused each time, and its connection lives."""

    async def story(world: World) -> None:
        c = await world.client()
        await world.ask(c, *[call(b"x", b"Mcp-Param-Region: " + value) for _ in range(5)], *WARM)
        await world.ask(c, *[call(b"x", b"Mcp-Param-Region: " + value) for _ in range(5)])

    def text(*ports: int) -> str:
        return pools(*ports, of="    balance: ring\n    ring_key: param:Region\n", routes=BY_PARAM)

    assert (await told_alike(story, answer_always, answer_always, text=text))["short"]


async def test_a_split_keeps_its_shares_where_requests_are_looked_at() -> None:
    """As after a backend has asked back, or while one of the pools has no backend."""

    async def story(world: World) -> None:
        c = await world.client()
        await world.ask(c, *WARM, call(b"w"), call(b"ask"), *[call(b"x") for _ in range(10)])

    async def script(side: BackendSide) -> None:
        while True:
            asked = (await side.request()).get("Mcp-Name") == "ask"
            side.answer(b'{"result":{"resultType":"input_required"}}' if asked else b"{}")

    def text(*ports: int) -> str:
        return pools(*ports, of="", routes=SPLIT)

    assert (await told_alike(story, script, script, text=text))["short"]


@pytest.mark.parametrize("pool", ["p0", "p1"])
async def test_a_split_keeps_its_shares_though_one_pool_takes_nothing(pool: str) -> None:
    async def story(world: World) -> None:
        c = await world.client()
        await world.ask(c, *WARM, call(b"w"))
        world.proxy.set_draining(pool=pool, backend="a", draining=True)
        await world.ask(c, *[call(b"x") for _ in range(10)])
        world.proxy.set_draining(pool=pool, backend="a", draining=False)
        await world.ask(c, *[call(b"x") for _ in range(9)])

    def text(*ports: int) -> str:
        return pools(*ports, of="", routes=SPLIT)

    assert (await told_alike(story, answer_always, answer_always, text=text))["short"]


@pytest.mark.parametrize(
    "limits", ["in_flight: 1, queue: 0", "in_flight: 1, queue: 5, queue_wait: 5s", "per_backend: 1, queue: 0"]
)
async def test_limits(limits: str) -> None:
    """A split's turns are kept as well."""

    async def story(world: World) -> None:
        one, two = await world.client(), await world.client()
        await world.ask(one, *WARM, call(b"w"))
        await world.ask(two, *WARM, call(b"w"))
        for _ in range(4):
            count = world.count
            one.send(call(b"slow"))
            await world.sent(count + 1)
            two.send(call(b"x"))
            await world.sees(two)
            two.send(call(b"y"))
            await world.sees(two)
            await world.sees(one)

    async def script(side: BackendSide) -> None:
        while True:
            if (await side.request()).get("Mcp-Name") == "slow":
                await asyncio.sleep(0.1)
            side.answer()

    def text(*ports: int) -> str:
        return pools(*ports, of=f"    limits: {{{limits}}}\n", routes=SPLIT)

    assert (await told_alike(story, script, script, text=text))["short"]


async def test_another_configuration() -> None:
    """Also while a request is under way."""
    texts: list[Callable[..., str]] = [
        lambda *ports: pools(*ports, of="", routes=BY_HEADER),
        lambda *ports: pools(*ports, of="    host: backend\n", routes=BY_NAME),
        lambda *ports: pools(ports[0], of="", routes="  - {name: all, pool: p0}\n"),
        lambda *ports: pools(*ports, of="", routes="  - {name: other, match: {path: /other}, split: {p0: 1, p1: 1}}\n"),
        lambda *ports: pools(*ports, of="", routes=SPLIT).replace("[mcp.test]", "[mcp.test, x.test]"),
        lambda *ports: pools(*ports, of="", routes=SPLIT).replace("[mcp.test]", "[x.test]"),
        lambda *ports: pools(*ports, of="    balance: ring\n    ring_key: name\n", routes=SPLIT),
    ]

    async def story(world: World) -> None:
        c = await world.client()
        x = b"X-Tenant: acme"
        await world.ask(c, *[call(b"x", x) for _ in range(4)])
        for text in texts:
            count = world.count
            c.send(call(b"slow", x))
            await asyncio.sleep(0.02)
            world.apply(text)
            world.seen.append(world.count - count)
            await world.sees(c)
            await world.ask(c, *[call(name, x) for name in (b"x", b"y", b"z", b"x", b"y", b"w")])

    async def script(side: BackendSide) -> None:
        while True:
            if (await side.request()).get("Mcp-Name") == "slow":
                await asyncio.sleep(0.1)
            side.answer()

    assert (await told_alike(story, script, script, text=texts[0]))["short"]


async def test_a_connection_that_is_found_and_not_used_is_as_old_as_before() -> None:
    """Backends close what has been idle for long: a request must not meet that on the wire."""

    async def script(side: BackendSide) -> None:
        while True:
            request = await side.request()
            if request.get("Mcp-Name") == "slow":
                await side.peer_closes()
                return
            side.answer(created("t-1") if request.get("Mcp-Method") == "tools/call" else state("t-1"))

    limits = "    limits: {in_flight: 1, queue: 0}\n"
    async with backend(script) as a, running(config_text(a.port, pool=limits)) as proxy:
        async with client(proxy.port) as c, client(proxy.port) as slow:
            for _ in range(3):
                assert (await c.ask(call(b"x"))).status == 200
                assert (await c.ask(task(b"get", b"t-1"))).status == 200
            connections = proxy.lanes["agents"].connections[proxy.pools["agents"].members[0]]
            idle = connections.lease()
            assert idle is not None
            slow.send(call(b"slow"))
            await until(lambda: proxy.pools["agents"].in_flight)
            idle.give_back()
            since = idle.idle_since
            for _ in range(5):
                assert (await c.ask(task(b"get", b"t-1"))).status == 503
            assert idle.idle_since == since
            assert connections.lease() is idle
            idle.give_back()


async def test_backends_that_come_and_go_are_counted_between_any_two_looks() -> None:
    """What was counted of one that left keeps its sum, and one that comes back begins anew."""

    async def story(world: World) -> None:
        c, pool = await world.client(), world.proxy.pools["agents"]
        both = [member.backend for member in pool.members]
        for backends in (both, both[1:], both, both[:1], both):
            pool.replace(backends)
            await world.ask(c, *[call(b"x")] * 6)
            world.seen.append(numbers_of(world.proxy))
            await world.ask(c, *[call(b"y")] * 3)
            for member in pool.everyone:
                pool.forget(member)
            world.seen.append(numbers_of(world.proxy))
            world.seen.append(numbers_of(world.proxy))

    def text(*ports: int) -> str:
        return config_text(*ports, pool="    balance: round_robin\n")

    assert (await told_alike(story, answer_always, answer_always, text=text))["short"]


async def test_a_request_whose_pool_is_gone_is_counted() -> None:
    """Though the counts before it were looked at meanwhile."""
    rest, other = "  - {name: rest, pool: p0}\n", "  - {name: other, split: {p0: 0, p1: 1}}\n"

    async def story(world: World) -> None:
        c = await world.client()
        await world.ask(c, *WARM, call(b"x"))
        count = world.count
        c.send(call(b"slow"))
        await world.sent(count + 1)
        world.apply(lambda *ports: pools(*ports, of="", routes=other).replace("p0", "q0"))
        world.seen.append(numbers_of(world.proxy))
        await world.sees(c)
        world.seen.append(numbers_of(world.proxy))
        await world.ask(c, *WARM)

    async def script(side: BackendSide) -> None:
        while True:
            if (await side.request()).get("Mcp-Name") == "slow":
                await asyncio.sleep(0.1)
            side.answer()

    def text(*ports: int) -> str:
        return pools(*ports, of="", routes=rest)

    assert (await told_alike(story, script, script, text=text))["short"]
