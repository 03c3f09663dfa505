"""Under a service manager: its sockets, what it is told, and what is owed to it as the first process of a container."""

import asyncio
import os
import re
import signal
import socket
import subprocess
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from tests.process.harness import PROXY, ProxyProcess, children_of, config_text, serving, started
from tests.process.lives import Life, answered, generations_under, life
from tests.wire.harness import backend, call, closed_port

NAMESPACE = ("unshare", "--pid", "--fork", "--mount-proc", "--kill-child")
LAUNCHER = """
import os, socket, sys
addresses, names, command = sys.argv[1].split(), sys.argv[2], sys.argv[3:]
socks = []
for address in addresses:
    host, port = address.rsplit(":", 1)
    socks.append(socket.create_server((host, int(port))))
for number, sock in enumerate(socks, 3):
    if sock.fileno() != number:
        os.dup2(sock.fileno(), number)
    os.set_inheritable(number, True)
os.environ |= {"LISTEN_PID": str(os.getpid()), "LISTEN_FDS": str(len(socks)), "LISTEN_FDNAMES": names}
os.execv(command[0], command)
"""


@asynccontextmanager
async def launched(addresses: str, names: str, *arguments: str) -> AsyncIterator[ProxyProcess]:
    """A proxy that is given sockets on these addresses, as systemd would (sd_listen_fds(3))."""
    program = (sys.executable, "-c", LAUNCHER, addresses, names, *PROXY)
    with started("serve", *arguments, program=program) as command:
        yield await serving(command)
        command.terminate()
        assert await command.ended() == 0
        assert "Traceback" not in command.complaints


@pytest.mark.parametrize("workers", [1, 2])
@pytest.mark.parametrize("names", ["", "unknown:unknown", "listen:admin"])
async def test_sockets_of_a_service_manager_are_listened_on(workers: int, names: str, tmp_path: Path) -> None:
    """With two workers they share the one socket."""
    port, admin = closed_port(), closed_port()
    file = tmp_path / "proxy.yaml"
    async with backend() as server:
        addresses = f"127.0.0.1:{port} 127.0.0.1:{admin}"
        text = {"listen": f"127.0.0.1:{port}", "admin": f"127.0.0.1:{admin}"}
        if names == "listen:admin":  # a name says it, whatever the addresses
            text = {"listen": "127.0.0.1:1", "admin": "127.0.0.1:2"}
        file.write_text(config_text(server.port, workers=workers, **text))
        async with launched(addresses, names, "-c", str(file)) as proxy:
            assert (proxy.port, proxy.admin_port) == (port, admin)
            for _ in range(20):
                assert await answered(port)
            if workers > 1:
                one = Life(proxy.command, port, admin, file)
                for pid in one.workers:
                    async with one.client_of(pid) as caller:
                        assert (await caller.ask(call())).status == 200
                os.kill(one.workers[0], signal.SIGKILL)
                for _ in range(20):
                    assert await answered(port)


async def test_a_socket_that_nothing_is_to_listen_on_is_an_error(tmp_path: Path) -> None:
    port = closed_port()
    file = tmp_path / "proxy.yaml"
    file.write_text(config_text(1, listen="127.0.0.1:1", admin="127.0.0.1:2"))
    program = (sys.executable, "-c", LAUNCHER, f"127.0.0.1:{port}", "web.socket", *PROXY)
    with started("serve", "-c", str(file), program=program) as command:
        assert await command.ended() == 1
        assert re.fullmatch(
            rf"mcp-routing-proxy: LISTEN_FDS hands over 127\.0\.0\.1:{port}, which is neither `listen` .*\n",
            command.complaints,
        )


async def test_a_service_manager_is_told_who_serves(tmp_path: Path) -> None:
    address = str(tmp_path / "notify")
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as told:
        told.bind(address)
        told.settimeout(5)
        text = config_text(1, workers=2, drain="1s")
        async with life(text, environ={"NOTIFY_SOCKET": address}) as one:
            assert told.recv(1000).decode().splitlines() == [f"MAINPID={one.pid}", "READY=1"]
            before = await one.renew()
            assert told.recv(1000).decode().splitlines() == [f"MAINPID={one.pid}", "READY=1"]
            assert one.pid != before
            await one.gone(before)
            os.kill(one.pid, signal.SIGTERM)
            await one.gone(one.pid)
            assert told.recv(1000) == b"STOPPING=1"
            told.setblocking(False)
            with pytest.raises(BlockingIOError):
                told.recv(1000)


# ---- process 1
def may_unshare() -> bool:
    try:
        return subprocess.run([*NAMESPACE, "true"], capture_output=True, timeout=10, check=False).returncode == 0
    except OSError:
        return False


@pytest.mark.skipif(not may_unshare(), reason="this user may not make a process namespace")
@pytest.mark.parametrize("workers", [1, 2])
async def test_the_first_process_of_a_container_outlives_its_generations(workers: int, tmp_path: Path) -> None:
    file = tmp_path / "proxy.yaml"
    async with backend() as server:
        file.write_text(config_text(server.port, workers=workers, drain="1s"))
        with started("serve", "-c", str(file), program=(*NAMESPACE, *PROXY)) as command:
            proxy = await serving(command)
            (first,) = children_of(command.pid)
            one = Life(command, proxy.port, proxy.admin_port, file)
            one.pid = first
            for times in (1, 2):  # the second is asked of process 1 as well
                os.kill(first, signal.SIGUSR2)
                await one.until_said("serving on", times + 1)
                await one.until_said("draining, at most", times)
                # Only the process that stands in and the generation that serves are left.
                await one.until(
                    lambda: [generations_under(pid) for pid in generations_under(first)] == [[]],
                    "the generation before is gone",
                )
                assert await answered(one.port)
            os.kill(first, signal.SIGHUP)
            await one.until_said("the new configuration is in force")
            os.kill(first, signal.SIGTERM)
            assert await command.ended() == 0
            assert "Traceback" not in command.complaints
            with pytest.raises(ConnectionRefusedError):
                await asyncio.open_connection("127.0.0.1", one.port)


@pytest.mark.skipif(not may_unshare(), reason="this user may not make a process namespace")
async def test_a_container_whose_last_generation_is_killed_ends_as_killed(tmp_path: Path) -> None:
    file = tmp_path / "proxy.yaml"
    async with backend() as server:
        file.write_text(config_text(server.port, workers=2, drain="1s"))
        with started("serve", "-c", str(file), program=(*NAMESPACE, *PROXY)) as command:
            await serving(command)
            (first,) = children_of(command.pid)
            os.kill(first, signal.SIGUSR2)
            await command.wrote(r"draining, at most")
            (second,) = generations_under(first)
            os.kill(second, signal.SIGKILL)
            assert await command.ended() == 128 + signal.SIGKILL
