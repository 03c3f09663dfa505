"""The demo's server, over HTTP and at a clock of the test's."""

import json
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from aiohttp import ClientResponse, web
from aiohttp.test_utils import TestClient

from proxy.demo.messages import CAPABILITIES_KEY, TASKS_EXTENSION, VERSION, VERSION_KEY
from proxy.demo.server import MAX_TASKS, Instance, make_app

Json = dict[str, Any]
Client = TestClient[web.Request, web.Application]
NAME_PARAM = {"tools/call": "name", "tasks/get": "taskId", "tasks/update": "taskId", "tasks/cancel": "taskId"}


class Clock:
    """Stands still until told otherwise."""

    def __init__(self) -> None:
        self.now = datetime(2026, 7, 28, 12, tzinfo=UTC)

    def __call__(self) -> datetime:
        return self.now

    def advance(self, seconds: float) -> None:
        self.now += timedelta(seconds=seconds)


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
async def client(aiohttp_client: Callable[[web.Application], Awaitable[Client]], clock: Clock) -> Client:
    return await aiohttp_client(make_app(Instance("a", clock)))


def request(method: str, params: Json | None = None, *, tasks: bool = True) -> tuple[Json, dict[str, str]]:
    """A body in order, and the headers that belong to it."""
    params = params or {}
    capabilities: Json = {"extensions": {TASKS_EXTENSION: {}}} if tasks else {}
    meta = {VERSION_KEY: VERSION, CAPABILITIES_KEY: capabilities}
    headers = {"MCP-Protocol-Version": VERSION, "Mcp-Method": method}
    if method in NAME_PARAM:
        headers["Mcp-Name"] = params[NAME_PARAM[method]]
    return {"jsonrpc": "2.0", "id": 7, "method": method, "params": params | {"_meta": meta}}, headers


async def call(client: Client, method: str, params: Json | None = None, *, tasks: bool = True) -> tuple[int, Json]:
    body, headers = request(method, params, tasks=tasks)
    return await answer(await client.post("/mcp", json=body, headers=headers))


async def answer(response: ClientResponse) -> tuple[int, Json]:
    body = await response.json()
    assert body["jsonrpc"] == "2.0"
    assert response.headers["Served-By"] == "a"
    return response.status, body


async def create(client: Client, seconds: float = 1.0) -> Json:
    status, body = await call(client, "tools/call", {"name": "slow_compute", "arguments": {"seconds": seconds}})
    assert status == 200
    result: Json = body["result"]
    return result


async def test_discover_names_version_and_extension(client: Client) -> None:
    status, body = await call(client, "server/discover")
    assert (status, body["id"]) == (200, 7)
    assert body["result"]["supportedVersions"] == [VERSION]
    assert TASKS_EXTENSION in body["result"]["capabilities"]["extensions"]
    assert body["result"]["_meta"]["io.modelcontextprotocol/serverInfo"]["name"] == "demo-a"


async def test_lists_its_tools(client: Client) -> None:
    _, body = await call(client, "tools/list")
    assert [tool["name"] for tool in body["result"]["tools"]] == ["whoami", "slow_compute"]


async def test_whoami_is_answered_at_once(client: Client) -> None:
    _, body = await call(client, "tools/call", {"name": "whoami"})
    assert body["result"]["resultType"] == "complete"
    assert body["result"]["content"] == [{"type": "text", "text": "a"}]


async def test_a_task_is_working_until_its_time_has_come(client: Client, clock: Clock) -> None:
    created = await create(client, seconds=1)
    assert (created["resultType"], created["status"]) == ("task", "working")
    assert created["ttlMs"] == 600_000
    task_id = created["taskId"]

    clock.advance(0.9)
    _, body = await call(client, "tasks/get", {"taskId": task_id})
    assert body["result"]["resultType"] == "complete"
    assert (body["result"]["taskId"], body["result"]["status"]) == (task_id, "working")
    assert "result" not in body["result"]

    clock.advance(0.1)
    _, body = await call(client, "tasks/get", {"taskId": task_id})
    assert body["result"]["status"] == "completed"
    assert body["result"]["createdAt"] == "2026-07-28T12:00:00.000Z"
    assert body["result"]["lastUpdatedAt"] == "2026-07-28T12:00:01.000Z"
    assert body["result"]["result"] == {
        "content": [{"type": "text", "text": "computed for 1 s on a"}],
        "isError": False,
    }


async def test_without_the_extension_the_call_itself_is_slow(client: Client) -> None:
    arguments = {"name": "slow_compute", "arguments": {"seconds": 0.01}}
    _, body = await call(client, "tools/call", arguments, tasks=False)
    assert body["result"]["resultType"] == "complete"
    assert body["result"]["content"][0]["text"] == "computed for 0.01 s on a"


@pytest.mark.parametrize("seconds", [-1, 61, "1", True, None, float("nan")])
async def test_seconds_out_of_range_are_a_tool_error(client: Client, seconds: object) -> None:
    status, body = await call(client, "tools/call", {"name": "slow_compute", "arguments": {"seconds": seconds}})
    assert (status, body["result"]["isError"]) == (200, True)


async def test_cancel_is_acknowledged_and_final(client: Client, clock: Clock) -> None:
    task_id = (await create(client))["taskId"]
    status, body = await call(client, "tasks/cancel", {"taskId": task_id})
    assert (status, body["result"]["resultType"]) == (200, "complete")
    clock.advance(5)
    _, body = await call(client, "tasks/get", {"taskId": task_id})
    assert body["result"]["status"] == "cancelled"


async def test_cancel_comes_too_late_for_a_completed_task(client: Client, clock: Clock) -> None:
    task_id = (await create(client))["taskId"]
    clock.advance(1)
    assert (await call(client, "tasks/cancel", {"taskId": task_id}))[0] == 200
    _, body = await call(client, "tasks/get", {"taskId": task_id})
    assert body["result"]["status"] == "completed"


async def test_update_is_acknowledged_and_changes_nothing(client: Client) -> None:
    task_id = (await create(client))["taskId"]
    status, body = await call(client, "tasks/update", {"taskId": task_id, "inputResponses": {"nobody-asked": {}}})
    assert (status, body["result"]["resultType"]) == (200, "complete")
    _, body = await call(client, "tasks/get", {"taskId": task_id})
    assert body["result"]["status"] == "working"


@pytest.mark.parametrize("method", ["tasks/get", "tasks/update", "tasks/cancel"])
async def test_a_task_of_another_is_unknown(client: Client, method: str) -> None:
    status, body = await call(client, method, {"taskId": "made-elsewhere", "inputResponses": {}})
    assert (status, body["error"]["code"], body["id"]) == (400, -32602, 7)


async def test_a_task_is_forgotten_when_its_time_to_live_is_over(client: Client, clock: Clock) -> None:
    task_id = (await create(client))["taskId"]
    clock.advance(600)
    status, body = await call(client, "tasks/get", {"taskId": task_id})
    assert (status, body["error"]["code"]) == (400, -32602)


async def test_tasks_are_bounded(client: Client, clock: Clock, monkeypatch: pytest.MonkeyPatch) -> None:
    assert MAX_TASKS >= 1000
    monkeypatch.setattr("proxy.demo.server.MAX_TASKS", 2)
    await create(client)
    await create(client)
    status, body = await call(client, "tools/call", {"name": "slow_compute"})
    assert (status, body["error"]["code"]) == (200, -32603)
    clock.advance(600)
    assert (await create(client))["status"] == "working"


@pytest.mark.parametrize("method", ["tasks/get", "tasks/update", "tasks/cancel"])
async def test_task_methods_demand_the_extension(client: Client, method: str) -> None:
    status, body = await call(client, method, {"taskId": "x", "inputResponses": {}}, tasks=False)
    assert (status, body["error"]["code"]) == (400, -32021)
    assert body["error"]["data"] == {"requiredCapabilities": {"extensions": {TASKS_EXTENSION: {}}}}


async def test_an_unknown_method_is_not_found(client: Client) -> None:
    status, body = await call(client, "prompts/list")
    assert (status, body["error"]["code"]) == (404, -32601)


async def test_an_unknown_tool_is_an_invalid_parameter(client: Client) -> None:
    status, body = await call(client, "tools/call", {"name": "nothing"})
    assert (status, body["error"]["code"]) == (400, -32602)


@pytest.mark.parametrize(
    ("header", "value"),
    [
        ("Mcp-Name", "another"),
        ("Mcp-Name", None),
        ("Mcp-Name", "=?base64?!?="),
        ("Mcp-Name", "=?base64?/w==?="),
        ("Mcp-Method", "tools/list"),
        ("Mcp-Method", None),
        ("MCP-Protocol-Version", "2025-11-25"),
        ("MCP-Protocol-Version", None),
    ],
)
async def test_headers_that_differ_from_the_body_are_refused(client: Client, header: str, value: str | None) -> None:
    body, headers = request("tools/call", {"name": "whoami"})
    del headers[header]
    if value is not None:
        headers[header] = value
    status, refused = await answer(await client.post("/mcp", json=body, headers=headers))
    assert (status, refused["error"]["code"], refused["id"]) == (400, -32020, 7)


async def test_a_repeated_header_is_refused(client: Client) -> None:
    body, headers = request("tools/call", {"name": "whoami"})
    twice = [*headers.items(), ("Mcp-Name", "whoami")]
    status, refused = await answer(await client.post("/mcp", json=body, headers=twice))
    assert (status, refused["error"]["code"]) == (400, -32020)


async def test_an_encoded_name_is_decoded(client: Client) -> None:
    body, headers = request("tools/call", {"name": "whoami"})
    headers["Mcp-Name"] = "=?base64?d2hvYW1p?="
    status, _ = await answer(await client.post("/mcp", json=body, headers=headers))
    assert status == 200


async def test_another_version_is_answered_with_the_one_served(client: Client) -> None:
    body, headers = request("tools/list")
    body["params"]["_meta"][VERSION_KEY] = headers["MCP-Protocol-Version"] = "2027-01-01"
    status, refused = await answer(await client.post("/mcp", json=body, headers=headers))
    assert (status, refused["error"]["code"]) == (400, -32022)
    assert refused["error"]["data"] == {"supported": [VERSION], "requested": "2027-01-01"}


@pytest.mark.parametrize(
    ("body", "code"),
    [
        (b'{"jsonrpc"', -32700),
        (b"\xff", -32700),
        (b"[" * 100_000, -32700),
        (b"[]", -32600),
        (b'{"jsonrpc":"2.0","id":1}', -32600),
        (b'{"jsonrpc":"2.0","id":null,"method":"tools/list"}', -32600),
        (b'{"jsonrpc":"2.0","id":true,"method":"tools/list"}', -32600),
        (b'{"jsonrpc":"2.0","id":1,"method":"tools/list"}', -32602),
        (b'{"jsonrpc":"2.0","id":1,"method":"tools/list","params":{"_meta":{}}}', -32602),
    ],
)
async def test_what_is_no_request_is_refused(client: Client, body: bytes, code: int) -> None:
    headers = {"Content-Type": "application/json"}
    status, refused = await answer(await client.post("/mcp", data=body, headers=headers))
    assert (status, refused["error"]["code"]) == (400, code)


async def test_a_notification_is_accepted_without_an_answer(client: Client) -> None:
    note = {"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {}}
    response = await client.post("/mcp", json=note)
    assert (response.status, await response.read()) == (202, b"")


async def test_only_post_is_allowed(client: Client) -> None:
    for response in (await client.get("/mcp"), await client.delete("/mcp")):
        assert response.status == 405
        assert "POST" in response.headers["Allow"]


async def test_only_json_is_read(client: Client) -> None:
    body, headers = request("tools/list")
    response = await client.post("/mcp", data=json.dumps(body), headers=headers | {"Content-Type": "text/plain"})
    assert response.status == 415


@pytest.mark.parametrize(
    ("origin", "status"),
    [("http://localhost:8080", 200), ("http://[::1]:80", 200), ("http://evil.example", 403), ("null", 403)],
)
async def test_a_foreign_origin_is_refused(client: Client, origin: str, status: int) -> None:
    body, headers = request("tools/list")
    response = await client.post("/mcp", json=body, headers=headers | {"Origin": origin})
    assert response.status == status


async def test_is_healthy(client: Client) -> None:
    assert (await client.get("/health")).status == 200
