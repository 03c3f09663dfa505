"""The commands that ask: `explain` and `ring` of a configuration; `explain`, `drain`, `undrain` of a running proxy."""

import argparse
import asyncio
import json
import os
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from proxy.app import Proxy
from proxy.config import Log, load
from proxy.config.problems import nearest
from proxy.control.client import DEFAULT_ADMIN, Unanswered, backend_path, post, standing_text
from proxy.explaining import Question
from proxy.routing.ring_report import DEFAULT_KEYS, MOST_KEYS, WrongChange, report_text, ring_report
from proxy.routing.telling import as_text, as_values

TOKEN_VARIABLE = "MCP_ROUTING_PROXY_TOKEN"  # noqa: S105 - the name of the variable that holds it
_DISCOVERED = "only a running proxy knows the members of pools that discover them (--admin asks it):"
_OFFLINE = "offline: nothing is in flight, no pins are known, and no backend has asked back"

AddCommand = Callable[..., argparse.ArgumentParser]
"""`add_parser` of argparse's subparsers, which have no type of their own."""


class WrongUse(Exception):
    """A command line that cannot be carried out; the text says why."""


def add_commands(add: AddCommand, default_config: Path) -> None:
    """Adds the commands. Each sets `run`, which returns the exit code and raises ConfigError, WrongUse, Unanswered."""
    explain = add("explain", help="where a request would go, and why")
    _add_config(explain, default_config)
    explain.add_argument("--method", default="POST", metavar="VERB", help="the HTTP method (%(default)s)")
    explain.add_argument("--path", default="/mcp", metavar="PATH", help="path and query (%(default)s)")
    explain.add_argument("-H", "--header", action="append", default=[], type=_header, metavar="'NAME: VALUE'")
    explain.add_argument("--client", default="", metavar="ADDRESS", help="the client's address, with --admin")
    explain.add_argument("--json", action="store_true", help="for programs")
    _add_admin(explain, None)
    explain.set_defaults(run=_explain)

    ring = add("ring", help="how a pool's ring spreads keys, and what a change would move")
    _add_config(ring, default_config)
    ring.add_argument("--pool", required=True, metavar="POOL")
    ring.add_argument("--add", action="append", default=[], metavar="ID", help="of weight 1; may be repeated")
    ring.add_argument("--remove", action="append", default=[], metavar="ID", help="may be repeated")
    ring.add_argument("--keys", type=_keys, default=DEFAULT_KEYS, metavar="N", help="sample keys (%(default)s)")
    ring.set_defaults(run=_ring)

    for action, text in (("drain", "take a backend out of new work"), ("undrain", "give a backend new work again")):
        command = add(action, help=f"{text}, and tell what it still holds")
        command.add_argument("backend", type=_pool_and_backend, metavar="POOL/BACKEND")
        _add_admin(command, DEFAULT_ADMIN)
        command.set_defaults(run=_set_draining, action=action)


def _add_config(command: argparse.ArgumentParser, default: Path) -> None:
    command.add_argument("-c", "--config", type=Path, default=default, metavar="FILE", help="%(default)s")


def _add_admin(command: argparse.ArgumentParser, default: str | None) -> None:
    which = "of a running proxy, which is asked instead" if default is None else f"({default})"
    command.add_argument("--admin", default=default, metavar="URL", help=f"the admin interface {which}")
    command.add_argument("--token", metavar="TOKEN", help=f"its token; better in the environment, as {TOKEN_VARIABLE}")


# ---- what stands on the command line
def _header(text: str) -> tuple[str, str]:
    name, colon, value = text.partition(":")
    if not colon:
        raise argparse.ArgumentTypeError(f"{text!r} is not 'NAME: VALUE'")
    return name, value.strip(" \t")


def _keys(text: str) -> int:
    if not text.isdecimal() or not 1 <= int(text) <= MOST_KEYS:
        raise argparse.ArgumentTypeError(f"{text!r} is not a number from 1 to {MOST_KEYS}")
    return int(text)


def _pool_and_backend(text: str) -> tuple[str, str]:
    pool, _, backend = text.partition("/")
    if not pool or not backend:
        raise argparse.ArgumentTypeError(f"{text!r} is not POOL/BACKEND")
    return pool, backend


def _token(options: argparse.Namespace) -> str | None:
    return options.token or os.environ.get(TOKEN_VARIABLE) or None


# ---- the commands
def _explain(options: argparse.Namespace) -> int:
    try:
        question = Question(options.method, options.path, tuple(options.header), options.client)
    except ValueError as error:
        raise WrongUse(str(error)) from None
    if options.admin is None:
        _print(_explained_offline(question, options))
        return 0
    asked = {"method": question.verb, "path": question.target, "headers": question.fields, "client": question.client}
    accept = "application/json" if options.json else "text/plain"
    _print(asyncio.run(post(options.admin, "/api/explain", asked, token=_token(options), accept=accept)))
    return 0


def _explained_offline(question: Question, options: argparse.Namespace) -> str:
    """As a proxy with this configuration would answer that has just started."""
    config = replace(load(options.config, os.environ), log=Log(access=False))
    explanation = asyncio.run(Proxy(config).explain(question))
    discovering = [pool.name for pool in config.pools.values() if pool.discover is not None]
    unknown = (f"{_DISCOVERED} {', '.join(discovering)}",) if discovering else ()
    explanation = replace(explanation, notes=(*explanation.notes, *unknown, _OFFLINE))
    return json.dumps(as_values(explanation)) if options.json else as_text(explanation)


def _ring(options: argparse.Namespace) -> int:
    pools = load(options.config, os.environ).pools
    pool = pools.get(options.pool)
    if pool is None:
        near = nearest(options.pool, pools)
        hint = f"; did you mean {near!r}?" if near else ""
        raise WrongUse(f"no pool {options.pool!r}: there is {', '.join(pools)}{hint}")
    if pool.discover is not None:
        raise WrongUse(f"pool {pool.name}: its members are discovered, and only a running proxy knows them")
    weights = {backend.id: backend.weight for backend in pool.backends}
    try:
        report = ring_report(weights, add=options.add, remove=options.remove, keys=options.keys)
    except WrongChange as error:
        raise WrongUse(f"pool {pool.name}: {error}") from None
    _print(report_text(pool.name, report))
    return 0


def _set_draining(options: argparse.Namespace) -> int:
    pool, backend = options.backend
    path = backend_path(pool, backend, options.action)
    answer = asyncio.run(post(options.admin, path, {}, token=_token(options), accept="application/json"))
    try:
        text = standing_text(json.loads(answer))
    except (ValueError, KeyError, TypeError):
        raise Unanswered(f"{options.admin} does not answer as an admin interface does") from None
    _print(text)
    return 0


def _print(text: str) -> None:
    """Prints the text, whatever characters the terminal knows."""
    encoding = sys.stdout.encoding or "utf-8"
    sys.stdout.write(text.rstrip("\n").encode(encoding, "backslashreplace").decode(encoding) + "\n")
