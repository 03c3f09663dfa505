"""`/api/explain`: the question is read from JSON, the answer given as JSON or, where it is asked for, as text."""

import json
from collections.abc import Awaitable, Callable
from typing import Any, TypeAlias

from aiohttp import hdrs, web

from proxy.explaining import Question
from proxy.routing.telling import Told

Explain: TypeAlias = Callable[[Question], Awaitable[Told]]
"""Raises LookupError where nobody can tell."""

_KEYS = ("method", "path", "headers", "client")


def explain_handler(explain: Explain) -> Callable[[web.Request], Awaitable[web.Response]]:
    """A handler that answers 200, or 400 to a body that is no question."""

    async def handle(request: web.Request) -> web.Response:
        try:
            question = read_question(json.loads(await request.read()))
        except (ValueError, RecursionError) as error:
            reason = str(error) if isinstance(error, _NoQuestion) else "the body is not JSON"
            raise web.HTTPBadRequest(reason=reason) from None
        try:
            told = await explain(question)
        except LookupError as error:
            raise web.HTTPServiceUnavailable(reason=str(error)) from None
        if request.headers.get(hdrs.ACCEPT) == "text/plain":
            return web.Response(text=told.text)
        return web.json_response(told.values)

    return handle


def read_question(value: Any) -> Question:
    """{method, path, headers: [[name, value], ...], client}, each of them optional. Raises ValueError."""
    if not isinstance(value, dict):
        raise _NoQuestion(f"the body is not an object with {', '.join(_KEYS)}")
    for key in value:
        if key not in _KEYS:
            raise _NoQuestion(f"unknown key {key!r}; allowed: {', '.join(_KEYS)}")
    fields = value.get("headers", [])
    if not isinstance(fields, list) or not all(_is_pair(pair) for pair in fields):
        raise _NoQuestion("headers: not a list of [name, value]")
    default = Question()
    texts = {
        key: value.get(key, given)
        for key, given in (("method", default.verb), ("path", default.target), ("client", default.client))
    }
    for key, text in texts.items():
        if not isinstance(text, str):
            raise _NoQuestion(f"{key}: not text")
    try:
        pairs = tuple((name, content) for name, content in fields)
        return Question(texts["method"], texts["path"], pairs, texts["client"])
    except UnicodeEncodeError:
        raise _NoQuestion("text with lone surrogates") from None
    except ValueError as error:
        raise _NoQuestion(str(error)) from None


class _NoQuestion(ValueError):
    """The text is fit to be shown."""


def _is_pair(value: object) -> bool:
    return isinstance(value, list) and len(value) == 2 and all(isinstance(part, str) for part in value)
