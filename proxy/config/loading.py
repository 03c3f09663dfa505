"""From a file to a configuration: every section is read, then they are held against each other."""

from collections.abc import Mapping
from pathlib import Path

from proxy.config.checks import check_addresses, check_reach, check_ring_keys, check_routes, with_allowed_hosts
from proxy.config.fields import Field
from proxy.config.pools import read_pools
from proxy.config.problems import ConfigError, Problem, Report
from proxy.config.reading import Table, read_yaml
from proxy.config.routes import read_routes
from proxy.config.service import read_admin, read_listen, read_log, read_pins, read_workers
from proxy.config.values import DEFAULT_DRAIN, Config

_LARGEST = 1024 * 1024  # bytes; some ten thousand backends
_KEYS = ("listen", "admin", "workers", "pools", "routes", "pins", "log", "drain")


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
    section = Field(root, root.line, "", "", report, environ).section(*_KEYS)
    if section is None:
        raise ConfigError(report.problems)

    listen_field, admin_field = section.get("listen"), section.get("admin")
    listen, admin = read_listen(listen_field), read_admin(admin_field)
    if not any(problem.key.startswith(("listen", "admin")) for problem in report.problems):
        check_addresses(report, admin_field or listen_field, listen, admin)
    workers = section.read("workers", read_workers, 1)
    pools_field = section.require("pools", "a mapping of pools by name, at least one")
    pools = read_pools(pools_field)
    given = pools_field.node.entries if pools_field is not None and isinstance(pools_field.node, Table) else None
    routes = read_routes(section.require("routes", "a list of routes, at least one"), given or None)
    pins, log = read_pins(section.get("pins")), read_log(section.get("log"))
    drain = section.read("drain", lambda drain: drain.duration(zero=True), DEFAULT_DRAIN)

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
