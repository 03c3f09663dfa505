"""One client's requests and their answers: each request is handed to an exchange, one after the other.

Pipelined requests wait until the one before is answered. A client that hangs up, even on a quiet stream, ends its
exchange at once.
"""

import asyncio
from abc import abstractmethod
from typing import Any

from proxy.routing.errors import ProxyError
from proxy.wire.closing import Lingering, reset_on_close
from proxy.wire.limits import MANY_PIECES
from proxy.wire.line import Line
from proxy.wire.parsing import joined
from proxy.wire.request_reader import RequestReader
from proxy.wire.response_head import error_response
from proxy.wire.sinks import ClientSide, RequestSink

_MAX_PIPELINED = 64 * 1024  # bytes that wait behind a running exchange before reading stops
_MAX_TURN = 16  # requests read in one turn of the loop: other clients wait meanwhile


class Conversation(Line):
    """One connection from a client, as far as it carries requests and answers."""

    __slots__ = (
        "_backlogged",
        "_discarding",
        "_exchange",
        "_in_head",
        "_linger",
        "_proxy",
        "_reader",
        "_running",
        "_since",
        "retiring",
        "writable",
    )

    def __init__(self, proxy: ClientSide[Any]) -> None:
        super().__init__()
        self._proxy = proxy
        self._reader = RequestReader()
        self._exchange: RequestSink | None = None
        self._in_head = False  # some of a head has come, and is awaited to the end
        self._since = proxy.patience.now  # when that, the last of the body or of the last request came; in ticks
        self._running = False
        self._discarding = False  # whatever still comes
        self._backlogged = False  # too much has come that has to wait
        self._linger: Lingering | None = None
        self.retiring = False
        """True if no further request is served on this connection."""
        self.writable = True
        """False while the client takes no more bytes."""

    # ---- used by the exchange
    hold_body = Line.hold

    def serve_by(self, exchange: RequestSink, *, instead_of: RequestSink | None = None) -> None:
        """This is whose request is under way; if `instead_of` was, which may have ended meanwhile."""
        if self._exchange is instead_of:
            self._exchange = exchange

    def exchange_done(self, *, keep_alive: bool) -> None:
        """The exchange is over and all of its answer written; the next request's turn, if `keep_alive`."""
        self._exchange = None
        self._held = False
        self._since = self._proxy.patience.now
        if not keep_alive or self.retiring or self._reader.in_body:
            self._close()
        elif self._reader.text or not self._reading:
            self._update_reading()
            self._run()

    def abort(self, *, reset: bool = False) -> None:
        """Cuts the connection, what is not written yet included. `reset`: so that it cannot pass for a clean end."""
        self._exchange = None
        self._discarding = True
        if reset:
            reset_on_close(self._transport)
        self._transport.abort()

    def cut(self) -> None:
        """Closes behind what is written already; the response is visibly incomplete."""
        self._exchange = None
        self._discarding = True
        self._transport.close()

    def rest(self) -> None:
        """The exchange may last for days: what only the next request would need is let go of."""
        self._reader.rest()

    # ---- asyncio
    def data_received(self, data: bytes) -> None:
        if self._discarding:
            return
        reader = self._reader
        if reader.text:
            reader.text += data
        elif self._exchange is None and self.writable:
            frame = reader.before
            if frame is not None and frame.reader is self._proxy.heads:
                alike = frame.alike(data)
                if alike is not None and self._proxy.begin_alike(self, frame, alike):
                    return
            reader.text = data
        else:
            reader.text = data
        self._run()

    def eof_received(self) -> None:
        """A client that shuts its side has hung up: this is how HTTP clients cancel (Streamable HTTP, Cancellation)."""
        self._leave()

    def pause_writing(self) -> None:
        self.writable = False
        if self._exchange is not None:
            self._exchange.hold_response(True)

    def resume_writing(self) -> None:
        self.writable = True
        if self._exchange is not None:
            self._exchange.hold_response(False)
        elif self._reader.at < len(self._reader.text):
            self._run()

    # ---- reading
    def _run(self) -> None:
        """Reads what is there: heads, bodies, request after request, as long as no answer has to be awaited.

        A client that pipelines gets so many requests read in one turn of the loop, and none while it takes no answers.
        """
        if self._running:  # an exchange ended within the loop below, which goes on by itself
            return
        self._running = True
        reader, heads = self._reader, 0
        try:
            while reader.at < len(reader.text) and not self._discarding:
                exchange = self._exchange
                if exchange is None:
                    heads += 1
                    if heads > _MAX_TURN or not self.writable or not self._begin(reader):
                        break
                elif reader.in_body:
                    self._pass_body(reader, exchange)
                else:
                    break
                exchange = self._exchange
                if exchange is not None and not (reader.in_body and reader.at < len(reader.text)):
                    exchange.flush_request()
        finally:
            self._running = False
        if reader.at == len(reader.text):
            reader.text, reader.at, self._backlogged = b"", 0, False
        else:
            self._keep_rest(reader)
            if heads > _MAX_TURN:
                asyncio.get_running_loop().call_soon(self._run)
        if self._held or self._backlogged or not self._reading:
            self._update_reading()
        if reader.in_body:
            self._await_body()

    def _begin(self, reader: RequestReader) -> bool:
        """Begins the exchange of the next request if its head is there whole; with what came of its body."""
        try:
            head = reader.read_head(self._proxy.heads)
        except ProxyError as error:
            self._refuse(error)
            return False
        if head is None:
            self._await_head()
            return False
        self._in_head = False
        exchange = self._exchange = self._proxy.begin(self, head)
        if reader.pieces:
            exchange.request_body(reader.pieces.pop())  # all of the body: a whole one comes in one piece
        if not reader.in_body:
            exchange.request_complete()
        return True

    def _pass_body(self, reader: RequestReader, exchange: RequestSink) -> None:
        try:
            reader.read_body()
        except ProxyError as error:
            self._discarding = True
            exchange.request_broken(error)
            return
        if len(reader.pieces) > MANY_PIECES:
            self._rest()
        if reader.pieces:
            exchange.request_body(joined(reader.pieces))
        if not reader.in_body:
            exchange.request_complete()

    @abstractmethod
    def _await_head(self) -> None:
        """Some of a head has come; more is to come."""

    @abstractmethod
    def _await_body(self) -> None:
        """More of a body is to come, from now on."""

    def _keep_rest(self, reader: RequestReader) -> None:
        """Input is left that has to wait: it is kept, and if it is much, nothing more is read."""
        if reader.at > _MAX_PIPELINED:
            reader.forget_read()
        waits = self._exchange is None or not reader.in_body
        self._backlogged = waits and len(reader.text) - reader.at > _MAX_PIPELINED

    def _may_read(self) -> bool:
        return not (self._held or self._resting or self._backlogged)

    # ---- ending
    def _refuse(self, error: ProxyError) -> None:
        """Answers a request whose head cannot be read, and closes: nobody knows where it would end."""
        self._transport.write(error_response(error, modern=False, keep_alive=False, http10=False, with_body=True))
        self._proxy.refused(self, error)
        self._close(comes_more=True)

    def _leave(self) -> None:
        exchange, self._exchange = self._exchange, None
        self._discarding = True
        if exchange is not None:
            exchange.client_gone()

    def _close(self, *, comes_more: bool = False) -> None:
        """Closes behind what is written. While the client may still be sending, its side is given a moment."""
        self._discarding = True
        if self._transport.is_closing():
            return
        reader = self._reader
        if (comes_more or reader.in_body or reader.at < len(reader.text)) and self._transport.can_write_eof():
            reader.text, reader.at = b"", 0
            self._held = self._backlogged = self._resting = False
            self._update_reading()
            self._linger = Lingering(self._transport)
        else:
            self._transport.close()
