"""Requests and routes made up."""

from collections.abc import Mapping
from typing import Any

from proxy.routing.headers import RoutingHeaders, is_modern
from proxy.routing.routes import Match, Pattern, Route

MODERN, LEGACY = "2026-07-28", "2025-11-25"


def asked(verb: str = "POST", path: str = "/mcp", *, version: str = MODERN, **more: Any) -> RoutingHeaders:
    return RoutingHeaders(verb, path, version=version, modern=is_modern(version), **more)


def route(name: str, pool: str | Mapping[str, int], /, **conditions: Any) -> Route:
    return Route(name, Match(**conditions), {pool: 1} if isinstance(pool, str) else pool)


IN_EU = Pattern("eu-*")
