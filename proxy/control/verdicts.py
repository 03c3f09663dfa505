"""What a probe's answer says of the backend."""

import json
from typing import NamedTuple

_NO_SERVER = frozenset({404, 405, 410})
"""Where there is no MCP server, whatever there is answers so."""


class Verdict(NamedTuple):
    """Whether a probe was answered well, and what it found, in words for operators."""

    good: bool
    said: str


def of_get(status: int) -> Verdict:
    """Of the answer to a GET."""
    if 300 <= status < 400:
        return Verdict(False, f"answered {status}, which is not followed")
    return Verdict(200 <= status < 300, f"answered {status}")


def of_discovery(status: int, body: bytes) -> Verdict:
    """Of a whole answer to `server/discover`."""
    if status >= 500 or status < 200:
        return Verdict(False, f"answered {status}")
    if 300 <= status < 400:
        return Verdict(False, f"answered {status}, which is not followed")
    told = _told(body)
    if told is not None:
        return Verdict(True, f"answered {status} with {told}")
    if status >= 400 and status not in _NO_SERVER:
        return Verdict(True, f"refused the probe with {status}")
    return Verdict(False, f"answered {status}, and not as an MCP server")


def of_events(status: int, body: bytes) -> Verdict | None:
    """Of as much of an event stream as has come; None while more has to come for one."""
    for event in body.replace(b"\r\n", b"\n").replace(b"\r", b"\n").split(b"\n\n")[:-1]:
        lines = [line.removeprefix(b"data:") for line in event.split(b"\n") if line.startswith(b"data:")]
        if lines and _told(b"\n".join(lines)) is not None:
            return of_discovery(status, b"\n".join(lines))
    return None


def _told(body: bytes) -> str | None:
    """What kind of JSON-RPC answer this is; None if it is none."""
    try:
        answer = json.loads(body)
    except (ValueError, RecursionError):
        return None
    if not isinstance(answer, dict) or answer.get("jsonrpc") != "2.0":
        return None
    if "result" in answer:
        return "a result"
    error = answer.get("error")
    code = error.get("code") if isinstance(error, dict) else None
    return f"error {code}" if isinstance(code, int) else None
