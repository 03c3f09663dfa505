"""A request that goes to many backends: held until its body is whole, then a search for an owner, or a subscription."""

import asyncio
from collections.abc import Coroutine
from typing import Protocol

from proxy.routing.errors import OwnerUnknown, ProxyError
from proxy.routing.searches import Reply
from proxy.wire.client import ClientConnection
from proxy.wire.destination import Destination, ListenPlan, SearchPlan
from proxy.wire.listening import Audience, Listening
from proxy.wire.outgoing import Outgoing
from proxy.wire.probe import Probe
from proxy.wire.relay import Relay
from proxy.wire.request_frame import RequestHead
from proxy.wire.search import BODY_LIMIT
from proxy.wire.surroundings import Surroundings


class Asker(Audience, Protocol):
    """Whose request it is: the exchange."""

    def goes_alone(self, place: Destination) -> None:
        """The request is too large to be held: it goes to one backend alone."""
        ...

    def listens(self, listening: Listening) -> None:
        """The subscription that answers the request from now on, until it hands over what one backend answered."""
        ...

    def refused(self, error: ProxyError) -> None:
        """Nobody knows the owner: to be answered at the next `flush_request`."""
        ...

    def flush_request(self) -> None:
        """Something happened that was awaited: time to write."""
        ...

    def spawn(self, work: Coroutine[None, None, None], name: str) -> "asyncio.Task[None]":
        """Starts a task, which has this name."""
        ...


class ToMany:
    """The sending of one request to the backends of a plan. Called `open` first, `start` once the body is whole."""

    def __init__(
        self,
        around: Surroundings,
        asker: Asker,
        client: ClientConnection,
        head: RequestHead,
        outgoing: Outgoing,
        plan: SearchPlan | ListenPlan,
    ) -> None:
        self._around = around
        self._asker = asker
        self._client = client
        self._head = head
        self._outgoing = outgoing
        self._plan = plan
        self._search: asyncio.Task[None] | None = None

    def open(self) -> None:
        """Has the client send the body; should it be here already, because the pin store took longer, starts."""
        if self._head.frame.expect:
            self._client.write(b"HTTP/1.1 100 Continue\r\n\r\n")
        self._client.hold_body(False)
        self.grown()
        if self._asker.request_received and self._outgoing.bytes_in <= BODY_LIMIT:
            self.start()

    def grown(self) -> None:
        """More of the body came. Of one too large to be held nobody is asked for an owner; a subscription goes to one
        backend alone."""
        if self._outgoing.bytes_in <= BODY_LIMIT:
            return
        try:
            if isinstance(self._plan, SearchPlan):
                raise OwnerUnknown("the request is too large to be held while its task's owner is searched for")
            self._asker.goes_alone(self._plan.at_one(self._head.routing))
        except ProxyError as error:
            self._asker.refused(error)

    def start(self) -> None:
        """Sends the request, which is whole."""
        body, plan = self._outgoing.take_whole(), self._plan
        if isinstance(plan, SearchPlan):
            self._search = self._asker.spawn(self._find_owner(plan, body), "search for a task's owner")
            return
        self._client.rest()
        listening = Listening(
            self._around,
            self._asker,
            self._client,
            self._head,
            plan,
            request=lambda place: self._outgoing.head_for(place, len(body)) + body,
            spawn=self._asker.spawn,
        )
        self._asker.begun(plan.at(plan.members[0]))  # until another opens its stream first
        self._asker.listens(listening)
        listening.start()

    async def _find_owner(self, plan: SearchPlan, body: bytes) -> None:
        around, outgoing = self._around, self._outgoing
        try:
            probe = await around.searches.find(
                plan, self._client.peer, lambda place: outgoing.head_for(place, len(body)) + body
            )
        except OwnerUnknown as error:
            self._search = None
            around.counters.searched(plan.candidates[0].lane.pool.name, "failed")
            self._asker.refused(error)
            self._asker.flush_request()
            return
        self._search = None
        pool = probe.place.lane.pool.name
        around.counters.searched(pool, "found" if probe.reply is Reply.RESULT else "unknown")
        if probe.reply is Reply.RESULT:
            self._client.memory.latest = (pool, probe.place.choice.member.backend.id)
        self._asker.take_over(probe)

    def end(self) -> None:
        """The exchange is over: nobody is asked any more."""
        if self._search is not None:
            self._search.cancel()


def pass_on(probe: Probe, relay: Relay, *, hold: bool) -> None:
    """Relays the answer that decided where the request went: what there is of it now, the rest as it comes.

    `hold`: the client takes no more bytes for now.
    """
    connection, probe.connection = probe.connection, None
    if probe.head is None:
        return
    relay.response_head(probe.head)
    for data in probe.body:
        relay.response_body(data)
    if probe.complete:
        relay.response_complete(reusable=probe.reusable)
        return
    if connection is not None:
        connection.hand_over(relay)
    relay.flush_response()
    relay.hold_response(hold)
