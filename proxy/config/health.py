"""A pool's `health:` and `outlier:`: what keeps a backend from new work beside an operator's word."""

import re
from collections.abc import Collection

from proxy.config.fields import Field
from proxy.config.reading import Scalar
from proxy.routing.health import DEFAULT_FALL, DEFAULT_INTERVAL, DEFAULT_RISE, DEFAULT_TIMEOUT, Health
from proxy.routing.outliers import USUAL, OutlierRule

_PATH = re.compile(r"/[!-~]*")  # with a query, if need be
_MOST_IN_A_ROW = 1000  # probes, or failures; beyond this it is a slip
_WHAT = "path: /PATH, or discover: true"


def read_health(field: Field, paths: Collection[str]) -> Health | None:
    """`health:` of a pool whose backends speak MCP at these paths."""
    section = field.section("path", "discover", "interval", "timeout", "rise", "fall")
    if section is None:
        return None
    discover = section.read("discover", Field.boolean, None)
    path = section.read("path", lambda path: _path(path, paths), None)
    if discover and "path" in section:
        field.problem(found="path and discover", allowed=f"one of them: {_WHAT}")
    elif not discover and "path" not in section:
        field.problem(found="", message="nothing to ask for", allowed=_WHAT)
    interval = section.read("interval", Field.duration, DEFAULT_INTERVAL)
    timeout = section.read("timeout", Field.duration, min(DEFAULT_TIMEOUT, interval))
    given = section.get("timeout")
    if given is not None and timeout > interval:
        given.problem(message="longer than the interval: probes of a backend must not overlap", allowed="at most that")
    return Health(
        path,
        interval,
        timeout,
        rise=section.read("rise", lambda rise: rise.integer(1, _MOST_IN_A_ROW), DEFAULT_RISE),
        fall=section.read("fall", lambda fall: fall.integer(1, _MOST_IN_A_ROW), DEFAULT_FALL),
    )


def read_outlier(field: Field | None) -> OutlierRule | None:
    """`outlier:` of a pool, a mapping or off; on with its defaults where it is not given."""
    default = USUAL
    if field is None:
        return default
    if isinstance(field.node, Scalar) and not field.node.null:
        return default if field.boolean() else None
    section = field.section("consecutive", "ejection", "max_ejected")
    if section is None:
        return default
    return OutlierRule(
        consecutive=section.read("consecutive", lambda count: count.integer(1, _MOST_IN_A_ROW), default.consecutive),
        ejection=section.read("ejection", Field.duration, default.ejection),
        max_ejected=section.read("max_ejected", lambda share: share.percent(1, 100), default.max_ejected),
    )


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
