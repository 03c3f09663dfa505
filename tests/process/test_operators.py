"""Operators' commands against a proxy that serves, each in a process of its own."""

import json
import re

from tests.process.harness import START_LIMIT, Ended, ProxyProcess, config_text, proxy_process, run, started
from tests.wire.harness import BackendSide, answering, backend, call, client, post

TOKEN = "s3cret-token"


async def asked(proxy: ProxyProcess, *arguments: str, token: str | None = None) -> Ended:
    """A command that asks this proxy; `token` in its environment."""
    environ = {} if token is None else {"MCP_ROUTING_PROXY_TOKEN": token}
    admin = ("--admin", f"http://127.0.0.1:{proxy.admin_port}")
    with started(*arguments, *admin, environ=environ) as command:
        code = await command.ended(START_LIMIT)
        return Ended(code, command.output, command.complaints)


async def test_a_backend_is_drained_and_undrained() -> None:
    session = answering(b"HTTP/1.1 200 OK\r\nMcp-Session-Id: s\r\nContent-Length: 2\r\n\r\n{}")
    async with backend(session) as a, backend() as b, proxy_process(config_text(a.port, b.port)) as proxy:
        async with client(proxy.port) as caller:
            while not a.requests:
                assert (await caller.ask(post())).status == 200
        drained = await asked(proxy, "drain", "agents/a")
        assert (drained.code, drained.complaints) == (0, "")
        assert drained.output == (
            "agents/a takes no new work: 0 requests in flight, 0 unfinished tasks, 1 recent session "
            "(as far as this proxy knows since it started)\n"
        )
        before = len(a.requests)
        async with client(proxy.port) as caller:
            for _ in range(4):
                assert (await caller.ask(call())).status == 200
        assert len(a.requests) == before

        undrained = await asked(proxy, "undrain", "agents/a")
        assert undrained.code == 0
        assert undrained.output.startswith("agents/a takes new work: ")
        assert (await asked(proxy, "drain", "agents/b")).output == (
            "agents/b takes no new work: 0 requests in flight, 0 unfinished tasks, 0 recent sessions; "
            "it is empty and can be stopped (as far as this proxy knows since it started)\n"
        )


async def test_a_request_under_way_keeps_a_drained_backend_from_being_empty() -> None:
    async def silent(side: BackendSide) -> None:
        await side.request()
        await side.peer_closes()

    async with backend(silent) as a, proxy_process(config_text(a.port)) as proxy:
        async with client(proxy.port) as caller:
            caller.send(call())
            await proxy.until_count(1, "backend_in_flight", backend="a")
            drained = await asked(proxy, "drain", "agents/a")
            assert drained.output.startswith("agents/a takes no new work: 1 request in flight, ")
            assert "empty" not in drained.output
            assert (await asked(proxy, "undrain", "agents/a")).code == 0


async def test_what_is_not_there_is_exit_code_1() -> None:
    async with proxy_process(config_text(1, 2)) as proxy:
        ended = await asked(proxy, "drain", "agents/c")
        assert (ended.code, ended.output) == (1, "")
        assert ended.complaints.endswith("refuses: 404, no backend 'c' in pool agents; there is a, b\n")
        ended = await asked(proxy, "undrain", "agent/a")
        assert ended.code == 1
        assert ended.complaints.endswith("refuses: 404, no pool 'agent'; there is agents\n")


async def test_the_token_comes_from_the_environment_or_the_command_line() -> None:
    admin = {"address": "127.0.0.1:0", "token": TOKEN}
    async with proxy_process(config_text(1, admin=admin)) as proxy:
        refused = await asked(proxy, "drain", "agents/a")
        assert (refused.code, refused.output) == (1, "")
        assert refused.complaints.endswith("refuses: 401, Unauthorized\n")
        wrong = await asked(proxy, "explain", token="wrong")
        assert wrong.code == 1
        for ended in (
            await asked(proxy, "drain", "agents/a", token=TOKEN),
            await asked(proxy, "drain", "agents/a", "--token", TOKEN),
            await asked(proxy, "drain", "agents/a", "--token", TOKEN, token="wrong"),
            await asked(proxy, "explain", token=TOKEN),
        ):
            assert (ended.code, ended.complaints) == (0, "")
            assert TOKEN not in ended.output
        assert TOKEN not in proxy.command.complaints


async def test_a_running_proxy_explains_with_its_pins_and_drains() -> None:
    created = json.dumps(
        {"jsonrpc": "2.0", "id": 1, "result": {"resultType": "task", "taskId": "secret-id", "status": "working"}}
    )
    answer = f"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: {len(created)}\r\n\r\n{created}"
    async with (
        backend(answering(answer.encode())) as a,
        backend() as b,
        proxy_process(config_text(a.port, b.port)) as proxy,
    ):
        async with client(proxy.port) as caller:
            while not a.requests:
                assert (await caller.ask(call())).status == 200
        assert (await asked(proxy, "drain", "agents/a")).code == 0

        modern = ("-H", "MCP-Protocol-Version: 2026-07-28")
        about_task = (*modern, "-H", "Mcp-Method: tasks/get", "-H", "Mcp-Name: secret-id")
        ended = await asked(proxy, "explain", *about_task)
        assert (ended.code, ended.complaints) == (0, "")
        assert re.search(
            r"by the task's pin:\n    a  http://127.0.0.1:\d+/mcp  weight 1, 0 in flight, draining\n", ended.output
        )
        assert "secret-id" not in ended.output
        told = json.loads((await asked(proxy, "explain", *about_task, "--json")).output)
        assert told["places"][0]["source"] == "pin"

        ended = await asked(proxy, "explain", *modern, "-H", "Mcp-Method: tools/call")
        assert re.search(r"picks one of:\n    b  \S+  weight 1, 0 in flight\nnote:", ended.output)


async def test_explain_and_ring_need_no_running_proxy() -> None:
    for arguments in (("explain",), ("ring", "--pool", "agents")):
        ended = await run(*arguments)
        assert (ended.code, ended.complaints) == (0, "")
        assert "agents" in ended.output or "legacy" in ended.output
