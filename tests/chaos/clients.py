"""Clients that make tasks and poll them to their end, whatever happens to the proxies in between.

Each has a kept connection to every proxy and asks them in turn, now and then over a new connection. A poll that is
answered 503, or whose connection is refused or cut, is made again at the next proxy after a moment; so is a call, as a
new call: the one before may have made an orphan.
"""

import asyncio
import heapq
import itertools
import json
import random
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from tests.chaos.ledger import Ledger, Task
from tests.wire.harness import MODERN, Client, Message, post, read_body

TRIES = 150
"""Polls in a row without an answer until a client gives a task up for lost, each after a pause of PAUSE."""
PAUSE = (0.1, 0.3)  # seconds, drawn anew each time: clients that were cut together do not come back together
EVERY = (0.4, 0.8)  # seconds between two polls of a task
FRESH = 8
"""One request in so many goes over a new connection."""
SILENCE = 15.0
"""Seconds after which a request without an answer counts as such: more than any owner or search is waited for."""


@dataclass(frozen=True, slots=True, order=True)
class Plan:
    """A task that is to be made: when, in seconds from the start, and for how many seconds it works."""

    at: float
    seconds: float


class Gone(Exception):
    """There was no answer; `kind` says why."""

    def __init__(self, kind: str) -> None:
        self.kind = kind


class Caller:
    """One client. `ports` are those of the proxies; `keep` is for how many seconds a finished task is promised."""

    def __init__(self, number: int, ports: Sequence[int], ledger: Ledger, rng: random.Random, keep: float) -> None:
        self._number = number
        self._ports = ports
        self._ledger = ledger
        self._rng = rng
        self._keep = keep
        self._kept: dict[int, Client] = {}
        self._turns = itertools.count(number)
        self._calls = itertools.count()
        self._agenda: list[tuple[float, int, Task | Plan]] = []

    async def run(self, plans: Sequence[Plan]) -> None:
        """Until every task is over or given up."""
        start = time.monotonic()
        for plan in plans:
            self._add(start + plan.at, plan)
        try:
            while self._agenda:
                due, _, what = heapq.heappop(self._agenda)
                await asyncio.sleep(max(0.0, due - time.monotonic()))
                if isinstance(what, Task):
                    await self._poll(what)
                else:
                    await self._call(what)
        finally:
            for client in self._kept.values():
                client.close()

    def _add(self, due: float, what: Task | Plan) -> None:
        heapq.heappush(self._agenda, (due, next(self._calls), what))

    def _again(self, what: Task | Plan) -> None:
        self._add(time.monotonic() + self._rng.uniform(*PAUSE), what)

    # ---- the two requests
    async def _call(self, plan: Plan) -> None:
        label = f"{self._number}/{next(self._calls)}"
        arguments = {"seconds": plan.seconds, "keep": self._keep, "label": label}
        ends = time.monotonic() + plan.seconds  # or later: by the backend's clock it begins when the call arrives
        through, answer = await self._ask("tools/call", "work", {"name": "work", "arguments": arguments})
        result = self._result(answer, None, through)
        if result is None:
            self._again(plan)
            return
        task = Task(result["taskId"], result["_meta"]["backend"], through, ends)
        self._ledger.made(task)
        self._add(time.monotonic() + self._rng.uniform(*EVERY), task)

    async def _poll(self, task: Task) -> None:
        through, answer = await self._ask("tasks/get", task.id, {"taskId": task.id})
        result = self._result(answer, task, through)
        if result is None:
            task.tries += 1
            if task.tries < TRIES:
                self._again(task)
            return
        task.tries = 0
        self._ledger.counts["polls"] += 1
        if (result["taskId"], result["_meta"]["backend"]) != (task.id, task.backend):
            self._ledger.mistake("astray", task, through, f"answered by {result['_meta']['backend']}")
        task.done = result["status"] == "completed"
        if not task.done:
            self._add(time.monotonic() + self._rng.uniform(*EVERY), task)

    def _result(self, answer: Message | None, task: Task | None, through: int) -> dict[str, Any] | None:
        """The result in an answer; None if there is none, which is counted or noted for what it is."""
        if answer is None:
            return None
        if answer.status == 503 and answer.get("Retry-After"):
            self._ledger.counts[f"503 {answer.get('Mcp-Proxy-Error')}"] += 1
            return None
        try:
            message = last_message(answer)
        except ValueError:
            message = {}
        result = message.get("result")
        if answer.status == 200 and isinstance(result, dict):
            return result
        code = message.get("error", {}).get("code")
        kind = "wrong" if task is not None and code == -32602 else "strange"
        reason = answer.get("Mcp-Proxy-Error") or "from a backend"
        self._ledger.mistake(kind, task, through, f"status {answer.status}, code {code}, {reason}")
        return None

    # ---- connections
    async def _ask(self, method: str, name: str, params: dict[str, object]) -> tuple[int, Message | None]:
        """The number of the proxy whose turn it was, and its answer, if there was one."""
        turn = next(self._turns)
        through = turn % len(self._ports)
        if turn // len(self._ports) % FRESH == 0 and through in self._kept:
            self._kept.pop(through).close()
        body = json.dumps({"jsonrpc": "2.0", "id": turn, "method": method, "params": params}).encode()
        request = post(*MODERN, b"Mcp-Method: " + method.encode(), b"Mcp-Name: " + name.encode(), body=body)
        try:
            return through, await self._exchange(through, request)
        except Gone as gone:
            self._ledger.unanswered(f"{gone.kind} {'poll' if method == 'tasks/get' else 'call'}")
            return through, None

    async def _exchange(self, through: int, request: bytes) -> Message:
        client = self._kept.pop(through, None)
        if client is not None and client.reader.at_eof():  # closed while it was idle, as any server may
            client.close()
            client = None
        try:
            async with asyncio.timeout(SILENCE):
                if client is None:
                    client = await connected(self._ports[through])
                client.send(request)
                head = await client.reader.readuntil(b"\r\n\r\n")
                answer = Message(head, await read_body(client.reader, head))
        except (ConnectionError, asyncio.IncompleteReadError):
            if client is not None:
                client.close()
            raise Gone("refused" if client is None else "cut") from None
        except TimeoutError:
            if client is not None:
                client.close()
            raise Gone("unanswered") from None
        if answer.get("Connection") == "close":
            client.close()
        else:
            self._kept[through] = client
        return answer


async def connected(port: int) -> Client:
    """A connection to this port. Raises ConnectionError."""
    return Client(*await asyncio.open_connection("127.0.0.1", port, limit=2**20))


def last_message(answer: Message) -> dict[str, Any]:
    """The JSON-RPC message of an answer: its body, or its last event. Raises ValueError."""
    text = answer.body.decode()
    if (answer.get("Content-Type") or "").startswith("text/event-stream"):
        text = text.rstrip().rpartition("data: ")[2]
    message = json.loads(text)
    if not isinstance(message, dict):
        raise ValueError("no message")
    return message
