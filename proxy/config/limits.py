"""What is taken at once and how long it may take: `limits:` of a pool, and `limits:` of `listen:`."""

from proxy.config.fields import Field
from proxy.config.forms import duration, integer
from proxy.config.sections import Key, Keys
from proxy.config.values import ClientLimits
from proxy.routing.queueing import USUAL_LIMITS, Limits

_MOST = 1_000_000  # more than a process can have descriptors for
_MOST_WAITING = 100_000  # each holds up to 64 KiB of its request
_CLIENTS = ClientLimits()

_IN_FLIGHT = Key(
    "in_flight",
    integer(1, _MOST),
    USUAL_LIMITS.in_flight,
    "Requests of the pool that are under way in each process.",
    "1000",
)
_PER_BACKEND = Key(
    "per_backend", integer(1, _MOST), None, "The same of each backend.", "200", without="as much as comes"
)
_QUEUE = Key(
    "queue",
    integer(0, _MOST_WAITING),
    USUAL_LIMITS.queue,
    "Requests that wait beyond that, those about tasks and sessions first. `0`: none wait.",
    "100",
)
_QUEUE_WAIT = Key(
    "queue_wait",
    duration(),
    USUAL_LIMITS.queue_wait,
    "How long each may wait; then 503 `overloaded`.",
    "1s",
)
LIMITS = Keys(
    "Requests under way in each process. Subscriptions, the GET streams of sessions and `server/discover` are not "
    "counted and never wait.",
    (_IN_FLIGHT, _PER_BACKEND, _QUEUE, _QUEUE_WAIT),
)

_CONNECTIONS = Key(
    "connections",
    integer(1, _MOST),
    _CLIENTS.connections,
    "Connections of clients, or what half the file descriptors suffice for if that is less. Beyond it clients get 503.",
    "10000",
)
_HEAD = Key(
    "head", duration(), _CLIENTS.head, "For a request's head, from its first byte to its last; then 408.", "10s"
)
_BODY = Key(
    "body", duration(), _CLIENTS.body, "In which nothing comes of a body that is still to come; then 408.", "30s"
)
_IDLE = Key("idle", duration(), _CLIENTS.idle, "Of a connection without a request, which then is closed.", "75s")
CLIENT_LIMITS = Keys(
    "What clients may take of each process, and how slow they may be. A client that waits for an answer is never too "
    "slow.",
    (_CONNECTIONS, _HEAD, _BODY, _IDLE),
)


def read_limits(field: Field) -> Limits | None:
    """`limits:` of a pool."""
    section = LIMITS.section(field)
    if section is None:
        return None
    return Limits(
        in_flight=section.take(_IN_FLIGHT),
        per_backend=section.take(_PER_BACKEND),
        queue=section.take(_QUEUE),
        queue_wait=section.take(_QUEUE_WAIT),
    )


def read_client_limits(field: Field) -> ClientLimits | None:
    """`limits:` of `listen:`."""
    section = CLIENT_LIMITS.section(field)
    if section is None:
        return None
    return ClientLimits(
        connections=section.take(_CONNECTIONS),
        head=section.take(_HEAD),
        body=section.take(_BODY),
        idle=section.take(_IDLE),
    )
