"""The commands of mcp-routing-proxy: `serve`, `check`, `schema`, `demo`, and those of proxy.inspection.

Exit codes: 0 done, or a clean drain; 1 cannot listen, or a running proxy does not do what it is asked; 2 a wrong
configuration or command line.
"""

import argparse
import asyncio
import logging
import os
import signal
import sys
from collections.abc import AsyncIterator, Coroutine, Sequence
from contextlib import asynccontextmanager, suppress
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

import uvloop

from proxy.app import Proxy
from proxy.config import ConfigError, describe, load, parse
from proxy.config.schema import schema_text
from proxy.config.values import MOST_WORKERS
from proxy.control.client import Unanswered
from proxy.demo.run import run as run_demo
from proxy.inspection import WrongUse, add_commands
from proxy.process import raise_limits, settle_memory, stand_in
from proxy.routing.ring import Ring
from proxy.serving import Source, serve
from proxy.version import proxy_version

T = TypeVar("T")
DEFAULT_CONFIG = Path("config/proxy.yaml")


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs a command and returns its exit code."""
    options = _parser().parse_args(arguments)
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(name)s: %(message)s")
    try:
        return int(options.run(options))
    except ConfigError as error:
        print(error, file=sys.stderr)
        return 2
    except WrongUse as error:
        print(f"mcp-routing-proxy: {error}", file=sys.stderr)
        return 2
    except (Unanswered, OSError) as error:
        print(f"mcp-routing-proxy: {error}", file=sys.stderr)
        return 1


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="mcp-routing-proxy", description="A header-aware routing reverse proxy for fleets of MCP servers."
    )
    parser.add_argument("--version", action="version", version=proxy_version())
    commands = parser.add_subparsers(required=True, metavar="COMMAND")

    serve_command = commands.add_parser("serve", help="run the proxy")
    serve_command.add_argument("-c", "--config", type=Path, default=DEFAULT_CONFIG, metavar="FILE")
    serve_command.add_argument(
        "--workers", type=_workers, metavar="N", help="processes that share the port, instead of the file's number"
    )
    serve_command.add_argument(
        "--watch", action="store_true", help="put the configuration in force whenever its files change"
    )
    serve_command.set_defaults(run=_serve)

    check_command = commands.add_parser("check", help="validate a configuration and print what it means")
    check_command.add_argument("file", type=Path, metavar="FILE")
    check_command.set_defaults(run=_check)

    schema_command = commands.add_parser("schema", help="print the JSON Schema of configurations, for editors")
    schema_command.set_defaults(run=_schema)

    add_commands(commands.add_parser, DEFAULT_CONFIG)

    demo_command = commands.add_parser("demo", help="three MCP servers, the proxy in front, and tasks through it")
    demo_command.set_defaults(run=_demo)
    return parser


def _serve(options: argparse.Namespace) -> int:
    raise_limits()
    settle_memory()
    successor = _run(serve(Source(options.config, os.environ, options.workers), watch=options.watch))
    return stand_in(successor.returncode) if successor is not None and os.getpid() == 1 else 0


def _workers(text: str) -> int:
    if not text.isascii() or not text.isdigit() or not 1 <= int(text) <= MOST_WORKERS:
        raise argparse.ArgumentTypeError(f"found {text!r}; allowed: an integer from 1 to {MOST_WORKERS}")
    return int(text)


def _check(options: argparse.Namespace) -> int:
    print(describe(load(options.file, os.environ)), end="")
    return 0


def _schema(options: argparse.Namespace) -> int:
    print(schema_text(), end="")
    return 0


def _demo(options: argparse.Namespace) -> int:
    _run(_demo_until_stopped())
    return 0


async def _demo_until_stopped() -> None:
    """Runs the demo; SIGTERM or SIGINT at any time ends it and all that it started."""
    demo = asyncio.current_task()
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, demo.cancel if demo is not None else lambda: None)
    with suppress(asyncio.CancelledError):
        # Flushed: what it does is read while it does it, through a pipe as well.
        await run_demo(_demo_proxy, _hash_owner, asyncio.Event().wait, partial(print, flush=True))


@asynccontextmanager
async def _demo_proxy(config_text: str) -> AsyncIterator[None]:
    proxy = Proxy(parse(config_text, "demo", os.environ))
    await proxy.start()
    try:
        yield
    finally:
        await proxy.drain()


def _hash_owner(task_id: str, backend_ids: Sequence[str]) -> str:
    return Ring(dict.fromkeys(backend_ids, 1)).first(task_id)


def _run(work: Coroutine[Any, Any, T]) -> T:
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        return runner.run(work)
