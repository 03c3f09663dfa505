"""A pool's `health:` and `outlier:`: what keeps a backend from new work beside an operator's word."""

import re
from collections.abc import Collection

from proxy.config.fields import Field
from proxy.config.forms import boolean, duration, integer, percent, text
from proxy.config.reading import Scalar
from proxy.config.sections import Key, Keys, unread
from proxy.routing.health import DEFAULT_FALL, DEFAULT_INTERVAL, DEFAULT_RISE, DEFAULT_TIMEOUT, Health
from proxy.routing.outliers import LONGEST, USUAL, OutlierRule

_PATH = re.compile(r"/[!-~]*")  # with a query, if need be
_MOST_IN_A_ROW = 1000  # probes, or failures; beyond this it is a slip
_WHAT = "path: /PATH, or discover: true"


_HEALTH_PATH: Key[str, None] = Key(
    "path",
    text("path, printable ASCII without `#`", unread, r'^/[!-"$-~]*$', bare=False),
    None,
    "Asked for by GET, with a query if need be; 2xx is good. Not a path where MCP is spoken.",
    "/health",
)
_DISCOVER = Key(
    "discover",
    boolean(),
    None,
    "`true`: the MCP request `server/discover` is sent instead, which opens no session.",
    "true",
)
_INTERVAL = Key("interval", duration(), DEFAULT_INTERVAL, "From one probe of a backend to the next.", "5s")
_TIMEOUT = Key(
    "timeout",
    duration(),
    DEFAULT_TIMEOUT,
    "For a whole probe; at most the interval, and by default not longer than that.",
    "2s",
)
_RISE = Key("rise", integer(1, _MOST_IN_A_ROW), DEFAULT_RISE, "Good probes in a row that bring a backend up.", "2")
_FALL = Key(
    "fall",
    integer(1, _MOST_IN_A_ROW),
    DEFAULT_FALL,
    "Failed probes in a row that take it down. At the start every backend counts as up.",
    "3",
)
HEALTH = Keys(
    "Probes of every backend, by the proxy alone and never with a client's credentials. A backend that is down takes "
    "no new work; what it owns is still asked of it. Exactly one of `path` and `discover: true` is given.",
    (_HEALTH_PATH, _DISCOVER, _INTERVAL, _TIMEOUT, _RISE, _FALL),
    {"anyOf": [{"required": ["path"]}, {"required": ["discover"]}]},
)

_CONSECUTIVE = Key("consecutive", integer(1, _MOST_IN_A_ROW), USUAL.consecutive, "Failures in a row.", "5")
_EJECTION = Key(
    "ejection",
    duration(),
    USUAL.ejection,
    f"How long it is out. The next time in a row takes twice as long, and so on, up to {LONGEST} times.",
    "30s",
)
_MAX_EJECTED = Key(
    "max_ejected",
    percent(),
    USUAL.max_ejected,
    "Of the pool's backends at once, rounded down, but at least one of two.",
    "50%",
)
OUTLIER = Keys(
    "Backends that fail clients are taken out of new work for a while: those that cannot be connected to, close before "
    "their answer is complete, or answer 502, 503 or 504. On by default; `off` ejects nobody.",
    (_CONSECUTIVE, _EJECTION, _MAX_EJECTED),
)


def read_health(field: Field, paths: Collection[str]) -> Health | None:
    """`health:` of a pool whose backends speak MCP at these paths."""
    section = HEALTH.section(field)
    if section is None:
        return None
    discover = section.take(_DISCOVER)
    path = section.take(_HEALTH_PATH, lambda path: _path(path, paths))
    if discover and "path" in section:
        field.problem(found="path and discover", allowed=f"one of them: {_WHAT}")
    elif not discover and "path" not in section:
        field.problem(found="", message="nothing to ask for", allowed=_WHAT)
    interval = section.take(_INTERVAL)
    given = section.get("timeout")
    asked = None if given is None else _TIMEOUT.form.read(given)
    timeout = min(_TIMEOUT.default, interval) if asked is None else asked
    if given is not None and timeout > interval:
        given.problem(message="longer than the interval: probes of a backend must not overlap", allowed="at most that")
    return Health(path, interval, timeout, rise=section.take(_RISE), fall=section.take(_FALL))


def read_outlier(field: Field) -> OutlierRule | None:
    """`outlier:` of a pool, a mapping or off; None for off."""
    if isinstance(field.node, Scalar) and not field.node.null:
        return USUAL if field.boolean() else None
    section = OUTLIER.section(field)
    if section is None:
        return USUAL
    return OutlierRule(section.take(_CONSECUTIVE), section.take(_EJECTION), section.take(_MAX_EJECTED))


def _path(field: Field, paths: Collection[str]) -> str | None:
    allowed = "a path that begins with /, in printable ASCII without spaces and #"
    text = field.text(allowed)
    if text is None:
        return None
    if _PATH.fullmatch(text) is None or "#" in text:
        field.problem(allowed=allowed)
        return None
    if text in paths:
        field.problem(
            message="MCP is spoken there, and a GET would never be answered with 2xx, or open a session",
            allowed="a path of its own, or discover: true in place of it",
        )
    return text
