"""A made-up request is read as a client's would be, and where it would go is explained.

Faults are found by the very readers that clients meet. The pin store is asked without counting as a use; nothing else
is touched. One that does not answer knows nothing, as on the data path.
"""

import asyncio
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

from httptools import HttpRequestParser

from proxy.pins.store import PinStore, PinStoreError
from proxy.routing.admission import Admission
from proxy.routing.errors import BadRequest, HeadTooLarge, ProxyError
from proxy.routing.explain import explain
from proxy.routing.explanation import Explanation, refused
from proxy.routing.headers import RoutingHeaders
from proxy.routing.ownership import pin_key
from proxy.routing.pools import Pool
from proxy.routing.rounds import ConnectionMemory, Rounds
from proxy.routing.table import RoutingTable
from proxy.wire.limits import MAX_HEAD
from proxy.wire.request_frame import RequestHead
from proxy.wire.request_head import RequestHeadReader
from proxy.wire.request_reader import feed_head

PIN_WAIT = 2.0
"""Seconds that the pin store has for all it is asked."""


@dataclass(frozen=True, slots=True)
class Question:
    """The head of a request that nobody sent. Raises ValueError for a part that would be read as more than that."""

    verb: str = "POST"
    target: str = "/mcp"
    """Path and query."""
    fields: tuple[tuple[str, str], ...] = ()
    """Names and values of header fields; what is not ASCII goes as UTF-8."""
    client: str = ""
    """The client's address, for whom a backend may be waiting; "" for a client that nobody knows."""

    def __post_init__(self) -> None:
        parts = (self.verb, self.target, *(part for field in self.fields for part in field))
        for part in parts:
            if "\r" in part or "\n" in part:
                raise ValueError("a line break within the method, the path or a header field")
            part.encode("utf-8", "surrogateescape")  # UnicodeEncodeError is a ValueError
        if any(":" in name for name, _ in self.fields):
            raise ValueError("a colon within the name of a header field")

    @property
    def has_host(self) -> bool:
        return any(name.lower() == "host" for name, _ in self.fields)

    def head(self, host: str) -> bytes:
        """The head as it would stand on the wire; `host` for the Host field, if it has none."""
        fields = self.fields if self.has_host else (("Host", host), *self.fields)
        lines = [f"{self.verb} {self.target} HTTP/1.1", *(f"{name}: {value}" for name, value in fields), "", ""]
        return "\r\n".join(lines).encode("utf-8", "surrogateescape")


@dataclass(frozen=True, slots=True)
class Explainer:
    """Explains with the parts of one proxy. `host`: the Host field of questions that have none; `clock`: monotonic."""

    heads: RequestHeadReader
    admission: Admission
    table: RoutingTable
    pools: Mapping[str, Pool]
    pins: PinStore
    rounds: Rounds
    host: str
    clock: Callable[[], float]

    async def explain(self, question: Question) -> Explanation:
        """Where such a request would go. Waits for the pin store, at most PIN_WAIT."""
        explanation, notes = await self._explained(question)
        if not question.has_host:
            notes = (*notes, f"no Host was given: {self.host} is assumed")
        return replace(explanation, notes=(*explanation.notes, *notes))

    async def _explained(self, question: Question) -> tuple[Explanation, tuple[str, ...]]:
        """The explanation, and what there is to note."""
        request: RoutingHeaders | None = None
        try:
            head = self._read(question.head(self.host))
            request = head.routing
            if head.fault is not None:
                raise head.fault
            self.admission.check(host=head.frame.host, name=request.host, origin=head.frame.origin)
            task = request.decoded_name() if request.is_task else None
        except ProxyError as error:
            return refused(error, request), ()
        pins, notes = ({}, ()) if task is None else await self._pins_of(task, request)
        near = ConnectionMemory().rounds
        explanation = explain(
            request,
            task,
            table=self.table,
            pools=self.pools,
            pins=pins,
            asker=lambda pool: self.rounds.asker(pool, request, question.client, near),
            lister=lambda pool: self.rounds.lister(pool, request, question.client),
            stranger=lambda pool, backend: self.pools[pool].is_strange(backend, self.clock()),
        )
        return explanation, notes

    def _read(self, text: bytes) -> RequestHead:
        """As a client's connection reads it. Raises BadRequest, HeadTooLarge, Unsupported."""
        if len(text) > MAX_HEAD:
            raise HeadTooLarge(f"the head has more than {MAX_HEAD} bytes")
        end = _End()
        feed_head(HttpRequestParser(end), text)
        if not end.reached:
            raise BadRequest("the head does not end where it seems to")
        return self.heads.read(text)

    async def _pins_of(self, task: str, request: RoutingHeaders) -> tuple[dict[str, str], tuple[str, ...]]:
        """The owner's id by reachable pool, where there is a pin; and what there is to note."""
        pins: dict[str, str] = {}
        try:
            async with asyncio.timeout(PIN_WAIT):
                for name in self.table.reachable(request):
                    answer = self.pins.peek(pin_key(name, task))
                    pin = await answer if isinstance(answer, asyncio.Future) else answer
                    if pin is not None:
                        pins[name] = pin.backend
        except (PinStoreError, TimeoutError):
            return pins, ("the pin store does not answer: what it knows is left out",)
        return pins, ()


class _End:
    """Told by the parser when a head is complete."""

    def __init__(self) -> None:
        self.reached = False

    def on_headers_complete(self) -> None:
        self.reached = True
