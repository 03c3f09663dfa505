"""Pools made up, and who they give an attempt."""

import re

from proxy.routing.backends import Backend
from proxy.routing.balancing import RoundRobin
from proxy.routing.headers import RoutingHeaders
from proxy.routing.members import Member, Source
from proxy.routing.pools import Pool, RingKey

TASKS = [f"task-{number}" for number in range(300)]
BY_NAME = RingKey("name")


def pool_of(
    ids: str,
    *,
    drained: str = "",
    weights: dict[str, int] | None = None,
    ring_key: RingKey | None = None,
    tag: str | None = None,
) -> Pool:
    backends = [
        Backend(one, "127.0.0.1", 8000, weight=(weights or {}).get(one, 1), drain=one in drained) for one in ids
    ]
    owner_tag = None if tag is None else re.compile(tag)
    return Pool("agents", backends, policy=RoundRobin(), ring_key=ring_key, owner_tag=owner_tag)


def member(pool: Pool, backend_id: str) -> Member:
    found = pool.member(backend_id)
    assert found is not None
    return found


def call(name: str | None, *, modern: bool = True) -> RoutingHeaders:
    return RoutingHeaders("POST", "/mcp", modern=modern, method="tools/call", name=name)


def chosen(pool: Pool, request: RoutingHeaders, tried: str = "") -> tuple[str, Source]:
    choice = pool.balance(request, [member(pool, one) for one in tried])
    return choice.member.backend.id, choice.source


def by_ring(pool: Pool, key: str, tried: str = "") -> str:
    choice = pool.by_ring(key, [member(pool, one) for one in tried])
    assert choice.source == "ring"
    return choice.member.backend.id
