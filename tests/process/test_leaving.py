"""Clients and backends that leave a serving process: it notices, at once or in time, and blames the right side.

A close reaches a proxy in odd moments: while all is quiet, while nothing is read, between two requests, or while the
next one is on its way.
"""

import asyncio
import json
import socket
import struct
import time
from contextlib import AsyncExitStack
from functools import partial

import pytest

from tests.process.harness import (
    STREAM_FIELDS,
    ProxyProcess,
    chunk,
    config_text,
    proxy_process,
)
from tests.wire.harness import (
    MODERN,
    BackendSide,
    Client,
    ScriptedBackend,
    backend,
    call,
    client,
    closed_port,
    post,
    read_head,
    until,
)
from tests.wire.listeners import ack, listen

LIST = post(*MODERN, b"Mcp-Method: tools/list")


# ---- clients that leave
async def quiet(side: BackendSide) -> None:
    """Says nothing to a call; acknowledges a subscription, or begins the answer to anything else, and no more."""
    request = await side.request()
    if request.get("Mcp-Method") != "tools/call":
        side.send(STREAM_FIELDS + b"\r\n" + chunk(ack()))
    await side.reader.read()


@pytest.mark.parametrize("backends", [1, 3])
async def test_who_leaves_while_all_is_quiet_is_missed_at_once_and_no_backend_is_blamed(backends: int) -> None:
    """Servers do not always tell their handlers that a client has left, and a write to one that has fails in a way that
    looks like the backend's fault: more in a row than eject a backend must change nothing."""
    async with AsyncExitStack() as stack:
        servers = [await stack.enter_async_context(backend(quiet)) for _ in range(backends)]
        config = json.loads(config_text(*(one.port for one in servers)))
        config["pools"]["agents"]["listen"] = "all"
        proxy = await stack.enter_async_context(proxy_process(json.dumps(config)))
        hangups = 0
        for request, at in ((call(), 1), (LIST, 1), (listen(), backends)):
            for reset in (False, True) * 3:
                async with client(proxy.port) as c:
                    c.send(request)
                    await until(partial(asked_and_waiting, servers, at))
                    if request != call():
                        await read_head(c.reader)
                    await leave(c, reset=reset)
                begun = time.monotonic()
                await until(lambda: not any(one.open for one in servers))
                assert time.monotonic() - begun < 1
                hangups += 1
        await proxy.until_count(hangups, "client_hangups_total")
        await assert_nobody_is_blamed(proxy, servers)
        assert sum(len(one.requests) for one in servers) == 6 + 6 + 6 * backends


def asked_and_waiting(servers: list[ScriptedBackend], at: int) -> bool:
    return sum(len(one.open) for one in servers) == at


async def test_who_is_gone_while_nothing_is_read_from_it_is_missed() -> None:
    """No event tells of a reset on a connection that is not read."""
    begun, go_on = asyncio.Event(), asyncio.Event()

    async def takes_nothing(side: BackendSide) -> None:
        await side.reader.readuntil(b"\r\n\r\n")
        begun.set()
        await go_on.wait()
        await side.reader.read()

    async with backend(takes_nothing) as server, proxy_process(config_text(server.port)) as proxy:
        async with client(proxy.port) as c:
            c.send(call(body=b"x" * 50_000_000))
            await begun.wait()
            left = [-1, c.writer.transport.get_write_buffer_size()]
            while left[-1] != left[-2]:  # the proxy takes more of it
                await asyncio.sleep(0.2)
                left.append(c.writer.transport.get_write_buffer_size())
            assert left[-1] > 0
            assert await proxy.count("client_hangups_total") == 0
            reset_on_close(c)
            c.writer.transport.abort()
            await proxy.until_count(1, "client_hangups_total")
        go_on.set()
        await until(lambda: not server.open)
        await assert_nobody_is_blamed(proxy, [server])


async def leave(c: Client, *, reset: bool) -> None:
    if reset:
        reset_on_close(c)
    c.close()
    await c.writer.wait_closed()


def reset_on_close(c: Client) -> None:
    c.writer.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))


async def assert_nobody_is_blamed(proxy: ProxyProcess, servers: list[ScriptedBackend]) -> None:
    assert await proxy.count("backend_up") == len(servers)
    for name in ("ejections_total", "retries_total", "rejected_total", "backend_in_flight"):
        assert await proxy.count(name) == 0


# ---- backends that leave
async def test_an_idle_connection_is_closed_before_servers_close_theirs() -> None:
    """uvicorn and Node close theirs after 5 s; a request that crosses that close may have been read, or not."""
    async with backend() as server, proxy_process(config_text(server.port)) as proxy, client(proxy.port) as c:
        assert (await c.ask(call())).status == 200
        begun = time.monotonic()
        assert len(server.open) == 1
        await until(lambda: not server.open)
        assert 2 < time.monotonic() - begun < 4.9
        assert (await c.ask(call())).status == 200
        assert server.connections == 2


async def test_connections_that_the_backend_closes_after_each_answer_are_not_used_again() -> None:
    async def hasty(side: BackendSide) -> None:
        await side.request()
        side.answer()

    async with backend(hasty) as server, proxy_process(config_text(server.port)) as proxy, client(proxy.port) as c:
        for number in range(1, 31):
            assert (await c.ask(LIST)).status == 200
            assert len(server.requests) == number
        assert await proxy.count("ejections_total") == 0


async def test_what_crosses_a_close_is_sent_again_only_where_that_does_no_harm() -> None:
    """Whoever has sent a request, and sees the connection closed, cannot know whether it was read."""

    async def closes_on_the_second(side: BackendSide) -> None:
        await side.request()
        side.answer()
        await side.request()  # it has been read, whatever the proxy believes

    async with backend(closes_on_the_second) as server, proxy_process(config_text(server.port)) as proxy:
        async with client(proxy.port) as c:
            assert [(await c.ask(request)).status for request in (LIST, LIST)] == [200, 200]
            assert (len(server.requests), server.connections) == (3, 2)
            assert (await c.ask(call())).status == 502
            assert (len(server.requests), server.connections) == (4, 2)


async def test_what_was_never_sent_goes_elsewhere() -> None:
    """Nobody listens there: that nothing was sent is certain."""
    async with backend() as server, proxy_process(config_text(closed_port(), server.port)) as proxy:
        for _ in range(6):
            async with client(proxy.port) as c:
                assert (await c.ask(call())).status == 200
        assert len(server.requests) == 6
