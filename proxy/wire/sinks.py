"""What connections need of those they serve: who receives a request or a response, and whose a client is."""

from typing import Protocol, TypeVar

from proxy.routing.errors import ProxyError
from proxy.wire.patience import Patience
from proxy.wire.request_frame import Alike, Frame, RequestHead
from proxy.wire.request_head import RequestHeadReader
from proxy.wire.response_head import ResponseHead

Client = TypeVar("Client", contravariant=True)


class RequestSink(Protocol):
    """Who receives a request: an exchange. Called on the event loop until it calls `ClientConnection.exchange_done`."""

    @property
    def endless(self) -> bool:
        """True for a response that lasts as long as its client listens."""
        ...

    def request_body(self, data: bytes) -> None: ...

    def request_complete(self) -> None:
        """The request's last byte was handed over."""
        ...

    def flush_request(self) -> None:
        """What came in one read has been handed over: time to write."""
        ...

    def request_broken(self, error: ProxyError) -> None:
        """The request's body does not parse; nothing more of it comes."""
        ...

    def request_late(self, error: ProxyError) -> None:
        """Nothing more has come of the request's body for too long: it is answered with this error, unless an answer
        has begun."""
        ...

    def hold_response(self, hold: bool) -> None:
        """The client takes no more bytes for now (True), or again (False)."""
        ...

    def tend(self, now: float) -> None:
        """To be called now and then, with monotonic seconds: what has been quiet for too long ends."""
        ...

    def client_gone(self) -> None:
        """The client hung up: nothing can be answered any more."""
        ...

    def abandon(self, error: ProxyError) -> None:
        """The proxy gives the exchange up: it is answered with this error, or cut where a response has begun."""
        ...


class ClientSide(Protocol[Client]):
    """What a client's connection needs from the proxy it belongs to."""

    heads: RequestHeadReader
    patience: Patience

    def begin(self, client: Client, head: RequestHead) -> RequestSink:
        """A request's head has been read; its exchange is under way."""
        ...

    def begin_alike(self, client: Client, frame: Frame, alike: Alike) -> bool:
        """A request is there whole, its head like the one before. True if it is under way, as the client was told
        (`serve_by`); False: nothing has happened, and it is to be read.
        """
        ...

    def refused(self, client: Client, error: ProxyError) -> None:
        """A request without a readable head was answered with this error."""
        ...

    def trusts(self, peer: str) -> bool:
        """True for addresses whose X-Forwarded-* fields are believed."""
        ...

    def opened(self, client: Client) -> None:
        """A client has connected; where it is one too many, it is told so (`serve_once`)."""
        ...

    def closed(self, client: Client) -> None: ...


class ResponseSink(Protocol):
    """Who receives a response. Called on the event loop; after `response_complete` or `backend_failed` no more."""

    def interim(self, head: ResponseHead) -> None:
        """A 1xx response came."""
        ...

    def response_head(self, head: ResponseHead) -> None: ...

    def response_body(self, data: bytes) -> None: ...

    def flush_response(self) -> None:
        """What came in one read has been handed over: time to write."""
        ...

    def response_chunk(self, data: bytes, chunk: bytes) -> None:
        """Instead of `response_body` and `flush_response`: one whole chunk came by itself. `chunk`: it as it came."""
        ...

    def response_complete(self, *, reusable: bool) -> None:
        """The response ended as it should. `reusable`: the connection could carry another exchange."""
        ...

    def response_whole(self, head: ResponseHead, body: bytes, *, reusable: bool, text: bytes = b"") -> None:
        """Head, body and end at once, instead of the three calls: the response came whole in one read.

        `text`: both as they came, or empty.
        """
        ...

    def backend_failed(self, error: ProxyError) -> None:
        """The connection closed too early or the response does not parse; the connection is gone."""
        ...

    def hold_request(self, hold: bool) -> None:
        """The backend takes no more bytes for now (True), or again (False)."""
        ...
