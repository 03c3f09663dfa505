"""Backends that serve subscriptions, and a client that listens."""

import asyncio
import json
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any

from proxy.app import Proxy
from tests.wire.harness import (
    MODERN,
    BackendSide,
    Client,
    ScriptedBackend,
    backend,
    chunks,
    client,
    config_text,
    post,
    read_head,
    running,
)

ALL = "    listen: all"
META = {"io.modelcontextprotocol/subscriptionId": 7}
HEAD = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nX-Accel-Buffering: no\r\n"


def listen(*lines: bytes, body: bytes = b'{"id":7}') -> bytes:
    """A modern subscriptions/listen."""
    return post(*MODERN, b"Mcp-Method: subscriptions/listen", *lines, body=body)


def event(message: dict[str, Any]) -> bytes:
    return f"event: message\r\ndata: {json.dumps({'jsonrpc': '2.0', **message})}\r\n\r\n".encode()


def ack(**agreed: object) -> bytes:
    method = "notifications/subscriptions/acknowledged"
    return event({"method": method, "params": {"_meta": META, "notifications": agreed}})


def note(uri: str) -> bytes:
    return event({"method": "notifications/resources/updated", "params": {"_meta": META, "uri": uri}})


RESULT = event({"id": 7, "result": {"resultType": "complete", "_meta": META}})
ERROR = event({"id": 7, "error": {"code": -32601, "message": "Method not found"}})


class Listened:
    """A backend that answers every subscription with an event stream; `acknowledges`: at once, with its own task."""

    def __init__(self, name: str = "a", *, acknowledges: bool = True, head: bytes = HEAD) -> None:
        self.name = name
        self.acknowledges = acknowledges
        self.head = head
        self.streams: list[BackendSide] = []
        """Those that are open."""
        self.ended = 0
        """Streams that the proxy closed."""
        self.opened = 0

    async def script(self, side: BackendSide) -> None:
        while True:
            request = await side.request()
            if request.get("Mcp-Method") != "subscriptions/listen":
                side.answer()
                continue
            self.opened += 1
            side.send(self.head + b"Transfer-Encoding: chunked\r\n\r\n")
            self.streams.append(side)
            if self.acknowledges:
                self.tell(ack(taskIds=[f"t-{self.name}"]))
            try:
                rest = await side.reader.read()
                assert rest == b""
                self.ended += 1
            except ConnectionError:
                self.ended += 1
            finally:
                self.streams.remove(side)
            return

    def tell(self, data: bytes) -> None:
        """Sends to every open stream."""
        for side in self.streams:
            side.send(b"%x\r\n%b\r\n" % (len(data), data))

    def end(self) -> None:
        """Ends every open stream as it should."""
        for side in self.streams:
            side.send(b"0\r\n\r\n")
            side.writer.close()

    def kill(self) -> None:
        """Breaks every open stream off."""
        for side in self.streams:
            side.writer.transport.abort()


class Stream:
    """What a client sees of one subscription."""

    def __init__(self, head: bytes, reader: asyncio.StreamReader) -> None:
        self.head = head
        self._chunks = chunks(reader)
        self._text = b""

    async def message(self) -> dict[str, Any]:
        """The next message. Raises asyncio.IncompleteReadError when the stream is cut, EOFError at its end."""
        while True:
            while b"\n\n" not in self._text.replace(b"\r\n", b"\n"):
                try:
                    self._text += await anext(self._chunks)
                except StopAsyncIteration:
                    assert not self._text, "half an event"
                    raise EOFError from None
            one, _, self._text = self._text.replace(b"\r\n", b"\n").partition(b"\n\n")
            data = [line[5:] for line in one.split(b"\n") if line.startswith(b"data:")]
            if data:
                found = json.loads(b"\n".join(data))
                assert isinstance(found, dict)
                return found

    async def acknowledged(self) -> list[str]:
        """The tasks of the acknowledgement, which has to come next."""
        message = await self.message()
        assert message["method"] == "notifications/subscriptions/acknowledged"
        tasks = message["params"]["notifications"]["taskIds"]
        assert isinstance(tasks, list)
        return tasks

    async def uri(self) -> str:
        """What the notification names that has to come next."""
        return str((await self.message())["params"]["uri"])


async def opened(c: Client, request: bytes = b"") -> Stream:
    """Sends a subscription and reads the head of its stream."""
    c.send(request or listen())
    head = await read_head(c.reader)
    assert head.startswith(b"HTTP/1.1 200 OK\r\n"), head
    return Stream(head, c.reader)


Fleet = tuple[Proxy, list[ScriptedBackend]]


@asynccontextmanager
async def fleet(*listened: Listened, pool: str = ALL) -> AsyncIterator[Fleet]:
    """A proxy in front of these backends."""
    async with asyncio.timeout(60), AsyncExitStack() as stack:
        backends = [await stack.enter_async_context(backend(one.script)) for one in listened]
        text = config_text(*(b.port for b in backends), pool=pool)
        yield await stack.enter_async_context(running(text)), backends


@asynccontextmanager
async def listening(proxy: Proxy, listened: Sequence[Listened]) -> AsyncIterator[tuple[Client, Stream]]:
    """A client whose subscription all of these have acknowledged."""
    async with client(proxy.port) as c:
        stream = await opened(c)
        assert await stream.acknowledged() == [f"t-{one.name}" for one in listened]
        yield c, stream


async def left_over(listened: Listened) -> int:
    """How many bytes the proxy does not take from a backend's only stream: seen when nothing has moved for a while."""
    seen = [-1]
    while len(seen) < 4 or len(set(seen[-4:])) > 1:
        await asyncio.sleep(0.1)
        seen.append(listened.streams[0].writer.transport.get_write_buffer_size())
    return seen[-1]


class Watch:
    """Seconds since it was made."""

    def __init__(self) -> None:
        self._began = time.monotonic()

    @property
    def seconds(self) -> float:
        return time.monotonic() - self._began
