"""The short walk of the usual request: all of it is there, its connection has brought one like it before, its backend
is known at once and has an idle connection; its answer comes whole, and what it teaches is stored at once.

Then both leave in one write each. Decided and counted is the same as in wire.exchange, with what was found out for the
requests before (wire.courses). Whatever else happens, the request goes on as an exchange that stands where this one
stood: an answer in pieces, one that has to be looked at, a backend that fails, a client that leaves or reads slowly, an
answer that is long in coming.
"""

from proxy.records import RequestRecord
from proxy.routing.errors import ProxyError
from proxy.routing.members import Choice
from proxy.routing.ownership import Learned, may_change, may_matter, short_digest
from proxy.wire.backend import BackendConnection
from proxy.wire.client import ClientConnection
from proxy.wire.courses import Cell, Course, Heading, Start
from proxy.wire.destination import Destination, Kind
from proxy.wire.events import MESSAGE_LIMIT
from proxy.wire.exchange import Exchange
from proxy.wire.forwarding import start_for_backend
from proxy.wire.learning import Lessons, note_lesson
from proxy.wire.outgoing import host_for, target_for
from proxy.wire.relay import Relay
from proxy.wire.request_frame import Alike, Frame, head_of
from proxy.wire.response_head import ResponseHead, response_for_client
from proxy.wire.surroundings import Surroundings

_MOST_STARTS = 8  # of one frame; there are many where each backend has its own path or name
_MOST_CELLS = 4096  # of one course; backends that left are among them


def set_out(around: Surroundings, client: ClientConnection, frame: Frame, alike: Alike) -> bool:
    """Sends the request on its way; False: nothing has happened, it is not a usual one."""
    heading = frame.memo
    if not isinstance(heading, Heading) or heading.courses is not around.courses:
        heading = frame.memo = Heading(around.courses, frame, around.admission)
    name = alike[0]
    if not heading.usual or client.surplus or (name is not None and name.startswith("=?")):
        return False
    found = heading.owned(name) if heading.owners else heading.balanced(name, client.peer, client.memory)
    if found is None:
        return False
    course, choice, ttl = found
    task = name if heading.owners else None
    lane, member = course.lane, choice.member
    connections = lane.connections.get(member)
    connection = None if connections is None else connections.lease()
    if connection is None or not lane.pool.queue.enter(member):
        if connections is not None and connection is not None:
            connections.put_back(connection)
        place = Destination(course.route, lane, choice, "none" if task is None else "task")
        exchange = Exchange(around, client, head_of(frame, alike))
        client.serve_by(exchange)
        exchange.begin_at(place, task, alike[2])
        return True
    Express(around, client, frame, alike, course, choice, connection, task, ttl).send(heading.starts)
    return True


class Express:
    """One such request under way. A RequestSink and a ResponseSink."""

    __slots__ = (
        "_alike",
        "_around",
        "_choice",
        "_client",
        "_connection",
        "_course",
        "_frame",
        "_relay",
        "_started",
        "_task",
        "_ttl",
    )

    endless = False

    def __init__(
        self,
        around: Surroundings,
        client: ClientConnection,
        frame: Frame,
        alike: Alike,
        course: Course,
        choice: Choice,
        connection: BackendConnection,
        task: str | None,
        ttl: float | None,
    ) -> None:
        self._around = around
        self._client = client
        self._frame = frame
        self._alike = alike
        self._course = course
        self._choice = choice
        self._connection = connection
        self._task = task
        self._ttl = ttl  # of the task, as its server said lately
        self._started = around.clock()
        self._relay: Relay | None = None  # once it goes on as an exchange

    def send(self, starts: dict[Start, bytes]) -> None:
        """Writes it to its backend. `starts`: the heads kept ready for requests like this."""
        course, member, connection, started = self._course, self._choice.member, self._connection, self._started
        lane, backend = course.lane, member.backend
        lane.budget.requested(started)
        lane.pool.start(member, started)
        self._client.serve_by(self)
        connection.carry(self, to_head=False)
        path = None if course.keeps_path else backend.path
        known: Start = (path, backend.name, backend.host, backend.port) if lane.own_host else path
        start = starts.get(known)
        if start is None:
            start = self._start()
            if len(starts) >= _MOST_STARTS:
                starts.clear()
            starts[known] = start
        _, name_line, body = self._alike
        connection.write(b"%b%bContent-Length: %d\r\n\r\n%b" % (start, name_line, len(body), body))

    def _start(self) -> bytes:
        frame, backend = self._frame, self._choice.member.backend
        return start_for_backend(
            frame,
            target=target_for(frame, self._course.route, backend),
            host=host_for(frame, self._course.lane, backend),
            session=(frame.routing.session or "").encode("latin-1"),
            forwarded=self._client.forwarded,
        )

    # ---- from the backend: ResponseSink
    def response_whole(self, head: ResponseHead, body: bytes, *, reusable: bool, text: bytes = b"") -> None:
        member, client, frame, outcome = self._choice.member, self._client, head.frame, "served"
        usual = self._relay is None and frame.plain and not member.conduct.failures and not client.retiring
        if usual and self._may_teach(body):
            usual = self._around.pins.stores_at_once and len(body) <= MESSAGE_LIMIT
            outcome = self._study(body) if usual else ""
        if not usual:
            self._continued().response_whole(head, body, reusable=reusable, text=text)
            return
        if not text or not frame.verbatim:
            text = response_for_client(head, http10=False, keep_alive=True, tag="") + body
        client.write(text)
        pool, connection = self._course.lane.pool, self._connection
        if reusable:
            connection.give_back()
        else:
            connection.drop()
        pool.end(member)
        for ticket in pool.queue.leave(member):
            ticket.tell(True)
        self._count(frame.status, outcome, bytes_out=len(body))
        client.exchange_done(keep_alive=True)

    def _may_teach(self, body: bytes) -> bool:
        """A cheap no for most answers."""
        if self._task is None:
            return may_matter(body, self._frame.routing.method)
        return may_change(body, self._ttl) or len(body) > MESSAGE_LIMIT

    def _study(self, body: bytes) -> str:
        """Stores what the answer teaches; what came of the choice of this backend, as in RequestRecord."""
        around, choice = self._around, self._choice
        lessons = Lessons(
            method=self._frame.routing.method,
            name=self._task,
            pool=self._course.lane.pool,
            backend=choice.member.backend.id,
            pins=around.pins,
            tally=around.counters,
            noticed=self._noticed,
            found=False,
        )
        lessons.study(body)
        return lessons.outcome

    def _noticed(self, learned: Learned) -> None:
        client, course = self._client, self._course
        note_lesson(
            learned,
            request=head_of(self._frame, self._alike).routing,
            pool=course.lane.pool.name,
            backend=self._choice.member.backend.id,
            rounds=self._around.rounds,
            memory=client.memory,
            peer=client.peer,
        )

    def _count(self, status: int, outcome: str, *, bytes_out: int) -> None:
        counters, choice = self._around.counters, self._choice
        seconds = self._around.clock() - self._started
        if counters.logs or outcome != "served":
            counters.record(self._record(status, outcome, seconds, bytes_out))
            return
        cell = self._course.cells.get((choice.member, choice.source, status))
        if cell is None or cell.stale:
            cell = self._cell(status)
        cell.served(seconds, bytes_in=len(self._alike[2]), bytes_out=bytes_out)

    @property
    def _kind(self) -> Kind:
        return "none" if self._task is None else "task"

    def _record(self, status: int, outcome: str, seconds: float, bytes_out: int) -> RequestRecord:
        """What happened; `seconds`: from its coming to the end of its answer, which came all at once."""
        course, choice = self._course, self._choice
        return RequestRecord(
            method=course.label,
            verb=self._frame.routing.verb,
            status=status,
            route=course.route.name,
            pool=course.lane.pool.name,
            backend=choice.member.backend.id,
            kind=self._kind,
            source=choice.source,
            outcome=outcome,
            backend_status=status,
            duration=seconds,
            first_byte=seconds,
            bytes_in=len(self._alike[2]),
            bytes_out=bytes_out,
            error="",
            client=self._client.peer,
            task="" if self._task is None else short_digest(self._task),
            streamed=False,
        )

    def _cell(self, status: int) -> Cell:
        course, choice = self._course, self._choice
        cell = self._around.counters.cell(
            route=course.route.name,
            method=course.label,
            status=status,
            pool=course.lane.pool.name,
            backend=choice.member.backend.id,
            kind=self._kind,
            source=choice.source,
        )
        if len(course.cells) >= _MOST_CELLS:
            course.cells.clear()
        course.cells[choice.member, choice.source, status] = cell
        return cell

    def interim(self, head: ResponseHead) -> None:
        self._continued().interim(head)

    def response_head(self, head: ResponseHead) -> None:
        self._continued().response_head(head)

    def response_body(self, data: bytes) -> None:
        self._continued().response_body(data)

    def flush_response(self) -> None:
        self._continued().flush_response()

    def response_chunk(self, data: bytes, chunk: bytes) -> None:
        self._continued().response_chunk(data, chunk)

    def response_complete(self, *, reusable: bool) -> None:
        self._continued().response_complete(reusable=reusable)

    def backend_failed(self, error: ProxyError) -> None:
        self._continued().backend_failed(error)

    def hold_request(self, hold: bool) -> None:
        self._continued().hold_request(hold)

    # ---- from the client: RequestSink. The request is there whole.
    def request_body(self, data: bytes) -> None:
        pass

    def request_complete(self) -> None:
        pass

    def flush_request(self) -> None:
        pass

    def request_broken(self, error: ProxyError) -> None:
        self.abandon(error)

    def request_late(self, error: ProxyError) -> None:
        pass

    def hold_response(self, hold: bool) -> None:
        if self._connection.serves(self):  # else it is being answered just now, and is over then
            self._go_on()[0].hold_response(hold)

    def tend(self, now: float) -> None:
        self._go_on()[0].tend(now)

    def client_gone(self) -> None:
        self._go_on()[0].client_gone()

    def abandon(self, error: ProxyError) -> None:
        self._go_on()[0].abandon(error)

    # ---- going on
    def _go_on(self) -> tuple[Exchange, Relay]:
        """Goes on as an exchange with its relay, once: whoever calls next from the client's side calls that."""
        exchange = Exchange(self._around, self._client, head_of(self._frame, self._alike))
        course = self._course
        place = Destination(course.route, course.lane, self._choice, self._kind)
        relay = self._relay = exchange.take_up(place, self._connection, self._task, self._alike[2], self._started)
        self._client.serve_by(exchange, instead_of=self)
        return exchange, relay

    def _continued(self) -> Relay:
        """The relay of the exchange that it goes on as."""
        return self._go_on()[1] if self._relay is None else self._relay
