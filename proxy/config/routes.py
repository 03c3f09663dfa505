"""The section routes: conditions and where they lead."""

from collections.abc import Collection
from dataclasses import dataclass

from proxy.config.fields import Field
from proxy.config.forms import integer, mapping, text, with_variable
from proxy.config.matching import MATCH, read_match
from proxy.config.names import NAME_PATTERN, NAMES, is_name
from proxy.config.problems import nearest, quoted
from proxy.config.sections import AnyKey, Form, Key, Keys, Section, unread
from proxy.routing.routes import Match, Route

_POOL_OR_SPLIT = "exactly one of pool and split"
_LARGEST_SHARE = 1_000_000


@dataclass(frozen=True, slots=True)
class ReadRoute:
    """A route as read; `match` and `shares` are None where they have mistakes."""

    field: Field
    name: str | None
    match: Match | None
    shares: dict[str, int] | None

    @property
    def route(self) -> Route | None:
        """The route, if it has no mistake."""
        if self.name is None or self.match is None or self.shares is None:
            return None
        return Route(self.name, self.match, self.shares)


def _name(field: Field) -> str | None:
    written = field.text(NAMES)
    if written is not None and not is_name(written):
        field.problem(message="not a name for a route", allowed=NAMES)
        return None
    return written


_PART = integer(0, _LARGEST_SHARE)
_NAME = Key(
    "name",
    text("letters, digits, and `_ . -`", _name, f"^{NAME_PATTERN}$"),
    None,
    "Unique. Metrics and the access log show it.",
    "rest",
    required=True,
)
_MATCH = Key("match", mapping(MATCH, read_match), Match(), "Conditions.", without="none: everything to `/mcp`")
_POOL: AnyKey = Key(
    "pool",
    text("name of a pool", unread),
    None,
    "Where its requests go. Exactly one of `pool` and `split` is given.",
    "agents",
)
_SPLIT: AnyKey = Key(
    "split",
    Form(
        f"mapping of pools to parts, each {_PART.allowed}",
        {"type": "object", "minProperties": 1, "additionalProperties": with_variable(_PART.schema)},
        unread,
    ),
    None,
    "They are shared among these pools, in this proportion. A part of 0 keeps a pool reachable for its tasks.",
    "{agents: 95, canary: 5}",
)
ROUTE = Keys(
    "One route. The first one whose conditions are all met is taken; where none is, the answer is 404.",
    (_NAME, _MATCH, _POOL, _SPLIT),
    {"oneOf": [{"required": ["pool"]}, {"required": ["split"]}]},
)


def read_routes(field: Field, pools: Collection[str] | None) -> list[ReadRoute]:
    """`routes:`, all of them, also those with mistakes. `pools` are the names there are, None if that is not known."""
    lines: dict[str, int] = {}
    return [_route(item, lines, pools) for item in field.items("routes", least=1)]


def _route(field: Field, lines: dict[str, int], pools: Collection[str] | None) -> ReadRoute:
    """A route; `lines` are those of the names before it, to which its own is added."""
    section = ROUTE.section(field)
    if section is None:
        return ReadRoute(field, None, None, None)
    name_field, name = section.require("name", NAMES), section.take(_NAME)
    if name_field is not None and name in lines:
        again = f"the name {name!r} again, first in line {lines[name]}"
        name_field.problem(found=again, allowed="a name of its own for each route")
    elif name is not None:
        lines[name] = field.line
    match = section.take(_MATCH) if (given := section.get("match")) is None else read_match(given)
    return ReadRoute(field, name, match, _shares(section, pools))


def _shares(section: Section, pools: Collection[str] | None) -> dict[str, int] | None:
    pool, split = section.get("pool"), section.get("split")
    if (pool is None) == (split is None):
        found = "neither" if pool is None else "both pool and split"
        section.field.problem(found=found, allowed=_POOL_OR_SPLIT)
        return None
    if pool is not None:
        name = pool.text("the name of a pool")
        return {name: 1} if name is not None and _is_pool(pool, name, pools, found=None) else None
    return None if split is None else _split(split, pools)


def _split(field: Field, pools: Collection[str] | None) -> dict[str, int] | None:
    parts = field.named("pools with their parts of the requests", least=1)
    shares = {name: _PART.read(part) for name, part in parts.items()}
    known = [_is_pool(part, name, pools, found=quoted(name)) for name, part in parts.items()]
    whole = {name: share for name, share in shares.items() if share is not None}
    if not whole or len(whole) < len(shares) or not all(known):
        return None
    if not any(whole.values()):
        field.problem(found="only parts of 0", allowed="at least one part that is more than 0")
        return None
    return whole


def _is_pool(field: Field, name: str, pools: Collection[str] | None, *, found: str | None) -> bool:
    if pools is None or name in pools:
        return True
    there = ", ".join(pool if is_name(pool) else quoted(pool) for pool in pools)
    field.problem(found=found, message="no such pool", allowed=there, near=nearest(name, pools))
    return False


ROUTES: Form[list[ReadRoute]] = Form("list of routes", {}, unread, keys=ROUTE, place="[]")
