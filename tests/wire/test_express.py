"""Whoever takes the short walk is told, counted and forwarded as on the long one, whatever happens on the way."""

import asyncio

import pytest

from tests.wire.harness import (
    MODERN,
    BackendSide,
    answer_always,
    call,
    post,
)
from tests.wire.task_backend import UNKNOWN, created
from tests.wire.walks import World, told_alike

OK = b"HTTP/1.1 200 OK\r\n"
JSON = b"Content-Type: application/json\r\n"


def whole(body: bytes, *lines: bytes, start: bytes = OK) -> bytes:
    """An answer with this body, announced first."""
    return b"%bContent-Length: %d\r\n%b%b\r\n%b" % (
        start,
        len(body),
        JSON,
        b"".join(line + b"\r\n" for line in lines),
        body,
    )


# ---- what clients send


WARM = [call(b"one"), call(b"two"), call(b"three")]

NAMES = [
    *(b"", b" ", b"  a  ", b"a b", b"a\tb", b"~!@#$%^&*(){}[]", b"\xe9", b"=?base64?YQ==?=", b"=?base64?!?="),
    *(b" =?base64?!?= ", b"=?x", b"=", b"a" * 7900, b"a" * 8100, b"a" * 8192, b"Content-Length: 5"),
]
REQUESTS: dict[str, list[bytes]] = {
    "alike": [call(b"four", body=b"x" * size) for size in (0, 1, 9, 10, 99, 100, 5000)],
    "no name": [post(*MODERN, b"Mcp-Method: tools/call", body=b"x" * size) for size in (2, 3, 4, 5, 0)],
    "names": [call(name) for name in NAMES],
    "other fields": [call(b"x", b"X-A: 1"), call(b"x"), call(b"x", b"X-A: 1"), call(b"x", b"X-A: 2"), call(b"x")],
    "other order": [
        b"POST /mcp HTTP/1.1\r\nHost: h\r\nContent-Length: 2\r\nMCP-Protocol-Version: 2026-07-28\r\n"
        b"Mcp-Name: %b\r\nMcp-Method: tools/call\r\n\r\n{}" % name
        for name in (b"a", b"b", b"c", b"dd", b"e")
    ],
    "spelt otherwise": [
        b"POST /mcp?a=b HTTP/1.1\r\nhost:h\r\nmcp-protocol-version:2026-07-28\r\n"
        b"mcp-name:%b\r\nmcp-method:tools/call\r\ncontent-length:\t%d\r\n\r\n%b" % (name, len(name), name)
        for name in (b"a", b"b", b"c", b"dd", b"e")
    ],
    "lengths": [
        call(b"x").replace(b"Content-Length: 2", line)
        for line in (b"Content-Length: 02", b"Content-Length: 2 ", b"Content-Length:  2", b"content-length: 2")
    ],
    "a HEAD between": [*WARM, call(b"x").replace(b"POST", b"HEAD"), *WARM],
    "a coded parameter": [call(b"x", b"Mcp-Param-Region: =?base64?ZXU=?=") for _ in range(4)],
    "forwarded": [call(b"x", b"X-Forwarded-For: 1.2.3.4", b"X-Forwarded-Host: h") for _ in range(4)],
    "an encoding": [call(b"x", b"Accept-Encoding: gzip") for _ in range(4)],
    "a session": [call(b"x", b"Mcp-Session-Id: s") for _ in range(4)],
    "hop by hop": [call(b"x", b"Connection: keep-alive, X-B", b"X-B: 1", b"TE: trailers") for _ in range(4)],
    "unknown methods": [post(*MODERN, b"Mcp-Method: acme/do", b"Mcp-Name: n") for _ in range(4)],
    "lists": [post(*MODERN, b"Mcp-Method: tools/list") for _ in range(4)],
    "discovery": [post(*MODERN, b"Mcp-Method: server/discover") for _ in range(4)],
    "an older protocol": [post(b"MCP-Protocol-Version: 2025-11-25", b"Mcp-Method: tools/call") for _ in range(4)],
    "no route": [post(*MODERN, b"Mcp-Method: tools/call", target=b"/nowhere") for _ in range(4)],
}


@pytest.mark.parametrize("case", REQUESTS)
async def test_requests(case: str) -> None:
    async def story(world: World) -> None:
        c = await world.client()
        await world.ask(c, *WARM, *REQUESTS[case], *WARM)

    assert (await told_alike(story, answer_always))["short"] >= 2


LAST: dict[str, bytes] = {
    "a length too long": call(b"x").replace(b"Content-Length: 2", b"Content-Length: +2"),
    "two lengths": call(b"x", b"Content-Length: 2"),
    "a coding beside": call(b"x", b"Transfer-Encoding: chunked"),
    "a bare CR": call(b"a\rb"),
    "a bare LF": call(b"a\nX: b"),
    "a NUL": call(b"a\0b"),
    "a DEL": call(b"a\x7fb"),
    "a long value": call(b"a" * 8193),
    "two names": call(b"x", b"Mcp-Name: y"),
    "a folded line": call(b"x\r\n y"),
    "it closes": call(b"x", b"Connection: close"),
    "HTTP/1.0": call(b"x").replace(b"HTTP/1.1", b"HTTP/1.0"),
}


@pytest.mark.parametrize("case", LAST)
async def test_what_no_request_follows(case: str) -> None:
    async def story(world: World) -> None:
        c = await world.client()
        await world.ask(c, *WARM, LAST[case])
        if case not in ("two names", "a long value"):
            world.seen.append(await c.rest())

    await told_alike(story, answer_always)


async def test_what_is_expected_and_what_is_chunked() -> None:
    async def story(world: World) -> None:
        c = await world.client()
        await world.ask(c, *WARM)
        chunked = call(b"x", b"Transfer-Encoding: chunked").replace(b"Content-Length: 2\r\n", b"")
        await world.ask(c, chunked[:-2] + b"2\r\n{}\r\n0\r\n\r\n", *WARM)
        c.send(call(b"x", b"Expect: 100-continue")[:-2])
        await world.sees(c)
        c.send(b"{}")
        await world.sees(c)
        await world.ask(c, *WARM)

    async def script(side: BackendSide) -> None:
        while True:
            head = await side.reader.readuntil(b"\r\n\r\n")
            if b"100-continue" in head:
                side.send(b"HTTP/1.1 100 Continue\r\n\r\n")
            if b"chunked" in head.lower():
                await side.reader.readuntil(b"0\r\n\r\n")
            else:
                await side.reader.readexactly(int(head.lower().partition(b"content-length: ")[2].split(b"\r")[0]))
            side.answer()

    assert (await told_alike(story, script))["short"]


CUTS = [1, 40, -3, -1]


@pytest.mark.parametrize("cut", CUTS)
async def test_a_request_in_two_pieces(cut: int) -> None:
    async def story(world: World) -> None:
        c = await world.client()
        await world.ask(c, *WARM)
        for _ in range(3):
            c.send(call(b"cut")[:cut])
            await asyncio.sleep(0.02)
            c.send(call(b"cut")[cut:])
            await world.sees(c)
            await world.ask(c, *WARM)

    assert (await told_alike(story, answer_always))["short"]


@pytest.mark.parametrize("before", [b"\r\n", b"\r\n\r\n", b"\r"])
async def test_empty_lines_between_requests(before: bytes) -> None:
    async def story(world: World) -> None:
        c = await world.client()
        await world.ask(c, *WARM)
        c.send(before)
        await asyncio.sleep(0.02)
        c.send(b"\n" * (before == b"\r") + call(b"x"))
        await world.sees(c)
        await world.ask(c, before.ljust(2, b"\n") + call(b"x"), *WARM)

    await told_alike(story, answer_always)


async def test_pipelined_requests() -> None:
    """Behind one that is alike, and while it is under way."""

    async def story(world: World) -> None:
        c = await world.client()
        await world.ask(c, *WARM)
        c.send(b"".join(WARM))
        for _ in WARM:
            await world.sees(c)
        c.send(call(b"slow"))
        await world.sent(7)
        c.send(call(b"x") + call(b"y"))
        c.send(call(b"z")[:30])
        await asyncio.sleep(0.02)
        c.send(call(b"z")[30:])
        for _ in range(4):
            await world.sees(c)
        await world.ask(c, *WARM)

    async def script(side: BackendSide) -> None:
        while True:
            if (await side.request()).get("Mcp-Name") == "slow":
                await asyncio.sleep(0.1)
            side.answer(b'"%d"' % len(side.backend.requests))

    assert (await told_alike(story, script))["short"]


# ---- what backends answer


ANSWERS: dict[str, bytes] = {
    "whole": whole(b"{}"),
    "empty": whole(b""),
    "large": whole(b"x" * 100_000),
    "length last": OK + JSON + b"Content-Length: 2\r\n\r\n{}",
    "length by zeros": OK + JSON + b"Content-Length: 002\r\n\r\n{}",
    "no reason": b"HTTP/1.1 200\r\n" + JSON + b"Content-Length: 2\r\n\r\n{}",
    "keep-alive": whole(b"{}", b"Connection: keep-alive", b"Keep-Alive: timeout=5"),
    "names hop by hop": whole(b"{}", b"Connection: X-A", b"X-A: 1"),
    "a cookie": whole(b"{}", b"Set-Cookie: a=b", b"Set-Cookie: c=d"),
    "a session": whole(b"{}", b"Mcp-Session-Id: abc"),
    "coded": whole(b"{}", b"Content-Encoding: gzip"),
    "identity": whole(b"{}", b"Content-Encoding: identity"),
    "a failure": whole(b"{}", start=b"HTTP/1.1 500 Oops\r\n"),
    "unavailable": whole(b"{}", start=b"HTTP/1.1 503 Busy\r\n"),
    "not found": whole(b"{}", start=b"HTTP/1.1 404 Not Found\r\n"),
    "HTTP/1.0": whole(b"{}", b"Connection: keep-alive", start=b"HTTP/1.0 200 OK\r\n"),
    "204": b"HTTP/1.1 204 No Content\r\n\r\n",
    "304": b"HTTP/1.1 304 Not Modified\r\nContent-Length: 9\r\n\r\n",
    "202": b"HTTP/1.1 202 Accepted\r\nContent-Length: 0\r\n\r\n",
    "early hints": b"HTTP/1.1 103 Early Hints\r\nLink: x\r\n\r\n" + whole(b"{}"),
    "text": OK + b"Content-Type: text/plain\r\nContent-Length: 2\r\n\r\n{}",
    "no type": OK + b"Content-Length: 2\r\n\r\n{}",
    "events at once": OK + b"Content-Type: text/event-stream\r\nContent-Length: 9\r\n\r\ndata: {}\n",
    "chunked": OK + JSON + b"Transfer-Encoding: chunked\r\n\r\n2\r\n{}\r\n0\r\n\r\n",
    "chunks": OK + JSON + b"Transfer-Encoding: chunked\r\n\r\n1;a=b\r\n{\r\n0001\r\n}\r\n000;x\r\nT: x\r\n\r\n",
    "asks back": whole(b'{"result":{"resultType":"input_required"}}'),
    "makes a task": whole(created("t-1")),
    "escapes": whole(b'{"result":{"resultType":"\\u0074ask","taskId":"t-2"}}'),
    "unreadable": whole(b'{"result":{"resultType":"task","taskId":"t-2","taskId":"t-3"}}'),
    "oversized": whole(b'{"result":{"resultType":"task","taskId":"' + b"x" * 70_000 + b'"}}'),
    "unknown": whole(UNKNOWN),
}


@pytest.mark.parametrize("cut", [None, 20, -1])
@pytest.mark.parametrize("case", ANSWERS)
async def test_answers(case: str, cut: int | None) -> None:
    """Whole, and in two pieces, where the requests before and behind it take the short walk."""

    async def story(world: World) -> None:
        for _ in range(2):
            c = await world.client()
            for _ in range(3):
                await world.ask(c, *WARM, call(b"special"), *WARM)

    async def script(side: BackendSide) -> None:
        while True:
            if (await side.request()).get("Mcp-Name") != "special":
                side.answer()
            elif cut is None:
                side.send(ANSWERS[case])
            else:
                side.send(ANSWERS[case][:cut])
                await asyncio.sleep(0.02)
                side.send(ANSWERS[case][cut:])

    assert (await told_alike(story, script))["short"] >= 2
