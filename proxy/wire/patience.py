"""How long clients may take, and which of them have to be checked now.

Rules:
* Time passes in ticks. A limit is over at the first tick that is certainly past it: up to one tick late, never early.
* A client is checked when the first of its limits can be over, and then says when to check it again. So thousands of
  quiet ones cost a few checks a tick, and a request that comes and goes costs none.
* A client that is not read from is asked for each tick: no event tells that it has left.
"""

from collections.abc import Hashable
from math import ceil
from typing import Protocol

TICK = 0.5  # seconds
SURPLUS_WAIT = 1.0
"""Seconds in which a client beyond the limit of connections may send the request that it is refused with."""


class Watched(Hashable, Protocol):
    """A client's connection."""

    def check(self, now: int) -> int | None:
        """Ends what has taken too long at this tick; returns the tick of the next check, later than now; None: none."""
        ...

    def notice_departure(self) -> None:
        """Ends the connection if the client has left."""
        ...


class Patience:
    """With the clients of one process. Times in seconds, until they are ticks."""

    def __init__(self, *, head: float, body: float, idle: float) -> None:
        self.now = 0
        """The present tick."""
        self.unread: set[Watched] = set()
        """Those that are not read from."""
        self.surplus = _ticks(SURPLUS_WAIT)
        self._due: dict[Watched, int] = {}
        self._slots: dict[int, set[Watched]] = {}
        self.set_limits(head=head, body=body, idle=idle)

    def set_limits(self, *, head: float, body: float, idle: float) -> None:
        """Those from now on; clients that are watched already feel shorter ones at their next check."""
        self.head, self.body, self.idle = _ticks(head), _ticks(body), _ticks(idle)

    def check_by(self, client: Watched, tick: int) -> None:
        """Sees to it that the client is checked then, or before."""
        due = self._due.get(client)
        if due is not None:
            if due <= tick:
                return
            self._drop(client, due)
        self._due[client] = tick
        slot = self._slots.get(tick)
        if slot is None:
            slot = self._slots[tick] = set()
        slot.add(client)

    def forget(self, client: Watched) -> None:
        """The client is gone."""
        self.unread.discard(client)
        due = self._due.pop(client, None)
        if due is not None:
            self._drop(client, due)

    def tick(self) -> None:
        """The next tick has come."""
        self.now += 1
        for client in tuple(self.unread):
            client.notice_departure()
        for client in tuple(self._slots.pop(self.now, ())):
            if self._due.pop(client, None) is None:
                continue  # gone while others were checked
            again = client.check(self.now)
            if again is not None:
                self.check_by(client, again)

    def _drop(self, client: Watched, due: int) -> None:
        slot = self._slots.get(due)
        if slot is not None:
            slot.discard(client)
            if not slot:
                del self._slots[due]


def _ticks(seconds: float) -> int:
    """So many ticks from the present one, which began up to a tick ago, last at least as long."""
    return ceil(seconds / TICK) + 1
