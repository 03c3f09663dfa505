"""What the platform does by itself, and would do wrong here: none of it may be seen of a serving process.

The HTTP parser is lenient where others are not, and joins messages that came together; the event loop accepts too few
connections under load, and forgets tasks that fail.
"""

import asyncio
import socket
import sys
import tempfile
import time
from contextlib import AsyncExitStack
from pathlib import Path

from tests.process.harness import (
    STREAM_FIELDS,
    chunk,
    config_text,
    proxy_process,
    serving,
    started,
)
from tests.wire.harness import (
    MODERN,
    PATIENCE,
    BackendSide,
    backend,
    call,
    client,
    post,
    until,
)

OK = b"HTTP/1.1 200 OK\r\n"
LINE = b"POST /mcp HTTP/1.1\r\n"
START = LINE + b"Host: x\r\n"
LIST = post(*MODERN, b"Mcp-Method: tools/list")
NOWHERE = b"GET /nowhere HTTP/1.1\r\nHost: x\r\n\r\n"  # the proxy answers it by itself
NEWCOMERS = 256
BUSY = 24  # clients that ask all the time
MOST_ROUNDS = 4  # of each of them until the last newcomer is answered: 5 to 13 where one is accepted at a time


# ---- the parser
REFUSED_BY_THE_PARSER = {
    "length and coding": (START + b"Content-Length: 1\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n", 400),
    "two lengths": (START + b"Content-Length: 1\r\nContent-Length: 1\r\n\r\na", 400),
    "a length in words": (START + b"Content-Length: one\r\n\r\n", 400),
    "another coding": (START + b"Transfer-Encoding: gzip, identity\r\n\r\n", 400),
    "a blank before the colon": (START + b"A : b\r\n\r\n", 400),
    "a folded field": (START + b"A: b\r\n c\r\n\r\n", 400),
    "a bare LF": (START + b"A: b\nC: d\r\n\r\n", 400),
    "a bare CR": (START + b"A: b\rC: d\r\n\r\n", 400),
    "a NUL": (START + b"A: \0\r\n\r\n", 400),
    "a broken chunk": (START + b"Transfer-Encoding: chunked\r\n\r\n2\r\nabc\r\n0\r\n\r\n", 400),
    "CONNECT": (b"CONNECT x:1 HTTP/1.1\r\nHost: x:1\r\n\r\n", 501),
    "Upgrade": (START + b"Connection: Upgrade\r\nUpgrade: websocket\r\n\r\n", 501),
}
TAKEN_BY_THE_PARSER = {
    "a field of a megabyte": (START + b"A: %b\r\n\r\n" % (b"a" * 2**20), 431),
    "20,000 fields": (START + b"A: b\r\n" * 20_000 + b"\r\n", 431),
    "201 fields": (START + b"A: b\r\n" * 200 + b"\r\n", 431),
    "a target of 100 KB": (b"GET /%b HTTP/1.1\r\nHost: x\r\n\r\n" % (b"a" * 100_000), 431),
    "no Host": (LINE + b"Content-Length: 0\r\n\r\n", 400),
    "two Hosts": (START + b"Host: y\r\nContent-Length: 0\r\n\r\n", 400),
    "two names": (call(b"one", b"Mcp-Name: two"), 400),
    "an absolute target": (b"GET http://x/mcp HTTP/1.1\r\nHost: x\r\n\r\n", 400),
    "chunked on HTTP/1.0": (b"POST /mcp HTTP/1.0\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n", 400),
}


async def test_what_can_be_read_in_two_ways_reaches_no_backend() -> None:
    """Half of it the parser would take, and so would pass it on to readers that may take it otherwise."""
    async with backend() as server, proxy_process(config_text(server.port)) as proxy:
        for name, (text, status) in (REFUSED_BY_THE_PARSER | TAKEN_BY_THE_PARSER).items():
            async with client(proxy.port) as c:
                answer = await c.ask(text)
                assert (name, answer.status, answer.get("Mcp-Proxy-Error") is None) == (name, status, False)
        assert server.requests == []
        async with client(proxy.port) as c:
            assert (await c.ask(call(b"one", b"X-Name: \xc3\xa9\xff"))).status == 200
            assert (await c.ask(START + b"Transfer-Encoding: chunked\r\n\r\n2;a=b\r\nhi\r\n0\r\n\r\n")).status == 200
        assert server.requests[0].get("X-Name") == "\xc3\xa9\xff"
        assert server.requests[1].body == b"hi"


async def test_connections_are_kept_on_both_sides() -> None:
    """The parser tells only while a message ends whether another may follow; asked later, it says no every time."""

    async def in_turn(side: BackendSide) -> None:
        while True:
            await side.request()
            side.answer()
            await side.request()
            side.send(STREAM_FIELDS + b"\r\n" + chunk(b"data: {}\n\n") + b"0\r\n\r\n")

    async with backend(in_turn) as server, proxy_process(config_text(server.port)) as proxy:
        async with client(proxy.port) as c:
            for _ in range(50):
                assert (await c.ask(call())).status == 200
        assert (len(server.requests), server.connections) == (50, 1)


async def test_requests_that_come_together_are_answered_one_by_one() -> None:
    """The parser would make one of their bodies, and an end of all that have ended."""

    async def echo(side: BackendSide) -> None:
        while True:
            side.answer((await side.request()).body or b"-")

    chunked = START + b"Transfer-Encoding: chunked\r\n\r\n" + chunk(b"t") + chunk(b"wo") + b"0\r\n\r\n"
    text = b"GET /mcp HTTP/1.1\r\nHost: x\r\n\r\n" + post(body=b"one") + chunked + post(body=b"") + call(body=b"four")
    async with backend(echo) as server, proxy_process(config_text(server.port)) as proxy, client(proxy.port) as c:
        for size in (7, len(text)):
            for at in range(0, len(text), size):
                c.send(text[at : at + size])
            assert [(await c.response()).body for _ in range(5)] == [b"-", b"one", b"two", b"-", b"four"]
        assert [request.body for request in server.requests] == [b"", b"one", b"two", b"", b"four"] * 2


async def test_an_answer_that_nobody_asked_for_reaches_nobody() -> None:
    """The parser would take it for an answer to the next request, be it another client's."""

    async def twice(side: BackendSide) -> None:
        number = (await side.request()).body
        side.answer(number)
        if int(number) % 2:
            await asyncio.sleep(0.05)  # the connection is idle by then
        side.answer(b"another's")
        await side.reader.read()

    async with backend(twice) as server, proxy_process(config_text(server.port)) as proxy:
        for number in range(10, 20):
            async with client(proxy.port) as c:
                assert (await c.ask(LIST[:-2] + b"%d" % number)).body == b"%d" % number
            begun = time.monotonic()
            await until(lambda: not server.open)
            assert time.monotonic() - begun < 1  # not because it was idle for long


ODD = [
    (b"HEAD", OK + b"Content-Length: 5\r\n\r\n", b""),
    (b"HEAD", OK + b"Transfer-Encoding: chunked\r\n\r\n", b""),
    (b"DELETE", b"HTTP/1.1 204 No Content\r\n\r\n", b""),
    (b"GET", b"HTTP/1.1 304 Not Modified\r\nContent-Length: 5\r\n\r\n", b""),
    (b"GET", b"HTTP/1.1 103 Early Hints\r\n\r\n" + OK + b"Content-Length: 2\r\n\r\nhi", b"hi"),
    (b"GET", OK + b"\r\nuntil the end", b"until the end"),
]


async def test_an_answer_of_an_odd_kind_does_not_get_the_next_one_out_of_step() -> None:
    """The parser waits for a body that never comes, takes the first of two messages for the answer, or misses an end
    that only a close tells."""

    async def script(side: BackendSide) -> None:
        while True:
            number = (await side.request()).get("X-Odd")
            if number is None:
                side.answer(b"even")
                continue
            side.send(ODD[int(number)][1])
            if int(number) == len(ODD) - 1:
                return

    async with backend(script) as server, proxy_process(config_text(server.port)) as proxy:
        for number, (verb, _, body) in enumerate(ODD * 2):
            async with client(proxy.port) as c:
                c.send(verb + b" /mcp HTTP/1.1\r\nHost: x\r\nX-Odd: %d\r\n\r\n" % (number % len(ODD)))
                found = await c.response(to_head=verb == b"HEAD")
                if found.status == 103:
                    found = await c.response()
                assert found.body == body
                assert (await c.ask(call())).body == b"even"
        assert len(server.requests) == 4 * len(ODD)


# ---- the event loop
async def test_newcomers_are_accepted_while_others_keep_the_proxy_busy() -> None:
    """A listener that takes one connection in each turn of the loop, as the loop's own does, lets those that are busy
    ask again and again before it has accepted the last of the others."""
    async with backend() as server, proxy_process(config_text(server.port)) as proxy, AsyncExitStack() as stack:
        rounds = [0] * BUSY

        async def ask_on(number: int) -> None:
            async with client(proxy.port) as c:
                while True:
                    assert (await c.ask(call())).status == 200
                    rounds[number] += 1

        async with asyncio.TaskGroup() as group:
            busy = [group.create_task(ask_on(number)) for number in range(BUSY)]
            await until(lambda: min(rounds) >= 10)
            newcomers = []
            for _ in range(NEWCOMERS):  # nothing is awaited: the kernel has them all before the proxy sees the first
                sock = stack.enter_context(socket.create_connection(("127.0.0.1", proxy.port), timeout=PATIENCE))
                sock.sendall(NOWHERE)
                sock.setblocking(False)
                newcomers.append(sock)
            before, loop = sum(rounds), asyncio.get_running_loop()
            async with asyncio.timeout(PATIENCE):
                answers = await asyncio.gather(*(loop.sock_recv(sock, 1000) for sock in newcomers))
            passed = (sum(rounds) - before) / BUSY
            for task in busy:
                task.cancel()
        assert {answer.split(b"\r\n", 1)[0] for answer in answers} == {b"HTTP/1.1 404 Not Found"}
        assert passed < MOST_ROUNDS


CLUMSY = """
import sys
from proxy.cli import main
from proxy.wire.connections import BackendConnections
from proxy.wire.patience import Patience

def once(kind, name):
    good = getattr(kind, name)
    def fails(*args):
        setattr(kind, name, good)
        raise ArithmeticError(name)
    setattr(kind, name, fails)

once(BackendConnections, "dial")
once(Patience, "tick")
sys.exit(main())
"""


async def test_a_failure_nobody_thought_of_is_told_and_costs_one_request_and_no_loop() -> None:
    """A task alone would die in silence, and its client wait for ever; a group of tasks would take all down with it."""
    with tempfile.TemporaryDirectory(prefix="proxy-config-") as folder:
        async with backend() as server:
            file = Path(folder, "proxy.yaml")
            file.write_text(config_text(server.port, listen={"address": "127.0.0.1:0", "limits": {"idle": "1s"}}))
            with started("serve", "-c", str(file), program=(sys.executable, "-c", CLUMSY)) as command:
                proxy = await serving(command)
                async with client(proxy.port) as first, client(proxy.port) as second:
                    first.send(call())
                    assert await first.rest() == b""
                    assert (await second.ask(call())).status == 200
                    await command.wrote("dial a backend failed")
                    await command.wrote("idle or slow for too long failed, and goes on")
                    assert await second.rest() == b""  # the loop that ends what is idle has gone on
                assert command.complaints.count("ArithmeticError: ") == 2
                command.terminate()
                assert await command.ended() == 0
