"""Odd requests to an official server, direct and through the proxy: what is wrong is for the server to say.

The proxy answers in the server's place only where it must not pass a request on.
"""

import base64
import json
from collections.abc import AsyncIterator
from dataclasses import dataclass
from typing import Any

import pytest
import pytest_asyncio

from tests.interop.fleet import task_servers
from tests.process.harness import config_text, proxy_process
from tests.wire.harness import Message, client

VERSION, OLD, FUTURE = "2026-07-28", "2025-11-25", "2099-01-01"
PREFIX = "io.modelcontextprotocol/"
META = {
    PREFIX + "protocolVersion": VERSION,
    PREFIX + "clientInfo": {"name": "probe", "version": "1"},
    PREFIX + "clientCapabilities": {"extensions": {PREFIX + "tasks": {}}},
}
OF_THE_CONNECTION = (b"connection", b"content-length", b"date", b"transfer-encoding")
Fields = tuple[tuple[str, str], ...]

HOST: Fields = (("Host", "127.0.0.1:8080"),)
JSON: Fields = (("Content-Type", "application/json"),)
ACCEPT: Fields = (("Accept", "application/json, text/event-stream"),)


@dataclass(frozen=True)
class Probe:
    """A request, with what is odd about it in `fields` and `body`."""

    fields: Fields
    body: str | None = None
    verb: str = "POST"
    usual: Fields = HOST + JSON + ACCEPT

    def text(self) -> bytes:
        body = (self.body or "").encode()
        length = () if self.body is None else (("Content-Length", str(len(body))),)
        lines = (f"{name}: {value}" for name, value in (*self.usual, *self.fields, *length))
        return "\r\n".join((f"{self.verb} /mcp HTTP/1.1", *lines, "", "")).encode() + body


def message(method: str, params: dict[str, Any] | None = None, *, id: int | None = 1, meta: Any = META) -> str:
    params = {**(params or {}), **({"_meta": meta} if meta else {})}
    content = {"jsonrpc": "2.0", "id": id, "method": method, "params": params}
    return json.dumps({key: value for key, value in content.items() if value is not None})


def routing(method: str | None, name: str | None = None, version: str | None = VERSION) -> Fields:
    pairs = (("MCP-Protocol-Version", version), ("Mcp-Method", method), ("Mcp-Name", name))
    return tuple((key, value) for key, value in pairs if value is not None)


def task(task_id: str = "nope") -> str:
    return message("tasks/get", {"taskId": task_id})


TOOL = "greet"
WRAPPED = f"=?base64?{base64.b64encode(TOOL.encode()).decode()}?="
CALL = message("tools/call", {"name": TOOL, "arguments": {}})
GOOD = routing("tools/call", TOOL)
INITIALIZE = message(
    "initialize",
    {"protocolVersion": OLD, "capabilities": {}, "clientInfo": {"name": "probe", "version": "1"}},
    meta=None,
)
LIST = message("tools/list", meta=None)
SESSION = (("Mcp-Session-Id", "deadbeef"),)
OLDER = (("MCP-Protocol-Version", OLD),)

PROBES = {
    "tools/call": Probe(GOOD, CALL),
    "tools/call, Mcp-Name wrapped in base64": Probe(routing("tools/call", WRAPPED), CALL),
    "Mcp-Method missing": Probe(routing(None, TOOL), CALL),
    "Mcp-Method differs": Probe(routing("tools/list", TOOL), CALL),
    "Mcp-Method in upper case": Probe(routing("TOOLS/CALL", TOOL), CALL),
    "Mcp-Name missing": Probe(routing("tools/call"), CALL),
    "Mcp-Name differs": Probe(routing("tools/call", "other"), CALL),
    "Mcp-Name with bad base64": Probe(routing("tools/call", "=?base64?!!!?="), CALL),
    "version missing": Probe(routing("tools/call", TOOL, None), CALL),
    "version differs from the body": Probe(routing("tools/call", TOOL, OLD), CALL),
    "version unknown": Probe(
        routing("tools/call", TOOL, FUTURE),
        message("tools/call", {"name": TOOL}, meta={**META, PREFIX + "protocolVersion": FUTURE}),
    ),
    "no _meta": Probe(GOOD, message("tools/call", {"name": TOOL}, meta=None)),
    "unknown method": Probe(routing("foo/bar"), message("foo/bar")),
    "unknown tool": Probe(routing("tools/call", "nope"), message("tools/call", {"name": "nope"})),
    "tasks/get, unknown id": Probe(routing("tasks/get", "nope"), task()),
    "tasks/get, Mcp-Name missing": Probe(routing("tasks/get"), task()),
    "tasks/get, Mcp-Name differs": Probe(routing("tasks/get", "other"), task()),
    "tasks/list": Probe(routing("tasks/list"), message("tasks/list")),
    "notification": Probe(
        routing("notifications/cancelled"), message("notifications/cancelled", {"requestId": 1}, id=None)
    ),
    "batch": Probe(GOOD, f"[{CALL}]"),
    "not JSON": Probe(GOOD, "{nope"),
    "Accept: JSON only": Probe(GOOD, CALL, usual=HOST + JSON + (("Accept", "application/json"),)),
    "no Accept": Probe(GOOD, CALL, usual=HOST + JSON),
    "Content-Type: text/plain": Probe(GOOD, CALL, usual=HOST + ACCEPT + (("Content-Type", "text/plain"),)),
    "GET": Probe(routing(None), verb="GET"),
    "DELETE": Probe(routing(None), verb="DELETE"),
    "PUT": Probe(routing(None), "{}", verb="PUT"),
    "OPTIONS": Probe((("Origin", "http://localhost"), ("Access-Control-Request-Method", "POST")), verb="OPTIONS"),
    "foreign Origin": Probe((*GOOD, ("Origin", "http://evil.example")), CALL),
    "foreign Host": Probe((*GOOD, ("Host", "evil.example")), CALL, usual=JSON + ACCEPT),
    "a session id beside 2026-07-28": Probe(GOOD + SESSION, CALL),
    "older: initialize": Probe((), INITIALIZE),
    "older: no session": Probe(OLDER, LIST),
    "older: notification, no session": Probe(OLDER, message("notifications/initialized", id=None, meta=None)),
    "older: GET, no session": Probe(OLDER, verb="GET"),
    "older: DELETE, no session": Probe(OLDER, verb="DELETE"),
}

# What the proxy refuses, with the reason in `Mcp-Proxy-Error`, and why it may not leave that to the server.
REFUSED = {
    # The proxy would route by one copy, and the server might read the other.
    "Mcp-Name twice, equal": ("duplicate_header", Probe((*GOOD, ("Mcp-Name", TOOL)), CALL)),
    "Mcp-Name twice, unequal": ("duplicate_header", Probe((*GOOD, ("Mcp-Name", "other")), CALL)),
    "Mcp-Method twice": ("duplicate_header", Probe((*GOOD, ("Mcp-Method", "tools/call")), CALL)),
    # Without the id nobody knows the owner; any other server would say that there is no such task.
    "tasks/get, Mcp-Name with bad base64": ("malformed_header", Probe(routing("tasks/get", "=?base64?!!!?="), task())),
    # The field would end here, though the request was routed by it.
    "Connection names Mcp-Name": ("bad_request", Probe((*GOOD, ("Connection", "Mcp-Name")), CALL)),
    # An id without a tag of a known server never came from here; 404 makes the client initialize anew.
    "older: initialize, unknown session": ("session_owner_gone", Probe(SESSION, INITIALIZE)),
    "older: unknown session": ("session_owner_gone", Probe(OLDER + SESSION, LIST)),
    "older: GET, unknown session": ("session_owner_gone", Probe(OLDER + SESSION, verb="GET")),
    "older: DELETE, unknown session": ("session_owner_gone", Probe(OLDER + SESSION, verb="DELETE")),
    "older: version unknown": ("session_owner_gone", Probe((("MCP-Protocol-Version", "2024-01-01"), *SESSION), LIST)),
}


ANSWERS = {
    "duplicate_header": (400, -32020),
    "malformed_header": (400, -32020),
    "bad_request": (400, -32000),
    "session_owner_gone": (404, -32001),
}


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def ports() -> AsyncIterator[tuple[int, int]]:
    """The server's port and the proxy's."""
    async with task_servers(1) as (server,), proxy_process(config_text(server)) as proxy:
        yield server, proxy.port


@pytest.mark.parametrize("probe", PROBES.values(), ids=PROBES.keys())
async def test_the_servers_own_answer_passes(ports: tuple[int, int], probe: Probe) -> None:
    direct, through = [await answer(port, probe) for port in ports]
    assert seen(through) == seen(direct)
    assert direct.get("Mcp-Proxy-Error") is None


@pytest.mark.parametrize(("reason", "probe"), REFUSED.values(), ids=REFUSED.keys())
async def test_what_the_proxy_refuses(ports: tuple[int, int], reason: str, probe: Probe) -> None:
    _, proxy = ports
    refusal = await answer(proxy, probe)
    assert refusal.get("Mcp-Proxy-Error") == reason
    assert (refusal.status, refusal.error["code"]) == ANSWERS[reason]


async def answer(port: int, probe: Probe) -> Message:
    async with client(port) as caller:
        return await caller.ask(probe.text())


def seen(message: Message) -> tuple[list[bytes], bytes]:
    """Of an answer, what a client makes use of: status, fields and body. Session ids differ, and their field moves."""
    lines = []
    for line in message.head.split(b"\r\n"):
        name = line.partition(b":")[0].lower()
        if name not in OF_THE_CONNECTION:
            lines.append(name if name == b"mcp-session-id" else line)
    return [lines[0], *sorted(lines[1:])], message.body
