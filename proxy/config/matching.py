"""The conditions of a route, `routes[].match`."""

import re
from collections.abc import Callable, Iterator, Mapping
from datetime import date

from proxy.config.addresses import host_name
from proxy.config.fields import Field
from proxy.config.forms import text, with_variable
from proxy.config.names import TOKEN_PATTERN, TOKENS, condition_instead, header_problem, is_token
from proxy.config.sections import Form, Key, Keys
from proxy.routing.headers import is_secret
from proxy.routing.routes import Match, Pattern, ProtocolCondition

_PATTERN = "exact text, a glob (* and ?), or regex:EXPRESSION"
_PROTOCOL = "<DATE, >=DATE or DATE, such as '<2026-07-28'"
_HOST_GLOB = re.compile(r"[A-Za-z0-9_.*?-]+")
_BRACKETED = re.compile(r"\[[0-9A-Fa-f:.*?]+\]")
_WITH_PORT = re.compile(r"(?:\[.*\]|[^:]*):[0-9*?]*")
_NOT_EMPTY = r"^(?:(?!regex:)|regex:[\s\S])"


def _pattern(field: Field, check: Callable[[str], str] = lambda text: "") -> Pattern | None:
    """A pattern; `check` says what is wrong with the text of an exact one or a glob, or ""."""
    written = field.text(_PATTERN)
    if written is None:
        return None
    if written == "regex:":
        field.problem(message="an empty expression", allowed=_PATTERN)
        return None
    if not written.startswith("regex:"):
        allowed = check(written)
        if allowed:
            field.problem(allowed=allowed)
            return None
    return field.compiled(Pattern, written)


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
    written = field.text(_PROTOCOL)
    if written is None:
        return None
    day = written.removeprefix("<") if written.startswith("<") else written.removeprefix(">=")
    try:
        exact = date.fromisoformat(day).isoformat() == day  # 3.11 reads 20260728 and 2026-W31-2 as well
    except ValueError:
        exact = False
    if not exact:
        field.problem(allowed=_PROTOCOL)
        return None
    return ProtocolCondition(written)


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


_CONDITION = text("condition", _pattern, _NOT_EMPTY)
_BY_NAME = {
    "type": "object",
    "propertyNames": {"pattern": f"^{TOKEN_PATTERN}$"},
    "additionalProperties": with_variable(_CONDITION.schema),
}
_METHOD = Key("method", _CONDITION, None, "`Mcp-Method`.", "tools/call", without="any")
_NAME = Key("name", _CONDITION, None, "`Mcp-Name`, decoded.", "'render_*'", without="any")
_PARAM: Key[Mapping[str, Pattern], Mapping[str, Pattern]] = Key(
    "param",
    Form("mapping of names to conditions", _BY_NAME, lambda params: dict(_by_token(params, "param"))),
    {},
    "`Mcp-Param-NAME`, decoded, for each of the names.",
    "{Region: 'eu-*'}",
    without="any",
)
_VERSION = Key(
    "protocol",
    text("`<DATE`, `>=DATE` or `DATE`", _protocol, "^(?:<|>=)?[0-9]{4}-[0-9]{2}-[0-9]{2}$", bare=False),
    None,
    "`MCP-Protocol-Version`; a request without it is older than all.",
    "'<2026-07-28'",
    without="any",
)
_HOST = Key(
    "host",
    text("condition", _host, _NOT_EMPTY),
    None,
    "`Host`, without its port; upper and lower case are the same.",
    "'*.example.com'",
    without="any",
)
_PATH = Key(
    "path",
    text(
        "condition that starts with `/`, or `regex:…`",
        _path,
        r"^(?:/|regex:[\s\S])",
        bare=False,
        show=lambda path: path.text,
    ),
    Match().path,
    "The path. An exact one is replaced by the path of the backend's URL; one matched by a glob or expression is kept.",
    "'/.well-known/*'",
)
_HEADER: Key[Mapping[str, Pattern], Mapping[str, Pattern]] = Key(
    "header",
    Form("mapping of names to conditions", _BY_NAME, lambda headers: dict(_by_token(headers, "header"))),
    {},
    "Any other header field that reaches backends, for each of the names.",
    "{X-Tenant: acme}",
    without="any",
)
MATCH = Keys(
    "The conditions of a route, which all have to be met. A condition is exact text, a glob (`*` any text, `?` one "
    "character) or `regex:EXPRESSION`; globs and expressions match the whole value. `method`, `name` and `param` are "
    "met by requests of 2026-07-28 and later only.",
    (_METHOD, _NAME, _PARAM, _VERSION, _HOST, _PATH, _HEADER),
)


def read_match(field: Field) -> Match | None:
    """`match:` of a route; None where it has a mistake."""
    before = len(field.report.problems)
    section = MATCH.section(field)
    if section is None:
        return None
    match = Match(
        host=section.take(_HOST),
        path=section.take(_PATH),
        protocol=section.take(_VERSION),
        method=section.take(_METHOD),
        name=section.take(_NAME),
        params=section.take(_PARAM),
        headers=section.take(_HEADER),
    )
    return match if len(field.report.problems) == before else None
