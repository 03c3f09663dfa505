"""The systemd units: what systemd itself says of them, and what they promise about the end and the configuration."""

import os
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from proxy.config.values import DEFAULT_DRAIN
from proxy.workers.succession import READY_LIMIT
from tests.deploy.manifests import SYSTEMD, seconds
from tests.process.harness import run

SERVICE = SYSTEMD / "mcp-routing-proxy.service"
SOCKET = SYSTEMD / "mcp-routing-proxy.socket"
ANALYZE = shutil.which("systemd-analyze")
DRAINS = """
import signal, sys
def drain(*_):
    sys.stdin.read()
    sys.exit()
signal.signal(signal.SIGTERM, drain)
print(flush=True)
while True:
    signal.pause()
"""
MOST_EXPOSED = 15  # tenths of systemd's scale from 0 to 10; a unit without any of this has 96

needs_systemd = pytest.mark.skipif(ANALYZE is None, reason="systemd-analyze is not installed: Debian's systemd has it")


def settings(file: Path) -> dict[str, list[str]]:
    """Each key's values, in order. Keys of these files are not the same in two sections."""
    found: dict[str, list[str]] = {}
    for line in file.read_text().splitlines():
        if line and line[0] not in "#[":
            name, _, value = line.partition("=")
            found.setdefault(name, []).append(value)
    return found


UNIT = settings(SERVICE)


def only(name: str) -> str:
    (value,) = UNIT[name]
    return value


def analyzed(*arguments: str) -> subprocess.CompletedProcess[str]:
    command = ["systemd-analyze", *arguments]
    return subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)


# ---- what systemd says
@pytest.fixture
def installed(tmp_path: Path) -> list[str]:
    """The units with a command that is there: where the proxy is installed is not to be asked of this machine."""
    program = only("ExecStart").split()[0]
    for unit in (SERVICE, SOCKET):
        (tmp_path / unit.name).write_text(unit.read_text().replace(program, "/bin/true"))
    return [str(tmp_path / unit.name) for unit in (SERVICE, SOCKET)]


@needs_systemd
def test_systemd_understands_the_units(installed: list[str]) -> None:
    verified = analyzed("verify", *installed)
    assert (verified.returncode, verified.stdout, verified.stderr) == (0, "", "")
    with Path(installed[0]).open("a") as unit:
        unit.write("[Service]\nProtectSystm=strict\n")
    assert "ProtectSystm" in analyzed("verify", *installed).stderr  # it would have said so


@needs_systemd
def test_the_service_can_do_little() -> None:
    judged = analyzed("security", "--offline=true", f"--threshold={MOST_EXPOSED}", str(SERVICE))
    assert judged.returncode == 0, judged.stdout + judged.stderr


# ---- its command
async def test_a_wrong_configuration_is_not_tried_again(tmp_path: Path) -> None:
    program, *arguments = only("ExecStart").split()
    assert program.endswith("/bin/mcp-routing-proxy")
    file = tmp_path / Path(arguments[-1]).name
    file.write_text("wrong: 1")
    ended = await run(*arguments[:-1], str(file))
    assert str(ended.code) == only("RestartPreventExitStatus")


def test_a_new_generation_may_tell_that_it_is_the_main_process() -> None:
    """It is not yet when it tells, and `main` would not hear it."""
    assert (only("Type"), only("NotifyAccess")) == ("notify", "all")
    assert seconds(only("TimeoutStartSec")) >= READY_LIMIT


def test_sockets_are_named_as_the_proxy_knows_them() -> None:
    unit = settings(SOCKET)
    assert unit["FileDescriptorName"] in (["listen"], ["admin"])
    assert unit["Service"] == [SERVICE.name]


# ---- its end
def test_there_is_time_to_drain() -> None:
    assert seconds(only("TimeoutStopSec")) >= DEFAULT_DRAIN + 10
    assert only("KillMode") == "mixed"  # SIGTERM to a worker would have it replaced


def stopping(environ: dict[str, str]) -> subprocess.Popen[str]:
    return subprocess.Popen(
        shlex.split(only("ExecStop")), env={"PATH": os.defpath, **environ}, stderr=subprocess.PIPE, text=True
    )


def test_stop_waits_for_the_end_of_a_process_that_is_no_child_of_systemd() -> None:
    """As the main process after SIGUSR2."""
    command = [sys.executable, "-c", DRAINS]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as drains:
        assert drains.stdin is not None and drains.stdout is not None
        drains.stdout.readline()
        with stopping({"MAINPID": str(drains.pid)}) as stop:
            with pytest.raises(subprocess.TimeoutExpired):
                stop.wait(0.5)
            assert drains.poll() is None
            drains.stdin.close()  # what was under way is done
            assert drains.wait(10) == 0
            assert stop.wait(10) == 0


def test_stop_has_nothing_to_do_where_the_main_process_has_ended() -> None:
    with stopping({}) as stop:
        assert stop.communicate(timeout=10)[1] == ""
        assert stop.returncode == 0
