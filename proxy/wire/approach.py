"""One request's way to a backend: a slot where the pool's limits want one, then a connection, kept or dialled.

Where that takes time, or fails, it is awaited or goes on at another backend, as wire.attempts decides. Unless something
has to be awaited, all of it happens in plain calls.
"""

import asyncio
from collections.abc import Coroutine
from typing import Protocol

from proxy.routing.errors import ConnectRefused, Overloaded, ProxyError
from proxy.routing.members import Member
from proxy.routing.queueing import is_limited
from proxy.routing.retries import pause_for_owner
from proxy.wire.attempts import Attempts, Next
from proxy.wire.backend import BackendConnection
from proxy.wire.client import ClientConnection
from proxy.wire.destination import Destination
from proxy.wire.request_frame import RequestHead
from proxy.wire.surroundings import Surroundings
from proxy.wire.turns import Turn


class Sender(Protocol):
    """Whose request it is: the exchange."""

    def begin(self) -> None:
        """The backend is gone for good: where the request goes is to be found anew."""
        ...

    def reached(self, connection: BackendConnection, place: Destination) -> None:
        """The request can be sent."""
        ...

    def refused(self, error: ProxyError) -> None:
        """There is nobody to send it to: to be answered at the next `flush_request`."""
        ...

    def flush_request(self) -> None:
        """Something happened that was awaited: time to write."""
        ...

    def spawn(self, work: Coroutine[None, None, None], name: str) -> object:
        """Starts a task, which has this name."""
        ...


class Approach:
    """One request's way to its backends, one after the other. `leave` it for good at last."""

    __slots__ = (
        "_around",
        "_attempts",
        "_client",
        "_head",
        "_over",
        "_sender",
        "_turn",
        "_under_way",
        "destination",
        "slot",
        "started",
        "task",
    )

    def __init__(
        self, around: Surroundings, sender: Sender, client: ClientConnection, head: RequestHead, started: float
    ) -> None:
        self.task: str | None = None
        """The id, for a request about a task."""
        self.destination: Destination | None = None
        """Where it goes, or went last."""
        self.slot = False
        """True while it counts for the limits of its pool."""
        self.started = started
        """When the request came; monotonic, in seconds."""
        self._around = around
        self._sender = sender
        self._client = client
        self._head = head
        self._over = False
        self._turn: Turn | None = None  # waited for
        self._under_way = False  # counted as in flight at the destination
        self._attempts: Attempts | None = None  # those that failed, if any did

    def go(self, place: Destination, pause: float | None = None) -> None:
        """To this backend, or another of its pool that has room; `pause`: seconds before it is dialled."""
        self.destination = place
        if is_limited(self._head.routing):
            queue = place.lane.pool.queue
            if not queue.enter(place.choice.member):
                other = self._with_room(place)
                if other is None or not queue.enter(other.choice.member):
                    self._queue(place)
                    return
                self.destination = place = other
            self.slot = True
        self._reach(place, pause)

    def _reach(self, place: Destination, pause: float | None = None) -> None:
        lane, member, attempts = place.lane, place.choice.member, self._attempts
        if attempts is None:
            lane.budget.requested(self.started)
        lane.pool.start(member, self.started)
        self._under_way = True
        connections = lane.connections.get(member)
        # What is sent again goes over a new connection: kept ones may be of the age of the one that closed.
        sent = attempts is not None and attempts.sent
        connection = None if sent or connections is None else connections.lease()
        if connection is None:
            self._sender.spawn(self._dial(place, pause), "dial a backend")
        else:
            self._sender.reached(connection, place)

    def found(self, place: Destination, *, in_flight: bool) -> None:
        """A search has reached it there already, and it counts as in flight there if it does."""
        self.destination, self._under_way = place, in_flight

    def take_up(self, place: Destination, task: str | None, started: float) -> None:
        """It was sent there already, and has its slot."""
        self.destination, self.task, self.started = place, task, started
        self.slot = self._under_way = True

    # ---- a slot
    def _with_room(self, found: Destination) -> Destination | None:
        """Where it goes instead of the backend that it would prefer, and that has all it may have; None: nowhere."""
        if found.bound or found.lane.pool.queue.has_room_at(found.choice.member):
            return None
        try:
            return self._chosen_anew(found)
        except ProxyError:
            return None

    def _queue(self, found: Destination) -> None:
        """Waits for a slot, or is refused."""
        owner = found.choice.member if found.bound else None
        begun = found.kind != "none" or bool(self._tried)
        try:
            self._turn = Turn(found.lane.pool.queue, address=self._client.peer, begun=begun, owner=owner)
        except Overloaded as error:
            self._sender.refused(error)
        else:
            self._sender.spawn(self._await_turn(found, self._turn), "wait for a slot")

    async def _await_turn(self, found: Destination, turn: Turn) -> None:
        queue = found.lane.pool.queue
        try:
            await turn.come()
            if self._over:
                return
            if not found.bound:
                found = self._chosen_anew(found)
                queue.settle(found.choice.member)
        except ProxyError as error:
            if self._over:
                return
            self._turn = None
            turn.give_up()
            self._sender.refused(error)
        else:
            self._turn, self.slot, self.destination = None, True, found
            self._reach(found)
        self._sender.flush_request()

    def _chosen_anew(self, found: Destination) -> Destination:
        """Where it goes now that it may: what was free or even there when it came need not be so any more."""
        if found.choice.source == "pin" and found.lane.pool.queue.has_room_at(found.choice.member):
            return found
        return self._around.directory.find_another(self._head.routing, self.task, found, self._tried)

    # ---- a connection
    async def _dial(self, place: Destination, pause: float | None = None) -> None:
        """A new connection, after a pause, and the request can be sent. An owner is awaited."""
        attempts, member, clock = self._attempts, place.choice.member, self._around.clock
        began = clock() if attempts is None or attempts.silent_since is None else attempts.silent_since
        while True:
            if pause is not None:
                await asyncio.sleep(pause)
                if self._over:
                    return
            try:
                connections = place.lane.connections.get(member)  # anew each time: it may have moved
                if connections is None:
                    raise ConnectRefused("the backend was forgotten meanwhile")
                connection = await connections.dial()
                break
            except ProxyError as error:
                pause = None
                if place.bound and not (member.departed and isinstance(error, ConnectRefused)):
                    pause = pause_for_owner(error, waited=clock() - began, limit=place.lane.owner_wait)
                if pause is None:
                    if not self._over:
                        self._unreached(error, place)
                    return
        if self._over:
            connection.give_back()
            return
        self._sender.reached(connection, place)
        self._sender.flush_request()

    # ---- where that fails
    def _unreached(self, failure: ProxyError, failed: Destination) -> None:
        """The chosen backend could not be reached: another one's turn, or an answer."""
        self.leave()
        member, pool, attempts = failed.choice.member, failed.lane.pool, self._failures()
        pool.fitness.failed(member, failure, self._around.clock())
        attempts.prefer_no_longer(failed)
        if member.departed and isinstance(failure, ConnectRefused):
            pool.forget(member)  # it was kept for what it owned, and is gone
            self._sender.begin()
        else:
            try:
                following = attempts.unreached(failure, failed)
            except ProxyError as error:
                self._sender.refused(error)
            else:
                self.go(following.place, following.pause)
        self._sender.flush_request()

    def after_silence(self, failure: ProxyError, failed: Destination, *, kept: bool) -> Next:
        """What to `follow` now that this backend has failed before it began to answer; `kept`: all that was sent is.

        Raises what is to be answered instead.
        """
        return self._failures().unanswered(failure, failed, kept=kept)

    def follow(self, following: Next) -> None:
        """Makes the next attempt; all of the request is to be sent once more."""
        if following.stays:
            self._sender.spawn(self._dial(following.place, following.pause), "ask a task's owner again")
        else:
            self.leave()
            self.go(following.place, following.pause)

    def _failures(self) -> Attempts:
        if self._attempts is None:
            self._attempts = Attempts(self._around, self._client, self._head, task=self.task, started=self.started)
        return self._attempts

    @property
    def _tried(self) -> list[Member]:
        return [] if self._attempts is None else self._attempts.tried

    # ---- the end
    def leave(self, *, for_good: bool = False) -> None:
        """It is under way no more, and waits for nothing. `for_good`: the exchange is over, and known no more."""
        if for_good and not self._over:
            self._over = True
            del self._sender  # they know each other: without this, only the garbage collector would free them
        if self._turn is not None:
            turn, self._turn = self._turn, None
            turn.give_up()
        if self._under_way and self.destination is not None:
            self._under_way = False
            member, pool = self.destination.choice.member, self.destination.lane.pool
            pool.end(member)
            if self.slot:
                self.slot = False
                for ticket in pool.queue.leave(member):
                    ticket.tell(True)
