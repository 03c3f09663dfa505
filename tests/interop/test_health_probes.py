"""Probes of an official server, modern and legacy: it lives, and no session is left behind."""

import asyncio
import logging
import socket
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import aiohttp
import pytest
import uvicorn
from mcp.server.lowlevel.server import Server
from mcp.server.streamable_http_manager import StreamableHTTPSessionManager
from starlette.applications import Starlette
from starlette.routing import Mount

from proxy.background import Background
from proxy.control.prober import Prober, Target
from proxy.routing.health import Health
from tests.wire.harness import until

OPENED = "Created new transport"


@asynccontextmanager
async def official_server() -> AsyncIterator[int]:
    """The port of a server of the SDK that speaks both eras and keeps sessions."""
    manager = StreamableHTTPSessionManager(Server("probed"))
    app = Starlette(routes=[Mount("/mcp", manager.handle_request)], lifespan=lambda app: manager.run())
    with socket.socket() as sock:
        sock.bind(("127.0.0.1", 0))
        server = uvicorn.Server(uvicorn.Config(app, log_config=None, lifespan="on"))
        background = Background()
        serving = background.spawn(server.serve([sock]), "serve")
        try:
            await until(lambda: server.started)
            yield sock.getsockname()[1]
        finally:
            server.should_exit = True
            await asyncio.wait([serving])


async def test_probes_of_an_official_server_open_no_session(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "mcp.server.streamable_http_manager")
    background = Background()
    prober = Prober(background, pools=dict, changed=lambda *_: None, clock=time.monotonic, version="1")
    async with official_server() as port:
        authority = f"127.0.0.1:{port}"
        target = Target("agents", "a", Health(None, timeout=5.0), authority, "/mcp/")
        try:
            for _ in range(200):
                assert await prober.ask(target) == (True, "answered 200 with a result")
        finally:
            await prober.close()
        assert OPENED not in caplog.text
        fields = {"Accept": "application/json, text/event-stream", "MCP-Protocol-Version": "2025-11-25"}
        list_tools = {"jsonrpc": "2.0", "id": 1, "method": "tools/list"}
        async with aiohttp.ClientSession() as session:
            # What tells that the test can tell: the same server opens one for a request of the older kind.
            async with session.post(f"http://{authority}/mcp/", json=list_tools, headers=fields):
                pass
        assert caplog.text.count(OPENED) == 1
    await background.close()
