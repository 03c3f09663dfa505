"""A configuration as text: the routing table, then the whole of it as YAML, every default filled in, secrets masked.

The text is a configuration again: unless something is masked, reading it gives the same one.
"""

import re
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path

from proxy.certificates import ClientTls
from proxy.config.addresses import bracketed, without_password
from proxy.config.forms import duration_text
from proxy.config.values import ClientLimits, Config, DnsRecipe, Pins, PoolConfig, Recipe
from proxy.routing.backends import Backend
from proxy.routing.headers import is_secret
from proxy.routing.health import Health
from proxy.routing.outliers import OutlierRule
from proxy.routing.pools import RingKey
from proxy.routing.queueing import Limits
from proxy.routing.routes import Match, Pattern, Route

_MASKED = "***"
_PLAIN = re.compile(r"[A-Za-z/][A-Za-z0-9_./-]*")
_NOT_TEXT = {"null", "true", "false", "yes", "no", "on", "off"}  # what YAML readers may take for something else


def describe(config: Config) -> str:
    """What `check` prints."""
    warnings = [f"# Warning: {' '.join(warning.split())}" for warning in config.warnings]
    return "\n".join((*warnings, *_table(config.routes), "", *_settings(config), ""))


def _table(routes: Iterable[Route]) -> Iterator[str]:
    rows = [("route", "leads to", "when")]
    for route in routes:
        conditions = (("path", route.match.path.text), *_conditions(route.match))
        rows.append((route.name, _shares(route), ", ".join(f"{what} {_text(text)}" for what, text in conditions)))
    first, second = (max(len(row[column]) for row in rows) for column in (0, 1))
    yield "# The first route that matches is taken. An exact path is replaced by that of the backend's URL."
    for name, shares, when in rows:
        yield f"# {name:{first}}  {shares:{second}}  {when}"


def _shares(route: Route) -> str:
    if len(route.shares) == 1:
        return next(iter(route.shares))
    return ", ".join(f"{pool} {share}" for pool, share in route.shares.items())


def _conditions(match: Match) -> Iterator[tuple[str, str]]:
    """Every condition but the path: what it is asked of, and its text."""
    for what, condition in (("host", match.host), ("protocol", match.protocol), ("method", match.method)):
        if condition is not None:
            yield what, condition.text
    if match.name is not None:
        yield "name", match.name.text
    for name, pattern in match.params.items():
        yield f"param {name}", pattern.text
    for name, pattern in match.headers.items():
        yield f"header {name}", _header(name, pattern)


def _settings(config: Config) -> Iterator[str]:
    listen, admin = config.listen, config.admin
    yield "listen:"
    yield f"  address: {_text(f'{bracketed(listen.host)}:{listen.port}')}"
    yield "  # tls: clients speak plain HTTP" if listen.tls is None else f"  tls: {_files(listen.tls.files)}"
    for key, values in (("allowed_hosts", listen.allowed_hosts), ("allowed_origins", listen.allowed_origins)):
        yield f"  # {key}: not checked" if values is None else f"  {key}: {_list(values)}"
    yield f"  trusted_proxies: {_list(map(str, listen.trusted_proxies))}"
    yield f"  limits: {{{_client_limits(listen.limits)}}}"
    yield "admin:"
    yield f"  address: {_text(f'{bracketed(admin.host)}:{admin.port}')}"
    yield "  # token: none" if admin.token is None else f"  token: {_text(_MASKED)}"
    yield f"workers: {config.workers}"
    yield "pools:"
    for pool in config.pools.values():
        yield from _pool(pool)
    yield "routes:"
    for route in config.routes:
        yield from _route(route)
    yield f"pins: {{{', '.join(_pins(config.pins))}}}"
    yield f"log: {{access: {_boolean(config.log.access)}, format: {config.log.format}}}"
    yield f"drain: {duration_text(config.drain)}"


def _pins(pins: Pins) -> Iterator[str]:
    yield f"store: {pins.store}"
    if pins.url is not None:
        yield f"url: {_text(without_password(pins.url))}"
    yield f"ttl: {duration_text(pins.ttl)}"
    yield f"capacity: {pins.capacity}"


def _pool(pool: PoolConfig) -> Iterator[str]:
    every = pool.comment_every
    yield f"  {_text(pool.name)}:"
    if pool.discover is not None:
        yield f"    discover: {{{', '.join(_recipe(pool.discover))}}}"
    if pool.backends or pool.discover is None:
        yield "    backends:"
    for backend in pool.backends:
        yield f"      - {_backend(backend)}"
    yield f"    balance: {pool.balance}"
    if pool.ring_key is not None:
        yield f"    ring_key: {_text(_ring_key(pool.ring_key))}"
    owner_tag = "" if pool.owner_tag is None else f", owner_tag: {_text(pool.owner_tag.pattern)}"
    yield f"    tasks: {{state: {pool.state}, search: {str(pool.search).lower()}{owner_tag}}}"
    yield f"    sessions: {'sticky' if pool.sticky else 'off'}"
    yield f"    listen: {pool.listen}"
    yield f"    host: {pool.host}"
    if pool.tls is not None:
        yield f"    tls: {_client_tls(pool.tls)}"
    yield f"    {'# health: no probes' if pool.health is None else f'health: {_health(pool.health)}'}"
    yield f"    outlier: {'off' if pool.outlier is None else _outlier(pool.outlier)}"
    yield f"    timeouts: {{{_timeouts(pool)}}}"
    yield f"    retry: {{attempts: {pool.retry.attempts}, budget: {pool.retry.budget}%}}"
    yield f"    limits: {{{_limits(pool.limits)}}}"
    yield "    # comment_every: never" if every is None else f"    comment_every: {duration_text(every)}"


def _client_limits(limits: ClientLimits) -> str:
    head, body, idle = map(duration_text, (limits.head, limits.body, limits.idle))
    return f"connections: {limits.connections}, head: {head}, body: {body}, idle: {idle}"


def _limits(limits: Limits) -> str:
    per_backend = "" if limits.per_backend is None else f", per_backend: {limits.per_backend}"
    queue = f"queue: {limits.queue}, queue_wait: {duration_text(limits.queue_wait)}"
    return f"in_flight: {limits.in_flight}{per_backend}, {queue}"


def _timeouts(pool: PoolConfig) -> str:
    connect, head, idle = map(duration_text, (pool.connect_timeout, pool.head_timeout, pool.idle_timeout))
    return f"connect: {connect}, head: {head}, idle: {idle}, owner_wait: {duration_text(pool.owner_wait)}"


def _backend(backend: Backend) -> str:
    url = f"{backend.origin}{backend.path}"
    parts = f"weight: {backend.weight}, drain: {_boolean(backend.drain)}"
    return f"{{id: {_text(backend.id)}, url: {_text(url)}, {parts}}}"


def _recipe(recipe: Recipe) -> Iterator[str]:
    if isinstance(recipe, DnsRecipe):
        yield f"dns: {_text(f'{recipe.name}:{recipe.port}')}"
        if recipe.resolver is not None:
            host, port = recipe.resolver
            yield f"resolver: {_text(f'{bracketed(host)}:{port}')}"
    else:
        yield f"file: {_text(str(recipe.pattern))}"
    yield f"path: {_text(recipe.path)}"
    yield f"scheme: {'https' if recipe.tls else 'http'}"
    yield f"hold: {duration_text(recipe.hold)}"


def _health(health: Health) -> str:
    what = "discover: true" if health.path is None else f"path: {_text(health.path)}"
    times = f"interval: {duration_text(health.interval)}, timeout: {duration_text(health.timeout)}"
    return f"{{{what}, {times}, rise: {health.rise}, fall: {health.fall}}}"


def _outlier(rule: OutlierRule) -> str:
    limits = f"ejection: {duration_text(rule.ejection)}, max_ejected: {rule.max_ejected}%"
    return f"{{consecutive: {rule.consecutive}, {limits}}}"


def _files(files: Mapping[str, Path], **more: str) -> str:
    parts = {**{key: _text(str(path)) for key, path in files.items()}, **more}
    return f"{{{', '.join(f'{key}: {text}' for key, text in parts.items())}}}"


def _client_tls(tls: ClientTls) -> str:
    named = {} if tls.server_name is None else {"server_name": _text(tls.server_name)}
    return _files(tls.files, **named, verify=_boolean(tls.verify))


def _ring_key(key: RingKey) -> str:
    return f"{key.kind}:{key.field}" if key.field else key.kind


def _route(route: Route) -> Iterator[str]:
    match = route.match
    yield f"  - name: {_text(route.name)}"
    yield "    match:"
    yield f"      path: {_text(match.path.text)}"
    for what, text in _conditions(match):
        if " " not in what:
            yield f"      {what}: {_text(text)}"
    for what, patterns in (("param", match.params), ("header", match.headers)):
        if patterns:
            shown = {
                name: _header(name, pattern) if what == "header" else pattern.text for name, pattern in patterns.items()
            }
            yield f"      {what}: {{{', '.join(f'{_text(name)}: {_text(text)}' for name, text in shown.items())}}}"
    if list(route.shares.values()) == [1]:
        yield f"    pool: {_text(next(iter(route.shares)))}"
    else:
        yield f"    split: {{{', '.join(f'{_text(pool)}: {share}' for pool, share in route.shares.items())}}}"


def _header(name: str, pattern: Pattern) -> str:
    return _MASKED if is_secret(name) else pattern.text


def _list(values: Iterable[str]) -> str:
    return f"[{', '.join(map(_text, values))}]"


def _boolean(value: bool) -> str:
    return "true" if value else "false"


def _text(text: str) -> str:
    """The text as a YAML scalar on one line, in quotes where it needs them, and with `${` escaped."""
    text = text.replace("${", "$${")
    if _PLAIN.fullmatch(text) and text.lower() not in _NOT_TEXT:
        return text
    return '"' + "".join(map(_escaped, text)) + '"'


def _escaped(char: str) -> str:
    if char in '"\\':
        return f"\\{char}"
    if char.isprintable():
        return char
    code = ord(char)
    return f"\\U{code:08x}" if code > 0xFFFF else f"\\u{code:04x}"
