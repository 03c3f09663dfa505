"""The sections about the proxy as a process: listen, admin, workers, pins, log."""

import re
from typing import get_args

from proxy.config.addresses import (
    REDIS_URL,
    allowed_host,
    allowed_origin,
    is_loopback,
    listen_address,
    network,
    redis_url,
)
from proxy.config.fields import Field
from proxy.config.limits import read_client_limits
from proxy.config.reading import Scalar
from proxy.config.tls import read_listen_tls
from proxy.config.values import MOST_WORKERS, Admin, Listen, Log, LogFormat, Network, Pins, Store

_TOKEN = re.compile(r"[!-~]+")  # what an Authorization field can carry without quoting
_LOG_FORMATS: tuple[LogFormat, ...] = get_args(LogFormat)
_STORES: tuple[Store, ...] = get_args(Store)
_MOST_PINS = 100_000_000  # a pin takes some 350 bytes; beyond this it is a slip


def read_listen(field: Field | None) -> Listen:
    """`listen:`, an address or a mapping."""
    default = Listen()
    if field is None:
        return default
    if isinstance(field.node, Scalar):
        host, port = listen_address(field) or (default.host, default.port)
        return Listen(host, port)
    section = field.section("address", "allowed_hosts", "allowed_origins", "trusted_proxies", "tls", "limits")
    if section is None:
        return default
    host, port = section.read("address", listen_address, (default.host, default.port))
    return Listen(
        host,
        port,
        allowed_hosts=section.read("allowed_hosts", _allowed_hosts, None),
        allowed_origins=section.read("allowed_origins", _allowed_origins, None),
        trusted_proxies=section.read("trusted_proxies", _networks, ()),
        tls=section.read("tls", read_listen_tls, None),
        limits=section.read("limits", read_client_limits, default.limits),
    )


def read_admin(field: Field | None) -> Admin:
    """`admin:`, an address or a mapping; off loopback it must have a token."""
    default = Admin()
    if field is None:
        return default
    if isinstance(field.node, Scalar):
        admin, token_given = Admin(*(listen_address(field) or (default.host, default.port))), False
    else:
        section = field.section("address", "token")
        if section is None:
            return default
        host, port = section.read("address", listen_address, (default.host, default.port))
        admin, token_given = Admin(host, port, section.read("token", _token, None)), "token" in section
    if not token_given and not is_loopback(admin.host):
        field.report.add(
            field.line,
            "admin.token",
            message=f"missing: {admin.host} can be reached from other machines",
            allowed="a token, as in {address: HOST:PORT, token: '${ADMIN_TOKEN}'}, or an address on loopback",
        )
    return admin


def read_workers(field: Field) -> int | None:
    """`workers:`."""
    return field.integer(1, MOST_WORKERS)


def read_pins(field: Field | None) -> Pins:
    """`pins:`."""
    default = Pins()
    section = None if field is None else field.section("store", "url", "ttl", "capacity")
    if section is None:
        return default
    store_field, url_field = section.get("store"), section.get("url")
    store = default.store if store_field is None else store_field.choice(_STORES)
    url = None
    if store == "redis":
        url_field = section.require("url", REDIS_URL)
        url = None if url_field is None else redis_url(url_field)
    elif store == "memory" and url_field is not None:
        url_field.problem(found="", message="the store memory has none", allowed="a url beside store: redis")
    return Pins(
        ttl=section.read("ttl", Field.duration, default.ttl),
        capacity=section.read("capacity", lambda capacity: capacity.integer(1, _MOST_PINS), default.capacity),
        store=store or default.store,
        url=url,
    )


def read_log(field: Field | None) -> Log:
    """`log:`."""
    default = Log()
    section = None if field is None else field.section("access", "format")
    if section is None:
        return default
    return Log(
        access=section.read("access", Field.boolean, default.access),
        format=section.read("format", lambda form: form.choice(_LOG_FORMATS), default.format),
    )


def _token(field: Field) -> str | None:
    field = field.hidden()
    allowed = "printable ASCII characters without spaces"
    text = field.text(allowed)
    if text is not None and _TOKEN.fullmatch(text) is None:
        field.problem(allowed=allowed)
        return None
    return text


def _allowed_hosts(field: Field) -> tuple[str, ...]:
    return tuple(host for item in field.items("hosts", least=1) if (host := allowed_host(item)) is not None)


def _allowed_origins(field: Field) -> tuple[str, ...]:
    return tuple(origin for item in field.items("origins") if (origin := allowed_origin(item)) is not None)


def _networks(field: Field) -> tuple[Network, ...]:
    return tuple(net for item in field.items("addresses and networks") if (net := network(item)) is not None)
