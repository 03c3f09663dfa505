"""The tasks extension (SEP-2663) on the official SDK, with tasks in the memory of one process.

Only the process that made a task knows it: a poll that reaches another one gets -32602. That is what these servers are
for. `TaskExtension` is handed to `MCPServer(extensions=[...])`.
"""

import asyncio
import secrets
import uuid
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from typing import Any

import mcp.types as types
from mcp.server.context import CallNext, HandlerResult, ServerRequestContext
from mcp.server.extension import Extension, MethodBinding
from mcp.server.mcpserver import require_client_extension
from mcp.shared.exceptions import MCPError
from mcp.shared.inbound import decode_header_value
from pydantic import Field

EXTENSION = "io.modelcontextprotocol/tasks"
VERSION = "2026-07-28"
TTL_MS = 600_000
POLL_INTERVAL_MS = 200

Context = ServerRequestContext[Any, Any]
Json = dict[str, Any]

ID_STYLES: dict[str, Callable[[str, str], str]] = {  # (instance, uuid) -> task id
    "uuid": lambda instance, unique: unique,
    "hex": lambda instance, unique: unique.replace("-", ""),
    "token": lambda instance, unique: secrets.token_urlsafe(32),
    "prefixed": lambda instance, unique: f"{instance}.{unique}",  # for `owner_tag`
    "unicode": lambda instance, unique: f"tâche-{unique}",  # Mcp-Name carries it in base64, a body may escape it
    "spaces": lambda instance, unique: f" {unique} ",  # would be trimmed if it were sent raw
    "sentinel": lambda instance, unique: f"=?base64?{unique}?=",  # looks encoded and is not
    "long": lambda instance, unique: f"{unique}-{'x' * 3000}",
}


class TaskParams(types.RequestParams):
    """The parameters of tasks/get and tasks/cancel."""

    task_id: str = Field(alias="taskId")


class UpdateParams(TaskParams):
    """The parameters of tasks/update."""

    input_responses: dict[str, Any] = Field(alias="inputResponses", default_factory=dict)


class Task:
    """A `slow_compute` under way."""

    def __init__(self, task_id: str) -> None:
        self.id = task_id
        self.status = "working"
        self.created = self.updated = _now()
        self.result: Json | None = None
        self.job: asyncio.Task[None] | None = None

    def brief(self) -> Json:
        """The task as `CreateTaskResult` shows it."""
        return {
            "taskId": self.id,
            "status": self.status,
            "createdAt": self.created,
            "lastUpdatedAt": self.updated,
            "ttlMs": TTL_MS,
            "pollIntervalMs": POLL_INTERVAL_MS,
        }

    def full(self) -> Json:
        """The task as `tasks/get` shows it."""
        return self.brief() if self.result is None else {**self.brief(), "result": self.result}

    async def run(self, arguments: Json, instance: str) -> None:
        """Sleeps; ends as completed, or as cancelled."""
        seconds = float(arguments.get("seconds", 1))
        try:
            await asyncio.sleep(seconds)
        except asyncio.CancelledError:
            self.status, self.updated = "cancelled", _now()
            return
        text = computed(seconds, str(arguments.get("label", "compute")), instance)
        self.result = {"resultType": "complete", "content": [{"type": "text", "text": text}], "isError": False}
        self.status, self.updated = "completed", _now()


class TaskExtension(Extension):
    """Makes a task of `slow_compute` where the client takes one, and serves tasks/*.

    `sse_create` sends a progress notification first, which makes the SDK answer with an event stream. `lenient_name`
    tolerates tasks/* without `Mcp-Name`, as FastMCP does; otherwise it is refused with -32020.
    """

    identifier = EXTENSION

    def __init__(self, instance: str, *, id_style: str, sse_create: bool, lenient_name: bool) -> None:
        self._instance = instance
        self._id_style = ID_STYLES[id_style]
        self._sse_create = sse_create
        self._lenient_name = lenient_name
        self._tasks: dict[str, Task] = {}

    def methods(self) -> Sequence[MethodBinding]:
        """Overrides: the three methods, in the era that has them."""
        era = frozenset({VERSION})
        return [
            MethodBinding("tasks/get", TaskParams, self._get, era),
            MethodBinding("tasks/update", UpdateParams, self._update, era),
            MethodBinding("tasks/cancel", TaskParams, self._cancel, era),
        ]

    async def intercept_tool_call(
        self, params: types.CallToolRequestParams, ctx: Context, call_next: CallNext
    ) -> HandlerResult:
        """Overrides: answers `slow_compute` with a task where the client takes one."""
        declared = ctx.session.client_capabilities
        takes_tasks = declared is not None and EXTENSION in (declared.extensions or {})
        if params.name != "slow_compute" or not takes_tasks:
            return await call_next(ctx)
        task = Task(self._id_style(self._instance, str(uuid.uuid4())))
        self._tasks[task.id] = task
        task.job = asyncio.create_task(task.run(dict(params.arguments or {}), self._instance))
        if self._sse_create:
            token = (ctx.meta or {}).get("progress_token", "none")
            progress = types.ProgressNotificationParams(progress_token=token, progress=0.0, message="queued")
            note = types.ProgressNotification(params=progress)
            await ctx.session.send_notification(note, related_request_id=ctx.request_id)
        return {"resultType": "task", **task.brief()}

    async def _get(self, ctx: Context, params: TaskParams) -> Json:
        return {"resultType": "complete", **self._find(ctx, params).full()}

    async def _update(self, ctx: Context, params: UpdateParams) -> Json:
        self._find(ctx, params)  # no tool asks for input, and answers to what was not asked are ignored
        return {"resultType": "complete"}

    async def _cancel(self, ctx: Context, params: TaskParams) -> Json:
        job = self._find(ctx, params).job
        if job is not None:
            job.cancel()
        return {"resultType": "complete"}

    def _find(self, ctx: Context, params: TaskParams) -> Task:
        require_client_extension(ctx, EXTENSION)
        name = decode_header_value(ctx.request.headers.get("mcp-name")) if ctx.request is not None else None
        if name != params.task_id and not (name is None and self._lenient_name):
            raise MCPError(code=types.HEADER_MISMATCH, message="Mcp-Name is missing or differs from params.taskId")
        task = self._tasks.get(params.task_id)
        if task is None:
            raise MCPError(code=types.INVALID_PARAMS, message=f"Task not found (instance {self._instance})")
        return task


def computed(seconds: float, label: str, instance: str) -> str:
    """The text that `slow_compute` ends with; its last word is the instance."""
    return f"slow_compute({label}) done after {seconds}s on {instance}"


def _now() -> str:
    return datetime.now(UTC).isoformat().replace("+00:00", "Z")
