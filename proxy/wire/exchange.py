"""The life of one request, top to bottom: the walk.

begin -> admission (421, 403) -> destination: the owner of its task or session, or route and balance (404, 503); or
ToMany: a search for the owner, or a Listening at all members of a pool -> an Approach to it: a slot, and a connection
leased or dialled -> Outgoing: head and body leave as they come -> the response passes through a Relay (no other backend
past its head) -> one RequestRecord, in `_record`, whatever happened.

While nothing has to be awaited, all of it happens in plain calls from `data_received`, without a task. Only dialling,
searching and a pin store that answers later become tasks, and then join the same methods.
"""

import asyncio
from collections.abc import Coroutine

from proxy.records import CLIENT_GONE
from proxy.routing.errors import HeadTimeout, IdleTimeout, Overloaded, ProxyError
from proxy.routing.queueing import is_discovery
from proxy.wire.approach import Approach
from proxy.wire.backend import BackendConnection
from proxy.wire.client import ClientConnection
from proxy.wire.destination import Destination, Found
from proxy.wire.ending import answer, record_of
from proxy.wire.listening import Listening
from proxy.wire.outgoing import KEPT_LIMIT, Outgoing
from proxy.wire.probe import Probe
from proxy.wire.relay import Relay
from proxy.wire.request_frame import RequestHead
from proxy.wire.surroundings import Surroundings
from proxy.wire.tending import Tending
from proxy.wire.to_many import ToMany, pass_on


class Exchange:
    """One request and its response. A RequestSink for the client's connection, an Outcome for a Relay."""

    __slots__ = (
        "_approach",
        "_around",
        "_client",
        "_error",
        "_head",
        "_many",
        "_outgoing",
        "_over",
        "_relay",
        "_tending",
        "request_received",
    )

    def __init__(self, around: Surroundings, client: ClientConnection, head: RequestHead) -> None:
        self._around = around
        self._client = client
        self._head = head
        self._outgoing = Outgoing(client, head)
        self._approach = Approach(around, self, client, head, around.clock())
        self._many: ToMany | None = None  # the request goes to many, once it is whole
        self._relay: Relay | Listening | None = None  # there is a connection to the destination
        self._tending: Tending | None = None  # since somebody looked
        self._error: ProxyError | None = None  # to be answered
        self._over = False
        self.request_received = False
        """True if the request's last byte has come from the client."""

    def begin(self) -> None:
        """Decides where the request goes, and sets out for it."""
        head, around, client, approach = self._head, self._around, self._client, self._approach
        try:
            if head.fault is not None:
                raise head.fault
            if client.surplus and not is_discovery(head.routing):
                raise Overloaded("too many clients are connected: try again later")
            if around.admission.checks:
                around.admission.check(host=head.frame.host, name=head.routing.host, origin=head.frame.origin)
            if head.frame.kind == "task":
                approach.task = head.routing.decoded_name()
            if head.frame.repeatable:
                self._outgoing.keeps = head.frame.verb == b"POST" or not (head.length or head.frame.chunked)
            found = around.directory.find(head.routing, approach.task, client.peer, client.memory)
        except ProxyError as error:
            living = around.directory.living_after(error, head.routing)
            if living is None:
                self._error = error  # answered by flush_request, when what came with the head has been read
                return
            found = living
        if isinstance(found, Destination):
            approach.go(found)
        elif isinstance(found, Coroutine):
            self.spawn(self._go_later(found), "find a task's owner")
        else:
            self._go_to(found)

    def begin_at(self, place: Destination, task: str | None, body: bytes) -> None:
        """The same for a request that is there whole, and whose place is found."""
        self._approach.task = task
        self._outgoing.keeps = self._head.frame.repeatable
        self._approach.go(place)
        self.request_body(body)
        self.request_complete()
        self.flush_request()

    def take_up(
        self, place: Destination, connection: BackendConnection, task: str | None, body: bytes, started: float
    ) -> Relay:
        """Goes on with a request that was sent whole there, and was not answered yet."""
        self._approach.take_up(place, task, started)
        self._outgoing.bytes_in = len(body)
        if self._head.frame.repeatable and len(body) <= KEPT_LIMIT:
            self._outgoing.keeps, self._outgoing.kept = True, [body]
        self.request_received = True
        relay = self._relay = Relay(self._around, self, self._client, self._head, place, connection)
        connection.hand_over(relay)
        return relay

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
        if isinstance(found, Destination):
            self._approach.go(found)
        else:
            self._many = ToMany(self._around, self, self._client, self._head, self._outgoing, found)
            self._many.open()

    # ---- Sender and Asker: on the way
    def spawn(self, work: Coroutine[None, None, None], name: str) -> "asyncio.Task[None]":
        return self._around.background.spawn(self._or_cut(work), name)

    async def _or_cut(self, work: Coroutine[None, None, None]) -> None:
        """Does the work; should it fail in a way nobody thought of, the client is not left waiting."""
        try:
            await work
        except Exception:
            if not self._over:
                self._over = True
                self._approach.leave(for_good=True)
                self._client.abort()
            raise

    def refused(self, error: ProxyError) -> None:
        self._error = error
        self._outgoing.kept = []

    def reached(self, connection: BackendConnection, place: Destination) -> None:
        frame, outgoing = self._head.frame, self._outgoing
        relay = self._relay = Relay(self._around, self, self._client, self._head, place, connection)
        connection.carry(relay, to_head=frame.verb == b"HEAD", lasting=not self._approach.slot)
        outgoing.out.append(outgoing.head_for(place))
        if not self._approach.slot:  # it may last for days, and the next request will hardly be like it
            frame.sent.clear()
            self._client.rest()
        if outgoing.kept:
            outgoing.pass_on_kept()
            self._client.hold_body(False)
        if self.request_received:
            outgoing.end()
        if not self._client.writable:
            connection.hold(True)

    def goes_alone(self, place: Destination) -> None:
        self._many = None
        self._approach.go(place)

    def listens(self, listening: Listening) -> None:
        self._relay = listening

    def take_over(self, probe: Probe) -> None:
        place = probe.place
        self._approach.found(place, in_flight=probe.in_flight)
        probe.in_flight = False
        relay = self._relay = Relay(self._around, self, self._client, self._head, place, probe.connection)
        pass_on(probe, relay, hold=not self._client.writable)

    # ---- RequestSink: what comes from the client
    def request_body(self, data: bytes) -> None:
        if self._error is not None:
            return
        if self._relay is not None:
            self._outgoing.pass_on(data)
            return
        self._outgoing.keep(data)
        if self._many is not None:
            self._many.grown()

    def request_complete(self) -> None:
        self.request_received = True
        if self._error is not None:
            return
        if self._many is not None:
            self._many.start()
        elif self._relay is not None and self._head.frame.chunked:
            self._outgoing.end()

    def flush_request(self) -> None:
        if self._over:
            return
        relay, outgoing = self._relay, self._outgoing
        if self._error is not None:
            self._answer(self._error)
        elif relay is None:
            if self._many is None and outgoing.is_full:
                self._client.hold_body(True)
        elif outgoing.out and relay.connection is not None:
            out, outgoing.out = outgoing.out, []
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

    def request_late(self, error: ProxyError) -> None:
        if self._relay is None or not self._relay.status:
            self.abandon(error)

    def hold_response(self, hold: bool) -> None:
        if self._relay is not None:
            self._relay.hold_response(hold)

    def tend(self, now: float) -> None:
        """Ends what has been quiet for too long, and has a comment sent on a stream that is quiet: see wire.tending.

        Dialling, searching and waiting for the body of what goes to many have limits of their own.
        """
        relay, tending = self._relay, self._tending
        if (tending is not None and now < tending.look_at) or relay is None or self._over:
            return
        if tending is None:
            tending = self._tending = Tending(self._client, self._head.routing)
        error = tending.look(relay, now, bytes_in=self._outgoing.bytes_in, received=self.request_received)
        if isinstance(error, HeadTimeout):
            relay.drop()
            self.broken(error)
        elif error is not None:
            self.abandon(error)

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
        self._approach.destination = place

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
        relay, place, outgoing = self._relay, self._approach.destination, self._outgoing
        if self._over or place is None or relay is None or relay.status:
            self.abandon(error)  # the client knows of an answer
            return
        try:
            following = self._approach.after_silence(error, place, kept=outgoing.keeps)
        except ProxyError as failure:
            self.abandon(failure)
            return
        self._relay, self._tending, outgoing.out = None, None, []
        self._client.hold_body(False)
        self._approach.follow(following)
        self.flush_request()

    # ---- ending
    def _answer(self, error: ProxyError) -> None:
        """Answers with an error of the proxy's own, or cuts the response that has begun."""
        # The frames it came through know it, and this exchange: only the garbage collector would free them.
        error.__traceback__ = error.__context__ = error.__cause__ = None
        client, relay = self._client, self._relay
        if relay is not None and relay.status:
            takes_nothing = isinstance(error, IdleTimeout) and client.unsent  # and would not take the end either
            measured = relay.measured
            self._record(relay.status, error.reason)
            if measured and not takes_nothing:
                client.cut()
            else:
                client.abort(reset=True)  # until close: a clean end would pass for the whole
            return
        keep_alive = answer(error, client, self._head, received=self.request_received)
        self._record(error.status, error.reason)
        client.exchange_done(keep_alive=keep_alive)

    def _record(self, status: int, error: str) -> None:
        """The one place where an exchange ends."""
        self._over = True
        # They know this exchange, and it them: without this, only the garbage collector would free them.
        relay, many, self._relay, self._many, self._error = self._relay, self._many, None, None, None
        self._approach.leave(for_good=True)
        if many is not None:
            many.end()
        around, client, bytes_in = self._around, self._client, self._outgoing.bytes_in
        record = record_of(self._head, client.peer, self._approach, relay, status, error, bytes_in, around.clock())
        if relay is not None:
            relay.drop()
            if record.streamed:
                around.counters.stream_closed(record.pool)
        around.counters.record(record)
