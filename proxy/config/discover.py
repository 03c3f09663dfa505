"""A pool's `discover:`, the recipe by which its backends are found while the proxy runs."""

from collections.abc import Callable
from ipaddress import ip_address
from pathlib import Path
from typing import Literal, get_args

from proxy.config.addresses import host_name, plain_path, split_authority
from proxy.config.fields import Field
from proxy.config.forms import duration, text, words
from proxy.config.sections import Key, Keys
from proxy.config.values import DEFAULT_HOLD, DnsRecipe, FileRecipe, Recipe

Scheme = Literal["http", "https"]
_SCHEMES: tuple[Scheme, ...] = get_args(Scheme)
_SUFFIXES = (".json", ".yaml", ".yml")
_WHAT = "dns: NAME:PORT, or file: PATH"
_NAME = "NAME:PORT, such as agents.example.svc:8000"
_FILE = f"a path that ends with {', '.join(_SUFFIXES)}; its last part may be a glob, such as targets/*.yaml"
_RESOLVER = "ADDRESS:PORT of a name server, such as 10.0.0.10:53"
_DNS_PORT = 53
_GLOB = "*?["


def _name(field: Field) -> tuple[str, int] | None:
    parts = _place(field, _NAME, lambda host: not _is_address(host))
    if parts is None:
        return None
    host, port = parts
    if port is None:
        field.problem(message="there is no port", allowed=_NAME)
        return None
    return host, port


def _resolver(field: Field) -> tuple[str, int] | None:
    parts = _place(field, _RESOLVER, _is_address)
    return None if parts is None else (parts[0], _DNS_PORT if parts[1] is None else parts[1])


def _place(field: Field, allowed: str, is_right: Callable[[str], bool]) -> tuple[str, int | None] | None:
    """Host and port, if the host is right."""
    text = field.text(allowed)
    parts = None if text is None else split_authority(text)
    if text is not None and (parts is None or parts[1] == 0 or not is_right(parts[0])):
        field.problem(allowed=allowed)
        return None
    return parts


def _pattern(field: Field) -> Path | None:
    text = field.text(_FILE)
    if text is None:
        return None
    pattern = Path(field.report.source).parent.joinpath(text).absolute()
    if pattern.suffix not in _SUFFIXES or any(char in text.removesuffix(pattern.name) for char in _GLOB):
        field.problem(allowed=_FILE)
        return None
    if not _matches(pattern):
        field.report.warn(field.key, f"no file matches {pattern} yet")
    return pattern


def _matches(pattern: Path) -> bool:
    try:
        return any(pattern.parent.glob(pattern.name))
    except (OSError, ValueError):  # the source will say why
        return False


def _path(field: Field) -> str | None:
    allowed = "a path that begins with /, of plain segments, without query and fragment"
    text = field.text(allowed)
    if text is not None and not plain_path(text):
        field.problem(allowed=allowed)
        return None
    return text


def _is_address(host: str) -> bool:
    try:
        ip_address(host)
    except ValueError:
        return False
    return host_name(host) is not None or ":" in host


_DNS = Key(
    "dns",
    text("`NAME:PORT`", _name, r"^[^:/\s\[\]]+:[0-9]{1,5}$", bare=False),
    None,
    "Backends are all addresses (A and AAAA) of this name at this port. It is looked up again when they expire, after "
    "1 s to 60 s.",
    "agents.example.svc:8000",
)
_FILE_KEY = Key(
    "file",
    text("path that ends with `.json`, `.yaml` or `.yml`", _pattern, r"\.(?:json|ya?ml)$", bare=False),
    None,
    "Backends are the targets in these files, in the format of Prometheus' file_sd; the last part may be a glob. A "
    "relative path is meant from the configuration's folder. Labels that count: `__weight__`, `__drain__`, "
    "`__mcp_path__`.",
    "'targets/*.yaml'",
)
_PATH_KEY = Key("path", text("path", _path, "^/", bare=False), "/mcp", "Where the backends speak MCP.", "/mcp")
_SCHEME: Key[Scheme, Scheme] = Key(
    "scheme",
    words(_SCHEMES),
    "http",
    "How they are spoken to. With `https` the certificate must be for the name, or for `tls.server_name`.",
    "https",
)
_HOLD = Key(
    "hold",
    duration(zero=True),
    DEFAULT_HOLD,
    "How long a backend that is missing from answers is kept. That nobody is left is believed after 30 s or more; a "
    "look that fails changes nothing.",
    "10s",
)
_RESOLVER_KEY = Key(
    "resolver",
    text("`ADDRESS[:PORT]`", _resolver, r"^(?:[0-9.]+|\[[0-9A-Fa-f:.]+\])(?::[0-9]{1,5})?$", bare=False),
    None,
    "The name server that is asked; the port is 53 unless given.",
    "10.0.0.10:53",
    without="the system's, with its search domains",
)
DISCOVER = Keys(
    "More backends, or all of them where `backends` is not given: found while the proxy runs, with `host:port` as "
    "their id. Exactly one of `dns` and `file` is given.",
    (_DNS, _FILE_KEY, _PATH_KEY, _SCHEME, _HOLD, _RESOLVER_KEY),
    {
        "oneOf": [{"required": ["dns"]}, {"required": ["file"]}],
        "dependentRequired": {"resolver": ["dns"]},
    },
)


def read_discover(field: Field) -> Recipe | None:
    """`discover:` of a pool."""
    section = DISCOVER.section(field)
    if section is None:
        return None
    path = section.take(_PATH_KEY)
    tls = section.take(_SCHEME) == "https"
    hold = section.take(_HOLD)
    dns, file, resolver = section.get("dns"), section.get("file"), section.get("resolver")
    if dns is not None and file is not None:
        field.problem(found="dns and file", allowed=f"one of them: {_WHAT}")
        return None
    if dns is not None:
        named = section.take(_DNS)
        asked = section.take(_RESOLVER_KEY)
        return None if named is None else DnsRecipe(*named, path, tls, hold, asked)
    if resolver is not None:
        resolver.problem(
            found="", message="only names are resolved", allowed="dns: NAME:PORT beside it, or no such key"
        )
    if file is not None:
        pattern = section.take(_FILE_KEY)
        return None if pattern is None else FileRecipe(pattern, path, tls, hold)
    field.problem(found="", message="nothing to look for", allowed=_WHAT)
    return None
