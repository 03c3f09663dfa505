"""No control character gets from a configuration into what goes on the wire, into logs, metrics or answers: where a
value is written out somewhere, it is refused; where it is only compared, it is kept, and shown escaped."""

import json
from collections.abc import Callable

import pytest

from proxy.config import ConfigError, describe, parse
from tests.config.samples import with_pool, with_top

CHARACTERS = {
    "CRLF": "\r\nX-Injected: 1",
    "CR": "\rX",
    "LF": "\nX",
    "NUL": "\0",
    "tab": "\tX",
    "escape": "\x1b[2J",
    "DEL": "\x7f",
    "NEL": "\x85X",
    "line separator": "\u2028X",
    "no-break space": "\xa0X",
    "right-to-left override": "\u202eX",
    "blank": " X",
}
Value = Callable[[str], str]
"""Writes a value down, as YAML."""


def _pooled(pool: str, name: str = "a") -> str:
    return f"pools: {{{name}: {{{pool}}}}}\nroutes: [{{name: r, pool: {name}}}]\n"


def _routed(route: str) -> str:
    return f"pools: {{a: {{backends: ['http://a']}}}}\nroutes: [{route}]\n"


ROUTE = "{name: r, pool: a, match: {%s}}"
PLACES: dict[str, Callable[[Value], str]] = {
    "listen": lambda value: with_top(f"listen: {value('127.0.0.1:1')}"),
    "listen.address": lambda value: with_top(f"listen: {{address: {value('127.0.0.1:1')}}}"),
    "allowed_hosts": lambda value: with_top(f"listen: {{allowed_hosts: [{value('x')}]}}"),
    "allowed_origins": lambda value: with_top(f"listen: {{allowed_origins: [{value('http://x')}]}}"),
    "trusted_proxies": lambda value: with_top(f"listen: {{trusted_proxies: [{value('10.0.0.0/8')}]}}"),
    "admin": lambda value: with_top(f"admin: {value('127.0.0.1:1')}"),
    "admin.token": lambda value: with_top(f"admin: {{address: '127.0.0.1:1', token: {value('t')}}}"),
    "a pool's name": lambda value: _pooled("backends: ['http://a']", value("a")),
    "a backend's URL": lambda value: _pooled(f"backends: [{value('http://a')}]"),
    "a backend's path": lambda value: _pooled(f"backends: [{value('http://a/b')}]"),
    "a backend's id": lambda value: _pooled(f"backends: [{{id: {value('b')}, url: 'http://a'}}]"),
    "a route's name": lambda value: _routed(f"{{name: {value('r')}, pool: a}}"),
    "a route's pool": lambda value: _routed(f"{{name: r, pool: {value('a')}}}"),
    "a share's pool": lambda value: _routed(f"{{name: r, split: {{{value('a')}: 1}}}}"),
    "a host": lambda value: _routed(ROUTE % f"host: {value('x')}"),
    "a protocol": lambda value: _routed(ROUTE % f"protocol: {value('2026-07-28')}"),
    "a header's name": lambda value: _routed(ROUTE % f"header: {{{value('X-A')}: x}}"),
    "a parameter's name": lambda value: _routed(ROUTE % f"param: {{{value('A')}: x}}"),
    "a ring key": lambda value: with_pool("balance: ring", f"ring_key: {value('header:X-A')}"),
    "a probe's path": lambda value: with_pool(f"health: {{path: {value('/health')}}}"),
    "a server's name": lambda value: _pooled(f"backends: ['https://a'], tls: {{server_name: {value('x')}}}"),
}
VARIABLE = {"a pool's name", "a share's pool", "a header's name", "a parameter's name"}
"""Places of keys, in which no variable is replaced."""


def refused(text: str, environ: dict[str, str]) -> str:
    with pytest.raises(ConfigError) as caught:
        parse(text, "proxy.yaml", environ)
    return str(caught.value)


@pytest.mark.parametrize("place", PLACES)
def test_without_them_it_is_a_configuration(place: str) -> None:
    parse(PLACES[place](json.dumps), "proxy.yaml", {})


@pytest.mark.parametrize("place", PLACES)
@pytest.mark.parametrize("character", CHARACTERS)
def test_what_is_written_out_is_refused(place: str, character: str) -> None:
    """At its end, at its beginning, and where a variable brings it in; what is said of it is a line without it."""
    make, more = PLACES[place], CHARACTERS[character]
    told = [
        refused(make(lambda start: json.dumps(start + more)), {}),
        refused(make(lambda start: json.dumps(more + start)), {}),
    ]
    if place not in VARIABLE and "\0" not in more:  # the environment has none
        told.append(refused(make(lambda start: f"'{start}${{ODD}}'"), {"ODD": more}))
    for text in told:
        for line in text.split("\n"):
            assert line.startswith("proxy.yaml:"), line
            assert line.isprintable(), line


@pytest.mark.parametrize("character", CHARACTERS)
def test_what_is_only_compared_is_kept_and_shown_escaped(character: str) -> None:
    value = "x" + CHARACTERS[character]
    config = parse(_routed(ROUTE % f"name: {json.dumps(value)}"), "proxy.yaml", {})
    shown = describe(config)
    assert all(line.isprintable() for line in shown.split("\n"))
    assert repr(parse(shown, "described", {})) == repr(config)
