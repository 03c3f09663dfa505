"""The life of one request, top to bottom: the walk.

begin -> admission (421, 403) -> destination: owner by pin or tag, or route and balance (404, 503) -> a leased
connection, or one dialled -> the request's head and body go out as they come -> the response's head (no other backend
past this line) -> its body, each piece after what it teaches is stored -> one RequestRecord, in `_record`, whatever
happened.

While nothing has to be awaited, all of it happens in plain calls from `data_received`, without a task. Only dialling
and a pin store that answers later become tasks, and then join the same methods.
"""

from collections.abc import Callable, Coroutine
from dataclasses import dataclass
from typing import Protocol

from proxy.background import Background
from proxy.pins.store import PinStore
from proxy.records import CLIENT_GONE, KNOWN_METHODS, RequestRecord
from proxy.routing.admission import Admission
from proxy.routing.errors import BadRequest, HeadTooLarge, NoBackend, OwnerDown, ProxyError
from proxy.routing.ownership import may_matter, short_digest
from proxy.routing.pools import Member
from proxy.routing.retries import may_try_another
from proxy.wire.backend import BackendConnection, BackendConnections
from proxy.wire.client import ClientConnection
from proxy.wire.destination import Destination, Directory
from proxy.wire.events import reader_for
from proxy.wire.learning import Tally, Watch
from proxy.wire.request_head import RequestHead, request_for_backend
from proxy.wire.response_head import ResponseHead, error_response, response_for_client

_MAX_WAITING_BODY = 64 * 1024  # bytes of a request's body kept while its backend is dialled
_JSON, _EVENTS = b"application/json", b"text/event-stream"


class Counters(Tally, Protocol):
    """Who is told what happens between heads and records."""

    def record(self, record: RequestRecord) -> None:
        """One request is over."""
        ...

    def retried(self, pool: str, reason: str) -> None: ...

    def stream_opened(self, pool: str) -> None: ...

    def stream_closed(self, pool: str) -> None: ...


@dataclass(slots=True)
class Surroundings:
    """What all exchanges share."""

    directory: Directory
    pins: PinStore
    admission: Admission
    counters: Counters
    background: Background
    clock: Callable[[], float]
    """Monotonic, in seconds."""


class Exchange:
    """One request and its response. A RequestSink for the client's side, a ResponseSink for the backend's."""

    __slots__ = (
        "_around",
        "_backend",
        "_backend_status",
        "_bytes_in",
        "_bytes_out",
        "_chunked",
        "_client",
        "_destination",
        "_ended",
        "_error",
        "_first_byte",
        "_head",
        "_keep_alive",
        "_over",
        "_request_complete",
        "_reusable",
        "_started",
        "_status",
        "_streamed",
        "_task",
        "_to_backend",
        "_to_client",
        "_tried",
        "_under_way",
        "_watch",
    )

    def __init__(self, around: Surroundings, client: ClientConnection, head: RequestHead) -> None:
        self._around = around
        self._client = client
        self._head = head
        self._task: str | None = None  # the id, for a request about a task
        self._destination: Destination | None = None
        self._tried: list[Member] = []
        self._under_way = False  # counted as in flight at the destination
        self._backend: BackendConnection | None = None
        self._to_backend: list[bytes] = []
        self._to_client: list[bytes] = []
        self._request_complete = False
        self._error: ProxyError | None = None  # to be answered
        self._status = 0  # of the response that the client was sent; 0: none yet
        self._backend_status = 0
        self._keep_alive = False
        self._chunked = False
        self._watch: Watch | None = None
        self._streamed = False
        self._ended = False  # the backend's response is complete
        self._reusable = False
        self._over = False
        self._bytes_in = 0
        self._bytes_out = 0
        self._first_byte = -1.0
        self._started = around.clock()

    def begin(self) -> None:
        """Decides where the request goes and leases a connection there, or starts dialling one."""
        head, around = self._head, self._around
        try:
            if head.fault is not None:
                raise head.fault
            around.admission.check(host=head.frame.host, name=head.routing.host, origin=head.frame.origin)
            if head.routing.is_task:
                self._task = head.routing.decoded_name()
            found = around.directory.find(head.routing, self._task)
        except ProxyError as error:
            self._error = error  # answered by flush_request, when what came with the head has been read
            return
        if isinstance(found, Destination):
            self._go_to(found)
        else:
            around.background.spawn(self._go_later(found), "find a task's owner")

    # ---- reaching the backend
    async def _go_later(self, finding: Coroutine[None, None, Destination]) -> None:
        try:
            found = await finding
        except ProxyError as error:
            self._error = error
        else:
            if not self._over:
                self._go_to(found)
        self.flush_request()

    def _go_to(self, destination: Destination) -> None:
        self._destination = destination
        _, lane, choice = destination
        lane.pool.start(choice.member)
        self._under_way = True
        connections = lane.connections[choice.member]
        connection = connections.lease()
        if connection is None:
            self._around.background.spawn(self._dial(connections), "dial a backend")
        else:
            self._attach(connection, destination)

    async def _dial(self, connections: BackendConnections) -> None:
        try:
            connection = await connections.dial()
        except ProxyError as error:
            if not self._over:
                self._attempt_failed(error)
            return
        if self._over or self._destination is None:
            connection.give_back()
            return
        self._attach(connection, self._destination)
        self._client.hold_body(False)
        self.flush_request()

    def _attempt_failed(self, failure: ProxyError) -> None:
        """The chosen backend could not be reached: another one's turn, or an answer."""
        failed = self._destination
        if failed is None:
            return
        self._leave_backend()
        if may_try_another(failure, bound=failed.choice.bound):
            self._tried.append(failed.choice.member)
            try:
                other = self._around.directory.find_another(self._head.routing, self._task, failed, self._tried)
            except NoBackend:
                pass  # all were tried: the last failure is the answer
            else:
                self._around.counters.retried(failed.lane.pool.name, failure.reason)
                self._go_to(other)
                self.flush_request()
                return
        if failed.choice.bound:
            failure = OwnerDown("the backend that owns this task cannot be reached")
        self._error = failure
        self._answer(failure)

    def _attach(self, connection: BackendConnection, destination: Destination) -> None:
        frame, backend = self._head.frame, destination.choice.member.backend
        own_host = destination.lane.own_host or not frame.host
        path = frame.path if destination.route.keeps_path else backend.path.encode()
        sent = request_for_backend(
            self._head,
            target=path + frame.query,
            host=backend.authority.encode() if own_host else frame.host,
            forwarded=self._client.forwarded,
        )
        self._backend = connection
        connection.carry(self, to_head=frame.verb == b"HEAD")
        self._to_backend.insert(0, sent)
        if not self._client.writable:
            connection.hold(True)

    # ---- RequestSink: what comes from the client
    def request_body(self, data: bytes) -> None:
        if self._error is not None:
            return
        self._bytes_in += len(data)
        if self._head.frame.chunked:
            self._to_backend += (b"%x\r\n" % len(data), data, b"\r\n")
        else:
            self._to_backend.append(data)

    def request_complete(self) -> None:
        self._request_complete = True
        if self._head.frame.chunked and self._error is None:
            self._to_backend.append(b"0\r\n\r\n")

    def flush_request(self) -> None:
        if self._over:
            return
        if self._error is not None:
            self._answer(self._error)
        elif self._backend is None:
            if sum(map(len, self._to_backend)) > _MAX_WAITING_BODY:
                self._client.hold_body(True)
        elif self._to_backend:
            out, self._to_backend = self._to_backend, []
            self._backend.write(b"".join(out))

    def request_broken(self, error: ProxyError) -> None:
        self._drop_backend()
        self._error = error
        if not self._over:
            self._answer(error)

    def hold_response(self, hold: bool) -> None:
        if self._backend is not None:
            self._backend.hold(hold or (self._watch is not None and self._watch.waiting))

    def client_gone(self) -> None:
        if not self._over:
            self._drop_backend()
            self._record(self._status or CLIENT_GONE, "client_gone")

    # ---- ResponseSink: what comes from the backend
    def interim(self, head: ResponseHead) -> None:
        if not self._head.frame.http10:  # HTTP/1.0 knows none (RFC 9110, 15.2)
            self._client.write(response_for_client(head, http10=False, keep_alive=True))

    def response_head(self, head: ResponseHead) -> None:
        request, response = self._head.frame, head.frame
        self._backend_status = self._status = response.status
        self._first_byte = self._around.clock() - self._started
        http10, unmeasured = request.http10, head.length is None and not response.bodyless
        self._chunked = unmeasured and not http10
        self._keep_alive = (
            request.keep_alive and self._request_complete and not (self._client.retiring or (unmeasured and http10))
        )
        if request.teaches and not response.bodyless:
            self._start_watch(head)
        if response.content_type == _EVENTS and self._destination is not None:
            self._streamed = True
            self._around.counters.stream_opened(self._destination.lane.pool.name)
        self._to_client.append(response_for_client(head, http10=http10, keep_alive=self._keep_alive))

    def _start_watch(self, head: ResponseHead) -> None:
        reader, destination, around = reader_for(head.frame.content_type), self._destination, self._around
        if reader is None or destination is None:
            return
        if head.frame.encoded:
            around.counters.unlearned("encoded")
            return
        self._watch = Watch(
            reader,
            method=self._head.routing.method,
            name=self._task,
            pool=destination.lane.pool,
            backend=destination.choice.member.backend.id,
            pins=around.pins,
            tally=around.counters,
            background=around.background,
            released=self._released,
        )

    def response_body(self, data: bytes) -> None:
        if self._watch is None:
            self._pass_on(data)
            return
        self._pass_on(self._watch.feed(data))
        if self._watch.waiting and self._backend is not None:
            self._backend.hold(True)

    def _pass_on(self, data: bytes) -> None:
        if not data:
            return
        self._bytes_out += len(data)
        if self._chunked:
            self._to_client += (b"%x\r\n" % len(data), data, b"\r\n")
        else:
            self._to_client.append(data)

    def _released(self, held: bytes) -> None:
        """The pin store has answered: what was held back leaves."""
        if self._over:
            return
        self._pass_on(held)
        if self._ended:
            self._complete()
            return
        self.flush_response()
        if self._backend is not None:
            self._backend.hold(not self._client.writable)

    def flush_response(self) -> None:
        out = self._to_client
        if out:
            self._to_client = []
            self._client.write(b"".join(out))

    def response_whole(self, head: ResponseHead, body: bytes, *, reusable: bool) -> None:
        request, response = self._head.frame, head.frame
        may_teach = request.teaches and (
            response.content_type != _JSON or response.encoded or may_matter(body, self._head.routing.method)
        )
        if may_teach or response.content_type == _EVENTS:
            self.response_head(head)
            self.response_body(body)
            self.response_complete(reusable=reusable)
            return
        self._backend_status = self._status = response.status
        self._first_byte = self._around.clock() - self._started
        self._keep_alive = request.keep_alive and self._request_complete and not self._client.retiring
        self._bytes_out = len(body)
        self._reusable = reusable
        self._to_client += (response_for_client(head, http10=request.http10, keep_alive=self._keep_alive), body)
        self._complete()

    def response_complete(self, *, reusable: bool) -> None:
        self._ended, self._reusable = True, reusable
        if self._watch is not None:
            self._pass_on(self._watch.end())
            if self._watch.waiting:
                self.flush_response()
                return
        self._complete()

    def _complete(self) -> None:
        if self._chunked:
            self._to_client.append(b"0\r\n\r\n")
        self.flush_response()
        connection, self._backend = self._backend, None
        if connection is not None:
            if self._reusable and self._request_complete:
                connection.give_back()
            else:
                connection.drop()
        self._record(self._status, "")
        self._client.exchange_done(keep_alive=self._keep_alive)

    def backend_failed(self, error: ProxyError) -> None:
        self._backend = None
        if self._over:
            return
        if self._status == 0:
            self._error = error
            self._answer(error)
            return
        self.flush_response()
        self._record(self._status, error.reason)
        if self._chunked or not self._head.frame.http10:
            self._client.cut()
        else:
            self._client.abort(reset=True)  # until close: a clean end would pass for the whole

    def hold_request(self, hold: bool) -> None:
        self._client.hold_body(hold)

    # ---- ending
    def _answer(self, error: ProxyError) -> None:
        """Answers with an error of the proxy's own, or cuts the response that has begun."""
        self._drop_backend()
        if self._status:
            self._record(self._status, error.reason)
            self._client.cut()
            return
        frame, framed = self._head.frame, not isinstance(error, BadRequest | HeadTooLarge)
        keep_alive = frame.keep_alive and self._request_complete and framed and not self._client.retiring
        response = error_response(
            error,
            modern=self._head.routing.modern,
            keep_alive=keep_alive,
            http10=frame.http10,
            with_body=frame.verb != b"HEAD",
        )
        self._client.write(response)
        self._record(error.status, error.reason)
        self._client.exchange_done(keep_alive=keep_alive)

    def _drop_backend(self) -> None:
        connection, self._backend = self._backend, None
        if connection is not None:
            connection.drop()

    def _leave_backend(self) -> None:
        if self._under_way and self._destination is not None:
            self._under_way = False
            self._destination.lane.pool.end(self._destination.choice.member)

    def _record(self, status: int, error: str) -> None:
        """The one place where an exchange ends."""
        self._over = True
        self._leave_backend()
        counters, request, destination = self._around.counters, self._head.routing, self._destination
        watch, self._watch = self._watch, None  # the two know each other: without this, only gc would free them
        route = pool = backend = source = outcome = ""
        if destination is not None:
            route, pool = destination.route.name, destination.lane.pool.name
            backend, source = destination.choice.member.backend.id, destination.choice.source
            outcome = "served" if watch is None else watch.outcome
            if self._streamed:
                counters.stream_closed(pool)
            if isinstance(self._error, OwnerDown):
                outcome = OwnerDown.reason
        counters.record(
            RequestRecord(
                method=request.method if request.modern and request.method in KNOWN_METHODS else "other",
                verb=request.verb,
                status=status,
                route=route,
                pool=pool,
                backend=backend,
                kind="task" if request.is_task else "none",
                source=source,
                outcome=outcome,
                backend_status=self._backend_status,
                duration=self._around.clock() - self._started,
                first_byte=self._first_byte,
                bytes_in=self._bytes_in,
                bytes_out=self._bytes_out,
                error=error,
                client=self._client.peer,
                task="" if self._task is None else short_digest(self._task),
                streamed=self._streamed,
            )
        )
