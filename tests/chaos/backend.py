"""A backend as a process of its own: makes tasks with random ids and knows only those it made, in its own memory.

`python -m tests.chaos.backend --instance a` says its port on standard output and serves until SIGTERM. A call's
arguments say how long its task takes (`seconds`), how much longer it is promised to be kept (`keep`), and name the
call (`label`), so that one that was carried out twice shows. A task is never forgotten: -32602 for one is a mistake of
whoever brought the poll here. GET /stats tells what was done.
"""

import argparse
import asyncio
import json
import secrets
import signal
import sys
import time
from collections import Counter
from typing import Any, cast

import httptools
import uvloop

THINKING = 0.05  # seconds from a call to its answer: some are to be under way when a proxy dies
REASONS = {200: b"OK", 400: b"Bad Request", 404: b"Not Found"}


class Tasks:
    """What one backend knows."""

    def __init__(self, instance: str) -> None:
        self.instance = instance
        self.stats: Counter[str] = Counter({"made": 0, "twice": 0, "polls": 0, "unknown": 0})
        self._until: dict[str, tuple[float, float]] = {}  # when it completes (monotonic), and its ttl in seconds
        self._labels: set[str] = set()

    def make(self, arguments: dict[str, Any]) -> dict[str, Any]:
        """The result of a call."""
        self.stats["twice"] += arguments["label"] in self._labels
        self._labels.add(arguments["label"])
        self.stats["made"] += 1
        task_id, seconds = secrets.token_urlsafe(18), float(arguments["seconds"])
        self._until[task_id] = (time.monotonic() + seconds, seconds + float(arguments["keep"]))
        return {"resultType": "task", **self._state(task_id)}

    def get(self, task_id: str) -> dict[str, Any] | None:
        """The result of a poll; None for a task that was not made here."""
        self.stats["polls"] += 1
        if task_id not in self._until:
            self.stats["unknown"] += 1
            return None
        return {"resultType": "complete", **self._state(task_id)}

    def _state(self, task_id: str) -> dict[str, Any]:
        completes, ttl = self._until[task_id]
        status = "completed" if time.monotonic() >= completes else "working"
        return {"taskId": task_id, "status": status, "ttlMs": int(ttl * 1000), "_meta": {"backend": self.instance}}


class Conversation(asyncio.Protocol):
    """One connection, from a proxy that asks one thing at a time. Every second task is told in an event stream."""

    def __init__(self, tasks: Tasks, unknown_status: int) -> None:
        self._tasks = tasks
        self._unknown_status = unknown_status
        self._parser = httptools.HttpRequestParser(self)
        self._transport: asyncio.Transport | None = None
        self._url = b""
        self._body = b""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)

    def data_received(self, data: bytes) -> None:
        self._parser.feed_data(data)

    # ---- what the parser calls
    def on_message_begin(self) -> None:
        self._url = self._body = b""

    def on_url(self, url: bytes) -> None:
        self._url += url

    def on_body(self, body: bytes) -> None:
        self._body += body

    def on_message_complete(self) -> None:
        if self._url == b"/stats":
            self._answer(200, json.dumps(self._tasks.stats).encode())
            return
        request = json.loads(self._body)
        if request["method"] == "tools/call":
            asyncio.get_running_loop().call_later(THINKING, self._call, request)
            return
        assert request["method"] == "tasks/get", request["method"]
        result = self._tasks.get(request["params"]["taskId"])
        if result is None:
            error = {"code": -32602, "message": "Task not found"}
            self._answer(self._unknown_status, _message(request, error=error))
        else:
            self._answer(200, _message(request, result=result))

    def _call(self, request: dict[str, Any]) -> None:
        message = _message(request, result=self._tasks.make(request["params"]["arguments"]))
        if self._tasks.stats["made"] % 2:
            self._answer(200, message)
            return
        self._write(b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n")
        for event in (b'{"jsonrpc":"2.0","method":"notifications/progress","params":{}}', message):
            text = b"event: message\ndata: %b\n\n" % event
            self._write(b"%x\r\n%b\r\n" % (len(text), text))
        self._write(b"0\r\n\r\n")

    def _answer(self, status: int, body: bytes) -> None:
        fields = b"Content-Type: application/json\r\nContent-Length: %d" % len(body)
        self._write(b"HTTP/1.1 %d %b\r\n%b\r\n\r\n%b" % (status, REASONS[status], fields, body))

    def _write(self, data: bytes) -> None:
        if self._transport is not None and not self._transport.is_closing():
            self._transport.write(data)


def _message(request: dict[str, Any], **outcome: object) -> bytes:
    return json.dumps({"jsonrpc": "2.0", "id": request["id"], **outcome}).encode()


async def serve(instance: str) -> None:
    """Until SIGTERM."""
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    loop.add_signal_handler(signal.SIGTERM, stop.set)
    tasks, unknown_status = Tasks(instance), (400, 404)[ord(instance[0]) % 2]
    server = await loop.create_server(lambda: Conversation(tasks, unknown_status), "127.0.0.1", 0, backlog=1024)
    sys.stdout.write(f"port {server.sockets[0].getsockname()[1]}\n")
    sys.stdout.flush()
    await stop.wait()


def main() -> None:
    """The command."""
    parser = argparse.ArgumentParser(prog="python -m tests.chaos.backend")
    parser.add_argument("--instance", default="a", help="the name it goes by in answers")
    options = parser.parse_args()
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(serve(options.instance))


if __name__ == "__main__":
    main()
