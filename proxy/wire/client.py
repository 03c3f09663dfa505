"""One client's connection from its beginning to its end: how long it may take, and when no more is served on it."""

import asyncio

from proxy.routing.errors import Overloaded, ProxyError, RequestTimeout
from proxy.routing.rounds import ConnectionMemory
from proxy.wire.closing import has_left
from proxy.wire.conversation import Conversation
from proxy.wire.forwarding import Forwarded
from proxy.wire.sinks import ClientSide

_FAREWELL = 1.0  # seconds in which an idle client may send one more request before its connection closes


class ClientConnection(Conversation):
    """One connection from a client. To Patience it is a Watched."""

    __slots__ = ("_farewell", "_unsent", "forwarded", "memory", "peer", "surplus")

    forwarded: Forwarded

    def __init__(self, proxy: ClientSide["ClientConnection"]) -> None:
        super().__init__(proxy)
        self._farewell: asyncio.TimerHandle | None = None
        self._unsent = 0  # bytes, at the last look at a client that waits for nothing
        self.memory = ConnectionMemory()
        """What exchanges remember of this connection."""
        self.peer = ""
        """The client's address, without port."""
        self.surplus = False
        """True for a client beyond the limit of connections."""

    # ---- asyncio
    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        super().connection_made(transport)
        name = transport.get_extra_info("peername")
        self.peer = str(name[0]) if name else ""  # it may be gone already
        scheme = b"http" if transport.get_extra_info("ssl_object") is None else b"https"
        self.forwarded = Forwarded(self.peer.encode(), self._proxy.trusts(self.peer), scheme)
        self._proxy.opened(self)
        patience = self._proxy.patience
        self._since = patience.now
        patience.check_by(self, patience.now + (patience.surplus if self.surplus else patience.idle))

    def connection_lost(self, exc: Exception | None) -> None:
        for timer in (self._linger, self._farewell):
            if timer is not None:
                timer.cancel()
        self._leave()
        self._proxy.patience.forget(self)
        self._proxy.closed(self)

    # ---- used by whoever looks after time
    def tend(self, now: float) -> None:
        """Has the exchange tended that is under way, if there is one."""
        if self._exchange is not None:
            self._exchange.tend(now)

    def notice_departure(self) -> None:
        """Ends the exchange of a client that left while nothing was read from it, where no event tells."""
        if not self._reading and not self._transport.is_closing() and has_left(self._transport):
            self._leave()
            self._transport.abort()

    def check(self, now: int) -> int | None:
        """Ends what the client takes too long for; returns when to check again, in ticks."""
        patience, exchange = self._proxy.patience, self._exchange
        if self._discarding or self._transport.is_closing():
            return None  # its end is in hand
        if exchange is not None and not (self._reader.in_body and self._reading):
            return now + patience.idle  # it waits for us
        if exchange is not None:
            due = self._since + patience.body
        elif self.surplus:
            due = self._since + patience.surplus
        else:
            due = self._since + (patience.head if self._in_head else patience.idle)
        if now < due:
            return due
        if exchange is not None:
            exchange.request_late(RequestTimeout("the rest of the request's body did not come in time"))
            return None if self._exchange is None else now + patience.body
        if self.surplus:
            self._refuse(Overloaded("too many clients are connected: try again later"))
        elif self._in_head:
            self._refuse(RequestTimeout("the rest of the request's head did not come in time"))
        elif self._takes_what_was_sent():
            return now + patience.idle
        else:
            self._transport.close()
        return None

    def _takes_what_was_sent(self) -> bool:
        """True if the client is still at the last answer, and has taken some of it since the last check. One that takes
        nothing is cut: the connection could never close behind what it is to take."""
        last, self._unsent = self._unsent, self.unsent
        if self._unsent and self._unsent == last:
            self._transport.abort()
        return 0 < self._unsent != last

    # ---- used by whoever counts clients, or shuts down
    def serve_once(self) -> None:
        """There are too many clients: this one is told so when it has sent a request, and its connection closes."""
        self.surplus = self.retiring = True

    def abandon(self, error: ProxyError) -> None:
        """Ends the connection whatever is under way, which is answered with this error or cut."""
        self.retiring = True
        exchange = self._exchange
        if exchange is not None:
            exchange.abandon(error)
        elif not self._transport.is_closing():
            self._transport.abort()

    def retire(self, error: ProxyError) -> None:
        """Serves what is under way, or one more request, and closes; idempotent.

        A busy connection closes after its exchange. An idle one lives on for a moment: its client may be sending just
        now, and is answered with `Connection: close` then. A stream that would last as long as its client likes is cut.
        """
        self.retiring = True
        if self._exchange is not None:
            if self._exchange.endless:
                self._exchange.abandon(error)
        elif not self._discarding and self._farewell is None:
            self._farewell = asyncio.get_running_loop().call_later(_FAREWELL, self._part)

    def _part(self) -> None:
        if self._exchange is None and not self._discarding:
            self._transport.close()

    # ---- what is awaited
    def _await_head(self) -> None:
        """More of a head is to come, counted from its first byte."""
        if not self._in_head:
            patience = self._proxy.patience
            self._in_head, self._since = True, patience.now
            patience.check_by(self, patience.now + patience.head)

    def _await_body(self) -> None:
        """More of a body is to come, from now on."""
        patience = self._proxy.patience
        self._since = patience.now
        patience.check_by(self, patience.now + patience.body)

    def _update_reading(self) -> None:
        before = self._reading
        super()._update_reading()
        if self._reading is before:
            return
        if self._reading:
            self._proxy.patience.unread.discard(self)
            if self._reader.in_body:
                self._await_body()
        else:
            self._proxy.patience.unread.add(self)
