"""A process that runs out of descriptors lives on, serves those it has, and takes more as soon as it can."""

import asyncio
import resource
import time
from contextlib import AsyncExitStack
from pathlib import Path

from bench.cpu import used
from tests.process.harness import PROXY, ProxyProcess, config_text, proxy_process
from tests.wire.harness import Client, backend, call, client


def descriptors(proxy: ProxyProcess) -> int:
    """The highest number of those it has open, and one."""
    return 1 + max(int(one.name) for one in Path(f"/proc/{proxy.command.pid}/fd").iterdir())


def limit_to(proxy: ProxyProcess, most: int) -> None:
    """Changes how many descriptors the running process may open."""
    _, hard = resource.prlimit(proxy.command.pid, resource.RLIMIT_NOFILE)
    resource.prlimit(proxy.command.pid, resource.RLIMIT_NOFILE, (most, hard))


async def status(c: Client) -> tuple[int, str | None]:
    answer = await c.ask(call())
    return answer.status, answer.get("Mcp-Proxy-Error")


async def test_clients_wait_in_the_kernel_until_there_are_descriptors_again() -> None:
    async with backend() as a, proxy_process(config_text(a.port)) as proxy, client(proxy.port) as first:
        assert await status(first) == (200, None)
        usual, _ = resource.prlimit(proxy.command.pid, resource.RLIMIT_NOFILE)
        limit_to(proxy, descriptors(proxy) + 4)
        async with AsyncExitStack() as stack:
            many = [await stack.enter_async_context(client(proxy.port)) for _ in range(30)]
            await proxy.command.wrote("cannot accept for the moment")
            assert await status(first) == (200, None)
            spent, begun = sum(used([proxy.command.pid]).values()), time.monotonic()
            await asyncio.sleep(0.5)  # for the time in which it must not spin
            spent = sum(used([proxy.command.pid]).values()) - spent
            assert spent / 1e9 < 0.5 * (time.monotonic() - begun)
            assert await status(first) == (200, None)
            limit_to(proxy, usual)
            assert [await status(one) for one in many] == [(200, None)] * 30
        async with client(proxy.port) as last:
            assert await status(last) == (200, None)
        assert proxy.command.complaints.count("cannot accept") == 1


async def test_a_backend_that_cannot_be_dialled_for_want_of_descriptors_is_not_blamed() -> None:
    async with backend() as a, proxy_process(config_text(a.port)) as proxy, client(proxy.port) as c:
        assert await proxy.count("backend_up", backend="a") == 1
        usual, _ = resource.prlimit(proxy.command.pid, resource.RLIMIT_NOFILE)
        limit_to(proxy, 3)
        for _ in range(8):  # more in a row than it takes to eject a backend
            assert await status(c) == (503, "overloaded")
        limit_to(proxy, usual)
        assert await status(c) == (200, None)
        assert await proxy.count("backend_up", backend="a") == 1
        assert await proxy.count("ejections_total") == 0
        assert await proxy.count("rejected_total", reason="overloaded") == 8
        assert a.connections == 1


async def test_as_many_clients_are_served_as_there_are_descriptors_for() -> None:
    """The soft limit is raised as far as it goes; what it suffices for is said at the start."""
    program = ("sh", "-c", 'ulimit -Sn 64 && ulimit -Hn 300 && exec "$@"', "sh", *PROXY)
    async with backend() as a:
        async with proxy_process(config_text(a.port), program=program) as proxy:
            assert resource.prlimit(proxy.command.pid, resource.RLIMIT_NOFILE) == (300, 300)
            await proxy.command.wrote("at most 100 clients are served")
            async with AsyncExitStack() as stack:
                clients = [await stack.enter_async_context(client(proxy.port)) for _ in range(100)]
                assert [await status(one) for one in clients] == [(200, None)] * 100
                async with client(proxy.port) as one_more:
                    assert await status(one_more) == (503, "overloaded")
                await proxy.command.wrote("more than 100 clients are connected")
