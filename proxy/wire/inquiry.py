"""One search: whom it still has to ask, turn by turn, and the best that was answered so far.

* `tasks/get` goes to all at once. Once nobody is left to ask but backends that are away, the turn is over; in the next
  one those that are back are asked, and nobody else.
* `tasks/update` and `tasks/cancel` go to all or to none: no byte is sent before all connections stand. If one cannot be
  had the turn is over, and all are made anew in the next. Once sent, every answer is awaited, and nothing is repeated.
"""

import asyncio
from collections.abc import Callable

from proxy.background import Background
from proxy.routing.errors import ConnectFailed, ConnectRefused, OwnerUnknown, ProxyError
from proxy.routing.members import Member
from proxy.routing.searches import Reply, verdict, worth_waiting
from proxy.wire.absence import Absences, Awaited
from proxy.wire.backend import BackendConnection
from proxy.wire.destination import Destination, SearchPlan
from proxy.wire.probe import Probe

Request = Callable[[Destination], bytes]
"""Gives the bytes for a backend."""


class Inquiry:
    """The probes of one search. Who has it calls `ask`, then as long as that returns None `rest`, `back` and `ask`; at
    last `end`."""

    def __init__(self, plan: SearchPlan, request: Request, *, absences: Absences, background: Background) -> None:
        self._everyone = plan.everyone
        self._likely = plan.likely
        self._request = request
        self._absences = absences
        self._background = background
        self._changed = asyncio.Event()
        self._since: dict[Member, float] = {}  # when each was first found away
        self._probes = [self._probe(place) for place in plan.candidates]

    @property
    def awaited(self) -> list[Awaited]:
        """The backends that are away."""
        away = [probe.place for probe in self._probes if probe.reply is Reply.ABSENT]
        return [Awaited(place.lane, place.choice.member, self._since[place.choice.member]) for place in away]

    @property
    def may_ask(self) -> bool:
        """True if another turn is of use: one that was away is back, or all are where all are needed."""
        replies = [probe.reply for probe in self._probes]
        return Reply.ABSENT not in replies if self._everyone else Reply.PENDING in replies

    async def ask(self) -> Probe | None:
        """The answer to relay, or None: the rest has to be waited for. Raises OwnerUnknown."""
        probes = self._probes
        if self._everyone:
            if not await self._connect_all():
                return None
            self._send(probes)
        elif self._likely:
            self._likely = False
            found = await self._ask_first(probes[0])
            if found is not None:
                return found
            self._ask(probes[1:])
        else:
            self._ask([probe for probe in probes if probe.reply is Reply.PENDING])
        found = await self._verdict()
        if found is None and (self._everyone or not worth_waiting([probe.reply for probe in probes])):
            raise OwnerUnknown("the backends do not tell who owns this task, and one of them did not answer")
        return found

    def rest(self) -> None:
        """A turn is over: keeps what must be known in the next, and gives back what others can use."""
        now = asyncio.get_running_loop().time()
        away = [probe for probe in self._probes if probe.reply is Reply.ABSENT]
        for probe in away:
            self._since.setdefault(probe.place.choice.member, now)
        if self._everyone:
            self.end()
            self._probes = [probe if probe in away else self._probe(probe.place) for probe in self._probes]
            return
        answered = [probe for probe in self._probes if probe.reply is not Reply.ABSENT]
        best = verdict([probe.reply for probe in answered], wait_for_all=True)
        kept = [] if best is None else [answered[best]]
        for probe in self._probes:
            if probe not in kept or probe.complete:
                probe.end()
        self._probes = [*kept, *away]

    def back(self, member: Member) -> None:
        """One that was away is to be asked in the next turn."""
        self._probes = [
            self._probe(probe.place) if probe.reply is Reply.ABSENT and probe.place.choice.member is member else probe
            for probe in self._probes
        ]

    def end(self, found: Probe | None = None) -> None:
        """The search is over; what was `found` is the caller's."""
        for probe in self._probes:
            if probe is not found:
                probe.end()

    def _probe(self, place: Destination) -> Probe:
        return Probe(place, self._changed.set)

    # ---- answers
    async def _ask_first(self, probe: Probe) -> Probe | None:
        """The likely owner's answer; None if it does not know the task, or cannot be asked."""
        self._ask([probe])
        while probe.reply is Reply.PENDING:
            await self._next_change()
        return None if probe.reply in (Reply.UNKNOWN_TASK, Reply.FAILED, Reply.ABSENT, Reply.GONE) else probe

    async def _verdict(self) -> Probe | None:
        while True:
            replies = [probe.reply for probe in self._probes]
            decided = verdict(replies, wait_for_all=self._everyone)
            if decided is not None:
                return self._probes[decided]
            if Reply.PENDING not in replies:
                return None
            await self._next_change()

    async def _next_change(self) -> None:
        await self._changed.wait()
        self._changed.clear()
        for probe in self._probes:
            # An old connection turned out to be closing. Over a new one: asking for a state changes none.
            if probe.reused and probe.connection is None and probe.head is None:
                probe.reused = False
                self._background.spawn(self._ask_one(probe, anew=True), "ask a backend for a task again")

    # ---- connections
    async def _connect_all(self) -> bool:
        """Connections to all, before a byte is sent; False if one cannot be had now."""
        away = [probe for probe in self._probes if probe.place.choice.member in self._absences]
        for probe in away:
            probe.refused(_away())
        if away:
            return False
        connecting = (self._connect(probe, anew=True) for probe in self._probes)
        results = await asyncio.gather(*connecting, return_exceptions=True)
        for probe, result in zip(self._probes, results, strict=True):
            if isinstance(result, ProxyError):
                probe.refused(result)
            elif isinstance(result, BaseException):
                raise result
        for probe in self._probes:
            if probe.connection is not None and probe.connection.is_closing:
                probe.refused(_away())
        return all(probe.reply is not Reply.ABSENT for probe in self._probes)

    async def _connect(self, probe: Probe, *, anew: bool) -> BackendConnection:
        """Raises ProxyError if it cannot be connected to, or is known to be away."""
        lane, member = probe.place.lane, probe.place.choice.member
        connections = lane.connections.get(member)
        if connections is None:
            raise ConnectRefused("the backend was forgotten meanwhile")
        if not probe.in_flight:
            probe.in_flight = True
            lane.pool.start(member, member.last_used)  # asking who owns a task is no use of a departed member
        connection = None if anew else connections.lease()
        probe.reused = connection is not None
        if connection is None:
            if member in self._absences:
                raise _away()
            connection = await connections.dial()
        probe.connection = connection
        return connection

    def _ask(self, probes: list[Probe]) -> None:
        for probe in probes:
            self._background.spawn(self._ask_one(probe, anew=False), "ask a backend for a task")

    async def _ask_one(self, probe: Probe, *, anew: bool) -> None:
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
        self._send([probe])

    def _send(self, probes: list[Probe]) -> None:
        for probe in probes:
            if probe.connection is not None:
                probe.connection.carry(probe, to_head=False)
                probe.connection.write(self._request(probe.place))


def _away() -> ConnectFailed:
    return ConnectFailed("the backend is away")
