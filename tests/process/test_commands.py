"""The commands as a shell sees them: what they print, where, and the code they exit with."""

import re
import signal
import socket
import sys
from pathlib import Path

import pytest

from tests.process.harness import PROXY, config_text, proxy_process, run, serving, started
from tests.wire.harness import backend, call, client

SCRIPT = Path(sys.executable).with_name("mcp-routing-proxy")
UNREACHED = 9  # a port; nothing here connects to this backend


def a_free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as probe:
        return int(probe.getsockname()[1])


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
async def test_serve_ends_with_0_when_it_is_told_to(number: signal.Signals) -> None:
    async with backend() as server, proxy_process(config_text(server.port)) as proxy:
        async with client(proxy.port) as caller:
            assert (await caller.ask(call())).status == 200
        proxy.command.signal(number)
        assert await proxy.command.ended() == 0
        assert proxy.command.output == ""


async def test_serve_reads_config_proxy_yaml_by_default(tmp_path: Path) -> None:
    missing = await run("serve", folder=tmp_path)
    assert (missing.code, missing.output) == (2, "")
    assert missing.complaints == "config/proxy.yaml: cannot be read: No such file or directory\n"

    (tmp_path / "config").mkdir()
    async with backend() as server:
        (tmp_path / "config/proxy.yaml").write_text(config_text(server.port))
        with started("serve", folder=tmp_path) as command:
            proxy = await serving(command)
            async with client(proxy.port) as caller:
                assert (await caller.ask(call())).status == 200
            command.terminate()
            assert await command.ended() == 0


async def test_serve_tells_every_mistake_and_does_not_listen(tmp_path: Path) -> None:
    port = a_free_port()
    file = tmp_path / "wrong.yaml"
    file.write_text(
        f"""\
listen: 127.0.0.1:{port}
admin: 127.0.0.1:0
pools:
  agents:
    backends: ['http://127.0.0.1:9/mcp']
    balans: ring
routes:
  - {{name: rest, pool: agent}}
drain: soon
"""
    )
    ended = await run("serve", "-c", str(file))
    assert (ended.code, ended.output) == (2, "")
    lines = ended.complaints.splitlines()
    assert [line.split(": ")[:2] for line in lines] == [
        [f"{file}:6", "pools.agents.balans"],
        [f"{file}:8", "routes[0].pool"],
        [f"{file}:9", "drain"],
    ]
    assert (await run("check", str(file))).complaints == ended.complaints
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection(("127.0.0.1", port))


@pytest.mark.parametrize("key", ["listen", "admin"])
async def test_serve_ends_with_1_and_names_the_port_that_is_taken(key: str, tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        file = tmp_path / "proxy.yaml"
        file.write_text(config_text(UNREACHED, **{key: f"127.0.0.1:{port}"}))
        ended = await run("serve", "-c", str(file))
    assert (ended.code, ended.output) == (1, "")
    assert re.fullmatch(r"mcp-routing-proxy: .*\n", ended.complaints)
    assert "address already in use" in ended.complaints.lower()
    assert "127.0.0.1" in ended.complaints
    assert str(port) in ended.complaints


async def test_check_prints_the_routing_table_or_the_mistakes(tmp_path: Path) -> None:
    file = tmp_path / "proxy.yaml"
    routes = [{"name": "gpu", "match": {"name": "render_*"}, "pool": "agents"}, {"name": "rest", "pool": "agents"}]
    file.write_text(config_text(UNREACHED, routes=routes))
    good = await run("check", str(file))
    assert (good.code, good.complaints) == (0, "")
    table = [line.split(maxsplit=3) for line in good.output.splitlines() if line.startswith("# ")]
    assert table[2:] == [["#", "gpu", "agents", 'path /mcp, name "render_*"'], ["#", "rest", "agents", "path /mcp"]]
    assert "connect: 2s" in good.output  # a default, filled in

    file.write_text(config_text(UNREACHED, routes=[], drain="soon"))
    wrong = await run("check", str(file))
    assert (wrong.code, wrong.output) == (2, "")
    assert [line.split(": ")[1] for line in wrong.complaints.splitlines()] == ["routes", "drain"]


@pytest.mark.parametrize("arguments", [["frobnicate"], [], ["serve", "--no-such-flag"], ["check"]])
async def test_a_wrong_command_line_ends_with_2(arguments: list[str]) -> None:
    ended = await run(*arguments)
    assert (ended.code, ended.output) == (2, "")
    assert ended.complaints.startswith("usage: mcp-routing-proxy ")


@pytest.mark.skipif(not SCRIPT.exists(), reason="the project is not installed, so there is no console script")
@pytest.mark.parametrize("arguments", [["--version"], ["check", "config/proxy.yaml"], ["frobnicate"]])
async def test_the_console_script_and_the_module_are_one_command(arguments: list[str]) -> None:
    assert await run(*arguments, program=[str(SCRIPT)]) == await run(*arguments, program=PROXY)
