"""What pins a request to a backend, and what a backend's answer teaches about owners.

Rules (Tasks extension, SEP-2663):
* Only answers to modern POSTs teach; `server/discover` and lists never do.
* An answer to `tasks/*` teaches only about the task that its own `result.taskId` names, and only if its request named
  the same: a caller may put another's id in Mcp-Name, and not every server compares the two.
* Any other answer with `result.resultType == "task"` and a `result.taskId` tells that its backend made the task.
* `result.resultType == "input_required"` tells that its backend asks back: the retry belongs to it ([M]).
* Only `result` itself counts, whatever a tool's output contains. Text that two JSON readers could understand
  differently (repeated keys, NaN, invalid UTF-8) teaches nothing.
"""

import json
from enum import Enum
from functools import lru_cache
from hashlib import blake2b
from typing import Any, NamedTuple, NewType, NoReturn

from proxy.routing.headers import TASK_METHODS, RoutingHeaders

PinKey = NewType("PinKey", bytes)
"""A digest of pool and task id: ids may be bearer tokens (Tasks, Security Considerations), so none is kept."""

TERMINAL = frozenset({"completed", "failed", "cancelled"})
UNKNOWN_TASK = -32602
"""JSON-RPC code of a server that does not know the task (Tasks, Protocol Errors)."""
_LONGEST_TTL = 366 * 24 * 3600.0  # seconds; what a backend may ask a pin to live at most


def pin_key(pool: str, task_id: str) -> PinKey:
    """The key of a task's pin. Two pools may hold the same id; they are different tasks."""
    digest = _begun(pool).copy()
    digest.update(task_id.encode("utf-8", "surrogatepass"))
    return PinKey(digest.digest())


@lru_cache(maxsize=256)
def _begun(pool: str) -> "blake2b":
    """The digest of what all keys of a pool begin with; to be copied, which takes half the time."""
    return blake2b(f"{pool}\0".encode(), digest_size=16)


def short_digest(task_id: str) -> str:
    """Ten characters that stand for the id in logs."""
    return blake2b(task_id.encode("utf-8", "surrogatepass"), digest_size=5).hexdigest()


def may_teach(request: RoutingHeaders) -> bool:
    """True if the answer to this request has to be watched as it passes."""
    method = request.method
    return request.modern and request.verb == "POST" and method != "server/discover" and not method.endswith("/list")


_TAG_LENGTH = 10  # hex digits; a pool of thousands of backends has no two alike


def session_tag(pool: str, backend: str) -> str:
    """What stands before the ids of a backend's sessions: a locator that any replica can read, not a credential."""
    return blake2b(f"{pool}\0{backend}".encode(), digest_size=_TAG_LENGTH // 2).hexdigest()


def split_session(session: str) -> tuple[str, str]:
    """(tag, the backend's own id) of an Mcp-Session-Id that a client sends; the tag is empty if there is none."""
    tag, dot, own = session.partition(".")
    return (tag, own) if dot and len(tag) == _TAG_LENGTH else ("", session)


class Lesson(Enum):
    """What an answer says about a task, or about a request of several rounds."""

    ASKED = "asked"
    CREATED = "created"
    ALIVE = "alive"
    FINISHED = "finished"
    UNKNOWN = "unknown"


class Learned(NamedTuple):
    """One thing that an answer teaches. A tuple, because one is made for every task."""

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
    answer = strict_json(message)
    if not isinstance(answer, dict):
        return None
    if method in TASK_METHODS:
        return None if name is None else _about_task(answer, name)
    result = answer.get("result")
    if not isinstance(result, dict) or "error" in answer:
        return None
    if result.get("resultType") == "input_required":
        return Learned(Lesson.ASKED, "")
    if result.get("resultType") != "task":
        return None
    task_id = result.get("taskId")
    if not isinstance(task_id, str) or not task_id:
        return None
    return Learned(Lesson.CREATED, task_id, _ttl(result), finished=_is_over(result))


def _about_task(answer: dict[str, Any], name: str) -> Learned | None:
    error = answer.get("error")
    if isinstance(error, dict):
        code = error.get("code")
        unknown = isinstance(code, int) and code == UNKNOWN_TASK and "result" not in answer
        return Learned(Lesson.UNKNOWN, name) if unknown else None
    result = answer.get("result")
    if not isinstance(result, dict) or result.get("taskId") != name:
        return None
    return Learned(Lesson.FINISHED if _is_over(result) else Lesson.ALIVE, name, _ttl(result))


def _is_over(task: dict[str, Any]) -> bool:
    status = task.get("status")
    return isinstance(status, str) and status in TERMINAL


def may_matter(message: bytes, method: str) -> bool:
    """A cheap no for most answers: what matters names one of these words, plainly or behind an escape.

    Asked of every watched answer. The first look is for a single byte that is rare in JSON, as a number: that takes a
    twentieth of the time of looking for a word.
    """
    if _I in message and message.find(b'"taskId"') >= 0:
        return True
    if _BACKSLASH in message and message.find(b"\\u") >= 0:
        return True
    if method in TASK_METHODS:
        return _MINUS in message and message.find(b"-32602") >= 0
    return _UNDERSCORE in message and message.find(b"input_required") >= 0


def may_change(message: bytes, ttl: float | None) -> bool:
    """A cheap no for most answers about a task: False if all that this one can tell is that the task is at work, with
    this ttl, in seconds, as was known.
    """
    if _BACKSLASH in message and message.find(b"\\u") >= 0:
        return True
    if message.count(b'"status"') != 1 or message.find(b'"status":"working"') < 0:
        return True
    told = b'"ttlMs":null' if ttl is None else b'"ttlMs":%d' % round(ttl * 1000)
    at = message.rfind(told)
    if at < 0:
        return ttl is not None or message.find(b'"ttlMs"') >= 0
    return message[at + len(told) : at + len(told) + 1] not in (b",", b"}")


_I, _BACKSLASH, _UNDERSCORE, _MINUS = b"I\\_-"


def _ttl(result: dict[str, Any]) -> float | None:
    value = result.get("ttlMs")
    if isinstance(value, bool) or not isinstance(value, int | float) or not value >= 0:
        return None
    return _LONGEST_TTL if value > _LONGEST_TTL * 1000 else value / 1000


def strict_json(message: bytes) -> object:
    """The value of a JSON text that all readers understand alike. Raises ValueError for any other."""
    try:
        return _STRICT.decode(message.decode("utf-8"))
    except RecursionError:
        raise ValueError("nested too deep") from None


def _no_repeats(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    members = dict(pairs)
    if len(members) != len(pairs):
        raise ValueError("a repeated key")
    return members


def _no_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is not JSON")


_STRICT = json.JSONDecoder(object_pairs_hook=_no_repeats, parse_constant=_no_constant)
