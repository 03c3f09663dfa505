"""The connections to one backend: dialled, kept while they are idle, and closed before the backend does.

Over TLS all is the same: only dialling knows.
"""

import asyncio
import logging
import ssl
from collections.abc import Callable
from dataclasses import dataclass

from proxy.routing.errors import ConnectFailed, ConnectRefused, ConnectTimeout, Overloaded
from proxy.wire.backend import BackendConnection
from proxy.wire.limits import EXHAUSTED
from proxy.wire.response_head import ResponseHeadReader
from proxy.wire.tls import TlsConnection

IDLE_LIMIT = 3.0
"""Seconds after which an idle connection is closed: uvicorn and Node close theirs after 5, and a request that crosses
their close on the wire cannot be repeated safely. Checked every half second, so none is older than 4."""
_COMPLAIN_EVERY = 10.0  # seconds between lines in the log about the TLS of one backend

log = logging.getLogger("proxy.tls")


@dataclass(frozen=True, slots=True)
class BackendTls:
    """How a backend is spoken to over TLS. `server_name`: whom it is asked for, and its certificate has to be for."""

    context: ssl.SSLContext
    server_name: str


class BackendConnections:
    """The connections to one backend. `connect_timeout` in seconds; `clock` a monotonic clock in seconds.

    `tls`: None for plain TCP.
    """

    def __init__(
        self,
        host: str,
        port: int,
        *,
        connect_timeout: float,
        clock: Callable[[], float],
        tls: BackendTls | None = None,
    ) -> None:
        self.heads = ResponseHeadReader()
        self.host = host
        self.port = port
        self.tls = tls
        self.connect_timeout = connect_timeout
        self._clock = clock
        self._idle: list[BackendConnection] = []  # the longest idle first
        self._closed = False
        self._complained = -_COMPLAIN_EVERY
        self._unsaid = 0  # complaints since the last one in the log

    def lease(self) -> BackendConnection | None:
        """An idle connection, the last one used first, or None: then dial."""
        while self._idle:
            connection = self._idle.pop()
            if not connection.is_closing:
                return connection
        return None

    def put_back(self, connection: BackendConnection) -> None:
        """It was leased just now, and is not used after all: it is as long idle as before."""
        self._idle.append(connection)

    async def dial(self) -> BackendConnection:
        """A new connection, its handshake done. Raises ConnectFailed (ConnectRefused where nobody listens),
        ConnectTimeout; nothing of a request was sent then."""
        try:
            async with asyncio.timeout(self.connect_timeout):
                connection = await self._connected()
        except TimeoutError:
            raise ConnectTimeout("the backend did not accept the connection in time") from None
        except ConnectionRefusedError:
            raise ConnectRefused("the backend refused the connection") from None
        except ssl.SSLError as error:
            self.complain(error)
            raise ConnectFailed("no TLS connection to the backend can be made") from None
        except OSError as error:
            if error.errno in EXHAUSTED:
                raise Overloaded("no more connections to backends can be opened: try again later") from None
            raise ConnectFailed("the backend cannot be reached") from None
        if connection.is_closing:
            raise ConnectFailed("the backend closed the connection at once")
        return connection

    async def _connected(self) -> BackendConnection:
        loop, tls, connection = asyncio.get_running_loop(), self.tls, BackendConnection(self)
        if tls is None:
            await loop.create_connection(lambda: connection, self.host, self.port)
            return connection
        handshake = _Handshake(loop.create_future())
        transport, _ = await loop.create_connection(
            lambda: TlsConnection(tls.context, lambda: connection, handshake, server_name=tls.server_name),
            self.host,
            self.port,
        )
        try:
            await handshake.done
        except asyncio.CancelledError:
            transport.abort()
            raise
        return connection

    def complain(self, error: ssl.SSLError) -> None:
        """Tells operators why TLS failed, which clients are not told; now and then."""
        now = self._clock()
        if now - self._complained < _COMPLAIN_EVERY:
            self._unsaid += 1
            return
        reason = error.verify_message if isinstance(error, ssl.SSLCertVerificationError) else error.reason or str(error)
        more = f" (and {self._unsaid} times since the last such line)" if self._unsaid else ""
        log.warning("TLS with the backend %s port %d: %s%s", self.host, self.port, reason, more)
        self._complained, self._unsaid = now, 0

    def keep(self, connection: BackendConnection) -> None:
        """Keeps a connection for the next exchange."""
        if self._closed:
            connection.drop()
            return
        connection.idle_since = self._clock()
        self._idle.append(connection)

    def lost(self, connection: BackendConnection) -> None:
        """The connection has closed."""
        if connection in self._idle:
            self._idle.remove(connection)

    def close_idle(self, *, limit: float = IDLE_LIMIT) -> None:
        """Closes connections idle for longer than `limit` seconds."""
        oldest = self._clock() - limit
        while self._idle and self._idle[0].idle_since <= oldest:
            self._idle.pop(0).drop()

    def close(self) -> None:
        """Closes the idle connections, and from now on those given back."""
        self._closed = True
        while self._idle:
            self._idle.pop().drop()


class _Handshake:
    """One handshake, awaited. A Watcher."""

    def __init__(self, done: asyncio.Future[None]) -> None:
        self.done = done

    def begun(self, connection: TlsConnection) -> None:
        pass

    def ended(self, connection: TlsConnection, error: Exception | None) -> None:
        if self.done.done():  # nobody waits any more
            return
        if error is None:
            self.done.set_result(None)
        else:
            self.done.set_exception(error)
