"""The Dockerfile: what it copies is there and let in, what it installs is whole, and its health check tells.

That it builds can only be seen where images are built; docs/deployment.md says when and how that was tried.
"""

import json
import shutil
import subprocess
import sys
import tomllib
import zipfile
from fnmatch import fnmatch
from pathlib import Path

import pytest

from tests.deploy.manifests import COMPOSE, KUBERNETES, PROJECT, documents, resources
from tests.process.harness import config_text, proxy_process


def instructions() -> list[tuple[str, str]]:
    """Each instruction and its arguments, continued lines joined."""
    lines = [line for line in (PROJECT / "Dockerfile").read_text().splitlines() if not line.lstrip().startswith("#")]
    text = "\n".join(lines).replace("\\\n", "")
    return [(word, rest.strip()) for word, _, rest in (line.partition(" ") for line in text.splitlines() if line)]


FILE = instructions()
STAGES = [at for at, (word, _) in enumerate(FILE) if word == "FROM"]
FIRST, LAST = FILE[STAGES[0] : STAGES[-1]], FILE[STAGES[-1] :]


def only(word: str) -> str:
    (found,) = (rest for name, rest in LAST if name == word)
    return found


def copied() -> list[str]:
    """What comes from the project: the sources of each COPY of the first stage."""
    return [source for word, rest in FIRST if word == "COPY" for source in rest.split()[:-1]]


def let_in(path: str) -> bool:
    """As .dockerignore says; what comes last counts."""
    verdict = True
    for line in (PROJECT / ".dockerignore").read_text().splitlines():
        if line and not line.startswith("#") and fnmatch(path, line.lstrip("!")):
            verdict = line.startswith("!")
    return verdict


def test_there_are_two_stages_on_one_base() -> None:
    assert [rest.split()[0] for word, rest in FILE if word == "FROM"] == ["${BASE}", "${BASE}"]
    ((name, _, base),) = (rest.partition("=") for word, rest in FILE[: STAGES[0]] if word == "ARG")
    assert name == "BASE"
    tag = base.partition(":")[2]
    assert tag.count("-") == 2, f"{tag} leaves the Python or the Debian open"
    with (PROJECT / "pyproject.toml").open("rb") as file:
        classifiers = tomllib.load(file)["project"]["classifiers"]
    assert f"Programming Language :: Python :: {tag.partition('-')[0]}" in classifiers


@pytest.mark.parametrize("source", copied())
def test_what_is_copied_is_there_and_let_in(source: str) -> None:
    assert (PROJECT / source).exists()
    assert let_in(source)


@pytest.mark.parametrize("path", [".git", ".venv", ".env", "tests", "deploy", "requirements/dev.lock"])
def test_nothing_else_is_let_in(path: str) -> None:
    assert not let_in(path)


def test_every_install_checks_hashes_or_needs_no_index() -> None:
    for word, rest in FIRST:
        if word == "RUN":
            for command in rest.split("&&"):
                if " install " in command or " wheel " in command:
                    assert "--require-hashes" in command or "--no-deps" in command, command
    assert not any("pip" in rest for word, rest in LAST if word == "RUN")


def test_the_wheel_has_every_file_of_the_package(tmp_path: Path) -> None:
    """The dashboard's pages too. It is built from what the image is built from: without Git."""
    source = tmp_path / "source"
    source.mkdir()
    for name in copied():
        if name.startswith("requirements/"):
            continue
        if (PROJECT / name).is_dir():
            shutil.copytree(PROJECT / name, source / name, ignore=shutil.ignore_patterns("__pycache__"))
        else:
            shutil.copy(PROJECT / name, source / name)
    subprocess.run(
        [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(tmp_path / "dist")],
        cwd=source,
        check=True,
        capture_output=True,
        timeout=120,
    )
    (wheel,) = (tmp_path / "dist").glob("*.whl")
    with zipfile.ZipFile(wheel) as packed:
        names = {name for name in packed.namelist() if ".dist-info/" not in name}
    assert names == {str(path.relative_to(source)) for path in (source / "proxy").rglob("*") if path.is_file()}
    assert {"proxy/control/dashboard/index.html", "proxy/py.typed"} <= names


def test_it_runs_as_nobody_in_particular() -> None:
    """By number, and Debian has a user named `proxy`."""
    uid, _, gid = only("USER").partition(":")
    assert uid == gid and int(uid) >= 10_000
    (made,) = (rest for word, rest in LAST if word == "RUN")
    assert f"--uid {uid}" in made
    assert made.split()[-1] not in ("proxy", "daemon", "nobody", "www-data")
    pod = resources(KUBERNETES / "proxy")["Deployment", "mcp-routing-proxy"]["spec"]["template"]["spec"]
    assert pod["securityContext"]["runAsUser"] == pod["securityContext"]["runAsGroup"] == int(uid)


def test_its_command_is_what_manifests_replace() -> None:
    assert json.loads(only("ENTRYPOINT")) == ["mcp-routing-proxy"]
    command = json.loads(only("CMD"))
    (compose,) = documents(COMPOSE / "compose.yaml")
    pod = resources(KUBERNETES / "proxy")["Deployment", "mcp-routing-proxy"]["spec"]["template"]["spec"]
    for others in (compose["services"]["proxy-1"]["command"], pod["containers"][0]["args"]):
        assert [word for word in others if word != "--watch"] == command
    assert only("STOPSIGNAL") == "SIGTERM"


async def test_the_health_check_tells() -> None:
    python, *program = json.loads(only("HEALTHCHECK").partition(" CMD ")[2])
    assert python == "python"
    async with proxy_process(config_text(1)) as proxy:
        command = [sys.executable, *(word.replace("9901", str(proxy.admin_port)) for word in program)]
        assert command[-1] != program[-1]
        assert subprocess.run(command, capture_output=True, timeout=30, check=False).returncode == 0
    assert subprocess.run(command, capture_output=True, timeout=30, check=False).returncode != 0
