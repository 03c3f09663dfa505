"""How an independent parser, h11, reads what a client, a backend or the proxy has sent."""

from typing import NamedTuple

import h11


class Read(NamedTuple):
    """One message, as h11 reads it."""

    start: tuple[bytes, ...]
    """Method and target; or the status."""
    fields: tuple[tuple[bytes, bytes], ...]
    """Names in lower case."""
    body: bytes


class Reading(NamedTuple):
    """What h11 makes of all that one side sent."""

    messages: list[Read]
    """Those that are whole."""
    waits: bool
    """True if it is within a message and waits for more of it."""
    error: str
    """What it could not read, or empty."""
    rest: bytes
    """What it did not look at, behind the last message of a connection."""
    half: bytes = b""
    """Of the body of a message that is not whole."""


_LIMIT = 2**20  # bytes of a head; h11's own limit is smaller than ours


def _protocol(role: type[h11.CLIENT] | type[h11.SERVER]) -> h11.Connection:
    return h11.Connection(role, max_incomplete_event_size=_LIMIT)


class RequestReader:
    """Reads the requests of one connection as a server based on h11 would, if it answered each at once."""

    def __init__(self) -> None:
        self.messages: list[Read] = []
        """Those that are whole."""
        self._connection = _protocol(h11.SERVER)
        self._request: h11.Request | None = None
        self._body: list[bytes] = []
        self._error = ""
        self._over = False

    def feed(self, data: bytes) -> None:
        """Some more bytes came."""
        connection = self._connection
        if self._over or not data:
            return
        connection.receive_data(data)
        while not self._over:
            try:
                event = connection.next_event()
            except h11.RemoteProtocolError as error:
                self._over, self._error = True, str(error)
                return
            if isinstance(event, h11.Request):
                self._request, self._body = event, []
            elif isinstance(event, h11.Data):
                self._body.append(bytes(event.data))
            elif isinstance(event, h11.EndOfMessage) and self._request is not None:
                self._end(self._request)
            else:  # it needs more
                return

    def _end(self, request: h11.Request) -> None:
        start = (bytes(request.method), bytes(request.target))
        fields = tuple((bytes(name), bytes(value)) for name, value in request.headers)
        self.messages.append(Read(start, fields, b"".join(self._body)))
        self._request = None
        connection = self._connection
        connection.send(h11.Response(status_code=404, headers=[("Content-Length", "0")]))
        connection.send(h11.EndOfMessage())
        self._over = connection.our_state is not h11.DONE or connection.their_state is not h11.DONE
        if not self._over:
            connection.start_next_cycle()

    def reading(self) -> Reading:
        """What was made of all that came."""
        rest = b"" if self._error else self._connection.trailing_data[0]
        waits = not self._over and (self._request is not None or bool(rest))
        return Reading(self.messages, waits, self._error, rest)


def read_requests(text: bytes) -> Reading:
    """The requests that a server based on h11 would see, if it answered each at once."""
    reader = RequestReader()
    reader.feed(text)
    return reader.reading()


def read_responses(text: bytes, verbs: list[bytes], *, closed: bool = True) -> Reading:
    """The final responses that a client based on h11 would see to requests of these methods, one after the other.

    `closed`: the connection has ended behind `text`. Interim responses are messages of their own.
    """
    messages: list[Read] = []
    rest = text
    for verb in verbs:
        if not rest:
            break
        connection = _protocol(h11.CLIENT)
        connection.send(h11.Request(method=verb, target="/", headers=[("Host", "x")]))
        connection.send(h11.EndOfMessage())
        connection.receive_data(rest)
        if closed:
            connection.receive_data(b"")
        response, body = None, b""
        while True:
            try:
                event = connection.next_event()
            except h11.RemoteProtocolError as error:
                # A close in the middle of a message is no fault of what was sent before it.
                cut = response is not None and connection.trailing_data[1] and "complete" in str(error)
                return Reading(messages, bool(cut), "" if cut else str(error), connection.trailing_data[0], body)
            if isinstance(event, h11.InformationalResponse):
                fields = tuple((bytes(n), bytes(v)) for n, v in event.headers)
                messages.append(Read((b"%d" % event.status_code,), fields, b""))
            elif isinstance(event, h11.Response):
                response, body = event, b""
            elif isinstance(event, h11.Data):
                body += event.data
            elif isinstance(event, h11.EndOfMessage) and response is not None:
                fields = tuple((bytes(n), bytes(v)) for n, v in response.headers)
                messages.append(Read((b"%d" % response.status_code,), fields, body))
                rest = connection.trailing_data[0]
                break
            else:
                return Reading(messages, True, "", connection.trailing_data[0], body)
    return Reading(messages, False, "", rest)
