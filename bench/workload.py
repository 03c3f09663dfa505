"""PURE: the requests that the load generator sends and the answers that the backends give.

All loads are MCP 2026-07-28 requests as official clients send them:

* ``tools-call``: calls of 200 tools in turn, which a proxy balances by name;
* ``tasks-get``: polls of 200 tasks in turn, which the backends created through the proxy just before;
* ``create-tasks``: calls that each create a task, which a proxy has to learn from the answer;
* ``events``: calls that are answered by a stream of 50 events, one every 5 ms;
* ``bodies``: calls and answers of 64 KiB each;
* ``connections``: ``tools-call`` with a new connection for each.
"""

import json
import re
import secrets
from collections.abc import Sequence
from dataclasses import dataclass

from bench.framing import field

LOADS = ("tools-call", "tasks-get", "create-tasks", "events", "bodies", "connections")
TOOLS = tuple(f"tool_{number:03}" for number in range(200))
# Calling this tool creates a task, and the next has a long answer; any other tool answers at once.
TASK_TOOL = "start_report"
BULK_TOOL = "export_ledger"
# This one takes and gives a body of BODY_BYTES, and that one answers with a stream.
BODY_TOOL = "convert_ledger"
EVENTS_TOOL = "watch_ledger"
TASKS = 200
ANSWER_BYTES = 1024
BULK_BYTES = 1024 * 1024
BODY_BYTES = 64 * 1024
EVENTS = 50
EVENT_SECONDS = 0.005


# The time at which an event was sent, by the clock that all processes share, in microseconds.
SENT_AT = re.compile(rb'"sentAt":"(\d{16})"')
STREAM_HEAD = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n"
END_OF_STREAM = b"0\r\n\r\n"


@dataclass(frozen=True, slots=True)
class Batch:
    """Requests ready to send, to be used in turn, and the length in bytes that the body of every answer must have."""

    requests: tuple[bytes, ...]
    answer_length: int


def tool_calls(authority: str) -> Batch:
    """One call of each tool; ``authority`` is the Host to send."""
    requests = (_request(authority, "tools/call", tool, _call(tool)) for tool in TOOLS)
    return Batch(tuple(requests), ANSWER_BYTES)


def bulk_call(authority: str) -> bytes:
    """A call that is answered with BULK_BYTES."""
    return _request(authority, "tools/call", BULK_TOOL, _call(BULK_TOOL))


def task_creations(authority: str) -> Batch:
    """Calls that each create one task."""
    request = _request(authority, "tools/call", TASK_TOOL, _call(TASK_TOOL))
    return Batch((request,) * TASKS, len(_created(_mint())))


def task_polls(authority: str, task_ids: Sequence[str]) -> Batch:
    """One poll of each task."""
    requests = (_request(authority, "tasks/get", task_id, {"taskId": task_id}) for task_id in task_ids)
    return Batch(tuple(requests), len(_polled(_mint())))


def body_calls(authority: str) -> Batch:
    """A call with a body of BODY_BYTES, answered with as many."""
    spare = BODY_BYTES - len(_tool_call_body(BODY_TOOL, ""))
    return Batch((_request(authority, "tools/call", BODY_TOOL, _call(BODY_TOOL, "x" * spare)),), BODY_BYTES)


def event_calls(authority: str) -> Batch:
    """A call that is answered by EVENTS events; the length of what carries them is the proxy's choice."""
    return Batch((_request(authority, "tools/call", EVENTS_TOOL, _call(EVENTS_TOOL)),), 0)


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
    if name == _BULK_TOOL_NAME:
        return _BULK_ANSWER
    if name == _BODY_TOOL_NAME:
        return _BODY_ANSWER
    if name is not None and field(head, b"mcp-method") == b"tasks/get":
        return _response(_polled(name.decode("ascii")))
    return _TOOL_ANSWER


def asks_for_events(head: bytes) -> bool:
    """Whether the request with this head is answered by a stream, of what `event` makes."""
    return field(head, b"mcp-name") == _EVENTS_TOOL_NAME


def event(number: int, now: float) -> bytes:
    """The event with this number, from 1, as a chunk; the last one is the result, and ends the stream.

    ``now``: monotonic, in seconds.
    """
    sent_at = f"{int(now * 1e6):016}"
    message: dict[str, object] = {"jsonrpc": "2.0"}
    if number < EVENTS:
        text = "Reading the ledger of the last quarter, page by page."
        params = {"progressToken": 1, "progress": number, "total": EVENTS, "message": text, "sentAt": sent_at}
        message |= {"method": "notifications/progress", "params": params}
    else:
        content = [{"type": "text", "text": "All pages are read."}]
        message |= {"id": 1, "result": {"resultType": "complete", "content": content, "sentAt": sent_at}}
    data = b"event: message\ndata: %b\n\n" % _compact(message)
    return b"%x\r\n%b\r\n" % (len(data), data) + (b"" if number < EVENTS else END_OF_STREAM)


def _request(authority: str, method: str, name: str, params: dict[str, object]) -> bytes:
    body = _request_body(method, params)
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


def _request_body(method: str, params: dict[str, object]) -> bytes:
    meta = {
        "io.modelcontextprotocol/protocolVersion": "2026-07-28",
        "io.modelcontextprotocol/clientInfo": {"name": "bench", "version": "1"},
        "io.modelcontextprotocol/clientCapabilities": {},
    }
    return _compact({"jsonrpc": "2.0", "id": 1, "method": method, "params": params | {"_meta": meta}})


def _tool_call_body(tool: str, query: str) -> bytes:
    return _request_body("tools/call", _call(tool, query))


def _response(body: bytes) -> bytes:
    return b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: %d\r\n\r\n%b" % (len(body), body)


def _call(tool: str, query: str = "open invoices of the last quarter") -> dict[str, object]:
    return {"name": tool, "arguments": {"query": query, "limit": 20}}


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


def _tool_result(size: int) -> bytes:
    """An ordinary result, its text padded to make the body so many bytes long."""

    def body(text: str) -> bytes:
        result = {"resultType": "complete", "content": [{"type": "text", "text": text}], "isError": False}
        return _compact({"jsonrpc": "2.0", "id": 1, "result": result})

    return body("x" * (size - len(body(""))))


def _compact(value: object) -> bytes:
    return json.dumps(value, separators=(",", ":")).encode("ascii")


_TASK_TOOL_NAME = TASK_TOOL.encode("ascii")
_BULK_TOOL_NAME = BULK_TOOL.encode("ascii")
_BODY_TOOL_NAME = BODY_TOOL.encode("ascii")
_EVENTS_TOOL_NAME = EVENTS_TOOL.encode("ascii")
_TOOL_ANSWER = _response(_tool_result(ANSWER_BYTES))
_BULK_ANSWER = _response(_tool_result(BULK_BYTES))
_BODY_ANSWER = _response(_tool_result(BODY_BYTES))
