"""One member's answer to a subscription: an event stream that goes into the whole, or anything else."""

from typing import Protocol

from proxy.routing.errors import ProxyError
from proxy.routing.searches import Reply
from proxy.wire.destination import Destination
from proxy.wire.probe import Probe
from proxy.wire.response_head import ResponseHead


class Whole(Protocol):
    """What the parts belong to, and whom they tell."""

    def decide(self) -> None:
        """A part has answered with something other than a stream, or cannot be reached."""
        ...

    def open_anew(self, part: "Part") -> None:
        """The part's connection closed before it can have seen the request: it goes over a new one."""
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
    """One member's answer: an event stream goes on to the whole, anything else is held as a probe's."""

    def __init__(self, whole: Whole, number: int, place: Destination) -> None:
        super().__init__(place, whole.decide)
        self.number = number
        self.streams = False
        """True once it answers with an event stream that can be merged."""
        self.error: ProxyError | None = None
        """Why there is no answer."""
        self._whole = whole

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
            self._whole.open_anew(self)  # it had closed before it saw the request
        else:
            self.error = error
            self.fail()

    @property
    def is_relayable(self) -> bool:
        """True for an answer that is here whole, or still comes."""
        return self.reply >= Reply.FAILED and self.head is not None and (self.complete or self.connection is not None)
