"""Which condition of a route a request does not meet, in words for its operator.

The same questions as Match asks, in the same order; what is said holds no credential and no task's id.
"""

from typing import Literal

from proxy.routing.headers import RoutingHeaders, is_secret
from proxy.routing.ownership import short_digest
from proxy.routing.routes import Match

Asked = Literal["all", "task", "session"]
"""Which conditions are asked: all (Match.met), those for requests about tasks (reached), or of sessions."""

_LONGEST = 80  # characters of a value; enough to recognise it


def first_unmet(match: Match, request: RoutingHeaders, asked: Asked = "all") -> str:
    """The first condition that the request does not meet, or "" if it meets all. Raises MalformedHeader."""
    if not match.path.matches(request.path):
        return _differs("path", request.path, match.path.text)
    unmet = _place(match, request)
    if unmet or (asked == "all" and request.verb == "OPTIONS"):
        return unmet
    if match.protocol is not None:
        wanted = match.protocol.text
        if asked == "session":
            if not match.protocol.meets_legacy:
                return f"protocol {wanted}: no session is of that era"
        elif not match.protocol.matches(request.version):
            return f"protocol {shown_version(request)} is not {wanted}"
    return _tool(match, request) if asked == "all" else ""


def is_about_tasks(request: RoutingHeaders) -> bool:
    """True if its Mcp-Name may be the id of a task, which may be a bearer token."""
    return "tasks/" in request.method.lower()


def shown_name(request: RoutingHeaders, name: str) -> str:
    """The decoded Mcp-Name for showing: a digest where it may be a task's id."""
    return f"task {short_digest(name)}" if is_about_tasks(request) else quoted(name)


def shown_version(request: RoutingHeaders) -> str:
    """The protocol version for showing; it is whatever the client sent."""
    return quoted(request.version) if request.version else "(none)"


def quoted(text: str) -> str:
    """The text in quotes on one line of visible characters, shortened if it is long."""
    return repr(text) if len(text) <= _LONGEST else f"{text[:_LONGEST]!r}..."


def _place(match: Match, request: RoutingHeaders) -> str:
    if match.host is not None and not match.host.matches(request.host):
        return _differs("host", request.host, match.host.text)
    for header, pattern in match.headers.items():
        value = request.fields.get(header)
        if value is None:
            return f"header {header} is not there"
        if not pattern.matches(value):
            return (
                f"header {header} is another"
                if is_secret(header)
                else _differs(f"header {header}", value, pattern.text)
            )
    return ""


def _tool(match: Match, request: RoutingHeaders) -> str:
    if match.method is None and match.name is None and not match.params:
        return ""
    if not request.modern:
        return "legacy requests meet no condition on method, name or param"
    if match.method is not None and not match.method.matches(request.method):
        return _differs("method", request.method, match.method.text)
    if match.name is not None:
        name = request.decoded_name()
        if name is None:
            return "there is no Mcp-Name"
        if not match.name.matches(name):
            return f"name {shown_name(request, name)} is not {quoted(match.name.text)}"
    for param, pattern in match.params.items():
        value = request.decoded_param(param)
        if value is None:
            return f"param {param} is not there"
        if not pattern.matches(value):
            return _differs(f"param {param}", value, pattern.text)
    return ""


def _differs(what: str, found: str, wanted: str) -> str:
    return f"{what} {quoted(found)} is not {quoted(wanted)}"
