"""The life of one request, top to bottom: the walk.

begin -> admission (421, 403) -> destination: the owner of its task or session, or route and balance (404, 503); or a
search for the owner; or a Listening at all members of a pool -> a leased connection, or one dialled -> the request's
head and body go out as they come -> the response passes through a Relay (no other backend past its head) -> one
RequestRecord, in `_record`, whatever happened.

While nothing has to be awaited, all of it happens in plain calls from `data_received`, without a task. Only dialling,
searching and a pin store that answers later become tasks, and then join the same methods.
"""

import asyncio
from collections.abc import Coroutine

from proxy.records import CLIENT_GONE, RequestRecord
from proxy.routing.errors import (
    BackendClosed,
    BadRequest,
    ConnectRefused,
    HeadTooLarge,
    NoBackend,
    OwnerDown,
    OwnerUnknown,
    ProxyError,
)
from proxy.routing.members import Member
from proxy.routing.ownership import short_digest
from proxy.routing.retries import may_ask_again, may_try_another, pause_for_owner, pause_to_ask_again
from proxy.routing.searches import Reply
from proxy.wire.backend import BackendConnection
from proxy.wire.client import ClientConnection
from proxy.wire.destination import Destination, Found, ListenPlan, SearchPlan
from proxy.wire.forwarding import request_for_backend
from proxy.wire.listening import Listening
from proxy.wire.probe import Probe
from proxy.wire.relay import Relay
from proxy.wire.request_head import RequestHead
from proxy.wire.response_head import error_response
from proxy.wire.search import BODY_LIMIT
from proxy.wire.surroundings import Surroundings

_MAX_WAITING_BODY = 64 * 1024
"""Bytes of a request's body kept while its backend is dialled, and for an owner that may have to be asked again."""


class Exchange:
    """One request and its response. A RequestSink for the client's connection."""

    __slots__ = (
        "_around",
        "_bytes_in",
        "_client",
        "_destination",
        "_error",
        "_head",
        "_keeps",
        "_out",
        "_over",
        "_plan",
        "_relay",
        "_search",
        "_started",
        "_task",
        "_tried",
        "_unanswered",
        "_under_way",
        "_waiting",
        "request_received",
    )

    def __init__(self, around: Surroundings, client: ClientConnection, head: RequestHead) -> None:
        self._around = around
        self._client = client
        self._head = head
        self._task: str | None = None  # the id, for a request about a task
        self._destination: Destination | None = None
        self._under_way = False  # counted as in flight at the destination
        self._tried: list[Member] = []
        self._plan: SearchPlan | ListenPlan | None = None  # the request goes to many, once it is whole
        self._search: asyncio.Task[None] | None = None
        self._relay: Relay | Listening | None = None  # there is a connection to the destination
        self._waiting: list[bytes] = []  # the body's pieces as long as there is nobody to send them to
        self._out: list[bytes] = []  # to the backend
        self.request_received = False
        """True if the request's last byte has come from the client."""
        self._error: ProxyError | None = None  # to be answered
        self._over = False
        self._keeps = False  # what is sent stays in _waiting: it may have to be sent again
        self._unanswered: float | None = None  # when the owner failed to answer for the first time
        self._bytes_in = 0
        self._started = around.clock()

    def begin(self) -> None:
        """Decides where the request goes and leases a connection there, or starts dialling one."""
        head, around = self._head, self._around
        try:
            if head.fault is not None:
                raise head.fault
            if around.admission.checks:
                around.admission.check(host=head.frame.host, name=head.routing.host, origin=head.frame.origin)
            if head.frame.kind == "task":
                self._task = head.routing.decoded_name()
                self._keeps = may_ask_again(head.routing.method)
            found = around.directory.find(head.routing, self._task, self._client.peer, self._client.memory)
        except ProxyError as error:
            self._error = error  # answered by flush_request, when what came with the head has been read
            return
        if isinstance(found, Coroutine):
            self._spawn(self._go_later(found), "find a task's owner")
        else:
            self._go_to(found)

    # ---- reaching the backend
    async def _go_later(self, finding: Coroutine[None, None, Found]) -> None:
        try:
            found = await finding
        except ProxyError as error:
            self._error = error
        else:
            if not self._over:
                self._go_to(found)
        self.flush_request()

    def _go_to(self, found: Found) -> None:
        if not isinstance(found, Destination):
            self._await_body(found)
            return
        self._destination = found
        member = found.choice.member
        found.lane.pool.start(member, self._started)
        self._under_way = True
        connections = found.lane.connections[member]
        connection = connections.lease()
        if connection is None:
            self._spawn(self._dial(found), "dial a backend")
        else:
            self._attach(connection, found)

    def _spawn(self, work: Coroutine[None, None, None], name: str) -> "asyncio.Task[None]":
        return self._around.background.spawn(self._or_cut(work), name)

    async def _or_cut(self, work: Coroutine[None, None, None]) -> None:
        """Does the work; should it fail in a way nobody thought of, the client is not left waiting."""
        try:
            await work
        except Exception:
            if not self._over:
                self._over = True
                self._leave_backend()
                self._client.abort()
            raise

    async def _dial(self, destination: Destination, pause: float | None = None) -> None:
        """A new connection, after a pause, and the request goes out. An owner is awaited."""
        began = self._around.clock() if self._unanswered is None else self._unanswered
        member = destination.choice.member
        while True:
            if pause is not None:
                await asyncio.sleep(pause)
                if self._over:
                    return
            try:
                connection = await destination.lane.connections[member].dial()
                break
            except ProxyError as error:
                pause = None
                if destination.bound and not (member.departed and isinstance(error, ConnectRefused)):
                    waited = self._around.clock() - began
                    pause = pause_for_owner(error, waited=waited, limit=destination.lane.owner_wait)
                if pause is None:
                    if not self._over:
                        self._attempt_failed(error, destination)
                    return
        if self._over:
            connection.give_back()
            return
        self._attach(connection, destination)
        self.flush_request()

    def _attempt_failed(self, failure: ProxyError, failed: Destination) -> None:
        """The chosen backend could not be reached: another one's turn, or an answer."""
        self._leave_backend()
        member, pool = failed.choice.member, failed.lane.pool
        if failed.choice.source == "pin" and not failed.bound:  # it was only preferred, and is so no longer
            request, memory = self._head.routing, self._client.memory
            self._around.rounds.over(pool.name, request, self._client.peer, memory.rounds, member.backend.id)
            memory.lists.pop(request.method, None)
        try:
            if member.departed and isinstance(failure, ConnectRefused):
                pool.forget(member)  # it was kept for what it owned, and is gone
                self.begin()
            elif may_try_another(failure, bound=failed.bound):
                self._tried.append(member)
                other = self._around.directory.find_another(self._head.routing, self._task, failed, self._tried)
                self._around.counters.retried(pool.name, failure.reason)
                self._go_to(other)
            elif failed.bound:
                self._error = OwnerDown("the backend that owns this task or session cannot be reached")
            else:
                self._error = failure
        except NoBackend:
            self._error = failure  # all were tried: the last failure is the answer
        self.flush_request()

    def _attach(self, connection: BackendConnection, destination: Destination) -> None:
        frame = self._head.frame
        relay = self._relay = Relay(self._around, self, self._client, self._head, destination, connection)
        connection.carry(relay, to_head=frame.verb == b"HEAD")
        self._out.append(self._head_for(destination))
        if self._waiting:
            waiting = self._waiting
            self._keeps = self._keeps and self._bytes_in <= _MAX_WAITING_BODY
            self._waiting = waiting if self._keeps else []
            for data in waiting:
                self._send_on(data)
            self._client.hold_body(False)
        if frame.chunked and self.request_received:
            self._out.append(b"0\r\n\r\n")
        if not self._client.writable:
            connection.hold(True)

    def _head_for(self, destination: Destination, length: int | None = None) -> bytes:
        """The head as that backend is to see it; `length`: of a body that is held whole, however it came."""
        frame, backend = self._head.frame, destination.choice.member.backend
        own_host = destination.lane.own_host or not frame.host
        path = frame.path if destination.route.keeps_path else backend.path.encode()
        return request_for_backend(
            self._head,
            target=path + frame.query,
            host=backend.authority.encode() if own_host else frame.host,
            session=(destination.session or self._head.routing.session or "").encode("latin-1"),
            forwarded=self._client.forwarded,
            whole=length,
        )

    # ---- to many backends
    def _await_body(self, plan: SearchPlan | ListenPlan) -> None:
        """The body is held until it is whole, then it goes to many."""
        self._plan = plan
        if self._head.frame.expect:
            self._client.write(b"HTTP/1.1 100 Continue\r\n\r\n")
        self._client.hold_body(False)
        if self._bytes_in > BODY_LIMIT:
            self._outgrow(plan)
        elif self.request_received:  # the pin store answered after the body had come
            self._start(plan)

    def _outgrow(self, plan: SearchPlan | ListenPlan) -> None:
        """The body is too large to be held: nobody is asked for an owner; a subscription goes to one backend alone."""
        self._plan = None
        try:
            if isinstance(plan, SearchPlan):
                raise OwnerUnknown("the request is too large to be held while its task's owner is searched for")
            self._go_to(plan.at_one(self._head.routing))
        except ProxyError as error:
            self._error = error
            self._waiting = []

    def _start(self, plan: SearchPlan | ListenPlan) -> None:
        body = b"".join(self._waiting)
        self._waiting = []
        if isinstance(plan, SearchPlan):
            self._search = self._spawn(self._run_search(plan, body), "search for a task's owner")
            return
        self._destination = plan.at(plan.members[0])  # until another opens its stream first
        listening = self._relay = Listening(
            self._around,
            self,
            self._client,
            self._head,
            plan,
            request=lambda place: self._head_for(place, len(body)) + body,
            spawn=self._spawn,
        )
        listening.start()

    async def _run_search(self, plan: SearchPlan, body: bytes) -> None:
        counters = self._around.counters
        try:
            probe = await self._around.searches.find(
                plan, self._client.peer, lambda place: self._head_for(place, len(body)) + body
            )
        except OwnerUnknown as error:
            self._search = None
            counters.searched(plan.candidates[0].lane.pool.name, "failed")
            self._error = error
            self.flush_request()
            return
        self._search = None
        counters.searched(probe.place.lane.pool.name, "found" if probe.reply is Reply.RESULT else "unknown")
        if probe.reply is Reply.RESULT:
            self._client.memory.latest = (probe.place.lane.pool.name, probe.place.choice.member.backend.id)
        self.take_over(probe)

    def take_over(self, probe: Probe) -> None:
        """Relays the answer that decided where the request went: what there is of it now, the rest as it comes."""
        place, head, connection = probe.place, probe.head, probe.connection
        if head is None:
            return
        self._destination = place
        self._under_way, probe.in_flight = probe.in_flight, False
        probe.connection = None
        relay = self._relay = Relay(self._around, self, self._client, self._head, place, connection)
        relay.response_head(head)
        for data in probe.body:
            relay.response_body(data)
        if probe.complete:
            relay.response_complete(reusable=probe.reusable)
            return
        if connection is not None:
            connection.hand_over(relay)
        relay.flush_response()
        relay.hold_response(not self._client.writable)

    # ---- RequestSink: what comes from the client
    def request_body(self, data: bytes) -> None:
        if self._error is not None:
            return
        self._bytes_in += len(data)
        if self._keeps and self._relay is not None:
            self._keep(data)
        if self._relay is not None:
            self._send_on(data)
        else:
            self._waiting.append(data)
            if self._plan is not None and self._bytes_in > BODY_LIMIT:
                self._outgrow(self._plan)

    def _keep(self, data: bytes) -> None:
        """Keeps what was sent. A request too large for that cannot be sent again."""
        if self._bytes_in > _MAX_WAITING_BODY:
            self._keeps, self._waiting = False, []
        else:
            self._waiting.append(data)

    def _send_on(self, data: bytes) -> None:
        if self._head.frame.chunked:
            self._out += (b"%x\r\n" % len(data), data, b"\r\n")
        else:
            self._out.append(data)

    def request_complete(self) -> None:
        self.request_received = True
        if self._error is not None:
            return
        if self._plan is not None:
            self._start(self._plan)
        elif self._head.frame.chunked and self._relay is not None:
            self._out.append(b"0\r\n\r\n")

    def flush_request(self) -> None:
        if self._over:
            return
        relay = self._relay
        if self._error is not None:
            self._answer(self._error)
        elif relay is None:
            if self._plan is None and sum(map(len, self._waiting)) > _MAX_WAITING_BODY:
                self._client.hold_body(True)
        elif self._out and relay.connection is not None:
            out, self._out = self._out, []
            relay.connection.write(b"".join(out))

    @property
    def endless(self) -> bool:
        """True for `subscriptions/listen`, and for the stream of a legacy session, which a GET opens."""
        request = self._head.routing
        if request.modern:
            return request.method == "subscriptions/listen"
        return request.verb == "GET" and self._relay is not None and self._relay.streamed

    def request_broken(self, error: ProxyError) -> None:
        self.abandon(error)

    def hold_response(self, hold: bool) -> None:
        if self._relay is not None:
            self._relay.hold_response(hold)

    def client_gone(self) -> None:
        if not self._over:
            status = self._relay.status if self._relay is not None else 0
            self._record(status or CLIENT_GONE, "client_gone")

    def abandon(self, error: ProxyError) -> None:
        if not self._over:
            self._error = error
            self._answer(error)

    # ---- Outcome and Audience: what the relay tells
    def begun(self, place: Destination) -> None:
        self._destination = place

    def relayed(self, *, reusable: bool) -> None:
        relay = self._relay
        if relay is None:
            return
        connection, relay.connection = relay.connection, None
        if connection is not None:
            if reusable and self.request_received:
                connection.give_back()
            else:
                connection.drop()
        self._record(relay.status, "")
        self._client.exchange_done(keep_alive=relay.keep_alive)

    def broken(self, error: ProxyError) -> None:
        relay, owner = self._relay, self._destination
        unseen = not self._over and relay is not None and not relay.status  # the client knows of no answer
        if self._keeps and unseen and owner is not None and owner.bound:
            self._ask_again(error, owner)
        else:
            self.abandon(error)

    def _ask_again(self, failure: ProxyError, owner: Destination) -> None:
        """The owner was asked for a task's state and is gone without an answer: it is asked once more, or was for long
        enough. Its kept connections may be of the same age, so a new one is dialled."""
        now = self._around.clock()
        waited = None if self._unanswered is None else now - self._unanswered
        pause = pause_to_ask_again(failure, waited=waited, limit=owner.lane.owner_wait)
        if pause is None:
            if isinstance(failure, BackendClosed):
                failure = OwnerDown("the backend that owns this task closes its connections without an answer")
            self.abandon(failure)
            return
        if self._unanswered is None:
            self._unanswered = now
        self._around.counters.retried(owner.lane.pool.name, failure.reason)
        self._relay, self._out = None, []
        self._client.hold_body(False)
        self._spawn(self._dial(owner, pause), "ask a task's owner again")

    # ---- ending
    def _answer(self, error: ProxyError) -> None:
        """Answers with an error of the proxy's own, or cuts the response that has begun."""
        frame, client, relay = self._head.frame, self._client, self._relay
        if relay is not None and relay.status:
            measured = relay.measured
            self._record(relay.status, error.reason)
            if measured:
                client.cut()
            else:
                client.abort(reset=True)  # until close: a clean end would pass for the whole
            return
        framed = not isinstance(error, BadRequest | HeadTooLarge)
        keep_alive = frame.keep_alive and self.request_received and framed and not client.retiring
        response = error_response(
            error,
            modern=self._head.routing.modern,
            keep_alive=keep_alive,
            http10=frame.http10,
            with_body=frame.verb != b"HEAD",
        )
        client.write(response)
        self._record(error.status, error.reason)
        client.exchange_done(keep_alive=keep_alive)

    def _leave_backend(self) -> None:
        if self._under_way and self._destination is not None:
            self._under_way = False
            self._destination.lane.pool.end(self._destination.choice.member)

    def _record(self, status: int, error: str) -> None:
        """The one place where an exchange ends."""
        self._over = True
        # They know this exchange, and it them: without this, only the garbage collector would free them.
        relay, self._relay, self._error = self._relay, None, None
        self._leave_backend()
        if self._search is not None:
            self._search.cancel()
        around, frame, destination = self._around, self._head.frame, self._destination
        kind, backend_status, first_byte, bytes_out, streamed, outcome = frame.kind, 0, -1.0, 0, False, "served"
        if relay is not None:
            backend_status, bytes_out, streamed, outcome = relay.status, relay.bytes_out, relay.streamed, relay.outcome
            if relay.first_byte >= 0:
                first_byte = relay.first_byte - self._started
            relay.drop()
        route = pool = backend = source = ""
        if destination is None:
            outcome = ""
        else:
            choice = destination.choice
            route, pool = destination.route.name, destination.lane.pool.name
            backend, source = choice.member.backend.id, choice.source
            if streamed:
                around.counters.stream_closed(pool)
            if error == OwnerDown.reason:
                outcome = error
            if destination.kind == "round":
                kind = "round"
        around.counters.record(
            RequestRecord(
                frame.label,
                self._head.routing.verb,
                status,
                route,
                pool,
                backend,
                kind,
                source,
                outcome,
                backend_status,
                around.clock() - self._started,
                first_byte,
                self._bytes_in,
                bytes_out,
                error,
                self._client.peer,
                "" if self._task is None else short_digest(self._task),
                streamed,
            )
        )
