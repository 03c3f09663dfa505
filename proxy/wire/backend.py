"""HTTP/1.1 towards one backend: a connection that carries one exchange at a time.

Bytes behind a response's end, or on an idle connection, close it.
"""

import ssl
from typing import Protocol

from proxy.routing.errors import BackendClosed, ProxyError
from proxy.wire.line import Line
from proxy.wire.response_head import ResponseHeadReader
from proxy.wire.response_reader import BEGUN, ENDED, HEADLESS, ResponseReader
from proxy.wire.sinks import ResponseSink


class Home(Protocol):
    """Where a connection belongs: the connections to its backend."""

    heads: ResponseHeadReader

    def keep(self, connection: "BackendConnection") -> None:
        """Keeps a connection for the next exchange."""
        ...

    def lost(self, connection: "BackendConnection") -> None:
        """The connection has closed."""
        ...

    def complain(self, error: ssl.SSLError) -> None:
        """TLS failed on a connection that had been made."""
        ...


class BackendConnection(Line):
    """One connection to a backend."""

    __slots__ = ("_home", "_reader", "_sink", "idle_since")

    def __init__(self, home: Home) -> None:
        super().__init__()
        self.idle_since = 0.0
        """When it was last given back; for whoever keeps it."""
        self._home = home
        self._reader = ResponseReader(home.heads)
        self._sink: ResponseSink | None = None

    # ---- used by the exchange
    def carry(self, sink: ResponseSink, *, to_head: bool, lasting: bool = False) -> None:
        """Carries an exchange from now on; `to_head`: a HEAD request; `lasting`: one that may last for days."""
        self._sink = sink
        self._reader.begin(to_head=to_head, lasting=lasting)

    def hand_over(self, sink: ResponseSink) -> None:
        """Gives what is still to come of the response to another sink."""
        if self._sink is not None:
            self._sink = sink

    def serves(self, sink: ResponseSink) -> bool:
        """True while more is to come of this sink's response."""
        return self._sink is sink

    def give_back(self) -> None:
        """The exchange is over and left the connection clean: it may carry another."""
        if self._held:
            self.hold(False)
        self._home.keep(self)

    def drop(self) -> None:
        """Closes at once, whatever is under way: to the backend this is the client's hang-up."""
        self._sink = None
        self._transport.abort()

    @property
    def is_closing(self) -> bool:
        return self._transport.is_closing()

    # ---- asyncio
    def data_received(self, data: bytes) -> None:
        sink, reader = self._sink, self._reader
        if sink is None:
            self.drop()  # nothing was asked
            return
        if not reader.text:
            if reader.head is not None:
                content = reader.body.content_of(data)
                if content is not None:
                    sink.response_chunk(content, data)
                    return
            elif (alike := reader.alike(data)) is not None:
                self._sink = None
                sink.response_whole(*alike, reusable=self._is_clean(), text=data)
                return
        reader.text = reader.text + data if reader.text else data
        try:
            progress = reader.read(sink)
            if reader.crowded:
                self._rest()
            if progress is BEGUN:
                sink.flush_response()
            elif progress is not HEADLESS:
                head, self._sink = reader.head, None
                reusable = reader.end() and self._is_clean()
                if progress is ENDED or head is None:
                    sink.response_complete(reusable=reusable)
                else:
                    body = reader.pieces.pop() if reader.pieces else b""  # what comes at once comes in one piece
                    sink.response_whole(head, body, reusable=reusable)
        except ProxyError as error:
            self._fail(error)

    def connection_lost(self, exc: Exception | None) -> None:
        self._home.lost(self)
        if isinstance(exc, ssl.SSLError):  # such as an alert: it does not take our certificate
            self._home.complain(exc)
        sink, head = self._sink, self._reader.head
        self._sink = None
        if sink is None:
            return
        if exc is None and head is not None and head.until_close:
            sink.response_complete(reusable=False)
        else:
            sink.backend_failed(BackendClosed("the backend closed the connection before its response was complete"))

    def pause_writing(self) -> None:
        if self._sink is not None:
            self._sink.hold_request(True)

    def resume_writing(self) -> None:
        if self._sink is not None:
            self._sink.hold_request(False)

    # ----
    def _is_clean(self) -> bool:
        """True unless it is closing, or bytes are unsent: then the backend answered before it had read the request."""
        return not self._transport.is_closing() and not self._transport.get_write_buffer_size()

    def _fail(self, error: ProxyError) -> None:
        sink, self._sink = self._sink, None
        self._transport.abort()
        if sink is not None:
            sink.backend_failed(error)
