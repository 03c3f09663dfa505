"""Several workers as one proxy: each accepts, whoever dies or leaves is replaced, and nobody else notices."""

import asyncio
import os
import signal
import time
from collections.abc import Iterator
from contextlib import AsyncExitStack, contextmanager
from pathlib import Path

import pytest

from tests.process.harness import PROJECT, STREAM_FIELDS, children_of, chunk, config_text, started
from tests.process.lives import QUEUED, Life, alive, descriptors_of, life, until_state
from tests.wire.harness import BackendSide, Client, backend, call, chunks, client, closed_port, read_head

EVENT, RESULT = b'data: {"method":"notifications/progress"}\n\n', b'data: {"jsonrpc":"2.0","id":1,"result":{}}\n\n'
SCRAPE_LIMIT = 2.0  # seconds for a scrape while a worker is silent: it waits one second for each, all at once
DIES = """
import os, sys
if "proxy.workers.worker" in sys.orig_argv and os.path.exists({flag!r}):
    sys.stderr.write("the last words of a worker\\n")
    os._exit(7)
"""


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


async def test_every_worker_accepts_and_one_is_as_good_as_another() -> None:
    async with backend() as server, life(config_text(server.port), "--workers", "3") as one:
        workers = one.workers
        assert len(workers) == 3
        async with AsyncExitStack() as stack:
            callers = [await stack.enter_async_context(one.client_of(pid)) for pid in workers]
            for caller in callers:
                assert (await caller.ask(call())).status == 200
            assert await one.count("workers") == 3
            assert await one.count("requests_total", method="tools/call", code="200") == 3
            assert await one.count("worker_restarts_total") == 0
            # Exactly one call at a backend for each of a client.
            assert len(server.requests) == 3


async def test_a_killed_worker_is_replaced_and_what_it_had_not_accepted_is_served_by_a_neighbour() -> None:
    async with (
        backend() as server,
        life(config_text(server.port, workers=2, drain="5s")) as one,
        AsyncExitStack() as stack,
    ):
        killed, neighbour = one.workers
        own = await stack.enter_async_context(one.client_of(killed))
        near = await stack.enter_async_context(one.client_of(neighbour))
        for caller in (own, near):
            assert (await caller.ask(call())).status == 200
        assert await one.count("requests_total") == 2
        os.kill(killed, signal.SIGSTOP)
        await until_state([killed], "T")
        callers = [await stack.enter_async_context(client(one.port)) for _ in range(30)]
        for caller in callers:
            caller.send(call())
        # Those of the neighbour are answered, the others wait in the queue.
        assert QUEUED in [await one.holder(caller) for caller in callers]
        os.kill(killed, signal.SIGKILL)
        assert [(await caller.response()).status for caller in callers] == [200] * len(callers)
        assert (await near.ask(call())).status == 200
        with pytest.raises((ConnectionError, asyncio.IncompleteReadError)):
            await own.ask(call())
        new = await one.replaced(killed, 2)
        async with one.client_of(new) as caller:
            assert (await caller.ask(call())).status == 200
        assert await one.count("worker_restarts_total") == 1
        # What the dead one had told is still counted.
        assert await one.count("requests_total") == 2 + len(callers) + 2
        assert one.said("ended: signal 9") == 1


async def test_a_worker_that_is_told_to_end_is_replaced_and_finishes_what_is_under_way() -> None:
    live = Streams()
    async with backend(live.script) as server, life(config_text(server.port, workers=2, drain="20s")) as one:
        leaving, neighbour = one.workers
        async with one.client_of(leaving) as caller:
            await opened(caller)
            os.kill(leaving, signal.SIGTERM)
            new = await one.replaced_beside(leaving)
            assert alive(leaving)
            async with one.client_of(new) as other:
                assert (await other.ask(call())).status == 200
            assert await one.count("streams_open") == 1
            live.finish.set()
            assert await caller.rest() == chunk(RESULT) + b"0\r\n\r\n"
        await one.gone(leaving)
        assert sorted(one.workers) == sorted((neighbour, new))
        assert await one.count("worker_restarts_total") == 0
        assert await one.count("requests_total", method="tools/call") == 2


async def test_a_worker_that_left_is_not_taken_for_dead_by_a_supervisor_that_was_busy() -> None:
    """Its last words and its end are there at the same time."""
    async with backend() as server, life(config_text(server.port, workers=2, drain="5s")) as one:
        leaving = one.workers[0]
        async with one.client_of(leaving) as caller:
            assert (await caller.ask(call())).status == 200
        os.kill(one.pid, signal.SIGSTOP)
        await until_state([one.pid], "T")
        os.kill(leaving, signal.SIGTERM)
        await until_state([leaving], "Z")
        os.kill(one.pid, signal.SIGCONT)
        await one.replaced(leaving, 2)
        assert await one.count("worker_restarts_total") == 0
        assert await one.count("requests_total") == 1


@contextmanager
def dying_workers(folder: Path) -> Iterator[tuple[dict[str, str], Path]]:
    """An environment in which workers die at once while a file is there, and that file."""
    flag = folder / "die"
    (folder / "sitecustomize.py").write_text(DIES.format(flag=str(flag)))
    yield {"PYTHONPATH": f"{folder}:{PROJECT}"}, flag


async def test_workers_that_cannot_live_end_the_start(tmp_path: Path) -> None:
    with dying_workers(tmp_path) as (environ, flag):
        flag.touch()
        file = tmp_path / "proxy.yaml"
        file.write_text(config_text(1, workers=2))
        with started("serve", "-c", str(file), environ=environ) as command:
            assert await command.ended() == 1
            assert "the last words of a worker" in command.complaints
            assert command.complaints.endswith(
                "mcp-routing-proxy: a worker ended before it served; its last words are above\n"
            )


async def test_a_worker_that_dies_again_and_again_is_replaced_less_and_less_often(tmp_path: Path) -> None:
    with dying_workers(tmp_path) as (environ, flag):
        async with backend() as server, life(config_text(server.port, workers=2), environ=environ) as one:
            flag.touch()
            killed, neighbour = one.workers
            os.kill(killed, signal.SIGKILL)
            start = time.monotonic()
            await one.until_said("ended: exit code 7", 4)  # after 0, 0.1, 0.2 and 0.4 s
            assert time.monotonic() - start >= 0.7
            async with one.client_of(neighbour) as caller:
                assert (await caller.ask(call())).status == 200
            assert await one.admin("/readyz") == (200, "ready\n")
            flag.unlink()
            new = await one.replaced(killed, 2)
            async with one.client_of(new) as caller:
                assert (await caller.ask(call())).status == 200
            assert await one.count("worker_restarts_total") == 1 + one.said("ended: exit code 7")


async def test_when_the_supervisor_is_killed_the_workers_finish_and_leave_the_port(tmp_path: Path) -> None:
    live = Streams()
    text = config_text(0, workers=2, drain="20s")
    async with backend(live.script) as server:
        text = config_text(server.port, workers=2, drain="20s", listen=f"127.0.0.1:{closed_port()}")
        async with life(text) as one, one.client_of(one.workers[0]) as caller:
            await opened(caller)
            workers = one.workers
            os.kill(one.pid, signal.SIGKILL)
            await one.gone(one.pid)
            async with life(text) as next_one:
                assert next_one.port == one.port
                assert alive(workers[0])
                async with client(next_one.port) as other:
                    assert (await other.ask(call())).status == 200
                live.finish.set()
                assert await caller.rest() == chunk(RESULT) + b"0\r\n\r\n"
                for pid in workers:
                    await one.gone(pid)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
async def test_a_signal_to_the_whole_group_drains(number: signal.Signals) -> None:
    live = Streams()
    async with backend(live.script) as server, life(config_text(server.port, workers=2, drain="20s")) as one:
        workers = one.workers
        async with one.client_of(workers[0]) as caller:
            await opened(caller)
            for pid in (*workers, one.pid):
                os.kill(pid, number)
            await one.until_said("draining, at most 20 s")
            live.finish.set()
            assert await caller.rest() == chunk(RESULT) + b"0\r\n\r\n"
        assert await one.command.ended() == 0
        assert not any(map(alive, workers))


@pytest.mark.parametrize("workers", [1, 2])
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
async def test_a_start_can_be_cut_short(workers: int, number: signal.Signals, tmp_path: Path) -> None:
    file = tmp_path / "proxy.yaml"
    file.write_text(config_text(1, workers=workers))
    for turns in range(3):
        with started("serve", "-c", str(file)) as command:
            # From when it catches signals on; each time at another moment of its start.
            await command.until(lambda: catches(command.pid, number) or "serving on" in command.complaints, 10)
            await asyncio.sleep(turns * 0.15)
            children = children_of(command.pid)
            command.signal(number)
            assert await command.ended() == 0
            assert "Traceback" not in command.complaints
            assert not any(map(alive, children))


def catches(pid: int, number: signal.Signals) -> bool:
    """True if the process has a handler for SIGUSR2, which it installs first of all, and for this signal."""
    (line,) = (line for line in Path(f"/proc/{pid}/status").read_text().splitlines() if line.startswith("SigCgt:"))
    caught = int(line.split()[1], 16)
    return all(caught >> (one - 1) & 1 for one in (number, signal.SIGUSR2))


async def test_a_worker_that_is_stopped_does_not_hold_up_the_admin_interface() -> None:
    async with backend() as server, life(config_text(server.port, workers=2)) as one:
        stopped = one.workers[0]
        os.kill(stopped, signal.SIGSTOP)
        await until_state([stopped], "T")
        for path in ("/metrics", "/api/pools", "/readyz"):
            start = time.monotonic()
            assert (await one.admin(path))[0] == 200
            assert time.monotonic() - start < SCRAPE_LIMIT
        start = time.monotonic()
        assert (await one.post("/api/explain"))[0] == 200
        assert time.monotonic() - start < SCRAPE_LIMIT
        os.kill(stopped, signal.SIGCONT)
        await until_state([stopped], "SR")
        async with one.client_of(stopped) as caller:
            assert (await caller.ask(call())).status == 200


async def test_a_worker_that_dies_while_it_is_asked_does_not_fail_the_question() -> None:
    async with backend() as server, life(config_text(server.port, workers=2)) as one:
        dying = one.workers[0]
        os.kill(dying, signal.SIGSTOP)
        await until_state([dying], "T")
        async with client(one.admin_port) as scraper:  # one that does not ask again by itself
            scraper.send(b"GET /metrics HTTP/1.1\r\nHost: localhost\r\n\r\n")
            await asyncio.sleep(0.3)  # within the second that the supervisor waits for it
            os.kill(dying, signal.SIGKILL)
            assert (await scraper.response()).status == 200
        await one.replaced(dying, 2)


async def test_kills_and_reloads_leak_nothing_in_the_supervisor() -> None:
    async with backend() as server, life(config_text(server.port, workers=2)) as one:
        text = one.file.read_text()
        await one.reload(text)
        await one.admin("/metrics")
        before = len(descriptors_of(one.pid))
        for turn in range(10):
            killed = one.workers[turn % 2]
            os.kill(killed, signal.SIGKILL if turn % 3 else signal.SIGTERM)
            await gone_and_replaced(one, killed)
            if turn % 2:
                await one.reload(text)
        await one.admin("/metrics")
        await one.until(lambda: len(descriptors_of(one.pid)) <= before, "no descriptors are left over")
        assert zombies_of(one.pid) == []


async def gone_and_replaced(one: Life, gone: int) -> None:
    """Waits for both; who dies young is replaced late."""
    await one.until(lambda: not alive(gone) and len(one.workers) == 2, "it is replaced", 20)


def zombies_of(pid: int) -> list[int]:
    """Children that ended and were not waited for."""
    found = []
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            state, parent = stat.read_text().rpartition(")")[2].split()[:2]
        except OSError:
            continue
        if int(parent) == pid and state == "Z":
            found.append(int(stat.parent.name))
    return found
