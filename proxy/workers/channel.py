"""Messages between two processes of one proxy: JSON objects over a pair of sockets, each after its length.

Both sides are ours and of one version, so nothing is checked beyond what a slip would show; neither is a message ever
dropped: what cannot be written yet waits in the transport's buffer.
"""

import asyncio
import json
import socket
import struct
from collections.abc import Callable
from typing import Any, TypeAlias, cast

Message: TypeAlias = dict[str, Any]
"""Its `kind` says what it is."""

_LENGTH = struct.Struct("!I")


class Channel(asyncio.Protocol):
    """One end. `received` gets every message, `lost` is called once, when the other end is gone."""

    def __init__(self, received: Callable[[Message], None], lost: Callable[[], None]) -> None:
        self._received = received
        self._lost = lost
        self._input = bytearray()
        self._transport: asyncio.Transport | None = None

    async def open(self, sock: socket.socket) -> None:
        """Begins to speak over one of a pair of sockets, which is the channel's from then on.

        Messages may come before this returns, and may be answered.
        """
        sock.setblocking(False)
        await asyncio.get_running_loop().create_unix_connection(lambda: self, sock=sock)

    def send(self, message: Message) -> None:
        """Sends a message; to an end that is gone, and before `open`, nothing."""
        if self._transport is not None and not self._transport.is_closing():
            data = json.dumps(message, separators=(",", ":")).encode("ascii")
            self._transport.write(_LENGTH.pack(len(data)) + data)

    def close(self) -> None:
        """Closes behind what was sent."""
        if self._transport is not None:
            self._transport.close()

    # ---- asyncio
    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)

    def data_received(self, data: bytes) -> None:
        self._input += data
        while len(self._input) >= _LENGTH.size:
            (length,) = _LENGTH.unpack_from(self._input)
            end = _LENGTH.size + length
            if len(self._input) < end:
                return
            message = json.loads(self._input[_LENGTH.size : end])
            del self._input[:end]
            self._received(message)

    def connection_lost(self, exc: Exception | None) -> None:
        self._lost()
