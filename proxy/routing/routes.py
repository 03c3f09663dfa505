"""What a route asks of a request: conditions on what its head says.

Rules:
* A condition is met by one pattern; a route matches when all its conditions are met; a route without a `path`
  condition asks for exactly `/mcp`.
* `method`, `name` and `param` conditions are met by modern requests only: legacy servers never check those headers
  against the body, so a client could walk around a rule by sending what it likes.
* A request about a task names no tool, so `method`, `name` and `param` cannot be asked of it.
* OPTIONS is a browser's preflight: it carries none of the MCP headers and is asked for none of them.
"""

import re
from collections.abc import Mapping
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
    def beginning(self) -> str:
        """The plain text that every value which matches this glob begins with; empty for anything but a glob."""
        return re.split(r"[*?]", self.text, maxsplit=1)[0] if self.is_glob else ""

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
