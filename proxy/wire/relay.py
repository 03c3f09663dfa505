"""One response on its way from a backend to the client.

Head, body and end pass as they come, reframed where the two sides differ; a watched answer passes through a Watch, so
that each piece leaves after what it teaches is stored. Session ids get their tag. Once a response has begun, failure is
shown by cutting the connection, never by a clean end.
"""

from typing import Protocol

from proxy.routing.errors import ProxyError
from proxy.routing.ownership import Learned, may_matter
from proxy.wire.backend import BackendConnection
from proxy.wire.client import ClientConnection
from proxy.wire.comments import Border
from proxy.wire.destination import Destination, Lane
from proxy.wire.events import MESSAGE_LIMIT, reader_for
from proxy.wire.framing import as_chunk
from proxy.wire.learning import Lessons, Watch, note_lesson, note_session
from proxy.wire.request_frame import RequestHead
from proxy.wire.response_head import ResponseHead, response_for_client
from proxy.wire.surroundings import Surroundings

_POLL = "tasks/get"
_JSON, _EVENTS = b"application/json", b"text/event-stream"


class Outcome(Protocol):
    """Who is told how a response ended: the exchange. One of the two is called, once."""

    @property
    def request_received(self) -> bool:
        """True if the request's last byte has come from the client."""
        ...

    def relayed(self, *, reusable: bool) -> None:
        """The response is written whole. `reusable`: the backend's connection could carry another exchange."""
        ...

    def broken(self, error: ProxyError) -> None:
        """The backend's side ended too early; `Relay.status` tells whether the client has seen a head."""
        ...


class Relay:
    """Passes one response on. A ResponseSink for the backend's connection."""

    __slots__ = (
        "_around",
        "_border",
        "_chunked",
        "_client",
        "_ended",
        "_entire",
        "_exchange",
        "_out",
        "_request",
        "_reusable",
        "_watch",
        "backend_status",
        "bytes_out",
        "connection",
        "destination",
        "first_byte",
        "keep_alive",
        "status",
        "streamed",
    )

    def __init__(
        self,
        around: Surroundings,
        exchange: Outcome,
        client: ClientConnection,
        request: RequestHead,
        destination: Destination,
        connection: BackendConnection | None,
    ) -> None:
        self.destination = destination
        self.connection = connection
        """The backend's connection as long as it is this response's; None after its end."""
        self.status = 0
        """Of the head that the client was sent; 0: none yet."""
        self.first_byte = -1.0
        """When the response's head came; monotonic seconds, negative: not yet."""
        self.bytes_out = 0
        self.keep_alive = False
        """True if the client's connection is kept after this response."""
        self.streamed = False
        """True for server-sent events."""
        self._around = around
        self._exchange = exchange
        self._client = client
        self._request = request
        self._out: list[bytes] = []
        self._chunked = False
        self._border: Border | None = None  # of an event stream that may get comments
        self._watch: Watch | None = None
        self._entire = False  # nothing leaves before all is there
        self._ended = False  # the backend's response is complete
        self._reusable = False

    @property
    def lane(self) -> Lane:
        """That of its pool."""
        return self.destination.lane

    @property
    def measured(self) -> bool:
        """True if the client can tell from the head where the response ends."""
        return self._chunked or not self._request.frame.http10

    @property
    def outcome(self) -> str:
        """What came of the choice of this backend, as in RequestRecord."""
        return "served" if self._watch is None else self._watch.outcome

    # ---- from the backend: ResponseSink
    def interim(self, head: ResponseHead) -> None:
        if not self._request.frame.http10:  # HTTP/1.0 knows none (RFC 9110, 15.2)
            self._client.write(response_for_client(head, http10=False, keep_alive=True, tag=self._tag))

    def response_head(self, head: ResponseHead) -> None:
        request, response = self._request.frame, head.frame
        http10, unmeasured = request.http10, head.length is None and not response.bodyless
        self._begin(response.status, keep_alive=not (unmeasured and http10))
        self._chunked = unmeasured and not http10
        if request.teaches and not response.bodyless:
            self._start_watch(head)
        if response.content_type == _EVENTS:
            self.streamed = True
            if not request.lines:
                request.let_go()
            self._around.counters.stream_opened(self.destination.lane.pool.name)
            if self.destination.lane.comment_every is not None and unmeasured and not response.encoded:
                self._border = Border()
        if response.session_prefix or request.routing.is_session:
            member = self.destination.choice.member
            note_session(member, self.destination.session, request.routing, response, self._around.clock())
        if request.label == _POLL and response.content_type == _JSON:
            # Its end is held back anyway; without its head, an owner that dies half way can be asked again.
            self._entire = head.length is not None and head.length <= MESSAGE_LIMIT
        self._out.append(response_for_client(head, http10=http10, keep_alive=self.keep_alive, tag=self._tag))

    def response_body(self, data: bytes) -> None:
        if self._watch is None:
            self._pass_on(data)
            return
        self._pass_on(self._watch.feed(data))
        if self._watch.waiting and self.connection is not None:
            self.connection.hold(True)

    def flush_response(self) -> None:
        out = self._out
        if out and not self._entire:
            self._out = []
            self._client.write(b"".join(out))

    def response_chunk(self, data: bytes, chunk: bytes) -> None:
        border, watch = self._border, self._watch
        if (
            not self._chunked
            or self._out
            or self._entire
            or (watch is not None and not watch.passes(data))
            or (border is not None and border.commented)
        ):
            self.response_body(data)
            self.flush_response()
            return
        if border is not None:
            border.passes(data)
        self.bytes_out += len(data)
        self._client.write(chunk)

    def response_complete(self, *, reusable: bool) -> None:
        self._ended, self._reusable = True, reusable
        self._tell(self.status)
        if self._watch is not None:
            self._pass_on(self._watch.end())
            if self._watch.waiting:
                self.flush_response()
                return
        self._finish()

    def response_whole(self, head: ResponseHead, body: bytes, *, reusable: bool, text: bytes = b"") -> None:
        if self._is_plain(head, body):
            status, member = head.frame.status, self.destination.choice.member
            self._begin(status, keep_alive=True)
            if status >= 500 or member.conduct.failures:  # as `_tell`, which is called for the rest
                self._tell(status)
            self.bytes_out = len(body)
            http10 = self._request.frame.http10
            self._client.write(response_for_client(head, http10=http10, keep_alive=self.keep_alive, tag="") + body)
            self._exchange.relayed(reusable=reusable)
            return
        self.response_head(head)
        self.response_body(body)
        self.response_complete(reusable=reusable)

    def backend_failed(self, error: ProxyError) -> None:
        self.connection = None
        if self._entire:  # the client has seen nothing of it
            self._out, self.status, self.first_byte, self.bytes_out = [], 0, -1.0, 0
        member = self.destination.choice.member
        self.destination.lane.pool.fitness.failed(member, error, self._around.clock())
        self.flush_response()
        self._exchange.broken(error)

    def hold_request(self, hold: bool) -> None:
        self._client.hold_body(hold)

    # ---- from the client
    def hold_response(self, hold: bool) -> None:
        """The client takes no more bytes for now (True), or again (False)."""
        if self.connection is not None:
            self.connection.hold(hold or (self._watch is not None and self._watch.waiting))

    def comment(self) -> None:
        """Sends a comment, if this is an event stream of the kind that takes one, and none of its events is begun."""
        comment = b"" if self._border is None or self._out else self._border.take_comment()
        if comment:
            self._client.write(as_chunk(comment) if self._chunked else comment)

    def drop(self) -> None:
        """Ends the response at once: the backend's connection closes, nothing more is written."""
        self._out = []
        self._watch = None  # the two know each other: without this, only gc would free them
        connection, self.connection = self.connection, None
        if connection is not None:
            connection.drop()

    # ----
    def _tell(self, status: int) -> None:
        """The backend has answered, with this status; where that changes nothing, the pool is not told."""
        member = self.destination.choice.member
        if status >= 500 or member.conduct.failures:
            self.destination.lane.pool.fitness.answered(member, status, self._around.clock())

    def _begin(self, status: int, *, keep_alive: bool) -> None:
        self.status = status
        self.first_byte = self._around.clock()
        self.keep_alive = (
            keep_alive
            and self._request.frame.keep_alive
            and self._exchange.request_received
            and not self._client.retiring
        )

    def _is_plain(self, head: ResponseHead, body: bytes) -> bool:
        """True for a response that came whole and has nothing to be learned from, tagged or counted."""
        request, response = self._request.frame, head.frame
        of_session = response.session_prefix or (request.session_prefix and request.routing.is_session)
        if of_session or response.content_type == _EVENTS:
            return False
        if not request.teaches:
            return True
        method = self._request.routing.method
        return response.content_type == _JSON and not response.encoded and not may_matter(body, method)

    def _start_watch(self, head: ResponseHead) -> None:
        reader = reader_for(head.frame.content_type)
        if reader is None:
            return
        around, destination, routing = self._around, self.destination, self._request.routing
        if head.frame.encoded:
            around.counters.unlearned("encoded")
            return
        lessons = Lessons(
            method=routing.method,
            name=routing.decoded_name() if routing.is_task else None,
            pool=destination.lane.pool,
            backend=destination.choice.member.backend.id,
            pins=around.pins,
            tally=around.counters,
            noticed=self._noticed,
            found=destination.choice.source == "search" and routing.method == "tasks/get",
        )
        self._watch = Watch(reader, lessons, background=around.background, released=self._released)

    def _noticed(self, learned: Learned) -> None:
        destination, client = self.destination, self._client
        note_lesson(
            learned,
            request=self._request.routing,
            pool=destination.lane.pool.name,
            backend=destination.choice.member.backend.id,
            rounds=self._around.rounds,
            memory=client.memory,
            peer=client.peer,
        )

    def _released(self, held: bytes) -> None:
        """The pin store has answered: what was held back leaves."""
        if self._watch is None:
            return
        self._pass_on(held)
        if self._ended:
            self._finish()
            return
        self.flush_response()
        if self.connection is not None:
            self.connection.hold(not self._client.writable)

    def _pass_on(self, data: bytes) -> None:
        if self._border is not None and data:
            data = self._border.passes(data)
        if not data:
            return
        self.bytes_out += len(data)
        if self._chunked:
            self._out += (b"%x\r\n" % len(data), data, b"\r\n")
        else:
            self._out.append(data)

    def _finish(self) -> None:
        if self._border is not None:
            border, self._border = self._border, None
            self._pass_on(border.ends())
        if self._chunked:
            self._out.append(b"0\r\n\r\n")
        self._entire = False
        self.flush_response()
        self._exchange.relayed(reusable=self._reusable)

    @property
    def _tag(self) -> str:
        """What goes before the ids of the backend's sessions; empty where sessions are not kept."""
        return self.destination.choice.member.tag if self.destination.lane.pool.sticky else ""
