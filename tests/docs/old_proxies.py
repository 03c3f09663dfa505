"""The proxies that docs/migration.md is about: how each checks its configuration, and how it runs with it here."""

import shutil
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from tests.docs.documents import ROOT, blocks

_PATH = ":/usr/sbin:/usr/local/sbin"
_DIRECTORIES = ("client_body", "proxy", "fastcgi", "uwsgi", "scgi")


@dataclass(frozen=True, slots=True)
class OldProxy:
    """One of them. Its samples are the blocks of `kind`: the fleet as it was, then what shares clients."""

    kind: str
    program: str | None
    whole: Callable[[str, Path], str]
    """A file from a sample; the folder is its own."""
    check: Callable[[Path], list[str]]
    """Arguments that check a file."""
    run: Callable[[Path], list[str]]
    """Arguments that run it in the foreground."""
    none: Mapping[str, str]
    """What of the second sample is replaced, and by what, so that no client is chosen."""
    every: Mapping[str, str]
    """The same, so that every client is."""

    @property
    def samples(self) -> list[str]:
        return [block.text for block in blocks(ROOT / "docs" / "migration.md") if block.kind == self.kind]


def placed(text: str, *, port: int, old: int, new: int) -> str:
    """A sample whose addresses are ports of this machine."""
    for written, meant in (
        ("listen 8080;", f"listen 127.0.0.1:{port};"),
        ("bind :8080", f"bind 127.0.0.1:{port}"),
        ("address: 0.0.0.0, port_value: 8080", f"address: 127.0.0.1, port_value: {port}"),
        ("10.0.0.3:8080", f"127.0.0.1:{new}"),
        ("address: 10.0.0.3, port_value: 8080", f"address: 127.0.0.1, port_value: {new}"),
        *((f"10.0.0.1{number}:8000", f"127.0.0.1:{old}") for number in (1, 2, 3)),
        *(
            (f"address: 10.0.0.1{number}, port_value: 8000", f"address: 127.0.0.1, port_value: {old}")
            for number in (1, 2, 3)
        ),
    ):
        text = text.replace(written, meant)
    return text


def _nginx_file(sample: str, folder: Path) -> str:
    paths = "\n".join(f"    {name}_temp_path {folder}/{name};" for name in _DIRECTORIES)
    head = f"pid {folder}/nginx.pid;\nerror_log stderr;\nevents {{}}\nhttp {{\n    access_log off;\n{paths}\n"
    return f"{head}{sample}}}\n"


NGINX = OldProxy(
    "nginx",
    shutil.which("nginx") or shutil.which("nginx", path=_PATH),
    _nginx_file,
    lambda file: ["-t", "-p", str(file.parent), "-e", "stderr", "-c", str(file)],
    lambda file: ["-p", str(file.parent), "-e", "stderr", "-g", "daemon off; master_process off;", "-c", str(file)],
    {"10% new;": "0.01% new;", "*   old;": "* old;"},
    {"10% new;": "99.99% new;"},
)
HAPROXY = OldProxy(
    "haproxy",
    shutil.which("haproxy") or shutil.which("haproxy", path=_PATH),
    lambda sample, folder: sample,
    lambda file: ["-c", "-f", str(file)],
    lambda file: ["-db", "-f", str(file)],
    {"mod(100) lt 10": "mod(100) lt 0", "option httpchk GET /health": ""},
    {"mod(100) lt 10": "mod(100) lt 100", "option httpchk GET /health": ""},
)
ENVOY = OldProxy(
    "yaml envoy",
    shutil.which("envoy"),
    lambda sample, folder: sample,
    lambda file: ["--mode", "validate", "-l", "error", "-c", str(file)],
    lambda file: ["-l", "error", "--concurrency", "1", "--disable-hot-restart", "-c", str(file)],
    {"{name: new, weight: 10}, {name: agents, weight: 90}": "{name: new, weight: 0}, {name: agents, weight: 100}"},
    {"{name: new, weight: 10}, {name: agents, weight: 90}": "{name: new, weight: 100}, {name: agents, weight: 0}"},
)
OLD_PROXIES = (NGINX, HAPROXY, ENVOY)
