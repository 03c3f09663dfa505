"""One backend's answer to a search: held until the search has decided, then relayed or dropped.

An answer is read up to `_READ_LIMIT`; a larger one can only be a result, and waits in the backend's buffers.
"""

from collections.abc import Callable

from proxy.routing.errors import BackendClosed, ConnectRefused, ProxyError
from proxy.routing.searches import Reply, decides, reply_of
from proxy.wire.backend import BackendConnection
from proxy.wire.destination import Destination
from proxy.wire.events import MESSAGE_LIMIT, EventReader
from proxy.wire.response_head import ResponseHead

_READ_LIMIT = MESSAGE_LIMIT


class Probe:
    """One backend's answer. A ResponseSink: holds what came until the search has decided."""

    def __init__(self, place: Destination, changed: Callable[[], None]) -> None:
        self.place = place
        self.reply = Reply.PENDING
        self.head: ResponseHead | None = None
        self.body: list[bytes] = []
        self.complete = False
        self.reusable = False
        self.connection: BackendConnection | None = None
        self.reused = False
        """True if the connection had served before: it may have been closing when the request was sent."""
        self.in_flight = False
        self.over = False
        """True once the search has no more use for it."""
        self._changed = changed
        self._size = 0
        self._events: EventReader | None = None

    # ---- ResponseSink
    def interim(self, head: ResponseHead) -> None:
        pass  # Expect was answered here; nothing else has to be passed on

    def response_head(self, head: ResponseHead) -> None:
        self.head = head
        if head.frame.content_type == b"text/event-stream" and not head.frame.encoded:
            self._events = EventReader()

    def response_body(self, data: bytes) -> None:
        self.body.append(data)
        self._size += len(data)
        if self._events is not None:
            _, messages = self._events.feed(data)
            for message in messages:
                if self.reply is Reply.PENDING and decides(message):
                    self._say(reply_of(self._status, message))
        if self.reply is Reply.PENDING and self._size > _READ_LIMIT:
            self._say(Reply.RESULT if self._status < 300 else reply_of(self._status, None))
        if self._size > _READ_LIMIT and self.connection is not None:
            self.connection.hold(True)  # until somebody wants it

    def flush_response(self) -> None:
        pass

    def response_chunk(self, data: bytes, chunk: bytes) -> None:
        self.response_body(data)
        self.flush_response()

    def response_whole(self, head: ResponseHead, body: bytes, *, reusable: bool, text: bytes = b"") -> None:
        self.response_head(head)
        self.response_body(body)
        self.response_complete(reusable=reusable)

    def response_complete(self, *, reusable: bool) -> None:
        self.complete, self.reusable = True, reusable
        if self.reply is Reply.PENDING:
            readable = self._events is None and self.head is not None and not self.head.frame.encoded
            self._say(reply_of(self._status, b"".join(self.body) if readable else None))

    def backend_failed(self, error: ProxyError) -> None:
        self.connection = None
        if self.reused and self.head is None:
            self._changed()  # it is asked again, over a new connection
        elif self.head is None and isinstance(error, BackendClosed):
            self._say(Reply.ABSENT)
        else:
            self.fail()

    def hold_request(self, hold: bool) -> None:
        pass  # at most BODY_LIMIT bytes wait

    # ---- used by the search
    def refused(self, error: ProxyError) -> None:
        """The backend cannot be reached. One that left the configuration was kept for what it owned, and is gone."""
        member, pool = self.place.choice.member, self.place.lane.pool
        if member.departed and isinstance(error, ConnectRefused):
            pool.forget(member)
            self._say(Reply.GONE)
        else:
            self._say(Reply.ABSENT)

    def fail(self) -> None:
        """Its answer broke off, or cannot be read."""
        if self.reply is Reply.PENDING:
            self._say(Reply.FAILED)
        elif not self.complete:
            self.reply = Reply.FAILED  # it had begun well; nothing was relayed yet

    def end(self) -> None:
        """The answer is not wanted: the attempt is over."""
        self.over = True
        connection, self.connection = self.connection, None
        if connection is not None:
            if self.complete and self.reusable:
                connection.give_back()
            else:
                connection.drop()
        if self.in_flight:
            self.in_flight = False
            self.place.lane.pool.end(self.place.choice.member)

    @property
    def _status(self) -> int:
        return 0 if self.head is None else self.head.frame.status

    def _say(self, reply: Reply) -> None:
        self.reply = reply
        self._changed()
