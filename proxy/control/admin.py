"""The admin interface: health, metrics, how the pools stand, and what operators do to them, for those who may.

Rules:
* /metrics, /healthz, /readyz and the dashboard's files are open; /api needs the token, where one is set.
* Every request names this server in Host (a page elsewhere can point its own name at our address), and comes from no
  other origin's page. What changes something, or has a body, is a POST of JSON, which no page's form can send.
* No answer holds a token, a task's id or a client's data; nor does the log, of requests that cannot be read.
* Connections are few, and who comes is heard: nobody can take the descriptors that clients need, or shut operators out.
"""

import asyncio
import hmac
import logging
import re
import socket
from collections.abc import Awaitable, Callable, Collection, Mapping
from ipaddress import IPv4Address, IPv6Address, ip_address
from typing import Protocol

from aiohttp import hdrs, web
from aiohttp.http import HttpProcessingError
from aiohttp.typedefs import Handler, Middleware

from proxy.control.backends import Backends, SetDraining
from proxy.control.dashboard import PREFIX, Page, dashboard_files, wants_page
from proxy.control.explain import Explain, explain_handler
from proxy.control.overview import Numbers, Overview
from proxy.control.reload import Reload, reload_handler
from proxy.pins.store import PinStore
from proxy.routing.pools import Pool

PATHS = ("/metrics", "/healthz", "/readyz", "/api/pools", "/api/pools/{pool}/spread", "/api/overview")
POSTS = ("/api/backends/{pool}/{id}/drain", "/api/backends/{pool}/{id}/undrain", "/api/explain", "/api/reload")
MOST_CONNECTIONS = 64
"""Of them all; scrapers, probes, dashboards and commands are few, and clients need the descriptors."""
SHUTDOWN_WAIT = 1.0
"""Seconds that answers under way have at the end; a scrape takes some milliseconds."""

_AUTHORITY = re.compile(r"(?:(https?)://)?(\[[0-9a-f:.]+\]|[^\s:/?#@\[\]]+)(?::([0-9]{1,5}))?", re.ASCII)
_DEFAULT_PORT = {"http": 80, "https": 443}
_FIELDS = {
    hdrs.CACHE_CONTROL: "no-store",
    hdrs.SERVER: "mcp-routing-proxy",  # not whose code serves it, and in which version
    "Cross-Origin-Resource-Policy": "same-origin",
    "X-Content-Type-Options": "nosniff",
}
"""Of all answers, for browsers and caches on the way."""

log = logging.getLogger("proxy.admin")


class Scrape(Numbers, Protocol):
    """What /metrics answers, and the numbers behind it."""

    async def render(self) -> tuple[bytes, str]:
        """The text and its content type. Never raises."""
        ...


def admin_app(
    *,
    metrics: Scrape,
    pools: Callable[[], Mapping[str, Pool]],
    pins: PinStore,
    refresh: Callable[[], Awaitable[None]],
    set_draining: SetDraining,
    explain: Explain,
    reload: Reload,
    readiness: Callable[[], str | None],
    clock: Callable[[], float],
    version: str,
    token: str | None,
    allowed_hosts: Collection[str],
    discovery: Callable[[], Mapping[str, object]] = dict,
) -> web.Application:
    """The application that serve_admin serves.

    `refresh` brings up to date what `pools` and `pins` give. `readiness` answers None, or why no requests should come.
    `clock`: monotonic, in seconds. `allowed_hosts` are names without port, besides the addresses the server is reached
    at. `discovery`: as Backends takes it. Raises ValueError for an empty token, which would let everybody in.
    """
    if token == "":
        raise ValueError("the admin token is empty")
    files = dashboard_files()
    admin = _Admin(metrics, files.pop("index.html"), readiness, version)
    backends = Backends(pools, pins, refresh, set_draining, clock, version, discovery)
    numbers = Overview(metrics, pools, refresh, version)
    app = web.Application(middlewares=[_errors_as_json, _own_host_only(allowed_hosts)])
    app.on_response_prepare.append(_guarded)
    app.router.add_get("/", admin.index)
    app.router.add_get("/metrics", admin.metrics)
    app.router.add_get("/healthz", admin.health)
    app.router.add_get("/readyz", admin.ready)
    for name, handler in files.items():
        app.router.add_get(PREFIX + name, handler)
    app.router.add_get("/api/pools", _with_token(token, backends.pools))
    app.router.add_get("/api/pools/{pool:[^/]+}/spread", _with_token(token, numbers.spread))
    app.router.add_get("/api/overview", _with_token(token, numbers.overview))
    posts = (backends.drain, backends.undrain, explain_handler(explain), reload_handler(reload))
    for path, handler in zip(POSTS, posts, strict=True):
        # Ids may hold any character but a slash; aiohttp's own pattern would leave out braces.
        app.router.add_post(path.replace("{id}", "{id:[^/]+}"), _with_token(token, _json_only(handler)))
    return app


class AdminServer:
    """An admin interface that listens."""

    def __init__(self, runner: web.AppRunner) -> None:
        self._runner = runner

    @property
    def port(self) -> int:
        """The port in use: the system's choice where 0 was asked for."""
        port: int = self._runner.addresses[0][1]
        return port

    async def close(self) -> None:
        """Stops listening, and waits up to SHUTDOWN_WAIT for answers under way. Idempotent."""
        await self._runner.cleanup()


async def serve_admin(app: web.Application, sock: socket.socket) -> AdminServer:
    """Serves on a listening socket, which is the server's from then on."""
    log.addFilter(_is_ours)
    runner = web.AppRunner(app, handler_cancellation=True, access_log=None, shutdown_timeout=SHUTDOWN_WAIT, logger=log)
    await runner.setup()
    try:
        await _Site(runner, sock).start()
    except BaseException:
        await runner.cleanup()
        raise
    return AdminServer(runner)


def _is_ours(record: logging.LogRecord) -> bool:
    """False for what aiohttp tells of requests that it cannot read: their bytes, a token among them, line by line."""
    error = record.exc_info[1] if record.exc_info else None
    return not isinstance(error, HttpProcessingError)


async def _guarded(request: web.Request, response: web.StreamResponse) -> None:
    response.headers.update(_FIELDS)


class _Site(web.SockSite):
    """Serves MOST_CONNECTIONS at once: beyond that the oldest one goes, so that whoever comes is heard."""

    async def start(self) -> None:
        await web.BaseSite.start(self)
        loop = asyncio.get_running_loop()
        self._server = await loop.create_server(self._newcomer, sock=self._sock, backlog=self._backlog)

    def _newcomer(self) -> asyncio.BaseProtocol:
        server = self._runner.server
        if server is None:
            raise RuntimeError("the runner is not set up")
        there = server.connections  # the oldest first; those that were cut just now may still be among them
        for oldest in there[: max(0, len(there) + 1 - MOST_CONNECTIONS)]:
            if oldest.transport is not None:
                oldest.transport.abort()  # `close` would wait for who does not read
        return server()


class _Admin:
    def __init__(
        self,
        metrics: Scrape,
        page: Page,
        readiness: Callable[[], str | None],
        version: str,
    ) -> None:
        self._metrics = metrics
        self._page = page
        self._readiness = readiness
        self._version = version

    async def index(self, request: web.Request) -> web.Response:
        """The dashboard for a browser; for others what there is."""
        if wants_page(request):
            return await self._page(request)
        return web.json_response(
            {"name": "mcp-routing-proxy", "version": self._version, "paths": PATHS, "posts": POSTS},
            headers={hdrs.VARY: hdrs.ACCEPT},
        )

    async def metrics(self, request: web.Request) -> web.Response:
        body, content_type = await self._metrics.render()
        return web.Response(body=body, headers={hdrs.CONTENT_TYPE: content_type})

    async def health(self, request: web.Request) -> web.Response:
        return web.Response(text="ok\n")

    async def ready(self, request: web.Request) -> web.Response:
        reason = self._readiness()
        return web.Response(text="ready\n") if reason is None else web.Response(status=503, text=f"{reason}\n")


@web.middleware
async def _errors_as_json(request: web.Request, handler: Handler) -> web.StreamResponse:
    try:
        return await handler(request)
    except web.HTTPError as error:
        headers = {name: error.headers[name] for name in (hdrs.ALLOW, hdrs.WWW_AUTHENTICATE) if name in error.headers}
        return web.json_response({"error": error.reason}, status=error.status, headers=headers)


def _own_host_only(allowed_hosts: Collection[str]) -> Middleware:
    allowed = frozenset(host.lower() for host in allowed_hosts)

    @web.middleware
    async def check(request: web.Request, handler: Handler) -> web.StreamResponse:
        hosts = request.headers.getall(hdrs.HOST, [])
        match = _AUTHORITY.fullmatch(hosts[0].lower()) if len(hosts) == 1 else None
        if match is None or match[1] or not (match[2] in allowed or _is_own(match[2], request)):
            raise web.HTTPMisdirectedRequest(reason="the Host field names no host of this server")
        for origin in request.headers.getall(hdrs.ORIGIN, []):
            if not _is_same(origin.lower(), host=match[2], port=match[3]):
                raise web.HTTPForbidden(reason="the request comes from another origin")
        return await handler(request)

    return check


def _is_own(host: str, request: web.Request) -> bool:
    """True if the host is the address that the client reached us at, or localhost and that is a loopback address."""
    sockname = None if request.transport is None else request.transport.get_extra_info("sockname")
    own = _address(sockname[0]) if isinstance(sockname, tuple) else None
    if own is None:
        return False
    return own.is_loopback if host == "localhost" else _address(host) == own


def _address(text: str) -> IPv4Address | IPv6Address | None:
    try:
        address = ip_address(text.strip("[]").partition("%")[0])
    except ValueError:
        return None
    return (address.ipv4_mapped or address) if isinstance(address, IPv6Address) else address


def _is_same(origin: str, *, host: str, port: str | None) -> bool:
    """True if an Origin field stands for a page of this host and port (RFC 6454, 7); `null` never does."""
    match = _AUTHORITY.fullmatch(origin)
    if match is None or match[1] is None:
        return False
    default = _DEFAULT_PORT[match[1]]
    return match[2] == host and int(match[3] or default) == int(port or default)


def _with_token(token: str | None, handler: Handler) -> Handler:
    """The handler for those who show the token (RFC 6750, 2.1), or for all where none is set."""
    if token is None:
        return handler
    expected = token.encode()

    async def guarded(request: web.Request) -> web.StreamResponse:
        scheme, _, given = request.headers.get(hdrs.AUTHORIZATION, "").partition(" ")
        # compare_digest: how long a comparison takes must not tell how much of a guess is right.
        if scheme.lower() != "bearer" or not hmac.compare_digest(given.encode(errors="surrogateescape"), expected):
            raise web.HTTPUnauthorized(headers={hdrs.WWW_AUTHENTICATE: 'Bearer realm="mcp-routing-proxy"'})
        return await handler(request)

    return guarded


def _json_only(handler: Handler) -> Handler:
    """The handler for requests that say their body is JSON: browsers ask before they send that to another origin."""

    async def checked(request: web.Request) -> web.StreamResponse:
        if request.content_type != "application/json":
            raise web.HTTPUnsupportedMediaType(reason="Content-Type must be application/json")
        return await handler(request)

    return checked
