"""A proxy that is killed and started again finds every task that was running, with pins in memory only."""

import asyncio
import json
import signal
from pathlib import Path

from tests.process.harness import config_text, proxy_process, serving, started
from tests.wire.harness import backend, call, client, task
from tests.wire.task_backend import TaskBackend

TASKS = 500
CLIENTS = 10


async def polls(port: int, ids: list[str], turns: int) -> int:
    """How many polls of these tasks did not tell their state."""

    async def some(mine: list[str]) -> int:
        wrong = 0
        async with client(port) as caller:
            for _ in range(turns):
                for task_id in mine:
                    answer = await caller.ask(task(b"get", task_id.encode()))
                    wrong += "result" not in json.loads(answer.body)
        return wrong

    return sum(await asyncio.gather(*(some(ids[start::CLIENTS]) for start in range(CLIENTS))))


async def test_a_killed_proxy_loses_no_task(tmp_path: Path) -> None:
    makers = [TaskBackend(*(f"{name}-{i}" for i in range(TASKS))) for name in "abc"]
    async with backend(makers[0].script) as a, backend(makers[1].script) as b, backend(makers[2].script) as c:
        text = config_text(a.port, b.port, c.port)
        file = tmp_path / "proxy.yaml"
        file.write_text(text)
        with started("serve", "-c", str(file)) as command:
            killed = await serving(command)
            async with client(killed.port) as caller:
                ids = [json.loads((await caller.ask(call())).body)["result"]["taskId"] for _ in range(TASKS)]
            assert await polls(killed.port, ids, 1) == 0
            command.signal(signal.SIGKILL)
            assert await command.ended() == -signal.SIGKILL
        async with proxy_process(text) as proxy:
            assert await polls(proxy.port, ids, 2) == 0
            assert await proxy.count("searches_total", outcome="found") == TASKS
            assert await proxy.count("decisions_total", source="pin", outcome="served") == TASKS
            asked = sum(len(maker.asked) for maker in makers)
            # Before: one each. After: a search asks all three, unless the owner is quicker; then the pin leads there.
            assert TASKS * (1 + 1 + 1) <= asked <= TASKS * (1 + 3 + 1)
