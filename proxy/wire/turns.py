"""A request that finds all slots of its pool taken waits for its turn, and is refused where it would wait too long."""

import asyncio
from collections.abc import Callable

from proxy.routing.errors import Overloaded
from proxy.routing.members import Member
from proxy.routing.queueing import Queue, Ticket

_FULL = "too much is under way: try again later"


class Turn:
    """One request's place in the queue of its pool. Raises Overloaded where there is none for it.

    `address`: the client's; `begun`: the request finishes what was begun; `owner`: who alone can serve it.
    """

    def __init__(self, queue: Queue, *, address: str, begun: bool, owner: Member | None) -> None:
        self._queue = queue
        self._came: asyncio.Future[bool] = asyncio.get_running_loop().create_future()
        self._ticket = Ticket(address, begun, owner, _into(self._came))  # which must not know the turn that knows it
        leaving = queue.join(self._ticket)
        if leaving is self._ticket:
            raise Overloaded(_FULL)
        if leaving is not None:
            leaving.tell(False)

    async def come(self) -> None:
        """Returns when a slot is the caller's, to be settled unless it has an owner. Raises Overloaded.

        Returns or raises at once after `give_up`, and means nothing then.
        """
        try:
            async with asyncio.timeout(self._queue.limits.queue_wait):
                came = await self._came
        except TimeoutError:
            came = self._ticket.admitted  # in the same moment
        if not came:
            self._queue.give_up(self._ticket)
            raise Overloaded(_FULL)

    def give_up(self) -> None:
        """The request waits no longer. A slot that it got and has not used is somebody else's."""
        if self._ticket.admitted:
            leave(self._queue, self._ticket.owner)
        else:
            self._queue.give_up(self._ticket)
        self._ticket.tell(False)


def _into(future: asyncio.Future[bool]) -> Callable[[bool], None]:
    """Tells it once."""

    def tell(came: bool) -> None:
        if not future.done():
            future.set_result(came)

    return tell


def leave(queue: Queue, member: Member | None) -> None:
    """Gives a slot back, as `Queue.leave`; whose turn comes by that is told."""
    for ticket in queue.leave(member):
        ticket.tell(True)


def admit(queue: Queue) -> None:
    """Limits or backends may have changed: whose turn has come by that is told."""
    for ticket in queue.admit():
        ticket.tell(True)
