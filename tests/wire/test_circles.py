"""What is over is freed at once: nothing of a request or connection waits for the garbage collector, which comes rarely
in a process that serves (proxy.process), so that what waits for it looks like a leak."""

import asyncio
import gc
import socket
from collections import Counter
from collections.abc import Awaitable, Callable

import pytest

from tests.wire.harness import MODERN, BackendSide, backend, call, client, config_text, post, running, task, until

TIMES = 10
LARGE, MANY = 200_000, 20  # more than two sockets hold
STREAM = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n8\r\ndata: 1\n\r\n"
LIMITS = "    outlier: off\n    limits: {in_flight: 2, queue: 1, queue_wait: 50ms}\n"


async def script(side: BackendSide) -> None:
    """Serves what is asked for by its name."""
    while True:
        name = (await side.request()).get("Mcp-Name")
        if name == "lost":
            return
        if name == "large":
            side.answer(b"x" * LARGE)
            continue
        if name == "stream":
            side.send(STREAM + b"0\r\n\r\n")
        elif name in ("endless", "cut"):
            side.send(STREAM)
            if name == "endless":
                await side.peer_closes()
            return
        else:
            side.answer()


async def asked(port: int, data: bytes, status: int) -> None:
    """One request on a connection of its own."""
    async with client(port) as c:
        assert (await c.ask(data)).status == status


async def left(port: int, data: bytes) -> None:
    """The client leaves once the stream has begun."""
    async with client(port) as c:
        c.send(data)
        await c.reader.readuntil(b"data: 1\n")


async def cut(port: int, data: bytes) -> None:
    async with client(port) as c:
        c.send(data)
        assert (await c.rest()).endswith(b"data: 1\n\r\n")


async def crowd(port: int, data: bytes) -> None:
    """Two are under way, one waits in vain, and one finds the queue full."""
    async with client(port) as one, client(port) as two, client(port) as waiting, client(port) as surplus:
        for c in (one, two):
            c.send(data)
            await c.reader.readuntil(b"data: 1\n")
        waiting.send(call())
        assert (await surplus.ask(call())).status == 503
        assert (await waiting.response()).status == 503


CASES: dict[str, Callable[[int], Awaitable[None]]] = {
    "nothing asked": lambda port: asked(port, b"GET / HTTP/1.1\r\n\r\n", 400),
    "a call": lambda port: asked(port, call(), 200),
    "an upload": lambda port: asked(port, call(body=b"x" * 300_000), 200),
    "a poll": lambda port: asked(port, task(b"get", b"t"), 200),
    "a session": lambda port: asked(port, post(), 200),
    "a session that is gone": lambda port: asked(port, post(b"Mcp-Session-Id: x"), 404),
    "no route": lambda port: asked(port, post(*MODERN, target=b"/other"), 404),
    "a stream": lambda port: asked(port, call(b"stream"), 200),
    "a stream that is left": lambda port: left(port, call(b"endless")),
    "a stream that is cut": lambda port: cut(port, call(b"cut")),
    "a backend that closes": lambda port: asked(port, call(b"lost"), 502),
    "a queue": lambda port: crowd(port, call(b"endless")),
}


@pytest.mark.parametrize("case", CASES)
async def test_nothing_is_left_to_the_garbage_collector(case: str) -> None:
    await check(CASES[case])


async def check(play: Callable[[int], Awaitable[None]]) -> None:
    async with backend(script) as one, running(config_text(one.port, pool=LIMITS)) as proxy:
        await play(proxy.port)
        await until(lambda: not proxy.clients)
        gc.collect()
        gc.disable()
        try:
            for _ in range(TIMES):
                await play(proxy.port)
            await until(lambda: not proxy.clients)
            await asyncio.sleep(0)  # what was called last returns
            gc.set_debug(gc.DEBUG_SAVEALL)
            gc.collect()
            found = Counter(
                type(each).__qualname__ for each in gc.garbage if type(each).__module__.startswith("proxy.")
            )
        finally:
            gc.set_debug(0)
            gc.garbage.clear()
            gc.enable()
    assert found.total() < TIMES, found


async def several(port: int, names: list[bytes], statuses: set[int]) -> None:
    """One after the other on one connection: the third and further ones take the short walk."""
    async with client(port) as c:
        assert {(await c.ask(call(name))).status for name in names} == statuses


async def test_nor_is_anything_of_alike_requests() -> None:
    await check(lambda port: several(port, [b"a"] * 5, {200}))


async def test_nor_of_one_whose_backend_closes() -> None:
    await check(lambda port: several(port, [b"a", b"b", b"c", b"lost"], {200, 502}))


async def test_nor_of_one_that_is_answered_by_a_stream() -> None:
    await check(lambda port: several(port, [b"a", b"b", b"c", b"stream"] * 2, {200}))


async def unread(port: int) -> None:
    """A client asks for large answers and takes none of them, until its connection takes no more."""
    loop = asyncio.get_running_loop()
    with socket.socket() as asking:
        asking.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        asking.setblocking(False)
        await loop.sock_connect(asking, ("127.0.0.1", port))
        for _ in range(3):
            await loop.sock_sendall(asking, call(b"a"))
            assert (await loop.sock_recv(asking, 4096)).startswith(b"HTTP/1.1 200 ")
        for _ in range(MANY):
            await loop.sock_sendall(asking, call(b"large"))
            await asyncio.sleep(0.01)  # until it is answered
        taken = 0
        while taken < MANY * LARGE:
            taken += len(await loop.sock_recv(asking, 2**20))


async def test_nor_of_those_that_a_client_is_slow_to_take() -> None:
    await check(unread)
