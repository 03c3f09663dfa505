"""Asks the admin interface of a running proxy, for the commands that need one."""

import json
from collections.abc import Mapping
from typing import Any
from urllib.parse import quote, urlsplit

import aiohttp

DEFAULT_ADMIN = "http://127.0.0.1:9901"
WAIT = 10.0
"""Seconds for a whole question and answer; the pin store has two of them."""
_LONGEST = 8 * 1024 * 1024  # bytes of an answer; backends are named by the thousand at most


class Unanswered(Exception):
    """No proxy answered, or it refused; the text says why."""


def backend_path(pool: str, backend: str, action: str) -> str:
    """The path of an action on a backend, whatever its id is made of."""
    return f"/api/backends/{quote(pool, safe='')}/{quote(backend, safe='')}/{action}"


async def post(admin: str, path: str, question: object, *, token: str | None, accept: str) -> str:
    """The text of the answer to a question in JSON. `admin`: the interface's URL, or HOST:PORT. Raises Unanswered.

    No proxy of the environment is asked and no redirection followed: the token is for the one at this URL.
    """
    base = (admin if "://" in admin else f"http://{admin}").rstrip("/")
    parts = urlsplit(base)
    if parts.scheme not in ("http", "https") or not parts.netloc or parts.query or parts.fragment:
        raise Unanswered(f"{admin!r} is not the URL of an admin interface, such as {DEFAULT_ADMIN}")
    headers = {"Accept": accept} if token is None else {"Accept": accept, "Authorization": f"Bearer {token}"}
    try:
        async with (
            aiohttp.ClientSession(trust_env=False, timeout=aiohttp.ClientTimeout(total=WAIT)) as session,
            session.post(base + path, json=question, headers=headers, allow_redirects=False) as response,
        ):
            body = await _bounded(response)
            if response.status != 200:
                raise Unanswered(f"{base} refuses: {_reason(response.status, body)}")
            return body.decode("utf-8")
    except TimeoutError:
        raise Unanswered(f"{base} does not answer within {WAIT:g} s") from None
    except aiohttp.ClientConnectorError as error:
        raise Unanswered(f"{base} cannot be reached: {error.os_error.strerror or error}") from None
    except (aiohttp.ClientError, ValueError) as error:  # ValueError: what cannot be sent, or is no text
        raise Unanswered(f"{base} cannot be asked: {str(error) or type(error).__name__}") from None


async def _bounded(response: aiohttp.ClientResponse) -> bytes:
    pieces: list[bytes] = []
    size = 0
    async for piece in response.content.iter_any():
        pieces.append(piece)
        size += len(piece)
        if size > _LONGEST:
            raise Unanswered(f"the answer has more than {_LONGEST} bytes")
    return b"".join(pieces)


def _reason(status: int, body: bytes) -> str:
    """What an admin interface says in {"error": ...}, else only the status."""
    try:
        told = json.loads(body)
    except ValueError:
        told = None
    error = told.get("error") if isinstance(told, dict) else None
    return f"{status}, {error}" if isinstance(error, str) else f"{status}, with no reason that an admin interface gives"


def standing_text(told: Mapping[str, Any]) -> str:
    """In a sentence, what a drain or undrain answered. Raises KeyError, TypeError, ValueError for anything else."""
    unfinished = told["unfinished_tasks"]
    holds = (
        _counted(told["in_flight"], "request in flight", "requests in flight"),
        "an unknown number of unfinished tasks" if unfinished is None else _counted(unfinished, "unfinished task"),
        _counted(told["recent_sessions"], "recent session"),
    )
    if told["departed"]:
        state = "is no longer configured and takes no new work"
    else:
        state = "takes no new work" if told["draining"] else "takes new work"
    empty = "; it is empty and can be stopped" if told["empty"] else ""
    return f"{told['pool']}/{told['backend']} {state}: {', '.join(holds)}{empty} ({told['note']})"


def _counted(number: int, one: str, many: str = "") -> str:
    return f"{number:d} {one if number == 1 else many or one + 's'}"
