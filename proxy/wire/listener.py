"""Accepts connections in batches.

uvloop's own listener takes one connection a turn of the loop and starves the rest under load (190 of 256 unaccepted
after half a second); this one takes up to 128 whenever the socket is readable. When descriptors run out it pauses
instead of spinning: the connections wait in the kernel's queue.
"""

import asyncio
import errno
import logging
import socket
from collections.abc import Callable

from proxy.background import Background

_BATCH = 128  # connections a turn of the loop
_BACKLOG = 4096  # connections the kernel holds for us; it caps this at its own limit
_PAUSE = 0.1  # seconds without accepting after descriptors or memory ran out
_EXHAUSTED = frozenset({errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM})

log = logging.getLogger("proxy.listener")


def bind(host: str, port: int) -> socket.socket:
    """A bound, listening, non-blocking TCP socket. Raises OSError, naming the address, e.g. when the port is taken."""
    try:
        found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
    except OSError as error:
        raise OSError(f"cannot listen on {host} port {port}: {error.strerror}") from error
    family, kind, protocol, _, address = found[0]
    sock = socket.socket(family, kind, protocol)
    try:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if family == socket.AF_INET6:
            sock.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1 if host != "::" else 0)
        sock.setblocking(False)
        sock.bind(address)
        sock.listen(_BACKLOG)
    except OSError as error:
        sock.close()
        raise OSError(f"cannot listen on {host} port {port}: {error.strerror}") from error
    return sock


class Listener:
    """Feeds accepted connections to protocols. Owns the socket from then on."""

    def __init__(
        self, sock: socket.socket, connection: Callable[[], asyncio.Protocol], *, background: Background
    ) -> None:
        self._sock = sock
        self._connection = connection
        self._background = background
        self._loop = asyncio.get_running_loop()
        self._resume: asyncio.TimerHandle | None = None
        self._loop.add_reader(sock.fileno(), self._accept)

    @property
    def port(self) -> int:
        return int(self._sock.getsockname()[1])

    def close(self) -> None:
        """Accepts no more; connections that were accepted live on."""
        if self._sock.fileno() < 0:
            return
        if self._resume is not None:
            self._resume.cancel()
        self._loop.remove_reader(self._sock.fileno())
        self._sock.close()

    def _accept(self) -> None:
        for _ in range(_BATCH):
            try:
                accepted, _ = self._sock.accept()
            except (BlockingIOError, InterruptedError):
                return
            except OSError as error:
                if error.errno in _EXHAUSTED:
                    log.warning("cannot accept for the moment: %s", error.strerror)
                    self._loop.remove_reader(self._sock.fileno())
                    self._resume = self._loop.call_later(_PAUSE, self._go_on)
                    return
                continue  # that connection died in the queue (accept(2): treat network errors like EAGAIN)
            accepted.setblocking(False)
            accepted.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            self._background.spawn(self._connect(accepted), "accept")

    def _go_on(self) -> None:
        self._resume = None
        self._loop.add_reader(self._sock.fileno(), self._accept)

    async def _connect(self, accepted: socket.socket) -> None:
        try:
            await self._loop.connect_accepted_socket(self._connection, accepted)
        except OSError:  # the client is gone already
            accepted.close()
