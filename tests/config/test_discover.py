"""`discover:` of a pool: what it means, what is wrong with it, and what it changes about other keys."""

from dataclasses import replace
from pathlib import Path

import pytest

from proxy.certificates import ClientTls
from proxy.config import describe, parse
from proxy.config.values import DnsRecipe, FileRecipe, Recipe
from tests.config.samples import mistakes

WHAT = "dns: NAME:PORT, or file: PATH"
NAME = "NAME:PORT, such as agents.example.svc:8000"
FILE = "a path that ends with .json, .yaml, .yml; its last part may be a glob, such as targets/*.yaml"
RESOLVER = "ADDRESS:PORT of a name server, such as 10.0.0.10:53"
PATH = "a path that begins with /, of plain segments, without query and fragment"
KEYS = "dns, file, path, scheme, hold, resolver"


def with_discover(text: str, *lines: str) -> str:
    further = "".join(f"    {line}\n" for line in lines)
    return f"pools:\n  agents:\n    discover: {text}\n{further}routes:\n  - {{name: rest, pool: agents}}\n"


@pytest.mark.parametrize(
    ("text", "recipe"),
    [
        ("{dns: 'agents:8000'}", DnsRecipe("agents", 8000)),
        (
            "{dns: 'Agents.Example.:1', path: /a/b, scheme: https, hold: 0s, resolver: '10.0.0.10:5353'}",
            DnsRecipe("agents.example.", 1, "/a/b", True, 0.0, ("10.0.0.10", 5353)),
        ),
        ("{dns: 'a:1', resolver: '[::1]'}", DnsRecipe("a", 1, resolver=("::1", 53))),
        ("{file: targets.json}", FileRecipe(Path("/etc/proxy/targets.json"))),
        ("{file: '/run/t/[ab]?.yaml', hold: 1m}", FileRecipe(Path("/run/t/[ab]?.yaml"), hold=60.0)),
        ("{file: ../t/a*.yml, path: /x}", FileRecipe(Path("/etc/proxy/../t/a*.yml"), "/x")),
    ],
)
def test_a_recipe_is_read_and_told_again(text: str, recipe: Recipe) -> None:
    config = parse(with_discover(text), "/etc/proxy/proxy.yaml", {})
    assert (config.pools["agents"].discover, config.pools["agents"].backends) == (recipe, ())
    assert repr(parse(describe(config), "elsewhere.yaml", {})) == repr(config)


@pytest.mark.parametrize("there", (True, False))
def test_a_pattern_that_no_file_matches_is_a_warning(tmp_path: Path, there: bool) -> None:
    """Files may come later, so it is no mistake; but a typing error in a path looks the same."""
    if there:
        (tmp_path / "agents.yaml").write_text("[]")
    config = parse(with_discover("{file: '*.yaml'}"), str(tmp_path / "proxy.yaml"), {})
    said = f"pools.agents.discover.file: no file matches {tmp_path}/*.yaml yet"
    assert config.warnings == (() if there else (said,))
    assert describe(config).startswith(f"# Warning: {said}\n") is not there


def test_listed_backends_stand_beside_those_that_are_discovered() -> None:
    config = parse(with_discover("{dns: 'a:1'}", "backends: ['http://b']"), "proxy.yaml", {})
    assert [backend.id for backend in config.pools["agents"].backends] == ["b:80"]
    shown = describe(config)
    assert (
        '    discover: {dns: "a:1", path: /mcp, scheme: http, hold: 10s}\n    backends:\n      - {id: "b:80"' in shown
    )


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", f": found nothing; allowed: a mapping with {KEYS}"),
        ("{}", f": nothing to look for; allowed: {WHAT}"),
        ("{path: /a}", f": nothing to look for; allowed: {WHAT}"),
        ("{dns: 'a:1', file: a.json}", f": found dns and file; allowed: one of them: {WHAT}"),
        ("{dns: a}", f".dns: found 'a'; there is no port; allowed: {NAME}"),
        ("{dns: 'a:0'}", f".dns: found 'a:0'; allowed: {NAME}"),
        ("{dns: 'a:65536'}", f".dns: found 'a:65536'; allowed: {NAME}"),
        ("{dns: '10.0.0.1:80'}", f".dns: found '10.0.0.1:80'; allowed: {NAME}"),
        ("{dns: '[::1]:80'}", f".dns: found '[::1]:80'; allowed: {NAME}"),
        ("{dns: 'http://a:1'}", f".dns: found 'http://a:1'; allowed: {NAME}"),
        ("{dns: [a]}", f".dns: found a list; allowed: {NAME}"),
        ("{dns: 'a:1', resolver: dns.test}", f".resolver: found 'dns.test'; allowed: {RESOLVER}"),
        ("{dns: 'a:1', resolver: '10.0.0.1:0'}", f".resolver: found '10.0.0.1:0'; allowed: {RESOLVER}"),
        (
            "{file: a.json, resolver: 10.0.0.1}",
            ".resolver: only names are resolved; allowed: dns: NAME:PORT beside it, or no such key",
        ),
        ("{file: a.txt}", f".file: found 'a.txt'; allowed: {FILE}"),
        ("{file: '*/a.json'}", f".file: found '*/a.json'; allowed: {FILE}"),
        ("{dns: 'a:1', path: mcp}", f".path: found 'mcp'; allowed: {PATH}"),
        ("{dns: 'a:1', path: '/a?b'}", f".path: found '/a?b'; allowed: {PATH}"),
        ("{dns: 'a:1', path: /../a}", f".path: found '/../a'; allowed: {PATH}"),
        ("{dns: 'a:1', scheme: htps}", ".scheme: found 'htps'; allowed: http, https; did you mean 'https'?"),
        ("{dns: 'a:1', recolver: a}", f".recolver: unknown key; allowed: {KEYS}; did you mean 'resolver'?"),
    ],
)
def test_mistakes(text: str, message: str) -> None:
    assert mistakes(with_discover(text)) == [f"proxy.yaml:3: pools.agents.discover{message}"]


def test_a_probe_must_not_ask_where_the_discovered_speak_mcp() -> None:
    text = with_discover("{dns: 'a:1', path: /here}", "health: {path: /here}")
    assert mistakes(text)[0].startswith("proxy.yaml:4: pools.agents.health.path: found '/here'; MCP is spoken there")


@pytest.mark.parametrize(
    ("scheme", "tls", "meant"),
    [
        ("https", (), ClientTls()),
        ("https", ("tls: {server_name: x.test}",), ClientTls(server_name="x.test")),
        ("http", (), None),
    ],
)
def test_discovered_backends_may_be_spoken_to_over_tls(scheme: str, tls: tuple[str, ...], meant: ClientTls) -> None:
    config = parse(with_discover(f"{{dns: 'a:1', scheme: {scheme}}}", *tls), "proxy.yaml", {})
    found = config.pools["agents"].tls
    assert (None if found is None else replace(found, contents=b"")) == meant


def test_tls_without_https_is_a_mistake() -> None:
    found = mistakes(with_discover("{dns: 'a:1'}", "tls: {server_name: x.test}"))
    assert found == [
        "proxy.yaml:4: pools.agents.tls: found a mapping; no backend of this pool has an https URL; "
        "allowed: https URLs, or no such key"
    ]
