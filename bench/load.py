"""The load generator: a closed loop of clients, each sending its next request when the last one is answered.

``python -m bench.load`` reads one order a line and writes one result a line, until its input ends. It reads the
target's CPU counters itself, so that nothing but the slice lies between the two readings.

A slice: connect, let every client work for a moment (connections to the backends are made now), stop; read the
counters; work for the slice's time, stop when the last answer is in; read the counters.
"""

import asyncio
import itertools
import ssl
import statistics
import sys
import time
from collections.abc import Sequence

import uvloop

from bench import cpu
from bench.clients import Burst, Client, Newcomer, StreamClient, Worker
from bench.slices import Measurement, Order, SliceError, result_line
from bench.workload import (
    Batch,
    body_calls,
    created_task_id,
    event_calls,
    task_creations,
    task_polls,
    tool_calls,
)

# A target that has not answered everything so long after the slice's time is stuck.
GRACE_SECONDS = 5.0


async def work(clients: Sequence[Worker], batch: Batch, seconds: float) -> list[float]:
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


async def measure(order: Order, clients: list[Worker]) -> Measurement:
    """Runs one slice. Raises SliceError, and OSError if the target is gone or refuses."""
    if not order.pids:
        raise SliceError("no process to measure")
    context = ssl.create_default_context(cafile=order.ca) if order.ca else None
    authority = f"{order.host}:{order.port}"
    match order.load:
        case "tasks-get":
            first = await connected(order, context, Client)
            clients.append(first)
            batch = task_polls(authority, await create_tasks(first, authority))
        case "create-tasks":
            batch = task_creations(authority)
        case "bodies":
            batch = body_calls(authority)
        case "events":
            batch = event_calls(authority)
        case _:
            batch = tool_calls(authority)
    while len(clients) < order.connections:
        if order.load == "connections":
            clients.append(Newcomer(order.host, order.port, context))
        else:
            clients.append(await connected(order, context, StreamClient if order.load == "events" else Client))
    await work(clients, batch, order.ramp)

    before = cpu.settled(order.pids)
    started = time.perf_counter()
    latencies = await work(clients, batch, order.seconds)
    ended = time.perf_counter()
    after = cpu.settled(order.pids)

    if len(latencies) < 2:
        raise SliceError(f"answered {len(latencies)} requests in {order.seconds:g} s")
    percentiles = statistics.quantiles(latencies, n=100)
    return Measurement(
        requests=len(latencies),
        seconds=ended - started,
        cpu_ns=cpu.spent(before, after),
        p50_ms=percentiles[49] * 1000,
        p99_ms=percentiles[98] * 1000,
        resident_bytes=cpu.resident(order.pids),
    )


async def connected(order: Order, context: ssl.SSLContext | None, kind: type[Client]) -> Client:
    """A client of this kind with its connection. Raises OSError."""
    _, client = await asyncio.get_running_loop().create_connection(kind, order.host, order.port, ssl=context)
    return client


async def obey(order: Order) -> Measurement | SliceError:
    """Runs one slice; whatever goes wrong is its result."""
    clients: list[Worker] = []
    try:
        async with asyncio.timeout(order.ramp + order.seconds + GRACE_SECONDS):
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
