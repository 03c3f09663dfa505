"""The commands of mcp-routing-proxy: `serve`, `check`, `demo`.

Exit codes: 0 done, or a clean drain; 1 cannot listen; 2 a wrong configuration or command line.
"""

import argparse
import asyncio
import gc
import logging
import os
import signal
import sys
from collections.abc import AsyncIterator, Coroutine, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import uvloop

from proxy.app import Proxy, proxy_version, serve
from proxy.config import ConfigError, describe, load, parse
from proxy.demo.run import run as run_demo
from proxy.routing.ring import Ring

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
    except OSError as error:
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
    serve_command.set_defaults(run=_serve)

    check_command = commands.add_parser("check", help="validate a configuration and print what it means")
    check_command.add_argument("file", type=Path, metavar="FILE")
    check_command.set_defaults(run=_check)

    demo_command = commands.add_parser("demo", help="three MCP servers, the proxy in front, and tasks through it")
    demo_command.set_defaults(run=_demo)
    return parser


def _serve(options: argparse.Namespace) -> int:
    config = load(options.config, os.environ)
    # What was made so far stays; young objects die by reference count, so few collections are needed.
    gc.collect()
    gc.freeze()
    gc.set_threshold(50_000, 20, 100)
    _run(serve(config))
    return 0


def _check(options: argparse.Namespace) -> int:
    print(describe(load(options.file, os.environ)), end="")
    return 0


def _demo(options: argparse.Namespace) -> int:
    _run(run_demo(_demo_proxy, _hash_owner, _until_stopped))
    return 0


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


async def _until_stopped() -> None:
    stop = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, stop.set)
    await stop.wait()


def _run(work: Coroutine[Any, Any, None]) -> None:
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(work)
