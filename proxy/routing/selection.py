"""The few of many routes that a request can meet, found by one value that each of them asks for.

A route that asks for an exact value, or for one that begins with certain text, is only looked at for requests that have
it. Of several such conditions the one counts that mostly tells more routes apart: a name before a parameter, a header,
a host, a method, a path.
"""

from collections.abc import Iterator, Sequence
from typing import Literal, NamedTuple, TypeAlias

from proxy.routing.headers import RoutingHeaders
from proxy.routing.routes import Match, Pattern, Route

_LONGEST = 16  # characters of a beginning that count; so many look-ups at most for each field

Field: TypeAlias = Literal["name", "param", "header", "host", "method", "path"]


class Selector(NamedTuple):
    """Where a value stands, and how much of it counts."""

    field: Field
    key: str = ""
    """The parameter's or header's name."""
    length: int | None = None
    """How many of its first characters; None: all."""

    def of(self, request: RoutingHeaders) -> str | None:
        """The request's value, None without. Raises MalformedHeader."""
        value: str | None
        match self.field:
            case "name":
                value = request.decoded_name() if request.modern else None
            case "param":
                value = request.decoded_param(self.key) if request.modern else None
            case "method":
                value = request.method if request.modern else None
            case "header":
                value = request.fields.get(self.key)
            case "host":
                value = request.host
            case "path":
                value = request.path
        return value if value is None or self.length is None else value[: self.length]


def _conditions(match: Match) -> Iterator[tuple[Field, str, Pattern]]:
    """A route's conditions, the one that tells most first."""
    if match.name is not None:
        yield "name", "", match.name
    yield from (("param", key, pattern) for key, pattern in match.params.items())
    yield from (("header", key, pattern) for key, pattern in match.headers.items())
    if match.host is not None:
        yield "host", "", match.host
    if match.method is not None:
        yield "method", "", match.method
    yield "path", "", match.path


def selector_of(match: Match) -> tuple[Selector, str] | None:
    """By which value a route is found, and the value; None: it has to be looked at for every request."""
    decodes = (
        False  # a value that no look-up asks for: if it does not decode, that has to be seen whatever the others are
    )
    for field, key, pattern in _conditions(match):
        if field == "param" and decodes:
            continue
        if pattern.is_exact:
            return Selector(field, key), pattern.text
        if pattern.beginning:
            beginning = pattern.beginning[:_LONGEST]
            return Selector(field, key, len(beginning)), beginning
        decodes = decodes or field in ("name", "param")
    return None


class Selection:
    """These routes, each found by a value or looked at for every request."""

    def __init__(self, routes: Sequence[Route]) -> None:
        self._always: list[tuple[int, Route]] = []
        self._by_value: dict[Selector, dict[str, list[tuple[int, Route]]]] = {}
        for number, route in enumerate(routes):
            found = selector_of(route.match)
            if found is None:
                self._always.append((number, route))
            else:
                selector, value = found
                self._by_value.setdefault(selector, {}).setdefault(value, []).append((number, route))

    def first(self, request: RoutingHeaders) -> Route | None:
        """The first route, in order, whose conditions are met, or None. Raises MalformedHeader."""
        best: tuple[int, Route] | None = None
        for candidates in self._candidates(request):
            for number, route in candidates:
                if best is not None and number > best[0]:
                    break
                if route.match.met(request):
                    best = number, route
                    break
        return None if best is None else best[1]

    def _candidates(self, request: RoutingHeaders) -> Iterator[Sequence[tuple[int, Route]]]:
        for selector, by_value in self._by_value.items():
            value = selector.of(request)
            if value is not None and (found := by_value.get(value)) is not None:
                yield found
        yield self._always
