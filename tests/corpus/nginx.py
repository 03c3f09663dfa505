"""nginx as another reader of requests: it stands in front of a recorder, and forwards each as it understood it."""

import asyncio
import shutil
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from tests.corpus.readers import Read, read_requests, read_responses
from tests.wire.harness import PATIENCE, BackendSide, backend, closed_port

PROGRAM = shutil.which("nginx") or shutil.which("nginx", path="/usr/sbin")
"""Debian's nginx-light does."""
_CONFIG = """
daemon off;
master_process off;
pid nginx.pid;
error_log error.log;
events {{ worker_connections 64; }}
http {{
    access_log off;
    client_body_temp_path body;
    proxy_temp_path proxy;
    fastcgi_temp_path fastcgi;
    uwsgi_temp_path uwsgi;
    scgi_temp_path scgi;
    large_client_header_buffers 4 80k;
    client_max_body_size 0;
    underscores_in_headers on;
    ignore_invalid_headers off;
    merge_slashes off;
    server {{
        listen 127.0.0.1:{port};
        location / {{
            proxy_pass http://127.0.0.1:{upstream};
            proxy_http_version 1.1;
            proxy_set_header X-From $remote_port;
            proxy_request_buffering on;
        }}
    }}
}}
"""


class Nginx:
    """One nginx that runs, and what is behind it."""

    def __init__(self, port: int, behind: list[bytes]) -> None:
        self._port = port
        self._behind = behind

    async def reads(self, text: bytes, count: int) -> tuple[list[Read], bool]:
        """The requests it takes this for, which should be so many; and whether it refused or closed behind them."""
        reader, writer = await asyncio.open_connection("127.0.0.1", self._port)
        own = str(writer.get_extra_info("sockname")[1]).encode()
        answers, closed = b"", False
        try:
            writer.write(text)
            async with asyncio.timeout(PATIENCE):
                while not closed and len(self._statuses(answers)) < count:
                    data = await reader.read(2**16)
                    answers += data
                    closed = not data
                writer.write_eof()
                while not closed and await reader.read(2**16):
                    pass  # what else it makes of the text
        except ConnectionError:
            closed = True
        finally:
            writer.close()
        found = []
        for sent in self._behind:
            reading = read_requests(sent)
            assert not reading.error
            found += [message for message in reading.messages if (b"x-from", own) in message.fields]
        self._behind.clear()
        return found, closed or any(status != b"200" for status in self._statuses(answers))

    def _statuses(self, answers: bytes) -> list[bytes]:
        """Of the final answers so far; none has a body but nginx's own, which it closes behind."""
        messages = read_responses(answers, [b"POST"] * 50, closed=False).messages
        return [read.start[0] for read in messages if read.start != (b"100",)]


@asynccontextmanager
async def nginx(folder: Path) -> AsyncIterator[Nginx]:
    """Runs one that keeps its files in this folder."""
    assert PROGRAM is not None
    behind: list[bytes] = []

    async def record(side: BackendSide) -> None:
        text = b""
        while not read_requests(text).messages:
            data = await side.reader.read(2**16)
            if not data:
                return
            text += data
        behind.append(text)
        side.send(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\nConnection: close\r\n\r\n")

    async with backend(record) as recorder:
        port = closed_port()
        (folder / "nginx.conf").write_text(_CONFIG.format(port=port, upstream=recorder.port))
        process = await asyncio.create_subprocess_exec(
            PROGRAM, "-p", str(folder), "-c", "nginx.conf", "-e", "error.log", stderr=asyncio.subprocess.DEVNULL
        )
        try:
            await _listens(port, process, folder)
            yield Nginx(port, behind)
        finally:
            if process.returncode is None:
                process.terminate()
            await process.wait()


async def _listens(port: int, process: asyncio.subprocess.Process, folder: Path) -> None:
    async with asyncio.timeout(PATIENCE):
        while True:
            assert process.returncode is None, (folder / "error.log").read_text()
            try:
                _, writer = await asyncio.open_connection("127.0.0.1", port)
            except ConnectionError:
                await asyncio.sleep(0.02)
            else:
                writer.close()
                return
