"""Every recipe sends to all backends and keys on Mcp-Name; command lines that cannot be obeyed are refused."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
import yaml

from bench.options import parse
from bench.recipes import RECIPES, Certificate, Place, haproxy_config, nginx_config, proxy_config
from bench.targets import Target, external
from bench.workload import TOOLS
from proxy.config import parse as parse_config
from proxy.routing.table import RoutingTable
from tests.routing.asking import asked

PLACE = Place(port=8080, admin_port=9901, backend_ports=(7001, 7002, 7003, 7004), directory=Path("run"))


@pytest.mark.parametrize("name", RECIPES)
def test_every_proxy_listens_on_its_port_and_knows_every_backend(name: str) -> None:
    config = RECIPES[name].config(PLACE)
    assert "8080" in config
    for port in PLACE.backend_ports:
        assert config.count(str(port)) == 1


def test_the_proxy_balances_one_pool_by_name_and_logs_no_requests() -> None:
    assert yaml.safe_load(proxy_config(PLACE)) == {
        "listen": {"address": "127.0.0.1:8080", "allowed_hosts": ["127.0.0.1"]},
        "admin": "127.0.0.1:9901",
        "workers": 1,
        "pools": {
            "agents": {
                "backends": [f"http://127.0.0.1:{port}/mcp" for port in PLACE.backend_ports],
                "balance": "ring",
                "ring_key": "name",
            }
        },
        "routes": [{"name": "rest", "pool": "agents"}],
        "log": {"access": False},
    }


def test_of_a_thousand_routes_two_hundred_are_for_the_tools_evenly_spread_and_the_last_for_the_rest() -> None:
    config = parse_config(proxy_config(replace(PLACE, routes=1000)), "bench", {})
    table = RoutingTable(config.routes)
    assert len(config.routes) == 1000
    taken = [table.route_for(asked(method="tools/call", name=tool)) for tool in (*TOOLS, "another")]
    assert [route.name for route in taken if route is not None] == [*(f"r{4 * n}" for n in range(200)), "rest"]


@pytest.mark.parametrize(
    ("config", "mark"), [(proxy_config, "tls:"), (nginx_config, "ssl_"), (haproxy_config, "ssl crt")]
)
def test_a_certificate_makes_the_listener_speak_tls(config: Callable[[Place], str], mark: str) -> None:
    certificate = Certificate(*(Path(name) for name in ("ca.pem", "chain.pem", "key.pem", "both.pem")))
    assert mark in config(replace(PLACE, certificate=certificate))
    assert mark not in config(PLACE)


def test_nginx_writes_nowhere_but_in_its_directory() -> None:
    for line in nginx_config(PLACE).splitlines():
        setting, _, value = line.strip().partition(" ")
        if setting == "pid" or setting.endswith("_temp_path"):
            assert "/" not in value


@pytest.mark.parametrize(
    ("text", "target"),
    [
        ("old=127.0.0.1:8021:77", Target("old", "127.0.0.1", 8021, 77)),
        ("six=::1:8021:77", Target("six", "::1", 8021, 77)),
    ],
)
def test_an_external_target_is_read(text: str, target: Target) -> None:
    assert external(text) == target


@pytest.mark.parametrize("text", ["", "old", "old=", "old=127.0.0.1:8021", "=127.0.0.1:8021:77", "old=a:b:c", "o=:1:2"])
def test_anything_else_is_no_external_target(text: str) -> None:
    with pytest.raises(ValueError, match="name=host:port:pid"):
        external(text)


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        (["--start"], "nothing to measure"),
        (["--start", "nginx", "nginx"], "two targets have one name"),
        (["--start", "nginx", "--target", "nginx=127.0.0.1:1:2"], "two targets have one name"),
        (["--start", "proxy", "--max-ratio", "2"], "needs both"),
        (["--start", "caddy"], "invalid choice"),
        (["--slices", "0"], "not a whole number above 0"),
        (["--seconds", "nan"], "not a number above 0"),
        (["--max-ratio", "x"], "not a number above 0"),
        (["--target", "x"], "not name=host:port:pid"),
        (["--start", "nginx", "--json", "no/such/directory/file.json"], "is no directory"),
    ],
)
def test_a_command_line_that_cannot_be_obeyed_is_refused(
    arguments: list[str], complaint: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as exit_:
        parse(arguments)
    assert exit_.value.code == 2
    assert complaint in capsys.readouterr().err


def test_targets_started_here_and_elsewhere_are_measured_together() -> None:
    options = parse(["--start", "proxy", "nginx", "--target", "old=127.0.0.1:8021:77", "--max-ratio", "1.5"])
    assert options.start == ["proxy", "nginx"]
    assert options.target == [Target("old", "127.0.0.1", 8021, 77)]
    assert options.max_ratio == 1.5
