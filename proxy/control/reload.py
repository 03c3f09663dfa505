"""`/api/reload`: puts the changed configuration in force, or says why not."""

from collections.abc import Awaitable, Callable
from typing import TypeAlias

from aiohttp import web

Reload: TypeAlias = Callable[[], str | None]
"""Puts the configuration in force as its file is now; None, or the mistakes for which the one before stays."""


def reload_handler(reload: Reload) -> Callable[[web.Request], Awaitable[web.Response]]:
    """A handler that answers 200 once it is in force, 409 with the mistakes if it is refused."""

    async def handle(request: web.Request) -> web.Response:
        mistakes = reload()
        if mistakes is None:
            return web.json_response({"reloaded": True})
        return web.json_response({"error": "the configuration is refused", "mistakes": mistakes}, status=409)

    return handle


def nothing_to_read() -> str | None:
    """The Reload of a configuration that came from no file."""
    return "the configuration came from no file"
