"""The backends, all in one process: raw asyncio protocols that answer every request at once, or event by event.

``python -m bench.upstream --count 4 --first-port 0`` prints the ports as a JSON list, and serves until its input ends.
"""

import argparse
import asyncio
import json
import resource
import sys
import time
from typing import cast

import uvloop

from bench.framing import FramingError, MessageReader
from bench.workload import EVENT_SECONDS, EVENTS, STREAM_HEAD, answer, asks_for_events, event

REFUSAL = b"HTTP/1.1 501 Not Implemented\r\ncontent-length: 0\r\nconnection: close\r\n\r\n"


class BackendConnection(asyncio.Protocol):
    """One connection from a proxy."""

    def __init__(self) -> None:
        self._reader = MessageReader()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        # uvloop's transports have the interface but not the base class, so there is nothing to check at run time.
        self._transport = cast(asyncio.Transport, transport)

    def data_received(self, data: bytes) -> None:
        try:
            requests = self._reader.feed(data)
        except FramingError:
            self._transport.write(REFUSAL)
            self._transport.close()
            return
        for request in requests:
            if asks_for_events(request.head):
                self._transport.write(STREAM_HEAD)
                self._later(1)
            else:
                self._transport.write(answer(request.head))

    def _later(self, number: int) -> None:
        asyncio.get_running_loop().call_later(EVENT_SECONDS, self._send_event, number)

    def _send_event(self, number: int) -> None:
        if self._transport.is_closing():
            return
        self._transport.write(event(number, time.monotonic()))
        if number < EVENTS:
            self._later(number + 1)


async def serve(count: int, first_port: int) -> None:
    """Serves ``count`` backends on ports in a row, on free ones if ``first_port`` is 0, until standard input ends."""
    loop = asyncio.get_running_loop()
    ports = [first_port + number if first_port else 0 for number in range(count)]
    servers = [await loop.create_server(BackendConnection, "127.0.0.1", port, backlog=1024) for port in ports]
    print(json.dumps([server.sockets[0].getsockname()[1] for server in servers]), flush=True)
    await loop.run_in_executor(None, sys.stdin.read)
    for server in servers:
        server.close()


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m bench.upstream", description=__doc__)
    parser.add_argument("--count", type=int, default=4)
    parser.add_argument("--first-port", type=int, default=0)
    arguments = parser.parse_args()
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
    uvloop.run(serve(arguments.count, arguments.first_port))


if __name__ == "__main__":
    main()
