"""The whole data path without sockets: bytes of a client go in, and what would be written to a backend is seen.

Client and backend have transports that only note what is written. A backend's connection is always kept ready, so that
nothing is dialled and no task is needed: what comes in is answered in the same call. The loop never runs: what it is
asked to do soon is done by `StillLoop.turn`, what it is asked to do later never comes.
"""

import asyncio
import socket
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Any, cast

from proxy.config import parse
from proxy.traffic import Traffic
from proxy.wire.backend import BackendConnection
from proxy.wire.client import ClientConnection
from tests.corpus.readers import Read, RequestReader

CONFIG = """
listen: 127.0.0.1:0
admin: 127.0.0.1:0
log: {access: false}
pools:
  agents: {backends: [{id: a, url: 'http://127.0.0.1:1/mcp'}], ring_key: 'header:X-Tenant', balance: ring}
routes:
  - {name: gpu, match: {method: tools/call, name: 'render_*', param: {Region: 'eu-*'}}, pool: agents}
  - {name: rest, match: {path: '/*'}, pool: agents}
"""
ANSWER = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"


class Wire(asyncio.Transport):
    """A transport that notes what is written."""

    def __init__(self) -> None:
        super().__init__()
        self.written = bytearray()
        self._read = 0  # bytes of it
        self._reader = RequestReader()
        self.closing = False
        self.eof = False
        self.reset = False
        """True if the close is a reset, which nobody takes for a clean end."""

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        return self if name == "socket" else default

    def setsockopt(self, level: int, option: int, value: object) -> None:
        self.reset = self.reset or (level, option) == (socket.SOL_SOCKET, socket.SO_LINGER)

    def new_requests(self) -> list[Read]:
        """Those that became whole since this was asked last, as h11 reads them."""
        before = len(self._reader.messages)
        self._reader.feed(bytes(self.written[self._read :]))
        self._read = len(self.written)
        return self._reader.messages[before:]

    def write(self, data: bytes | bytearray | memoryview) -> None:
        if not self.closing:
            self.written += data

    def is_closing(self) -> bool:
        return self.closing

    def close(self) -> None:
        self.closing = True

    def abort(self) -> None:
        self.closing = True

    def can_write_eof(self) -> bool:
        return True

    def write_eof(self) -> None:
        self.eof = True

    def get_write_buffer_size(self) -> int:
        return 0

    def pause_reading(self) -> None:
        pass

    def resume_reading(self) -> None:
        pass


class StillLoop:
    """A loop that moves only when it is told to, and knows no time. It has what the data path asks a loop for."""

    def __init__(self) -> None:
        self._soon: list[asyncio.Handle] = []
        self.own = cast(asyncio.AbstractEventLoop, self)

    def get_debug(self) -> bool:
        return False

    def call_soon(self, callback: Callable[..., object], *args: Any, context: Any = None) -> asyncio.Handle:
        handle = asyncio.Handle(callback, args, self.own)
        self._soon.append(handle)
        return handle

    def call_later(
        self, delay: float, callback: Callable[..., object], *args: Any, context: Any = None
    ) -> asyncio.TimerHandle:
        return asyncio.TimerHandle(delay, callback, args, self.own)

    def _timer_handle_cancelled(self, handle: asyncio.TimerHandle) -> None:
        pass

    def turn(self) -> bool:
        """Does what was asked for; False: nothing was."""
        soon, self._soon = self._soon, []
        for handle in soon:
            if not handle.cancelled():
                handle._callback(*handle._args)  # type: ignore[attr-defined]  # a failure must come up here
        return bool(soon)


class Inside:
    """One proxy, and the connections of one client and of the backends behind it. To be used while it is `running`."""

    def __init__(self, config: str = CONFIG) -> None:
        self._loop = StillLoop()
        self.traffic = Traffic(parse(config, "inside.yaml", {}))
        lane = self.traffic.lanes["agents"]
        self._member = lane.pool.everyone[0]
        self._home = lane.connections[self._member]
        self.client = Wire()
        self.backends: list[tuple[BackendConnection, Wire]] = []
        self._connection = ClientConnection(self.traffic)

    @contextmanager
    def running(self) -> Iterator[None]:
        """Makes its loop the one that runs, in place of one that may be running."""
        before = asyncio.events._get_running_loop()
        asyncio.events._set_running_loop(self._loop.own)
        try:
            yield
        finally:
            asyncio.events._set_running_loop(before)

    def connect(self) -> None:
        """A new client; what the one before left at backends is forgotten."""
        self.client, self.backends = Wire(), []
        self._connection = ClientConnection(self.traffic)
        self._connection.connection_made(self.client)

    def _make_ready(self) -> None:
        lent = self._home.lease()
        if lent is None:
            lent, wire = BackendConnection(self._home), Wire()
            lent.connection_made(wire)
            self.backends.append((lent, wire))
        self._home.keep(lent)

    def receive(self, pieces: Iterable[bytes], answer: bytes = ANSWER, *, answers: bool = True) -> None:
        """The client sends these pieces; backends send the answer to each request, without its last two bytes to a
        HEAD, or nothing."""
        for piece in pieces:
            self._make_ready()
            if not self.client.closing:
                self._connection.data_received(piece)
            while (answers and self._answer_one(answer)) or self._loop.turn():
                self._make_ready()

    def _answer_one(self, answer: bytes) -> bool:
        for connection, wire in self.backends:
            requests = [] if wire.closing else wire.new_requests()
            if requests:
                (request,) = requests
                connection.data_received(answer[:-2] if request.start[0] == b"HEAD" else answer)
                return True
        return False

    def backend_sends(self, pieces: Iterable[bytes]) -> None:
        """The backend that has a request sends this, and closes."""
        connection, wire = next((c, w) for c, w in self.backends if w.written)
        for piece in pieces:
            if not wire.closing:
                connection.data_received(piece)
            self._loop.turn()
        wire.closing = True
        connection.connection_lost(None)

    def leave(self) -> None:
        """The client hangs up, and every backend's connection ends."""
        self.client.closing = True
        self._connection.connection_lost(None)
        while (kept := self._home.lease()) is not None:
            kept.drop()
        for connection, _ in self.backends:
            connection.connection_lost(None)

    def sent(self) -> list[bytes]:
        """What was sent over each connection to a backend."""
        return [bytes(wire.written) for _, wire in self.backends if wire.written]
