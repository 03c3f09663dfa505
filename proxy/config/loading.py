"""From a file to a configuration: every section is read, then they are held against each other."""

from collections.abc import Mapping
from pathlib import Path

from proxy.config.checks import check_addresses, check_reach, check_ring_keys, check_routes, with_allowed_hosts
from proxy.config.fields import Field
from proxy.config.forms import duration, integer, mapping, or_mapping
from proxy.config.pools import POOLS, ReadPool
from proxy.config.problems import ConfigError, Problem, Report
from proxy.config.reading import Table, read_yaml
from proxy.config.routes import ROUTES, ReadRoute, read_routes
from proxy.config.sections import Key, Keys
from proxy.config.service import (
    ADDRESS,
    ADMIN,
    LISTEN,
    LOG,
    PINS,
    read_admin,
    read_listen,
    read_log,
    read_pins,
)
from proxy.config.values import DEFAULT_DRAIN, MOST_WORKERS, Admin, Config, Listen, Log, Pins

_LARGEST = 1024 * 1024  # bytes; some ten thousand backends

_LISTEN = Key(
    "listen",
    or_mapping(ADDRESS, "`HOST:PORT`", LISTEN, read_listen),
    Listen(),
    "Where clients come in.",
)
_ADMIN = Key(
    "admin",
    or_mapping(ADDRESS, "`HOST:PORT`", ADMIN, read_admin),
    Admin(),
    "Where operators and Prometheus come in. Changed by a restart only.",
)
_WORKERS = Key(
    "workers",
    integer(1, MOST_WORKERS),
    1,
    "Processes that share the port, one for each core. Changed by a restart only.",
    "4",
)
_POOLS: Key[dict[str, ReadPool], dict[str, ReadPool]] = Key(
    "pools", POOLS, {}, "Sets of interchangeable backends, at least one.", required=True
)
_ROUTES: Key[list[ReadRoute], list[ReadRoute]] = Key(
    "routes", ROUTES, [], "Which requests go to which pool, at least one.", required=True
)
_PINS = Key(
    "pins",
    mapping(PINS, read_pins),
    Pins(),
    "Which owners are remembered, and where. Changed by a restart only.",
)
_LOG = Key("log", mapping(LOG, read_log), Log(), "The access log. Changed by a restart only.")
_DRAIN = Key(
    "drain",
    duration(zero=True),
    DEFAULT_DRAIN,
    "How long requests under way may take after SIGTERM; what is left is cut then.",
    "25s",
)
ROOT = Keys("", (_LISTEN, _ADMIN, _WORKERS, _POOLS, _ROUTES, _PINS, _LOG, _DRAIN))


def load(path: Path, environ: Mapping[str, str]) -> Config:
    """The configuration in a file. `environ` is what `${VAR}` is replaced from. Raises ConfigError."""
    return parse(read_file(path), str(path), environ)


def read_file(path: Path) -> str:
    """The YAML text in a file. Raises ConfigError."""
    source = str(path)
    try:
        with path.open("rb") as file:
            raw = file.read(_LARGEST + 1)
    except (OSError, ValueError) as error:  # ValueError: a path with a NUL
        reason = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
        raise ConfigError([Problem(source, None, "", message=f"cannot be read: {reason}")]) from None
    if len(raw) > _LARGEST:
        raise ConfigError([Problem(source, None, "", message=f"larger than {_LARGEST} bytes")])
    try:
        return raw.decode("utf-8")
    except UnicodeDecodeError as error:
        line = raw.count(b"\n", 0, error.start) + 1
        raise ConfigError([Problem(source, line, "", message="not UTF-8", allowed="text in UTF-8")]) from None


def parse(text: str, source: str, environ: Mapping[str, str]) -> Config:
    """The configuration in a YAML text; `source` names it in messages. Raises ConfigError with all mistakes."""
    report = Report(source)
    root = read_yaml(text, report)
    if root is None:
        raise ConfigError(report.problems)
    section = ROOT.section(Field(root, root.line, "", "", report, environ))
    if section is None:
        raise ConfigError(report.problems)

    listen_field, admin_field = section.get("listen"), section.get("admin")
    listen, admin = section.take(_LISTEN), section.take(_ADMIN)
    if not any(problem.key.startswith(("listen", "admin")) for problem in report.problems):
        check_addresses(report, admin_field or listen_field, listen, admin)
    workers = section.take(_WORKERS)
    pools_field = section.require("pools", "a mapping of pools by name, at least one")
    pools = section.take(_POOLS)
    given = pools_field.node.entries if pools_field is not None and isinstance(pools_field.node, Table) else None
    section.require("routes", "a list of routes, at least one")
    routes = section.take(_ROUTES, lambda routes: read_routes(routes, given or None))
    pins, log, drain = section.take(_PINS), section.take(_LOG), section.take(_DRAIN)

    check_routes(routes)
    if routes:
        check_reach(pools, routes)
    check_ring_keys(pools, routes)
    listen = with_allowed_hosts(report, listen_field, listen, pools)
    report.raise_any()
    return Config(
        listen,
        admin,
        {name: pool.config for name, pool in pools.items()},
        tuple(route for read in routes if (route := read.route) is not None),
        pins=pins,
        log=log,
        workers=workers,
        drain=drain,
        warnings=tuple(report.warnings),
    )
