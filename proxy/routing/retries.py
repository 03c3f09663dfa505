"""May a failed attempt be repeated, where and when? Never sleeps, never sends.

Rules:
* An attempt that sent nothing may be made elsewhere, whatever the method, unless an owner binds the request (any other
  backend would call its task unknown).
* An owner that cannot be reached is tried again for a while: a restart is over in seconds.
* A request that may have been sent is repeated if it asks its owner for a task's state, which changes none, and if the
  client has seen nothing of an answer: at the same owner, for as long as that is awaited. At once for the first time,
  since a kept connection may have been closing when the request was sent; then with the pauses of an owner that cannot
  be reached. Nothing else that may have been sent is ever repeated.
"""

from proxy.routing.errors import BackendClosed, ProxyError

_FIRST_PAUSE, _LONGEST_PAUSE = 0.05, 0.5  # seconds


def may_try_another(failure: ProxyError, *, bound: bool) -> bool:
    """True if a request that failed so may go to an untried backend; `bound`: only its owner may serve it."""
    return failure.nothing_sent and not bound


def pause_for_owner(failure: ProxyError, *, waited: float, limit: float) -> float | None:
    """Seconds until the owner is tried again, or None: give up. `waited` so far, of `limit` (`owner_wait`)."""
    return _pause(waited, limit) if failure.nothing_sent else None


def may_ask_again(method: str) -> bool:
    """True if a modern request of this method may be sent to its owner twice."""
    return method == "tasks/get"


def pause_to_ask_again(failure: ProxyError, *, waited: float | None, limit: float) -> float | None:
    """Seconds until an owner that did not answer is asked again what it `may_ask_again`, or None: give up.

    `waited` since it failed to answer for the first time, None if that is now; of `limit` (`owner_wait`).
    """
    if not isinstance(failure, BackendClosed):
        return None  # what it answers cannot be read, and would not be the next time
    return 0.0 if waited is None else _pause(waited, limit)


def pause_for_absent(*, waited: float) -> float:
    """Seconds until a backend that is awaited is looked for again; `waited` so far."""
    return min(max(_FIRST_PAUSE, waited / 2), _LONGEST_PAUSE)


def _pause(waited: float, limit: float) -> float | None:
    pause = pause_for_absent(waited=waited)
    return pause if waited + pause <= limit else None
