"""What a correct configuration means."""

import re
from ipaddress import ip_network
from pathlib import Path

import pytest

from proxy.config import Admin, Config, Listen, Log, Pins, load, parse
from proxy.routing.pools import RingKey
from proxy.routing.routes import Pattern, ProtocolCondition
from tests.config.samples import FULL, with_pool, with_routes, with_top

EXAMPLE = Path(__file__).parents[2] / "config" / "proxy.yaml"


def read(text: str, **environ: str) -> Config:
    return parse(text, "proxy.yaml", environ)


def test_defaults() -> None:
    config = read(with_top())

    assert config.listen == Listen("127.0.0.1", 8080, None, None, ())
    assert config.admin == Admin("127.0.0.1", 9901, None)
    assert config.pins == Pins(86_400.0, 1_000_000, "memory", None)
    assert config.log == Log(access=True, format="json")
    assert config.drain == 25.0
    pool = config.pools["agents"]
    assert (pool.name, pool.balance, pool.ring_key, pool.owner_tag, pool.host, pool.connect_timeout) == (
        "agents",
        "least_in_flight",
        None,
        None,
        "preserve",
        2.0,
    )
    (backend,) = pool.backends
    assert (backend.id, backend.host, backend.port, backend.path, backend.weight, backend.drain) == (
        "10.0.0.1:80",
        "10.0.0.1",
        80,
        "/mcp",
        1,
        False,
    )
    (route,) = config.routes
    assert (route.name, dict(route.shares), route.match.path) == ("rest", {"agents": 1}, Pattern("/mcp"))
    assert config.wanted_fields == {b"authorization"}


def test_everything_given() -> None:
    config = read(FULL)

    assert config.listen == Listen(
        "127.0.0.1", 8080, ("mcp.example.com",), None, trusted_proxies=(ip_network("10.0.0.0/8"),)
    )
    assert config.admin == Admin("0.0.0.0", 9901, "sesame")
    agents, tenants = config.pools["agents"], config.pools["tenants"]
    assert [(b.id, b.host, b.port, b.path, b.weight, b.drain) for b in agents.backends] == [
        ("10.0.0.11:8000", "10.0.0.11", 8000, "/mcp", 1, False),
        ("b", "10.0.0.12", 8000, "/mcp", 2, False),
    ]
    assert agents.owner_tag == re.compile("^(?P<backend>[a-z]+)")
    assert (tenants.balance, tenants.ring_key, tenants.host) == ("ring", RingKey("header", "x-tenant"), "backend")
    gpu, old, rest = config.routes
    assert (gpu.match.method, gpu.match.name) == (Pattern("tools/call"), Pattern("render_*"))
    assert gpu.match.params == {"region": Pattern("regex:eu-.+")}
    assert gpu.match.headers == {"x-tenant": Pattern("acme")}
    assert (old.match.protocol, old.match.host) == (ProtocolCondition("<2026-07-28"), Pattern("*.example.com"))
    assert rest.shares == {"agents": 95, "tenants": 5}
    assert config.wanted_fields == {b"authorization", b"x-tenant"}


def test_the_example_needs_no_environment() -> None:
    config = load(EXAMPLE, {})

    assert [route.name for route in config.routes] == ["tenants", "renders", "legacy", "metadata", "rest"]


@pytest.mark.parametrize(
    ("written", "host", "port"),
    [
        ("127.0.0.1:8080", "127.0.0.1", 8080),
        ("'[::1]:8080'", "::1", 8080),
        ("'[0:0:0:0:0:0:0:1]:1'", "::1", 1),
        ("Localhost:0", "localhost", 0),
        ("{address: '0.0.0.0:65535'}", "0.0.0.0", 65535),
        ("{trusted_proxies: []}", "127.0.0.1", 8080),
    ],
)
def test_listen(written: str, host: str, port: int) -> None:
    listen = read(with_top(f"listen: {written}")).listen

    assert (listen.host, listen.port) == (host, port)


def test_hosts_origins_and_proxies() -> None:
    listen = read(
        with_top(
            "listen:",
            "  allowed_hosts: [Example.COM, 'a:8080', '[::1]', '[0::1]:80', 10.0.0.1]",
            "  allowed_origins: ['HTTPS://Example.com:443', 'http://a:8080', 'http://[::1]:80', 'vscode-webview://x']",
            "  trusted_proxies: [10.0.0.0/8, 192.0.2.7, '2001:db8::/32']",
        )
    ).listen

    assert listen.allowed_hosts == ("example.com", "a:8080", "[::1]", "[::1]:80", "10.0.0.1")
    assert listen.allowed_origins == ("https://example.com", "http://a:8080", "http://[::1]", "vscode-webview://x")
    assert listen.trusted_proxies == tuple(map(ip_network, ("10.0.0.0/8", "192.0.2.7/32", "2001:db8::/32")))


def test_no_origins_is_not_unchecked_origins() -> None:
    assert read(with_top("listen: {allowed_origins: []}")).listen.allowed_origins == ()


@pytest.mark.parametrize(
    ("rule", "address", "expected"),
    [
        ("preserve", "127.0.0.1:80", None),
        ("preserve", "0.0.0.0:80", None),
        ("backend", "127.0.0.1:80", ("localhost", "127.0.0.1", "[::1]")),
        ("backend", "'[::1]:80'", ("localhost", "127.0.0.1", "[::1]")),
        ("backend", "localhost:80", ("localhost", "127.0.0.1", "[::1]")),
    ],
)
def test_default_allowed_hosts(rule: str, address: str, expected: tuple[str, ...] | None) -> None:
    config = read(f"listen: {address}\n" + with_pool(f"host: {rule}"))

    assert config.listen.allowed_hosts == expected


@pytest.mark.parametrize(
    ("url", "expected"),
    [
        ("http://Host", ("host:80", "host", 80, "/mcp")),
        ("http://host/", ("host:80", "host", 80, "/")),
        ("HTTP://host:8080/a/b%20c", ("host:8080", "host", 8080, "/a/b%20c")),
        ("http://my_service:9/mcp", ("my_service:9", "my_service", 9, "/mcp")),
        ("http://[2001:db8::1]:9/mcp", ("[2001:db8::1]:9", "2001:db8::1", 9, "/mcp")),
    ],
)
def test_backend_urls(url: str, expected: tuple[str, str, int, str]) -> None:
    config = read(f"pools: {{p: {{backends: ['{url}']}}}}\nroutes: [{{name: r, pool: p}}]")
    (backend,) = config.pools["p"].backends

    assert (backend.id, backend.host, backend.port, backend.path) == expected


def test_all_backends_may_be_drained() -> None:
    config = read("pools: {p: {backends: [{url: 'http://a', drain: true}]}}\nroutes: [{name: r, pool: p}]")

    assert [backend.drain for backend in config.pools["p"].backends] == [True]


@pytest.mark.parametrize(
    ("key", "expected", "wanted"),
    [
        ("name", RingKey("name"), set()),
        ("authorization", RingKey("authorization"), set()),
        ("param:Region", RingKey("param", "region"), set()),
        ("header:X-Tenant", RingKey("header", "x-tenant"), {b"x-tenant"}),
        ("header:Cookie", RingKey("header", "cookie"), {b"cookie"}),
    ],
)
def test_ring_keys(key: str, expected: RingKey, wanted: set[bytes]) -> None:
    config = read(with_pool("balance: ring", f"ring_key: {key}"))

    assert config.pools["agents"].ring_key == expected
    assert config.wanted_fields == wanted | {b"authorization"}  # callers are told apart by it


@pytest.mark.parametrize(
    ("written", "seconds"),
    [("250ms", 0.25), ("1.5s", 1.5), ("10m", 600), ("24h", 86_400), ("87600h", 315_360_000), ("0s", 0), ("0ms", 0)],
)
def test_durations(written: str, seconds: float) -> None:
    assert read(with_top(f"drain: {written}")).drain == pytest.approx(seconds)


@pytest.mark.parametrize(
    "written", ["'<2026-07-28'", "'>=2026-07-28'", "2026-07-28", "'2025-11-25'", "!!str 2025-11-25"]
)
def test_protocols(written: str) -> None:
    config = read(with_routes(f"{{name: r, match: {{protocol: {written}}}, split: {{a: 1, b: 0}}}}"))

    assert config.routes[0].match.protocol == ProtocolCondition(written.removeprefix("!!str ").strip("'"))


@pytest.mark.parametrize("written", ["on", "1.10", "010", "2026-07-28", "1:30", "true", "'x'"])
def test_text_is_what_is_written(written: str) -> None:
    """YAML would make a boolean, a number, a date of these."""
    config = read(with_routes(f"{{name: r, match: {{name: {written}}}, split: {{a: 1, b: 1}}}}"))

    assert config.routes[0].match.name == Pattern(written.strip("'"))


@pytest.mark.parametrize("path", ["/mcp", "/.well-known/*", "regex:[/]x", "/a b"])
def test_paths(path: str) -> None:
    config = read(with_routes(f"{{name: r, match: {{path: '{path}'}}, split: {{a: 1, b: 1}}}}"))

    assert config.routes[0].match.path == Pattern(path)


@pytest.mark.parametrize(
    ("written", "expected"),
    [
        ("Example.COM", "example.com"),
        ("*.Example.com", "*.example.com"),
        ("[::1]", "[::1]"),
        (r"regex:\D", r"regex:\D"),
    ],
)
def test_hosts_are_compared_in_lower_case(written: str, expected: str) -> None:
    config = read(with_routes(f"{{name: r, match: {{host: '{written}'}}, split: {{a: 1, b: 1}}}}"))

    assert config.routes[0].match.host == Pattern(expected)


@pytest.mark.parametrize(
    ("first", "second"),
    [
        ("{name: x}", "{name: y}"),
        ("{name: x}", "{method: x}"),
        ("{name: x, method: m}", "{name: x}"),
        ("{path: /a}", "{path: /b}"),
        ("{}", "{path: '/.well-known/*'}"),
        ("{header: {X-A: a}}", "{header: {X-A: b}}"),
        ("{header: {X-A: a}}", "{param: {X-A: a}}"),
        ("{protocol: '<2026-07-28'}", "{protocol: '>=2026-07-28'}"),
    ],
)
def test_routes_that_do_not_hide_each_other(first: str, second: str) -> None:
    config = read(with_routes(f"{{name: r, match: {first}, pool: a}}", f"{{name: s, match: {second}, pool: b}}"))

    assert [route.name for route in config.routes] == ["r", "s"]


def test_anchors_aliases_and_merged_mappings() -> None:
    config = read(
        "pools:\n"
        "  a: &base {backends: ['http://x', 'http://y'], host: preserve, timeouts: {connect: 1s}}\n"
        "  b: {<<: *base, timeouts: {connect: 3s}}\n"
        "  c: {<<: [*base, {host: backend}], backends: ['http://z']}\n"
        "routes: [{name: r, split: {a: 1, b: 1, c: 1}}]\n"
    )

    assert [[backend.id for backend in pool.backends] for pool in config.pools.values()] == [
        ["x:80", "y:80"],
        ["x:80", "y:80"],
        ["z:80"],
    ]
    assert [pool.connect_timeout for pool in config.pools.values()] == [1, 3, 1]
    assert config.pools["c"].host == "preserve"


def test_the_token_is_not_in_the_repr() -> None:
    assert "sesame" not in repr(read(FULL))


@pytest.mark.parametrize(
    "url",
    [
        "redis://host",
        "redis://host/",
        "redis://host:7000/15",
        "rediss://me:ses%40ame@host.example.com:6380/0",
        "redis://:sesame@[::1]:6379",
        "redis://10.0.0.1",
        "unix:///run/redis/redis.sock",
        "unix://me:sesame@/run/redis.sock?db=3",
    ],
)
def test_pins_in_redis(url: str) -> None:
    pins = read(with_top("pins: {store: redis, url: '${REDIS_URL}', capacity: 5}"), REDIS_URL=url).pins

    assert pins == Pins(86_400.0, 5, "redis", url)
    assert read(with_top(f"pins: {{url: '{url}', store: redis}}")).pins.url == url
    assert "host" not in repr(pins)
    assert "sesame" not in repr(pins)
