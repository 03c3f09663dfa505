"""One member's part of a subscription: opens it there, and has its answer, an event stream or anything else."""

from collections.abc import Callable, Coroutine
from typing import Protocol

from proxy.routing.errors import ConnectFailed, ProxyError
from proxy.routing.members import Member
from proxy.routing.searches import Reply
from proxy.wire.backend import BackendConnection
from proxy.wire.destination import Destination
from proxy.wire.probe import Probe
from proxy.wire.response_head import ResponseHead

Spawn = Callable[[Coroutine[None, None, None], str], object]
"""Starts a task, which has this name."""


class Whole(Protocol):
    """What the parts belong to, and whom they tell."""

    def decide(self) -> None:
        """A part has answered with something other than a stream, or cannot be reached."""
        ...

    def opened(self, part: "Part", head: ResponseHead) -> None:
        """The part answers with an event stream."""
        ...

    def came(self, part: "Part", data: bytes) -> None:
        """Some bytes of its stream came."""
        ...

    def flush(self) -> None:
        """What came in one read has been handed over: time to write."""
        ...

    def ended(self, part: "Part") -> None:
        """Its stream has ended or broken."""
        ...


class Part(Probe):
    """One member's answer: an event stream goes on to the whole, anything else is held as a probe's.

    `request` gives the bytes for a backend; `spawn` starts the tasks that dial.
    """

    def __init__(
        self, whole: Whole, number: int, place: Destination, *, request: Callable[[Destination], bytes], spawn: Spawn
    ) -> None:
        super().__init__(place, whole.decide)
        self.number = number
        self.address = address_of(place.choice.member)
        """Where its member was when it was opened."""
        self.streams = False
        """True once it answers with an event stream that can be merged."""
        self.error: ProxyError | None = None
        """Why there is no answer."""
        self._whole = whole
        self._request = request
        self._spawn = spawn

    # ---- opening
    def open(self) -> None:
        """Sends the request, over an idle connection if there is one."""
        lane, member = self.place.lane, self.place.choice.member
        self.in_flight = True
        lane.pool.start(member, member.last_used)  # a departed member is kept no longer for having been listened to
        connections = lane.connections.get(member)
        connection = None if connections is None else connections.lease()
        if connection is None:
            self._spawn(self._dial(), "dial a backend to listen")
        else:
            self.reused = True
            self._send(connection)

    async def _dial(self) -> None:
        if self.over:
            return
        member = self.place.choice.member
        self.address = address_of(member)
        connections = self.place.lane.connections.get(member)
        try:
            if connections is None:
                raise ConnectFailed("the backend was taken out of the configuration")
            connection = await connections.dial()
        except ProxyError as error:
            if not self.over:
                self.error = error
                self.refused(error)
            return
        if self.over:
            connection.give_back()
        else:
            self._send(connection)

    def _send(self, connection: BackendConnection) -> None:
        self.connection = connection
        connection.carry(self, to_head=False, lasting=True)
        connection.write(self._request(self.place))

    @property
    def has_moved(self) -> bool:
        """True if its member is somewhere else by now, under the same id; not if it is only gone."""
        member = self.place.lane.pool.member(self.place.choice.member.backend.id)
        return member is not None and address_of(member) != self.address

    # ---- ResponseSink
    def response_head(self, head: ResponseHead) -> None:
        if self.over:
            return
        if head.frame.status != 200 or head.frame.content_type != b"text/event-stream":
            super().response_head(head)
        elif head.frame.encoded:
            self.head = head
            if self.connection is not None:
                self.connection.hold(True)
            self._say(Reply.REFUSED)  # it cannot be merged, only relayed
        else:
            self.head = head
            self.streams = True
            self._whole.opened(self, head)

    def response_body(self, data: bytes) -> None:
        if self.over:
            return
        if self.streams:
            self._whole.came(self, data)
        else:
            super().response_body(data)

    def flush_response(self) -> None:
        if self.streams and not self.over:
            self._whole.flush()

    def response_complete(self, *, reusable: bool) -> None:
        if self.over:
            return
        if self.streams:
            self.complete, self.reusable = True, reusable
            self._whole.ended(self)
        else:
            super().response_complete(reusable=reusable)

    def backend_failed(self, error: ProxyError) -> None:
        self.connection = None
        if self.over:
            return
        if self.streams:
            self._whole.ended(self)
        elif self.reused and self.head is None:
            self.reused = False  # it had closed before it saw the request, which goes over a new one
            self._spawn(self._dial(), "dial a backend to listen")
        else:
            self.error = error
            self.fail()

    @property
    def is_relayable(self) -> bool:
        """True for an answer that is here whole, or still comes."""
        return self.reply >= Reply.FAILED and self.head is not None and (self.complete or self.connection is not None)


def address_of(member: Member) -> str:
    """Where the member is now."""
    return member.backend.origin + member.backend.path
