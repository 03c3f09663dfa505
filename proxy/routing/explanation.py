"""What would become of a request, and why: the value that an operator is shown.

Of a task or a secret ring key it holds only a digest; what it holds of the request itself is for the process alone.
"""

from dataclasses import dataclass

from proxy.routing.conditions import Asked
from proxy.routing.errors import ProxyError
from proxy.routing.headers import RoutingHeaders
from proxy.routing.members import Source


@dataclass(frozen=True, slots=True)
class Failure:
    """The proxy's own answer, as in its table of errors."""

    reason: str
    status: int
    code: int
    """Of JSON-RPC."""
    message: str

    @classmethod
    def of(cls, error: ProxyError, *, modern: bool) -> "Failure":
        return cls(error.reason, error.status, error.code_for(modern=modern), str(error))


@dataclass(frozen=True, slots=True)
class Verdict:
    """A route, and the first of its conditions that the request does not meet; "" for none."""

    route: str
    unmet: str


@dataclass(frozen=True, slots=True)
class Standing:
    """A backend as it stands. `url`: what it would be asked for, without query."""

    id: str
    url: str
    weight: int
    in_flight: int
    draining: bool
    departed: bool
    up: bool = True
    ejected: bool = False


@dataclass(frozen=True, slots=True)
class RingOrder:
    """What a ring decides by: its key, for showing, and the ids of all backends in its order."""

    key: str
    order: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Place:
    """What happens in one pool. `part` of `whole` requests of the route come here."""

    route: str
    pool: str
    kind: str
    """`task`, `session`, `round` or `none`: what binds the request to a backend, or makes it prefer one."""
    source: Source | None
    """What names the backend; None where none can be named."""
    backends: tuple[Standing, ...] = ()
    """The one that serves; for the source search all that are asked, in this order; with a policy one of these."""
    policy: str = ""
    """What picks one of the backends when its turn comes."""
    ring: RingOrder | None = None
    failure: Failure | None = None
    together: bool = False
    """True for a subscription that all of the backends serve, their event streams merged."""
    part: int = 1
    whole: int = 1


@dataclass(frozen=True, slots=True)
class Explanation:
    """What would become of one request. `failure`: the proxy would answer it itself."""

    request: RoutingHeaders | None
    """None where the head cannot be read."""
    kind: str = "none"
    name: str | None = None
    """Mcp-Name decoded; None where there is none, where it does not decode, and of requests about tasks."""
    task: str | None = None
    """Digest of the task's id."""
    asked: Asked = "all"
    """Which of their conditions the routes were asked."""
    verdicts: tuple[Verdict, ...] = ()
    """The routes that were asked, in order."""
    rule: str | None = None
    """The route that decides."""
    reachable: tuple[str, ...] | None = None
    """The pools that may hold the owner; None for requests that have none."""
    places: tuple[Place, ...] = ()
    """One; or those of a split; or, with the source search, all pools that are searched."""
    everyone: bool = False
    """True for a search that all backends have to answer, since the request changes something."""
    failure: Failure | None = None
    notes: tuple[str, ...] = ()


def refused(error: ProxyError, request: RoutingHeaders | None = None) -> Explanation:
    """The explanation of a request that is answered before anything is decided; None: its head cannot be read."""
    modern = request is not None and request.modern
    return Explanation(request, failure=Failure.of(error, modern=modern))
