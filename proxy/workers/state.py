"""What one process of a proxy tells another of its pools, as values for JSON."""

from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

from proxy.routing.backends import Backend
from proxy.routing.pools import Pool, Standing


def standings_of(pools: Mapping[str, Pool]) -> dict[str, Any]:
    """The standings of all pools, as values for JSON. All members are named: the other process may have another
    configuration, by which some of them have departed.
    """
    return {
        name: {
            "drains": dict(pool.standing.drains),
            "members": [asdict(one.backend) for one in pool.everyone],
            "down": pool.standing.down,
            "present": [one.backend.id for one in pool.members],
            "incomplete": pool.incomplete,
        }
        for name, pool in pools.items()
    }


def read_standings(values: Mapping[str, Any]) -> dict[str, Standing]:
    """What `standings_of` wrote, by pool; members that the reader has not count as departed."""
    standings = {}
    for name, told in values.items():
        backends = tuple(Backend(**backend) for backend in told["members"])
        present = frozenset(told.get("present", ()))
        members = tuple(backend for backend in backends if backend.id in present)
        down, incomplete = tuple(told.get("down", ())), told.get("incomplete", False)
        standings[name] = Standing(told["drains"], backends, down, members, incomplete)
    return standings


def changed_drains(before: Mapping[str, Any], after: Mapping[str, Any]) -> list[tuple[str, str, bool]]:
    """(pool, backend id, draining) of each drain by command that differs in two texts of `standings_of`.

    A backend that is named no longer is as its configuration says again, which is the opposite of what was named.
    """
    changes = []
    for pool in before.keys() & after.keys():
        was, now = before[pool]["drains"], after[pool]["drains"]
        changes += [(pool, backend, draining) for backend, draining in now.items() if was.get(backend) is not draining]
        changes += [(pool, backend, not draining) for backend, draining in was.items() if backend not in now]
    return sorted(changes)
