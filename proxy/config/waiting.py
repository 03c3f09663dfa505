"""A pool's `timeouts:` and `retry:`: how long is waited, and how often a request is sent."""

from dataclasses import dataclass

from proxy.config.fields import Field
from proxy.config.forms import duration, integer, percent
from proxy.config.reading import Scalar
from proxy.config.sections import Key, Keys
from proxy.config.values import (
    DEFAULT_CONNECT_TIMEOUT,
    DEFAULT_HEAD_TIMEOUT,
    DEFAULT_IDLE_TIMEOUT,
    DEFAULT_OWNER_WAIT,
)
from proxy.routing.retries import ONE_REPEAT, RetryRule

_MOST_ATTEMPTS = 10  # beyond this it is a slip: what was sent in vain so often is not for another backend to get

_CONNECT = Key(
    "connect",
    duration(),
    DEFAULT_CONNECT_TIMEOUT,
    "For a backend to accept a connection, the TLS handshake included; then 504 `connect_timeout`.",
    "2s",
)
_HEAD = Key(
    "head",
    duration(),
    DEFAULT_HEAD_TIMEOUT,
    "From a request's last byte to the head of its response; then 504 `head_timeout`.",
    "10m",
)
_IDLE = Key(
    "idle",
    duration(),
    DEFAULT_IDLE_TIMEOUT,
    "In which no byte passes, either way, of what is under way; then it is cut.",
    "1h",
)
_OWNER_WAIT = Key(
    "owner_wait",
    duration(),
    DEFAULT_OWNER_WAIT,
    "For the owner of a task or session to accept a connection at all, and for the answers to a search; then 503.",
    "10s",
)
TIMEOUTS = Keys("How long is waited for a pool's backends.", (_CONNECT, _HEAD, _IDLE, _OWNER_WAIT))

_ATTEMPTS = Key(
    "attempts",
    integer(1, _MOST_ATTEMPTS),
    ONE_REPEAT.attempts,
    "How often such a request is sent, the first time included.",
    "2",
)
_BUDGET = Key(
    "budget",
    percent(),
    ONE_REPEAT.budget,
    "The most repeats, in percent of the pool's requests of the last 10 s; three are always allowed.",
    "20%",
)
RETRY = Keys(
    "Repeats of requests that may have been sent and change nothing: lists, `prompts/get`, `resources/read`, a GET "
    "without a body. A request that was not sent is tried at the pool's other backends in any case, and one that "
    "changes something is never repeated. `off` is the same as `attempts: 1`.",
    (_ATTEMPTS, _BUDGET),
)


@dataclass(frozen=True, slots=True)
class Timeouts:
    """Seconds, each as in PoolConfig."""

    connect: float = DEFAULT_CONNECT_TIMEOUT
    head: float = DEFAULT_HEAD_TIMEOUT
    idle: float = DEFAULT_IDLE_TIMEOUT
    owner_wait: float = DEFAULT_OWNER_WAIT


def read_timeouts(field: Field) -> Timeouts | None:
    """`timeouts:` of a pool."""
    section = TIMEOUTS.section(field)
    if section is None:
        return None
    return Timeouts(section.take(_CONNECT), section.take(_HEAD), section.take(_IDLE), section.take(_OWNER_WAIT))


def read_retry(field: Field) -> RetryRule | None:
    """`retry:` of a pool, a mapping or off; `off` is a single attempt."""
    if isinstance(field.node, Scalar) and not field.node.null:
        switched = field.boolean()
        return None if switched is None else ONE_REPEAT if switched else RetryRule(attempts=1)
    section = RETRY.section(field)
    return None if section is None else RetryRule(section.take(_ATTEMPTS), section.take(_BUDGET))
