"""What may come of a request while backends are killed, and what must not: pure.

Rules:
* A request is *served*, or it fails with an error that the contract names and that a backend which is away can cause;
  errors that tell of a mistake of the client's, which it did not make, are mistakes here.
* An error of the proxy's own is whole: its status is its reason's, its body says the same reason, 503 has Retry-After.
* It has a cause: some backend was away while the request was under way.
* What a backend's own answer calls unknown, a task or a session, was lost with a life of that backend.
* Only after a head may an answer be cut, only if the backend that served it was killed, and never as if it were whole.
"""

import json
from dataclasses import dataclass, field
from typing import Any, Literal

from proxy.routing.errors import (
    BackendClosed,
    ConnectFailed,
    ConnectTimeout,
    HeadTimeout,
    IdleTimeout,
    NoBackend,
    OwnerDown,
    OwnerUnknown,
    ProxyError,
    RequestTimeout,
)
from tests.soak.outages import Outages
from tests.wire.harness import Message

NAMED: dict[str, type[ProxyError]] = {
    error.reason: error
    for error in (
        NoBackend,
        OwnerDown,
        OwnerUnknown,
        ConnectFailed,
        ConnectTimeout,
        BackendClosed,
        HeadTimeout,
        IdleTimeout,
        RequestTimeout,
    )
}
"""Errors that a request may meet here, by reason: those of a backend that dies, or of a machine that is too slow."""
UNSENT = ("no_backend", "owner_down", "connect_failed", "connect_timeout")
"""Whoever is told so may be sure that the call was not carried out."""
SERVED, UNKNOWN, CUT = "served", "unknown with its backend", "cut after its head"
LEFT, MISTAKE = "client left", "mistake"
End = Literal["whole", "cut", "refused", "silent", "left"]


@dataclass(frozen=True)
class Seen:
    """What a client saw of one request. Times are monotonic, in seconds. `body` holds what came, chunks undone."""

    began: float
    ended: float
    end: End
    head: bytes = b""
    body: bytes = b""

    @property
    def answer(self) -> Message:
        return Message(self.head, self.body)


@dataclass(frozen=True)
class Verdict:
    """`outcome`: SERVED, UNKNOWN, CUT, LEFT, MISTAKE, or an error of the proxy's, as `502 backend_closed`."""

    outcome: str
    mistake: str = ""
    message: dict[str, Any] = field(default_factory=dict)
    """The last message, where there is one."""

    @property
    def unsent(self) -> bool:
        return self.outcome.partition(" ")[2] in UNSENT


def judge(seen: Seen, outages: Outages, *, owner: str | None = None, merged: bool = False) -> Verdict:
    """`owner`: the life of a backend that has what is asked for, `b.3`. `merged`: the answer is of many backends."""
    if seen.end == "left":
        return Verdict(LEFT)
    if not seen.head or seen.end in ("refused", "silent"):
        return _mistake(f"{seen.end} {'after' if seen.head else 'before'} a head")
    answer = seen.answer
    if answer.get("Mcp-Proxy-Error") is not None:
        return _own_error(seen, outages)
    if seen.end == "cut":
        by = answer.get("X-Served-By") or "nobody"
        ended = outages.between(seen.began, seen.ended) if merged else outages.ended(by, seen.ended)
        return Verdict(CUT) if ended else _mistake(f"cut after its head, though {by} lives")
    message = last_message(answer)
    if answer.status == 200 and message is not None and "error" not in message:
        return Verdict(SERVED, "", message)
    code = (message or {}).get("error", {}).get("code")
    found = f"status {answer.status}, code {code}, by {answer.get('X-Served-By') or 'nobody'}"
    if owner is not None and (code == -32602 or answer.status == 404):
        if outages.ended(owner, seen.ended):
            return Verdict(UNKNOWN)
        return _mistake(f"{found}, though {owner} lives")
    return _mistake(found)


def _own_error(seen: Seen, outages: Outages) -> Verdict:
    answer = seen.answer
    reason = answer.get("Mcp-Proxy-Error") or ""
    error = NAMED.get(reason)
    if error is None:
        return _mistake(f"status {answer.status}, {reason}")
    try:
        said = answer.error
    except (ValueError, KeyError, TypeError, AssertionError):
        said = {}
    retry_after = None if error.retry_after is None else str(error.retry_after)
    whole = (seen.end, answer.status, answer.get("Retry-After")) == ("whole", error.status, retry_after)
    if not whole or (said.get("code"), said.get("data")) != (error.code, {"reason": reason}):
        return _mistake(f"status {answer.status}, {reason}: not as the contract has it")
    if not outages.between(seen.began, seen.ended):
        return _mistake(f"status {answer.status}, {reason}: no backend was away")
    return Verdict(f"{answer.status} {reason}")


def _mistake(what: str) -> Verdict:
    return Verdict(MISTAKE, what)


def last_message(answer: Message) -> dict[str, Any] | None:
    """The JSON-RPC message of an answer: its body, or its last event."""
    try:
        if (answer.get("Content-Type") or "").startswith("text/event-stream"):
            messages = events(answer.body)
            return messages[-1] if messages else None
        message = json.loads(answer.body)
    except ValueError:
        return None
    return message if isinstance(message, dict) else None


def events(body: bytes) -> list[dict[str, Any]]:
    """The messages of the whole events in a stream, comments left out. Raises ValueError for what is no JSON."""
    found = []
    for event in body.split(b"\n\n")[:-1]:
        data = [line[6:] for line in event.split(b"\n") if line.startswith(b"data: ")]
        if data:
            found.append(json.loads(b"\n".join(data)))
    return found


def progress_of(messages: list[dict[str, Any]]) -> list[int]:
    """The numbers that a stream's progress told, in order."""
    return [m["params"]["progress"] for m in messages if m.get("method") == "notifications/progress"]
