"""May a failed attempt be repeated, where and when? Never sleeps, never sends.

Rules:
* An attempt that sent nothing may be made elsewhere, whatever the method, unless an owner binds the request (any other
  backend would call its task unknown). A request that may have been sent is never repeated.
* An owner that cannot be reached is tried again for a while: a restart is over in seconds.
"""

from proxy.routing.errors import ProxyError

_FIRST_PAUSE, _LONGEST_PAUSE = 0.05, 0.5  # seconds


def may_try_another(failure: ProxyError, *, bound: bool) -> bool:
    """True if a request that failed so may go to an untried backend; `bound`: only its owner may serve it."""
    return failure.nothing_sent and not bound


def pause_for_owner(failure: ProxyError, *, waited: float, limit: float) -> float | None:
    """Seconds until the owner is tried again, or None: give up. `waited` so far, of `limit` (`owner_wait`)."""
    if not failure.nothing_sent:
        return None
    pause = min(max(_FIRST_PAUSE, waited / 2), _LONGEST_PAUSE)
    return pause if waited + pause <= limit else None
