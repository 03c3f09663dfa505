"""A case of the corpus over real sockets: a client that sends it in one way or another, and a backend that records."""

import asyncio
import random
from collections.abc import Awaitable, Callable, Iterator
from itertools import pairwise

from tests.corpus.readers import RequestReader
from tests.wire.harness import PATIENCE, BackendSide

_FEW = 1500  # bytes up to which a text is sent byte by byte; others in pieces of a size that no limit is a multiple of
_ODD = 997


def ways(text: bytes, name: str) -> Iterator[tuple[str, list[bytes]]]:
    """The text at once, byte by byte, and cut at two places that the name chooses."""
    yield "at once", [text] if text else []
    size = 1 if len(text) <= _FEW else _ODD
    yield "byte by byte", [text[at : at + size] for at in range(0, len(text), size)]
    places = sorted(random.Random(name).choices(range(len(text) + 1), k=2))
    yield "in three pieces", [text[start:end] for start, end in pairwise([0, *places, len(text)]) if end > start]


async def send(writer: asyncio.StreamWriter, pieces: list[bytes]) -> None:
    """Sends each piece by itself: the loop, which is the proxy's as well, turns twice behind each."""
    try:
        for piece in pieces:
            writer.write(piece)
            await asyncio.sleep(0)
            await asyncio.sleep(0)
        await writer.drain()
    except ConnectionError:
        pass  # refused before all was sent


class Recorder:
    """A backend that keeps all bytes of each connection, and answers what h11 takes for a whole request."""

    def __init__(self, answer: bytes = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok") -> None:
        self._texts: list[bytearray] = []
        self._answer = answer

    def take(self) -> list[bytes]:
        """What each connection brought since this was asked last."""
        taken = [bytes(text) for text in self._texts if text]
        for text in self._texts:
            text.clear()
        return taken

    async def script(self, side: BackendSide) -> None:
        """To be played on each connection."""
        text, reader = bytearray(), RequestReader()
        self._texts.append(text)
        while data := await side.reader.read(2**16):
            text += data
            before = len(reader.messages)
            reader.feed(data)
            for message in reader.messages[before:]:
                side.send(self._answer[: -2 if message.start[0] == b"HEAD" else None])


def playing(pieces: list[bytes]) -> Callable[[BackendSide], Awaitable[None]]:
    """A script that sends these pieces in answer to the first request, and closes."""

    async def script(side: BackendSide) -> None:
        await side.request()
        await send(side.writer, pieces)

    return script


async def received(reader: asyncio.StreamReader, *, until: Callable[[bytes], bool] | None = None) -> tuple[bytes, bool]:
    """All that comes until the connection ends, or until it is enough; and whether it ended."""
    text = b""
    async with asyncio.timeout(PATIENCE):
        while until is None or not until(text):
            try:
                data = await reader.read(2**16)
            except ConnectionError:
                data = b""
            if not data:
                return text, True
            text += data
    return text, False
