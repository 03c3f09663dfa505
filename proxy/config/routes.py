"""The section routes: conditions and where they lead."""

import re
from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass
from datetime import date

from proxy.config.addresses import host_name
from proxy.config.fields import Field, Section
from proxy.config.names import NAMES, TOKENS, condition_instead, header_problem, is_name, is_token
from proxy.config.problems import nearest, quoted
from proxy.routing.headers import is_secret
from proxy.routing.routes import Match, Pattern, ProtocolCondition, Route

_PATTERN = "exact text, a glob (* and ?), or regex:EXPRESSION"
_PROTOCOL = "<DATE, >=DATE or DATE, such as '<2026-07-28'"
_POOL_OR_SPLIT = "exactly one of pool and split"
_LARGEST_SHARE = 1_000_000
_HOST_GLOB = re.compile(r"[A-Za-z0-9_.*?-]+")
_BRACKETED = re.compile(r"\[[0-9A-Fa-f:.*?]+\]")
_WITH_PORT = re.compile(r"(?:\[.*\]|[^:]*):[0-9*?]*")


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


def read_routes(field: Field | None, pools: Collection[str] | None) -> list[ReadRoute]:
    """`routes:`, all of them, also those with mistakes. `pools` are the names there are, None if that is not known."""
    lines: dict[str, int] = {}
    return [_route(item, lines, pools) for item in ([] if field is None else field.items("routes", least=1))]


def _route(field: Field, lines: dict[str, int], pools: Collection[str] | None) -> ReadRoute:
    """A route; `lines` are those of the names before it, to which its own is added."""
    section = field.section("name", "match", "pool", "split")
    if section is None:
        return ReadRoute(field, None, None, None)
    name_field = section.require("name", NAMES)
    name = None if name_field is None else _name(name_field)
    if name_field is not None and name in lines:
        again = f"the name {name!r} again, first in line {lines[name]}"
        name_field.problem(found=again, allowed="a name of its own for each route")
    elif name is not None:
        lines[name] = field.line
    match = section.read("match", _match, None) if "match" in section else Match()
    return ReadRoute(field, name, match, _shares(section, pools))


def _name(field: Field) -> str | None:
    text = field.text(NAMES)
    if text is not None and not is_name(text):
        field.problem(message="not a name for a route", allowed=NAMES)
        return None
    return text


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
    shares = {name: part.integer(0, _LARGEST_SHARE) for name, part in parts.items()}
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


def _match(field: Field) -> Match | None:
    before = len(field.report.problems)
    section = field.section("method", "name", "param", "protocol", "host", "path", "header")
    if section is None:
        return None
    match = Match(
        host=section.read("host", _host, None),
        path=section.read("path", _path, Match().path),
        protocol=section.read("protocol", _protocol, None),
        method=section.read("method", _pattern, None),
        name=section.read("name", _pattern, None),
        params=section.read("param", lambda params: dict(_by_token(params, "param")), {}),
        headers=section.read("header", lambda headers: dict(_by_token(headers, "header")), {}),
    )
    return match if len(field.report.problems) == before else None


def _pattern(field: Field, check: Callable[[str], str] = lambda text: "") -> Pattern | None:
    """A pattern; `check` says what is wrong with the text of an exact one or a glob, or ""."""
    text = field.text(_PATTERN)
    if text is None:
        return None
    if text == "regex:":
        field.problem(message="an empty expression", allowed=_PATTERN)
        return None
    if not text.startswith("regex:"):
        allowed = check(text)
        if allowed:
            field.problem(allowed=allowed)
            return None
    return field.compiled(Pattern, text)


def _path(field: Field) -> Pattern | None:
    return _pattern(
        field, lambda text: "" if text.startswith("/") else "a path that starts with /, or regex:EXPRESSION"
    )


def _host(field: Field) -> Pattern | None:
    pattern = _pattern(field, _host_mistake)
    if pattern is None or pattern.text.startswith("regex:"):
        return pattern
    return Pattern(pattern.text.lower())


def _host_mistake(text: str) -> str:
    if _WITH_PORT.fullmatch(text):
        return "a host without its port: the port is not compared"
    if _BRACKETED.fullmatch(text) or (_HOST_GLOB.fullmatch(text) and ("*" in text or "?" in text or host_name(text))):
        return ""
    return "a host name, an address (IPv6 in brackets), a glob (* and ?) of one, or regex:EXPRESSION"


def _protocol(field: Field) -> ProtocolCondition | None:
    text = field.text(_PROTOCOL)
    if text is None:
        return None
    day = text.removeprefix("<") if text.startswith("<") else text.removeprefix(">=")
    try:
        exact = date.fromisoformat(day).isoformat() == day  # 3.11 reads 20260728 and 2026-W31-2 as well
    except ValueError:
        exact = False
    if not exact:
        field.problem(allowed=_PROTOCOL)
        return None
    return ProtocolCondition(text)


def _by_token(field: Field, kind: str) -> Iterator[tuple[str, Pattern]]:
    """Patterns by the lower-case names of what they are asked of."""
    seen: dict[str, str] = {}
    for name, item in field.named("names with their patterns").items():
        lower = name.lower()
        if not is_token(name):
            item.problem(found="", message=f"not a name for a {kind}", allowed=TOKENS)
            continue
        if lower in seen:
            item.problem(
                found=f"{seen[lower]} again", allowed=f"one {kind} of a name; upper and lower case are the same"
            )
            continue
        seen[lower] = name
        reason = header_problem(name) if kind == "header" else ""
        if reason:
            item.problem(found="", message=f"can never be met: {reason}", near=condition_instead(name))
            continue
        pattern = _pattern(item.hidden() if kind == "header" and is_secret(lower) else item)
        if pattern is not None:
            yield lower, pattern
