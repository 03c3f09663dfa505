"""A request on its way out: its head as the backend is to see it, then the body as it comes.

While there is nobody to send it to, the body is kept; and what was sent is, as long as it is little, of a request that
may have to be sent again.
"""

from proxy.routing.backends import Backend
from proxy.routing.routes import Route
from proxy.wire.client import ClientConnection
from proxy.wire.destination import Destination, Lane
from proxy.wire.forwarding import request_for_backend
from proxy.wire.request_frame import Frame, RequestHead

KEPT_LIMIT = 64 * 1024
"""Bytes of a request's body kept while its backend is dialled, and for a request that may have to be sent again."""


def target_for(frame: Frame, route: Route, backend: Backend) -> bytes:
    """What this backend is asked for, on this route."""
    return (frame.path if route.keeps_path else backend.path.encode()) + frame.query


def host_for(frame: Frame, lane: Lane, backend: Backend) -> bytes:
    """The Host that this backend is to see."""
    return backend.host_field.encode() if lane.own_host or not frame.host else frame.host


class Outgoing:
    """The bytes of one request. What is in `out` is to be written to the backend that has been reached."""

    __slots__ = ("_client", "_head", "bytes_in", "keeps", "kept", "out")

    def __init__(self, client: ClientConnection, head: RequestHead) -> None:
        self._client = client
        self._head = head
        self.bytes_in = 0
        """Of the body, so far."""
        self.keeps = False
        """True if what is sent stays in `kept`: it may have to be sent again."""
        self.kept: list[bytes] = []
        """The body's pieces, as long as there is nobody to send them to, or they are kept beyond that."""
        self.out: list[bytes] = []

    def head_for(self, place: Destination, length: int | None = None) -> bytes:
        """The head as that backend is to see it; `length`: of a body that is held whole, however it came."""
        frame, backend = self._head.frame, place.choice.member.backend
        return request_for_backend(
            self._head,
            target=target_for(frame, place.route, backend),
            host=host_for(frame, place.lane, backend),
            session=(place.session or self._head.routing.session or "").encode("latin-1"),
            forwarded=self._client.forwarded,
            whole=length,
        )

    def keep(self, data: bytes) -> None:
        """Some of the body came, and there is nobody to send it to."""
        self.bytes_in += len(data)
        self.kept.append(data)

    def pass_on(self, data: bytes) -> None:
        """Some of the body came, for the backend that has the head."""
        self.bytes_in += len(data)
        if self.keeps:
            if self.bytes_in > KEPT_LIMIT:  # too large to be sent again
                self.keeps, self.kept = False, []
            else:
                self.kept.append(data)
        if self._head.frame.chunked:
            self.out += (b"%x\r\n" % len(data), data, b"\r\n")
        else:
            self.out.append(data)

    def pass_on_kept(self) -> None:
        """What came before there was a backend follows the head."""
        kept = self.kept
        self.keeps = self.keeps and self.bytes_in <= KEPT_LIMIT
        if not self.keeps:
            self.kept = []
        if self._head.frame.chunked:
            for data in kept:
                self.out += (b"%x\r\n" % len(data), data, b"\r\n")
        else:
            self.out += kept

    def end(self) -> None:
        """The body is whole, and all of it was passed on."""
        if self._head.frame.chunked:
            self.out.append(b"0\r\n\r\n")

    def take_whole(self) -> bytes:
        """The body, which is whole, and kept here no longer."""
        kept, self.kept = self.kept, []
        return b"".join(kept)

    @property
    def is_full(self) -> bool:
        """True if no more should be read before there is somebody to send it to."""
        return sum(map(len, self.kept)) > KEPT_LIMIT
