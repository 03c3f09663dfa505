"""The sections about the proxy as a process: listen, admin, workers, pins, log."""

import re
from typing import get_args

from proxy.config.addresses import (
    REDIS_URL,
    allowed_host,
    allowed_origin,
    bracketed,
    is_loopback,
    listen_address,
    network,
    redis_url,
)
from proxy.config.fields import Field
from proxy.config.forms import boolean, duration, integer, items, mapping, text, words
from proxy.config.limits import CLIENT_LIMITS, read_client_limits
from proxy.config.reading import Scalar
from proxy.config.sections import Form, Key, Keys
from proxy.config.tls import LISTEN_TLS, read_listen_tls
from proxy.config.values import Admin, Listen, Log, LogFormat, Network, Pins, Store

_TOKEN = re.compile(r"[!-~]+")  # what an Authorization field can carry without quoting
_LOG_FORMATS: tuple[LogFormat, ...] = get_args(LogFormat)
_STORES: tuple[Store, ...] = get_args(Store)
_MOST_PINS = 100_000_000  # a pin takes some 350 bytes; beyond this it is a slip
_LISTEN, _ADMIN, _PINS, _LOG = Listen(), Admin(), Pins(), Log()


def _token(field: Field) -> str | None:
    field = field.hidden()
    allowed = "printable ASCII characters without spaces"
    token = field.text(allowed)
    if token is not None and _TOKEN.fullmatch(token) is None:
        field.problem(allowed=allowed)
        return None
    return token


ADDRESS = text(
    "`HOST:PORT`",
    listen_address,
    r"^(?:\[[0-9A-Fa-f:.]+\]|[^:/\s\[\]]*):[0-9]{1,5}$",
    bare=False,
    show=lambda address: f"{bracketed(address[0])}:{address[1]}",
)
_HOSTS = items(text("host", allowed_host, r"^[^*/@\s]+$"), "hosts", least=1)
_ORIGINS = items(text("origin", allowed_origin, r"^[A-Za-z][A-Za-z0-9+.-]*://[^/?#*@\s]+$", bare=False), "origins")
_NETWORKS: Form[tuple[Network, ...]] = items(
    text("network", network, r"^[0-9A-Fa-f:.]+(?:%[^/\s]+)?(?:/[0-9A-Fa-f:.]+)?$", bare=False),
    "addresses and networks",
)

_LISTEN_ADDRESS = Key(
    "address",
    ADDRESS,
    (_LISTEN.host, _LISTEN.port),
    "Where clients come in. Port 0 takes a free port. Changed by a restart only.",
    "0.0.0.0:8080",
)
_ALLOWED_HOSTS = Key(
    "allowed_hosts",
    _HOSTS,
    None,
    "`Host` fields that are served; any other gets 421. An entry without a port is meant for any port.",
    "[mcp.example.com, 'localhost:8080']",
    without="not checked; with `host: backend` in a pool: localhost names on loopback, and required elsewhere",
)
_ALLOWED_ORIGINS = Key(
    "allowed_origins",
    _ORIGINS,
    None,
    "`Origin` fields that are served; any other gets 403. Requests without `Origin` always are.",
    "['https://app.example.com']",
    without="not checked: servers do it",
)
_TRUSTED: Key[tuple[Network, ...], tuple[Network, ...]] = Key(
    "trusted_proxies",
    _NETWORKS,
    _LISTEN.trusted_proxies,
    "Peers whose `X-Forwarded-*` fields are continued; those of all others are replaced.",
    "[10.0.0.0/8, 192.0.2.7]",
)
_LISTEN_TLS = Key(
    "tls", mapping(LISTEN_TLS, read_listen_tls), None, "TLS towards clients.", without="clients speak plain HTTP"
)
_CLIENT_LIMITS = Key(
    "limits",
    mapping(CLIENT_LIMITS, read_client_limits),
    _LISTEN.limits,
    "What clients may take, and how slow they may be.",
)
LISTEN = Keys(
    "Where clients come in. `listen: HOST:PORT` is short for `listen: {address: HOST:PORT}`.",
    (_LISTEN_ADDRESS, _ALLOWED_HOSTS, _ALLOWED_ORIGINS, _TRUSTED, _LISTEN_TLS, _CLIENT_LIMITS),
)

_ADMIN_ADDRESS = Key("address", ADDRESS, (_ADMIN.host, _ADMIN.port), "Never the port of `listen`.", "127.0.0.1:9901")
_ADMIN_TOKEN = Key(
    "token",
    text("printable ASCII without spaces", _token, "^[!-~]+$"),
    None,
    "What `/api` asks for as `Authorization: Bearer …`. Required on an address off loopback.",
    "'${ADMIN_TOKEN}'",
)
ADMIN = Keys(
    "Metrics, health, the dashboard and the operator's interface. `admin: HOST:PORT` is short for "
    "`admin: {address: HOST:PORT}`.",
    (_ADMIN_ADDRESS, _ADMIN_TOKEN),
)

_STORE: Key[Store, Store] = Key(
    "store",
    words(_STORES),
    _PINS.store,
    "`memory`: this process remembers what it saw. `redis`: a Redis or Valkey (6 or newer) that several proxies share.",
    "redis",
)
_URL = Key(
    "url",
    text(
        "`redis[s]://[[USER]:PASSWORD@]HOST[:PORT][/DATABASE]`, `unix:///PATH`",
        redis_url,
        r"^(?:rediss?|unix)://\S+$",
        bare=False,
    ),
    None,
    "Where that is; `rediss` is TLS. Required with `store: redis`, and only there.",
    "'${REDIS_URL}'",
)
_TTL = Key(
    "ttl",
    duration(),
    _PINS.ttl,
    "How long an owner is remembered from the last sign of its task at work, unless the task's own `ttlMs` is longer. "
    "A backend that left is forgotten after as long without a request.",
    "24h",
)
_CAPACITY = Key(
    "capacity",
    integer(1, _MOST_PINS),
    _PINS.capacity,
    "How many; beyond that the least recently used is forgotten. With redis: of what a process knows by itself, at "
    "most 100,000.",
    "1000000",
)
PINS = Keys(
    "What the proxy remembers of who owns which task.",
    (_STORE, _URL, _TTL, _CAPACITY),
    {
        "if": {"properties": {"store": {"const": "redis"}}, "required": ["store"]},
        "then": {"required": ["url"]},
        "else": {"if": {"properties": {"store": {"const": "memory"}}}, "then": {"properties": {"url": False}}},
    },
)

_ACCESS = Key("access", boolean(), _LOG.access, "A line on standard output for every request.", "false")
_FORMAT: Key[LogFormat, LogFormat] = Key("format", words(_LOG_FORMATS), _LOG.format, "How the line is written.", "text")
LOG = Keys("What is logged of requests.", (_ACCESS, _FORMAT))


def read_listen(field: Field) -> Listen:
    """`listen:`, an address or a mapping."""
    if isinstance(field.node, Scalar):
        return Listen(*(listen_address(field) or _LISTEN_ADDRESS.default))
    section = LISTEN.section(field)
    if section is None:
        return _LISTEN
    host, port = section.take(_LISTEN_ADDRESS)
    return Listen(
        host,
        port,
        allowed_hosts=section.take(_ALLOWED_HOSTS),
        allowed_origins=section.take(_ALLOWED_ORIGINS),
        trusted_proxies=section.take(_TRUSTED),
        tls=section.take(_LISTEN_TLS),
        limits=section.take(_CLIENT_LIMITS),
    )


def read_admin(field: Field) -> Admin:
    """`admin:`, an address or a mapping; off loopback it must have a token."""
    if isinstance(field.node, Scalar):
        admin, token_given = Admin(*(listen_address(field) or _ADMIN_ADDRESS.default)), False
    else:
        section = ADMIN.section(field)
        if section is None:
            return _ADMIN
        host, port = section.take(_ADMIN_ADDRESS)
        admin, token_given = Admin(host, port, section.take(_ADMIN_TOKEN)), "token" in section
    if not token_given and not is_loopback(admin.host):
        field.report.add(
            field.line,
            "admin.token",
            message=f"missing: {admin.host} can be reached from other machines",
            allowed="a token, as in {address: HOST:PORT, token: '${ADMIN_TOKEN}'}, or an address on loopback",
        )
    return admin


def read_pins(field: Field) -> Pins:
    """`pins:`."""
    section = PINS.section(field)
    if section is None:
        return _PINS
    store_field, url_field = section.get("store"), section.get("url")
    store = _STORE.default if store_field is None else _STORE.form.read(store_field)
    url = None
    if store == "redis":
        section.require("url", REDIS_URL)
        url = section.take(_URL)
    elif store == "memory" and url_field is not None:
        url_field.problem(found="", message="the store memory has none", allowed="a url beside store: redis")
    return Pins(section.take(_TTL), section.take(_CAPACITY), store or _PINS.store, url)


def read_log(field: Field) -> Log:
    """`log:`."""
    section = LOG.section(field)
    return _LOG if section is None else Log(section.take(_ACCESS), section.take(_FORMAT))
