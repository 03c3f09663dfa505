"""Which pool may serve a request: rules in order, the first match wins; and which pools it can reach at all.

Rules:
* The conditions of routes are in routing.routes; which of them need not be looked at for a request, in
  routing.selection.
* A request about a task names no tool. *Reachable* are the pools of all routes whose other conditions it meets, in
  route order.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import TypeAlias

from proxy.routing.errors import MalformedHeader
from proxy.routing.headers import RoutingHeaders
from proxy.routing.routes import Route
from proxy.routing.selection import Selection

_MOST_PLACES = 1024  # values of the fields that reachability is asked of; what can be reached from them is remembered
_LONGEST_PLACE = 1024  # characters of them; clients choose what is longer

_Place: TypeAlias = tuple[str | None, ...]


class _Split:
    """Hands out a route's pools in exact proportion to their shares, interleaved (smooth weighted round robin)."""

    def __init__(self, shares: Mapping[str, int]) -> None:
        self._shares = shares
        self._total = sum(shares.values())
        self._credit = dict.fromkeys(shares, 0)

    def next(self) -> str:
        credit = self._credit
        for pool, share in self._shares.items():
            credit[pool] += share
        richest = max(credit, key=credit.__getitem__)
        credit[richest] -= self._total
        return richest

    def give_back(self, pool: str) -> None:
        """The turn that this pool was just given was not used, and comes again."""
        self._credit[pool] += self._total
        for each, share in self._shares.items():
            self._credit[each] -= share


class RoutingTable:
    """The routes in force. Replaced whole on a change; only the turns of its splits move."""

    def __init__(self, routes: Sequence[Route]) -> None:
        self.routes = tuple(routes)
        self._selection = Selection(self.routes)
        self._reached: dict[_Place, Mapping[str, Route]] = {}
        self._headers = sorted({header for route in self.routes for header in route.match.headers})
        self.asks_for_names = any(route.match.name is not None for route in self.routes)
        """True if some route asks for Mcp-Name."""
        self._splits = {route.name: _Split(route.shares) for route in self.routes if len(route.shares) > 1}

    def route_for(self, request: RoutingHeaders) -> Route | None:
        """The first route whose conditions the request meets, or None. Raises MalformedHeader."""
        if request.verb != "OPTIONS":  # which is asked for few conditions
            try:
                return self._selection.first(request)
            except MalformedHeader:
                pass  # whether anybody asks for that value depends on the routes before
        return next((route for route in self.routes if route.match.met(request)), None)

    def pool_for(self, route: Route) -> str:
        """The name of the pool whose turn it is on this route."""
        split = self._splits.get(route.name)
        return next(iter(route.shares)) if split is None else split.next()

    def give_back(self, route: Route, pool: str) -> None:
        """Nothing came of the turn that this pool was just given on this route: the next request has it."""
        split = self._splits.get(route.name)
        if split is not None:
            split.give_back(pool)

    def reachable(self, request: RoutingHeaders) -> Mapping[str, Route]:
        """The pools that may serve a request without a tool name, in route order, each with the first route to it.

        A pool with share 0 is reachable: it is being emptied, and still holds what it owns.
        """
        fields = request.fields
        place = request.host, request.path, request.version, *(fields.get(header) for header in self._headers)
        pools = self._reached.get(place)
        if pools is None:
            pools = self._led_to(route for route in self.routes if route.match.reached(request))
            if sum(len(value or "") for value in place) <= _LONGEST_PLACE:
                if len(self._reached) >= _MOST_PLACES:
                    self._reached.clear()
                self._reached[place] = pools
        return pools

    def reachable_by_session(self, request: RoutingHeaders) -> dict[str, Route]:
        """The same for a request of a legacy session."""
        return self._led_to(route for route in self.routes if route.match.reached_by_session(request))

    @staticmethod
    def _led_to(routes: Iterable[Route]) -> dict[str, Route]:
        pools: dict[str, Route] = {}
        for route in routes:
            for pool in route.shares:
                pools.setdefault(pool, route)
        return pools
