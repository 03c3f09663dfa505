"""What pins a request to a backend, and what a backend's answer teaches about owners.

Rules (Tasks extension, SEP-2663):
* Only answers to modern POSTs teach; `server/discover` and lists never do.
* An answer to `tasks/*` teaches only about the task that its own `result.taskId` names, and only if its request named
  the same: a caller may put another's id in Mcp-Name, and not every server compares the two.
* Any other answer with `result.resultType == "task"` and a `result.taskId` tells that its backend made the task.
* Only `result` itself counts, whatever a tool's output contains. Text that two JSON readers could understand
  differently (repeated keys, NaN, invalid UTF-8) teaches nothing.
"""

import json
from dataclasses import dataclass
from enum import Enum
from hashlib import blake2b
from typing import Any, NewType, NoReturn

from proxy.routing.headers import TASK_METHODS, RoutingHeaders

PinKey = NewType("PinKey", bytes)
"""A digest of pool and task id: ids may be bearer tokens (Tasks, Security Considerations), so none is kept."""

TERMINAL = frozenset({"completed", "failed", "cancelled"})
UNKNOWN_TASK = -32602
"""JSON-RPC code of a server that does not know the task (Tasks, Protocol Errors)."""
_LONGEST_TTL = 366 * 24 * 3600.0  # seconds; what a backend may ask a pin to live at most


def pin_key(pool: str, task_id: str) -> PinKey:
    """The key of a task's pin. Two pools may hold the same id; they are different tasks."""
    return PinKey(blake2b(f"{pool}\0{task_id}".encode("utf-8", "surrogatepass"), digest_size=16).digest())


def short_digest(task_id: str) -> str:
    """Ten characters that stand for the id in logs."""
    return blake2b(task_id.encode("utf-8", "surrogatepass"), digest_size=5).hexdigest()


def may_teach(request: RoutingHeaders) -> bool:
    """True if the answer to this request has to be watched as it passes."""
    method = request.method
    return request.modern and request.verb == "POST" and method != "server/discover" and not method.endswith("/list")


class Lesson(Enum):
    """What an answer says about a task."""

    CREATED = "created"
    ALIVE = "alive"
    FINISHED = "finished"
    UNKNOWN = "unknown"


@dataclass(frozen=True, slots=True)
class Learned:
    """One thing that an answer teaches."""

    lesson: Lesson
    task_id: str
    ttl: float | None = None
    """Seconds the server says it keeps the task from now on; None when it does not say, or says for ever."""
    finished: bool = False
    """True if a task was created with a terminal status."""


def learn(message: bytes, method: str, name: str | None) -> Learned | None:
    """What a JSON-RPC message teaches that answers `method` for the task `name` (decoded Mcp-Name); None for nothing.

    Raises ValueError when the message could teach something but is not strict JSON.
    """
    if not may_matter(message, method):
        return None
    answer = _strict_json(message)
    if not isinstance(answer, dict):
        return None
    if method in TASK_METHODS:
        return None if name is None else _about_task(answer, name)
    result = answer.get("result")
    if not isinstance(result, dict) or "error" in answer or result.get("resultType") != "task":
        return None
    task_id = result.get("taskId")
    if not isinstance(task_id, str) or not task_id:
        return None
    return Learned(Lesson.CREATED, task_id, _ttl(result), finished=result.get("status") in TERMINAL)


def _about_task(answer: dict[str, Any], name: str) -> Learned | None:
    error = answer.get("error")
    if isinstance(error, dict):
        return Learned(Lesson.UNKNOWN, name) if error.get("code") == UNKNOWN_TASK and "result" not in answer else None
    result = answer.get("result")
    if not isinstance(result, dict) or result.get("taskId") != name:
        return None
    return Learned(Lesson.FINISHED if result.get("status") in TERMINAL else Lesson.ALIVE, name, _ttl(result))


def may_matter(message: bytes, method: str) -> bool:
    """A cheap no for most answers: what matters names `taskId` or -32602, plainly or behind an escape."""
    return b'"taskId"' in message or b"\\u" in message or (method in TASK_METHODS and b"-32602" in message)


def _ttl(result: dict[str, Any]) -> float | None:
    value = result.get("ttlMs")
    if isinstance(value, bool) or not isinstance(value, int | float) or not value >= 0:
        return None
    return _LONGEST_TTL if value > _LONGEST_TTL * 1000 else value / 1000


def _strict_json(message: bytes) -> object:
    try:
        return json.loads(message.decode("utf-8"), object_pairs_hook=_no_repeats, parse_constant=_no_constant)
    except RecursionError:
        raise ValueError("nested too deep") from None


def _no_repeats(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    members = dict(pairs)
    if len(members) != len(pairs):
        raise ValueError("a repeated key")
    return members


def _no_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is not JSON")
