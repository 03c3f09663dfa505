"""What the dashboard asks besides `/api/pools`: all numbers of a snapshot as JSON, and how a pool spreads new work.

Both are read only, and hold no id of a task or a session: labels are those of /metrics.
"""

import asyncio
import json
import time
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Protocol

from aiohttp import web

from proxy.routing.pools import Pool
from proxy.routing.spread import Spread, spread_of
from proxy.snapshot import BUCKETS, Histogram, Histograms, Series, Snapshot
from proxy.together import Together


class Numbers(Protocol):
    """Where the snapshot comes from."""

    def snapshot(self) -> Snapshot:
        """All numbers as they were last heard of."""
        ...


class Overview:
    """The handlers. `refresh` brings up to date what `pools` and `numbers` give."""

    def __init__(
        self,
        numbers: Numbers,
        pools: Callable[[], Mapping[str, Pool]],
        refresh: Callable[[], Awaitable[None]],
        version: str,
    ) -> None:
        self._numbers = numbers
        self._pools = pools
        self._refresh = refresh
        self._version = version
        self._told = Together(self._tell)

    async def overview(self, request: web.Request) -> web.Response:
        """The numbers by their labels."""
        return web.Response(text=await self._told(), content_type="application/json")

    async def _tell(self) -> str:
        await self._refresh()
        # A fleet has thousands of numbers; writing them out must not stop the loop.
        return await asyncio.to_thread(self._text, self._numbers.snapshot(), self._pools())

    async def spread(self, request: web.Request) -> web.Response:
        """How new work is spread in a pool; with `?without=` a backend's id, how it would be without that one."""
        await self._refresh()
        pools, name, without = self._pools(), request.match_info["pool"], request.query.get("without")
        pool = pools.get(name)
        if pool is None:
            raise web.HTTPNotFound(reason=f"no pool {name!r}; there is {', '.join(pools)}")
        if without is not None and pool.member(without) is None:
            raise web.HTTPNotFound(reason=f"no backend {without!r} in pool {pool.name}")
        # A thousand backends have 160,000 places on the ring; walking them must not stop the loop.
        return web.json_response(await asyncio.to_thread(_spread, pool.name, _rule(pool), spread_of(pool, without)))

    def _text(self, snapshot: Snapshot, pools: Mapping[str, Pool]) -> str:
        return json.dumps({"version": self._version, "now": time.time(), **overview(snapshot, pools)})


def overview(snapshot: Snapshot, pools: Mapping[str, Pool]) -> dict[str, object]:
    """A snapshot, and what the pools in force are set to, as values for JSON. Times in seconds."""
    backends = snapshot.in_flight
    return {
        "started": _only(snapshot.started),
        "loaded": _only(snapshot.loaded),
        "workers": snapshot.workers[()],
        "restarts": snapshot.restarts[()],
        "clients": snapshot.clients[()],
        "hangups": snapshot.hangups[()],
        "pools": {
            pool.name: {
                **_rule(pool),
                "state": pool.state,
                "streams": snapshot.streams[pool.name,],
                "queued": snapshot.queued[pool.name,],
                "ejections": snapshot.ejections[pool.name,],
            }
            for pool in pools.values()
        },
        "requests": _named(snapshot.requests, "route method code"),
        "decisions": _named(snapshot.decisions, "pool kind source outcome"),
        "searches": _named(snapshot.searches, "pool outcome"),
        "rejected": _named(snapshot.rejected, "reason"),
        "unlearned": _named(snapshot.unlearned, "reason"),
        "retries": _named(snapshot.retries, "pool reason"),
        "retries_withheld": _named(snapshot.withheld, "pool method"),
        "tls_handshake_failures": _named(snapshot.handshakes_failed, "reason"),
        "discovery_failures": _named(snapshot.discovery_failures, "pool reason"),
        "reloads": _named(snapshot.reloads, "outcome"),
        "responses": [row for row in _named(snapshot.responses, "pool backend class") if _key(row) in backends],
        "bytes": {"in": sum(snapshot.bytes_in.values()), "out": sum(snapshot.bytes_out.values())},
        "pins": {
            "remembered": sum(snapshot.pins.values()),
            "evicted": snapshot.evicted[()],
            "store_up": _only(snapshot.store_up),
        },
        "buckets": BUCKETS,
        "durations": _by_method(snapshot.durations),
        "first_bytes": _by_method(snapshot.first_bytes),
    }


def _spread(pool: str, rule: Mapping[str, object], spread: Spread) -> dict[str, object]:
    backends = [
        {"id": part.backend, "configured": part.configured, "now": part.now, "after": part.after}
        for part in spread.parts()
    ]
    return {"pool": pool, **rule, "backends": backends, "slices": spread.slices()}


def _rule(pool: Pool) -> dict[str, object]:
    """What spreads new work: the policy and, where there is one, the ring's key."""
    key = pool.ring_key
    return {"policy": pool.policy, "ring_key": None if key is None else " ".join(filter(None, (key.kind, key.field)))}


def _named(series: Series, labels: str) -> list[dict[str, Any]]:
    names = labels.split()
    return [{**dict(zip(names, values, strict=True)), "count": number} for values, number in series.items()]


def _key(row: Mapping[str, Any]) -> tuple[str, str]:
    return row["pool"], row["backend"]


def _only(series: Series) -> float | None:
    """The number of a family without labels; None where nobody knows it."""
    return series.get(())


def _by_method(histograms: Histograms) -> dict[str, dict[str, object]]:
    """By MCP method, over all routes or pools. `counts`: of each bucket alone, the last one without a bound."""
    summed: dict[str, Histogram] = {}
    for (_, method), histogram in histograms.items():
        summed.setdefault(method, Histogram()).add(histogram)
    return {method: {"counts": one.counts, "seconds": one.total} for method, one in summed.items()}
