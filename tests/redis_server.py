"""A Redis of its own for a test: Debian's redis-server on loopback, started, killed, stalled and started again."""

import asyncio
import os
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from redis.asyncio import Redis

PATIENCE = 10.0  # seconds for the server to come up
SKIPPING = "SKIP_REDIS_TESTS"


class RedisServer:
    """One server on one port. `asking` is a client of the test's own."""

    def __init__(self, program: str, directory: Path, options: tuple[str, ...]) -> None:
        self._program = program
        self.directory = directory
        self._options = options
        self._process: subprocess.Popen[bytes] | None = None
        self.port = 0

    @property
    def url(self) -> str:
        return f"redis://127.0.0.1:{self.port}"

    async def start(self, *options: str) -> None:
        """Starts it on the same port as before, and waits until it answers. Further options stay out of `start`s."""
        for _ in range(5):
            port = self.port or _free_port()
            command = [self._program, "--port", str(port), "--bind", "127.0.0.1", "--dir", str(self.directory)]
            log = self.directory / "log"
            self._process = subprocess.Popen(
                [*command, "--save", "", "--appendonly", "no", *self._options, *options, "--logfile", str(log)],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
            )
            if await self._answers(port):
                self.port = port
                return
            self.kill()
        raise RuntimeError(f"redis-server does not start:\n{(self.directory / 'log').read_text()}")

    async def _answers(self, port: int) -> bool:
        deadline = time.monotonic() + PATIENCE
        assert self._process is not None
        while self._process.poll() is None:
            assert time.monotonic() < deadline, "redis-server does not answer"
            try:
                _, writer = await asyncio.open_connection("127.0.0.1", port)
            except OSError:
                await asyncio.sleep(0.01)
            else:
                writer.close()
                await writer.wait_closed()
                return True
        return False  # another one was faster on this port

    def kill(self) -> None:
        """Ends it at once, whatever it does; its data are gone unless it was told to keep them."""
        process, self._process = self._process, None
        if process is not None:
            process.kill()
            process.wait()

    def stall(self) -> None:
        """It keeps its connections and answers no more."""
        assert self._process is not None
        os.kill(self._process.pid, signal.SIGSTOP)

    def go_on(self) -> None:
        assert self._process is not None
        os.kill(self._process.pid, signal.SIGCONT)

    @asynccontextmanager
    async def asking(self, password: str | None = None) -> AsyncIterator[Redis]:
        """A client that looks at what is there, and changes it."""
        client = Redis(host="127.0.0.1", port=self.port, password=password, protocol=2)
        try:
            yield client
        finally:
            await client.aclose()


@asynccontextmanager
async def redis_server(*options: str) -> AsyncIterator[RedisServer]:
    """A running server with these further options of its command line."""
    with tempfile.TemporaryDirectory(prefix="redis-") as directory:
        server = RedisServer(required_program(), Path(directory), options)
        try:
            await server.start()
            yield server
        finally:
            server.kill()


async def pass_time(client: Redis, seconds: float) -> None:
    """Lets so much time pass for all pins that are in this Redis."""
    by = round(seconds * 1000)
    async for key in client.scan_iter(match="mcp:{pins}:*"):
        left = await client.pttl(key)
        if left >= 0:
            await client.pexpire(key, left - by)  # deletes what has none left
        elif await client.type(key) == b"zset":
            # By the command itself: the client's own method has types that mypy cannot follow.
            flat: list[bytes] = await client.execute_command("ZRANGE", key, 0, -1, "WITHSCORES")  # type: ignore[no-untyped-call]  # redis leaves it unannotated
            for member, score in zip(flat[::2], flat[1::2], strict=True):
                await client.zadd(key, {member: float(score) - by})


def required_program() -> str:
    """The server that tests start. Without one the test fails; it is skipped only where that is wanted."""
    program = shutil.which("redis-server") or shutil.which("valkey-server")
    if program is None:
        if os.environ.get(SKIPPING):
            pytest.skip(f"no redis-server here, and {SKIPPING} is set")
        pytest.fail(f"these tests need redis-server (Debian: apt install redis-server), or {SKIPPING}=1 to do without")
    return program


def _free_port() -> int:
    with socket.socket() as sock:
        sock.bind(("127.0.0.1", 0))
        return int(sock.getsockname()[1])
