"""An explanation as text for a terminal, and as values for JSON."""

from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

from proxy.routing.conditions import quoted, shown_version
from proxy.routing.explanation import Explanation, Failure, Place, Standing

_WHY = {
    "session": "by the tag in the session's id",
    "round": "since it asked back, and this may be the answer",
    "pin": "by the task's pin",
    "tag": "by the tag in the task's id",
    "ring": "by the ring",
}


class Told(NamedTuple):
    """An explanation in both its forms."""

    values: dict[str, Any]
    text: str


def told_of(explanation: Explanation) -> Told:
    """The explanation in both its forms."""
    return Told(as_values(explanation), as_text(explanation))


def as_values(explanation: Explanation) -> dict[str, object]:
    """What `/api/explain` answers."""
    request = explanation.request
    return {
        "request": None
        if request is None
        else {
            "verb": request.verb,
            "path": request.path,
            "host": request.host,
            "era": _era(modern=request.modern),
            "version": request.version or None,
            "method": request.method or None,
            "name": explanation.name,
            "task": explanation.task,
        },
        "kind": explanation.kind,
        "routes": [{"route": seen.route, "unmet": seen.unmet or None} for seen in explanation.verdicts],
        "rule": explanation.rule,
        "reachable": explanation.reachable,
        "places": [_place_values(place) for place in explanation.places],
        "search": _search(explanation),
        "error": _failure_values(explanation.failure),
        "notes": explanation.notes,
    }


def as_text(explanation: Explanation) -> str:
    """What `explain` prints: lines, the last one ended."""
    return "".join(f"{line}\n" for line in _lines(explanation))


def _place_values(place: Place) -> dict[str, object]:
    return {
        "route": place.route,
        "pool": place.pool,
        "part": place.part,
        "whole": place.whole,
        "kind": place.kind,
        "source": place.source,
        "policy": place.policy or None,
        "backends": [
            {
                "id": standing.id,
                "url": standing.url,
                "weight": standing.weight,
                "in_flight": standing.in_flight,
                "draining": standing.draining,
                "departed": standing.departed,
                "up": standing.up,
                "ejected": standing.ejected,
            }
            for standing in place.backends
        ],
        "together": place.together,
        "ring": None if place.ring is None else {"key": place.ring.key, "order": place.ring.order},
        "error": _failure_values(place.failure),
    }


def _failure_values(failure: Failure | None) -> dict[str, object] | None:
    if failure is None:
        return None
    return {"reason": failure.reason, "status": failure.status, "code": failure.code, "message": failure.message}


def _search(explanation: Explanation) -> str | None:
    """What ends the search, or None where there is none."""
    if not explanation.places or explanation.places[0].source != "search":
        return None
    return "all answers" if explanation.everyone else "first result"


def _era(*, modern: bool) -> str:
    return "modern" if modern else "legacy"


def _lines(explanation: Explanation) -> Iterator[str]:
    request = explanation.request
    if request is not None:
        yield f"request:    {request.verb} {request.path}, host {request.host or '(none)'}"
        yield f"era:        {_era(modern=request.modern)}, MCP-Protocol-Version {shown_version(request)}"
        if request.method:
            yield f"method:     {quoted(request.method)}"
        if explanation.task is not None:
            yield f"task:       {explanation.task} (a digest of its id)"
        elif explanation.name is not None:
            yield f"name:       {quoted(explanation.name)}"
    yield from _routes(explanation)
    if explanation.reachable is not None:
        yield f"reachable:  {', '.join(explanation.reachable) or 'no pool'}"
    yield from _destination(explanation)
    if explanation.failure is not None:
        yield f"answer:     {_failed(explanation.failure)}"
    for note in explanation.notes:
        yield f"note:       {note}"


def _routes(explanation: Explanation) -> Iterator[str]:
    if not explanation.verdicts:
        return
    if explanation.asked == "all":
        yield "routes:     the first that matches is taken"
    else:
        yield f"routes:     the {explanation.asked} may be in any that matches; method, name and param are not asked"
    width = max(len(seen.route) for seen in explanation.verdicts)
    for seen in explanation.verdicts:
        yield f"  {seen.route:{width}}  {seen.unmet or 'matches'}"


def _destination(explanation: Explanation) -> Iterator[str]:
    search = _search(explanation)
    if search == "first result":
        yield "owner:      not known; these are asked at once, and the first result is relayed:"
    elif search is not None:
        yield "owner:      not known; these are asked, all or none, and every answer is awaited:"
    for place in explanation.places:
        if place.failure is not None and len(explanation.places) == 1:
            yield f"pool:       {place.pool}"
            continue
        yield from _search_place(place) if search is not None else _place(place)


def _search_place(place: Place) -> Iterator[str]:
    yield f"  pool {place.pool}{_one_of(place)}"
    yield from _backends(place.backends, "    ")
    yield from _ring(place, "    ")


def _place(place: Place) -> Iterator[str]:
    share = "" if place.part == place.whole else f" for {place.part} of {place.whole} requests"
    yield f"pool:       {place.pool}{share}"
    if place.failure is not None:
        yield f"  {_failed(place.failure)}"
    elif place.together:
        yield "  all of these serve it, their event streams merged:"
    elif place.policy:
        yield f"  {place.policy} picks one of:"
    elif place.kind in _WHY:
        yield f"  {_WHY[place.kind]}:"
    elif place.source is not None:
        yield f"  {_WHY[place.source]}:"
    yield from _backends(place.backends, "    ")
    yield from _ring(place, "    ")


def _one_of(place: Place) -> str:
    return f", one of ({place.policy})" if place.policy else ""


def _backends(standings: Sequence[Standing], indent: str) -> Iterator[str]:
    if not standings:
        return
    width, url_width = (
        max(map(len, texts)) for texts in ([one.id for one in standings], [one.url for one in standings])
    )
    for one in standings:
        parts = [f"weight {one.weight}", f"{one.in_flight} in flight"]
        states = {"draining": one.draining, "departed": one.departed, "down": not one.up, "ejected": one.ejected}
        parts += [word for word, said in states.items() if said]
        yield f"{indent}{one.id:{width}}  {one.url:{url_width}}  {', '.join(parts)}"


def _ring(place: Place, indent: str) -> Iterator[str]:
    if place.ring is not None:
        yield f"{indent}ring: key {place.ring.key}, order {', '.join(place.ring.order)}"


def _failed(failure: Failure) -> str:
    return f"{failure.status} {failure.reason} ({failure.code}): {failure.message}"
