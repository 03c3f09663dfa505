"""A backend that makes the tasks it is told to, and knows only those."""

import base64
import json

from tests.wire.harness import BackendSide

OK = b"HTTP/1.1 200 OK\r\n"


def created(task_id: str, **more: object) -> bytes:
    result = {"resultType": "task", "taskId": task_id, "status": "working", "ttlMs": 60_000, **more}
    return json.dumps({"jsonrpc": "2.0", "id": 1, "result": result}).encode()


def state(task_id: str, status: str = "working", **more: object) -> bytes:
    result = {"resultType": "complete", "taskId": task_id, "status": status, **more}
    return json.dumps({"jsonrpc": "2.0", "id": 1, "result": result}).encode()


UNKNOWN = b'{"jsonrpc":"2.0","id":1,"error":{"code":-32602,"message":"Task not found"}}'


class TaskBackend:
    """Makes the tasks it is told to, and knows only those; `tell` is how it says so."""

    def __init__(self, *ids: str, tell: str = "json") -> None:
        self.ids = list(ids)
        self.known: set[str] = set()
        self.asked: list[str] = []
        self._tell = tell

    async def script(self, side: BackendSide) -> None:
        while True:
            request = await side.request()
            if request.get("Mcp-Method") == "tools/call":
                task_id = self.ids.pop(0)
                self.known.add(task_id)
                self.made(side, created(task_id))
                continue
            name = decoded(request.get("Mcp-Name") or "")
            self.asked.append(name)
            side.answer(state(name) if name in self.known else UNKNOWN)

    def made(self, side: BackendSide, message: bytes) -> None:
        if self._tell == "json":
            side.answer(message, b"application/json; charset=utf-8")
        elif self._tell == "chunked":
            side.send(OK + b"Content-Type: application/json\r\nTransfer-Encoding: chunked\r\n\r\n")
            for i in range(0, len(message), 7):
                piece = message[i : i + 7]
                side.send(b"%x\r\n%b\r\n" % (len(piece), piece))
            side.send(b"0\r\n\r\n")
        elif self._tell == "until close":
            side.send(OK + b"Content-Type: application/json\r\n\r\n" + message)
            side.writer.close()
        else:
            end = {"sse": b"\n", "sse crlf": b"\r\n", "sse cr": b"\r"}[self._tell]
            body = b": hello" + end * 2 + b'data: {"method":"notifications/progress","params":{}}' + end * 2
            body += b"event: message" + end + b"data: " + message + end * 2
            side.answer(body, b"text/event-stream")


def decoded(raw: str) -> str:
    if raw.startswith("=?base64?"):
        return base64.b64decode(raw[9:-2]).decode()
    return raw


def encoded(task_id: str) -> bytes:
    return b"=?base64?" + base64.b64encode(task_id.encode()) + b"?="
