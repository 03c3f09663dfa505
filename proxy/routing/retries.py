"""May a failed attempt be repeated on another backend? Never sleeps, never sends.

Rule: an attempt that sent nothing may be made elsewhere, whatever the method, unless an owner binds the request (any
other backend would call its task unknown). A request that may have been sent is never repeated.
"""

from proxy.routing.errors import ProxyError


def may_try_another(failure: ProxyError, *, bound: bool) -> bool:
    """True if a request that failed so may go to an untried backend; `bound`: only its owner may serve it."""
    return failure.nothing_sent and not bound
