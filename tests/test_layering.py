"""Imports point down: every module of proxy/ has a row, and imports only from rows below its own."""

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent / "proxy"

# Top to bottom. A name stands for a module, or for a package and all its modules. Neighbours do not import each other.
ROWS = [
    row.split()
    for row in (
        "__main__",
        "cli",
        "demo inspection",
        "serving",
        "workers.supervisor workers.worker app",
        "workers.picture workers.crew",
        "workers.hands workers.succession",
        "workers.sockets workers.channel workers.state workers.seats workers.telling",
        "control traffic version process watching",
        "parts membership",
        "wire.express",
        "wire.exchange",
        "wire.to_many wire.ending wire.tending",
        "wire.relay wire.listening wire.approach",
        "wire.attempts",
        "wire.surroundings",
        "wire.search",
        "wire.part wire.inquiry",
        "wire.probe wire.absence wire.outgoing wire.directory wire.courses",
        "wire.owners",
        "wire.learning wire.destination counts explaining discovery.following",
        "wire.client wire.connections wire.listener wire.handshakes wire.turns metrics access_log usage pins discovery",
        "pins.redis_writer",
        "pins.redis_link",
        "wire.conversation wire.backend",
        "wire.request_reader wire.response_reader",
        "wire.sinks",
        "background together wire.tls wire.line wire.closing",
        "config",
        "wire.forwarding wire.parsing",
        "wire.request_head wire.response_head wire.events wire.merging wire.framing wire.comments wire.quiet",
        "wire.request_frame",
        "wire.limits wire.likeness wire.patience records snapshot certificates pins.redis_cache discovery.damping",
        "pins.redis_scripts pins.redis_room pins.store",
        "routing.explain routing.telling",
        "routing.explanation routing.spread",
        "routing.pools routing.ring_report",
        "routing.fitness routing.queueing",
        "routing.balancing routing.ring routing.members routing.searches routing.conditions routing.table",
        "routing.selection",
        "routing.rounds routing.routes routing.ownership routing.retries routing.admission",
        "routing.headers routing.backends routing.health routing.outliers",
        "routing.errors",
    )
]
HEIGHT = {name: len(ROWS) - index for index, row in enumerate(ROWS) for name in row}
# Packages that only hold modules of several rows; their __init__.py imports nothing of the project.
FOLDERS = {"", "wire", "routing", "workers"}
# In these packages the modules are neighbours, and each may import the one that holds the Protocol.
SEAMS = {"pins": "pins.store", "discovery": "discovery.source"}
SOLE_IMPORTER = {
    "yaml": "config",
    "prometheus_client": "metrics",
    "uhashring": "routing.ring",
    "redis": "pins.redis_link",
    "dns": "discovery",
}
IMPURE = {"asyncio", "logging", "random", "socket", "time"}
PURE = (
    "routing.",
    "pins.redis_cache",
    "pins.redis_room",
    "pins.redis_scripts",
    "discovery.damping",
    "workers.seats",
    "workers.state",
    "wire.request_frame",
    "wire.request_head",
    "wire.response_head",
    "wire.request_reader",
    "wire.response_reader",
    "wire.parsing",
    "wire.sinks",
    "wire.forwarding",
    "wire.events",
    "wire.merging",
    "wire.framing",
    "wire.comments",
    "wire.quiet",
    "wire.likeness",
    "wire.limits",
    "wire.patience",
    "snapshot",
)


def unit_of(module: str) -> str | None:
    """The name in ROWS that stands for this module."""
    parts = module.split(".")
    return next((name for end in range(len(parts), 0, -1) if (name := ".".join(parts[:end])) in HEIGHT), None)


def may_import(module: str, target: str) -> bool:
    unit, below = unit_of(module), unit_of(target)
    if unit is None or below is None:
        return False
    if unit == below:
        return module == target or unit not in SEAMS or target == SEAMS[unit]
    return HEIGHT[below] < HEIGHT[unit]


def imported(node: ast.AST, modules: set[str]) -> Iterator[str]:
    """Absolute names of what an import statement loads; `from package import x` is package.x where x is a module."""
    if isinstance(node, ast.Import):
        yield from (alias.name for alias in node.names)
    elif isinstance(node, ast.ImportFrom):
        source = "." * node.level + (node.module or "")
        for alias in node.names:
            submodule = f"{source}.{alias.name}"
            yield submodule if submodule.removeprefix("proxy.") in modules else source


def violations(module: str, source: str, modules: set[str]) -> Iterator[str]:
    """What this source text, as the named module of proxy/, does against the layers. `modules`: all that exist."""
    tree = ast.parse(source)
    if module not in FOLDERS and unit_of(module) is None:
        yield "no row names it"
    for node in ast.walk(tree):
        for name in imported(node, modules):
            top, _, target = name.partition(".")
            if not top:
                yield f"imports {name} relatively"
            elif top == "proxy" and not may_import(module, target):
                yield f"imports {name}"
            elif top in SOLE_IMPORTER and unit_of(module) != SOLE_IMPORTER[top]:
                yield f"imports {name}, which is for {SOLE_IMPORTER[top]} alone"
            elif top in IMPURE and module.startswith(PURE):
                yield f"imports {name}, and is pure"
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            if any(isinstance(inner, ast.Import | ast.ImportFrom) for inner in ast.walk(node)):
                yield f"imports inside {node.name}"
        elif isinstance(node, ast.Name | ast.Attribute | ast.alias):
            match node:
                case ast.Name(id=word) | ast.Attribute(attr=word) | ast.alias(name=word):
                    if word == "TYPE_CHECKING":
                        yield "uses TYPE_CHECKING"
                    elif word in ("create_task", "ensure_future") and unit_of(module) != "background":
                        yield f"uses {word}, which is for background alone"


def module_name(path: Path) -> str:
    parts = path.relative_to(ROOT).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


SOURCES = {module_name(path): path.read_text(encoding="utf-8") for path in sorted(ROOT.rglob("*.py"))}


@pytest.mark.parametrize("module", SOURCES, ids=lambda module: module or "proxy")
def test_module_keeps_to_its_layer(module: str) -> None:
    assert list(violations(module, SOURCES[module], set(SOURCES))) == []


MADE_UP = set(HEIGHT) | FOLDERS | {"pins.store", "pins.memory", "pins.redis", "discovery.source", "discovery.dns"}


@pytest.mark.parametrize(
    ("module", "source"),
    [
        ("cli", "import proxy.app\nfrom proxy import config\nfrom proxy.routing import errors"),
        ("demo.fleet", "from proxy.demo.servers import start\nfrom proxy.app import run"),
        ("control.admin", "from proxy.control.prober import Prober\nfrom proxy.metrics import Metrics\nimport aiohttp"),
        ("wire.request_head", "from proxy.routing.headers import x\nfrom proxy.records import RequestRecord"),
        ("pins.memory", "from proxy.pins.store import PinStore\nfrom proxy.pins import store\nimport time"),
        ("discovery.dns", "from proxy.discovery.source import DiscoverySource\nfrom proxy.config import Config"),
        ("config", "import yaml"),
        ("routing.ring", "from uhashring import HashRing"),
        ("background", "import asyncio\nasyncio.get_running_loop().create_task(work())"),
        ("routing", '"""Text only."""'),
    ],
)
def test_allowed(module: str, source: str) -> None:
    assert list(violations(module, source, MADE_UP)) == []


@pytest.mark.parametrize(
    ("module", "source", "violation"),
    [
        ("config", "from proxy.app import run", "imports proxy.app"),
        ("config", "import proxy.app", "imports proxy.app"),
        ("config", "from proxy import app", "imports proxy.app"),
        ("app", "from proxy.workers import supervisor", "imports proxy.workers.supervisor"),
        ("wire.client", "from proxy.wire import connections", "imports proxy.wire.connections"),
        ("routing.ring", "from proxy.routing.balancing import RoundRobin", "imports proxy.routing.balancing"),
        ("routing.errors", "from proxy.wire.request_head import render", "imports proxy.wire.request_head"),
        ("pins.memory", "from proxy.pins.redis import connect", "imports proxy.pins.redis"),
        ("pins.store", "from proxy.pins import memory", "imports proxy.pins.memory"),
        ("pins", "from proxy.pins.memory import MemoryPins", "imports proxy.pins.memory"),
        ("routing", "from proxy.routing.pools import Pool", "imports proxy.routing.pools"),
        ("app", "from proxy.routing import Pool", "imports proxy.routing"),
        ("app", "from .config import load", "imports .config relatively"),
        ("app", "from . import config", "imports . relatively"),
        ("helpers", "x = 1", "no row names it"),
        ("wire.helpers", "x = 1", "no row names it"),
        ("app", "from typing import TYPE_CHECKING", "uses TYPE_CHECKING"),
        ("app", "import typing\nif typing.TYPE_CHECKING: ...", "uses TYPE_CHECKING"),
        ("app", "def run():\n    import proxy.config", "imports inside run"),
        ("app", "async def run():\n    if True:\n        from json import loads", "imports inside run"),
        ("app", "import yaml", "imports yaml, which is for config alone"),
        ("access_log", "import prometheus_client", "imports prometheus_client, which is for metrics alone"),
        ("routing.pools", "import uhashring.ring", "imports uhashring.ring, which is for routing.ring alone"),
        ("app", "loop.create_task(work())", "uses create_task, which is for background alone"),
        ("app", "from asyncio import create_task", "uses create_task, which is for background alone"),
        ("app", "asyncio.ensure_future(work())", "uses ensure_future, which is for background alone"),
        ("routing.retries", "from random import random", "imports random, and is pure"),
        ("wire.request_head", "import asyncio.events", "imports asyncio.events, and is pure"),
    ],
)
def test_violation_is_found(module: str, source: str, violation: str) -> None:
    assert list(violations(module, source, MADE_UP)) == [violation]
