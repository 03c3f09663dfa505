"""A small MCP 2026-07-28 server whose tasks live in the memory of its own process, to stand behind the proxy.

Rules, first match wins, for one POST /mcp:
1. A foreign `Origin` is refused (403), as is a body that is not JSON (415, or 400 with -32700).
2. Without an `id` it is a notification: 202, and nothing happens.
3. `_meta` must carry version and client capabilities (-32602), the headers must say the same as the body (-32020), and
   the version must be the one served (-32022).
4. The method decides; an unknown one is 404 with -32601.
Only this process knows its tasks: about any other it says -32602, "no such task", which a client takes as final.
"""

import argparse
import asyncio
import secrets
import socket
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from urllib.parse import urlsplit

from aiohttp import web

from proxy.demo.messages import (
    INVALID_PARAMS,
    METHOD_NOT_FOUND,
    SERVER_INFO_KEY,
    TASKS_EXTENSION,
    UNKNOWN_TASK,
    VERSION,
    Call,
    Json,
    ProtocolError,
    checked,
    parsed,
    request_id,
)

TTL = timedelta(minutes=10)
POLL_INTERVAL_MS, LONG_POLL_INTERVAL_MS = 100, 1000
LONG = 5.0  # seconds of a task that need not be looked at every moment
MAX_SECONDS = 60.0
MAX_TASKS = 10_000  # about 3 MB; a server that is left running and polled by a script must not grow without end

_STATUS = {METHOD_NOT_FOUND: 404, -32603: 200}  # every other error of ours is the client's: 400
_LOCAL_HOSTS = ("localhost", "127.0.0.1", "::1")

Clock = Callable[[], datetime]


@dataclass(slots=True)
class SlowTask:
    """A computation that takes `seconds`. Nothing runs: its state follows from the time, so nothing can leak."""

    task_id: str = field(repr=False)  # whoever knows it may use the task
    created: datetime
    seconds: float
    cancelled: datetime | None = None

    def describe(self, now: datetime, instance: str) -> Json:
        """The task as `tasks/get` shows it (SEP-2663, `DetailedTask`)."""
        ends = self.created + timedelta(seconds=self.seconds)
        status, updated = "working", self.created
        if self.cancelled is not None:
            status, updated = "cancelled", self.cancelled
        elif now >= ends:
            status, updated = "completed", ends
        shown: Json = {
            "taskId": self.task_id,
            "status": status,
            "createdAt": _timestamp(self.created),
            "lastUpdatedAt": _timestamp(updated),
            "ttlMs": int(TTL.total_seconds() * 1000),
            "pollIntervalMs": LONG_POLL_INTERVAL_MS if self.seconds >= LONG else POLL_INTERVAL_MS,
        }
        if status == "completed":
            shown["result"] = _computed(self.seconds, instance)
        return shown


class Instance:
    """One server: its name, its clock and the tasks it made."""

    def __init__(self, name: str, clock: Clock = lambda: datetime.now(UTC)) -> None:
        self.name = name
        self._clock = clock
        self._tasks: dict[str, SlowTask] = {}  # oldest first
        self._methods = {
            "server/discover": self._discover,
            "tools/list": self._list_tools,
            "tools/call": self._call_tool,
            "tasks/get": self._get_task,
            "tasks/update": self._update_task,
            "tasks/cancel": self._cancel_task,
        }

    async def post(self, request: web.Request) -> web.Response:
        """Answers POST /mcp. Raises aiohttp's `HTTPException` where no JSON-RPC answer is due."""
        _refuse_foreign_origin(request.headers.get("Origin"))
        if request.content_type != "application/json":
            raise web.HTTPUnsupportedMediaType(text="Content-Type must be application/json")
        answer: Json = {"jsonrpc": "2.0", "id": None}
        status = 200
        try:
            message = parsed(await request.read())
            if "id" not in message:
                return web.Response(status=202)
            answer["id"] = request_id(message)
            result = await self._answer(checked(message, request.headers))
            answer["result"] = result | {"_meta": {SERVER_INFO_KEY: {"name": f"demo-{self.name}", "version": "1.0"}}}
        except ProtocolError as refusal:
            answer["error"] = {"code": refusal.code, "message": refusal.message}
            if refusal.data is not None:
                answer["error"]["data"] = refusal.data
            status = _STATUS.get(refusal.code, 400)
        return web.json_response(answer, status=status, headers={"Served-By": self.name})

    async def _answer(self, call: Call) -> Json:
        method = self._methods.get(call.method)
        if method is None:
            raise ProtocolError(METHOD_NOT_FOUND, "Method not found")
        return await method(call)

    async def _discover(self, call: Call) -> Json:
        capabilities: Json = {"tools": {}, "extensions": {TASKS_EXTENSION: {}}}
        return _cacheable({"supportedVersions": [VERSION], "capabilities": capabilities})

    async def _list_tools(self, call: Call) -> Json:
        seconds = {"type": "number", "minimum": 0, "maximum": MAX_SECONDS, "default": 1}
        tools = [
            {
                "name": "whoami",
                "description": "The instance that serves this call.",
                "inputSchema": {"type": "object"},
            },
            {
                "name": "slow_compute",
                "description": "Takes its time; a task where the client can take one.",
                "inputSchema": {"type": "object", "properties": {"seconds": seconds}},
            },
        ]
        return _cacheable({"tools": tools})

    async def _call_tool(self, call: Call) -> Json:
        arguments = call.params.get("arguments", {})
        if not isinstance(arguments, dict):
            raise ProtocolError(INVALID_PARAMS, "arguments must be an object")
        match call.params.get("name"):
            case "whoami":
                return _complete(_text(self.name))
            case "slow_compute":
                return await self._compute(arguments.get("seconds", 1), as_task=call.takes_tasks)
            case _:
                raise ProtocolError(INVALID_PARAMS, "Unknown tool")

    async def _compute(self, seconds: object, *, as_task: bool) -> Json:
        if isinstance(seconds, bool) or not isinstance(seconds, int | float) or not 0 <= seconds <= MAX_SECONDS:
            return _complete(_text(f"seconds must be a number from 0 to {MAX_SECONDS:g}", error=True))
        if not as_task:
            await asyncio.sleep(seconds)  # ended by the client's hang-up: the server cancels its handlers
            return _complete(_computed(seconds, self.name))
        now = self._clock()
        self._forget_expired(now)
        if len(self._tasks) >= MAX_TASKS:
            raise ProtocolError(-32603, "Too many tasks")
        task = SlowTask(secrets.token_urlsafe(24), now, float(seconds))
        self._tasks[task.task_id] = task
        return {"resultType": "task"} | task.describe(now, self.name)

    async def _get_task(self, call: Call) -> Json:
        return _complete(self._own_task(call).describe(self._clock(), self.name))

    async def _update_task(self, call: Call) -> Json:
        self._own_task(call)
        # No tool here asks for input, and answers to what was not asked are to be ignored (SEP-2663, "Response").
        if not isinstance(call.params.get("inputResponses"), dict):
            raise ProtocolError(INVALID_PARAMS, "inputResponses must be an object")
        return _complete({})

    async def _cancel_task(self, call: Call) -> Json:
        task, now = self._own_task(call), self._clock()
        if task.describe(now, self.name)["status"] == "working":
            task.cancelled = now
        return _complete({})

    def _own_task(self, call: Call) -> SlowTask:
        if not call.takes_tasks:
            required: Json = {"extensions": {TASKS_EXTENSION: {}}}
            raise ProtocolError(-32021, "Missing required client capability", {"requiredCapabilities": required})
        self._forget_expired(self._clock())
        task = self._tasks.get(call.params["taskId"])
        if task is None:
            raise ProtocolError(UNKNOWN_TASK, f"Task not found (instance {self.name})")
        return task

    def _forget_expired(self, now: datetime) -> None:
        while self._tasks:
            oldest = next(iter(self._tasks.values()))
            if now - oldest.created < TTL:
                return
            del self._tasks[oldest.task_id]


def _refuse_foreign_origin(origin: str | None) -> None:
    if origin is None:
        return
    try:
        host = urlsplit(origin).hostname
    except ValueError:
        host = None
    if host not in _LOCAL_HOSTS:
        raise web.HTTPForbidden(text="Foreign Origin")


def _timestamp(moment: datetime) -> str:
    return moment.isoformat(timespec="milliseconds").replace("+00:00", "Z")


def _text(text: str, *, error: bool = False) -> Json:
    return {"content": [{"type": "text", "text": text}], "isError": error}


def _computed(seconds: float, instance: str) -> Json:
    return _text(f"computed for {seconds:g} s on {instance}")


def _complete(result: Json) -> Json:
    return {"resultType": "complete"} | result


def _cacheable(result: Json) -> Json:
    return _complete(result | {"ttlMs": 0, "cacheScope": "private"})


async def _health(request: web.Request) -> web.Response:
    return web.Response(text="ok\n")


def make_app(instance: Instance) -> web.Application:
    """The HTTP face of one instance: POST /mcp (other methods get 405) and GET /health."""
    app = web.Application()
    app.router.add_post("/mcp", instance.post)
    app.router.add_get("/health", _health)
    return app


def main(arguments: Sequence[str] | None = None) -> None:
    """Serves until SIGTERM or SIGINT. Its only output is the port, once connections are accepted into the queue."""
    parser = argparse.ArgumentParser(prog="python -m proxy.demo.server")
    parser.add_argument("--port", type=int, required=True, help="0: any free one")
    parser.add_argument("--host", default="127.0.0.1", help="the address to listen on (default: %(default)s)")
    parser.add_argument(
        "--instance", default=socket.gethostname(), help="the name it goes by in answers (default: this host's)"
    )
    options = parser.parse_args(arguments)
    listener = socket.create_server((options.host, options.port))
    print(listener.getsockname()[1], flush=True)
    web.run_app(
        make_app(Instance(options.instance)),
        sock=listener,
        print=None,
        access_log=None,
        handler_cancellation=True,
        shutdown_timeout=1.0,  # seconds; the demo's user waits for it
    )


if __name__ == "__main__":
    main()
