"""One request about a task to many backends: who owns it?

`tasks/get` goes to all at once and the first result is relayed; `tasks/update` and `tasks/cancel` go to all or, if one
cannot be reached, to none, and every answer is awaited (backends may acknowledge ids they do not know). What the
answers amount to is decided in routing.searches; 503 `owner_unknown` where nobody knows, never a guess.

The client's bytes are sent as they came, unparsed, over the data path's own connections.
"""

import asyncio
from collections.abc import Callable
from contextlib import suppress
from typing import NamedTuple

from proxy.background import Background
from proxy.routing.errors import OwnerUnknown, ProxyError
from proxy.routing.searches import Reply, Turnstile, verdict
from proxy.wire.backend import BackendConnection
from proxy.wire.destination import Destination, SearchPlan
from proxy.wire.probe import Probe

BODY_LIMIT = 64 * 1024
"""Bytes of a request's body that are held for a search."""
SEARCHES = 64
SEARCHES_EACH = 32  # of one client address: a flood of random ids must leave room for everybody else


class _Ticket(NamedTuple):
    """A search that waits for its turn."""

    address: str
    admitted: "asyncio.Future[None]"


class Searches:
    """The searches of one proxy: how many may run, and whose turn it is."""

    def __init__(self, background: Background) -> None:
        self._background = background
        self._turnstile: Turnstile[_Ticket] = Turnstile(capacity=SEARCHES, each=SEARCHES_EACH)

    @property
    def under_way(self) -> int:
        """Searches that run now."""
        return self._turnstile.inside

    async def find(self, plan: SearchPlan, address: str, request: Callable[[Destination], bytes]) -> Probe:
        """The answer to relay; `request` gives the bytes for a backend, `address` is the client's.

        What the probe holds is the caller's from then on. Raises OwnerUnknown.
        """
        limit = max(place.lane.owner_wait for place in plan.candidates)
        try:
            async with asyncio.timeout(limit):
                await self._enter(address)
        except TimeoutError:
            raise OwnerUnknown("too many searches for owners of tasks are under way") from None
        try:
            return await self._search(plan, request, limit)
        finally:
            self._leave(address)

    async def _enter(self, address: str) -> None:
        ticket = _Ticket(address, asyncio.get_running_loop().create_future())
        if self._turnstile.enter(address, ticket):
            return
        try:
            await ticket.admitted
        except asyncio.CancelledError:
            if ticket.admitted.done() and not ticket.admitted.cancelled():  # its turn came in the same moment
                self._leave(address)
            else:
                self._turnstile.give_up(address, ticket)
            raise

    def _leave(self, address: str) -> None:
        """A search of this address is over. Those whose turn comes but that wait no longer pass it on."""
        leaving = [address]
        while leaving:
            for ticket in self._turnstile.leave(leaving.pop()):
                if ticket.admitted.done():
                    leaving.append(ticket.address)
                else:
                    ticket.admitted.set_result(None)

    async def _search(self, plan: SearchPlan, request: Callable[[Destination], bytes], limit: float) -> Probe:
        changed = asyncio.Event()
        probes = [Probe(place, changed.set) for place in plan.candidates]
        found: Probe | None = None
        try:
            with suppress(TimeoutError):
                async with asyncio.timeout(limit):
                    if plan.everyone:
                        await self._connect_all(probes)
                        self._send(probes, request)
                    elif plan.likely:
                        found = await self._ask_first(probes[0], changed, request)
                    if found is None:
                        if not plan.everyone:
                            self._ask(probes[1:] if plan.likely else probes, request)
                        found = await self._verdict(probes, changed, request, wait_for_all=plan.everyone)
            if found is None:
                raise OwnerUnknown("the backends do not tell who owns this task, and one of them did not answer")
            return found
        finally:
            for probe in probes:
                if probe is not found:
                    probe.end()

    async def _ask_first(
        self, probe: Probe, changed: asyncio.Event, request: Callable[[Destination], bytes]
    ) -> Probe | None:
        """The likely owner's answer; None if it does not know the task, or cannot be asked."""
        self._ask([probe], request)
        while probe.reply is Reply.PENDING:
            await changed.wait()
            changed.clear()
            self._ask_again([probe], request)
        return None if probe.reply in (Reply.UNKNOWN_TASK, Reply.FAILED) else probe

    async def _verdict(
        self,
        probes: list[Probe],
        changed: asyncio.Event,
        request: Callable[[Destination], bytes],
        *,
        wait_for_all: bool,
    ) -> Probe | None:
        while True:
            replies = [probe.reply for probe in probes]
            decided = verdict(replies, wait_for_all=wait_for_all)
            if decided is not None:
                return probes[decided]
            if Reply.PENDING not in replies:
                return None
            await changed.wait()
            changed.clear()
            self._ask_again(probes, request)

    async def _connect_all(self, probes: list[Probe]) -> None:
        """Connections to all, before a byte is sent. Raises OwnerUnknown if one cannot be had."""
        connecting = (self._connect(probe, anew=True) for probe in probes)
        results = await asyncio.gather(*connecting, return_exceptions=True)
        for probe, result in zip(probes, results, strict=True):
            if isinstance(result, ProxyError):
                probe.refused(result)
                if probe.reply is not Reply.GONE:
                    raise OwnerUnknown("a backend that may own this task cannot be reached") from result
                continue
            if isinstance(result, BaseException):
                raise result
        if any(probe.connection is not None and probe.connection.is_closing for probe in probes):
            raise OwnerUnknown("a backend that may own this task closed its connection")

    async def _connect(self, probe: Probe, *, anew: bool) -> BackendConnection:
        lane, member = probe.place.lane, probe.place.choice.member
        if not probe.in_flight:
            probe.in_flight = True
            lane.pool.start(member, member.last_used)  # asking who owns a task is no use of a departed member
        connections = lane.connections[member]
        connection = None if anew else connections.lease()
        probe.reused = connection is not None
        if connection is None:
            connection = await connections.dial()
        probe.connection = connection
        return connection

    def _ask(self, probes: list[Probe], request: Callable[[Destination], bytes]) -> None:
        for probe in probes:
            self._background.spawn(self._ask_one(probe, request, anew=False), "ask a backend for a task")

    def _ask_again(self, probes: list[Probe], request: Callable[[Destination], bytes]) -> None:
        """Asks those over a new connection whose old one turned out to be closing: asking for a state changes none."""
        for probe in probes:
            if probe.reused and probe.connection is None and probe.head is None:
                probe.reused = False
                self._background.spawn(self._ask_one(probe, request, anew=True), "ask a backend for a task again")

    async def _ask_one(self, probe: Probe, request: Callable[[Destination], bytes], *, anew: bool) -> None:
        if probe.over:
            return
        try:
            connection = await self._connect(probe, anew=anew)
        except ProxyError as error:
            if not probe.over:
                probe.refused(error)
            return
        if probe.over:
            probe.connection = None
            connection.give_back()
            return
        self._send([probe], request)

    @staticmethod
    def _send(probes: list[Probe], request: Callable[[Destination], bytes]) -> None:
        for probe in probes:
            if probe.connection is not None:
                probe.connection.carry(probe, to_head=False)
                probe.connection.write(request(probe.place))
