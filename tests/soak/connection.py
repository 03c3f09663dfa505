"""A client's connections to the proxy: one is kept, some requests go over a new one, some clients leave early."""

import asyncio
import random
import re
import time
from collections.abc import AsyncIterator

from tests.soak.verdict import End, Seen
from tests.wire.harness import Client, chunks

FRESH = 8
"""One request in so many goes over a new connection."""
SILENCE = 30.0
"""Seconds after which a request without a head counts as unanswered: more than anything here is waited for."""
GONE = (ConnectionError, asyncio.IncompleteReadError)


class Connection:
    """To the proxy at this port; opened when it is needed."""

    def __init__(self, port: int, rng: random.Random) -> None:
        self._port = port
        self._rng = rng
        self._kept: Client | None = None

    async def ask(self, request: bytes, *, leave_after: float | None = None) -> Seen:
        """What comes of a request. `leave_after`: the client hangs up after so many seconds if it is not over."""
        began = time.monotonic()
        client = self._take()
        try:
            client = client or await opened(self._port)
        except ConnectionError:
            return Seen(began, time.monotonic(), "refused")
        client.send(request)
        reading = _Reading(client)
        try:
            async with asyncio.timeout(leave_after):
                end = await reading.run()
        except TimeoutError:
            end = "left"
        if end == "whole" and Seen(began, 0, end, reading.head).answer.get("Connection") != "close":
            self._kept = client
        elif end == "left" and self._rng.random() < 0.5:
            client.writer.transport.abort()
        else:
            client.close()
        return Seen(began, time.monotonic(), end, reading.head, bytes(reading.body))

    def close(self) -> None:
        if self._kept is not None:
            self._kept.close()
            self._kept = None

    def _take(self) -> Client | None:
        kept, self._kept = self._kept, None
        if kept is not None and (kept.reader.at_eof() or self._rng.randrange(FRESH) == 0):
            kept.close()  # closed while it was idle, as any server may, or left for a new one
            return None
        return kept


class _Reading:
    """An answer as it comes."""

    def __init__(self, client: Client) -> None:
        self.head = b""
        self.body = bytearray()
        self._reader = client.reader

    async def run(self) -> End:
        try:
            try:
                async with asyncio.timeout(SILENCE):
                    self.head = await self._reader.readuntil(b"\r\n\r\n")
            except TimeoutError:
                return "silent"
            try:
                async for piece in self._pieces():
                    self.body += piece
            except asyncio.IncompleteReadError as broken:
                self.body += broken.partial if _length(self.head) is not None else b""
                raise
        except GONE:
            return "cut"
        return "whole"

    async def _pieces(self) -> AsyncIterator[bytes]:
        length = _length(self.head)
        if length is not None:
            yield await self._reader.readexactly(length)
            return
        assert b"\r\ntransfer-encoding: chunked" in self.head.lower(), "every answer here has a length or chunks"
        async for chunk in chunks(self._reader):
            yield chunk


def _length(head: bytes) -> int | None:
    found = re.search(rb"\r\ncontent-length: *(\d+)", head.lower())
    return int(found[1]) if found else None


async def opened(port: int) -> Client:
    """A connection to this port. Raises ConnectionError."""
    return Client(*await asyncio.open_connection("127.0.0.1", port, limit=2**20))
