"""`${VAR}` is replaced from the environment, and what it holds is never shown."""

import pytest

from proxy.config import Config, parse
from proxy.routing.routes import Pattern
from tests.config.samples import mistakes, with_pool, with_routes, with_top


def read(text: str, **environ: str) -> Config:
    return parse(text, "proxy.yaml", environ)


def test_variables() -> None:
    config = read(
        'admin: {token: "a${TOKEN}b"}\n'
        'pools: {agents: {backends: [{url: "http://${HOST}:${PORT}/mcp", weight: "${WEIGHT}"}]}}\n'
        "routes: [{name: rest, pool: agents}]\n"
        'log: {access: "${ACCESS}"}\n'
        "drain: ${DRAIN}\n",
        TOKEN="[x]:{y}",
        HOST="10.9.8.7",
        PORT="81",
        WEIGHT="5",
        ACCESS="false",
        DRAIN="3s",
    )

    assert config.admin.token == "a[x]:{y}b"
    assert config.pools["agents"].backends[0].authority == "10.9.8.7:81"
    assert (config.pools["agents"].backends[0].weight, config.log.access, config.drain) == (5, False, 3.0)


@pytest.mark.parametrize(
    ("written", "expected"),
    [
        ("${A}", "*"),
        ("x${A}y${A}", "x*y*"),
        ("$${A}", "${A}"),
        ("$$${A}", "$${A}"),
        ("$A", "$A"),
        ("$", "$"),
        ("${YAML}", "[a, b]: # c"),
        ("${NESTED}", "${A}"),
    ],
)
def test_variables_are_replaced_once_and_never_read_as_yaml(written: str, expected: str) -> None:
    text = with_routes(f"{{name: r, match: {{name: '{written}'}}, split: {{a: 1, b: 1}}}}")
    config = read(text, A="*", YAML="[a, b]: # c", NESTED="${A}")

    assert config.routes[0].match.name == Pattern(expected)


def test_keys_have_no_variables() -> None:
    text = with_routes("{name: r, match: {param: {$A: x}}, split: {a: 1, b: 1}}")

    assert read(text, A="b").routes[0].match.params == {"$a": Pattern("x")}


def test_unset_and_misspelt_variables() -> None:
    text = with_pool("host: ${HOST_RULE}", "balance: ${A}${B}${A}", 'timeouts: {connect: "${}"}', "listen: ${X")

    assert mistakes(text) == [
        "proxy.yaml:4: pools.agents.host: found ${HOST_RULE}; the environment variable HOST_RULE is not set",
        "proxy.yaml:5: pools.agents.balance: found ${A}; the environment variable A is not set",
        "proxy.yaml:5: pools.agents.balance: found ${B}; the environment variable B is not set",
        "proxy.yaml:6: pools.agents.timeouts.connect: found `${` without a name and `}`; "
        "allowed: ${NAME} for a variable, $${ for `${` itself",
        "proxy.yaml:7: pools.agents.listen: found `${` without a name and `}`; "
        "allowed: ${NAME} for a variable, $${ for `${` itself",
    ]


@pytest.mark.parametrize(
    ("written", "value"),
    [
        ("admin: {token: '${V}'}", "sesame open"),
        ("admin: {token: '${V}'}", ""),
        ("log: {format: '${V}'}", "sesame"),
        ("pins: {capacity: '${V}'}", "sesame"),
        ("drain: '${V}'", "sesame"),
        ("pins: {store: redis, url: '${V}'}", "redis://:sesame@host:port"),
        ("listen: '${V}'", "sesame"),
        ("listen: {allowed_origins: ['${V}']}", "sesame"),
    ],
)
def test_values_of_variables_are_not_shown(written: str, value: str) -> None:
    (message,) = mistakes(with_top(written), V=value)

    assert "sesame" not in message
    assert message.startswith(f"proxy.yaml:3: {written.partition(':')[0]}")


@pytest.mark.parametrize(
    "text",
    [
        with_routes("{name: r, match: {header: {Authorization: 'regex:(?P<sesame'}}, split: {a: 1, b: 1}}"),
        with_routes("{name: r, match: {name: '${V}'}, split: {a: 1, b: 1}}"),
        with_pool("tasks: {owner_tag: '${V}'}"),
        "pools: {p: {backends: ['http://${V}/']}}\nroutes: [{name: r, pool: p}]",
    ],
)
def test_expressions_and_urls_from_variables_are_not_shown(text: str) -> None:
    assert "sesame" not in "\n".join(mistakes(text, V="regex:(?P<sesame"))
