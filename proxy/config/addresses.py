"""Text to network names: HOST:PORT, allowed hosts and origins, networks, backend URLs.

Every function reports its mistake on the field and returns None. Hosts come out in lower case. What is refused here
could be read in two ways further on: user info, percent-encoded hosts, control characters, numbers that look like an
IPv4 address and are none.
"""

import re
from dataclasses import dataclass
from ipaddress import IPv4Address, IPv6Address, ip_address, ip_network

from proxy.config.fields import Field
from proxy.config.problems import quoted
from proxy.config.reading import Scalar
from proxy.config.values import Network

_LABEL = r"[A-Za-z0-9_](?:[A-Za-z0-9_-]{0,61}[A-Za-z0-9_])?"  # `_`: container networks make such names
_NAME = re.compile(rf"{_LABEL}(?:\.{_LABEL})*\.?")
_NUMERIC = re.compile(r"(?:.*\.)?(?:[0-9]+|0[xX][0-9A-Fa-f]*)\.?")  # what libc may take for an IPv4 address
_AUTHORITY = re.compile(r"(?:\[(?P<v6>[^\[\]]*)\]|(?P<host>[^\[\]:]*))(?::(?P<port>[0-9]{1,5}))?")
_URL = re.compile(r"(?P<scheme>[A-Za-z][A-Za-z0-9+.-]*)://(?P<authority>[^/?#\\]*)(?P<rest>.*)", re.DOTALL)
_PATH = re.compile(r"(?:/(?:[A-Za-z0-9._~!$&'()*+,;=:@-]|%[0-9A-Fa-f]{2})*)+")
_DOTS = re.compile(r"/\.{1,2}(?:/|$)|//|%2e|%2f|%5c", re.IGNORECASE)
_DEFAULT_PORTS = {"http": 80, "https": 443, "ws": 80, "wss": 443}

_ADDRESS = "HOST:PORT, such as 127.0.0.1:8080 or [::1]:8080"
BACKEND_URL = "http[s]://HOST[:PORT][/PATH]"
REDIS_URL = "redis[s]://[[USER]:PASSWORD@]HOST[:PORT][/DATABASE], or unix://[[USER]:PASSWORD@]/PATH[?db=DATABASE]"
"""What `redis_url` takes."""
_WORD = r"(?:[A-Za-z0-9._~!$&'()*+,;=-]|%[0-9A-Fa-f]{2})*"
_CREDENTIALS = rf"(?P<credentials>{_WORD}(?::{_WORD})?@)?"
_REDIS = re.compile(rf"rediss?://{_CREDENTIALS}(?P<authority>[^/?#@]*)(?:/[0-9]{{0,5}})?")
_REDIS_SOCKET = re.compile(rf"unix://{_CREDENTIALS}/[^?#@\s]+(?:\?db=[0-9]{{1,5}})?")
# A URL, or what is left of one, in which nothing can be a password.
_HARMLESS = re.compile(r"(?:[A-Za-z0-9+.-]*://)?(?:\[[0-9A-Fa-f:.]*\]|[^:@/\[\]]*)(?<=[^/]):?[0-9]*(?:[/?#][^@:]*)?")


@dataclass(frozen=True, slots=True)
class BackendUrl:
    """Where a backend is; `host` without brackets."""

    host: str
    port: int
    path: str | None
    tls: bool


def listen_address(field: Field) -> tuple[str, int] | None:
    """Host, without brackets, and port of an address to listen on; port 0 is allowed."""
    text = field.text(_ADDRESS)
    if text is None:
        return None
    parts = split_authority(text)
    if parts is None or parts[1] is None:
        field.problem(allowed=_ADDRESS)
        return None
    return parts[0], parts[1]


def allowed_host(field: Field) -> str | None:
    """A Host field's value: a name or address, IPv6 in brackets, with or without a port."""
    allowed = "a host name or address, with or without :PORT, IPv6 in brackets; no wildcards"
    text = field.text(allowed)
    if text is None:
        return None
    parts = split_authority(text)
    if parts is None or parts[1] == 0:
        field.problem(allowed=allowed)
        return None
    host, port = parts
    return bracketed(host) if port is None else f"{bracketed(host)}:{port}"


def allowed_origin(field: Field) -> str | None:
    """An Origin field's value as browsers write it: lower case, without a default port (RFC 6454, 6.2)."""
    allowed = "SCHEME://HOST[:PORT], without a path; no wildcards"
    text = field.text(allowed)
    if text is None:
        return None
    url = _URL.fullmatch(text)
    parts = None if url is None or url["rest"] else split_authority(url["authority"])
    if url is None or parts is None or parts[1] == 0:
        field.problem(allowed=allowed)
        return None
    scheme, (host, port) = url["scheme"].lower(), parts
    default = port is None or _DEFAULT_PORTS.get(scheme) == port
    return f"{scheme}://{bracketed(host)}" + ("" if default else f":{port}")


def network(field: Field) -> Network | None:
    """An address or a network in CIDR notation."""
    allowed = "an IP address, or a network such as 10.0.0.0/8"
    text = field.text(allowed)
    if text is None:
        return None
    try:
        return ip_network(text)
    except ValueError:
        try:
            near = str(ip_network(text, strict=False))  # 10.0.0.1/8
        except ValueError:
            near = ""
        field.problem(allowed=allowed, near=near)
        return None


def backend_url(field: Field) -> BackendUrl | None:
    """A backend's URL; the path is None where there is none."""
    text = field.text(BACKEND_URL)
    if text is None:
        return None
    url = _URL.fullmatch(text)
    if url is None:
        field.problem(found="a value with @, which is not shown" if "@" in text else None, allowed=BACKEND_URL)
        return None
    if "@" in url["authority"]:
        field.problem(found="a URL with user info, which is not shown", allowed=f"{BACKEND_URL}, without user info")
        return None
    scheme = url["scheme"].lower()
    if scheme not in ("http", "https"):
        field.problem(allowed=BACKEND_URL)
        return None
    parts, path = split_authority(url["authority"]), url["rest"]
    if parts is None or parts[1] == 0:
        field.problem(allowed=BACKEND_URL)
    elif "?" in path or "#" in path:
        field.problem(found="a URL with a query or fragment", allowed=f"{BACKEND_URL}, without query and fragment")
    elif path and not plain_path(path):
        field.problem(allowed=f"{BACKEND_URL}, with a path of plain segments")
    else:
        port = _DEFAULT_PORTS[scheme] if parts[1] is None else parts[1]
        return BackendUrl(parts[0], port, path or None, scheme == "https")
    return None


def redis_url(field: Field) -> str | None:
    """The URL of a Redis as it was written. What may be a password is not shown."""
    field = field.hidden()
    text = field.text(REDIS_URL)
    if text is None:
        return None
    if _REDIS_SOCKET.fullmatch(text) is not None:
        return text
    url = _REDIS.fullmatch(text)
    parts = None if url is None else split_authority(url["authority"])
    if parts is not None and parts[1] != 0:
        return text
    as_written = isinstance(field.node, Scalar) and field.node.text == text
    harmless = _HARMLESS.fullmatch(text) is not None or (url is not None and url["credentials"] is not None)
    encoded = "; % / ? # @ in a password as %25 %2F %3F %23 %40" if "@" in text else ""
    found = quoted(without_password(text)) if as_written and harmless else None
    field.problem(found=found, allowed=REDIS_URL + encoded)
    return None


def without_password(url: str) -> str:
    """A URL that `redis_url` takes, its password masked."""
    if "@" not in url:
        return url
    scheme, _, rest = url.partition("://")
    credentials, _, place = rest.rpartition("@")
    user, colon, _ = credentials.partition(":")
    return f"{scheme}://{user}{colon and ':***'}@{place}"


def host_name(text: str) -> str | None:
    """A host name or IPv4 address in lower case, or None if it is neither."""
    if len(text) > 253 or _NAME.fullmatch(text) is None:
        return None
    if _NUMERIC.fullmatch(text):
        try:
            return str(IPv4Address(text))
        except ValueError:
            return None
    return text.lower()


def is_loopback(host: str) -> bool:
    """True if only this machine can reach a listener on this host."""
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def is_wildcard(host: str) -> bool:
    """True if a listener on this host takes connections to every address of the machine."""
    try:
        return ip_address(host).is_unspecified
    except ValueError:
        return False


def bracketed(host: str) -> str:
    """The host as it stands in URLs and Host fields (RFC 3986, 3.2.2)."""
    return f"[{host}]" if ":" in host else host


def plain_path(text: str) -> bool:
    """True for a path that a backend may have: no query, no dot segments, nothing that could be read in two ways."""
    return _PATH.fullmatch(text) is not None and _DOTS.search(text) is None


def split_authority(text: str) -> tuple[str, int | None] | None:
    """Host, without brackets and in lower case, and port of HOST[:PORT]; None where it is something else."""
    match = _AUTHORITY.fullmatch(text)
    if match is None:
        return None
    host = host_name(match["host"]) if match["v6"] is None else _ipv6(match["v6"])
    port = None if match["port"] is None else int(match["port"])
    return None if host is None or (port is not None and port > 65535) else (host, port)


def _ipv6(text: str) -> str | None:
    try:
        address = IPv6Address(text)
    except ValueError:
        return None
    return None if address.scope_id is not None else str(address)
