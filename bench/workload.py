"""PURE: the requests that the load generator sends and the answers that the backends give.

Two loads, both of MCP 2026-07-28 requests as official clients send them:

* ``tools-call``: calls of 200 tools in turn, which a proxy balances by name;
* ``tasks-get``: polls of 200 tasks in turn, which the backends created through the proxy just before.
"""

import json
import secrets
from collections.abc import Sequence
from dataclasses import dataclass

from bench.framing import field

LOADS = ("tools-call", "tasks-get")
TOOLS = tuple(f"tool_{number:03}" for number in range(200))
# Calling this tool creates a task; any other tool answers at once.
TASK_TOOL = "start_report"
TASKS = 200
ANSWER_BYTES = 1024


@dataclass(frozen=True, slots=True)
class Batch:
    """Requests ready to send, to be used in turn, and the length in bytes that the body of every answer must have."""

    requests: tuple[bytes, ...]
    answer_length: int


def tool_calls(authority: str) -> Batch:
    """One call of each tool; ``authority`` is the Host to send."""
    requests = (_request(authority, "tools/call", tool, _call(tool)) for tool in TOOLS)
    return Batch(tuple(requests), ANSWER_BYTES)


def task_creations(authority: str) -> Batch:
    """Calls that each create one task."""
    request = _request(authority, "tools/call", TASK_TOOL, _call(TASK_TOOL))
    return Batch((request,) * TASKS, len(_created(_mint())))


def task_polls(authority: str, task_ids: Sequence[str]) -> Batch:
    """One poll of each task."""
    requests = (_request(authority, "tasks/get", task_id, {"taskId": task_id}) for task_id in task_ids)
    return Batch(tuple(requests), len(_polled(_mint())))


def created_task_id(body: bytes) -> str:
    """The id in the answer to a call that created a task. Raises ValueError if the answer creates none."""
    result = json.loads(body).get("result", {})
    if result.get("resultType") != "task":
        raise ValueError("the answer creates no task")
    return str(result["taskId"])


def answer(head: bytes) -> bytes:
    """What a backend sends back for the request with this head: head and body in one piece."""
    name = field(head, b"mcp-name")
    if name == _TASK_TOOL_NAME:
        return _response(_created(_mint()))
    if name is not None and field(head, b"mcp-method") == b"tasks/get":
        return _response(_polled(name.decode("ascii")))
    return _TOOL_ANSWER


def _request(authority: str, method: str, name: str, params: dict[str, object]) -> bytes:
    meta = {
        "io.modelcontextprotocol/protocolVersion": "2026-07-28",
        "io.modelcontextprotocol/clientInfo": {"name": "bench", "version": "1"},
        "io.modelcontextprotocol/clientCapabilities": {},
    }
    body = _compact({"jsonrpc": "2.0", "id": 1, "method": method, "params": params | {"_meta": meta}})
    head = (
        "POST /mcp HTTP/1.1\r\n"
        f"Host: {authority}\r\n"
        "Accept-Encoding: gzip, deflate\r\n"
        "Connection: keep-alive\r\n"
        "User-Agent: python-httpx2/2.16.2\r\n"
        "accept: application/json, text/event-stream\r\n"
        "content-type: application/json\r\n"
        "mcp-protocol-version: 2026-07-28\r\n"
        f"mcp-method: {method}\r\n"
        f"mcp-name: {name}\r\n"
        f"Content-Length: {len(body)}\r\n"
        "\r\n"
    )
    return head.encode("ascii") + body


def _response(body: bytes) -> bytes:
    return b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: %d\r\n\r\n%b" % (len(body), body)


def _call(tool: str) -> dict[str, object]:
    return {"name": tool, "arguments": {"query": "open invoices of the last quarter", "limit": 20}}


def _mint() -> str:
    """A fresh task id, in the shape of FastMCP's; its length never varies."""
    return secrets.token_urlsafe(32)


def _created(task_id: str) -> bytes:
    return _compact({"jsonrpc": "2.0", "id": 1, "result": {"resultType": "task"} | _task(task_id)})


def _polled(task_id: str) -> bytes:
    return _compact({"jsonrpc": "2.0", "id": 1, "result": {"resultType": "complete"} | _task(task_id)})


def _task(task_id: str) -> dict[str, object]:
    return {
        "taskId": task_id,
        "status": "working",
        "statusMessage": "Reading the ledger of the last quarter, page 12 of 40.",
        "createdAt": "2026-11-02T09:30:00Z",
        "lastUpdatedAt": "2026-11-02T09:30:05Z",
        "ttlMs": 3_600_000,
        "pollIntervalMs": 1_000,
    }


def _tool_result() -> bytes:
    """An ordinary result, its text padded to make the body ANSWER_BYTES long."""

    def body(text: str) -> bytes:
        result = {"resultType": "complete", "content": [{"type": "text", "text": text}], "isError": False}
        return _compact({"jsonrpc": "2.0", "id": 1, "result": result})

    return body("x" * (ANSWER_BYTES - len(body(""))))


def _compact(value: object) -> bytes:
    return json.dumps(value, separators=(",", ":")).encode("ascii")


_TASK_TOOL_NAME = TASK_TOOL.encode("ascii")
_TOOL_ANSWER = _response(_tool_result())
