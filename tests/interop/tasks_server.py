"""An MCP server made with the official SDK, for `fleet.task_servers`: `python -m tests.interop.tasks_server --help`.

It serves 2026-07-28 and the sessions of earlier versions at one URL, and says its port once that can be connected to.
"""

import argparse
import asyncio
import socket
import sys
from pathlib import Path
from typing import Annotated

import uvicorn
from mcp.server.mcpserver import Context, Elicit, MCPServer, Resolve
from pydantic import BaseModel

from tests.interop.task_store import TaskStore
from tests.interop.tasks_core import ID_STYLES, TaskExtension, computed


class Answer(BaseModel):
    """What a client answers to a question."""

    text: str


async def ask_first() -> Elicit[Answer]:
    """The first round."""
    return Elicit("First?", Answer)


async def ask_second(first: Annotated[Answer, Resolve(ask_first)]) -> Elicit[Answer]:
    """The second round, which depends on the first."""
    return Elicit(f"And behind {first.text}?", Answer)


STEP = 0.2  # seconds between two notifications of slow_stream


def make_server(instance: str, extension: TaskExtension) -> MCPServer:
    """The server with its tools. Whatever an instance did says so by its name."""
    server = MCPServer(f"tasks-{instance}", version="1.0", extensions=[extension], log_level="WARNING")

    @server.tool()
    def whoami() -> str:
        """The instance that served this call."""
        return instance

    @server.tool()
    def greet(name: str = "friend") -> str:
        """Never a task."""
        return f"Hello, {name}!"

    @server.tool()
    async def slow_stream(ctx: Context, seconds: float = 1) -> str:
        """Never a task; streams one progress notification per 0.2 s."""
        steps = int(seconds / STEP)
        for step in range(steps):
            await ctx.report_progress(step, steps)
            await asyncio.sleep(STEP)
        return f"streamed on {instance}"

    @server.tool()
    async def slow_compute(seconds: float = 1, label: str = "compute") -> str:
        """A task where the client takes one; otherwise sleeps and answers."""
        await asyncio.sleep(seconds)
        return computed(seconds, label, instance)

    @server.tool()
    async def introduce(
        first: Annotated[Answer, Resolve(ask_first)], second: Annotated[Answer, Resolve(ask_second)]
    ) -> str:
        """Asks back twice; what a client brings to the next round is sealed with a key of this process."""
        return f"{first.text} {second.text} on {instance}"

    return server


def main() -> None:
    """Serves until SIGTERM."""
    parser = argparse.ArgumentParser(prog="python -m tests.interop.tasks_server")
    parser.add_argument("--port", type=int, default=0, help="0: any free one")
    parser.add_argument("--instance", default="x", help="the name it goes by in answers")
    parser.add_argument("--id-style", default="uuid", choices=ID_STYLES, help="what its task ids look like")
    parser.add_argument("--sse-create", action="store_true", help="the task id arrives in an event of a stream")
    parser.add_argument("--json", action="store_true", help="plain JSON answers always")
    parser.add_argument("--lenient-name", action="store_true", help="tasks/* without Mcp-Name is tolerated")
    parser.add_argument("--store", type=Path, metavar="FILE", help="its tasks outlive it there, for its successor")
    parser.add_argument("--certificate", metavar="FILE", help="it speaks TLS, with this certificate and --key")
    parser.add_argument("--key", metavar="FILE")
    options = parser.parse_args()
    extension = TaskExtension(
        options.instance,
        id_style=options.id_style,
        sse_create=options.sse_create,
        lenient_name=options.lenient_name,
        store=None if options.store is None else TaskStore(options.store),
    )
    app = make_server(options.instance, extension).streamable_http_app(json_response=options.json)
    # One second at the end for open streams: without a limit the server would wait for as long as they last.
    secure = {} if options.certificate is None else {"ssl_certfile": options.certificate, "ssl_keyfile": options.key}
    server = uvicorn.Server(uvicorn.Config(app, log_level="warning", timeout_graceful_shutdown=1, **secure))
    with socket.create_server(("127.0.0.1", options.port)) as listener:
        sys.stdout.write(f"port {listener.getsockname()[1]}\n")
        sys.stdout.flush()
        server.run(sockets=[listener])


if __name__ == "__main__":
    main()
