"""HTTP/1.1 towards one backend: a connection that carries one exchange at a time, and those kept idle.

Each message is fed to httptools alone: a head up to its empty line, then its body up to its end, so that no callback
ever sees two messages joined. Bytes behind a response's end, or on an idle connection, close it. Responses without a
body (to HEAD; 204, 304) are known here; httptools would wait for one, so it is replaced after them.
"""

import asyncio
from collections.abc import Callable
from typing import Protocol, cast

from httptools import HttpParserError, HttpParserUpgrade, HttpResponseParser

from proxy.routing.errors import (
    BackendClosed,
    BadResponse,
    ConnectFailed,
    ConnectRefused,
    ConnectTimeout,
    FramingError,
    ProxyError,
)
from proxy.wire.framing import cursor_for
from proxy.wire.limits import MANY_PIECES, MAX_HEAD
from proxy.wire.response_head import ResponseFrame, ResponseHead, ResponseHeadReader

IDLE_LIMIT = 3.0
"""Seconds after which an idle connection is closed: uvicorn and Node close theirs after 5, and a request that crosses
their close on the wire cannot be repeated safely. Checked every half second, so none is older than 4."""
_MAX_INTERIM = 16  # 1xx responses before the final one


class ResponseSink(Protocol):
    """Who receives a response. Called on the event loop; after `response_complete` or `backend_failed` no more."""

    def interim(self, head: ResponseHead) -> None:
        """A 1xx response came."""
        ...

    def response_head(self, head: ResponseHead) -> None: ...

    def response_body(self, data: bytes) -> None: ...

    def flush_response(self) -> None:
        """What came in one read has been handed over: time to write."""
        ...

    def response_complete(self, *, reusable: bool) -> None:
        """The response ended as it should. `reusable`: the connection could carry another exchange."""
        ...

    def response_whole(self, head: ResponseHead, body: bytes, *, reusable: bool) -> None:
        """Head, body and end at once, instead of the three calls: the response came whole in one read."""
        ...

    def backend_failed(self, error: ProxyError) -> None:
        """The connection closed too early or the response does not parse; the connection is gone."""
        ...

    def hold_request(self, hold: bool) -> None:
        """The backend takes no more bytes for now (True), or again (False)."""
        ...


class BackendConnection(asyncio.Protocol):
    """One connection to a backend."""

    __slots__ = (
        "_at",
        "_body",
        "_complete",
        "_fed",
        "_frame",
        "_head",
        "_head_done",
        "_held",
        "_home",
        "_input",
        "_interims",
        "_parser",
        "_pieces",
        "_reading",
        "_resting",
        "_sink",
        "_to_head",
        "_transport",
        "idle_since",
    )

    def __init__(self, home: "BackendConnections") -> None:
        self.idle_since = 0.0
        self._home = home
        self._sink: ResponseSink | None = None
        self._input = b""
        self._at = 0  # how much of _input is read
        self._fed = 0  # how much of it the parser has seen, of a head that is not whole
        self._head: ResponseHead | None = None
        self._frame: ResponseFrame | None = None  # of the last final head
        self._reading = True
        self._held = False
        self._resting = False
        self._to_head = False
        self._interims = 0
        self._pieces: list[bytes] = []
        self._new_parser()

    # ---- used by the exchange
    def carry(self, sink: ResponseSink, *, to_head: bool) -> None:
        """Carries an exchange from now on; `to_head`: a HEAD request."""
        self._sink = sink
        self._to_head = to_head
        self._head = None
        self._interims = 0

    def hand_over(self, sink: ResponseSink) -> None:
        """Gives what is still to come of the response to another sink."""
        if self._sink is not None:
            self._sink = sink

    def write(self, data: bytes) -> None:
        if not self._transport.is_closing():  # lost already, and about to be told so
            self._transport.write(data)

    def hold(self, hold: bool) -> None:
        """Stops (True) or resumes reading the response."""
        self._held = hold
        self._update_reading()

    def _update_reading(self) -> None:
        read = not (self._held or self._resting)
        if read is self._reading or self._transport.is_closing():
            return
        self._reading = read
        if read:
            self._transport.resume_reading()
        else:
            self._transport.pause_reading()

    def _rest(self, resting: bool = True) -> None:
        """Stops reading until the other connections had their turn."""
        self._resting = resting
        self._update_reading()
        if resting:
            asyncio.get_running_loop().call_soon(self._rest, False)

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
    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)

    def data_received(self, data: bytes) -> None:
        if self._sink is None:
            self.drop()  # nothing was asked
            return
        self._input = self._input + data if self._input else data
        try:
            self._read(self._sink)
        except FramingError as error:
            self._fail(BadResponse(f"the backend's response does not parse: {error}"))
        except HttpParserError as error:
            self._fail(BadResponse(f"the backend's response does not parse: {error}"))
        except ProxyError as error:
            self._fail(error)

    def connection_lost(self, exc: Exception | None) -> None:
        self._home.lost(self)
        sink, head = self._sink, self._head
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

    # ---- httptools
    def on_headers_complete(self) -> None:
        self._head_done = True

    def on_body(self, data: bytes) -> None:
        self._pieces.append(data)

    def on_message_complete(self) -> None:
        self._complete = True

    # ---- reading
    def _read(self, sink: ResponseSink) -> None:
        while self._at < len(self._input):
            if self._head is None:
                if not self._read_head(sink):
                    return
            else:
                self._read_body(sink)
            if self._complete:
                reusable = self._end_exchange()
                sink.response_complete(reusable=reusable)
                return
        self._input, self._at = b"", 0
        sink.flush_response()

    def _read_head(self, sink: ResponseSink) -> bool:
        """Reads a head if it is there whole; False: nothing more to read now. Raises BadResponse, HttpParserError."""
        text, start = self._input, self._at
        end = text.find(b"\r\n\r\n", max(start, self._fed - 3)) + 4
        if (end if end >= 4 else len(text)) - start > MAX_HEAD:
            raise BadResponse(f"the backend's head has more than {MAX_HEAD} bytes")
        if end < 4:
            self._feed(text[max(start, self._fed) :])
            self._fed = len(text)
            return False
        head = self._home.heads.read(text[start:end], to_head=self._to_head, before=self._frame)
        whole = not head.frame.bodyless and len(text) - end == head.length
        seen, stop = max(start, self._fed), len(text) if whole else end
        self._complete = self._head_done = False
        self._feed(text if not seen and stop == len(text) else text[seen:stop])
        if not self._head_done:
            raise BadResponse("the backend's head does not end where it seems to")
        self._at, self._fed = stop, 0
        if head.frame.interim:
            self._interims += 1
            if self._interims > _MAX_INTERIM:
                raise BadResponse(f"the backend sent more than {_MAX_INTERIM} interim responses")
            self._complete = False
            sink.interim(head)
            return True
        self._head, self._frame = head, head.frame
        if whole:
            self._hand_over_whole(sink, head, text[end:])
            return False
        if head.frame.bodyless:
            if not self._complete:
                self._new_parser()
            self._complete = True
        else:
            self._body = cursor_for(head.length, chunked=head.frame.chunked)
        sink.response_head(head)
        return True

    def _hand_over_whole(self, sink: ResponseSink, head: ResponseHead, body: bytes) -> None:
        self._pieces.clear()  # the one piece is this body
        if not self._complete:
            raise BadResponse("the backend's body does not end where it should")
        reusable = self._end_exchange()
        sink.response_whole(head, body, reusable=reusable)

    def _read_body(self, sink: ResponseSink) -> None:
        text, start = self._input, self._at
        end = self._at = self._body.end(text, start)
        self._feed(text if end - start == len(text) else text[start:end])
        pieces, self._pieces = self._pieces, []
        if len(pieces) > MANY_PIECES:
            self._rest()
        if pieces:
            sink.response_body(pieces[0] if len(pieces) == 1 else b"".join(pieces))
        if self._body.ended is not self._complete:
            raise BadResponse("the backend's body does not end where it should")

    def _feed(self, data: bytes) -> None:
        try:
            self._parser.feed_data(data)
        except HttpParserUpgrade:
            raise BadResponse("the backend switches protocols") from None

    def _end_exchange(self) -> bool:
        """Parts from the exchange, whose response is complete; True if the connection could carry another."""
        head, clean = self._head, self._at == len(self._input)
        self._sink, self._head, self._input, self._at = None, None, b"", 0
        # Unsent bytes: the backend answered before it had read the request.
        return (
            head is not None
            and head.frame.keep_alive
            and clean
            and not self._transport.is_closing()
            and not self._transport.get_write_buffer_size()
        )

    def _fail(self, error: ProxyError) -> None:
        sink, self._sink = self._sink, None
        self._transport.abort()
        if sink is not None:
            sink.backend_failed(error)

    def _new_parser(self) -> None:
        self._parser = HttpResponseParser(self)
        self._complete = self._head_done = False


class BackendConnections:
    """The connections to one backend. `connect_timeout` in seconds; `clock` a monotonic clock in seconds."""

    def __init__(self, host: str, port: int, *, connect_timeout: float, clock: Callable[[], float]) -> None:
        self.heads = ResponseHeadReader()
        self.host = host
        self.port = port
        self.connect_timeout = connect_timeout
        self._clock = clock
        self._idle: list[BackendConnection] = []  # the longest idle first
        self._closed = False

    def lease(self) -> BackendConnection | None:
        """An idle connection, the last one used first, or None: then dial."""
        while self._idle:
            connection = self._idle.pop()
            if not connection.is_closing:
                return connection
        return None

    async def dial(self) -> BackendConnection:
        """A new connection. Raises ConnectFailed (ConnectRefused where nobody listens), ConnectTimeout."""
        loop = asyncio.get_running_loop()
        try:
            async with asyncio.timeout(self.connect_timeout):
                _, connection = await loop.create_connection(lambda: BackendConnection(self), self.host, self.port)
        except TimeoutError:
            raise ConnectTimeout("the backend did not accept the connection in time") from None
        except ConnectionRefusedError:
            raise ConnectRefused("the backend refused the connection") from None
        except OSError:
            raise ConnectFailed("the backend cannot be reached") from None
        if connection.is_closing:
            raise ConnectFailed("the backend closed the connection at once")
        return connection

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
