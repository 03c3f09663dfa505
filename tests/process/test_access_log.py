"""The access log of a serving process: on standard output, a line per request, and no secret in it."""

import json
import re

from proxy.routing.ownership import short_digest
from tests.process.harness import STREAM_FIELDS, ProxyProcess, chunk, config_text, proxy_process
from tests.wire.harness import BackendSide, backend, call, client, post, read_head, task

TASK_ID, SESSION, TOKEN = b"task-5f8e2c", b"session-91d0b7", b"token-c3a64e"
SECRETS = (TASK_ID, SESSION, TOKEN)
SECRET_LINES = (b"Authorization: Bearer " + TOKEN, b"Mcp-Session-Id: " + SESSION)
REQUESTS = (
    call(b"whoami", *SECRET_LINES),
    call(b"stream", *SECRET_LINES),
    task(b"get", TASK_ID, *SECRET_LINES),
    task(b"cancel", TASK_ID, b"Mcp-Name: " + TASK_ID),  # a header that came twice
    post(*SECRET_LINES),  # of an earlier protocol, whose sessions are kept: this one is of no server here
    post(*SECRET_LINES, target=b"/" + TASK_ID),  # no route leads there
)
STATUSES = [200, 200, 200, 400, 404, 404]


async def answering(side: BackendSide) -> None:
    """A script: a stream, if that is asked for, else a short answer."""
    while True:
        if (await side.request()).get("Mcp-Name") == "stream":
            side.send(STREAM_FIELDS + b"\r\n" + chunk(b"data: {}\n\n") + b"0\r\n\r\n")
        else:
            side.answer()


async def ask_all(proxy: ProxyProcess) -> None:
    async with client(proxy.port) as caller:
        for request, status in zip(REQUESTS, STATUSES, strict=True):
            assert (await caller.ask(request)).status == status


async def log_of(settings: dict[str, object]) -> str:
    """The standard output of a proxy with these settings that has served all requests."""
    async with backend(answering) as server, proxy_process(config_text(server.port, log=settings)) as proxy:
        await ask_all(proxy)
        if settings["access"]:  # while it runs, not only at its end
            await proxy.command.until(lambda: proxy.command.output.count("\n") == len(REQUESTS), 5)
        proxy.command.terminate()
        assert await proxy.command.ended() == 0
        wrote = proxy.command.output + proxy.command.complaints
        for secret in SECRETS:
            assert secret.decode() not in wrote
        return proxy.command.output


async def test_json() -> None:
    text = await log_of({"access": True, "format": "json"})
    lines = [json.loads(line) for line in text.splitlines()]
    assert [line["status"] for line in lines] == STATUSES
    assert [line["method"] for line in lines] == [
        *("tools/call", "tools/call", "tasks/get", "tasks/cancel"),
        *("other", "other"),
    ]
    digest = short_digest(TASK_ID.decode())
    assert len(digest) == 10
    assert [line.get("task") for line in lines] == [None, None, digest, None, None, None]
    assert [line.get("streamed") for line in lines] == [None, True, None, None, None, None]
    assert [line.get("error") for line in lines] == [
        *(None, None, None, "duplicate_header", "session_owner_gone", "no_route"),
    ]
    assert [line.get("backend") for line in lines] == ["a", "a", "a", None, None, None]


async def test_text() -> None:
    text = await log_of({"access": True, "format": "text"})
    lines = text.splitlines()
    assert [re.findall(r" status=(\d+)", line) for line in lines] == [[str(status)] for status in STATUSES]
    assert all(re.match(r"time=\d{4}-\d\d-\d\dT[\d:.]+Z client=127\.0\.0\.1 verb=POST ", line) for line in lines)
    assert f" task={short_digest(TASK_ID.decode())}" in lines[2]


async def test_none() -> None:
    assert await log_of({"access": False}) == ""


async def test_a_stream_that_the_drain_cuts_is_not_its_clients_doing() -> None:
    async def endless(side: BackendSide) -> None:
        await side.request()
        side.send(STREAM_FIELDS + b"\r\n" + chunk(b"data: {}\n\n"))
        await side.peer_closes()

    settings = {"access": True, "format": "json"}
    async with backend(endless) as server, proxy_process(config_text(server.port, log=settings)) as proxy:
        async with client(proxy.port) as caller:
            caller.send(call())
            await read_head(caller.reader)
            proxy.command.terminate()
            assert await proxy.command.ended() == 0
        line = json.loads(proxy.command.output)
        assert line["streamed"] is True
        assert line["error"] == "draining"


async def test_a_request_that_does_not_parse_has_its_line() -> None:
    settings = {"access": True, "format": "json"}
    async with backend() as server, proxy_process(config_text(server.port, log=settings)) as proxy:
        async with client(proxy.port) as caller:
            assert (await caller.ask(b"POST /a/../b HTTP/1.1\r\nHost: mcp.test\r\n\r\n")).status == 400
        proxy.command.terminate()
        assert await proxy.command.ended() == 0
        lines = [json.loads(line) for line in proxy.command.output.splitlines()]
        assert [(line["status"], line["error"]) for line in lines] == [(400, "bad_request")]
