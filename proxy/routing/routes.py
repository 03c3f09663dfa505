"""Which pool may serve a request: rules in order, the first match wins; and which pools it can reach at all.

Rules:
* A condition is met by one pattern; a route matches when all its conditions are met; a route without a `path`
  condition asks for exactly `/mcp`.
* `method`, `name` and `param` conditions are met by modern requests only: legacy servers never check those headers
  against the body, so a client could walk around a rule by sending what it likes.
* A request about a task names no tool, so `method`, `name` and `param` cannot be asked of it. *Reachable* are the pools
  of all routes whose other conditions it meets, in route order.
* OPTIONS is a browser's preflight: it carries none of the MCP headers and is asked for none of them.
"""

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from proxy.routing.headers import FIRST_MODERN, RoutingHeaders, protocol_date

DEFAULT_PATH = "/mcp"


@dataclass(frozen=True, slots=True)
class Pattern:
    """A condition on one value: exact text, a glob (`*` any text, `?` one character), or `regex:` and an expression.

    Both glob and expression must match the whole value. Raises re.error for an expression that does not compile.
    """

    text: str
    _compiled: re.Pattern[str] | None = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        compiled = None
        if self.text.startswith("regex:"):
            compiled = re.compile(self.text.removeprefix("regex:"), re.DOTALL)
        elif self.is_glob:
            wild = {"*": ".*", "?": "."}
            compiled = re.compile("".join(wild.get(char) or re.escape(char) for char in self.text), re.DOTALL)
        object.__setattr__(self, "_compiled", compiled)

    @property
    def is_glob(self) -> bool:
        return not self.text.startswith("regex:") and ("*" in self.text or "?" in self.text)

    @property
    def is_exact(self) -> bool:
        return self._compiled is None

    def matches(self, value: str) -> bool:
        return value == self.text if self._compiled is None else self._compiled.fullmatch(value) is not None


@dataclass(frozen=True, slots=True)
class ProtocolCondition:
    """`<DATE`, `>=DATE` or exactly DATE, asked of MCP-Protocol-Version; absent or not a date is older than all."""

    text: str

    @property
    def meets_legacy(self) -> bool:
        """True if some legacy request meets it, one without a version included."""
        if self.text.startswith("<"):
            return True
        return self.text.removeprefix(">=") < FIRST_MODERN

    def matches(self, version: str) -> bool:
        date = protocol_date(version)
        if self.text.startswith("<"):
            return date < self.text[1:]
        if self.text.startswith(">="):
            return date >= self.text[2:]
        return date == self.text


@dataclass(frozen=True, slots=True)
class Match:
    """A route's conditions; None or empty: not asked. Header names in `headers` are lower case, as are `params`."""

    host: Pattern | None = None
    path: Pattern = Pattern(DEFAULT_PATH)
    protocol: ProtocolCondition | None = None
    method: Pattern | None = None
    name: Pattern | None = None
    params: Mapping[str, Pattern] = field(default_factory=dict)
    headers: Mapping[str, Pattern] = field(default_factory=dict)

    @property
    def only_path(self) -> str | None:
        """The exact path, if that is all that is asked for, else None."""
        others = (self.host, self.protocol, self.method, self.name)
        plain = self.path.is_exact and not any(others) and not self.params and not self.headers
        return self.path.text if plain else None

    def met(self, request: RoutingHeaders) -> bool:
        """True if the request meets every condition. Raises MalformedHeader if a value it needs does not decode."""
        if not self.path.matches(request.path):
            return False
        if request.verb == "OPTIONS":
            return self._place_met(request)
        return self.reached(request) and self._tool_met(request)

    def reached(self, request: RoutingHeaders) -> bool:
        """True if every condition is met that may be asked of a request without a tool name."""
        if not self.path.matches(request.path) or not self._place_met(request):
            return False
        return self.protocol is None or self.protocol.matches(request.version)

    def reached_by_session(self, request: RoutingHeaders) -> bool:
        """`reached` for a request of a legacy session: of its protocol only the era is asked, since `initialize` names
        no version and the requests that follow do."""
        if not self.path.matches(request.path) or not self._place_met(request):
            return False
        return self.protocol is None or self.protocol.meets_legacy

    def _place_met(self, request: RoutingHeaders) -> bool:
        if self.host is not None and not self.host.matches(request.host):
            return False
        if self.headers:
            fields = request.fields
            for name, pattern in self.headers.items():
                value = fields.get(name)
                if value is None or not pattern.matches(value):
                    return False
        return True

    def _tool_met(self, request: RoutingHeaders) -> bool:
        if self.method is None and self.name is None and not self.params:
            return True
        if not request.modern:
            return False
        if self.method is not None and not self.method.matches(request.method):
            return False
        if self.name is not None:
            name = request.decoded_name()
            if name is None or not self.name.matches(name):
                return False
        for param, pattern in self.params.items():
            value = request.decoded_param(param)
            if value is None or not pattern.matches(value):
                return False
        return True


@dataclass(frozen=True, slots=True)
class Route:
    """A rule: where requests that meet `match` go. `shares`: pool names and their parts of the requests, > 0 in sum."""

    name: str
    match: Match
    shares: Mapping[str, int]

    @property
    def keeps_path(self) -> bool:
        """True if the backend gets the request's own path; an exact condition is replaced by the backend URL's path."""
        return not self.match.path.is_exact


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


class RoutingTable:
    """The routes in force. Replaced whole on a change; only the turns of its splits move."""

    def __init__(self, routes: Sequence[Route]) -> None:
        self.routes = tuple(routes)
        # Most routes ask for an exact path and nothing else: those are compared without asking the other conditions.
        self._plain = tuple((route, route.match.only_path) for route in routes)
        self._splits = {route.name: _Split(route.shares) for route in self.routes if len(route.shares) > 1}

    def route_for(self, request: RoutingHeaders) -> Route | None:
        """The first route whose conditions the request meets, or None. Raises MalformedHeader."""
        path = request.path
        for route, only_path in self._plain:
            if path == only_path if only_path is not None else route.match.met(request):
                return route
        return None

    def pool_for(self, route: Route) -> str:
        """The name of the pool whose turn it is on this route."""
        split = self._splits.get(route.name)
        return next(iter(route.shares)) if split is None else split.next()

    def reachable(self, request: RoutingHeaders) -> dict[str, Route]:
        """The pools that may serve a request without a tool name, in route order, each with the first route to it.

        A pool with share 0 is reachable: it is being emptied, and still holds what it owns.
        """
        return self._led_to(route for route in self.routes if route.match.reached(request))

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
