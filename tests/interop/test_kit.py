"""The interop kit itself: real clients complete their tasks at real servers, and a lost task is seen to be lost."""

import itertools
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

import aiohttp
import pytest
import pytest_asyncio
from aiohttp import web
from aiohttp.test_utils import TestServer

from tests.interop.fleet import run_client, task_servers

Json = dict[str, Any]
StartServer = Callable[[web.Application], Awaitable[TestServer]]

VERSION = "2026-07-28"
META = {
    "io.modelcontextprotocol/protocolVersion": VERSION,
    "io.modelcontextprotocol/clientCapabilities": {"extensions": {"io.modelcontextprotocol/tasks": {}}},
}


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def ports() -> AsyncIterator[list[int]]:
    """Two servers that every test here may use: a task of one disturbs no other."""
    async with task_servers(2) as ports:
        yield ports


async def call(session: aiohttp.ClientSession, port: int, method: str, name: str, params: Json) -> tuple[int, Json]:
    """One request as the SDK would send it, to see what it hides: statuses and codes."""
    headers = {
        "Accept": "application/json, text/event-stream",
        "MCP-Protocol-Version": VERSION,
        "Mcp-Method": method,
        "Mcp-Name": name,
    }
    message = {"jsonrpc": "2.0", "id": 1, "method": method, "params": params | {"_meta": META}}
    async with session.post(f"http://127.0.0.1:{port}/mcp", json=message, headers=headers) as response:
        body: Json = await response.json()
        return response.status, body


async def test_every_task_is_completed_at_the_server_that_made_it(ports: list[int]) -> None:
    counts = await run_client(f"http://127.0.0.1:{ports[0]}/mcp", "--n", "6", "--conc", "6", "--seconds", "0.2")
    assert counts["success_rate"] == 1.0
    assert counts["created"] == counts["completed"] == counts["by:a"] == 6
    assert "poll_errors" not in counts


async def test_taking_turns_loses_tasks(ports: list[int], aiohttp_server: StartServer) -> None:
    """What a proxy without owners does. If this passed every task, the tests of the proxy would prove nothing."""
    backends = itertools.cycle(ports)
    async with aiohttp.ClientSession() as session:

        async def forward(request: web.Request) -> web.Response:
            left_out = ("host", "content-length", "connection")
            headers = {name: value for name, value in request.headers.items() if name.lower() not in left_out}
            backend = f"http://127.0.0.1:{next(backends)}/mcp"
            async with session.post(backend, data=await request.read(), headers=headers) as answer:
                content_type = {"Content-Type": answer.headers["Content-Type"]}
                return web.Response(body=await answer.read(), status=answer.status, headers=content_type)

        app = web.Application()
        app.router.add_post("/mcp", forward)
        server = await aiohttp_server(app)
        # One task at a time: a task and its first poll are then neighbours, so they go to different servers.
        counts = await run_client(str(server.make_url("/mcp")), "--n", "6", "--conc", "1", "--seconds", "0.2")
    assert counts["created"] == 6
    assert counts["success_rate"] < 1.0
    assert counts["poll_error:-32602"] == counts["poll_errors"] > 0
    assert counts["poll_errors"] + counts.get("completed", 0) == 6


async def test_only_the_maker_knows_a_task(ports: list[int]) -> None:
    maker, other = ports
    async with aiohttp.ClientSession() as session:
        arguments = {"name": "slow_compute", "arguments": {"seconds": 60}}
        status, body = await call(session, maker, "tools/call", "slow_compute", arguments)
        assert (status, body["result"]["resultType"], body["result"]["status"]) == (200, "task", "working")
        task_id = body["result"]["taskId"]
        params = {"taskId": task_id, "inputResponses": {}}

        for method in ("tasks/get", "tasks/update", "tasks/cancel"):
            status, body = await call(session, other, method, task_id, params)
            assert (method, status, body["error"]["code"]) == (method, 400, -32602)
            status, body = await call(session, maker, method, "another", params)
            assert (method, status, body["error"]["code"]) == (method, 400, -32020)

        for method in ("tasks/update", "tasks/cancel"):
            status, body = await call(session, maker, method, task_id, params)
            assert (method, status, body["result"]["resultType"]) == (method, 200, "complete")
        _, body = await call(session, maker, "tasks/get", task_id, params)
        assert body["result"]["status"] == "cancelled"


async def test_a_poll_without_its_name_is_refused(ports: list[int]) -> None:
    counts = await run_client(f"http://127.0.0.1:{ports[1]}/mcp", "--n", "2", "--seconds", "0.1", "--no-mcp-name")
    assert counts["poll_error:-32020"] == 2
    assert counts["success_rate"] == 0.0


async def test_odd_ids_arrive_in_streams_and_by_fresh_connections() -> None:
    """An id that looks encoded, in an event; polled without a name by clients that have a connection each."""
    async with task_servers(1, "--id-style", "sentinel", "--sse-create", "--lenient-name") as (port,):
        url = f"http://127.0.0.1:{port}/mcp"
        for flags in ((), ("--fresh-conn", "--no-mcp-name")):
            counts = await run_client(url, "--n", "2", "--seconds", "0.1", *flags)
            assert counts["success_rate"] == 1.0, (flags, counts)


async def test_a_client_that_cannot_connect_is_an_error() -> None:
    with pytest.raises(AssertionError, match="the client ended with 1:"):
        await run_client("http://127.0.0.1:1/mcp", "--n", "1")  # port 1: nobody listens there


async def test_a_server_that_does_not_start_is_an_error(capfd: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(RuntimeError, match="ended with status 2"):
        async with task_servers(1, "--no-such-flag"):
            pytest.fail("entered without servers")
    assert "unrecognized arguments: --no-such-flag" in capfd.readouterr().err
