"""The load generator: a closed loop of clients, each sending its next request when the last one is answered.

``python -m bench.load`` reads one order a line and writes one result a line, until its input ends. It reads the
target's CPU counters itself, so that nothing but the slice lies between the two readings.

A slice: connect, let every client work for a moment (connections to the backends are made now), stop; read the
counters; work for the slice's time, stop when the last answer is in; read the counters.
"""

import asyncio
import itertools
import statistics
import sys
import time
from collections.abc import Iterator
from typing import cast

import uvloop

from bench import cpu
from bench.framing import FramingError, Message, MessageReader
from bench.slices import Measurement, Order, SliceError, result_line
from bench.workload import Batch, created_task_id, task_creations, task_polls, tool_calls

RAMP_SECONDS = 0.2
# A target that has not answered everything so long after the slice's time is stuck.
GRACE_SECONDS = 5.0
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

    def client_done(self) -> None:
        self._busy -= 1
        if not self._busy and not self.finished.done():
            self.finished.set_result(None)

    def fail(self, reason: str) -> None:
        if not self.finished.done():
            self.finished.set_exception(SliceError(reason))


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


async def work(clients: list[Client], batch: Batch, seconds: float) -> list[float]:
    """Repeats the batch for so many seconds; the latency of every request, in seconds. Raises SliceError."""
    until = time.perf_counter() + seconds
    burst = Burst(itertools.cycle(batch.requests), batch.answer_length, len(clients), until)
    for client in clients:
        client.work_on(burst)
    await burst.finished
    return burst.latencies


async def create_tasks(client: Client, authority: str) -> list[str]:
    """Creates the tasks one after another; their ids. Raises SliceError."""
    batch = task_creations(authority)
    task_ids = []
    for request in batch.requests:
        burst = Burst(iter((request,)), batch.answer_length, 1, float("inf"))
        client.work_on(burst)
        await burst.finished
        try:
            task_ids.append(created_task_id(burst.last_body))
        except ValueError as error:
            raise SliceError(str(error)) from error
    return task_ids


async def measure(order: Order, clients: list[Client]) -> Measurement:
    """Runs one slice. Raises SliceError, and OSError if the target is gone or refuses."""
    if not order.pids:
        raise SliceError("no process to measure")
    loop = asyncio.get_running_loop()
    for _ in range(order.connections):
        _, client = await loop.create_connection(Client, order.host, order.port)
        clients.append(client)
    authority = f"{order.host}:{order.port}"
    if order.load == "tasks-get":
        batch = task_polls(authority, await create_tasks(clients[0], authority))
    else:
        batch = tool_calls(authority)
    await work(clients, batch, RAMP_SECONDS)

    before = cpu.settled(order.pids)
    started = time.perf_counter()
    latencies = await work(clients, batch, order.seconds)
    ended = time.perf_counter()
    after = cpu.settled(order.pids)

    percentiles = statistics.quantiles(latencies, n=100)
    return Measurement(
        requests=len(latencies),
        seconds=ended - started,
        cpu_ns=cpu.spent(before, after),
        p50_ms=percentiles[49] * 1000,
        p99_ms=percentiles[98] * 1000,
        resident_bytes=cpu.resident(order.pids),
    )


async def obey(order: Order) -> Measurement | SliceError:
    """Runs one slice; whatever goes wrong is its result."""
    clients: list[Client] = []
    try:
        async with asyncio.timeout(RAMP_SECONDS + order.seconds + GRACE_SECONDS):
            return await measure(order, clients)
    except SliceError as failure:
        return failure
    except TimeoutError:
        return SliceError(f"not all requests were answered {GRACE_SECONDS:g} s after the slice's time")
    except OSError as error:
        return SliceError(str(error))
    finally:
        for client in clients:
            client.leave()


def main() -> None:
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        for line in sys.stdin:
            print(result_line(runner.run(obey(Order.from_line(line)))), flush=True)


if __name__ == "__main__":
    main()
