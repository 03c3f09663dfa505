"""Creates tasks at a URL, polls each to its end, and tells who made and who answered what."""

import asyncio
import enum
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import aiohttp

from proxy.demo.messages import CAPABILITIES_KEY, TASKS_EXTENSION, UNKNOWN_TASK, VERSION, VERSION_KEY, Json

SHORTEST, LONGEST = 0.1, 0.6  # seconds of computing: long enough for several polls, short enough to wait for
MAX_POLLS = 200
CALL_LIMIT = 30.0  # seconds; far beyond what any call here takes
NOBODY = "-"
UNANSWERED = (aiohttp.ClientError, TimeoutError, ValueError)
"""What `call` raises: no answer, or none that can be read."""


class Fate(enum.Enum):
    """How a task ended, as its client sees it."""

    COMPLETED = "completed"
    LOST = "lost"  # a server that does not have the task said so, and a client takes that as final
    FAILED = "failed"  # anything else: no connection, an error of the proxy's own, no end in sight


@dataclass(frozen=True, slots=True)
class TaskRecord:
    """One task: who made it, who answered its polls, in order, and how it ended."""

    task_id: str = field(repr=False)  # a secret: servers may take it as a bearer token
    creator: str
    pollers: tuple[str, ...]
    fate: Fate
    reason: str = ""


@dataclass(frozen=True, slots=True)
class Outcome:
    """All tasks of one run."""

    tasks: tuple[TaskRecord, ...]

    def count(self, fate: Fate) -> int:
        """How many tasks ended so."""
        return sum(task.fate is fate for task in self.tasks)


@dataclass(frozen=True, slots=True)
class Answer:
    """What a call was answered: a result, or an error's code and reason."""

    served_by: str
    result: Json | None
    error_code: int | None
    reason: str


async def run_tasks(url: str, n: int, concurrency: int) -> Outcome:
    """Runs `n` tasks, at most `concurrency` at a time, over connections that they share.

    A task that fails is a record, not an exception.
    """
    gate = asyncio.Semaphore(concurrency)
    connector = aiohttp.TCPConnector(limit=concurrency)
    timeout = aiohttp.ClientTimeout(total=CALL_LIMIT)
    async with aiohttp.ClientSession(connector=connector, timeout=timeout) as session:

        async def one(number: int) -> TaskRecord:
            async with gate:
                return await run_task(session, url, seconds=SHORTEST + (LONGEST - SHORTEST) * (number % 6) / 5)

        return Outcome(tuple(await asyncio.gather(*(one(number) for number in range(n)))))


def count_lost_by_hash(
    outcome: Outcome, backend_ids: Sequence[str], hash_owner: Callable[[str, Sequence[str]], str]
) -> int:
    """How many tasks a proxy that only hashes task ids would have sent to a server that did not make them.

    `hash_owner(task_id, backend_ids)` names the server that such a proxy would choose.
    """
    made = [task for task in outcome.tasks if task.creator != NOBODY]
    return sum(hash_owner(task.task_id, backend_ids) != task.creator for task in made)


def report(outcome: Outcome, lost_by_hash: int) -> str:
    """The table "who served what", and beside it what plain hashing would have lost. Shows no task id."""
    made = Counter(task.creator for task in outcome.tasks if task.creator != NOBODY)
    own = Counter(poller for task in outcome.tasks for poller in task.pollers if poller == task.creator)
    foreign = Counter(poller for task in outcome.tasks for poller in task.pollers if poller != task.creator)
    total = len(outcome.tasks)
    lines = [f"{'server':<8}{'tasks made':>12}{'polls of its own':>19}{'polls of others':>18}"]
    for name in sorted(made | own | foreign):
        lines.append(f"{name:<8}{made[name]:>12}{own[name]:>19}{foreign[name]:>18}")
    lines += [
        "",
        f"completed through the proxy:                {outcome.count(Fate.COMPLETED)} of {total}",
        f"would be lost by hashing the task id alone: {lost_by_hash} of {made.total()}",
    ]
    if lost := outcome.count(Fate.LOST):
        lines.append(f"lost, a server did not know the task:       {lost} of {total}")
    for reason, times in sorted(Counter(task.reason for task in outcome.tasks if task.fate is Fate.FAILED).items()):
        lines.append(f"failed, {reason}: {times} of {total}")
    return "\n".join(lines)


async def run_task(session: aiohttp.ClientSession, url: str, *, seconds: float) -> TaskRecord:
    """Makes one task of this length and polls it to its end. Raises nothing that a server or a proxy could cause."""
    creator, task_id, pollers = NOBODY, "", list[str]()

    def ended(fate: Fate, reason: str = "") -> TaskRecord:
        return TaskRecord(task_id, creator, tuple(pollers), fate, reason)

    try:
        arguments = {"name": "slow_compute", "arguments": {"seconds": seconds}}
        created = await call(session, url, "tools/call", arguments, name="slow_compute")
        if created.result is None or created.result["resultType"] != "task":
            return ended(Fate.FAILED, created.reason or "the answer is not a task")
        creator, task_id = created.served_by, created.result["taskId"]
        pause = created.result["pollIntervalMs"] / 1000
        for _ in range(MAX_POLLS):
            polled = await call(session, url, "tasks/get", {"taskId": task_id}, name=task_id)
            pollers.append(polled.served_by)
            if polled.error_code == UNKNOWN_TASK:
                return ended(Fate.LOST)
            if polled.result is None:
                return ended(Fate.FAILED, polled.reason)
            if polled.result["status"] == "completed":
                return ended(Fate.COMPLETED)
            await asyncio.sleep(pause)
        return ended(Fate.FAILED, f"not completed after {MAX_POLLS} polls")
    except (*UNANSWERED, LookupError, TypeError) as error:  # the latter: an odd answer
        return ended(Fate.FAILED, type(error).__name__)


async def call(session: aiohttp.ClientSession, url: str, method: str, params: Json, *, name: str) -> Answer:
    """One request, as a client of 2026-07-28 that takes tasks makes it. `name`: as in Mcp-Name, or empty.

    Raises what is in UNANSWERED.
    """
    meta: Json = {VERSION_KEY: VERSION, CAPABILITIES_KEY: {"extensions": {TASKS_EXTENSION: {}}}}
    message = {"jsonrpc": "2.0", "id": 1, "method": method, "params": params | {"_meta": meta}}
    headers = {
        "Accept": "application/json, text/event-stream",
        "MCP-Protocol-Version": VERSION,
        "Mcp-Method": method,
    } | ({"Mcp-Name": name} if name else {})
    async with session.post(url, json=message, headers=headers) as response:
        body = await response.json(content_type=None)
        if not isinstance(body, dict):
            raise ValueError("not a JSON-RPC response")
        error = body.get("error", {})
        return Answer(
            served_by=response.headers.get("Served-By", NOBODY),
            result=body.get("result"),
            error_code=error.get("code"),
            reason=response.headers.get("Mcp-Proxy-Error", f"HTTP {response.status}"),
        )
