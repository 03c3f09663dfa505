"""The commands that ask, as they are typed: what they print, and the code they exit with."""

import json
from pathlib import Path

import pytest

from proxy.cli import main
from proxy.routing.ownership import short_digest
from tests.config.samples import FULL

MODERN = ("-H", "MCP-Protocol-Version: 2026-07-28")


@pytest.fixture
def config(tmp_path: Path) -> str:
    file = tmp_path / "proxy.yaml"
    file.write_text(FULL)
    return str(file)


def typed(*arguments: str) -> int:
    """The exit code of a command, argparse's included."""
    try:
        return main(arguments)
    except SystemExit as ended:
        assert isinstance(ended.code, int)
        return ended.code


# ---- ring
def test_ring_prints_shares(config: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert typed("ring", "-c", config, "--pool", "agents", "--keys", "1000") == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == "pool agents: 1000 sample keys by the backend that comes first"
    assert [line.split()[:2] for line in lines[1:]] == [["backend", "weight"], ["10.0.0.11:8000", "1"], ["b", "2"]]


def test_ring_prints_what_a_change_moves(config: str, capsys: pytest.CaptureFixture[str]) -> None:
    change = ("--add", "x", "--add", "y", "--remove", "b")
    assert typed("ring", "-c", config, "--pool", "agents", *change) == 0
    lines = capsys.readouterr().out.splitlines()
    assert [line.split()[0] for line in lines[2:-1]] == ["10.0.0.11:8000", "b", "x", "y"]
    assert lines[-1].startswith("the change moves ")


def test_members_that_are_discovered_are_left_to_a_running_proxy(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "proxy.yaml"
    file.write_text("pools: {a: {discover: {dns: 'a.test:1'}}}\nroutes: [{name: r, pool: a}]\n")
    assert typed("ring", "-c", str(file), "--pool", "a") == 2
    assert "pool a: its members are discovered, and only a running proxy knows them" in capsys.readouterr().err
    assert typed("explain", "-c", str(file), *MODERN) == 0
    shown = capsys.readouterr().out
    assert "only a running proxy knows the members of pools that discover them (--admin asks it): a\n" in shown
    assert "no_backend" in shown
    assert typed("check", str(file)) == 0
    assert 'discover: {dns: "a.test:1", path: /mcp, scheme: http, hold: 10s}' in capsys.readouterr().out


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("--pool", "agent"), "no pool 'agent': there is agents, tenants; did you mean 'agents'?"),
        (("--pool", "zzz"), "no pool 'zzz': there is agents, tenants"),
        (("--pool", "agents", "--add", "b"), "pool agents: 'b' cannot be added: it is there already"),
        (("--pool", "agents", "--remove", "c"), "pool agents: 'c' cannot be removed: the pool has 10.0.0.11:8000, b"),
        (("--pool", "tenants", "--remove", "10.0.1.11:80"), "pool tenants: a pool needs a backend"),
        (("--pool", "agents", "--keys", "0"), "'0' is not a number from 1 to 1000000"),
        (("--pool", "agents", "--keys", "many"), "'many' is not a number from 1 to 1000000"),
        (("--pool", "agents", "--keys", "1000001"), "'1000001' is not a number from 1 to 1000000"),
        ((), "--pool"),
    ],
)
def test_ring_says_what_is_wrong(
    config: str, arguments: tuple[str, ...], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert typed("ring", "-c", config, *arguments) == 2
    printed = capsys.readouterr()
    assert message in printed.err
    assert printed.out == ""


# ---- explain
def test_explain_prints_where_a_request_goes(config: str, capsys: pytest.CaptureFixture[str]) -> None:
    fields = ("-H", "Mcp-Method: tools/call", "-H", "Mcp-Name: search", "-H", "X-Tenant:acme")
    assert typed("explain", "-c", config, *MODERN, *fields) == 0
    text = capsys.readouterr().out
    assert "era:        modern, MCP-Protocol-Version '2026-07-28'\n" in text
    assert "  gpu   name 'search' is not 'render_*'\n" in text
    assert "  rest  matches\n" in text
    assert "pool:       agents for 95 of 100 requests\n" in text
    assert "    ring: key 'acme', order 10.0.1.11:80\n" in text
    assert "note:       no Host was given: mcp.example.com is assumed\n" in text
    assert text.endswith(
        "note:       offline: nothing is in flight, no pins are known, and no backend has asked back\n"
    )


def test_explain_takes_method_path_and_json(config: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert typed("explain", "-c", config, "--method", "GET", "--path", "/x?secret=1", "--json") == 0
    told = json.loads(capsys.readouterr().out)
    assert (told["request"]["verb"], told["request"]["path"]) == ("GET", "/x")
    assert told["error"]["reason"] == "no_route"
    assert "secret" not in json.dumps(told)


def test_explain_shows_no_task_s_id(config: str, capsys: pytest.CaptureFixture[str]) -> None:
    fields = ("-H", "Mcp-Method: tasks/get", "-H", "Mcp-Name: secret-id")
    assert typed("explain", "-c", config, *MODERN, *fields) == 0
    text = capsys.readouterr().out
    assert "secret-id" not in text
    assert f"task:       {short_digest('secret-id')} (a digest of its id)\n" in text


def test_explain_of_a_refused_request_is_no_failure(config: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert typed("explain", "-c", config, "-H", "Host: evil.test") == 0
    assert "answer:     421 forbidden_host (-32000): this Host is not allowed here\n" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("-H", "no colon"), "'no colon' is not 'NAME: VALUE'"),
        (("-H", "X: a\nY: b"), "a line break within the method, the path or a header field"),
        (("--path", "/a\r\nHost: x"), "a line break"),
        (("--method",), "--method"),
    ],
)
def test_explain_says_what_is_wrong(
    config: str, arguments: tuple[str, ...], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert typed("explain", "-c", config, *arguments) == 2
    printed = capsys.readouterr()
    assert message in printed.err
    assert printed.out == ""


@pytest.mark.parametrize("command", [("explain",), ("ring", "--pool", "agents")])
def test_a_wrong_configuration_is_told_of(
    command: tuple[str, ...], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "wrong.yaml"
    file.write_text(FULL.replace("balance: ring", "balance: rong"))
    assert typed(*command, "-c", str(file)) == 2
    assert "pools.tenants.balance: found 'rong'; allowed: least_in_flight, " in capsys.readouterr().err
    assert typed(*command, "-c", str(tmp_path / "none.yaml")) == 2


# ---- a running proxy; the rest of this is in tests/process
@pytest.mark.parametrize("text", ["agents", "/b", "agents/", ""])
def test_drain_needs_a_pool_and_a_backend(text: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert typed("drain", text) == 2
    assert f"{text!r} is not POOL/BACKEND" in capsys.readouterr().err


@pytest.mark.parametrize("command", [("drain", "agents/b"), ("undrain", "agents/b"), ("explain",)])
def test_nobody_to_ask_is_exit_code_1(command: tuple[str, ...], capsys: pytest.CaptureFixture[str]) -> None:
    assert typed(*command, "--admin", "http://127.0.0.1:9") == 1  # a port where nobody listens
    printed = capsys.readouterr()
    assert printed.err.startswith("mcp-routing-proxy: http://127.0.0.1:9 cannot be reached: Connect call failed")
    assert printed.out == ""
