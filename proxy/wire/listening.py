"""One subscription at every backend of its pool: the same bytes to all, and their event streams merged into one answer.

* The first event stream opened begins the client's response; backends that cannot be reached, refuse, or are silent do
  not hold it up. Those without a stream are tried again every few seconds, members that come later are joined.
* A member that has moved to another address under the same id has left its stream: what it says there until it is heard
  again would be missed, so the whole is broken, as if the stream had ended.
* If none opens a stream, one member's answer is relayed as it is.
What leaves, and when the whole ends, is decided in wire.merging.
"""

import asyncio
from collections.abc import Callable
from typing import Protocol

from proxy.routing.errors import BackendClosed, ProxyError
from proxy.routing.members import Member
from proxy.routing.searches import Reply
from proxy.wire.client import ClientConnection
from proxy.wire.comments import COMMENT
from proxy.wire.destination import Destination, Lane, ListenPlan
from proxy.wire.framing import as_chunk
from proxy.wire.merging import Ending, Merger
from proxy.wire.part import Part, Spawn, address_of
from proxy.wire.probe import Probe
from proxy.wire.request_frame import RequestHead
from proxy.wire.response_head import ResponseHead, merged_for_client
from proxy.wire.surroundings import Surroundings

ACK_WAIT = 2.0
"""Seconds from the first stream for the others' acknowledgements; and from the first other answer for a stream."""
JOIN_EVERY = 3.0  # seconds between looks for members without a stream


class Audience(Protocol):
    """Who is told how a subscription fares: the exchange. Of the last three one is called, once."""

    @property
    def request_received(self) -> bool:
        """True if the request's last byte has come from the client."""
        ...

    def begun(self, place: Destination) -> None:
        """The response has begun, with the head of this place."""
        ...

    def relayed(self, *, reusable: bool) -> None:
        """The response is written whole."""
        ...

    def broken(self, error: ProxyError) -> None:
        """There is nothing to relay, or no more; `Listening.status` tells whether the client has seen a head."""
        ...

    def take_over(self, probe: Probe) -> None:
        """No member opened a stream; what this one answered is to be relayed, and is the exchange's from now on."""
        ...


class Listening:
    """One client's subscription. To the exchange it is what a Relay is for other responses.

    `request` gives the bytes for a backend; `spawn` starts the tasks that dial.
    """

    connection = None
    """The parts have their own."""
    outcome = "served"

    def __init__(
        self,
        around: Surroundings,
        exchange: Audience,
        client: ClientConnection,
        head: RequestHead,
        plan: ListenPlan,
        *,
        request: Callable[[Destination], bytes],
        spawn: Spawn,
    ) -> None:
        self.status = 0
        """Of the head that the client was sent; 0: none yet."""
        self.first_byte = -1.0
        """When the first stream's head came; monotonic seconds, negative: not yet."""
        self.bytes_out = 0
        self.keep_alive = False
        """True if the client's connection is kept after this response."""
        self.streamed = False
        self._around = around
        self._exchange = exchange
        self._client = client
        self._head = head
        self._plan = plan
        self._request = request
        self._spawn = spawn
        self._over = False
        self._out: list[bytes] = []
        self._merger = Merger(range(len(plan.members)))
        self._parts: dict[Member, Part] = {}
        self._numbers = 0
        self._refused: dict[Member, str] = {}  # they have answered, and are not asked again at this address
        self._timer: asyncio.TimerHandle | None = None
        self._look: asyncio.TimerHandle | None = None

    @property
    def lane(self) -> Lane:
        """That of its pool."""
        return self._plan.lane

    @property
    def measured(self) -> bool:
        """True if the client can tell from the head where the response ends."""
        return not self._head.frame.http10

    def start(self) -> None:
        """Opens the subscription at every member."""
        for part in [self._new_part(member) for member in self._plan.members]:
            part.open()

    # ---- opening
    def _new_part(self, member: Member) -> Part:
        place = self._plan.at(member)
        part = self._parts[member] = Part(self, self._numbers, place, request=self._request, spawn=self._spawn)
        self._numbers += 1
        return part

    def _join(self) -> None:
        """Parts with members that have moved, tries those that have no stream, and will again."""
        self._look = asyncio.get_running_loop().call_later(JOIN_EVERY, self._join)
        for part in list(self._parts.values()):
            if part.has_moved:
                self._part_with(part)
            if self._over:
                return
        for member in self._plan.lane.pool.listeners:
            if member not in self._parts and self._refused.get(member) != address_of(member):
                self._new_part(member).open()

    def _part_with(self, part: Part) -> None:
        """It is at an address that its backend has left: as if its stream had ended there."""
        if part.streams:
            self.ended(part)
        else:
            self._leave(part)
            self._pass_on(self._merger.absent(part.number))
            self.flush()

    # ---- what the parts tell
    def decide(self) -> None:
        """A part has answered with something other than a stream, or cannot be reached."""
        if self._over:
            return
        if self.status:
            self._drop_those_without_a_stream()
            return
        parts = self._parts.values()
        if not any(part.reply is Reply.PENDING for part in parts):
            self._set_timer(0.0, self._refuse)  # not now: the rest of what was read is still to be handed over
        elif self._timer is None and any(part.is_relayable for part in parts):
            self._set_timer(ACK_WAIT, self._refuse)

    def _set_timer(self, seconds: float, then: Callable[[], None]) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._timer = asyncio.get_running_loop().call_later(seconds, then)

    def opened(self, part: Part, head: ResponseHead) -> None:
        """A part answers with an event stream."""
        self._merger.opened(part.number)
        if not self.status:
            self._begin(part, head)
        if not self._client.writable and part.connection is not None:
            part.connection.hold(True)

    def came(self, part: Part, data: bytes) -> None:
        out = self._merger.feed(part.number, data)
        if part.number in self._merger.refusers:
            self._refused[part.place.choice.member] = part.address
        if not self._merger.is_open(part.number):
            self._leave(part)
        self._pass_on(out)

    def ended(self, part: Part) -> None:
        out = self._merger.ended(part.number)
        self._leave(part)
        self._pass_on(out)
        self.flush()

    def flush(self) -> None:
        """What came in one read has been handed over: time to write."""
        out = self._out
        if out:
            self._out = []
            self._client.write(b"".join(out))

    # ----
    def _begin(self, part: Part, head: ResponseHead) -> None:
        frame = self._head.frame
        self.status, self.streamed = head.frame.status, True
        self.first_byte = self._around.clock()
        self.keep_alive = (
            frame.keep_alive and not frame.http10 and self._exchange.request_received and not self._client.retiring
        )
        self._around.counters.stream_opened(self._plan.lane.pool.name)
        self._exchange.begun(part.place)
        self._out.append(merged_for_client(head, http10=frame.http10, keep_alive=self.keep_alive))
        self._set_timer(ACK_WAIT, self._expire)
        self._look = asyncio.get_running_loop().call_later(JOIN_EVERY, self._join)
        self._drop_those_without_a_stream()

    def _expire(self) -> None:
        self._pass_on(self._merger.expire())
        self.flush()

    def _drop_those_without_a_stream(self) -> None:
        for part in list(self._parts.values()):
            if not part.streams and part.reply is not Reply.PENDING:
                if part.reply > Reply.FAILED:
                    self._refused[part.place.choice.member] = part.address
                self._leave(part)
                self._pass_on(self._merger.absent(part.number))
                if self._over:
                    return
        self.flush()

    def _leave(self, part: Part) -> None:
        member = part.place.choice.member
        if self._parts.get(member) is part:
            del self._parts[member]
        part.end()

    def _refuse(self) -> None:
        """No stream is open: the most telling answer is relayed; if there is none, and none can come, why is told."""
        self._timer = None
        parts = list(self._parts.values())
        relayable = [part for part in parts if part.is_relayable]
        if not relayable:
            errors = [part.error for part in parts if part.error is not None]
            if len(errors) == len(parts):
                self._exchange.broken(min(errors, key=lambda error: error.nothing_sent))
            return
        chosen = min(relayable, key=lambda part: (part.reply is Reply.FAILED, part.reply))
        del self._parts[chosen.place.choice.member]
        self.drop()
        self._exchange.take_over(chosen)

    def _pass_on(self, data: bytes) -> None:
        if data:
            self.bytes_out += len(data)
            self._out += (data,) if self._head.frame.http10 else (b"%x\r\n" % len(data), data, b"\r\n")
        ending = self._merger.ending
        if ending is None:
            self._update_holds()
        elif not self._over:
            self._finish(ending)

    def _finish(self, ending: Ending) -> None:
        if ending is Ending.ANSWERED and not self._head.frame.http10:
            self._out.append(b"0\r\n\r\n")
        self.flush()
        if ending is Ending.ANSWERED:
            self._exchange.relayed(reusable=False)
        else:
            self._exchange.broken(BackendClosed("a backend ended its event stream without a result"))

    def _update_holds(self) -> None:
        """Reads from each part as long as the client takes bytes and not too much of the part's own is held."""
        for part in self._parts.values():
            if part.streams and part.connection is not None:
                part.connection.hold(not self._client.writable or self._merger.is_full(part.number))

    # ---- from the exchange
    def hold_response(self, hold: bool) -> None:
        """The client takes no more bytes for now (True), or again (False)."""
        self._update_holds()

    def comment(self) -> None:
        """Sends a comment: only whole events leave, so it may always stand behind the last."""
        if self.streamed and not self._out and self._merger.ending is None:
            self._client.write(COMMENT if self._head.frame.http10 else as_chunk(COMMENT))

    def drop(self) -> None:
        """Ends all of it at once: the backends' connections close, nothing more is written."""
        self._over = True
        self._out = []
        for timer in (self._timer, self._look):
            if timer is not None:
                timer.cancel()
        parts, self._parts = self._parts, {}
        for part in parts.values():
            part.end()
