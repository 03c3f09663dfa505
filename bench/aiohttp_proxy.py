"""The baseline: the same duties in a proxy made of aiohttp's server and aiohttp's client, tuned.

Its decisions are the project's own (routing headers, ring, what an answer teaches); on the wire all is aiohttp's,
with what speeds it up: uvloop, no cookies, no decompression, no limits of connections, small bodies in one piece.
``python -m bench.aiohttp_proxy CONFIG.json`` serves until it is ended.
"""

import argparse
import asyncio
import json
import signal
import socket
import sys
import time
from collections.abc import AsyncIterator
from pathlib import Path

import uvloop
from aiohttp import ClientResponse, ClientSession, ClientTimeout, DummyCookieJar, TCPConnector, web
from multidict import CIMultiDict
from yarl import URL

from proxy.routing.ownership import Lesson, PinKey, learn, pin_key, session_tag, split_session
from proxy.routing.ring import Ring

SMALL_BYTES = 64 * 1024
MOST_PINS = 1_000_000
MOST_HELD_BYTES = 64 * 1024
POOL = "agents"
ROUTING_FIELDS = ("Mcp-Method", "Mcp-Name", "Mcp-Protocol-Version", "Host", "Content-Length")
HOP_BY_HOP = frozenset(
    ("connection", "keep-alive", "proxy-connection", "te", "trailer", "transfer-encoding", "upgrade", "content-length")
)


class Counts:
    """Metrics, as plain integers."""

    def __init__(self) -> None:
        self.requests: dict[tuple[str, int, str], int] = {}
        self.microseconds = 0
        self.pins = 0

    def count(self, method: str, status: int, backend: str, seconds: float) -> None:
        key = (method, status, backend)
        self.requests[key] = self.requests.get(key, 0) + 1
        self.microseconds += int(seconds * 1e6)


class AiohttpProxy:
    """Routes by header to one pool; tasks and sessions stay with their backend."""

    def __init__(self, session: ClientSession, backends: dict[str, URL], allowed_hosts: frozenset[str]) -> None:
        self.counts = Counts()
        self._session = session
        self._backends = backends
        self._allowed_hosts = allowed_hosts
        self._ring = Ring(dict.fromkeys(backends, 1))
        self._pins: dict[PinKey, str] = {}
        self._tags = {session_tag(POOL, backend): backend for backend in backends}
        self._tag_of = {backend: tag for tag, backend in self._tags.items()}

    async def handle(self, request: web.BaseRequest) -> web.StreamResponse:
        """One request and its answer."""
        begun = time.monotonic()
        method = request.headers.get("Mcp-Method", "")
        backend = ""
        try:
            self._check(request)
            backend = self._backend_of(request, method)
            answer = await self._pass_on(request, method, backend)
        except web.HTTPException as refusal:
            answer = web.json_response({"error": refusal.reason}, status=refusal.status)
        self.counts.count(method, answer.status, backend, time.monotonic() - begun)
        return answer

    def _check(self, request: web.BaseRequest) -> None:
        """Raises web.HTTPException for what is not served."""
        headers = request.headers
        if any(len(headers.getall(name, ())) > 1 for name in ROUTING_FIELDS):
            raise web.HTTPBadRequest(reason="a field that routes is there twice")
        if headers.get("Host", "").partition(":")[0] not in self._allowed_hosts:
            raise web.HTTPMisdirectedRequest(reason="host not served")
        if request.path != "/mcp":
            raise web.HTTPNotFound(reason="no route")

    def _backend_of(self, request: web.BaseRequest, method: str) -> str:
        """The owner of the task or session, else the ring's choice. Raises web.HTTPNotFound for an unknown session."""
        name = request.headers.get("Mcp-Name", "")
        if method.startswith("tasks/"):
            owner = self._pins.get(pin_key(POOL, name))
            if owner is not None:
                return owner
        known = request.headers.get("Mcp-Session-Id")
        if known is not None:
            tag, _ = split_session(known)
            if tag not in self._tags:
                raise web.HTTPNotFound(reason="unknown session")
            return self._tags[tag]
        return self._ring.first(name)

    async def _pass_on(self, request: web.BaseRequest, method: str, backend: str) -> web.StreamResponse:
        headers = CIMultiDict(
            (name, value) for name, value in request.headers.items() if name.lower() not in HOP_BY_HOP
        )
        headers["X-Forwarded-For"] = request.remote or ""
        headers["X-Forwarded-Host"] = request.headers["Host"]
        headers["X-Forwarded-Proto"] = "http"
        headers["Accept-Encoding"] = "identity"
        if "Mcp-Session-Id" in headers:
            headers["Mcp-Session-Id"] = split_session(headers["Mcp-Session-Id"])[1]
        length = request.content_length
        small = length is not None and length <= SMALL_BYTES
        body = await request.read() if small else request.content
        try:
            async with self._session.request(
                request.method, self._backends[backend], headers=headers, data=body, allow_redirects=False
            ) as response:
                return await self._relay(request, response, method, backend)
        except OSError as error:  # what aiohttp raises where no connection can be made
            raise web.HTTPBadGateway(reason="backend unreachable") from error

    async def _relay(
        self, request: web.BaseRequest, response: ClientResponse, method: str, backend: str
    ) -> web.StreamResponse:
        headers = CIMultiDict(
            (name, value) for name, value in response.headers.items() if name.lower() not in HOP_BY_HOP
        )
        if "Mcp-Session-Id" in headers:
            headers["Mcp-Session-Id"] = f"{self._tag_of[backend]}.{headers['Mcp-Session-Id']}"
        name = request.headers.get("Mcp-Name")
        if response.content_length is not None and response.content_length <= SMALL_BYTES:
            body = await response.read()
            self._study(body, method, name, backend)
            return web.Response(status=response.status, headers=headers, body=body)
        answer = web.StreamResponse(status=response.status, headers=headers)
        if response.content_length is not None:
            answer.content_length = response.content_length
        await answer.prepare(request)
        events = response.content_type == "text/event-stream"
        async for piece in self._studied(response, method, name, backend) if events else response.content.iter_any():
            await answer.write(piece)
        await answer.write_eof()
        return answer

    async def _studied(
        self, response: ClientResponse, method: str, name: str | None, backend: str
    ) -> AsyncIterator[bytes]:
        """The pieces of an event stream; what its whole events teach is known before they are passed on."""
        held = b""
        async for piece in response.content.iter_any():
            *events, held = (held + piece).split(b"\n\n")
            for event in events:
                for line in event.splitlines():
                    if line.startswith(b"data:"):
                        self._study(line[5:].strip(), method, name, backend)
            held = held[-MOST_HELD_BYTES:]
            yield piece

    def _study(self, message: bytes, method: str, name: str | None, backend: str) -> None:
        try:
            learned = learn(message, method, name)
        except ValueError:
            return
        if learned is not None and learned.lesson is Lesson.CREATED:
            if len(self._pins) >= MOST_PINS:
                del self._pins[next(iter(self._pins))]
            self._pins.setdefault(pin_key(POOL, learned.task_id), backend)
            self.counts.pins += 1


async def serve(host: str, port: int, backends: list[int]) -> None:
    """Serves until SIGTERM."""
    over = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, over.set)
    connector = TCPConnector(limit=0, limit_per_host=0, keepalive_timeout=75)
    async with ClientSession(
        connector=connector,
        cookie_jar=DummyCookieJar(),
        auto_decompress=False,
        timeout=ClientTimeout(total=None, sock_connect=2),
        skip_auto_headers=("User-Agent", "Accept", "Content-Type"),
    ) as session:
        urls = {f"{host}:{backend}": URL(f"http://{host}:{backend}/mcp") for backend in backends}
        proxy = AiohttpProxy(session, urls, frozenset((host,)))
        runner = web.ServerRunner(web.Server(proxy.handle, access_log=None, auto_decompress=False))
        await runner.setup()
        listening = socket.create_server((host, port), backlog=1024)
        await web.SockSite(runner, listening, backlog=1024).start()
        await over.wait()
        await runner.cleanup()


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m bench.aiohttp_proxy", description=__doc__)
    parser.add_argument("config", type=Path)
    config = json.loads(parser.parse_args().config.read_text())
    uvloop.run(serve(config["host"], config["port"], config["backends"]))
    return 0


if __name__ == "__main__":
    sys.exit(main())
