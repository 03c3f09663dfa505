"""Which header fields mean what: the routing headers in, the end-to-end fields out.

Rules (MCP 2026-07-28, Streamable HTTP; RFC 9110 section 7.6.1):
* The era is decided per request by MCP-Protocol-Version alone. A date from 2026-07-28 on is *modern*: its servers check
  the routing headers against the body, so they may be routed on. Anything else is *legacy*: they match no rule.
* `=?base64?…?=` (markers exactly so) is decoded where a value is needed, and only there; backends get the bytes sent.
* Hop-by-hop fields end here. So do field names that turn into a hop-by-hop or a protected one, or one that routes ask
  for, when `_` is read as `-`: CGI-style servers cannot tell the two apart.
"""

import base64
import binascii
import re
from collections.abc import Mapping
from types import MappingProxyType
from typing import NamedTuple

from proxy.routing.errors import MalformedHeader

FIRST_MODERN = "2026-07-28"
TASK_METHODS = frozenset({"tasks/get", "tasks/update", "tasks/cancel"})
LISTEN = "subscriptions/listen"

# What a request's field is to the proxy. Kinds from KEPT on are forwarded as they came.
DROPPED, HOST, CONNECTION, LENGTH, TRANSFER, EXPECT, FORWARDED_FOR, FORWARDED_PROTO, FORWARDED_HOST = range(9)
ACCEPT_ENCODING = 9
KEPT = 10
PASSED, METHOD, NAME, VERSION, SESSION, PARAM, WANTED, ORIGIN = range(KEPT, KEPT + 8)

HOP_BY_HOP = frozenset(
    b"connection keep-alive proxy-authenticate proxy-authorization proxy-connection te trailer transfer-encoding "
    b"upgrade".split()
)
_PARAM_PREFIX = b"mcp-param-"
_PROTECTED = re.compile(rb"host|origin|authorization|content-.*|x-forwarded-.*|mcp-.*", re.DOTALL)
_OWN_KINDS = {
    b"host": HOST,
    b"connection": CONNECTION,
    b"content-length": LENGTH,
    b"transfer-encoding": TRANSFER,
    b"expect": EXPECT,
    b"accept-encoding": ACCEPT_ENCODING,
    b"x-forwarded-for": FORWARDED_FOR,
    b"x-forwarded-proto": FORWARDED_PROTO,
    b"x-forwarded-host": FORWARDED_HOST,
    b"mcp-method": METHOD,
    b"mcp-name": NAME,
    b"mcp-protocol-version": VERSION,
    b"mcp-session-id": SESSION,
    b"origin": ORIGIN,
}
ONLY_ONCE = {
    METHOD: "Mcp-Method",
    NAME: "Mcp-Name",
    VERSION: "MCP-Protocol-Version",
    SESSION: "Mcp-Session-Id",
}
"""Routing headers that must not be repeated: two readers could pick different ones."""


def field_kind(name: bytes, wanted: frozenset[bytes]) -> int:
    """The kind of a request field; `wanted` are the lower-case names that routes and ring keys ask for."""
    lower = name.lower()
    if lower in _OWN_KINDS:
        return _OWN_KINDS[lower]
    if lower in HOP_BY_HOP:
        return DROPPED
    if b"_" in lower:
        dashed = lower.replace(b"_", b"-")
        if dashed in HOP_BY_HOP or is_protected(dashed) or (dashed in wanted and lower not in wanted):
            return DROPPED
    if lower.startswith(_PARAM_PREFIX):
        return PARAM
    return WANTED if lower in wanted else PASSED


def is_protected(lower: bytes) -> bool:
    """True for fields that a `Connection` field must not name: taking them off would change who asks for what."""
    return _PROTECTED.fullmatch(lower) is not None


_SECRET = re.compile(r"authorization|cookie|.*(?:api-?key|token|secret|password).*")


def is_secret(header: str) -> bool:
    """True if the values of this header (lower case) are likely credentials: they are never printed."""
    return _SECRET.fullmatch(header) is not None


_DATE = re.compile(r"\d{4}-\d{2}-\d{2}", re.ASCII)


def is_modern(version: str) -> bool:
    """True if this MCP-Protocol-Version belongs to the era whose servers check headers against bodies."""
    return version >= FIRST_MODERN and _DATE.fullmatch(version) is not None


def protocol_date(version: str) -> str:
    """The version as a comparable date; "" (older than all) when absent or not a date."""
    return version if _DATE.fullmatch(version) else ""


_OPENING, _CLOSING = "=?base64?", "?="


def decode_value(raw: str, header: str) -> str:
    """The value that a routing header stands for (Streamable HTTP, Value Encoding). `raw` is trimmed Latin-1 text.

    A marked value is Base64 of UTF-8; any other stands for itself, read as UTF-8 where it is (some SDKs send it raw).
    Raises MalformedHeader for a marked value that does not decode.
    """
    if raw.startswith(_OPENING) and raw.endswith(_CLOSING) and len(raw) >= len(_OPENING) + len(_CLOSING):
        try:
            return base64.b64decode(raw[len(_OPENING) : -len(_CLOSING)], validate=True).decode("utf-8")
        except (binascii.Error, ValueError):
            raise MalformedHeader(f"{header} is marked as Base64 but is not Base64 of UTF-8 text") from None
    if raw.isascii():
        return raw
    try:
        return raw.encode("latin-1").decode("utf-8")
    except UnicodeDecodeError:
        return raw


class RoutingHeaders(NamedTuple):
    """What a request says about itself, as text, undecoded. Absent values are empty strings or None.

    A tuple because one is made for every request; the name comes last because it alone differs from the one before.
    """

    verb: str
    """The HTTP method."""
    path: str
    """The target without its query."""
    host: str = ""
    """Host field in lower case, without port."""
    version: str = ""
    """MCP-Protocol-Version."""
    modern: bool = False
    method: str = ""
    """Mcp-Method."""
    session: str | None = None
    """Mcp-Session-Id."""
    params: tuple[tuple[str, str], ...] = ()
    """Mcp-Param-* as (lower-case name behind the prefix, undecoded value)."""
    fields: Mapping[str, str] = MappingProxyType({})
    """The fields that routes and ring keys ask for, by lower-case name."""
    name: str | None = None
    """Mcp-Name."""

    @property
    def is_task(self) -> bool:
        """True for a request about a task whose routing headers may be trusted (Tasks, Routing Headers)."""
        return self.modern and self.method in TASK_METHODS and self.verb == "POST"

    @property
    def is_listen(self) -> bool:
        """True for a subscription, whose subjects stand in its body only ([T], Message Flow)."""
        return self.modern and self.method == LISTEN and self.verb == "POST"

    @property
    def is_session(self) -> bool:
        """True for a request of a legacy session; modern servers ignore the header ([T], Earlier Revisions)."""
        return not self.modern and self.session is not None

    def named(self, name: str | None) -> "RoutingHeaders":
        """The same with this Mcp-Name. On the fast path: `_replace` takes three times as long."""
        return RoutingHeaders(*self[:-1], name)

    def decoded_name(self) -> str | None:
        """Mcp-Name decoded, or None when absent. Raises MalformedHeader."""
        return None if self.name is None else decode_value(self.name, "Mcp-Name")

    def decoded_param(self, name: str) -> str | None:
        """The decoded Mcp-Param-{name} (any case), or None when absent. Raises MalformedHeader."""
        lower = name.lower()
        for known, raw in self.params:
            if known == lower:
                return decode_value(raw, f"Mcp-Param-{name}")
        return None
