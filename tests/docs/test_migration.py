"""The samples in docs/migration.md are taken by the proxies they are for, and share clients as the document says."""

import asyncio
import subprocess
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from proxy.routing.ownership import session_tag
from tests.docs.old_proxies import OLD_PROXIES, OldProxy, placed
from tests.wire.harness import PATIENCE, BackendSide, backend, closed_port

SESSION = f"{session_tag('agents', 'a')}.f00"
MODERN, LEGACY = {"MCP-Protocol-Version": "2026-07-28"}, {"MCP-Protocol-Version": "2025-11-25"}
# Who sends it; where it goes where no client is chosen, and where every one is.
REQUESTS = [
    (MODERN, "old", "new"),
    ({"MCP-Protocol-Version": "2027-01-01"}, "old", "new"),
    ({**MODERN, "Mcp-Session-Id": "f00"}, "old", "new"),  # a modern request has no session, whatever it says
    ({}, "old", "new"),  # initialize
    (LEGACY, "old", "new"),
    ({**LEGACY, "Mcp-Session-Id": "f00"}, "old", "old"),  # begun at the old one
    ({"Mcp-Session-Id": "f00.0a1b2c3d4e"}, "old", "old"),
    ({**LEGACY, "Mcp-Session-Id": SESSION}, "new", "new"),  # begun at the new one
    ({"Mcp-Session-Id": SESSION}, "new", "new"),
]


def needs(old: OldProxy) -> str:
    if old.program is None:
        pytest.skip(f"{old.kind.split()[-1]} is not installed")
    return old.program


@pytest.mark.parametrize("number", [0, 1])
@pytest.mark.parametrize("old", OLD_PROXIES, ids=lambda old: old.kind)
def test_a_sample_is_a_configuration(old: OldProxy, number: int, tmp_path: Path) -> None:
    program, file = needs(old), tmp_path / "config.yaml"
    file.write_text(old.whole(old.samples[number], tmp_path))

    done = subprocess.run([program, *old.check(file)], capture_output=True, text=True, timeout=60)

    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize("old", OLD_PROXIES, ids=lambda old: old.kind)
def test_there_are_two_samples_of_each(old: OldProxy) -> None:
    before, sharing = old.samples

    assert before != sharing
    for replaced in (*old.none, *old.every):
        assert replaced in sharing


@pytest.mark.parametrize("chosen", ["none", "every"])
@pytest.mark.parametrize("old", OLD_PROXIES, ids=lambda old: old.kind)
async def test_sessions_stay_where_they_began(old: OldProxy, chosen: str, tmp_path: Path) -> None:
    sample = old.samples[1]
    for written, meant in (old.none if chosen == "none" else old.every).items():
        sample = sample.replace(written, meant)
    async with backend(says("old")) as before, backend(says("new")) as after:
        port = closed_port()
        text = placed(sample, port=port, old=before.port, new=after.port)
        async with running(old, old.whole(text, tmp_path), port, tmp_path):
            went = [(fields, await asked(port, fields)) for fields, _, _ in REQUESTS]

    assert went == [(fields, none if chosen == "none" else every) for fields, none, every in REQUESTS]


def says(name: str) -> Callable[[BackendSide], Awaitable[None]]:
    async def answer(side: BackendSide) -> None:
        await side.reader.readuntil(b"\r\n\r\n")
        body = name.encode()
        side.send(b"HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: %d\r\n\r\n%b" % (len(body), body))

    return answer


async def asked(port: int, fields: dict[str, str]) -> str:
    """Which side answers such a request."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    lines = "".join(f"{name}: {value}\r\n" for name, value in fields.items())
    writer.write(f"POST /mcp HTTP/1.1\r\nHost: a\r\nConnection: close\r\n{lines}Content-Length: 0\r\n\r\n".encode())
    try:
        async with asyncio.timeout(PATIENCE):
            answer = await reader.read()
    finally:
        writer.close()
    assert answer.startswith(b"HTTP/1.1 200 "), answer
    return answer[-3:].decode()


@asynccontextmanager
async def running(old: OldProxy, text: str, port: int, folder: Path) -> AsyncIterator[None]:
    """The old proxy, until it is no longer needed."""
    program, file, log = needs(old), folder / "config.yaml", folder / "log"
    file.write_text(text)
    with log.open("wb") as output:
        process = await asyncio.create_subprocess_exec(program, *old.run(file), stdout=output, stderr=output)
    try:
        async with asyncio.timeout(PATIENCE):
            while True:
                assert process.returncode is None, log.read_text()
                try:
                    _, writer = await asyncio.open_connection("127.0.0.1", port)
                except ConnectionError:
                    await asyncio.sleep(0.05)
                else:
                    writer.close()
                    break
        yield
    finally:
        if process.returncode is None:
            process.terminate()
        await process.wait()
