"""Whatever clients send, the metrics of a serving process keep their size, and neither they nor the log repeat it."""

import json
import random
from collections.abc import Callable, Iterator

from tests.process.harness import ProxyProcess, config_text, proxy_process
from tests.wire.harness import BackendSide, backend, call, client, post, task

ROUNDS = 50  # of a dozen requests each, whose texts are all new
VERSION = b"MCP-Protocol-Version: 2026-07-28"


async def test_what_clients_send_makes_no_series_and_is_not_repeated() -> None:
    words = Words()
    settings = {"access": True, "format": "json"}
    async with backend(tasks) as server, proxy_process(config_text(server.port, log=settings)) as proxy:
        await one_round(proxy, words)
        before = (await proxy.series()).keys()
        for _ in range(ROUNDS):
            await one_round(proxy, words)
        assert (await proxy.series()).keys() == before
        assert await proxy.count("decisions_total", source="pin", outcome="served") == 2 * (ROUNDS + 1)
        assert await proxy.count("decisions_total", source="ring", outcome="unknown") == ROUNDS + 1

        _, metrics = await proxy.admin("/metrics")
        _, pools = await proxy.admin("/api/pools")
        proxy.command.terminate()
        assert await proxy.command.ended() == 0
        lines = proxy.command.output.splitlines()
        assert sum('"method":"tasks/get"' in line for line in lines) == 2 * (ROUNDS + 1)
        told = metrics + pools + proxy.command.output + proxy.command.complaints
        assert len(words.made) > 10 * ROUNDS
        assert [word for word in words.made if word in told] == []


class Words:
    """Words that occur nowhere else."""

    def __init__(self) -> None:
        self._random = random.Random(20)
        self.made: list[str] = []

    def __call__(self) -> bytes:
        self.made.append(f"w{self._random.getrandbits(64):016x}")
        return self.made[-1].encode()


def requests(word: Callable[[], bytes]) -> Iterator[tuple[bytes, int]]:
    """A request of every kind that carries a text of the client's choice, and the status it must get."""
    made = b"made-" + word()
    yield call(made), 200  # the answer makes a task of this id
    yield task(b"get", made, b"Mcp-Session-Id: " + word()), 200  # its owner answers
    yield task(b"cancel", made), 200
    yield task(b"get", word()), 200  # the backend knows no such task
    yield task(b"update", b"=?base64?" + word() + b"?="), 400  # does not decode
    yield call(word(), b"Authorization: Bearer " + word()), 200
    yield call(word(), b"Mcp-Name: " + word()), 400  # comes twice
    yield call(word(), b"Mcp-Param-" + word() + b": " + word()), 200
    yield post(VERSION, b"Mcp-Method: " + word(), b"Mcp-Name: " + word()), 200
    yield post(VERSION, b"Mcp-Method: tasks/" + word(), b"Mcp-Name: " + word()), 200
    yield (
        post(b"MCP-Protocol-Version: " + word(), b"Mcp-Session-Id: " + word(), b"Mcp-Method: " + word()),
        404,
    )  # no such session
    yield post(target=b"/" + word() + b"?" + word()), 404  # no route
    yield word() + b" /mcp HTTP/1.1\r\nHost: " + word() + b"\r\n\r\n", 400  # no such verb: ends the connection


async def one_round(proxy: ProxyProcess, word: Callable[[], bytes]) -> None:
    async with client(proxy.port) as caller:
        for request, status in requests(word):
            assert (await caller.ask(request)).status == status, request


async def tasks(side: BackendSide) -> None:
    """A script: makes the task that a call names `made-...`, and knows tasks by that."""
    while True:
        request = await side.request()
        method, name = request.get("Mcp-Method") or "", request.get("Mcp-Name") or ""
        answer: dict[str, object] = {"jsonrpc": "2.0", "id": 1}
        if name.startswith("made-"):
            kind = "task" if method == "tools/call" else "complete"
            answer["result"] = {"resultType": kind, "taskId": name, "status": "working"}
        elif method.startswith("tasks/"):
            answer["error"] = {"code": -32602, "message": f"no task {name}"}
        else:
            answer["result"] = {"resultType": "complete", "echo": name}
        side.answer(json.dumps(answer).encode())
