"""The life of a serving process: it accepts a crowd at once, and at its end lets go of its clients in order."""

import asyncio
import os
import signal
import time
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path

from tests.process.harness import STREAM_FIELDS, ProxyProcess, chunk, config_text, proxy_process
from tests.wire.harness import PATIENCE, BackendSide, Client, backend, call, chunks, client, post, read_head, until

STREAMS = 50
CROWD = 256
LONG, SHORT = "60s", "1s"  # drains; nothing may wait for the end of the long one
SLACK = 3.0  # seconds a busy machine may add
EVENT, RESULT = b'data: {"method":"notifications/progress"}\n\n', b'data: {"jsonrpc":"2.0","id":1,"result":{}}\n\n'


async def test_streams_that_end_within_the_drain_are_not_cut() -> None:
    live = LiveStreams()
    async with (
        backend(live.script) as server,
        proxy_process(config_text(server.port, drain=LONG)) as proxy,
    ):
        async with live.clients(proxy) as clients:
            proxy.command.terminate()
            await refuses(proxy)
            assert await proxy.admin("/readyz") == (503, "draining\n")
            assert (await proxy.admin("/healthz"))[0] == 200
            for side in live.sides:
                side.send(chunk(EVENT))
            for caller in clients:
                assert await anext(chunks(caller.reader)) == EVENT
            assert await proxy.count("streams_open") == STREAMS

            live.finish.set()
            for caller in clients:
                assert await caller.rest() == chunk(RESULT) + b"0\r\n\r\n"
            assert await proxy.command.ended() == 0


async def test_streams_longer_than_the_drain_are_cut_at_its_end() -> None:
    live = LiveStreams()
    async with (
        backend(live.script) as server,
        proxy_process(config_text(server.port, drain=SHORT)) as proxy,
    ):
        async with live.clients(proxy) as clients:
            start = time.monotonic()
            proxy.command.terminate()
            await refuses(proxy)
            for side in live.sides:
                side.send(chunk(EVENT))
            for caller in clients:
                assert await caller.rest() == chunk(EVENT)  # and no end of the body: whoever reads it sees that
            assert await proxy.command.ended() == 0
            assert 1.0 <= time.monotonic() - start < 1.0 + SLACK
            await until(lambda: live.left == STREAMS)


async def test_what_is_under_way_is_answered_and_the_idle_are_let_go() -> None:
    """An upload goes on, and its answer says that the connection closes; one where nothing is asked closes at once."""
    async with backend() as server, proxy_process(config_text(server.port, drain=LONG)) as proxy:
        async with client(proxy.port) as busy, client(proxy.port) as idle:
            assert (await idle.ask(call())).get("Connection") is None
            busy.send(post(body=b"x" * 1000)[:-500])
            await proxy.until_count(1, "backend_in_flight")
            proxy.command.terminate()
            assert await idle.rest() == b""
            busy.send(b"x" * 500)
            answer = await busy.response()
            assert (answer.status, answer.get("Connection")) == (200, "close")
            assert await busy.rest() == b""
            assert server.requests[-1].body == b"x" * 1000
            assert await proxy.command.ended() == 0


async def test_a_crowd_that_comes_at_once_is_served() -> None:
    """All of them are in the kernel's queue before the proxy may accept the first."""
    async with backend() as server, proxy_process(config_text(server.port)) as proxy, AsyncExitStack() as stack:
        await stopped(proxy.command.pid)
        try:
            clients = [await stack.enter_async_context(client(proxy.port)) for _ in range(CROWD)]
            for number, caller in enumerate(clients):
                caller.send(call(body=b"%d" % number))
        finally:
            os.kill(proxy.command.pid, signal.SIGCONT)
        async with asyncio.timeout(PATIENCE):
            answers = await asyncio.gather(*(caller.response() for caller in clients))
        assert [answer.status for answer in answers] == [200] * CROWD
        assert sorted(int(request.body) for request in server.requests) == list(range(CROWD))


class LiveStreams:
    """A backend's streams: each has begun, and ends when all are told to."""

    def __init__(self) -> None:
        self.sides: list[BackendSide] = []
        self.finish = asyncio.Event()
        self.left = 0  # streams whose connection the proxy has closed

    async def script(self, side: BackendSide) -> None:
        await side.request()
        side.send(STREAM_FIELDS + b"\r\n" + chunk(EVENT))
        self.sides.append(side)
        finishing = asyncio.ensure_future(self.finish.wait())
        leaving = asyncio.ensure_future(side.reader.read())
        await asyncio.wait((finishing, leaving), return_when=asyncio.FIRST_COMPLETED)
        if finishing.done():
            side.send(chunk(RESULT) + b"0\r\n\r\n")
        else:
            finishing.cancel()
        await asyncio.wait((leaving,))
        self.left += 1

    @asynccontextmanager
    async def clients(self, proxy: ProxyProcess) -> AsyncIterator[list[Client]]:
        """Clients that have each received the first event of a stream of theirs."""
        async with AsyncExitStack() as stack:
            clients = [await stack.enter_async_context(client(proxy.port)) for _ in range(STREAMS)]
            for caller in clients:
                caller.send(call())
            for caller in clients:
                await read_head(caller.reader)
                assert await anext(chunks(caller.reader)) == EVENT
            yield clients


async def refuses(proxy: ProxyProcess) -> None:
    """Waits until the proxy takes no more connections."""
    deadline = time.monotonic() + PATIENCE
    while True:
        try:
            _, writer = await asyncio.open_connection("127.0.0.1", proxy.port)
        except ConnectionRefusedError:
            return
        writer.close()
        assert time.monotonic() < deadline, "it still accepts"
        await asyncio.sleep(0.01)


async def stopped(pid: int) -> None:
    """Stops a process, and waits until it has stopped."""
    os.kill(pid, signal.SIGSTOP)
    await until(lambda: Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "T")
