"""Which names may be given, and which request headers can be asked for."""

import re

from proxy.routing.headers import DROPPED, HOST, METHOD, NAME, PARAM, VERSION, WANTED, field_kind

NAMES = "letters, digits, and _ . -"
TOKENS = "letters, digits and !#$%&'*+-.^_`|~"
NAME_PATTERN = "[A-Za-z0-9_.-]+"
TOKEN_PATTERN = "[!#$%&'*+.^_`|~0-9A-Za-z-]+"  # noqa: S105 - RFC 9110, 5.6.2
_NAME, _TOKEN = re.compile(NAME_PATTERN), re.compile(TOKEN_PATTERN)
_INSTEAD = {HOST: "host", METHOD: "method", NAME: "name", PARAM: "param", VERSION: "protocol"}


def is_name(text: str) -> bool:
    """True for what may name a pool or a route."""
    return _NAME.fullmatch(text) is not None


def is_token(text: str) -> bool:
    """True for what may name a header field or a parameter."""
    return _TOKEN.fullmatch(text) is not None


def header_problem(name: str) -> str:
    """Why no request can be asked for this header field, or "" if it can. The name must be a token."""
    kind = _kind(name)
    if kind == WANTED:
        return ""
    return f"{name} ends at the proxy" if kind == DROPPED else f"{name} has a meaning of its own to the proxy"


def condition_instead(name: str) -> str:
    """The route condition that asks for what this header field says, or "" if none does."""
    return _INSTEAD.get(_kind(name), "")


def _kind(name: str) -> int:
    lower = name.lower().encode("ascii")
    return field_kind(lower, frozenset({lower}))
