"""What follows a failed attempt at a backend: another one, where and after which pause, or an answer.

Whether a repeat does no harm, and for how long one is of use, is decided in routing.retries.
"""

from typing import NamedTuple, NoReturn

from proxy.routing.errors import BackendClosed, NoBackend, OwnerDown, ProxyError
from proxy.routing.members import Member
from proxy.routing.retries import (
    Verdict,
    may_try_another,
    must_be_answered,
    pause_between_rounds,
    pause_to_ask_again,
    verdict,
)
from proxy.routing.rounds import LISTS
from proxy.wire.client import ClientConnection
from proxy.wire.destination import Destination
from proxy.wire.request_frame import RequestHead
from proxy.wire.surroundings import Surroundings


class Next(NamedTuple):
    """The attempt that follows."""

    place: Destination
    pause: float | None = None
    """Seconds before it."""
    stays: bool = False
    """True if it is at the same backend, in the slot that the request has there."""


class Attempts:
    """The attempts of one request that failed. `task` as in `Approach`; `started`: when the request came."""

    def __init__(
        self, around: Surroundings, client: ClientConnection, head: RequestHead, *, task: str | None, started: float
    ) -> None:
        self.tried: list[Member] = []
        """Members that it need not go to again."""
        self.sent = 0
        """Attempts in which it was sent, or begun to be."""
        self.silent_since: float | None = None
        """When the owner failed to answer for the first time."""
        self._around = around
        self._client = client
        self._request = head.routing
        self._label = head.frame.label
        self._task = task
        self._started = started

    def unreached(self, failure: ProxyError, failed: Destination) -> Next:
        """Nothing was sent. Raises what is to be answered."""
        if must_be_answered(self._request):
            return self._ask_all(failure, failed)
        if not may_try_another(failure, bound=failed.bound):
            if failed.bound:
                raise OwnerDown("the backend that owns this task or session cannot be reached")
            raise failure
        self.tried.append(failed.choice.member)
        try:
            other = self._around.directory.find_another(self._request, self._task, failed, self.tried)
        except NoBackend:
            raise failure from None  # all were tried: the last failure is the answer
        self._prefer(other)
        self._around.counters.retried(failed.lane.pool.name, failure.reason)
        return Next(other)

    def unanswered(self, failure: ProxyError, failed: Destination, *, kept: bool) -> Next:
        """It may have been sent, and nothing of an answer is known: it is sent again where that does no harm.

        `kept`: all that was sent still is. Raises what is to be answered.
        """
        self.sent += 1
        if kept and failed.bound and self._request.is_task:
            return self._ask_again(failure, failed)
        if kept and must_be_answered(self._request):
            return self._ask_all(failure, failed)
        lane, counters = failed.lane, self._around.counters
        decided = verdict(
            failure,
            # Where tasks are local, any other backend would call the task unknown.
            repeatable=kept and (failed.kind != "task" or lane.pool.state == "shared"),
            sent=self.sent,
            rule=lane.retry,
            budget=lane.budget,
            now=self._around.clock(),
        )
        if decided is Verdict.WITHHELD:
            counters.withheld(lane.pool.name, self._label)
        if decided is not Verdict.REPEAT:
            raise failure
        place = self._elsewhere(failed)
        counters.retried(lane.pool.name, failure.reason)
        return Next(place)

    def _elsewhere(self, failed: Destination) -> Destination:
        """Another backend for a repeat; the same if there is none, or if it had asked for this request."""
        if failed.bound or failed.kind == "round":
            return failed
        tried = [*self.tried, failed.choice.member]
        try:
            other = self._around.directory.find_another(self._request, self._task, failed, tried)
        except NoBackend:
            return failed
        self.tried = tried
        self.prefer_no_longer(failed)
        self._prefer(other)
        return other

    def _ask_all(self, failure: ProxyError, failed: Destination) -> Next:
        """The next backend, fit or not, of all that there are; if all refused, all of them anew, for a while."""
        find, pause = self._around.directory.find_living, None
        self.tried.append(failed.choice.member)
        try:
            other = find(self._request, failed, self.tried)
        except NoBackend:
            waited, limit = self._around.clock() - self._started, failed.lane.owner_wait
            pause = pause_between_rounds(sent=self.sent, waited=waited, limit=limit)
            if pause is None or not failed.lane.pool.everyone:
                raise failure from None
            self.tried = []
            other = find(self._request, failed)
        self._around.counters.retried(failed.lane.pool.name, failure.reason)
        return Next(other, pause)

    def _ask_again(self, failure: ProxyError, owner: Destination) -> Next:
        """The owner was asked for a task's state and is gone without an answer: it is asked once more, or was for long
        enough. Its kept connections may be of the same age, so a new one is dialled."""
        now = self._around.clock()
        waited = None if self.silent_since is None else now - self.silent_since
        pause = pause_to_ask_again(failure, waited=waited, limit=owner.lane.owner_wait)
        if pause is None:
            _give_up(failure)
        if self.silent_since is None:
            self.silent_since = now
        self._around.counters.retried(owner.lane.pool.name, failure.reason)
        return Next(owner, pause, stays=True)

    # ---- who comes next in a round or list
    def prefer_no_longer(self, failed: Destination) -> None:
        """It failed; what comes of the same round or list is not for it any more, if that was all that led there."""
        if failed.choice.source == "pin" and not failed.bound:
            request, memory, member = self._request, self._client.memory, failed.choice.member
            pool = failed.lane.pool.name
            self._around.rounds.over(pool, request, self._client.peer, memory.rounds, member.backend.id)
            memory.lists.pop(request.method, None)

    def _prefer(self, other: Destination) -> None:
        """What comes of the same list is for this one."""
        request, pool, backend = self._request, other.lane.pool.name, other.choice.member.backend.id
        if request.modern and request.method in LISTS:
            self._client.memory.lists[request.method] = (pool, backend)
            self._around.rounds.listed(pool, request, self._client.peer, backend)


def _give_up(failure: ProxyError) -> NoReturn:
    if isinstance(failure, BackendClosed):
        raise OwnerDown("the backend that owns this task closes its connections without an answer")
    raise failure
