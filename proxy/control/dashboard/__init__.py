"""Serves the dashboard: one page, its style and its scripts, from the files beside this one.

The files hold no data and are open to everybody whom the Host rule lets in: a browser cannot show a token when it is
pointed at a page. The page asks for the token, and shows it with everything it fetches.
"""

from collections.abc import Awaitable, Callable
from pathlib import Path

from aiohttp import hdrs, web

PREFIX = "/dashboard/"
"""Where the files are, beside the page itself."""

_FOLDER = Path(__file__).parent
_TYPES = {".html": "text/html", ".css": "text/css", ".js": "text/javascript", ".svg": "image/svg+xml"}
_POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; base-uri 'none'; "
    "form-action 'none'; frame-ancestors 'none'; require-trusted-types-for 'script'; trusted-types 'none'"
)
_FIELDS = {
    "Content-Security-Policy": _POLICY,
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
    # A few tens of kilobytes, once per visit; a page of one version must not meet the scripts of another.
    hdrs.CACHE_CONTROL: "no-store",
    hdrs.VARY: hdrs.ACCEPT,
}

Page = Callable[[web.Request], Awaitable[web.Response]]


def dashboard_files() -> dict[str, Page]:
    """A handler for each file by its name; `index.html` is the page. Reads them all."""
    return {path.name: _serving(path) for path in sorted(_FOLDER.iterdir()) if path.suffix in _TYPES}


def wants_page(request: web.Request) -> bool:
    """True for a browser that was pointed here: it names HTML among what it accepts, which other clients do not."""
    return "text/html" in request.headers.get(hdrs.ACCEPT, "").lower()


def _serving(path: Path) -> Page:
    body, content_type = path.read_bytes(), _TYPES[path.suffix]

    async def serve(request: web.Request) -> web.Response:
        return web.Response(body=body, content_type=content_type, charset="utf-8", headers=_FIELDS)

    return serve
