"""The demo's orchestration: its servers as real processes, and the texts it shows."""

import asyncio
import json
import os
import shutil
import socket
from asyncio.subprocess import PIPE
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager

import aiohttp
import pytest
import yaml
from aiohttp import web
from aiohttp.test_utils import TestServer

from proxy.demo import run as demo
from proxy.demo.run import DemoServer, config_text, free_address, invitation, lines_to_try, run, spawn_servers
from proxy.demo.server import Instance, make_app
from proxy.demo.tasks import Fate, Outcome, TaskRecord, count_lost_by_hash, report, run_tasks

StartServer = Callable[[web.Application], Awaitable[TestServer]]


def test_config_names_every_server() -> None:
    servers = [DemoServer(name, f"http://127.0.0.1:{port}/mcp", 1) for name, port in (("a", 1), ("b", 2), ("c", 3))]
    assert yaml.safe_load(config_text(servers, "127.0.0.1:8080", "[::1]:9901")) == {
        "listen": "127.0.0.1:8080",
        "admin": "[::1]:9901",
        "pools": {
            "agents": {
                "backends": [
                    {"id": "a", "url": "http://127.0.0.1:1/mcp"},
                    {"id": "b", "url": "http://127.0.0.1:2/mcp"},
                    {"id": "c", "url": "http://127.0.0.1:3/mcp"},
                ],
                "balance": "least_in_flight",
            }
        },
        "routes": [{"name": "rest", "pool": "agents"}],
        "log": {"access": False},
    }


OUTCOME = Outcome(
    (
        TaskRecord("secret-1", "a", ("a", "a"), Fate.COMPLETED),
        TaskRecord("secret-2", "b", ("b",), Fate.COMPLETED),
        TaskRecord("secret-3", "b", ("b", "a"), Fate.LOST),
        TaskRecord("secret-4", "a", ("-",), Fate.FAILED, "owner_down"),
        TaskRecord("", "-", (), Fate.FAILED, "no_backend"),
    )
)


def test_report_tells_who_served_what() -> None:
    assert report(OUTCOME, 3).splitlines() == [
        "server    tasks made   polls of its own   polls of others",
        "-                  0                  0                 1",
        "a                  2                  2                 1",
        "b                  2                  2                 0",
        "",
        "completed through the proxy:                2 of 5",
        "would be lost by hashing the task id alone: 3 of 4",
        "lost, a server did not know the task:       1 of 5",
        "failed, no_backend: 1 of 5",
        "failed, owner_down: 1 of 5",
    ]


def test_hashing_loses_what_it_sends_elsewhere() -> None:
    """A task that was never made cannot be lost."""

    def hash_owner(task_id: str, backend_ids: Sequence[str]) -> str:
        assert task_id
        return backend_ids[0]

    assert count_lost_by_hash(OUTCOME, ["a", "b"], hash_owner) == 2


def test_no_task_id_is_shown() -> None:
    assert "secret" not in report(OUTCOME, 3) + repr(OUTCOME)


def test_a_taken_port_is_avoided() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        assert free_address(port) != f"127.0.0.1:{port}"
    assert free_address(port) == f"127.0.0.1:{port}"


async def test_the_lines_to_try_work_in_a_shell(aiohttp_server: StartServer) -> None:
    if shutil.which("curl") is None:
        pytest.skip("no curl here")
    server = await aiohttp_server(make_app(Instance("a")))
    url = str(server.make_url("/mcp"))
    text = invitation(url, "http://127.0.0.1:9901/")
    assert "\n  admin  http://127.0.0.1:9901/\n" in text
    make, ask = (line.strip() for line in text.splitlines() if "curl" in line)
    assert (make, ask) == lines_to_try(url)
    shell = await asyncio.create_subprocess_exec("sh", "-c", f"{make}\n{ask}", stdout=PIPE)
    output, _ = await asyncio.wait_for(shell.communicate(), 20)
    shown, answered = output.decode().splitlines()
    told = json.loads(answered)["result"]
    assert (told["taskId"] == shown, len(shown), told["status"]) == (True, 32, "working")


async def test_tasks_of_one_process_are_completed() -> None:
    async with spawn_servers(1) as (server,):
        outcome = await run_tasks(server.url, 6, 6)
        assert outcome.count(Fate.COMPLETED) == len(outcome.tasks) == 6
        assert {task.creator for task in outcome.tasks} == {"a"}
        assert {poller for task in outcome.tasks for poller in task.pollers} == {"a"}
        assert len({task.task_id for task in outcome.tasks}) == 6
    with pytest.raises(ProcessLookupError):
        os.kill(server.pid, 0)


async def test_a_server_that_does_not_know_the_task_loses_it(aiohttp_server: StartServer) -> None:
    """Two instances behind one address, by turns: what happens without an owner."""
    instances = [Instance("a"), Instance("b")]
    turns = [0]

    async def by_turns(request: web.Request) -> web.Response:
        turns[0] += 1
        return await instances[turns[0] % 2].post(request)

    app = web.Application()
    app.router.add_post("/mcp", by_turns)
    server = await aiohttp_server(app)
    outcome = await run_tasks(str(server.make_url("/mcp")), 4, 1)
    assert outcome.count(Fate.LOST) == 4
    assert {task.creator for task in outcome.tasks} == {"b"}
    assert {task.pollers for task in outcome.tasks} == {("a",)}


async def test_failures_are_recorded_not_raised(aiohttp_server: StartServer) -> None:
    async def refuse(request: web.Request) -> web.Response:
        error = {"code": -32000, "message": "no backend"}
        headers = {"Mcp-Proxy-Error": "no_backend"}
        return web.json_response({"jsonrpc": "2.0", "error": error}, status=503, headers=headers)

    async def babble(request: web.Request) -> web.Response:
        return web.Response(text="<html>")

    app = web.Application()
    app.router.add_post("/refuse", refuse)
    app.router.add_post("/babble", babble)
    server = await aiohttp_server(app)
    for path, reason in (("/refuse", "no_backend"), ("/babble", "JSONDecodeError")):
        outcome = await run_tasks(str(server.make_url(path)), 2, 2)
        assert [(task.fate, task.reason) for task in outcome.tasks] == [(Fate.FAILED, reason)] * 2
    outcome = await run_tasks(f"http://{free_address(0)}/mcp", 1, 1)
    assert [(task.fate, task.creator) for task in outcome.tasks] == [(Fate.FAILED, "-")]


async def test_a_server_that_does_not_start_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.executable", "/bin/false")
    with pytest.raises(RuntimeError, match="demo server a ended with status 1"):
        async with spawn_servers(2):
            pytest.fail("entered without servers")


async def test_the_whole_demo(monkeypatch: pytest.MonkeyPatch) -> None:
    """With a proxy that leads to the first server only, since the proxy itself is tested elsewhere."""
    shown: list[str] = []
    events: list[str] = []
    monkeypatch.setattr(demo, "TASKS", 3)

    @asynccontextmanager
    async def start_proxy(config: str) -> AsyncIterator[None]:
        parsed = yaml.safe_load(config)
        backend = parsed["pools"]["agents"]["backends"][0]["url"]

        async def forward(request: web.Request) -> web.Response:
            headers = {name: value for name, value in request.headers.items() if name not in ("Host", "Content-Length")}
            async with (
                aiohttp.ClientSession() as session,
                session.post(backend, data=await request.read(), headers=headers) as answer,
            ):
                served_by = {"Served-By": answer.headers["Served-By"]}
                return web.Response(body=await answer.read(), status=answer.status, headers=served_by)

        app = web.Application()
        app.router.add_post("/mcp", forward)
        runner = web.AppRunner(app)
        await runner.setup()
        host, _, port = parsed["listen"].rpartition(":")
        await web.TCPSite(runner, host, int(port)).start()
        events.append("started")
        yield
        events.append("ended")
        await runner.cleanup()

    async def keep_serving() -> None:
        events.append("kept serving")

    def hash_owner(task_id: str, backend_ids: Sequence[str]) -> str:
        assert list(backend_ids) == ["a", "b", "c"]
        return "b"

    await run(start_proxy, hash_owner, keep_serving, shown.append)
    assert events == ["started", "kept serving", "ended"]
    text = "\n".join(shown)
    assert "completed through the proxy:                3 of 3" in text
    assert "would be lost by hashing the task id alone: 3 of 3" in text
    assert "Ctrl-C" in text
    assert shown[-1].startswith("Meanwhile completed: ")
