"""What is taken at once and how long it may take: `limits:` of a pool, and `limits:` of `listen:`."""

from proxy.config.fields import Field
from proxy.config.values import ClientLimits
from proxy.routing.queueing import Limits

_MOST = 1_000_000  # more than a process can have descriptors for
_MOST_WAITING = 100_000  # each holds up to 64 KiB of its request


def read_limits(field: Field) -> Limits | None:
    """`limits:` of a pool."""
    section = field.section("in_flight", "per_backend", "queue", "queue_wait")
    if section is None:
        return None
    default = Limits()
    return Limits(
        in_flight=section.read("in_flight", _amount, default.in_flight),
        per_backend=section.read("per_backend", _amount, default.per_backend),
        queue=section.read("queue", lambda queue: queue.integer(0, _MOST_WAITING), default.queue),
        queue_wait=section.read("queue_wait", Field.duration, default.queue_wait),
    )


def read_client_limits(field: Field) -> ClientLimits | None:
    """`limits:` of `listen:`."""
    section = field.section("connections", "head", "body", "idle")
    if section is None:
        return None
    default = ClientLimits()
    return ClientLimits(
        connections=section.read("connections", _amount, default.connections),
        head=section.read("head", Field.duration, default.head),
        body=section.read("body", Field.duration, default.body),
        idle=section.read("idle", Field.duration, default.idle),
    )


def _amount(field: Field) -> int | None:
    return field.integer(1, _MOST)
