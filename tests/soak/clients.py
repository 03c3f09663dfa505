"""Clients of five kinds, each of which asks until the run is over and has every answer judged.

A call that fails is never made again under its label: the next is another call. What is known of a task or a session
ends with an answer that calls it unknown, which must be because its backend was killed.
"""

import asyncio
import itertools
import json
import random
from typing import Any

from tests.soak.connection import Connection
from tests.soak.ledger import Ledger
from tests.soak.outages import Outages
from tests.soak.verdict import CUT, LEFT, MISTAKE, SERVED, UNKNOWN, Seen, Verdict, events, judge, progress_of
from tests.wire.harness import MODERN, post

PAUSE = (0.02, 0.12)  # seconds between two requests of a client
TRIES = 60
"""Polls in a row without a state until a task counts as lost, each after a pause of POLL."""
POLL = (0.1, 0.4)
WORKING, EVERY, LISTENING = (0.3, 5.0), (0.01, 0.15), (1.0, 6.0)
"""Seconds that a task works, between two events of a stream, and that a subscription is listened to."""
CANCELLED = 0.05
"""The chance of a task to be cancelled, before each poll."""
LEAVING = 0.05
"""The chance of a call that its client leaves early; of a call whose answer is a stream, four times that."""
SIZES = (0, 0, 2_000, 70_000)  # bytes, of requests and answers; the last is more than an answer is read for a task
LEGACY = (b"MCP-Protocol-Version: 2025-11-25", b"Content-Type: application/json")
EVERYBODY = b"/all"
"""The path of the pool in which a subscription is made at every backend."""


class Caller:
    """One client, which does one thing after the other. A kind of client is a class, and says what a `turn` is."""

    def __init__(self, number: int, port: int, ledger: Ledger, outages: Outages, rng: random.Random) -> None:
        self._number = number
        self._port = port
        self._ledger = ledger
        self._outages = outages
        self._rng = rng
        self._connection = Connection(port, rng)
        self._labels = itertools.count()
        self._over = asyncio.Event()

    async def run(self, over: asyncio.Event) -> None:
        """Turn after turn; the one that is under way when the run is over is brought to its end."""
        self._over = over
        try:
            while not over.is_set():
                await self.turn()
                await asyncio.sleep(self._rng.uniform(*PAUSE))
        finally:
            self._connection.close()

    async def turn(self) -> None:
        raise NotImplementedError

    def label(self) -> str:
        """A new one."""
        return f"{type(self).__name__}-{self._number}/{next(self._labels)}"

    def judged(
        self, kind: str, seen: Seen, *, label: str | None = None, owner: str | None = None, merged: bool = False
    ) -> Verdict:
        """The verdict, once it is in the ledger."""
        verdict = judge(seen, self._outages, owner=owner, merged=merged)
        self._ledger.note(kind, verdict, label, seen.ended - seen.began)
        return verdict

    def expect(self, right: bool, kind: str, what: object) -> None:
        """What an answer says must be so."""
        if not right:
            self._ledger.mistake(kind, str(what))


class Calls(Caller):
    """Small and large calls, some of which nobody waits for."""

    async def turn(self) -> None:
        label, size = self.label(), self._rng.choice(SIZES)
        arguments = {"label": label, "think": self._rng.uniform(0, 0.05), "bytes": size}
        request = call("quick", arguments, padding=self._rng.choice(SIZES))
        leave_after = self._rng.uniform(0, 0.06) if self._rng.random() < LEAVING else None
        verdict = self.judged("call", await self._connection.ask(request, leave_after=leave_after), label=label)
        if verdict.outcome == SERVED:
            result = verdict.message["result"]
            self.expect((result["label"], len(result["text"])) == (label, size), "call", f"answered {result['label']}")


class Streams(Caller):
    """Calls that tell their progress, event by event."""

    async def turn(self) -> None:
        label, number = self.label(), self._rng.randint(1, 40)
        request = call("stream", {"label": label, "events": number, "every": self._rng.uniform(*EVERY)})
        leave_after = self._rng.uniform(0, 2.0) if self._rng.random() < 4 * LEAVING else None
        seen = await self._connection.ask(request, leave_after=leave_after)
        verdict = self.judged("stream", seen, label=label)
        if verdict.outcome in (SERVED, CUT, LEFT):
            told = progress_of(events(seen.body))
            self.expect(told == list(range(1, len(told) + 1)), "stream", f"told {told}")
        if verdict.outcome == SERVED:
            result = verdict.message.get("result", {})
            self.expect((result.get("label"), len(told)) == (label, number), "stream", "ended without its result")


class Tasks(Caller):
    """Calls that become tasks, which are polled to their end; some are cancelled. Every third poll is on a new line."""

    async def turn(self) -> None:
        label = self.label()
        request = call("work", {"label": label, "seconds": self._rng.uniform(*WORKING)})
        verdict = self.judged("task", await self._connection.ask(request), label=label)
        if verdict.outcome == SERVED:
            await self._follow(verdict.message["result"])

    async def _follow(self, task: dict[str, Any]) -> None:
        tries, cancelled = 0, False
        while tries < TRIES:
            await asyncio.sleep(self._rng.uniform(*POLL))
            if not cancelled and self._rng.random() < CANCELLED:
                cancelled = await self._cancel(task)
            if self._rng.randrange(3) == 0:
                self._connection.close()
            seen = await self._connection.ask(about("tasks/get", task["taskId"]))
            verdict = self.judged("poll", seen, owner=task["by"])
            if verdict.outcome in (UNKNOWN, MISTAKE):
                return
            tries += 1
            if verdict.outcome == SERVED:
                tries, state = 0, verdict.message["result"]
                right = (state["taskId"], state["by"]) == (task["taskId"], task["by"])
                self.expect(right, "poll", f"one of {state['by']} was told for one of {task['by']}")
                self.expect(not cancelled or state["status"] == "cancelled", "poll", "a cancelled task goes on")
                if state["status"] != "working":
                    return
        self._ledger.mistake("poll", "a task was lost")

    async def _cancel(self, task: dict[str, Any]) -> bool:
        label = self.label()
        seen = await self._connection.ask(about("tasks/cancel", task["taskId"], label=label))
        return self.judged("cancel", seen, label=label, owner=task["by"]).outcome == SERVED


class Sessions(Caller):
    """Sessions of older clients: some calls, beside a stream of the session's, and its end."""

    async def turn(self) -> None:
        body = json.dumps({"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": {}}).encode()
        seen = await self._connection.ask(post(LEGACY[1], body=body))
        session = seen.answer.get("Mcp-Session-Id") if seen.head else None
        verdict = self.judged("initialize", seen)
        if verdict.outcome == SERVED:
            self.expect(session is not None, "initialize", "no session")
            owner, fields = verdict.message["result"]["by"], (*LEGACY, b"Mcp-Session-Id: %b" % (session or "").encode())
            async with asyncio.TaskGroup() as group:
                group.create_task(self._listen(fields, owner))
                using = group.create_task(self._use(fields, owner))
            if using.result():
                seen = await self._connection.ask(bodiless(b"DELETE", fields))
                self.judged("session end", seen, owner=owner)

    async def _use(self, fields: tuple[bytes, ...], owner: str) -> bool:
        """False once the session is gone."""
        count = 0
        for attempt in range(1, self._rng.randint(3, 30)):
            label = self.label()
            seen = await self._connection.ask(call("quick", {"label": label}, fields=fields))
            verdict = self.judged("session call", seen, label=label, owner=owner)
            if verdict.outcome in (UNKNOWN, MISTAKE):
                return False
            if verdict.outcome == SERVED:
                result = verdict.message["result"]
                right = result["by"] == owner and count < result["count"] <= attempt
                self.expect(right, "session call", f"call {attempt} counted {result['count']} by {result['by']}")
                count = result["count"]
            await asyncio.sleep(self._rng.uniform(*PAUSE))
        return True

    async def _listen(self, fields: tuple[bytes, ...], owner: str) -> None:
        connection = Connection(self._port, self._rng)
        seen = await connection.ask(bodiless(b"GET", fields), leave_after=self._rng.uniform(0.2, 2.0))
        connection.close()
        verdict = self.judged("session stream", seen, owner=owner)
        self.expect(verdict.outcome != SERVED, "session stream", "ended as if its backend had ended it")
        problem = listened(events(seen.body))
        self.expect(problem is None, "session stream", problem)


class Listeners(Caller):
    """Subscriptions at one backend, and at all of them merged, in turn."""

    async def turn(self) -> None:
        merged = self._rng.random() < 0.5
        body = json.dumps({"jsonrpc": "2.0", "id": 1, "method": "subscriptions/listen"}).encode()
        target = EVERYBODY if merged else b"/mcp"
        request = post(*MODERN, b"Mcp-Method: subscriptions/listen", body=body, target=target)
        seen = await self._connection.ask(request, leave_after=self._rng.uniform(*LISTENING))
        kind = "listen to all" if merged else "listen"
        verdict = self.judged(kind, seen, merged=merged)
        self.expect(verdict.outcome != SERVED, kind, "ended as if a backend had ended it")
        if not (seen.head and seen.answer.status == 200):
            return
        messages = events(seen.body)
        acknowledged = bool(messages) and messages[0]["method"] == "notifications/subscriptions/acknowledged"
        self.expect(acknowledged or not messages, kind, "events before the acknowledgement")
        problem = listened(messages[1:])
        self.expect(problem is None, kind, problem)
        self._ledger.counts[f"{kind}: events"] += len(messages)


def listened(messages: list[dict[str, Any]]) -> str | None:
    """What is wrong with these notifications: of each backend's, none may be missing, twice, or out of order."""
    latest: dict[str, int] = {}
    for message in messages:
        by, number = message["params"]["by"], message["params"]["number"]
        if number != latest.get(by, 0) + 1:
            return f"event {number} of {by} after {latest.get(by, 0)}"
        latest[by] = number
    return None


def call(tool: str, arguments: dict[str, Any], *, fields: tuple[bytes, ...] = MODERN, padding: int = 0) -> bytes:
    """A tools/call. Its headers say so as well, which older backends do not look at."""
    params = {"name": tool, "arguments": arguments, "padding": "x" * padding}
    body = json.dumps({"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params}).encode()
    return post(*fields, b"Mcp-Method: tools/call", b"Mcp-Name: " + tool.encode(), body=body)


def about(method: str, task_id: str, **params: str) -> bytes:
    """A request about a task."""
    message = {"jsonrpc": "2.0", "id": 1, "method": method, "params": {"taskId": task_id, **params}}
    names = (b"Mcp-Method: " + method.encode(), b"Mcp-Name: " + task_id.encode())
    return post(*MODERN, *names, body=json.dumps(message).encode())


def bodiless(verb: bytes, fields: tuple[bytes, ...]) -> bytes:
    return b"\r\n".join((verb + b" /mcp HTTP/1.1", b"Host: mcp.test", *fields, b"", b""))


KINDS: dict[type[Caller], int] = {Calls: 10, Streams: 16, Tasks: 16, Sessions: 8, Listeners: 8}
"""How many clients there are of each."""
