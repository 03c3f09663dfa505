"""How a client's connection ends without losing what was sent: in two steps, or visibly cut.

A connection that closes while its client may still be sending closes in two steps (RFC 9112, 9.6), or the answer would
be lost to a reset.
"""

import asyncio
import socket
import struct

_LINGER = 1.0  # seconds in which a client may finish sending what nobody reads
_MAX_STALL = 30  # seconds in which it may take nothing of what is still to be sent
_TCP_INFO: int | None = getattr(socket, "TCP_INFO", None)  # Linux has it
_ESTABLISHED = 1  # the state of a TCP connection whose peer has neither closed nor reset it (tcp(7), TCP_INFO)


class Lingering:
    """A connection whose own side is shut. It closes for good when its client had a moment to finish sending, but not
    before everything is sent, as long as the client takes some of it."""

    __slots__ = ("_stalled", "_timer", "_transport", "_unsent")

    def __init__(self, transport: asyncio.Transport) -> None:
        self._transport = transport
        self._unsent = 0  # bytes at the last look
        self._stalled = 0  # looks at which they were as many
        transport.write_eof()
        self._timer = asyncio.get_running_loop().call_later(_LINGER, self._look)

    def cancel(self) -> None:
        """The connection is lost."""
        self._timer.cancel()

    def _look(self) -> None:
        unsent = self._transport.get_write_buffer_size()
        self._stalled = self._stalled + 1 if unsent == self._unsent else 0
        self._unsent = unsent
        if unsent and self._stalled < _MAX_STALL / _LINGER:
            self._timer = asyncio.get_running_loop().call_later(_LINGER, self._look)
        else:
            self._transport.abort()


def has_left(transport: asyncio.Transport) -> bool:
    """True for a client that has closed or reset its side, also where nothing is read; False where nobody can tell."""
    sock = transport.get_extra_info("socket")
    if sock is None or _TCP_INFO is None:
        return False
    return bool(sock.getsockopt(socket.IPPROTO_TCP, _TCP_INFO, 1)[0] != _ESTABLISHED)


def reset_on_close(transport: asyncio.Transport) -> None:
    """Makes the close a reset, so that it cannot pass for the end of a body that lasts until close."""
    sock = transport.get_extra_info("socket")
    if sock is not None:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
