"""Which backends are away while searches wait for them, and when one is back.

* A backend is away from when a search begins to wait for it until it can be connected to, or nobody waits any more.
* Meanwhile one loop tries to connect, with pauses, for all who wait; nobody else need try.
* One that left the configuration and refuses is not awaited: who waits finds out by asking it.
"""

import asyncio
from collections.abc import Sequence
from typing import NamedTuple

from proxy.background import Background
from proxy.routing.errors import ConnectRefused, ProxyError
from proxy.routing.members import Member
from proxy.routing.retries import pause_for_absent
from proxy.wire.destination import Lane


class Awaited(NamedTuple):
    """A backend that a search waits for."""

    lane: Lane
    member: Member
    since: float
    """When this search first found it away, by the loop's clock: who has tried for long tries less often."""


class _Absence:
    """One backend that is away."""

    __slots__ = ("looking", "since", "waiting")

    def __init__(self, since: float) -> None:
        self.since = since
        self.waiting: dict[asyncio.Future[Member], None] = {}  # in order: they go on in this order
        self.looking: asyncio.Task[None] | None = None


class Absences:
    """The backends that are away."""

    def __init__(self, background: Background) -> None:
        self._background = background
        self._absences: dict[Member, _Absence] = {}

    def __contains__(self, member: Member) -> bool:
        """True if it is away, and looked for."""
        return member in self._absences

    def __len__(self) -> int:
        return len(self._absences)

    async def one_back(self, awaited: Sequence[Awaited]) -> Member:
        """The first of these that is to be asked again."""
        back: asyncio.Future[Member] = asyncio.get_running_loop().create_future()
        absences = [self._wait_for(one, back) for one in awaited]
        try:
            return await back
        finally:
            for one, absence in zip(awaited, absences, strict=True):
                absence.waiting.pop(back, None)
                if not absence.waiting:
                    self._end(one.member, absence)

    def _wait_for(self, one: Awaited, back: "asyncio.Future[Member]") -> _Absence:
        absence = self._absences.get(one.member)
        if absence is None:
            absence = self._absences[one.member] = _Absence(one.since)
            look = self._look(one.lane, one.member, absence)
            absence.looking = self._background.spawn(look, "look for a backend that is away")
        absence.since = min(absence.since, one.since)
        absence.waiting[back] = None
        return absence

    def _end(self, member: Member, absence: _Absence) -> None:
        if self._absences.get(member) is absence:
            del self._absences[member]
        if absence.looking is not None:
            absence.looking.cancel()

    async def _look(self, lane: Lane, member: Member, absence: _Absence) -> None:
        """Until it is back; whatever happens here, nobody is left waiting for it."""
        try:
            while not await self._is_back(lane, member, absence.since):
                pass
        finally:
            if self._absences.get(member) is absence:
                del self._absences[member]
            for back in absence.waiting:
                if not back.done():
                    back.set_result(member)

    @staticmethod
    async def _is_back(lane: Lane, member: Member, since: float) -> bool:
        """Pauses and tries once; True also if it is gone for good."""
        await asyncio.sleep(pause_for_absent(waited=asyncio.get_running_loop().time() - since))
        connections = lane.connections.get(member)  # anew each time: its address may have changed
        if connections is None:
            return True
        try:
            connection = await connections.dial()
        except ProxyError as error:
            return member.departed and isinstance(error, ConnectRefused)
        connection.give_back()
        return True
