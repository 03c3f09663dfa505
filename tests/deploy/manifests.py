"""The files under deploy/, read as the tools that they are for read them."""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import yaml

from proxy.config import Config, parse

PROJECT = Path(__file__).parents[2]
KUBERNETES = PROJECT / "deploy" / "kubernetes"
COMPOSE = PROJECT / "deploy" / "compose"
SYSTEMD = PROJECT / "deploy" / "systemd"

Json = dict[str, Any]


def documents(file: Path) -> Iterator[Json]:
    """The YAML documents of a file."""
    with file.open() as text:
        yield from yaml.safe_load_all(text)


def resources(folder: Path) -> dict[tuple[str, str], Json]:
    """What the kustomization in a folder names, by kind and name."""
    (kustomization,) = documents(folder / "kustomization.yaml")
    found = [document for name in kustomization["resources"] for document in documents(folder / name)]
    return {(document["kind"], document["metadata"]["name"]): document for document in found}


def configuration(file: Path, environ: dict[str, str]) -> Config:
    """A file for the proxy, read by the proxy. Raises ConfigError."""
    return parse(file.read_text(), file.name, environ)


def seconds(text: str) -> float:
    """A duration as Compose and systemd write it, in one unit."""
    found = re.fullmatch(r"(\d+)(s|m|h)?", text)
    assert found is not None, text
    return int(found[1]) * {"s": 1, "m": 60, "h": 3600}[found[2] or "s"]
