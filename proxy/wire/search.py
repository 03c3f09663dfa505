"""The searches of one proxy: how many may run, whose turn it is, and how many wait for backends that are away.

What one search asks, and of whom, is `wire.inquiry`'s; what the answers amount to is decided in routing.searches: 503
`owner_unknown` where nobody knows, never a guess.

A search has `owner_wait` from its first turn on. While it waits for a backend that is away, others have its turn; when
that backend is back, it gets in line again.
"""

import asyncio
from typing import NamedTuple

from proxy.background import Background
from proxy.routing.errors import OwnerUnknown
from proxy.routing.searches import Reply, Room, Turnstile
from proxy.wire.absence import Absences
from proxy.wire.destination import SearchPlan
from proxy.wire.inquiry import Inquiry, Request
from proxy.wire.probe import Probe

BODY_LIMIT = 64 * 1024
"""Bytes of a request's body that are held for a search."""
SEARCHES = 64
SEARCHES_EACH = 32  # of one client address: a flood of random ids must leave room for everybody else
WAITING = 4096
WAITING_EACH = 2048
"""Searches that wait for backends that are away, in all and of one client address: each holds its request."""


class _Ticket(NamedTuple):
    """A search that waits for its turn."""

    address: str
    admitted: "asyncio.Future[None]"


class Searches:
    """The searches of one proxy."""

    def __init__(self, background: Background) -> None:
        self._background = background
        self._turnstile: Turnstile[_Ticket] = Turnstile(capacity=SEARCHES, each=SEARCHES_EACH)
        self._absences = Absences(background)
        self._room = Room(capacity=WAITING, each=WAITING_EACH)

    @property
    def under_way(self) -> int:
        """Searches that run now."""
        return self._turnstile.inside

    @property
    def waiting(self) -> int:
        """Searches that wait for backends that are away, or for their turn to ask those that are back."""
        return len(self._room)

    async def find(self, plan: SearchPlan, address: str, request: Request) -> Probe:
        """The answer to relay; `request` gives the bytes for a backend, `address` is the client's.

        What the probe holds is the caller's from then on. Raises OwnerUnknown.
        """
        limit = max(place.lane.owner_wait for place in plan.candidates)
        try:
            async with asyncio.timeout(limit):
                await self._enter(address)
        except TimeoutError:
            raise OwnerUnknown("too many searches for owners of tasks are under way") from None
        inquiry = Inquiry(plan, request, absences=self._absences, background=self._background)
        found: Probe | None = None
        try:
            async with asyncio.timeout(limit):
                found = await self._ask(inquiry, address)
                if plan.doubtful and found.reply in (Reply.UNKNOWN_TASK, Reply.UNKNOWN_METHOD):
                    found = None
                    raise OwnerUnknown("the owner of this task may be a backend that is not known here yet")
        except TimeoutError:
            raise OwnerUnknown("a backend that may own this task did not answer in time") from None
        finally:
            inquiry.end(found)
        return found

    async def _ask(self, inquiry: Inquiry, address: str) -> Probe:
        """It is this search's turn; it may take several. Raises OwnerUnknown."""
        while True:
            try:
                found = await inquiry.ask()
            finally:
                self._leave(address)
            if found is not None:
                return found
            inquiry.rest()
            if not self._room.has_place(address):
                raise OwnerUnknown("too many searches wait for a backend that is away")
            self._room.enter(address)
            try:
                while not inquiry.may_ask:
                    inquiry.back(await self._absences.one_back(inquiry.awaited))
                await self._enter(address)
            finally:
                self._room.leave(address)

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
