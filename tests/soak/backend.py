"""A backend that may be killed at any time: what it executed is in a file by then, what it knew is gone.

`python -m tests.soak.backend --instance b --life 3 --port 8001 --journal FILE` says `port 8001` once it listens, and
serves until it is killed. Everything it answers tells in `X-Served-By` which life of which backend that was: `b.3`.
Every call has a label, which is appended to the journal before anything of the answer leaves; an append outlives the
process. Tasks, sessions and subscriptions live in its memory.
"""

import argparse
import asyncio
import json
import os
import secrets
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

import httptools
import uvloop

REASONS = {200: b"OK", 204: b"No Content", 400: b"Bad Request", 404: b"Not Found"}
EVERY = 0.25  # seconds between the events of a subscription or of a session's stream
JSON, EVENTS = b"application/json", b"text/event-stream"


@dataclass
class Task:
    """One that was made here. `over`: when it completes, on the monotonic clock."""

    over: float
    cancelled: bool = False

    @property
    def status(self) -> str:
        return "cancelled" if self.cancelled else "completed" if time.monotonic() >= self.over else "working"


class Memory:
    """What one life of a backend knows."""

    def __init__(self, name: str, journal: Path) -> None:
        self.name = name
        self.tasks: dict[str, Task] = {}
        self.sessions: dict[str, int] = {}
        """Calls that were executed in each session."""
        self.journal = journal
        self._file = os.open(journal, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)

    def execute(self, label: str) -> None:
        """Writes down that this call is carried out, in one write: it is in the file whole, or not at all."""
        os.write(self._file, f"{label}\n".encode())

    def close(self) -> None:
        os.close(self._file)

    def task(self, task_id: str) -> dict[str, Any]:
        return {"taskId": task_id, "status": self.tasks[task_id].status, "ttlMs": 60_000, "by": self.name}


class Conversation(asyncio.Protocol):
    """One connection, from a proxy that asks one thing at a time."""

    def __init__(self, memory: Memory) -> None:
        self._memory = memory
        self._parser = httptools.HttpRequestParser(self)
        self._transport: asyncio.Transport | None = None
        self._fields: dict[bytes, str] = {}
        self._url = self._body = b""
        self._told = 0
        self._timer: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)

    def data_received(self, data: bytes) -> None:
        self._parser.feed_data(data)

    def connection_lost(self, exc: Exception | None) -> None:
        if self._timer is not None:
            self._timer.cancel()

    # ---- what the parser calls
    def on_message_begin(self) -> None:
        self._fields, self._url, self._body = {}, b"", b""

    def on_url(self, url: bytes) -> None:
        self._url += url

    def on_header(self, name: bytes, value: bytes) -> None:
        self._fields[name.lower()] = value.decode()

    def on_body(self, body: bytes) -> None:
        self._body += body

    def on_message_complete(self) -> None:
        verb = self._parser.get_method()
        if self._url == b"/health":
            self._answer(200, b"{}")
        elif "2026-07-28" in self._fields.get(b"mcp-protocol-version", ""):
            self._modern(json.loads(self._body))
        else:
            self._legacy(verb, json.loads(self._body) if verb == b"POST" else {})

    # ---- what is asked
    def _modern(self, request: dict[str, Any]) -> None:
        params = request.get("params", {})
        match request["method"]:
            case "tools/call":
                self._call(request, params["arguments"])
            case "tasks/get" | "tasks/cancel" as method:
                self._about_task(request, method, params)
            case "subscriptions/listen":
                notice = {"method": "notifications/subscriptions/acknowledged", "params": {"notifications": {}}}
                self._begin_events()
                self._event(notice)
                self._tell()
            case method:
                raise AssertionError(method)

    def _call(self, request: dict[str, Any], arguments: dict[str, Any]) -> None:
        self._memory.execute(arguments["label"])
        if "events" in arguments:
            self._begin_events()
            self._progress(request, arguments, 0)
            return
        if "seconds" in arguments:
            task_id = secrets.token_urlsafe(18)
            self._memory.tasks[task_id] = Task(time.monotonic() + arguments["seconds"])
            self._result(request, {"resultType": "task", **self._memory.task(task_id)})
            return
        self._later(arguments["think"], lambda: self._result(request, self._done(arguments)))

    def _done(self, arguments: dict[str, Any]) -> dict[str, Any]:
        text = "x" * arguments.get("bytes", 0)
        return {"resultType": "complete", "label": arguments["label"], "by": self._memory.name, "text": text}

    def _progress(self, request: dict[str, Any], arguments: dict[str, Any], told: int) -> None:
        if told == arguments["events"]:
            self._event({"id": request["id"], "result": self._done(arguments)})
            self._write(b"0\r\n\r\n")
            return
        self._event({"method": "notifications/progress", "params": {"progress": told + 1}})
        self._later(arguments["every"], lambda: self._progress(request, arguments, told + 1))

    def _about_task(self, request: dict[str, Any], method: str, params: dict[str, Any]) -> None:
        task = self._memory.tasks.get(params["taskId"])
        if task is None:
            error = {"code": -32602, "message": "Task not found", "data": {"by": self._memory.name}}
            self._answer(400, _message(request, error=error))
            return
        if method == "tasks/cancel":
            self._memory.execute(params["label"])
            task.cancelled = True
        self._result(request, {"resultType": "complete", **self._memory.task(params["taskId"])})

    def _legacy(self, verb: bytes, request: dict[str, Any]) -> None:
        sessions, session = self._memory.sessions, self._fields.get(b"mcp-session-id")
        if session is None:
            session = secrets.token_hex(12)
            sessions[session] = 0
            self._result(request, {"by": self._memory.name}, b"Mcp-Session-Id: %b\r\n" % session.encode())
        elif session not in sessions:
            self._answer(404, b'{"jsonrpc":"2.0","id":null,"error":{"code":-32001,"message":"Session not found"}}')
        elif verb == b"DELETE":
            del sessions[session]
            self._answer(200, b"{}")
        elif verb == b"GET":
            self._begin_events()
            self._tell()
        else:
            arguments = request["params"]["arguments"]
            self._memory.execute(arguments["label"])
            sessions[session] += 1
            self._result(request, {**self._done(arguments), "count": sessions[session]})

    # ---- what is answered
    def _tell(self) -> None:
        """An event now and every so often, until the connection ends."""
        self._told += 1
        params = {"by": self._memory.name, "number": self._told}
        self._event({"method": "notifications/tools/list_changed", "params": params})
        self._later(EVERY, self._tell)

    def _result(self, request: dict[str, Any], result: dict[str, Any], fields: bytes = b"") -> None:
        self._answer(200, _message(request, result=result), fields)

    def _answer(self, status: int, body: bytes, fields: bytes = b"") -> None:
        head = self._head(status, JSON) + b"%bContent-Length: %d\r\n\r\n" % (fields, len(body))
        self._write(head + body)

    def _begin_events(self) -> None:
        self._write(self._head(200, EVENTS) + b"Transfer-Encoding: chunked\r\n\r\n")

    def _event(self, message: dict[str, Any]) -> None:
        text = b"event: message\ndata: %b\n\n" % json.dumps({"jsonrpc": "2.0", **message}).encode()
        self._write(b"%x\r\n%b\r\n" % (len(text), text))

    def _head(self, status: int, kind: bytes) -> bytes:
        by = self._memory.name.encode()
        return b"HTTP/1.1 %d %b\r\nContent-Type: %b\r\nX-Served-By: %b\r\n" % (status, REASONS[status], kind, by)

    def _write(self, data: bytes) -> None:
        if self._transport is not None and not self._transport.is_closing():
            self._transport.write(data)

    def _later(self, seconds: float, what: Callable[[], None]) -> None:
        self._timer = asyncio.get_running_loop().call_later(seconds, what)


def _message(request: dict[str, Any], **outcome: object) -> bytes:
    return json.dumps({"jsonrpc": "2.0", "id": request["id"], **outcome}).encode()


async def serve(name: str, port: int, journal: Path) -> None:
    """Until it is killed."""
    memory = Memory(name, journal)
    await asyncio.get_running_loop().create_server(lambda: Conversation(memory), "127.0.0.1", port, backlog=1024)
    sys.stdout.write(f"port {port}\n")
    sys.stdout.flush()
    await asyncio.Event().wait()


def main() -> None:
    """The command."""
    parser = argparse.ArgumentParser(prog="python -m tests.soak.backend")
    parser.add_argument("--instance", required=True)
    parser.add_argument("--life", type=int, default=1)
    parser.add_argument("--port", type=int, required=True)
    parser.add_argument("--journal", type=Path, required=True)
    options = parser.parse_args()
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(serve(f"{options.instance}.{options.life}", options.port, options.journal))


if __name__ == "__main__":
    main()
