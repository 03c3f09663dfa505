"""Mistakes that show only when sections are held against each other.

A section with mistakes of its own is left out, so that one mistake is not reported in many places.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace

from proxy.config.addresses import is_loopback, is_wildcard
from proxy.config.fields import Field
from proxy.config.pools import ReadPool
from proxy.config.problems import Report
from proxy.config.routes import ReadRoute
from proxy.config.values import LOCAL_HOSTS, Admin, Listen
from proxy.routing.headers import FIRST_MODERN
from proxy.routing.routes import Match, Pattern, ProtocolCondition

Condition = tuple[str, Pattern | ProtocolCondition]


def check_routes(routes: Sequence[ReadRoute]) -> None:
    """A route must be able to match: alone, and after those before it."""
    before: list[tuple[ReadRoute, frozenset[Condition]]] = []
    for read in routes:
        match = read.match
        if match is None:
            continue
        if _is_legacy(match) and (match.method or match.name or match.params):
            read.field.problem(
                found=f"method, name or param beside {match.protocol.text if match.protocol else ''}",
                message="can never match: they are asked of requests from 2026-07-28 on only",
            )
        conditions = _conditions(match)
        first = next((earlier for earlier, asked in before if asked <= conditions), None)
        if first is None:
            before.append((read, conditions))
        else:
            name = "" if first.name is None else f" {first.name}"
            read.field.problem(
                found=f"no condition that the route{name} in line {first.field.line} does not have",
                message="can never match: that one comes first",
            )


def check_reach(pools: Mapping[str, ReadPool], routes: Sequence[ReadRoute]) -> None:
    """Every pool must be in a route."""
    if any(read.shares is None for read in routes):
        return
    reached = {pool for read in routes for pool in read.shares or ()}
    for name, pool in pools.items():
        if name not in reached:
            pool.field.problem(found="", message="no route leads to this pool", allowed="pools that a route leads to")


def check_ring_keys(pools: Mapping[str, ReadPool], routes: Sequence[ReadRoute]) -> None:
    """A ring's key must be able to be there: legacy requests have neither name nor parameters."""
    for name, pool in pools.items():
        key, field = pool.config.ring_key, pool.ring_key_field
        if key is None or field is None or key.kind not in ("name", "param"):
            continue
        leading = [read for read in routes if read.shares is None or name in read.shares]
        if leading and all(read.shares and read.match and _is_legacy(read.match) for read in leading):
            field.problem(
                message=f"can never be present: all routes to this pool take requests from before {FIRST_MODERN} only",
                allowed="authorization, header:NAME",
            )


def check_addresses(report: Report, field: Field | None, listen: Listen, admin: Admin) -> None:
    """The admin interface must not be on the public port."""
    same = listen.host == admin.host or is_wildcard(listen.host) or is_wildcard(admin.host)
    if same and listen.port == admin.port != 0:
        line = None if field is None else field.line
        report.add(line, "admin", found=f"port {admin.port}, as in listen", allowed="a port of its own")


def with_allowed_hosts(report: Report, field: Field | None, listen: Listen, pools: Mapping[str, ReadPool]) -> Listen:
    """Where a pool replaces the Host field, the proxy has to check it: by default localhost names on loopback."""
    replacing = next((pool for pool in pools.values() if pool.config.host == "backend"), None)
    given = listen.allowed_hosts is not None
    if given or replacing is None:
        return listen
    if not is_loopback(listen.host):
        line = replacing.field.line if field is None else field.line
        report.add(
            line,
            "listen.allowed_hosts",
            message=f"missing: {replacing.field.key}.host is backend, and {listen.host} is not on loopback",
            allowed="a list of the hosts that clients ask for",
        )
    return replace(listen, allowed_hosts=LOCAL_HOSTS)


def _conditions(match: Match) -> frozenset[Condition]:
    """What the match asks, as pairs that are equal for the same condition. The path is always asked."""
    single = {"host": match.host, "path": match.path, "protocol": match.protocol, "method": match.method}
    by_name = {f"param {name}": pattern for name, pattern in match.params.items()}
    by_header = {f"header {name}": pattern for name, pattern in match.headers.items()}
    asked = {**single, "name": match.name, **by_name, **by_header}
    return frozenset((what, value) for what, value in asked.items() if value is not None)


def _is_legacy(match: Match) -> bool:
    """True if no modern request meets the protocol condition."""
    if match.protocol is None:
        return False
    text = match.protocol.text
    return text[1:] <= FIRST_MODERN if text.startswith("<") else not text.startswith(">=") and text < FIRST_MODERN
