"""Mistakes in routes: line, full path, what was found, what is allowed."""

import pytest

from tests.config.samples import mistakes, with_routes

PATTERN = "exact text, a glob (* and ?), or regex:EXPRESSION"
PROTOCOL = "<DATE, >=DATE or DATE, such as '<2026-07-28'"
NAMES = "letters, digits, and _ . -"
SPLIT = "a mapping of pools with their parts of the requests, at least one"
TOKENS = "letters, digits and !#$%&'*+-.^_`|~"


@pytest.mark.parametrize(
    ("routes", "message"),
    [
        ("", "1: routes: missing; allowed: a list of routes, at least one"),
        ("routes: []", "2: routes: found an empty list; allowed: a list of routes, at least one"),
        ("routes: {name: r, pool: a}", "2: routes: found a mapping; allowed: a list of routes, at least one"),
        ("routes: [a]", "2: routes[0]: found 'a'; allowed: a mapping with name, match, pool, split"),
    ],
)
def test_mistakes_in_routes(routes: str, message: str) -> None:
    assert mistakes(f"pools: {{a: {{backends: ['http://a']}}}}\n{routes}") == [f"proxy.yaml:{message}"]


@pytest.mark.parametrize(
    ("route", "message"),
    [
        ("{pool: a}", f".name: missing; allowed: {NAMES}"),
        ("{name: a/b, pool: a}", f".name: found 'a/b'; not a name for a route; allowed: {NAMES}"),
        (
            "{name: first, pool: a}",
            ".name: found the name 'first' again, first in line 5; allowed: a name of its own for each route",
        ),
        ("{name: r}", ": found neither; allowed: exactly one of pool and split"),
        ("{name: r, pool: a, split: {a: 1}}", ": found both pool and split; allowed: exactly one of pool and split"),
        ("{name: r, pool: c}", ".pool: found 'c'; no such pool; allowed: a, b"),
        ("{name: r, pool: aa}", ".pool: found 'aa'; no such pool; allowed: a, b; did you mean 'a'?"),
        ("{name: r, pool: [a]}", ".pool: found a list; allowed: the name of a pool"),
        (
            "{name: r, split: a}",
            f".split: found 'a'; allowed: {SPLIT}",
        ),
        (
            "{name: r, split: {}}",
            f".split: found an empty mapping; allowed: {SPLIT}",
        ),
        ("{name: r, split: {a: 1, c: 1}}", ".split.c: found 'c'; no such pool; allowed: a, b"),
        ("{name: r, split: {a: -1}}", ".split.a: found '-1'; allowed: an integer from 0 to 1000000"),
        ("{name: r, split: {a: 5%}}", ".split.a: found '5%'; allowed: an integer from 0 to 1000000"),
        (
            "{name: r, split: {a: 0, b: 0}}",
            ".split: found only parts of 0; allowed: at least one part that is more than 0",
        ),
        ("{name: r, pol: a, pool: a}", ".pol: unknown key; allowed: name, match, pool, split; did you mean 'pool'?"),
        (
            "{name: r, match: tools/call, pool: a}",
            ".match: found 'tools/call'; allowed: a mapping with method, name, param, protocol, host, path, header",
        ),
    ],
)
def test_mistakes_in_a_route(route: str, message: str) -> None:
    first = "{name: first, match: {name: x}, split: {a: 1, b: 1}}"
    assert mistakes(with_routes(first, route)) == [f"proxy.yaml:6: routes[1]{message}"]


@pytest.mark.parametrize(
    ("match", "message"),
    [
        (
            "headers: {}",
            "headers: unknown key; allowed: method, name, param, protocol, host, path, header; did you mean 'header'?",
        ),
        ("name: ''", f"name: found ''; allowed: {PATTERN}"),
        ("name: [a, b]", f"name: found a list; allowed: {PATTERN}"),
        ("method: ~", f"method: found nothing; allowed: {PATTERN}"),
        ("method: 'regex:'", f"method: found 'regex:'; an empty expression; allowed: {PATTERN}"),
        (
            "method: 'regex:('",
            "method: found 'regex:('; not a regular expression: missing ), unterminated subpattern at position 0",
        ),
        ("path: mcp", "path: found 'mcp'; allowed: a path that starts with /, or regex:EXPRESSION"),
        ("path: '*'", "path: found '*'; allowed: a path that starts with /, or regex:EXPRESSION"),
        ("host: 'a:80'", "host: found 'a:80'; allowed: a host without its port: the port is not compared"),
        ("host: '*:*'", "host: found '*:*'; allowed: a host without its port: the port is not compared"),
        ("host: '[::1]:80'", "host: found '[::1]:80'; allowed: a host without its port: the port is not compared"),
        (
            "host: 'http://a'",
            "host: found 'http://a'; allowed: a host name, an address (IPv6 in brackets), a glob (* and ?) of one, "
            "or regex:EXPRESSION",
        ),
        ("protocol: 2026-07", f"protocol: found '2026-07'; allowed: {PROTOCOL}"),
        ("protocol: '20260728'", f"protocol: found '20260728'; allowed: {PROTOCOL}"),
        ("protocol: '<2026-02-30'", f"protocol: found '<2026-02-30'; allowed: {PROTOCOL}"),
        ("protocol: '<=2026-07-28'", f"protocol: found '<=2026-07-28'; allowed: {PROTOCOL}"),
        ("protocol: '< 2026-07-28'", f"protocol: found '< 2026-07-28'; allowed: {PROTOCOL}"),
        ("protocol: '<>=2026-07-28'", f"protocol: found '<>=2026-07-28'; allowed: {PROTOCOL}"),
        ("protocol: legacy", f"protocol: found 'legacy'; allowed: {PROTOCOL}"),
        ("tool: x", "tool: unknown key; allowed: method, name, param, protocol, host, path, header"),
        ("param: Region", "param: found 'Region'; allowed: a mapping of names with their patterns"),
        ("param: {'a b': x}", f"param.'a b': not a name for a param; allowed: {TOKENS}"),
        (
            "param: {A: x, a: y}",
            "param.a: found A again; allowed: one param of a name; upper and lower case are the same",
        ),
        ("param: {a: }", f"param.a: found nothing; allowed: {PATTERN}"),
        ("header: {'a:': x}", f"header.'a:': not a name for a header; allowed: {TOKENS}"),
        (
            "header: {A: x, a: y}",
            "header.a: found A again; allowed: one header of a name; upper and lower case are the same",
        ),
        (
            "header: {Mcp-Method: x}",
            "header.Mcp-Method: can never be met: Mcp-Method has a meaning of its own to the proxy; "
            "did you mean 'method'?",
        ),
        (
            "header: {Host: x}",
            "header.Host: can never be met: Host has a meaning of its own to the proxy; did you mean 'host'?",
        ),
        ("header: {TE: x}", "header.TE: can never be met: TE ends at the proxy"),
        (
            "header: {Authorization: 'regex:(secret'}",
            "header.Authorization: found a value that is not shown; not a regular expression",
        ),
    ],
)
def test_mistakes_in_a_match(match: str, message: str) -> None:
    route = f"{{name: r, match: {{{match}}}, split: {{a: 1, b: 1}}}}"
    assert mistakes(with_routes(route)) == [f"proxy.yaml:5: routes[0].match.{message}"]


@pytest.mark.parametrize("conditions", ["method: tools/call", "name: x", "param: {Region: eu}"])
@pytest.mark.parametrize("protocol", ["<2026-07-28", "2025-11-25"])
def test_tool_conditions_of_legacy_requests_can_never_be_met(conditions: str, protocol: str) -> None:
    route = f"{{name: r, match: {{protocol: '{protocol}', {conditions}}}, split: {{a: 1, b: 1}}}}"
    assert mistakes(with_routes(route)) == [
        f"proxy.yaml:5: routes[0]: found method, name or param beside {protocol}; "
        "can never match: they are asked of requests from 2026-07-28 on only"
    ]


@pytest.mark.parametrize(
    ("first", "second"),
    [
        ("{}", "{}"),
        ("{}", "{path: /mcp}"),
        ("{path: /a}", "{path: /a}"),
        ("{}", "{name: x}"),
        ("{name: x}", "{name: x}"),
        ("{name: x}", "{name: x, method: m}"),
        ("{path: '/a*'}", "{path: '/a*', host: h}"),
        ("{header: {X-A: a}}", "{header: {x-a: a, X-B: b}}"),
        ("{param: {R: a}, protocol: '>=2026-07-28'}", "{param: {r: a}, protocol: '>=2026-07-28', name: n}"),
        ("{host: A.example}", "{host: a.example}"),
    ],
)
def test_a_route_behind_one_that_takes_all_its_requests(first: str, second: str) -> None:
    routes = f"{{name: r, match: {first}, pool: a}}", f"{{name: s, match: {second}, pool: b}}"
    assert mistakes(with_routes(*routes)) == [
        "proxy.yaml:6: routes[1]: found no condition that the route r in line 5 does not have; "
        "can never match: that one comes first"
    ]


def test_a_mistaken_match_hides_no_other_route() -> None:
    routes = "{name: r, match: {nme: x}, pool: a}", "{name: s, match: {name: x}, pool: b}"
    assert [message.split(": ")[1] for message in mistakes(with_routes(*routes))] == ["routes[0].match.nme"]
