"""The baseline has the duties that it is compared by: owners, sessions, and what is not served."""

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest
from aiohttp import ClientSession, web
from aiohttp.test_utils import TestServer
from yarl import URL

from bench.aiohttp_proxy import AiohttpProxy

TASK = {"jsonrpc": "2.0", "id": 1, "result": {"resultType": "task", "taskId": "t-1", "status": "working"}}


def backend(name: str) -> TestServer:
    """A backend that says who it is and what session it was asked for, and makes a task, as JSON or as an event."""

    async def answer(request: web.Request) -> web.StreamResponse:
        headers = {"X-Backend": name, "X-Session": request.headers.get("Mcp-Session-Id", ""), "Mcp-Session-Id": "own"}
        if request.headers.get("Mcp-Name") != "streams":
            return web.json_response(TASK, headers=headers)
        stream = web.StreamResponse(headers=headers | {"Content-Type": "text/event-stream"})
        await stream.prepare(request)
        for piece in (b"data: {}\n\nda", b"ta: " + json.dumps(TASK).encode(), b"\n\n"):
            await stream.write(piece)
        return stream

    app = web.Application()
    app.router.add_route("*", "/mcp", answer)
    return TestServer(app)


@asynccontextmanager
async def proxy() -> AsyncIterator[tuple[AiohttpProxy, URL]]:
    async with backend("a") as a, backend("b") as b, ClientSession(auto_decompress=False) as session:
        proxied = AiohttpProxy(session, {"a": a.make_url("/mcp"), "b": b.make_url("/mcp")}, frozenset(("127.0.0.1",)))
        runner = web.ServerRunner(web.Server(proxied.handle))
        await runner.setup()
        site = web.TCPSite(runner, "127.0.0.1", 0)
        await site.start()
        try:
            yield proxied, URL(str(site.name)) / "mcp"
        finally:
            await runner.cleanup()


async def post(url: URL, **headers: str) -> tuple[int, dict[str, str], str]:
    fields = {f"Mcp-{name.replace('_', '-')}": value for name, value in headers.items()}
    async with ClientSession() as client, client.post(url, json={}, headers=fields) as response:
        return response.status, dict(response.headers), await response.text()


@pytest.mark.parametrize("tool", ["answers", "streams"])
async def test_a_task_goes_to_the_backend_that_made_it(tool: str) -> None:
    async with proxy() as (proxied, url):
        _, made, _ = await post(url, Method="tools/call", Name=tool)
        _, asked, _ = await post(url, Method="tasks/get", Name="t-1")
        assert asked["X-Backend"] == made["X-Backend"]
        assert proxied.counts.pins == 1


async def test_a_session_is_tagged_for_clients_and_goes_back_to_its_backend_without_the_tag() -> None:
    async with proxy() as (_, url):
        for tool in ("one", "two", "three", "four"):
            _, first, _ = await post(url, Method="tools/call", Name=tool)
            assert first["Mcp-Session-Id"].endswith(".own")
            _, second, _ = await post(url, Method="ping", Session_Id=first["Mcp-Session-Id"])
            assert (second["X-Backend"], second["X-Session"]) == (first["X-Backend"], "own")
        status, _, _ = await post(url, Method="ping", Session_Id="0123456789.own")
        assert status == 404


async def test_what_is_not_served_is_refused_and_counted() -> None:
    async with proxy() as (proxied, url):
        assert (await post(url.with_path("/other")))[0] == 404
        async with ClientSession() as client, client.post(url, json={}, headers={"Host": "elsewhere"}) as response:
            assert response.status == 421
        assert sum(proxied.counts.requests.values()) == 2
