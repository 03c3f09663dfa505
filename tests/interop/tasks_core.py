"""The tasks extension (SEP-2663) on the official SDK, with tasks that belong to one server.

Only the server that made a task knows it: a poll that reaches another one gets -32602. That is what these servers are
for. `TaskExtension` is handed to `MCPServer(extensions=[...])`. With a store, a server that is killed and started again
goes on with its tasks. No job runs for a task: it is done when its time has come, whoever was away meanwhile.
"""

import secrets
import time
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

from tests.interop.task_store import StoredTask, TaskStore

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
    """A `slow_compute`, under way or done."""

    def __init__(self, kept: StoredTask) -> None:
        self.kept = kept

    @property
    def status(self) -> str:
        """What has become of it by now."""
        if self.kept.cancelled is not None:
            return "cancelled"
        return "completed" if time.time() >= self._due else "working"

    def cancel(self) -> None:
        """Cancels it, unless it is done."""
        if self.status == "working":
            self.kept = self.kept._replace(cancelled=time.time())

    def brief(self) -> Json:
        """The task as `CreateTaskResult` shows it."""
        status, kept = self.status, self.kept
        updated = {"working": kept.created, "completed": self._due, "cancelled": kept.cancelled or 0.0}[status]
        return {
            "taskId": kept.id,
            "status": status,
            "createdAt": _written(kept.created),
            "lastUpdatedAt": _written(updated),
            "ttlMs": TTL_MS,
            "pollIntervalMs": POLL_INTERVAL_MS,
        }

    def full(self, instance: str) -> Json:
        """The task as `tasks/get` shows it."""
        shown = self.brief()
        if shown["status"] == "completed":
            text = computed(self.kept.seconds, self.kept.label, instance)
            shown["result"] = {
                "resultType": "complete",
                "content": [{"type": "text", "text": text}],
                "isError": False,
            }
        return shown

    @property
    def _due(self) -> float:
        return self.kept.created + self.kept.seconds


class TaskExtension(Extension):
    """Makes a task of `slow_compute` where the client takes one, and serves tasks/*.

    `sse_create` sends a progress notification first, which makes the SDK answer with an event stream. `lenient_name`
    tolerates tasks/* without `Mcp-Name`, as FastMCP does; otherwise it is refused with -32020. Tasks live in `store`,
    or in the memory of this process alone.
    """

    identifier = EXTENSION

    def __init__(
        self, instance: str, *, id_style: str, sse_create: bool, lenient_name: bool, store: TaskStore | None = None
    ) -> None:
        self._instance = instance
        self._id_style = ID_STYLES[id_style]
        self._sse_create = sse_create
        self._lenient_name = lenient_name
        self._store = store
        kept = [] if store is None else store.tasks()
        self._tasks = {task.id: Task(task) for task in kept}

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
        arguments = dict(params.arguments or {})
        task_id = self._id_style(self._instance, str(uuid.uuid4()))
        label, seconds = str(arguments.get("label", "compute")), float(arguments.get("seconds", 1))
        task = self._tasks[task_id] = Task(StoredTask(task_id, label, seconds, time.time(), None))
        self._keep(task)
        if self._sse_create:
            token = (ctx.meta or {}).get("progress_token", "none")
            progress = types.ProgressNotificationParams(progress_token=token, progress=0.0, message="queued")
            note = types.ProgressNotification(params=progress)
            await ctx.session.send_notification(note, related_request_id=ctx.request_id)
        return {"resultType": "task", **task.brief()}

    async def _get(self, ctx: Context, params: TaskParams) -> Json:
        return {"resultType": "complete", **self._find(ctx, params).full(self._instance)}

    async def _update(self, ctx: Context, params: UpdateParams) -> Json:
        self._told(params.task_id, "tasks/update")
        self._find(ctx, params)  # no tool asks for input, and answers to what was not asked are ignored
        return {"resultType": "complete"}

    async def _cancel(self, ctx: Context, params: TaskParams) -> Json:
        self._told(params.task_id, "tasks/cancel")
        task = self._find(ctx, params)
        task.cancel()
        self._keep(task)
        return {"resultType": "complete"}

    def _keep(self, task: Task) -> None:
        if self._store is not None:
            self._store.keep(task.kept)

    def _told(self, task_id: str, method: str) -> None:
        if self._store is not None:
            self._store.told(task_id, method)

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


def _written(moment: float) -> str:
    return datetime.fromtimestamp(moment, UTC).isoformat().replace("+00:00", "Z")
