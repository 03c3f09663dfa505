"""Several workers: backends are probed once for all, and all of them know."""

import asyncio
import json
import os
import signal
import tempfile
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from tests.process.harness import END_LIMIT, ProxyProcess, children_of, config_text, serving, started
from tests.wire.harness import BackendSide, ScriptedBackend, call, client, until

INTERVAL = 0.2  # seconds


class Probed(ScriptedBackend):
    """Answers /health as it feels, and everything else with its name; counts both."""

    def __init__(self, name: bytes) -> None:
        super().__init__(self.play)
        self.name = name
        self.well = True
        self.probes: list[float] = []
        self.calls = 0
        self.answer = b"200 OK"

    async def play(self, side: BackendSide) -> None:
        while True:
            request = await side.request()
            if request.first.startswith(b"GET /health "):
                self.probes.append(time.monotonic())
                side.send(b"HTTP/1.1 %d x\r\nContent-Length: 0\r\n\r\n" % (200 if self.well else 503))
            else:
                self.calls += 1
                side.send(b"HTTP/1.1 %b\r\nContent-Length: %d\r\n\r\n%b" % (self.answer, len(self.name), self.name))


@asynccontextmanager
async def probed(name: bytes) -> AsyncIterator[Probed]:
    one = Probed(name)
    await one.listen()
    try:
        yield one
    finally:
        await one.stop_listening()
        for playing in one.playing:
            playing.cancel()
        await until(lambda: not one.playing)


@asynccontextmanager
async def workers(*ports: int, **settings: Any) -> AsyncIterator[ProxyProcess]:
    """A proxy with two workers; `settings` are its pool's."""
    config = json.loads(config_text(*ports, workers=2))
    config["pools"]["agents"] |= settings
    with tempfile.TemporaryDirectory(prefix="proxy-config-") as folder:
        file = Path(folder, "proxy.yaml")
        file.write_text(json.dumps(config))
        with started("serve", "-c", str(file)) as command:
            yield await serving(command)
            command.terminate()
            assert await command.ended() == 0


async def served_by(proxy: ProxyProcess, clients: int = 16) -> set[bytes]:
    """Who serves so many clients: more than enough for each worker to get some of them."""

    async def one() -> bytes:
        async with client(proxy.port) as asking:
            return (await asking.ask(call())).body

    return set(await asyncio.gather(*(one() for _ in range(clients))))


HEALTH = {"path": "/health", "interval": f"{INTERVAL * 1000:g}ms", "timeout": "200ms", "rise": 1, "fall": 3}


async def test_the_workers_of_a_proxy_probe_once_and_all_know() -> None:
    async with probed(b"a") as a, probed(b"b") as b, workers(a.port, b.port, health=HEALTH) as proxy:
        assert await served_by(proxy) == {b"a", b"b"}
        begun = len(a.probes)
        await until(lambda: len(a.probes) > begun + 10)
        took = a.probes[begun + 10] - a.probes[begun]
        assert took > 10 * INTERVAL * 0.85  # not as often for each worker

        a.well = False
        await proxy.until_count(0, "backend_up", backend="a")
        for _ in range(3):
            assert await served_by(proxy) == {b"b"}
        (shown, other) = (await pools(proxy))["backends"]
        assert (shown["up"], shown["probe"]) == (False, "answered 503")
        assert (other["up"], other["probe"]) == (True, "answered 200")

        victim = children_of(proxy.command.pid)[0]
        os.kill(victim, signal.SIGKILL)
        await proxy.until_count(1, "worker_restarts_total")
        await proxy.until_count(2, "workers")
        for _ in range(3):
            assert await served_by(proxy) == {b"b"}  # the new one was told

        a.well = True
        await proxy.until_count(1, "backend_up", backend="a")
        deadline = time.monotonic() + END_LIMIT
        while await served_by(proxy) != {b"a", b"b"}:
            assert time.monotonic() < deadline


async def pools(proxy: ProxyProcess) -> Any:
    _, text = await proxy.admin("/api/pools")
    return json.loads(text)["pools"][0]


async def test_a_backend_that_one_worker_has_ejected_is_told() -> None:
    outlier = {"consecutive": 1, "ejection": "1h"}
    async with probed(b"a") as a, probed(b"b") as b, workers(a.port, b.port, outlier=outlier) as proxy:
        a.answer = b"503 x"
        async with client(proxy.port) as asking:
            for _ in range(4):
                await asking.ask(call())
        assert a.calls == 1
        await proxy.until_count(0, "backend_up", backend="a")
        assert await proxy.count("backend_up", backend="b") == 1
        assert await proxy.count("ejections_total", pool="agents") == 1
        (shown, other) = (await pools(proxy))["backends"]
        assert 3500 < shown["ejected"] <= 3600
        assert (shown["up"], other["ejected"]) == (True, None)
