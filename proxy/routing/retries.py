"""May a failed attempt be repeated, where and when? Never sleeps, never sends.

Rules:
* An attempt that sent nothing may be made elsewhere, whatever the method, unless an owner binds the request (any other
  backend would call its task unknown). It cost no backend anything, so neither a rule nor a budget limits it.
* An owner that cannot be reached is tried again for a while: a restart is over in seconds.
* A request that may have been sent is repeated only if it changes nothing, its connection closed, and the client has
  seen nothing of an answer. So often as the pool's rule says, and as long as its budget lasts: when every answer is
  lost, repeats would double the load of backends that fail under it.
* One that asks its owner for a task's state is repeated at that owner alone, for as long as that is awaited, beside
  rule and budget. At once for the first time, since a kept connection may have been closing when the request was sent;
  then with the pauses of an owner that cannot be reached.
* `server/discover` is asked of every backend, whatever the failure and beside rule and budget, before it gets an error
  of the proxy's own: one makes clients take the server for one of the older protocol.
"""

from collections import deque
from dataclasses import dataclass
from enum import Enum

from proxy.routing.errors import BackendClosed, ProxyError
from proxy.routing.headers import RoutingHeaders

_FIRST_PAUSE, _LONGEST_PAUSE = 0.05, 0.5  # seconds

_DISCOVER, _STATE = "server/discover", "tasks/get"
_HARMLESS = frozenset(
    {
        _DISCOVER,
        _STATE,
        "tools/list",
        "prompts/list",
        "resources/list",
        "resources/templates/list",
        "prompts/get",
        "resources/read",
    }
)
"""Methods that change nothing by MCP's own words; of a method that nobody knows, nobody can say."""


@dataclass(frozen=True, slots=True)
class RetryRule:
    """How often a request may be sent, the first time included; the most repeats, in percent of a pool's requests."""

    attempts: int = 2
    budget: int = 20


ONE_REPEAT = RetryRule()


class RetryBudget:
    """A pool's repeats among its latest requests. Times are monotonic, in seconds."""

    WINDOW = 10  # seconds that count
    ALWAYS = 3  # repeats in a window, however few requests there were: a share of few is none

    __slots__ = ("_past", "_repeats", "_requests", "_second")

    def __init__(self) -> None:
        self._second = 0
        self._requests = 0  # of this second, as the repeats
        self._repeats = 0
        self._past: deque[tuple[int, int, int]] = deque()  # (second, requests, repeats), the oldest first

    def requested(self, now: float) -> None:
        """A request begins. On the fast path."""
        if now >= self._second + 1:
            self._turn(int(now))
        self._requests += 1

    def take(self, now: float, *, percent: int) -> bool:
        """True if there may be a repeat now, which is counted then. `percent`: of the requests in the window."""
        if now >= self._second + 1:
            self._turn(int(now))
        while self._past and self._past[0][0] <= self._second - self.WINDOW:
            self._past.popleft()
        requests = self._requests + sum(requests for _, requests, _ in self._past)
        repeats = self._repeats + sum(repeats for _, _, repeats in self._past)
        if repeats >= max(self.ALWAYS, requests * percent // 100):
            return False
        self._repeats += 1
        return True

    def _turn(self, second: int) -> None:
        if self._requests or self._repeats:
            self._past.append((self._second, self._requests, self._repeats))
            if len(self._past) > self.WINDOW:
                self._past.popleft()
        self._second, self._requests, self._repeats = second, 0, 0


def may_try_another(failure: ProxyError, *, bound: bool) -> bool:
    """True if a request that failed so may go to an untried backend; `bound`: only its owner may serve it."""
    return failure.nothing_sent and not bound


def pause_for_owner(failure: ProxyError, *, waited: float, limit: float) -> float | None:
    """Seconds until the owner is tried again, or None: give up. `waited` so far, of `limit` (`owner_wait`)."""
    return _pause(waited, limit) if failure.nothing_sent else None


def may_repeat(request: RoutingHeaders) -> bool:
    """True if this request may be sent twice, a GET if it has no body: it changes nothing.

    A legacy request's `Mcp-Method` says nothing, since nobody checks it.
    """
    if request.verb == "POST":
        return request.modern and request.method in _HARMLESS
    return request.verb == "GET"


def must_be_answered(request: RoutingHeaders) -> bool:
    """True if every backend is asked before this request gets an error of the proxy's own."""
    return request.modern and request.method == _DISCOVER and request.verb == "POST"


class Verdict(Enum):
    """What follows for a request that may have been sent."""

    REPEAT = "repeat"
    WITHHELD = "withheld"
    """A repeat might have helped, but may do harm, or the budget is used up."""
    FAIL = "fail"


def verdict(
    failure: ProxyError, *, repeatable: bool, sent: int, rule: RetryRule, budget: RetryBudget, now: float
) -> Verdict:
    """What follows a failure of which the client has seen nothing; `sent`: how often the request was, so far."""
    if not isinstance(failure, BackendClosed):
        return Verdict.FAIL  # what it answers cannot be read or awaited, and could not be the next time
    if not repeatable:
        return Verdict.WITHHELD
    if sent >= rule.attempts:
        return Verdict.FAIL
    return Verdict.REPEAT if budget.take(now, percent=rule.budget) else Verdict.WITHHELD


def pause_to_ask_again(failure: ProxyError, *, waited: float | None, limit: float) -> float | None:
    """Seconds until an owner that did not answer is asked again for a task's state, or None: give up.

    `waited` since it failed to answer for the first time, None if that is now; of `limit` (`owner_wait`).
    """
    if not isinstance(failure, BackendClosed):
        return None  # what it answers cannot be read, and would not be the next time
    return 0.0 if waited is None else _pause(waited, limit)


def pause_between_rounds(*, sent: int, waited: float, limit: float) -> float | None:
    """Seconds until all backends are asked anew for what `must_be_answered`, once none has, or None: give up.

    `sent` to how many of them: only while all refuse, which a restart of the last one explains. `waited` of `limit`
    (`owner_wait`).
    """
    return None if sent else _pause(waited, limit)


def pause_for_absent(*, waited: float) -> float:
    """Seconds until a backend that is awaited is looked for again; `waited` so far."""
    return min(max(_FIRST_PAUSE, waited / 2), _LONGEST_PAUSE)


def _pause(waited: float, limit: float) -> float | None:
    pause = pause_for_absent(waited=waited)
    return pause if waited + pause <= limit else None
