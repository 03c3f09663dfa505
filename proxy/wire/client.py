"""HTTP/1.1 towards one client: requests read one after the other, each handed to an exchange.

Each message is fed to httptools alone: a head up to its empty line, then its body up to its end, so that no callback
ever sees two messages joined; pipelined requests wait in `_input` until the one before is answered. A client that hangs
up, even on a quiet stream, ends its exchange at once. A connection that closes while its client may still be sending
closes in two steps (RFC 9112, 9.6), or the answer would be lost to a reset.
"""

import asyncio
import socket
import struct
from typing import Protocol, cast

from httptools import HttpParserError, HttpParserUpgrade, HttpRequestParser

from proxy.routing.errors import BadRequest, HeadTooLarge, ProxyError, Unsupported
from proxy.wire.framing import BodyCursor
from proxy.wire.limits import MAX_HEAD
from proxy.wire.request_head import Forwarded, Frame, RequestHead, RequestHeadReader
from proxy.wire.response_head import error_response

_MAX_PIPELINED = 64 * 1024  # bytes that wait behind a running exchange before reading stops
_LINGER = 1.0  # seconds in which a client may finish sending what nobody reads


class RequestSink(Protocol):
    """Who receives a request: an exchange. Called on the event loop until it calls `ClientConnection.exchange_done`."""

    def request_body(self, data: bytes) -> None: ...

    def request_complete(self) -> None:
        """The request's last byte was handed over."""
        ...

    def flush_request(self) -> None:
        """What came in one read has been handed over: time to write."""
        ...

    def request_broken(self, error: ProxyError) -> None:
        """The request's body does not parse; nothing more of it comes."""
        ...

    def hold_response(self, hold: bool) -> None:
        """The client takes no more bytes for now (True), or again (False)."""
        ...

    def client_gone(self) -> None:
        """The client hung up: nothing can be answered any more."""
        ...


class ClientSide(Protocol):
    """What a client connection needs from the proxy it belongs to."""

    heads: RequestHeadReader

    def begin(self, client: "ClientConnection", head: RequestHead) -> RequestSink:
        """A request's head has been read; its exchange is under way."""
        ...

    def refused(self, error: ProxyError) -> None:
        """A request without a readable head was answered with this error."""
        ...

    def trusts(self, peer: str) -> bool:
        """True for addresses whose X-Forwarded-* fields are believed."""
        ...

    def opened(self, client: "ClientConnection") -> None: ...

    def closed(self, client: "ClientConnection") -> None: ...


class ClientConnection(asyncio.Protocol):
    """One connection from a client."""

    __slots__ = (
        "_backlogged",
        "_body",
        "_complete",
        "_discarding",
        "_exchange",
        "_fed",
        "_frame",
        "_head_done",
        "_held",
        "_in_body",
        "_input",
        "_last",
        "_linger",
        "_parser",
        "_pieces",
        "_proxy",
        "_reading",
        "_running",
        "_transport",
        "forwarded",
        "peer",
        "writable",
    )

    def __init__(self, proxy: ClientSide) -> None:
        self._proxy = proxy
        self._parser = HttpRequestParser(self)
        self._exchange: RequestSink | None = None
        self._input = b""
        self._fed = 0  # bytes of _input that the parser has seen
        self._frame: Frame | None = None  # of the last head
        self._in_body = False
        self._pieces: list[bytes] = []
        self._running = False
        self._discarding = False
        self._last = False  # no further request is served here
        self._reading = True
        self._held = False
        self._backlogged = False
        self._linger: asyncio.TimerHandle | None = None
        self.writable = True
        """False while the client takes no more bytes."""
        self.peer = ""
        """The client's address, without port."""

    # ---- used by the exchange and the app
    def write(self, data: bytes) -> None:
        if not self._transport.is_closing():  # lost already, and about to be told so
            self._transport.write(data)

    def hold_body(self, hold: bool) -> None:
        """Stops (True) or resumes reading the request's body."""
        self._held = hold
        self._update_reading()

    def exchange_done(self, *, keep_alive: bool) -> None:
        """The exchange is over and all of its answer written; the next request's turn, if `keep_alive`."""
        self._exchange = None
        self._held = False
        if keep_alive and not self._last and not self._in_body:
            self._update_reading()
            self._run()
        else:
            self._close()

    def abort(self, *, reset: bool = False) -> None:
        """Cuts the connection, what is not written yet included. `reset`: so that it cannot pass for a clean end."""
        self._exchange = None
        self._discarding = True
        if reset:
            _reset_on_close(self._transport)
        self._transport.abort()

    def cut(self) -> None:
        """Closes behind what is written already; the response is visibly incomplete."""
        self._exchange = None
        self._discarding = True
        self._transport.close()

    @property
    def retiring(self) -> bool:
        """True if no further request is served on this connection."""
        return self._last

    def hang_up(self) -> None:
        """Ends the connection whatever is under way, as if the client had left."""
        self._leave()
        self._transport.abort()

    def retire(self) -> None:
        """Serves no further request: an idle connection closes now, a busy one after its exchange."""
        self._last = True
        if self._exchange is None and not self._discarding:
            self._transport.close()

    # ---- asyncio
    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        name = transport.get_extra_info("peername")
        self.peer = str(name[0]) if name else ""
        self.forwarded = Forwarded(self.peer.encode(), self._proxy.trusts(self.peer), b"http")
        self._proxy.opened(self)

    def data_received(self, data: bytes) -> None:
        if self._discarding:
            return
        self._input = self._input + data if self._input else data
        self._run()

    def eof_received(self) -> None:
        """A client that shuts its side has hung up: this is how HTTP clients cancel (Streamable HTTP, Cancellation)."""
        self._leave()

    def connection_lost(self, exc: Exception | None) -> None:
        if self._linger is not None:
            self._linger.cancel()
        self._leave()
        self._proxy.closed(self)

    def pause_writing(self) -> None:
        self.writable = False
        if self._exchange is not None:
            self._exchange.hold_response(True)

    def resume_writing(self) -> None:
        self.writable = True
        if self._exchange is not None:
            self._exchange.hold_response(False)

    # ---- httptools
    def on_headers_complete(self) -> None:
        self._head_done = True

    def on_body(self, data: bytes) -> None:
        self._pieces.append(data)

    def on_message_complete(self) -> None:
        self._complete = True

    # ---- reading
    def _run(self) -> None:
        """Reads what is there: heads, bodies, request after request, as long as no answer has to be awaited."""
        if self._running:  # an exchange ended within the loop below, which goes on by itself
            return
        self._running = True
        try:
            while self._input and not self._discarding:
                exchange = self._exchange
                if exchange is None:
                    if not self._read_head():
                        break
                elif self._in_body:
                    self._read_body(exchange)
                else:
                    break
                exchange = self._exchange
                if exchange is not None and not (self._in_body and self._input):
                    exchange.flush_request()
        finally:
            self._running = False
        self._backlogged = self._exchange is not None and not self._in_body and len(self._input) > _MAX_PIPELINED
        self._update_reading()

    def _read_head(self) -> bool:
        """Reads a head if it is there whole, and begins its exchange."""
        while not self._fed and self._input.startswith(b"\r\n"):  # before a request line (RFC 9112, 2.2)
            self._input = self._input[2:]
        text = self._input
        end = text.find(b"\r\n\r\n", max(0, self._fed - 3)) + 4
        self._complete = self._head_done = False
        try:
            if end < 4:
                self._parser.feed_data(text[self._fed :])
                self._fed = len(text)
                if len(text) > MAX_HEAD:
                    raise HeadTooLarge(f"the head has more than {MAX_HEAD} bytes")
                return False
            if end > MAX_HEAD:
                raise HeadTooLarge(f"the head has more than {MAX_HEAD} bytes")
            self._parser.feed_data(text[self._fed : end])
            if not self._head_done:
                raise BadRequest("the head does not end where it seems to")
            head = self._proxy.heads.read(text[:end], self._frame)
        except HttpParserUpgrade:
            self._refuse(Unsupported("CONNECT and Upgrade are not supported"))
            return False
        except HttpParserError as error:
            self._refuse(BadRequest(f"the request does not parse: {error}"))
            return False
        except ProxyError as error:
            self._refuse(error)
            return False
        self._input, self._fed, self._frame = text[end:], 0, head.frame
        self._in_body = not self._complete
        if self._in_body:
            self._body = BodyCursor(None if head.frame.chunked else head.length)
        exchange = self._exchange = self._proxy.begin(self, head)
        if not self._in_body:
            exchange.request_complete()
        return True

    def _read_body(self, exchange: RequestSink) -> None:
        piece, self._input = self._body.take(self._input)
        try:
            self._parser.feed_data(piece)
            if self._body.ended is not None and self._body.ended is not self._complete:
                raise BadRequest("the body does not end where it should")
        except (HttpParserError, BadRequest) as error:
            self._discarding = True
            exchange.request_broken(BadRequest(f"the request's body does not parse: {error}"))
            return
        pieces, self._pieces = self._pieces, []
        for data in pieces:
            exchange.request_body(data)
        if self._complete:
            self._in_body = False
            exchange.request_complete()

    def _refuse(self, error: ProxyError) -> None:
        """Answers a request whose head cannot be read, and closes: nobody knows where it would end."""
        self._in_body = True
        self._transport.write(error_response(error, modern=False, keep_alive=False, http10=False, with_body=True))
        self._proxy.refused(error)
        self._close()

    def _update_reading(self) -> None:
        read = not (self._held or self._backlogged)
        if read is self._reading or self._transport.is_closing():
            return
        self._reading = read
        if read:
            self._transport.resume_reading()
        else:
            self._transport.pause_reading()

    def _leave(self) -> None:
        exchange, self._exchange = self._exchange, None
        self._discarding = True
        if exchange is not None:
            exchange.client_gone()

    def _close(self) -> None:
        """Closes behind what is written. While the client may still be sending, its side is given a moment."""
        self._discarding = True
        if self._transport.is_closing():
            return
        if (self._in_body or self._input) and self._transport.can_write_eof():
            self._input = b""
            self._held = self._backlogged = False
            self._update_reading()
            self._transport.write_eof()
            self._linger = asyncio.get_running_loop().call_later(_LINGER, self._transport.abort)
        else:
            self._transport.close()


def _reset_on_close(transport: asyncio.Transport) -> None:
    sock = transport.get_extra_info("socket")
    if sock is not None:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
