"""Accepts connections in batches.

uvloop's own listener takes one connection a turn of the loop and starves the rest under load (190 of 256 unaccepted
after half a second); this one takes up to 128 whenever the socket is readable. When descriptors run out, or there are
clients enough, it pauses instead of spinning: the connections wait in the kernel's queue.
"""

import asyncio
import logging
import socket
from collections.abc import Callable, Sequence
from typing import Any, TypeAlias

from proxy.background import Background
from proxy.wire.limits import EXHAUSTED

_BATCH = 128  # connections a turn of the loop
_BACKLOG = 4096  # connections the kernel holds for us; it caps this at its own limit
_PAUSE = 0.1  # seconds without accepting after descriptors or memory ran out, or while there are clients enough

Address: TypeAlias = tuple[socket.AddressFamily, socket.SocketKind, int, str, tuple[Any, ...]]

log = logging.getLogger("proxy.listener")


def resolved(host: str, port: int) -> Sequence[Address]:
    """What this host and port stand for, as getaddrinfo gives it. Raises OSError, naming the address."""
    try:
        return socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
    except OSError as error:
        raise OSError(f"cannot listen on {host} port {port}: {error.strerror}") from error


def bind(host: str, port: int, *, shared: bool = False) -> socket.socket:
    """A bound, listening, non-blocking TCP socket; `shared`: others of this process's user may share the port.

    Raises OSError, naming the address, e.g. when the port is taken.
    """
    family, kind, protocol, _, address = resolved(host, port)[0]
    sock = socket.socket(family, kind, protocol)
    try:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if shared:
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
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
    """Feeds accepted connections to protocols. Owns the socket from then on. `has_room`: may one more be accepted?"""

    def __init__(
        self,
        sock: socket.socket,
        connection: Callable[[], asyncio.Protocol],
        *,
        background: Background,
        has_room: Callable[[], bool],
    ) -> None:
        self._sock = sock
        self._connection = connection
        self._background = background
        self._has_room = has_room
        self._exhausted = False  # as far as the log has told
        self._loop = asyncio.get_running_loop()
        self._resume: asyncio.TimerHandle | None = None
        self._arriving: set[asyncio.Task[None]] = set()
        self._loop.add_reader(sock.fileno(), self._accept)

    @property
    def port(self) -> int:
        return int(self._sock.getsockname()[1])

    def close(self) -> None:
        """Accepts what waits already, and no more; connections that were accepted live on."""
        if self._sock.fileno() < 0:
            return
        if self._resume is not None:
            self._resume.cancel()
            self._resume = None
        else:
            self._loop.remove_reader(self._sock.fileno())
            self._take()
        self._sock.close()

    @property
    def arriving(self) -> int:
        """How many connections were accepted and have not reached their protocol."""
        return len(self._arriving)

    async def settled(self) -> None:
        """Waits until every connection that was accepted has reached its protocol."""
        while self._arriving:
            await asyncio.wait(self._arriving)

    def _accept(self) -> None:
        if not self._take():
            self._loop.remove_reader(self._sock.fileno())
            self._resume = self._loop.call_later(_PAUSE, self._go_on)

    def _take(self) -> bool:
        """Accepts a batch; False if there is nothing to accept with, or no room."""
        for _ in range(_BATCH):
            if not self._has_room():
                return False
            try:
                accepted, _ = self._sock.accept()
            except (BlockingIOError, InterruptedError):
                break
            except OSError as error:
                if error.errno in EXHAUSTED:
                    if not self._exhausted:
                        self._exhausted = True
                        log.warning("cannot accept for the moment: %s", error.strerror)
                    return False
                continue  # that connection died in the queue (accept(2): treat network errors like EAGAIN)
            self._exhausted = False
            accepted.setblocking(False)
            accepted.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            arriving = self._background.spawn(self._connect(accepted), "accept")
            self._arriving.add(arriving)
            arriving.add_done_callback(self._arriving.discard)
        return True

    def _go_on(self) -> None:
        self._resume = None
        self._loop.add_reader(self._sock.fileno(), self._accept)

    async def _connect(self, accepted: socket.socket) -> None:
        try:
            await self._loop.connect_accepted_socket(self._connection, accepted)
        except OSError:  # the client is gone already
            accepted.close()
