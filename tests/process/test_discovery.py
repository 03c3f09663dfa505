"""Discovered backends in real processes: under load, in workers that come later, in the next generation."""

import os
import signal

import pytest

from tests.discovery.dns_server import name_server
from tests.process.lives import Life, life
from tests.process.scaling import NAME, addresses, discovering, measure
from tests.wire.harness import backend, call, closed_port


@pytest.mark.parametrize("workers", [1, 2])
async def test_a_name_grows_and_shrinks_under_load_and_nothing_is_lost(workers: int) -> None:
    """The long run: tests/process/scaling.py."""
    seen = await measure(steps=5, workers=workers)
    assert seen.faults == []
    assert (seen.came, seen.went) == (3, 2)
    assert seen.made > 100


async def discovered(one: Life) -> list[str]:
    """The ids of the discovered backends that have not departed."""
    (pool,) = await one.pools()
    return [told["id"] for told in pool["backends"] if told["discovered"] and not told["departed"]]


async def is_served_by_all(one: Life) -> None:
    """Every process that accepts has somebody to send to."""
    for pid in one.workers or [one.pid]:
        async with one.client_of(pid) as caller:
            for _ in range(4):
                assert (await caller.ask(call())).status == 200


async def until_discovered(one: Life, expected: list[str]) -> None:
    for _ in range(200):
        if await discovered(one) == expected:
            return
        await is_served_by_all(one)
    raise AssertionError(f"{await discovered(one)}, not {expected}")


@pytest.mark.parametrize("workers", [1, 2])
async def test_who_comes_later_knows_who_was_discovered(workers: int) -> None:
    """A replaced worker and the next generation serve while the name server is in trouble, and look for themselves."""
    port = closed_port()
    hosts = addresses(3)
    ids = [f"{host}:{port}" for host in hosts]
    async with backend(host=hosts[0], port=port), backend(host=hosts[1], port=port), backend(host=hosts[2], port=port):
        with name_server() as names:
            names.names = {NAME: hosts[:2]}
            async with life(discovering(names, port, workers=workers)) as one:
                assert await discovered(one) == ids[:2]
                names.code = "SERVFAIL"
                if workers > 1:
                    killed = one.workers[0]
                    os.kill(killed, signal.SIGKILL)
                    await one.replaced(killed, workers)
                    await is_served_by_all(one)
                before = await one.renew()
                assert await one.admin("/readyz") == (200, "ready\n")
                assert await discovered(one) == ids[:2]
                await is_served_by_all(one)
                await one.gone(before) if before != one.command.pid else None
                names.code = "NOERROR"
                names.names = {NAME: hosts[1:]}
                await until_discovered(one, ids[1:])
                assert await one.count("discovered_backends", pool="agents") == 2
                assert await one.count("discovery_failures_total", reason="servfail") >= 1
