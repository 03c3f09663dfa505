"""The load generator's clients: kept connections, streams, and newcomers with a connection for each request."""

import asyncio
import ssl
import time
from collections.abc import Iterator
from functools import partial
from typing import Protocol, cast

from bench.framing import END_OF_HEAD, FramingError, Message, MessageReader
from bench.slices import SliceError
from bench.workload import END_OF_STREAM, EVENTS, SENT_AT

OK = b"HTTP/1.1 200 "


class Burst:
    """What all clients work on together until ``until`` (perf_counter) or until the requests run out."""

    def __init__(self, requests: Iterator[bytes], answer_length: int, clients: int, until: float) -> None:
        self._requests = requests
        self._answer_length = answer_length
        self._busy = clients
        self._until = until
        self.latencies: list[float] = []
        self.last_body = b""
        self.finished: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    def next_request(self, now: float) -> bytes | None:
        return next(self._requests, None) if now < self._until else None

    def answered(self, message: Message, latency: float) -> None:
        if not message.head.startswith(OK):
            status_line = message.head.split(b"\r\n", 1)[0].decode("latin-1")
            raise SliceError(f"answered {status_line!r}: {message.body[:200].decode('latin-1')}")
        if len(message.body) != self._answer_length:
            raise SliceError(f"answered with a body of {len(message.body)} bytes instead of {self._answer_length}")
        self.last_body = message.body
        self.latencies.append(latency)

    def heard(self, latency: float) -> None:
        """One event of a stream, so many seconds after it was sent."""
        self.latencies.append(latency)

    def client_done(self) -> None:
        self._busy -= 1
        if not self._busy and not self.finished.done():
            self.finished.set_result(None)

    def fail(self, reason: str) -> None:
        if not self.finished.done():
            self.finished.set_exception(SliceError(reason))


class Worker(Protocol):
    """Works on a burst until that has no more requests, and then says that it is done."""

    def work_on(self, burst: Burst) -> None: ...

    def leave(self) -> None:
        """The slice is over, however it ended."""


class Client(asyncio.Protocol):
    """One connection; at work on a burst, or waiting for the next one."""

    def __init__(self) -> None:
        self._reader = MessageReader()
        self._burst: Burst | None = None
        self._sent_at = 0.0

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        # uvloop's transports have the interface but not the base class, so there is nothing to check at run time.
        self._transport = cast(asyncio.Transport, transport)

    def work_on(self, burst: Burst) -> None:
        self._burst = burst
        if self._transport.is_closing():
            burst.fail("the connection was closed between two requests")
        else:
            self._send_next(burst, time.perf_counter())

    def leave(self) -> None:
        self._burst = None
        self._transport.abort()

    def data_received(self, data: bytes) -> None:
        burst = self._burst
        if burst is None:
            self._transport.abort()  # nobody asked: the next burst finds the connection closed and fails
            return
        now = time.perf_counter()
        try:
            messages = self._reader.feed(data)
            if not messages:
                return
            if len(messages) > 1:
                raise SliceError("two answers to one request")
            burst.answered(messages[0], now - self._sent_at)
        except (FramingError, SliceError) as error:
            burst.fail(str(error))
            return
        self._send_next(burst, now)

    def connection_lost(self, exc: Exception | None) -> None:
        if self._burst is not None:
            self._burst.fail(f"the connection broke before the answer was in ({exc or 'closed by the peer'})")

    def _send_next(self, burst: Burst, now: float) -> None:
        request = burst.next_request(now)
        if request is None:
            self._burst = None
            burst.client_done()
        else:
            self._sent_at = now
            self._transport.write(request)


class StreamClient(Client):
    """The same where every answer is a stream of events: it looks for these, whatever cuts the stream into pieces."""

    def __init__(self) -> None:
        super().__init__()
        self._events = -1  # of this answer; below 0 before its head is in
        self._received = b""

    def data_received(self, data: bytes) -> None:
        burst = self._burst
        if burst is None:
            self._transport.abort()
            return
        now = time.perf_counter()
        data = self._received + data
        if self._events < 0:
            head, found, data_behind = data.partition(END_OF_HEAD)
            if not found:
                self._received = data
                return
            if not head.startswith(OK):
                burst.fail(f"answered {head[:60]!r}")
                return
            data, self._events = data_behind, 0
        at = 0
        for match in SENT_AT.finditer(data):
            self._events += 1
            burst.heard(now - int(match[1]) / 1e6)
            at = match.end()
        self._received = data[at:]
        if self._received.endswith(END_OF_STREAM):
            if self._events != EVENTS:
                burst.fail(f"a stream of {self._events} events instead of {EVENTS}")
                return
            self._events, self._received = -1, b""
            self._send_next(burst, now)


class OneAnswer(asyncio.Protocol):
    """A connection for one request: ``message`` is its answer."""

    def __init__(self, request: bytes) -> None:
        self._request = request
        self._reader = MessageReader()
        self.message: asyncio.Future[Message] = asyncio.get_running_loop().create_future()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        cast(asyncio.Transport, transport).write(self._request)

    def data_received(self, data: bytes) -> None:
        for message in self._reader.feed(data):
            self.message.set_result(message)

    def connection_lost(self, exc: Exception | None) -> None:
        if not self.message.done():
            self.message.set_exception(SliceError("the connection broke before the answer was in"))


class Newcomer:
    """A client that comes with a new connection for every request, and leaves with the answer."""

    def __init__(self, host: str, port: int, context: ssl.SSLContext | None) -> None:
        self._connect = partial(
            asyncio.get_running_loop().create_connection, host=host, port=port, ssl=context, server_hostname=None
        )
        self._coming: asyncio.Task[None] | None = None

    def work_on(self, burst: Burst) -> None:
        self._coming = asyncio.get_running_loop().create_task(self._come_and_go(burst))

    async def _come_and_go(self, burst: Burst) -> None:
        try:
            while (request := burst.next_request(begun := time.perf_counter())) is not None:
                transport, connection = await self._connect(partial(OneAnswer, request))
                try:
                    message = await connection.message
                finally:
                    transport.close()
                burst.answered(message, time.perf_counter() - begun)
        except (FramingError, SliceError, OSError) as error:
            burst.fail(str(error))
        else:
            burst.client_done()

    def leave(self) -> None:
        if self._coming is not None:
            self._coming.cancel()
