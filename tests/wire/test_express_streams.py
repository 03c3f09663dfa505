"""Event streams and their chunks come through the same, whether they pass as they came or are read."""

import asyncio
from collections.abc import Callable

import pytest

from tests.wire.harness import BackendSide, Client, call, chunks, config_text, read_head
from tests.wire.task_backend import created
from tests.wire.test_express import WARM
from tests.wire.walks import World, told_alike

SSE = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n"
EVENT = b'data: {"method":"notifications/progress","params":{"progress":1}}'
RESULT = b'data: {"id":1,"result":{}}'


def one_backend(*ports: int) -> str:
    """A backend that is never ejected."""
    return config_text(*ports, pool="    outlier: off\n    timeouts: {owner_wait: 200ms}\n")


def chunk(data: bytes, spelt: bytes = b"%x") -> bytes:
    return (spelt % len(data)) + b"\r\n" + data + b"\r\n"


PROGRESS = EVENT + b"\r\n\r\n"
STREAMS: dict[str, list[bytes]] = {
    "event by event": [*[chunk(PROGRESS)] * 5, chunk(RESULT + b"\r\n\r\n"), b"0\r\n\r\n"],
    "lines of LF": [*[chunk(EVENT + b"\n\n")] * 5, chunk(RESULT + b"\n\n") + b"0\r\n\r\n"],
    "spelt otherwise": [chunk(PROGRESS, b"%X"), chunk(PROGRESS, b"00%x"), chunk(PROGRESS, b"%x;a=b"), b"0\r\n\r\n"],
    "several in one": [chunk(PROGRESS), chunk(PROGRESS * 3), chunk(PROGRESS) * 3, b"0\r\n\r\n"],
    "half a chunk": [chunk(PROGRESS), chunk(PROGRESS)[:9], chunk(PROGRESS)[9:], chunk(PROGRESS), b"0\r\n\r\n"],
    "half an event": [chunk(PROGRESS), chunk(PROGRESS[:9]), chunk(PROGRESS[9:]), chunk(PROGRESS), b"0\r\n\r\n"],
    "a chunk and a half": [chunk(PROGRESS), chunk(PROGRESS) + b"5", b"\r\ndata:\r\n", chunk(b" 1\n\n"), b"0\r\n\r\n"],
    "trailers": [chunk(PROGRESS), chunk(PROGRESS), b"0\r\nT: x\r\n", b"\r\n"],
    "empty lines": [chunk(b"\n\n"), chunk(b"\n"), chunk(b"\r\n\r\n"), chunk(b"\n\n"), chunk(PROGRESS), b"0\r\n\r\n"],
    "a task": [chunk(PROGRESS), chunk(PROGRESS), chunk(b"data: " + created("t-1") + b"\n\n"), b"0\r\n\r\n"],
    "it asks": [chunk(PROGRESS), chunk(b'data: {"result":{"resultType":"input_required"}}\n\n'), b"0\r\n\r\n"],
    "a mark first": [chunk(b"\xef\xbb\xbf" + PROGRESS), chunk(PROGRESS), b"0\r\n\r\n"],
    "large": [chunk(PROGRESS), chunk(b"data: " + b"x" * 70_000 + b"\n\n"), chunk(PROGRESS), b"0\r\n\r\n"],
    "cut": [chunk(PROGRESS), chunk(PROGRESS), b"5\r\nda"],
    "cut between chunks": [chunk(PROGRESS), chunk(PROGRESS)],
    "nonsense": [chunk(PROGRESS), chunk(PROGRESS), b"zz\r\n"],
    "a wrong end": [chunk(PROGRESS), chunk(PROGRESS)[:-2] + b"xx", chunk(PROGRESS), b"0\r\n\r\n"],
}


async def body_of(c: Client) -> tuple[bytes, str]:
    """What comes of a chunked body, and how it ended."""
    body = b""
    try:
        async for data in chunks(c.reader):
            body += data
    except (asyncio.IncompleteReadError, ConnectionError) as error:
        return body, type(error).__name__
    return body, "ended"


@pytest.mark.parametrize("http10", [False, True])
@pytest.mark.parametrize("case", STREAMS)
async def test_event_streams(case: str, http10: bool) -> None:
    async def story(world: World) -> None:
        for _ in range(2):
            c = await world.client()
            await world.ask(c, *WARM)
            request = call(b"stream")
            c.send(request.replace(b"HTTP/1.1", b"HTTP/1.0") if http10 else request)
            head = await read_head(c.reader)
            world.seen.append(head)
            if http10:
                try:
                    world.seen.append(await c.rest())
                except ConnectionError:
                    world.seen.append("reset")
                continue
            world.seen.append(await body_of(c))
            if not (case.startswith("cut") or case in ("nonsense", "a wrong end")):
                await world.ask(c, *WARM)

    async def script(side: BackendSide) -> None:
        while True:
            if (await side.request()).get("Mcp-Name") != "stream":
                side.answer()
                continue
            for piece in (SSE, *STREAMS[case]):
                side.send(piece)
                await asyncio.sleep(0.01)
            if STREAMS[case][-1] not in (b"0\r\n\r\n", b"\r\n") and not STREAMS[case][-1].endswith(b"0\r\n\r\n"):
                return

    walks = await told_alike(story, script, text=one_backend)
    assert walks["short"]
    assert walks["chunk"]


async def test_comments_between_events_that_pass() -> None:
    """None stands within an event, and none makes an event another; the line feed behind one is not doubled."""
    commented = asyncio.Event()

    async def story(world: World) -> None:
        c = await world.client()
        await world.ask(c, *WARM)
        commented.clear()
        c.send(call(b"stream"))
        await read_head(c.reader)
        body = b""
        async for data in chunks(c.reader):
            body += data
            if b": keep-alive\n" in data:
                commented.set()
        world.seen.append(body.replace(b": keep-alive\n", b""))

    async def script(side: BackendSide) -> None:
        while True:
            if (await side.request()).get("Mcp-Name") != "stream":
                side.answer()
                continue
            pieces = [chunk(EVENT + b"\n\n"), chunk(EVENT + b"\n\n"), chunk(EVENT + b"\r\r")]
            for piece in (SSE, *pieces):
                side.send(piece)
                await asyncio.sleep(0.02)
            await commented.wait()
            for piece in (chunk(b"\n" + EVENT + b"\n\n"), *pieces, b"0\r\n\r\n"):
                side.send(piece)
                await asyncio.sleep(0.02)

    text: Callable[..., str] = lambda *ports: config_text(*ports, pool="    comment_every: 500ms\n")  # noqa: E731
    assert (await told_alike(story, script, text=text))["chunk"]
