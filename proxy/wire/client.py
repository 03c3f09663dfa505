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

from proxy.routing.errors import BadRequest, FramingError, HeadTooLarge, ProxyError, Unsupported
from proxy.routing.rounds import ConnectionMemory
from proxy.wire.forwarding import Forwarded
from proxy.wire.framing import cursor_for
from proxy.wire.limits import MANY_PIECES, MAX_HEAD
from proxy.wire.request_head import Frame, RequestHead, RequestHeadReader
from proxy.wire.response_head import error_response

_MAX_PIPELINED = 64 * 1024  # bytes that wait behind a running exchange before reading stops
_MAX_TURN = 16  # requests read in one turn of the loop: other clients wait meanwhile
_MAX_EMPTY_LINES = 8  # before a request line (RFC 9112, 2.2)
_FAREWELL = 1.0  # seconds in which an idle client may send one more request before its connection closes
_LINGER = 1.0  # seconds in which a client may finish sending what nobody reads
_MAX_STALL = 30  # seconds in which it may take nothing of what is still to be sent
_TCP_INFO: int | None = getattr(socket, "TCP_INFO", None)  # Linux has it
_CR = 13
_ESTABLISHED = 1  # the state of a TCP connection whose peer has neither closed nor reset it (tcp(7), TCP_INFO)


def feed_head(parser: HttpRequestParser, data: bytes) -> None:
    """Feeds the parser some bytes of a head, up to its end. Raises BadRequest, Unsupported."""
    try:
        parser.feed_data(data)
    except HttpParserUpgrade:
        raise Unsupported("CONNECT and Upgrade are not supported") from None
    except HttpParserError as error:
        raise BadRequest(f"the request does not parse: {error}") from None


class RequestSink(Protocol):
    """Who receives a request: an exchange. Called on the event loop until it calls `ClientConnection.exchange_done`."""

    @property
    def endless(self) -> bool:
        """True for a response that lasts as long as its client listens."""
        ...

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

    def abandon(self, error: ProxyError) -> None:
        """The proxy gives the exchange up: it is answered with this error, or cut where a response has begun."""
        ...


class ClientSide(Protocol):
    """What a client connection needs from the proxy it belongs to."""

    heads: RequestHeadReader

    def begin(self, client: "ClientConnection", head: RequestHead) -> RequestSink:
        """A request's head has been read; its exchange is under way."""
        ...

    def refused(self, client: "ClientConnection", error: ProxyError) -> None:
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
        "_at",
        "_backlogged",
        "_body",
        "_complete",
        "_discarding",
        "_exchange",
        "_farewell",
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
        "_resting",
        "_running",
        "_transport",
        "_unsent",
        "forwarded",
        "memory",
        "peer",
        "writable",
    )

    def __init__(self, proxy: ClientSide) -> None:
        self._proxy = proxy
        self._parser = HttpRequestParser(self)
        self._exchange: RequestSink | None = None
        self._input = b""
        self._at = 0  # how much of _input is read
        self._fed = 0  # how much of it the parser has seen, of a head that is not whole
        self._frame: Frame | None = None  # of the last head
        self._in_body = False
        self._pieces: list[bytes] = []
        self._running = False
        self._discarding = False
        self._last = False  # no further request is served here
        self._reading = True
        self._held = False
        self._backlogged = False
        self._resting = False
        self._linger: asyncio.TimerHandle | None = None
        self._farewell: asyncio.TimerHandle | None = None
        self._unsent = (0, 0)  # bytes at the last look, and how often they were as many
        self.memory = ConnectionMemory()
        """What exchanges remember of this connection."""
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
        if not keep_alive or self._last or self._in_body:
            self._close()
        elif self._input or not self._reading:
            self._update_reading()
            self._run()

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

    def notice_departure(self) -> None:
        """Ends the exchange of a client that left while nothing was read from it, where no event tells."""
        if self._reading or _TCP_INFO is None or self._transport.is_closing():
            return
        sock = self._transport.get_extra_info("socket")
        if sock is not None and sock.getsockopt(socket.IPPROTO_TCP, _TCP_INFO, 1)[0] != _ESTABLISHED:
            self._leave()
            self._transport.abort()

    @property
    def retiring(self) -> bool:
        """True if no further request is served on this connection."""
        return self._last

    def abandon(self, error: ProxyError) -> None:
        """Ends the connection whatever is under way, which is answered with this error or cut."""
        self._last = True
        exchange = self._exchange
        if exchange is not None:
            exchange.abandon(error)
        elif not self._transport.is_closing():
            self._transport.abort()

    def retire(self, error: ProxyError) -> None:
        """Serves what is under way, or one more request, and closes; idempotent.

        A busy connection closes after its exchange. An idle one lives on for a moment: its client may be sending just
        now, and is answered with `Connection: close` then. A stream that would last as long as its client likes is cut.
        """
        self._last = True
        if self._exchange is not None:
            if self._exchange.endless:
                self._exchange.abandon(error)
        elif not self._discarding and self._farewell is None:
            self._farewell = asyncio.get_running_loop().call_later(_FAREWELL, self._part)

    def _part(self) -> None:
        if self._exchange is None and not self._discarding:
            self._transport.close()

    # ---- asyncio
    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        name = transport.get_extra_info("peername")
        self.peer = str(name[0]) if name else ""  # it may be gone already
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
        for timer in (self._linger, self._farewell):
            if timer is not None:
                timer.cancel()
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
        elif self._at < len(self._input):
            self._run()

    # ---- httptools
    def on_headers_complete(self) -> None:
        self._head_done = True

    def on_body(self, data: bytes) -> None:
        self._pieces.append(data)

    def on_message_complete(self) -> None:
        self._complete = True

    # ---- reading
    def _run(self) -> None:
        """Reads what is there: heads, bodies, request after request, as long as no answer has to be awaited.

        A client that pipelines gets so many requests read in one turn of the loop, and none while it takes no answers.
        """
        if self._running:  # an exchange ended within the loop below, which goes on by itself
            return
        self._running = True
        heads = 0
        try:
            while self._at < len(self._input) and not self._discarding:
                exchange = self._exchange
                if exchange is None:
                    heads += 1
                    if heads > _MAX_TURN or not self.writable:
                        break
                    if not self._read_head():
                        break
                elif self._in_body:
                    self._read_body(exchange)
                else:
                    break
                exchange = self._exchange
                if exchange is not None and not (self._in_body and self._at < len(self._input)):
                    exchange.flush_request()
        finally:
            self._running = False
        if self._at == len(self._input):
            self._input, self._at, self._backlogged = b"", 0, False
        else:
            self._keep_rest()
            if heads > _MAX_TURN:
                asyncio.get_running_loop().call_soon(self._run)
        if self._held or self._backlogged or not self._reading:
            self._update_reading()

    def _keep_rest(self) -> None:
        """Input is left that has to wait: it is kept, and if it is much, nothing more is read."""
        if self._at > _MAX_PIPELINED:
            self._input, self._at, self._fed = self._input[self._at :], 0, max(0, self._fed - self._at)
        waits = self._exchange is None or not self._in_body
        self._backlogged = waits and len(self._input) - self._at > _MAX_PIPELINED

    def _read_head(self) -> bool:
        """Reads a head if it is there whole, and begins its exchange."""
        text = self._input
        if not self._fed and text[self._at] == _CR and not self._skip_empty_lines():
            return False
        start = self._at
        end = text.find(b"\r\n\r\n", max(start, self._fed - 3)) + 4
        try:
            if (end if end >= 4 else len(text)) - start > MAX_HEAD:
                raise HeadTooLarge(f"the head has more than {MAX_HEAD} bytes")
            if end < 4:
                feed_head(self._parser, text[max(start, self._fed) :])
                self._fed = len(text)
                return False
            return self._begin(text, start, end)
        except ProxyError as error:
            self._refuse(error)
            return False

    def _begin(self, text: bytes, start: int, end: int) -> bool:
        """Begins the exchange of the head from `start` to `end`; with its body, if that is all that follows."""
        self._complete = self._head_done = False
        seen = max(start, self._fed)
        try:
            head = self._proxy.heads.read(text[start:end], self._frame)
        except ProxyError:
            feed_head(self._parser, text[seen:end])  # what it refuses has an answer of its own
            raise
        whole = not head.frame.chunked and len(text) - end == head.length
        stop = len(text) if whole else end
        feed_head(self._parser, text if not seen and stop == len(text) else text[seen:stop])
        if not self._head_done or (whole and not self._complete):
            raise BadRequest("the request does not end where it seems to")
        self._at, self._fed, self._frame = stop, 0, head.frame
        self._in_body = not self._complete
        if self._in_body:
            self._body = cursor_for(head.length, chunked=head.frame.chunked)
        exchange = self._exchange = self._proxy.begin(self, head)
        if whole and stop > end:
            self._pieces.clear()  # the one piece is this body
            exchange.request_body(text[end:])
        if not self._in_body:
            exchange.request_complete()
        return True

    def _skip_empty_lines(self) -> bool:
        """Passes over empty lines before a request line; False if one may have come by half."""
        text = self._input
        for _ in range(_MAX_EMPTY_LINES):
            if not text.startswith(b"\r\n", self._at):
                break
            self._at += 2
        return self._at < len(text) and text[self._at :] != b"\r"

    def _read_body(self, exchange: RequestSink) -> None:
        text, start = self._input, self._at
        try:
            end = self._at = self._body.end(text, start)
            self._parser.feed_data(text if end - start == len(text) else text[start:end])
            if self._body.ended is not self._complete:
                raise FramingError("it does not end where it should")
        except (HttpParserError, FramingError) as error:
            self._discarding = True
            exchange.request_broken(BadRequest(f"the request's body does not parse: {error}"))
            return
        pieces, self._pieces = self._pieces, []
        if len(pieces) > MANY_PIECES:
            self._rest()
        if pieces:
            exchange.request_body(pieces[0] if len(pieces) == 1 else b"".join(pieces))
        if self._complete:
            self._in_body = False
            exchange.request_complete()

    def _rest(self, resting: bool = True) -> None:
        """Stops reading until the other connections had their turn."""
        self._resting = resting
        self._update_reading()
        if resting:
            asyncio.get_running_loop().call_soon(self._rest, False)

    def _refuse(self, error: ProxyError) -> None:
        """Answers a request whose head cannot be read, and closes: nobody knows where it would end."""
        self._in_body = True
        self._transport.write(error_response(error, modern=False, keep_alive=False, http10=False, with_body=True))
        self._proxy.refused(self, error)
        self._close()

    def _update_reading(self) -> None:
        read = not (self._held or self._backlogged or self._resting)
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
        if (self._in_body or self._at < len(self._input)) and self._transport.can_write_eof():
            self._input, self._at = b"", 0
            self._held = self._backlogged = self._resting = False
            self._update_reading()
            self._transport.write_eof()
            self._linger = asyncio.get_running_loop().call_later(_LINGER, self._end_linger)
        else:
            self._transport.close()

    def _end_linger(self) -> None:
        """Closes for good, but not before the answer is sent, as long as the client takes some of it."""
        unsent = self._transport.get_write_buffer_size()
        last, times = self._unsent
        self._unsent = (unsent, times + 1 if unsent == last else 0)
        if unsent and self._unsent[1] < _MAX_STALL / _LINGER:
            self._linger = asyncio.get_running_loop().call_later(_LINGER, self._end_linger)
        else:
            self._transport.abort()


def _reset_on_close(transport: asyncio.Transport) -> None:
    sock = transport.get_extra_info("socket")
    if sock is not None:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
