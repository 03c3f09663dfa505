"""Real sockets around a running proxy: backends that play a script, clients that write bytes."""

import asyncio
import json
import re
import socket
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

from proxy.app import Proxy
from proxy.config import parse
from proxy.pins.store import PinStore

PATIENCE = 5.0  # seconds; what does not happen by then does not happen
MODERN = (b"MCP-Protocol-Version: 2026-07-28", b"Content-Type: application/json")


@dataclass
class Message:
    """A request or response as it stood on the wire."""

    head: bytes
    body: bytes

    @property
    def first(self) -> bytes:
        return self.head.split(b"\r\n", 1)[0]

    @property
    def status(self) -> int:
        return int(self.head.split(b" ", 2)[1])

    def all(self, name: str) -> list[str]:
        """Every value of a field, in order."""
        pairs = [line.split(b":", 1) for line in self.head.split(b"\r\n")[1:] if line]
        return [value.strip().decode("latin-1") for key, value in pairs if key.lower() == name.lower().encode()]

    def get(self, name: str) -> str | None:
        values = self.all(name)
        return values[0] if values else None

    @property
    def error(self) -> dict[str, Any]:
        found = json.loads(self.body)["error"]
        assert isinstance(found, dict)
        return found


async def read_head(reader: asyncio.StreamReader) -> bytes:
    async with asyncio.timeout(PATIENCE):
        return await reader.readuntil(b"\r\n\r\n")


async def read_body(reader: asyncio.StreamReader, head: bytes, *, until_close: bool = True) -> bytes:
    async with asyncio.timeout(PATIENCE):
        lower = head.lower()
        length = re.search(rb"\r\ncontent-length: *(\d+)", lower)
        if length:
            return await reader.readexactly(int(length[1]))
        if b"\r\ntransfer-encoding:" in lower:
            return b"".join([chunk async for chunk in chunks(reader)])
        return await reader.read() if until_close else b""


async def chunks(reader: asyncio.StreamReader) -> AsyncIterator[bytes]:
    """The chunks of a chunked body, each as it comes. Raises asyncio.IncompleteReadError when it is cut."""
    while True:
        async with asyncio.timeout(PATIENCE):
            size = int(await reader.readuntil(b"\r\n"), 16)
            data = await reader.readexactly(size + 2)
        if not size:
            return
        yield data[:-2]


class ScriptedBackend:
    """Counts connections and requests; `script(connection)` is played on each connection until it returns."""

    def __init__(
        self, script: "Callable[[BackendSide], Awaitable[None]]", host: str = "127.0.0.1", port: int = 0
    ) -> None:
        self.requests: list[Message] = []
        self.connections = 0
        self.closed_by_peer = 0
        self.open: set[BackendSide] = set()
        self.playing: set[asyncio.Task[None]] = set()
        self.port = port
        self._host = host
        self._script = script
        self._server: asyncio.Server | None = None

    async def listen(self) -> None:
        self._server = await asyncio.start_server(self.serve, self._host, self.port, limit=2**22)
        self.port = self._server.sockets[0].getsockname()[1]

    async def listen_again(self) -> None:
        """Listens on the same port as before."""
        await self.listen()

    async def stop_listening(self) -> None:
        """From now on the port refuses connections; open ones live on."""
        if self._server is not None:
            self._server.close()

    async def end(self) -> None:
        """Stops listening, and plays on no connection any more."""
        await self.stop_listening()
        for playing in self.playing:
            playing.cancel()
        await until(lambda: not self.playing)

    def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        playing = asyncio.get_running_loop().create_task(self._serve(reader, writer))
        self.playing.add(playing)
        playing.add_done_callback(self.playing.discard)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        side = BackendSide(self, reader, writer)
        self.open.add(side)
        try:
            await self._script(side)
        except (ConnectionError, asyncio.IncompleteReadError):
            self.closed_by_peer += 1
        finally:
            self.open.discard(side)
            writer.close()


@dataclass(eq=False)
class BackendSide:
    """One connection, as the script sees it."""

    backend: ScriptedBackend
    reader: asyncio.StreamReader
    writer: asyncio.StreamWriter
    last: Message = field(default_factory=lambda: Message(b"", b""))

    async def request(self) -> Message:
        """Waits without limit for the next request, and reads it."""
        head = await self.reader.readuntil(b"\r\n\r\n")
        self.last = Message(head, await read_body(self.reader, head, until_close=False))
        self.backend.requests.append(self.last)
        return self.last

    def send(self, data: bytes) -> None:
        self.writer.write(data)

    def answer(self, body: bytes = b'{"jsonrpc":"2.0","id":1,"result":{}}', kind: bytes = b"application/json") -> None:
        self.send(b"HTTP/1.1 200 OK\r\nContent-Type: %b\r\nContent-Length: %d\r\n\r\n%b" % (kind, len(body), body))

    async def peer_closes(self) -> None:
        """Returns when the proxy has closed this connection."""
        async with asyncio.timeout(PATIENCE):
            await self.reader.read()


async def answer_always(side: BackendSide) -> None:
    """The plainest script: 200 with a small JSON body to everything."""
    while True:
        await side.request()
        side.answer()


def answering(text: bytes) -> Callable[[BackendSide], Awaitable[None]]:
    """A script that answers every request with these bytes."""

    async def script(side: BackendSide) -> None:
        while True:
            await side.request()
            side.send(text)

    return script


@asynccontextmanager
async def backend(
    script: Callable[[BackendSide], Awaitable[None]] = answer_always, host: str = "127.0.0.1", port: int = 0
) -> AsyncIterator[ScriptedBackend]:
    scripted = ScriptedBackend(script, host, port)
    await scripted.listen()
    try:
        yield scripted
    finally:
        await scripted.end()


def config_text(*ports: int, pool: str = "", routes: str = "", top: str = "", listen: str = "127.0.0.1:0") -> str:
    """A configuration with one pool `agents` of backends on these ports, with ids a, b, c ..."""
    backends = "\n".join(
        f"      - {{id: {'abcdefgh'[i]}, url: 'http://127.0.0.1:{port}/mcp'}}" for i, port in enumerate(ports)
    )
    return f"""
listen: {listen}
admin: 127.0.0.1:0
log: {{access: false}}
drain: 0s
{top}
pools:
  agents:
    backends:
{backends}
{pool}
routes:
{routes or "  - {name: rest, pool: agents}"}
"""


@asynccontextmanager
async def running(text: str, *, pins: PinStore | None = None) -> AsyncIterator[Proxy]:
    """A proxy with this configuration, in this loop."""
    proxy = Proxy(parse(text, "test.yaml", {}), pins=pins)
    await proxy.start()
    try:
        yield proxy
    finally:
        await proxy.drain()


def closed_port() -> int:
    """A port that nobody listens on."""
    with socket.socket() as sock:
        sock.bind(("127.0.0.1", 0))
        return int(sock.getsockname()[1])


@dataclass
class Client:
    """A client that writes bytes and reads messages."""

    reader: asyncio.StreamReader
    writer: asyncio.StreamWriter

    def send(self, data: bytes) -> None:
        self.writer.write(data)

    async def response(self, *, to_head: bool = False) -> Message:
        head = await read_head(self.reader)
        status = int(head.split(b" ", 2)[1])
        bodyless = to_head or status < 200 or status in (204, 304)
        return Message(head, b"" if bodyless else await read_body(self.reader, head))

    async def ask(self, data: bytes) -> Message:
        self.send(data)
        return await self.response()

    async def rest(self) -> bytes:
        """Everything up to the end of the connection."""
        async with asyncio.timeout(PATIENCE):
            return await self.reader.read()

    def close(self) -> None:
        self.writer.close()


@asynccontextmanager
async def client(port: int) -> AsyncIterator[Client]:
    reader, writer = await asyncio.open_connection("127.0.0.1", port, limit=2**22)
    try:
        yield Client(reader, writer)
    finally:
        writer.close()


def post(*lines: bytes, body: bytes = b"{}", target: bytes = b"/mcp") -> bytes:
    """A POST with Host and Content-Length, and these further fields."""
    head = [b"POST %b HTTP/1.1" % target, b"Host: mcp.test", *lines, b"Content-Length: %d" % len(body), b"", b""]
    return b"\r\n".join(head) + body


def call(tool: bytes = b"whoami", *lines: bytes, body: bytes = b"{}") -> bytes:
    """A modern tools/call."""
    return post(*MODERN, b"Mcp-Method: tools/call", b"Mcp-Name: " + tool, *lines, body=body)


def task(method: bytes, task_id: bytes, *lines: bytes) -> bytes:
    """A modern tasks/* request."""
    return post(*MODERN, b"Mcp-Method: tasks/" + method, b"Mcp-Name: " + task_id, *lines)


async def until(condition: Callable[[], object]) -> None:
    """Waits for a condition that other tasks bring about."""
    deadline = time.monotonic() + PATIENCE
    while not condition():
        assert time.monotonic() < deadline, "it did not happen in time"
        await asyncio.sleep(0.005)


async def metric(proxy: Proxy, name: str, **labels: str) -> float:
    """The sum of a metric's samples with at least these labels."""
    text, _ = await proxy.metrics.render()
    total = 0.0
    for line in text.decode().splitlines():
        found = re.fullmatch(rf"mcp_proxy_{name}(?:\{{(.*)\}})? (\S+)", line)
        if found:
            has = dict(re.findall(r'(\w+)="([^"]*)"', found[1] or ""))
            if labels.items() <= has.items():
                total += float(found[2])
    return total
