"""`listen.tls` and `pools.*.tls`: files that are there and fit, and everything that can be wrong with them."""

from pathlib import Path

import pytest

from proxy.certificates import ClientTls, ServerTls
from proxy.config import ConfigError, describe, load, parse
from tests.certificates import FUTURE, PAST, Authority

ROUTES = "routes: [{name: rest, pool: agents}]\n"
PLAIN_POOL = "pools: {agents: {backends: ['http://10.0.0.1']}}\n"


@pytest.fixture
def authority(tmp_path: Path) -> Authority:
    authority = Authority(tmp_path)
    authority.sign("proxy", "mcp.test")
    authority.sign("other", "mcp.test")
    return authority


def listening(tls: str) -> str:
    return f"listen: {{address: '127.0.0.1:8080', tls: {tls}}}\n{PLAIN_POOL}{ROUTES}"


def pooled(tls: str, url: str = "https://10.0.0.1") -> str:
    return f"pools:\n  agents:\n    backends: ['{url}']\n    tls: {tls}\n{ROUTES}"


def mistakes(text: str, folder: Path) -> list[str]:
    with pytest.raises(ConfigError) as caught:
        parse(text, str(folder / "proxy.yaml"), {})
    return [line.replace(f"{folder}/", "") for line in str(caught.value).split("\n")]


def test_paths_are_meant_from_the_folder_of_the_file(authority: Authority, tmp_path: Path) -> None:
    file = tmp_path / "proxy.yaml"
    file.write_text(listening("{certificate: proxy.pem, key: ./proxy.key, client_ca: ca.pem}"))
    tls = load(file, {}).listen.tls
    assert isinstance(tls, ServerTls)
    assert (tls.certificate, tls.key, tls.client_ca) == (
        tmp_path / "proxy.pem",
        tmp_path / "proxy.key",
        tmp_path / "ca.pem",
    )
    assert load(file, {}).files == (tmp_path / "proxy.pem", tmp_path / "proxy.key", tmp_path / "ca.pem")


def test_without_a_section_the_system_is_asked_whom_to_trust(tmp_path: Path) -> None:
    pool = parse(
        f"pools: {{agents: {{backends: ['https://a.test/x', 'http://b.test']}}}}\n{ROUTES}", "a.yaml", {}
    ).pools["agents"]
    assert pool.tls == ClientTls(contents=pool.tls.contents if pool.tls else b"")
    assert [(backend.host, backend.port, backend.tls, backend.id) for backend in pool.backends] == [
        ("a.test", 443, True, "a.test:443"),
        ("b.test", 80, False, "b.test:80"),
    ]
    assert pool.backends[0].origin == "https://a.test:443"


def test_plain_pool_has_none() -> None:
    assert parse(PLAIN_POOL + ROUTES, "a.yaml", {}).pools["agents"].tls is None


def test_equal_settings_differ_where_the_files_do(authority: Authority, tmp_path: Path) -> None:
    text = listening("{certificate: proxy.pem, key: proxy.key}")
    source = str(tmp_path / "proxy.yaml")
    before = parse(text, source, {})
    assert before == parse(text, source, {})
    authority.sign("proxy", "mcp.test")
    assert before != parse(text, source, {})


@pytest.mark.parametrize(
    "text",
    (
        listening("{certificate: proxy.pem, key: proxy.key, client_ca: ca.pem}"),
        pooled("{ca: ca.pem, certificate: proxy.pem, key: proxy.key, server_name: mcp.test}"),
        pooled("{verify: false, server_name: '10.0.0.2'}"),
    ),
)
def test_description_is_a_configuration_again(authority: Authority, tmp_path: Path, text: str) -> None:
    config = parse(text, str(tmp_path / "proxy.yaml"), {})
    assert parse(describe(config), "elsewhere/proxy.yaml", {}) == config


def test_description_shows_paths_and_no_key(authority: Authority, tmp_path: Path) -> None:
    text = describe(parse(listening("{certificate: proxy.pem, key: proxy.key}"), str(tmp_path / "proxy.yaml"), {}))
    files = f"certificate: {tmp_path}/proxy.pem, key: {tmp_path}/proxy.key"
    assert f"  tls: {{{files}}}" in text.replace('"', "")
    assert "PRIVATE" not in text


@pytest.mark.parametrize(
    ("tls", "expected"),
    (
        ("yes", "found 'yes'; allowed: a mapping with certificate, key, client_ca"),
        ("{certificate: proxy.pem}", "key: missing; allowed: the path of a file in PEM"),
        ("{key: proxy.key}", "certificate: missing; allowed: the path of a file in PEM"),
        (
            "{certificate: gone.pem, key: proxy.key}",
            "certificate: found 'gone.pem'; gone.pem cannot be read: No such file",
        ),
        ("{certificate: ., key: proxy.key}", "certificate: found '.'; "),
        ("{certificate: proxy.pem, key: gone.key}", "key: found 'gone.key'; gone.key cannot be read: No such file"),
        (
            "{certificate: proxy.pem, key: other.key}",
            "key: found 'other.key'; other.key is not the key of the certificate in proxy.pem",
        ),
        (
            "{certificate: proxy.key, key: proxy.key}",
            "certificate: found 'proxy.key'; proxy.key holds no certificate in PEM",
        ),
        ("{certificate: proxy.pem, key: proxy.pem}", "key: found 'proxy.pem'; proxy.pem holds no private key in PEM"),
        ("{certificate: proxy.pem, key: locked.key}", "key: found 'locked.key'; locked.key is protected by a password"),
        ("{certificate: torn.pem, key: proxy.key}", "certificate: found 'torn.pem'; torn.pem cannot be loaded"),
        ("{certificate: proxy.pem, key: torn.key}", "key: found 'torn.key'; torn.key cannot be loaded"),
        (
            "{certificate: proxy.pem, key: proxy.key, client_ca: gone.pem}",
            "client_ca: found 'gone.pem'; gone.pem cannot be",
        ),
        (
            "{certificate: proxy.pem, key: proxy.key, client_ca: proxy.key}",
            "client_ca: found 'proxy.key'; proxy.key holds no",
        ),
        (
            "{certificate: proxy.pem, key: proxy.key, client_ca: torn.pem}",
            "client_ca: found 'torn.pem'; torn.pem cannot be",
        ),
        (
            "{certificate: proxy.pem, key: proxy.key, clientca: ca.pem}",
            "clientca: unknown key; allowed: certificate, key, client_ca",
        ),
        (
            '{certificate: "a\\0b", key: proxy.key}',
            "certificate: found 'a\\x00b'; a\0b cannot be read: embedded null byte",
        ),
    ),
)
def test_mistake_of_the_listener_names_key_and_file(
    authority: Authority, tmp_path: Path, tls: str, expected: str
) -> None:
    authority.sign("locked", "mcp.test", password=b"sesame")
    for name in ("proxy.pem", "proxy.key"):
        whole = (tmp_path / name).read_text().splitlines()
        (tmp_path / f"torn{name[5:]}").write_text("\n".join([whole[0], "AAAA", *whole[-1:]]))
    found = mistakes(listening(tls), tmp_path)
    assert len(found) == 1
    prefix = "" if expected.startswith("found") else "."
    assert found[0].startswith(f"proxy.yaml:1: listen.tls{prefix or ': '}{expected}"), found[0]


@pytest.mark.parametrize(
    ("tls", "url", "expected"),
    (
        ("{}", "http://a", "4: pools.agents.tls: found an empty mapping; no backend of this pool has an https URL"),
        (
            "{certificate: proxy.pem}",
            "https://a",
            "4: pools.agents.tls.key: missing; allowed: the path of a file in PEM: certificate and",
        ),
        ("{key: proxy.key}", "https://a", "4: pools.agents.tls.certificate: missing"),
        ("{ca: gone.pem}", "https://a", "4: pools.agents.tls.ca: found 'gone.pem'; gone.pem cannot be read"),
        (
            "{ca: ca.pem, verify: false}",
            "https://a",
            "4: pools.agents.tls.ca: found 'ca.pem'; has no meaning with `verify: false`",
        ),
        (
            "{server_name: 'a b'}",
            "https://a",
            "4: pools.agents.tls.server_name: found 'a b'; allowed: a host name or an address",
        ),
        ("{verify: maybe}", "https://a", "4: pools.agents.tls.verify: found 'maybe'; allowed: true, false"),
        (
            "{certificate: proxy.pem, key: other.key}",
            "https://a",
            "4: pools.agents.tls.key: found 'other.key'; other.key is not",
        ),
        ("{}", "ftp://a", "3: pools.agents.backends[0]: found 'ftp://a'; allowed: http[s]://HOST[:PORT][/PATH]"),
    ),
)
def test_mistake_of_a_pool_names_key_and_file(
    authority: Authority, tmp_path: Path, tls: str, url: str, expected: str
) -> None:
    found = mistakes(pooled(tls, url), tmp_path)
    assert len(found) == 1 and found[0].startswith(f"proxy.yaml:{expected}"), found


@pytest.mark.parametrize(
    ("valid", "said"), ((PAST, "has expired"), (FUTURE, "is not valid yet"), (None, "")), ids=("past", "future", "now")
)
@pytest.mark.parametrize("where", ("listen", "pool"))
def test_certificate_that_will_be_refused_is_a_warning(tmp_path: Path, valid: object, said: str, where: str) -> None:
    """It must not keep the rest of a configuration from coming into force."""
    window = {"has expired": PAST, "is not valid yet": FUTURE}.get(said)
    Authority(tmp_path).sign("proxy", "mcp.test", valid=window)
    tls = "{certificate: proxy.pem, key: proxy.key}"
    config = parse(listening(tls) if where == "listen" else pooled(tls), str(tmp_path / "proxy.yaml"), {})
    key = "listen.tls" if where == "listen" else "pools.agents.tls"
    assert config.warnings == ((f"{key}.certificate: {tmp_path}/proxy.pem {said}",) if said else ())
    assert (f"# Warning: {key}.certificate" in describe(config)) is bool(said)


def test_verification_switched_off_is_a_warning(tmp_path: Path) -> None:
    config = parse(pooled("{verify: false}"), "proxy.yaml", {})
    assert len(config.warnings) == 1 and config.warnings[0].startswith("pools.agents.tls.verify: is false")
    assert describe(config).startswith("# Warning: pools.agents.tls.verify: is false")
