"""A new generation in the place of the one that serves: by SIGUSR2, while clients come and streams go on."""

import asyncio
import os
import signal
import socket
from contextlib import AsyncExitStack

import pytest

from tests.process.harness import STREAM_FIELDS, chunk, config_text
from tests.process.lives import alive, answered, descriptors_of, generations_under, life, until_state
from tests.wire.harness import BackendSide, Client, backend, call, chunks, client, closed_port, read_head

EVENT, RESULT = b'data: {"method":"notifications/progress"}\n\n', b'data: {"jsonrpc":"2.0","id":1,"result":{}}\n\n'
REFUSED = "does not serve, this one serves on"


class Streams:
    """A backend whose streams have begun, and end when they are told to."""

    def __init__(self) -> None:
        self.finish = asyncio.Event()

    async def script(self, side: BackendSide) -> None:
        while True:
            request = await side.request()
            if request.get("Mcp-Name") != "stream":
                side.answer()
                continue
            side.send(STREAM_FIELDS + b"\r\n" + chunk(EVENT))
            await self.finish.wait()
            side.send(chunk(RESULT) + b"0\r\n\r\n")


async def opened(caller: Client) -> None:
    """Opens a stream, and receives its first event."""
    caller.send(call(b"stream"))
    await read_head(caller.reader)
    assert await anext(chunks(caller.reader)) == EVENT


@pytest.mark.parametrize("workers", [1, 2])
async def test_the_next_generation_serves_and_streams_end_in_the_one_before(workers: int) -> None:
    live = Streams()
    async with backend(live.script) as server:
        async with life(config_text(server.port, workers=workers, drain="20s")) as one:
            port, admin_port = one.port, one.admin_port
            async with client(one.port) as caller:
                await opened(caller)
                serving = [one.pid, *one.workers]
                before = await one.renew()
                assert (one.port, one.admin_port) == (port, admin_port)
                await one.until(lambda: not any(map(one.can_accept, serving)), "the generation before accepts no more")
                assert alive(before)
                assert len(one.workers) == (workers if workers > 1 else 0)
                for _ in range(10):
                    assert await answered(port)
                # The admin interface is the new generation's alone.
                await one.until_count(10, "requests_total", method="tools/call")
                assert await one.count("streams_open") == 0
                live.finish.set()
                assert await caller.rest() == chunk(RESULT) + b"0\r\n\r\n"
            assert await one.command.ended() == 0
            # And the one after that.
            assert await one.renew() == one.generations[1]
            await one.gone(one.generations[1])
            assert await answered(port)


@pytest.mark.parametrize("workers", [1, 2])
async def test_streams_longer_than_the_drain_are_cut_in_the_generation_before_only(workers: int) -> None:
    live = Streams()
    async with backend(live.script) as server:
        async with life(config_text(server.port, workers=workers, drain="1s")) as one:
            async with client(one.port) as early:
                await opened(early)
                serving = [one.pid, *one.workers]
                before = await one.renew()
                # Those of the generation before accept until they hear that they drain.
                await one.until(lambda: not any(map(one.can_accept, serving)), "the generation before accepts no more")
                async with client(one.port) as late:
                    await opened(late)
                    assert await early.rest() == b""
                    await one.gone(before)
                    live.finish.set()
                    assert [event async for event in chunks(late.reader)] == [RESULT]


@pytest.mark.parametrize("workers", [1, 2])
async def test_a_generation_that_cannot_serve_leaves_the_one_before_in_its_place(workers: int) -> None:
    async with backend() as server:
        text = config_text(server.port, workers=workers, drain="1s")
        async with life(text) as one:
            with socket.create_server(("127.0.0.1", 0)) as taken:
                address = f"127.0.0.1:{taken.getsockname()[1]}"
                wrong = (
                    "pools: nonsense",
                    config_text(server.port, workers=workers, listen=address),
                    config_text(server.port, workers=workers, admin=address),
                )
                for times, broken in enumerate(wrong, 1):
                    one.file.write_text(broken)
                    os.kill(one.pid, signal.SIGUSR2)
                    await one.until_said(REFUSED, times)
                    assert await answered(one.port)
                    assert await one.admin("/readyz") == (200, "ready\n")
            assert one.said("already in use") == 2
            open_before = len(descriptors_of(one.pid))
            os.kill(one.pid, signal.SIGUSR2)
            one.file.write_text("still nonsense")
            await one.until_said(REFUSED, 4)
            await one.until(lambda: len(descriptors_of(one.pid)) <= open_before, "nothing is left open")
            one.file.write_text(text)
            await one.gone(await one.renew())
            assert await answered(one.port)


@pytest.mark.parametrize(("before", "after"), [(2, 1), (1, 3), (3, 2), (1, 2)])
async def test_another_number_of_workers_loses_no_connection(before: int, after: int) -> None:
    """Those that wait in the queues while nobody accepts, and those that come later."""
    async with (
        backend() as server,
        life(config_text(server.port, workers=before, drain="5s")) as one,
        AsyncExitStack() as stack,
    ):
        one.file.write_text(config_text(server.port, workers=after, drain="5s"))
        pids = one.workers or [one.pid]
        times = one.said("serving on")
        os.kill(one.pid, signal.SIGUSR2)
        await one.until(lambda: len(generations_under(one.pid)) == 1, "a generation starts")
        for pid in pids:  # from now on nobody of the old generation accepts
            os.kill(pid, signal.SIGSTOP)
        await until_state(pids, "T")
        callers = [await stack.enter_async_context(client(one.port)) for _ in range(60)]
        for caller in callers:
            caller.send(call())
        if before > 1:
            await one.until_said("serving on", times + 1)
        for pid in pids:
            os.kill(pid, signal.SIGCONT)
        await one.adopt()
        callers += [await stack.enter_async_context(client(one.port)) for _ in range(20)]
        for caller in callers[60:]:
            caller.send(call())
        assert [(await caller.response()).status for caller in callers] == [200] * 80
        assert len(one.workers) == (after if after > 1 else 0)


async def test_what_only_a_restart_can_change_is_taken_up() -> None:
    async with backend() as server, life(config_text(server.port, workers=2, drain="1s")) as one:
        port, admin_port = one.port, one.admin_port
        listen, admin = closed_port(), closed_port()
        changed = {"listen": f"127.0.0.1:{listen}", "admin": f"127.0.0.1:{admin}", "pins": {"capacity": 7}}
        one.file.write_text(config_text(server.port, workers=2, drain="1s", **changed))
        before = await one.renew()
        assert (one.port, one.admin_port) == (listen, admin)
        assert await answered(listen)
        assert await one.admin("/readyz") == (200, "ready\n")
        await one.gone(before)
        for old in (port, admin_port):
            with pytest.raises(ConnectionRefusedError):
                await asyncio.open_connection("127.0.0.1", old)


@pytest.mark.parametrize("workers", [1, 2])
async def test_the_end_during_a_hand_over_ends_both(workers: int) -> None:
    async with backend() as server, life(config_text(server.port, workers=workers, drain="1s")) as one:
        os.kill(one.pid, signal.SIGUSR2)
        await one.until(lambda: len(generations_under(one.pid)) == 1, "a generation starts")
        (coming,) = generations_under(one.pid)
        one.generations.append(coming)
        os.kill(one.pid, signal.SIGTERM)
        assert await one.command.ended() == 0
        await one.gone(coming)
        with pytest.raises(ConnectionRefusedError):
            await asyncio.open_connection("127.0.0.1", one.port)


async def test_two_requests_for_a_generation_make_one() -> None:
    async with backend() as server, life(config_text(server.port, workers=2, drain="1s")) as one:
        os.kill(one.pid, signal.SIGUSR2)
        await asyncio.sleep(0.05)  # two signals at once may be one
        before = await one.renew()
        await one.gone(before)
        assert await answered(one.port)
        assert one.said("serving on") == 2


@pytest.mark.parametrize("workers", [1, 2])
async def test_signals_to_a_generation_that_drains_are_the_next_one_s(workers: int) -> None:
    live = Streams()
    async with backend(live.script) as server:
        async with life(config_text(server.port, workers=workers, drain="20s")) as one, client(one.port) as caller:
            await opened(caller)
            before = await one.renew()
            os.kill(before, signal.SIGHUP)
            await one.until_said("the new configuration is in force")
            os.kill(before, signal.SIGTERM)
            await one.gone(one.pid)
            live.finish.set()
            assert await caller.rest() == chunk(RESULT) + b"0\r\n\r\n"
            await one.gone(before)
