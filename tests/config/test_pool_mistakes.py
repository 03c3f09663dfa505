"""Mistakes in pools: line, full path, what was found, what is allowed."""

import pytest

from proxy.config import not_yet, parse
from tests.config.samples import mistakes, with_pool

UNIT = "a number with a unit (ms, s, m or h), such as 250ms, 1.5s or 10m"
URL = "http[s]://HOST[:PORT][/PATH]"
KEYS = "name, authorization, param:NAME, header:NAME"
NAMES = "letters, digits, and _ . -"
BACKENDS = "a list of URLs or {id, url, weight, drain}, at least one"
TOKENS = "letters, digits and !#$%&'*+-.^_`|~"
NONE = "a list of backends, at least one; or `discover`, where they are found"
POOL_KEYS = (
    "backends, discover, balance, ring_key, tasks, sessions, listen, host, "
    "health, outlier, timeouts, retry, limits, comment_every, tls"
)


@pytest.mark.parametrize(
    ("pools", "messages"),
    [
        ("drain: 1s", ["1: pools: missing; allowed: a mapping of pools by name, at least one"]),
        ("pools: {}", ["1: pools: found an empty mapping; allowed: a mapping of pools by name, at least one"]),
        ("pools: [a]", ["1: pools: found a list; allowed: a mapping of pools by name, at least one"]),
        ("pools: {a: }", [f"1: pools.a: found nothing; allowed: a mapping with {POOL_KEYS}"]),
        ("pools: {a: {}}", [f"1: pools.a.backends: missing; allowed: {NONE}"]),
        (
            "pools: {a: {backends: []}}",
            [f"1: pools.a.backends: found an empty list; allowed: {BACKENDS}"],
        ),
        (
            "pools: {a: {backends: 'http://a'}}",
            [f"1: pools.a.backends: found 'http://a'; allowed: {BACKENDS}"],
        ),
        (
            "pools: {a: {backends: ['http://a']}, 'b/c': {backends: ['http://a']}}",
            [
                f"1: pools.'b/c': not a name for a pool; allowed: {NAMES}",
                "1: pools.'b/c': no route leads to this pool; allowed: pools that a route leads to",
            ],
        ),
        (
            "pools: {a: {backends: ['http://a']}, b: {backends: ['http://b']}}",
            ["1: pools.b: no route leads to this pool; allowed: pools that a route leads to"],
        ),
    ],
)
def test_mistakes_in_pools(pools: str, messages: list[str]) -> None:
    assert mistakes(f"{pools}\nroutes: [{{name: r, pool: a}}]") == [f"proxy.yaml:{message}" for message in messages]


@pytest.mark.parametrize(
    ("written", "message"),
    [
        (
            "balance: leastinflight",
            "balance: found 'leastinflight'; allowed: least_in_flight, round_robin, ring; "
            "did you mean 'least_in_flight'?",
        ),
        ("balance: {}", "balance: found an empty mapping; allowed: least_in_flight, round_robin, ring"),
        (
            "ring_key: name",
            "ring_key: found 'name'; only `balance: ring` has a key; "
            "allowed: `balance: ring` beside it, or no such key",
        ),
        ("blance: ring", f"blance: unknown key; allowed: {POOL_KEYS}; did you mean 'balance'?"),
        ("heath: {}", f"heath: unknown key; allowed: {POOL_KEYS}; did you mean 'health'?"),
        ("'a: b': {}", f"'a: b': unknown key; allowed: {POOL_KEYS}"),
        ("listen: two", "listen: found 'two'; allowed: one, all"),
        ("host: keep", "host: found 'keep'; allowed: preserve, backend"),
        ("tasks: local", "tasks: found 'local'; allowed: a mapping with state, search, owner_tag"),
        ("tasks: {state: shard}", "tasks.state: found 'shard'; allowed: local, shared; did you mean 'shared'?"),
        ("sessions: sticy", "sessions: found 'sticy'; allowed: sticky, off; did you mean 'sticky'?"),
        ("tasks: {search: 2}", "tasks.search: found '2'; allowed: true, false"),
        (
            "tasks: {owner_tag: '('}",
            "tasks.owner_tag: found '('; not a regular expression: missing ), unterminated subpattern at position 0",
        ),
        (
            "tasks: {owner_tag: '^(?P<owner>.)'}",
            "tasks.owner_tag: found '^(?P<owner>.)'; no group backend; "
            "allowed: (?P<backend>...) around the backend's id",
        ),
        ("timeouts: {connect: 2}", f"timeouts.connect: found '2'; allowed: {UNIT}, more than 0s to 10 years"),
        (
            "timeouts: {conect: 2s}",
            "timeouts.conect: unknown key; allowed: connect, head, idle, owner_wait; did you mean 'connect'?",
        ),
        ("timeouts: {owner_wait: x}", f"timeouts.owner_wait: found 'x'; allowed: {UNIT}, more than 0s to 10 years"),
        ("timeouts: 2s", "timeouts: found '2s'; allowed: a mapping with connect, head, idle, owner_wait"),
    ],
)
def test_mistakes_in_a_pool(written: str, message: str) -> None:
    assert mistakes(with_pool(written)) == [f"proxy.yaml:4: pools.agents.{message}"]


@pytest.mark.parametrize(("backends", "listen", "allowed"), [(16, "all", True), (17, "all", False), (17, "one", True)])
def test_a_subscription_is_opened_at_so_many_backends_at_most(backends: int, listen: str, allowed: bool) -> None:
    urls = ", ".join(f"'http://b{number}'" for number in range(backends))
    text = with_pool(f"listen: {listen}").replace("http://10.0.0.1:8000/mcp", urls)
    if allowed:
        assert parse(text, "proxy.yaml", {}).pools["agents"].listen == listen
    else:
        assert mistakes(text) == [
            "proxy.yaml:4: pools.agents.listen: found all, and 17 backends; every subscription would be opened at each "
            "of them; allowed: one; or all with at most 16 backends"
        ]


def test_the_ring_needs_a_key() -> None:
    assert mistakes(with_pool("balance: ring")) == [
        f"proxy.yaml:2: pools.agents.ring_key: missing; allowed: {KEYS}; `balance: ring` needs it"
    ]


def test_keys_of_a_pool_that_are_not_supported_yet(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(not_yet, "KEYS", {"pools.*": {"later": "all is as it is"}})
    assert mistakes(with_pool("later: {a: '${UNSET}'}")) == [
        "proxy.yaml:4: pools.agents.later: not supported yet; allowed: for now, no such key: all is as it is"
    ]


@pytest.mark.parametrize(
    ("key", "message"),
    [
        ("param", f"found 'param'; allowed: {KEYS}"),
        ("cookie:a", f"found 'cookie:a'; allowed: {KEYS}"),
        ("'param:'", f"found 'param:'; not a name for a param; allowed: param:NAME, with {TOKENS}"),
        ("'header:X Y'", f"found 'header:X Y'; not a name for a header; allowed: header:NAME, with {TOKENS}"),
        (
            "header:Keep-Alive",
            f"found 'header:Keep-Alive'; can never be present: Keep-Alive ends at the proxy; allowed: {KEYS}",
        ),
        (
            "header:x_forwarded_for",
            f"found 'header:x_forwarded_for'; can never be present: x_forwarded_for ends at the proxy; allowed: {KEYS}",
        ),
        (
            "header:Host",
            f"found 'header:Host'; can never be present: Host has a meaning of its own to the proxy; allowed: {KEYS}",
        ),
        (
            "header:Mcp-Name",
            "found 'header:Mcp-Name'; can never be present: Mcp-Name has a meaning of its own to the proxy; "
            f"allowed: {KEYS}; did you mean 'name'?",
        ),
        (
            "header:mcp-param-Region",
            "found 'header:mcp-param-Region'; can never be present: mcp-param-Region has a meaning of its own "
            f"to the proxy; allowed: {KEYS}; did you mean 'param:Region'?",
        ),
    ],
)
def test_mistakes_in_a_ring_key(key: str, message: str) -> None:
    assert mistakes(with_pool("balance: ring", f"ring_key: {key}")) == [
        f"proxy.yaml:5: pools.agents.ring_key: {message}"
    ]


@pytest.mark.parametrize("key", ["name", "param:Region"])
@pytest.mark.parametrize(
    ("protocols", "possible"),
    [
        (("<2026-07-28",), False),
        (("<2025-11-25",), False),
        (("2025-11-25",), False),
        (("2025-11-25", "<2025-06-18"), False),
        (("<2026-07-29",), True),
        (("2026-07-28",), True),
        ((">=2025-11-25",), True),
        (("<2026-07-28", ">=2026-07-28"), True),
    ],
)
def test_a_ring_key_of_modern_requests_needs_a_route_for_them(
    key: str, protocols: tuple[str, ...], possible: bool
) -> None:
    routes = "".join(f"  - {{name: r{i}, match: {{protocol: '{p}'}}, pool: a}}\n" for i, p in enumerate(protocols))
    text = f"pools:\n  a:\n    backends: ['http://a']\n    balance: ring\n    ring_key: {key}\nroutes:\n{routes}"
    if possible:
        assert len(parse(text, "proxy.yaml", {}).routes) == len(protocols)
    else:
        assert mistakes(text) == [
            f"proxy.yaml:5: pools.a.ring_key: found '{key}'; can never be present: all routes to this pool take "
            "requests from before 2026-07-28 only; allowed: authorization, header:NAME"
        ]


@pytest.mark.parametrize(
    ("written", "message"),
    [
        ("ftp://a", f"found 'ftp://a'; allowed: {URL}"),
        ("a:8000", f"found 'a:8000'; allowed: {URL}"),
        ("http://", f"found 'http://'; allowed: {URL}"),
        ("http://:80", f"found 'http://:80'; allowed: {URL}"),
        ("http://a:0", f"found 'http://a:0'; allowed: {URL}"),
        ("http://a:99999", f"found 'http://a:99999'; allowed: {URL}"),
        ("http://a b/", f"found 'http://a b/'; allowed: {URL}"),
        ("http://1.2.3/", f"found 'http://1.2.3/'; allowed: {URL}"),
        ("http://0x7f000001/", f"found 'http://0x7f000001/'; allowed: {URL}"),
        ("http://[::g]/", f"found 'http://[::g]/'; allowed: {URL}"),
        ("http://ä/", f"found 'http://ä/'; allowed: {URL}"),
        ("http://u:secret@a/", f"found a URL with user info, which is not shown; allowed: {URL}, without user info"),
        ("https://u:secret@a/", f"found a URL with user info, which is not shown; allowed: {URL}, without user info"),
        ("u:secret@a", f"found a value with @, which is not shown; allowed: {URL}"),
        ("http://a/?k=secret", f"found a URL with a query or fragment; allowed: {URL}, without query and fragment"),
        ("http://a/#x", f"found a URL with a query or fragment; allowed: {URL}, without query and fragment"),
        ("http://a/../b", f"found 'http://a/../b'; allowed: {URL}, with a path of plain segments"),
        ("http://a//b", f"found 'http://a//b'; allowed: {URL}, with a path of plain segments"),
        ("http://a/%2e", f"found 'http://a/%2e'; allowed: {URL}, with a path of plain segments"),
        ("http://a/b c", f"found 'http://a/b c'; allowed: {URL}, with a path of plain segments"),
        ("http://a/%4", f"found 'http://a/%4'; allowed: {URL}, with a path of plain segments"),
    ],
)
def test_mistakes_in_a_backend_url(written: str, message: str) -> None:
    text = f"pools:\n  p:\n    backends:\n      - http://ok\n      - '{written}'\nroutes: [{{name: r, pool: p}}]"
    assert mistakes(text) == [f"proxy.yaml:5: pools.p.backends[1]: {message}"]

    text = text.replace(f"'{written}'", f"{{url: '{written}'}}")
    assert mistakes(text) == [f"proxy.yaml:5: pools.p.backends[1].url: {message}"]


@pytest.mark.parametrize(
    ("written", "message"),
    [
        ("{id: x}", ".url: missing; allowed: http[s]://HOST[:PORT][/PATH]"),
        ("{url: 'http://a', weight: 0}", ".weight: found '0'; allowed: an integer from 1 to 1000"),
        ("{url: 'http://a', weight: 1001}", ".weight: found '1001'; allowed: an integer from 1 to 1000"),
        ("{url: 'http://a', weight: 1.5}", ".weight: found '1.5'; allowed: an integer from 1 to 1000"),
        ("{url: 'http://a', weight: true}", ".weight: found 'true'; allowed: an integer from 1 to 1000"),
        ("{url: 'http://a', weight: }", ".weight: found nothing; allowed: an integer from 1 to 1000"),
        ("{url: 'http://a', id: ''}", ".id: found ''; allowed: printable characters without spaces and `/`"),
        ("{url: 'http://a', id: a/b}", ".id: found 'a/b'; allowed: printable characters without spaces and `/`"),
        ("{url: 'http://a', id: 'a b'}", ".id: found 'a b'; allowed: printable characters without spaces and `/`"),
        (
            "{url: 'http://a', id: \"a\\x07\"}",
            ".id: found 'a\\x07'; allowed: printable characters without spaces and `/`",
        ),
        ("{url: 'http://a', drain: soon}", ".drain: found 'soon'; allowed: true, false"),
        (
            "{url: 'http://a', wieght: 2}",
            ".wieght: unknown key; allowed: id, url, weight, drain; did you mean 'weight'?",
        ),
        ("[]", ": found an empty list; allowed: a mapping with id, url, weight, drain"),
        ("", f": found nothing; allowed: {URL}"),
        (
            "http://ok:80/other",
            ": found the id 'ok:80' again, first in line 4; "
            "allowed: ids of their own: {id: NAME, url: URL}; the default is the URL's host:port",
        ),
        (
            "{id: 'ok:80', url: 'http://b'}",
            ": found the id 'ok:80' again, first in line 4; "
            "allowed: ids of their own: {id: NAME, url: URL}; the default is the URL's host:port",
        ),
    ],
)
def test_mistakes_in_a_backend(written: str, message: str) -> None:
    text = f"pools:\n  p:\n    backends:\n      - http://ok\n      - {written}\nroutes: [{{name: r, pool: p}}]"
    assert mistakes(text) == [f"proxy.yaml:5: pools.p.backends[1]{message}"]
