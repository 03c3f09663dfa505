"""What is a mistake to the proxy, whatever stands around it, is one to editors; and what is none is none."""

import pytest

from proxy.config import ConfigError, parse
from tests.config.editor import objections
from tests.config.samples import with_pool, with_routes, with_top

MISTAKES = [
    with_top("listne: 127.0.0.1:8080"),
    with_top("listen: {adress: 127.0.0.1:8080}"),
    with_top("listen: 8080"),
    with_top("listen: localhost"),
    with_top("listen: [127.0.0.1:8080]"),
    with_top("listen: {allowed_hosts: []}"),
    with_top("listen: {allowed_hosts: ['*.example.com']}"),
    with_top("listen: {allowed_origins: [https://a/b]}"),
    with_top("listen: {trusted_proxies: [everyone]}"),
    with_top("listen: {limits: {idle: 75}}"),
    with_top("listen: {tls: {certificate: a.pem}}"),
    with_top("admin: {token: two words}"),
    with_top("workers: 0"),
    with_top("workers: many"),
    with_top("workers: 1.5"),
    with_top("drain: 25"),
    with_top("drain: 25 s"),
    with_top("drain: -1s"),
    with_top("drain: 1d"),
    with_top("log: {access: maybe}"),
    with_top("log: {format: xml}"),
    with_top("log:"),
    with_top("pins: {store: etcd}"),
    with_top("pins: {store: redis}"),
    with_top("pins: {url: 'redis://a'}"),
    with_top("pins: {store: redis, url: 'http://a'}"),
    with_top("pins: {ttl: 0s}"),
    with_pool("ballance: ring"),
    with_pool("balance: random"),
    with_pool("balance: ring"),
    with_pool("ring_key: name"),
    with_pool("balance: ring", "ring_key: param"),
    with_pool("balance: ring", "ring_key: 'header:X Tenant'"),
    with_pool("tasks: local"),
    with_pool("tasks: {owner_tag: '^[a-z]+'}"),
    with_pool("sessions: on"),
    with_pool("listen: both"),
    with_pool("host: front"),
    with_pool("health: {}"),
    with_pool("health: /health"),
    with_pool("health: {path: health}"),
    with_pool("health: {path: '/a#b'}"),
    with_pool("outlier: never"),
    with_pool("outlier: {max_ejected: 50}"),
    with_pool("outlier: {max_ejected: 0%}"),
    with_pool("outlier: {max_ejected: 101%}"),
    with_pool("timeouts: {connect: 0s}"),
    with_pool("timeouts: {connect: 0.00ms}"),
    with_pool("timeouts: 2s"),
    with_pool("retry: {attempts: 11}"),
    with_pool("retry: 3"),
    with_pool("limits: {queue: -1}"),
    with_pool("comment_every: 0s"),
    with_pool("discover: {dns: a}"),
    with_pool("discover: {dns: 'a:1', file: a.yaml}"),
    with_pool("discover: {file: a.toml}"),
    with_pool("discover: {file: a.yaml, resolver: 10.0.0.1}"),
    with_pool("discover: {path: /mcp}"),
    with_pool("tls: {certificate: a.pem}"),
    "pools: {agents: {}}\nroutes: [{name: rest, pool: agents}]\n",
    "pools: {agents: {backends: []}}\nroutes: [{name: rest, pool: agents}]\n",
    "pools: {agents: {backends: ['ftp://a']}}\nroutes: [{name: rest, pool: agents}]\n",
    "pools: {agents: {backends: ['http://me@a']}}\nroutes: [{name: rest, pool: agents}]\n",
    "pools: {agents: {backends: ['http://a/?b']}}\nroutes: [{name: rest, pool: agents}]\n",
    "pools: {agents: {backends: [{id: a}]}}\nroutes: [{name: rest, pool: agents}]\n",
    "pools: {agents: {backends: [{id: a/b, url: 'http://a'}]}}\nroutes: [{name: rest, pool: agents}]\n",
    "pools: {my agents: {backends: ['http://a']}}\nroutes: [{name: rest, pool: my agents}]\n",
    "pools: {}\nroutes: []\n",
    "pools: {a: {backends: ['http://a']}}\nroutes: []\n",
    "pools: {a: {backends: ['http://a']}}\n",
    with_routes("{pool: a}", "{name: y, pool: b}"),
    with_routes("{name: x}", "{name: y, pool: b}"),
    with_routes("{name: x, pool: a, split: {a: 1, b: 1}}"),
    with_routes("{name: x, split: {}}", "{name: y, pool: b}"),
    with_routes("{name: x, split: {a: -1, b: 1}}"),
    with_routes("{name: x y, split: {a: 1, b: 1}}"),
    with_routes("{name: x, match: {tool: a}, split: {a: 1, b: 1}}"),
    with_routes("{name: x, match: {name: 'regex:'}, split: {a: 1, b: 1}}"),
    with_routes("{name: x, match: {path: mcp}, split: {a: 1, b: 1}}"),
    with_routes("{name: x, match: {protocol: latest}, split: {a: 1, b: 1}}"),
    with_routes("{name: x, match: {protocol: '>2026-07-28'}, split: {a: 1, b: 1}}"),
    with_routes("{name: x, match: {param: {'a b': c}}, split: {a: 1, b: 1}}"),
    with_routes("{name: x, match: {header: [a]}, split: {a: 1, b: 1}}"),
]


@pytest.mark.parametrize("text", MISTAKES)
def test_a_mistake_is_one_to_editors_and_to_the_proxy(text: str) -> None:
    with pytest.raises(ConfigError):
        parse(text, "proxy.yaml", {})
    assert objections(text)


@pytest.mark.parametrize(
    ("line", "environ"),
    [
        ("listen: '${WHERE}'", {"WHERE": "127.0.0.1:1"}),
        ("workers: ${N}", {"N": "2"}),
        ("drain: ${T}s", {"T": "5"}),
        ("log: {access: '${ON}', format: '${HOW}'}", {"ON": "no", "HOW": "text"}),
        ("pins: {store: '${WHERE}', url: '${URL}'}", {"WHERE": "redis", "URL": "redis://a"}),
        ("listen: {trusted_proxies: ['${NET}']}", {"NET": "10.0.0.0/8"}),
    ],
)
def test_variables_may_stand_for_any_value(line: str, environ: dict[str, str]) -> None:
    text = with_top(line)

    parse(text, "proxy.yaml", environ)

    assert objections(text) == []


@pytest.mark.parametrize(
    "line",
    ["workers: 0_1", "workers: '4'", "log: {access: 'Yes'}", "log: {access: off}", "pins: {capacity: 1_000}"],
)
def test_spellings(line: str) -> None:
    """What YAML 1.2 and the proxy read differently is left to the proxy."""
    try:
        parse(with_top(line), "proxy.yaml", {})
    except ConfigError:
        assert objections(with_top(line))
    else:
        assert objections(with_top(line)) == []
