"""The official SDK's client creating tasks and polling each to its end: `python -m tests.interop.tasks_client --help`.

It gives a task up at the first error, since -32602 says that the task does not exist. Its last line is a JSON object
that counts what happened; `by:a` counts by the instance that did the work.
"""

import argparse
import asyncio
import json
import sys
from collections import Counter
from collections.abc import Sequence
from typing import Any, Literal

import mcp.types as types
from mcp import Client
from mcp.client import ClientExtension, ResultClaim
from mcp.client.extension import ClaimContext
from mcp.shared.exceptions import MCPError
from pydantic import ConfigDict, Field

from tests.interop.tasks_core import EXTENSION, VERSION, TaskParams

MAX_POLLS = 200


class GetTaskUnnamed(types.Request[TaskParams, Literal["tasks/get"]]):
    """tasks/get without Mcp-Name, as FastMCP's client sends it."""

    method: Literal["tasks/get"] = "tasks/get"
    params: TaskParams


class GetTask(GetTaskUnnamed):
    """tasks/get as the specification demands it."""

    name_param = "taskId"


class Created(types.Result):
    """What comes instead of a tool's result."""

    result_type: Literal["task"] = Field(alias="resultType")
    task_id: str = Field(alias="taskId")
    status: str


class State(types.Result):
    """The answer to tasks/get, as far as it is read here."""

    model_config = ConfigDict(extra="allow")
    task_id: str = Field(alias="taskId")
    status: str
    result: dict[str, Any] | None = None


class Tasks(ClientExtension):
    """Declares that tasks are taken."""

    identifier = EXTENSION

    def claims(self) -> Sequence[ResultClaim[Created]]:
        """Overrides: `resultType: "task"` is ours."""
        return [ResultClaim(result_type="task", model=Created, resolve=_resolve)]


async def _resolve(created: Created, context: ClaimContext) -> types.CallToolResult:
    raise RuntimeError("calls are made with allow_claimed, so nothing is left to resolve")


async def run_task(client: Client, label: str, options: argparse.Namespace, counts: Counter[str]) -> None:
    """Creates one task and polls it to its end, or to the first error."""
    arguments = {"seconds": options.seconds, "label": label}
    try:
        created = await client.session.call_tool("slow_compute", arguments, allow_claimed=True)
    except MCPError as error:
        counts["create_failed"] += 1
        counts[f"create_error:{error.error.code}"] += 1
        return
    if not isinstance(created, Created):
        counts["not_a_task"] += 1
        return
    counts["created"] += 1
    request_type = GetTaskUnnamed if options.no_mcp_name else GetTask
    request = request_type(params=TaskParams(taskId=created.task_id))
    for _ in range(MAX_POLLS):
        counts["polls"] += 1
        try:
            state = await client.session.send_request(request, State)
        except MCPError as error:
            counts["poll_errors"] += 1
            counts[f"poll_error:{error.error.code}"] += 1
            return
        if state.status in ("completed", "failed", "cancelled"):
            counts[state.status] += 1
            if state.result:
                counts["by:" + state.result["content"][0]["text"].rsplit(" ", 1)[-1]] += 1
            return
        await asyncio.sleep(options.poll)
    counts["never_ended"] += 1


async def run_all(options: argparse.Namespace) -> Counter[str]:
    """Runs all tasks and counts what happened to them."""
    counts = Counter[str]()
    gate = asyncio.Semaphore(options.conc)

    def connect() -> Client:
        return Client(options.url, extensions=[Tasks()], mode=VERSION)

    async def with_own_client(number: int) -> None:
        async with gate:
            try:
                async with connect() as client:
                    await run_task(client, str(number), options, counts)
            except Exception as error:  # noqa: BLE001 - one broken connection must not hide how the others fared
                counts[f"connection:{type(error).__name__}"] += 1

    async def with_shared_client(client: Client, number: int) -> None:
        async with gate:
            await run_task(client, str(number), options, counts)

    if options.fresh_conn:
        await asyncio.gather(*(with_own_client(number) for number in range(options.n)))
    else:
        async with connect() as client:
            await asyncio.gather(*(with_shared_client(client, number) for number in range(options.n)))
    return counts


def main() -> int:
    """Exit status 1: fewer tasks than asked for were completed."""
    parser = argparse.ArgumentParser(prog="python -m tests.interop.tasks_client")
    parser.add_argument("url")
    parser.add_argument("--n", type=int, default=30, help="tasks")
    parser.add_argument("--conc", type=int, default=5, help="tasks at a time")
    parser.add_argument("--seconds", type=float, default=0.6, help="what one task takes")
    parser.add_argument("--poll", type=float, default=0.1, help="seconds between two polls")
    parser.add_argument("--fresh-conn", action="store_true", help="a client, hence connections, for every task")
    parser.add_argument("--no-mcp-name", action="store_true", help="tasks/get without Mcp-Name")
    parser.add_argument("--min", type=float, default=0.0, help="the share of tasks that must be completed")
    options = parser.parse_args()
    counts = asyncio.run(run_all(options))
    rate = counts["completed"] / options.n
    sys.stdout.write(json.dumps({**counts, "success_rate": round(rate, 3)}) + "\n")
    return int(rate < options.min)


if __name__ == "__main__":
    sys.exit(main())
