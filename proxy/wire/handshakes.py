"""TLS handshakes with clients: how long one may take, how many may be under way, and what came of those that failed.

A connection on which no handshake comes to its end is cut after a while. If many are under way, the oldest gives way to
the newcomer: an honest handshake takes two round trips, and is not among the oldest of a thousand.
"""

import asyncio
import logging
import ssl
from collections.abc import Callable

from proxy.routing.errors import BadRequest
from proxy.wire.response_head import error_response
from proxy.wire.tls import TlsConnection

TIME_LIMIT = 10.0
"""Seconds that a handshake may take."""
MOST = 1024
"""Handshakes under way; each holds a descriptor and some 10 KB."""
_FAREWELL = 1.0  # seconds for those under way when no more are accepted
_PLAIN = error_response(
    BadRequest("this port speaks HTTPS, and the request came without TLS"),
    modern=False,
    keep_alive=False,
    http10=False,
    with_body=True,
)
_VERSION = (
    *("UNSUPPORTED_PROTOCOL", "UNKNOWN_PROTOCOL", "WRONG_VERSION_NUMBER", "WRONG_SSL_VERSION", "VERSION_TOO_LOW"),
    *("NO_SHARED_CIPHER", "NO_SUITABLE_SIGNATURE_ALGORITHM", "NO_SUITABLE_KEY_SHARE", "INAPPROPRIATE_FALLBACK"),
)

log = logging.getLogger("proxy.tls")


class Handshakes:
    """The handshakes under way. `failed` is told why of each that fails. A Watcher of its connections."""

    def __init__(self, *, failed: Callable[[str], None]) -> None:
        self._failed = failed
        self._started: dict[TlsConnection, float] = {}  # the oldest first
        self._cut: dict[TlsConnection, str] = {}  # by us, and why; until the loop has told them so
        self._expiry: asyncio.TimerHandle | None = None
        self._none = asyncio.Event()
        self._none.set()

    def __len__(self) -> int:
        return len(self._started)

    def newcomer(self, context: ssl.SSLContext, above: Callable[[], asyncio.Protocol]) -> TlsConnection:
        """What receives a client's bytes; `above` makes the protocol that its handshake leads to."""
        return TlsConnection(context, above, self, plain=_PLAIN)

    async def settled(self) -> None:
        """Waits a moment for those under way, and cuts the rest; for the time when no more are accepted."""
        try:
            async with asyncio.timeout(_FAREWELL if self._started else None):
                await self._none.wait()
        except TimeoutError:
            for connection in list(self._started):
                self._end(connection, "draining")
        if self._expiry is not None:
            self._expiry.cancel()
            self._expiry = None

    # ---- Watcher
    def begun(self, connection: TlsConnection) -> None:
        if len(self._started) >= MOST:
            self._end(next(iter(self._started)), "crowded")
        loop = asyncio.get_running_loop()
        self._started[connection] = loop.time()
        self._none.clear()
        if self._expiry is None:
            self._expiry = loop.call_later(TIME_LIMIT, self._expire)

    def ended(self, connection: TlsConnection, error: Exception | None) -> None:
        self._forget(connection)
        cut = self._cut.pop(connection, None)
        if error is not None:
            reason = cut or reason_of(error)
            log.debug("a client's handshake failed (%s): %s", reason, error)
            self._failed(reason)

    # ----
    def _expire(self) -> None:
        self._expiry = None
        loop = asyncio.get_running_loop()
        while self._started:
            connection, started = next(iter(self._started.items()))
            if (left := started + TIME_LIMIT - loop.time()) > 0:
                self._expiry = loop.call_later(left, self._expire)
                return
            self._end(connection, "timeout")

    def _end(self, connection: TlsConnection, reason: str) -> None:
        self._forget(connection)
        self._cut[connection] = reason
        connection.abort()

    def _forget(self, connection: TlsConnection) -> None:
        self._started.pop(connection, None)
        if not self._started:
            self._none.set()


def reason_of(error: Exception) -> str:
    """Why a client's handshake failed, as a label: one of a few."""
    if not isinstance(error, ssl.SSLError):
        return "closed"
    reason = error.reason or ""
    if reason == "HTTP_REQUEST":
        return "plain_http"
    if isinstance(error, ssl.SSLCertVerificationError) or reason == "PEER_DID_NOT_RETURN_A_CERTIFICATE":
        return "client_certificate"
    if reason in _VERSION:
        return "version"
    return "refused" if "ALERT" in reason else "other"
