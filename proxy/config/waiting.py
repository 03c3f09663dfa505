"""A pool's `timeouts:` and `retry:`: how long is waited, and how often a request is sent."""

from dataclasses import dataclass

from proxy.config.fields import Field
from proxy.config.reading import Scalar
from proxy.config.values import (
    DEFAULT_CONNECT_TIMEOUT,
    DEFAULT_HEAD_TIMEOUT,
    DEFAULT_IDLE_TIMEOUT,
    DEFAULT_OWNER_WAIT,
)
from proxy.routing.retries import ONE_REPEAT, RetryRule

_MOST_ATTEMPTS = 10  # beyond this it is a slip: what was sent in vain so often is not for another backend to get


@dataclass(frozen=True, slots=True)
class Timeouts:
    """Seconds, each as in PoolConfig."""

    connect: float = DEFAULT_CONNECT_TIMEOUT
    head: float = DEFAULT_HEAD_TIMEOUT
    idle: float = DEFAULT_IDLE_TIMEOUT
    owner_wait: float = DEFAULT_OWNER_WAIT


def read_timeouts(field: Field) -> Timeouts | None:
    """`timeouts:` of a pool."""
    section = field.section("connect", "head", "idle", "owner_wait")
    if section is None:
        return None
    default = Timeouts()
    return Timeouts(
        section.read("connect", Field.duration, default.connect),
        section.read("head", Field.duration, default.head),
        section.read("idle", Field.duration, default.idle),
        section.read("owner_wait", Field.duration, default.owner_wait),
    )


def read_retry(field: Field) -> RetryRule | None:
    """`retry:` of a pool, a mapping or off; `off` is a single attempt."""
    default = ONE_REPEAT
    if isinstance(field.node, Scalar) and not field.node.null:
        switched = field.boolean()
        return None if switched is None else default if switched else RetryRule(attempts=1)
    section = field.section("attempts", "budget")
    if section is None:
        return None
    return RetryRule(
        section.read("attempts", lambda attempts: attempts.integer(1, _MOST_ATTEMPTS), default.attempts),
        section.read("budget", lambda budget: budget.percent(1, 100), default.budget),
    )
