"""`describe` shows everything, hides secrets, and its text is a configuration again."""

from pathlib import Path

import pytest

from proxy.config import describe, parse
from tests.config.samples import FULL, with_pool, with_routes, with_top

EXAMPLE = Path(__file__).parents[2] / "config" / "proxy.yaml"


def test_every_default_is_shown() -> None:
    assert describe(parse(with_top(), "proxy.yaml", {})).split("\n") == [
        "# The first route that matches is taken. An exact path is replaced by that of the backend's URL.",
        "# route  leads to  when",
        "# rest   agents    path /mcp",
        "",
        "listen:",
        '  address: "127.0.0.1:8080"',
        "  # tls: clients speak plain HTTP",
        "  # allowed_hosts: not checked",
        "  # allowed_origins: not checked",
        "  trusted_proxies: []",
        "  limits: {connections: 10000, head: 10s, body: 30s, idle: 75s}",
        "admin:",
        '  address: "127.0.0.1:9901"',
        "  # token: none",
        "workers: 1",
        "pools:",
        "  agents:",
        "    backends:",
        '      - {id: "10.0.0.1:80", url: "http://10.0.0.1:80/mcp", weight: 1, drain: false}',
        "    balance: least_in_flight",
        "    tasks: {state: local, search: true}",
        "    sessions: sticky",
        "    listen: one",
        "    host: preserve",
        "    # health: no probes",
        "    outlier: {consecutive: 5, ejection: 30s, max_ejected: 50%}",
        "    timeouts: {connect: 2s, head: 10m, idle: 1h, owner_wait: 10s}",
        "    retry: {attempts: 2, budget: 20%}",
        "    limits: {in_flight: 1000, queue: 100, queue_wait: 1s}",
        "    # comment_every: never",
        "routes:",
        "  - name: rest",
        "    match:",
        "      path: /mcp",
        "    pool: agents",
        "pins: {store: memory, ttl: 24h, capacity: 1000000}",
        "log: {access: true, format: json}",
        "drain: 25s",
        "",
    ]


def test_the_routing_table() -> None:
    lines = describe(parse(FULL, "proxy.yaml", {})).split("\n")

    assert lines[1:5] == [
        "# route  leads to              when",
        '# gpu    tenants               path /mcp, method tools/call, name "render_*", param region "regex:eu-.+", '
        "header x-tenant acme",
        '# old    agents                path /mcp, host "*.example.com", protocol "<2026-07-28"',
        "# rest   agents 95, tenants 5  path /mcp",
    ]


@pytest.mark.parametrize(
    "text",
    [
        FULL,
        EXAMPLE.read_text(encoding="utf-8"),
        with_top("listen: '[::1]:0'", "drain: 0s", "pins: {ttl: 1500ms}", "log: {access: no}", "admin: '[::1]:1'"),
        with_top("listen: {allowed_hosts: ['[::1]:80', a], allowed_origins: []}", "drain: 90m", "log: {access: off}"),
        with_pool("outlier: off", "health: {discover: true, interval: 1500ms, timeout: 20ms, rise: 1, fall: 9}"),
        with_pool("outlier: {ejection: 90m, max_ejected: 1%}", "health: {path: '/up?a=1&b=$${B}'}"),
        with_pool("listen: all", "sessions: off", "tasks: {state: shared, search: false}"),
        with_routes("{name: 'on', match: {name: ' a: \"b\" #\\'}, split: {a: 3}}", "{name: '1', pool: b}"),
        with_routes('{name: x, match: {name: "\\n\\x85\\u2028\\U0001F600\\0\\xfc\\uFEFF"}, split: {a: 0, b: 7}}'),
        with_routes("{name: x, match: {name: '$${A} $$${ $'}, split: {a: 1, b: 7}}"),
        with_routes("{name: x, match: {header: {\"x-'a`|~\": 'null', '!': '~'}}, split: {a: 1, b: 7}}"),
    ],
)
def test_what_it_says_is_the_same_configuration(text: str) -> None:
    config = parse(text, "proxy.yaml", {})

    # Backends are equal by id alone; their repr shows all of them. The token is not in it.
    assert repr(parse(describe(config), "described", {})) == repr(config)


def test_secrets_are_masked() -> None:
    secrets = "Authorization: Bearer sesame, X-Api-Key: sesame, Cookie: 'a=sesame', X-Auth-Token: sesame"
    text = with_routes(f"{{name: x, match: {{header: {{{secrets}, X-Tenant: acme}}}}, split: {{a: 1, b: 1}}}}")
    shown = describe(parse(text + "admin: {token: sesame}", "proxy.yaml", {}))

    assert "sesame" not in shown
    assert '  token: "***"' in shown.split("\n")
    assert "x-tenant: acme" in shown


@pytest.mark.parametrize(
    ("url", "shown"),
    [
        ("redis://me:sesame@host:6379/1", '"redis://me:***@host:6379/1"'),
        ("rediss://:ses%40ame@[::1]", '"rediss://:***@[::1]"'),
        ("redis://host", '"redis://host"'),
        ("redis://me@host", '"redis://me@host"'),
        ("unix://:sesame@/run/redis.sock?db=1", '"unix://:***@/run/redis.sock?db=1"'),
    ],
)
def test_the_password_of_a_redis_is_masked_and_the_rest_is_shown(url: str, shown: str) -> None:
    described = describe(parse(with_top(f"pins: {{store: redis, url: '{url}'}}"), "proxy.yaml", {}))

    assert f"pins: {{store: redis, url: {shown}, ttl: 24h, capacity: 1000000}}" in described.split("\n")
    assert parse(described, "described", {}).pins.store == "redis"


@pytest.mark.parametrize(
    ("written", "shown"),
    [
        ("0ms", "0s"),
        ("60s", "1m"),
        ("90s", "90s"),
        ("1.5h", "90m"),
        ("0.25s", "250ms"),
        ("0.5ms", "0.0005s"),
        ("24h", "24h"),
    ],
)
def test_durations_are_shown_as_people_write_them(written: str, shown: str) -> None:
    assert f"drain: {shown}" in describe(parse(with_top(f"drain: {written}"), "proxy.yaml", {})).split("\n")
