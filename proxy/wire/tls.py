"""TLS over one TCP connection: a protocol towards the loop, a transport towards the HTTP protocol above it.

Rules:
* The protocol above learns of the connection once the handshake is done, and of nothing if it fails.
* The end of what the other side sends is an end only where it was announced (close_notify; RFC 8446, 6.1): then it is
  told by `eof_received`. Anything else ends in `connection_lost` with an error, so that what was cut cannot pass for
  whole.
* What was received is handed on before the end is told, however long reading was paused.
* Nothing is buffered here but what one read of a socket brings: back-pressure is that of the connection below.
* What OpenSSL has to say to the other side of a failure (an alert) is sent before the connection closes.

The loop's own TLS does none of the last four in the form needed here: uvloop drops what waits unread when a connection
ends, counts no bytes below its own buffer as unsent, keeps 256 KiB of buffer for each connection, and swallows alerts.
"""

import asyncio
import ssl
from collections.abc import Callable
from typing import Any, Protocol, cast

_ONE_READ = 64 * 1024  # bytes handed on at once; a record has at most 16 KiB


class Watcher(Protocol):
    """Who is told of a handshake."""

    def begun(self, connection: "TlsConnection") -> None:
        """There is a connection on which it is to take place."""
        ...

    def ended(self, connection: "TlsConnection", error: Exception | None) -> None:
        """How it ended, once; None: the protocol above is connected."""
        ...


class Unannounced(ConnectionError):
    """The other side's bytes ended without close_notify: whoever cut the connection, it may not have been that side."""


class TlsConnection(asyncio.Protocol, asyncio.Transport):
    """One connection. `above` makes the protocol that speaks over it.

    `server_name`: towards a backend, whom it is asked for; None towards a client. `plain`: what a client is answered
    that speaks HTTP without TLS.
    """

    __slots__ = (
        "_above",
        "_closing",
        "_context",
        "_ended",
        "_incoming",
        "_lower",
        "_open",
        "_outgoing",
        "_plain",
        "_reading",
        "_server_name",
        "_silent",
        "_ssl",
        "_upper",
        "_watcher",
        "_why",
        "_writable",
    )

    def __init__(
        self,
        context: ssl.SSLContext,
        above: Callable[[], asyncio.Protocol],
        watcher: Watcher,
        *,
        server_name: str | None = None,
        plain: bytes = b"",
    ) -> None:
        self._context = context
        self._above = above
        self._watcher: Watcher | None = watcher
        self._server_name = server_name
        self._plain = plain
        self._ssl: ssl.SSLObject | None = None
        self._upper: asyncio.Protocol | None = None
        self._open = False  # the handshake is done
        self._reading = True
        self._writable = True
        self._closing = False
        self._silent = False  # what comes is not read any more
        self._ended = False  # the TCP connection brings no more
        self._why: Exception | None = None  # it ends

    # ---- from the loop
    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._lower = cast(asyncio.Transport, transport)
        if self._watcher is not None:
            self._watcher.begun(self)
        if self._server_name is not None:
            self._begin()

    def data_received(self, data: bytes) -> None:
        if self._silent or self._closing:
            return
        if self._ssl is None:
            self._begin()  # not before its first byte: connections on which nobody speaks cost next to nothing
            if self._ssl is None:
                return
        self._incoming.write(data)
        if not self._open:
            self._shake(self._ssl)
        if self._open and self._reading:
            self._read()

    def eof_received(self) -> bool | None:
        if self._silent or self._closing:
            return None
        self._ended = True
        if self._open and not self._reading:
            return True  # what was received before waits to be read
        self._read()
        return self._open and not self._closing  # paused again meanwhile

    def connection_lost(self, exc: Exception | None) -> None:
        self._closing = True
        error = self._why or exc
        self._finish_handshake(error or ConnectionResetError("the connection closed during the handshake"))
        upper, self._upper = self._upper, None
        self._ssl = None
        if upper is not None:
            upper.connection_lost(error)

    def pause_writing(self) -> None:
        self._writable = False
        if self._upper is not None:
            self._upper.pause_writing()

    def resume_writing(self) -> None:
        self._writable = True
        if self._upper is not None:
            self._upper.resume_writing()

    def _begin(self) -> None:
        self._incoming, self._outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        try:
            self._ssl = self._context.wrap_bio(
                self._incoming,
                self._outgoing,
                server_side=self._server_name is None,
                server_hostname=self._server_name,
            )
        except ValueError as error:  # a name that no certificate can have
            self._fail(ssl.SSLError(str(error)))
            return
        if self._server_name is not None:
            self._shake(self._ssl)

    def _shake(self, session: ssl.SSLObject) -> None:
        try:
            session.do_handshake()
        except ssl.SSLWantReadError:
            self._flush()
            return
        except ssl.SSLError as error:
            if error.reason == "HTTP_REQUEST":
                self._lower.write(self._plain)
            else:
                self._flush()
            self._fail(error)
            return
        self._open = True
        self._flush()
        upper = self._upper = self._above()
        upper.connection_made(self)
        if not self._writable:
            upper.pause_writing()
        self._finish_handshake(None)

    def _finish_handshake(self, error: Exception | None) -> None:
        watcher, self._watcher = self._watcher, None
        if watcher is not None:
            watcher.ended(self, error)

    # ---- reading
    def _read(self) -> None:
        """Hands on what is there, as long as the protocol above takes it, and then its end."""
        session, upper = self._ssl, self._upper
        if session is not None and upper is not None:
            while self._reading and not self._closing:
                data, announced = self._pull(session)
                if data:
                    upper.data_received(data)
                if announced:
                    upper.eof_received()
                    self.close()
                elif self._why is not None:
                    self._fail(self._why)
                elif not data:
                    break
        if self._ended and not self._closing and self._reading:
            self._fail(Unannounced("the connection ended without close_notify"))

    def _pull(self, session: ssl.SSLObject) -> tuple[bytes, bool]:
        """What there is to read, up to a limit, and whether the other side has announced its end."""
        pieces: list[bytes] = []
        size, announced = 0, False
        try:
            # Asked for first: that there is nothing to read is an exception, which costs as much as a record.
            while size < _ONE_READ and not announced and (self._incoming.pending or session.pending()):
                data = session.read(_ONE_READ - size)
                pieces.append(data)
                size += len(data)
                announced = not data
        except ssl.SSLWantReadError:
            pass
        except ssl.SSLError as error:
            self._why = error
        self._flush()  # an alert, or the answer to a change of keys
        return pieces[0] if len(pieces) == 1 else b"".join(pieces), announced

    def _resume(self) -> None:
        if self._reading and not self._closing:
            self._read()

    def _flush(self) -> None:
        if self._outgoing.pending:
            self._lower.write(self._outgoing.read())

    def _fail(self, error: Exception) -> None:
        """Ends the connection with this error."""
        self._why = error
        self._closing = True
        if isinstance(error, Unannounced):
            self._lower.abort()  # nobody takes what is still to be sent
        else:
            self._lower.close()

    def _announce_end(self) -> None:
        """Sends close_notify; the other side's is not waited for."""
        session = self._ssl
        if session is not None and self._open:
            self._incoming.read()  # OpenSSL would stumble over records that nobody reads any more
            try:
                session.unwrap()
            except ssl.SSLError:  # "want read": the other side's has not come
                pass
            self._flush()

    # ---- from the protocol above: a transport
    def write(self, data: Any) -> None:
        session = self._ssl
        if session is None or self._closing or self._silent or not data:
            return
        try:
            written = session.write(data)  # a record at most
            while written < len(data):
                data = memoryview(data)[written:]
                written = session.write(data)
        except ssl.SSLError as error:
            self._fail(error)
            return
        self._lower.write(self._outgoing.read())

    def close(self) -> None:
        if not self._closing:
            if not self._silent:
                self._announce_end()
            self._closing = True
            self._lower.close()

    def abort(self) -> None:
        self._closing = True
        self._lower.abort()

    def can_write_eof(self) -> bool:
        return True

    def write_eof(self) -> None:
        """Ends what is sent. What still comes is taken in and dropped: it belongs to nothing any more."""
        if not self._closing and not self._silent:
            self._announce_end()
            self._silent = True
            self._lower.write_eof()

    def is_closing(self) -> bool:
        return self._closing or self._lower.is_closing()

    def pause_reading(self) -> None:
        self._reading = False
        self._lower.pause_reading()

    def resume_reading(self) -> None:
        self._reading = True
        if not self._ended:
            self._lower.resume_reading()
        if self._ended or (self._ssl is not None and (self._incoming.pending or self._ssl.pending())):
            asyncio.get_running_loop().call_soon(self._resume)

    def get_write_buffer_size(self) -> int:
        return self._lower.get_write_buffer_size()

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        return self._ssl if name == "ssl_object" else self._lower.get_extra_info(name, default)
