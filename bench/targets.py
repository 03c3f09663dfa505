"""What is measured: proxies started here, and proxies that are running already."""

import os
import re
import shutil
import socket
import subprocess
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from bench.cpu import descendants
from bench.processes import free_ports, logging_to
from bench.recipes import HOST, RECIPES, Certificate, Place

START_SECONDS = 10.0
POLL_SECONDS = 0.02
OUTPUT_CHARACTERS = 2000
# Where distributions put servers, which is not on everybody's PATH.
SEARCH_PATH = os.pathsep.join((os.environ.get("PATH", os.defpath), "/usr/sbin", "/usr/local/sbin"))


class StartError(Exception):
    """A process that cannot be started or does not listen; the message holds what it printed."""


@dataclass(frozen=True, slots=True)
class Target:
    """One proxy to measure; ``pid`` and its descendants are its processes."""

    name: str
    host: str
    port: int
    pid: int
    # True where the process itself only supervises, and its descendants do the work.
    children_only: bool = False
    log: Path | None = None

    def pids(self) -> tuple[int, ...]:
        """The processes whose CPU time counts, at this moment."""
        children = descendants(self.pid)
        return children if self.children_only else (self.pid, *children)

    def last_output(self) -> str:
        """The end of what it has printed, to explain a failure; empty for a target started elsewhere."""
        return "" if self.log is None else self.log.read_text(errors="replace")[-OUTPUT_CHARACTERS:].rstrip()


def external(text: str) -> Target:
    """Reads ``name=host:port:pid``, a target that somebody else has started. Raises ValueError."""
    parts = re.fullmatch(r"([^=]+)=(.+):(\d+):(\d+)", text, re.ASCII)
    if parts is None:
        raise ValueError(f"{text!r} is not name=host:port:pid")
    name, host, port, pid = parts.groups()
    return Target(name, host, int(port), int(pid))


def installed(name: str) -> str | None:
    """The path of the program that this target needs; None if it is not installed."""
    return shutil.which(RECIPES[name].program, path=SEARCH_PATH)


@dataclass(frozen=True, slots=True)
class Variant:
    """One of the known proxies, as it is to be started; ``name`` tells it from others of its ``kind``."""

    kind: str
    name: str = ""
    certificate: Certificate | None = None
    clients: int = 2000
    workers: int = 1
    routes: int = 1
    # Its program, if that is not looked for where programs are.
    program: str | None = None


@contextmanager
def started(what: str | Variant, backend_ports: Sequence[int], directory: Path) -> Iterator[Target]:
    """Runs one of the known proxies, ready to be used, while the context is open. Raises StartError."""
    variant = Variant(what) if isinstance(what, str) else what
    recipe = RECIPES[variant.kind]
    program = variant.program or installed(variant.kind)
    if program is None:
        raise StartError(f"{variant.kind}: {recipe.program} is not installed")
    port, admin_port = free_ports(2)
    directory.mkdir()
    config = directory / recipe.config_name
    place = Place(
        port,
        admin_port,
        tuple(backend_ports),
        directory,
        certificate=variant.certificate,
        clients=variant.clients,
        workers=variant.workers,
        routes=variant.routes,
    )
    config.write_text(recipe.config(place))
    log = directory / "output.log"
    with logging_to(log, [program, *recipe.arguments(config)]) as process:
        target = Target(variant.name or variant.kind, HOST, port, process.pid, recipe.children_only, log)
        _wait_until_ready(target, process)
        yield target


def _wait_until_ready(target: Target, process: subprocess.Popen[str]) -> None:
    deadline = time.monotonic() + START_SECONDS
    while not (_accepts(target) and target.pids()):
        if process.poll() is not None:
            raise StartError(f"{target.name} ended with {process.returncode}\n{target.last_output()}")
        if time.monotonic() > deadline:
            raise StartError(f"{target.name} does not listen after {START_SECONDS:g} s\n{target.last_output()}")
        time.sleep(POLL_SECONDS)


def _accepts(target: Target) -> bool:
    try:
        with socket.create_connection((target.host, target.port), timeout=1):
            return True
    except OSError:
        return False
