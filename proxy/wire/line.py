"""A connection to a client or to a backend, as far as both are alike: bytes are written while it lives, and it is read
from as long as nobody has a reason against it.
"""

import asyncio
from typing import cast


class Line(asyncio.Protocol):
    """One connection."""

    __slots__ = ("_held", "_reading", "_resting", "_transport")

    _transport: asyncio.Transport

    def __init__(self) -> None:
        self._reading = True
        self._held = False  # whoever takes what comes has enough for now
        self._resting = False  # until the other connections had their turn

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)

    def write(self, data: bytes) -> None:
        if not self._transport.is_closing():  # lost already, and about to be told so
            self._transport.write(data)

    @property
    def unsent(self) -> int:
        """Bytes that the other side has not taken yet."""
        return self._transport.get_write_buffer_size()

    def hold(self, hold: bool) -> None:
        """Stops (True) or resumes reading."""
        self._held = hold
        self._update_reading()

    def _rest(self, resting: bool = True) -> None:
        """Stops reading until the other connections had their turn."""
        self._resting = resting
        self._update_reading()
        if resting:
            asyncio.get_running_loop().call_soon(self._rest, False)

    def _may_read(self) -> bool:
        return not (self._held or self._resting)

    def _update_reading(self) -> None:
        read = self._may_read()
        if read is self._reading or self._transport.is_closing():
            return
        self._reading = read
        if read:
            self._transport.resume_reading()
        else:
            self._transport.pause_reading()
