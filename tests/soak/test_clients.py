"""What the clients of a soak run find wrong, each with a proxy that does one thing wrong."""

import asyncio
import json
import random
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest

from tests.soak import backend as module
from tests.soak import clients
from tests.soak.backend import Conversation, Memory
from tests.soak.clients import Caller, Calls, Listeners, Sessions, Streams, Tasks
from tests.soak.ledger import Ledger
from tests.soak.outages import Outages
from tests.wire.harness import BackendSide, ScriptedBackend, backend

Script = Callable[[BackendSide], Awaitable[None]]
Change = Callable[[bytes], bytes]
KINDS = (Calls, Streams, Tasks, Sessions, Listeners)


async def served(port: int, kind: type[Caller]) -> Ledger:
    """What is noted of one turn of a client of this kind."""
    ledger = Ledger()
    caller = kind(0, port, ledger, Outages(), random.Random(5))
    over = asyncio.Event()
    asyncio.get_running_loop().call_soon(over.set)  # one turn
    async with asyncio.timeout(20):
        await caller.run(over)
    return ledger


@pytest.fixture(autouse=True)
def hasty(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(clients, "POLL", (0.0, 0.01))
    monkeypatch.setattr(clients, "PAUSE", (0.0, 0.0))
    monkeypatch.setattr(clients, "WORKING", (0.0, 0.05))
    monkeypatch.setattr(clients, "EVERY", (0.0, 0.01))
    monkeypatch.setattr(clients, "LISTENING", (0.2, 0.3))
    monkeypatch.setattr(module, "EVERY", 0.02)
    monkeypatch.setattr(clients, "CANCELLED", 0.0)
    monkeypatch.setattr(clients, "LEAVING", 0.0)


@pytest.mark.parametrize("kind", KINDS)
async def test_a_backend_serves_every_kind_of_client(kind: type[Caller], tmp_path: Path) -> None:
    memory = Memory("a.1", tmp_path / "journal")
    server = await asyncio.get_running_loop().create_server(lambda: Conversation(memory), "127.0.0.1", 0)
    ledger = await served(server.sockets[0].getsockname()[1], kind)
    server.close()
    assert ledger.mistakes == []
    executed = memory.journal.read_text().splitlines()
    assert sorted(executed) == sorted(ledger.labels)
    assert bool(executed) == (kind is not Listeners)


# ---- a proxy in between that changes something
def changing(port: int, change: Change) -> Script:
    """Carries everything to and fro, and changes what comes back."""

    async def script(side: BackendSide) -> None:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)

        async def there() -> None:
            while data := await side.reader.read(2**20):
                writer.write(data)
            writer.close()

        going = asyncio.ensure_future(there())
        try:
            while data := await reader.read(2**20):
                side.send(change(data))
        finally:
            going.cancel()
            writer.close()

    return script


def swapped(old: bytes, new: bytes) -> Change:
    """Texts of one length, so that lengths and chunks stay right."""
    assert len(old) == len(new)
    return lambda data: data.replace(old, new)


@pytest.mark.parametrize(
    ("kind", "change", "mistake"),
    [
        (Calls, swapped(b"Calls-0/0", b"Calls-0/1"), "call: answered Calls-0/1"),
        (Calls, swapped(b"200 OK", b"500 OK"), "call: status 500"),
        (Streams, swapped(b'"progress": 1}', b'"progress": 7}'), "stream: told [7"),
        (Streams, swapped(b'"result"', b'"resign"'), "stream: ended without its result"),
        (Sessions, swapped(b'"count": 2', b'"count": 1'), "session call: call 2 counted 1"),
        (Listeners, swapped(b'"number": 2', b'"number": 3'), ": event 3 of a.1 after 1"),
        (Listeners, swapped(b"acknowledged", b"acquainted-w"), ": events before the acknowledgement"),
    ],
)
async def test_an_answer_that_says_something_wrong_is_a_mistake(
    kind: type[Caller], change: Change, mistake: str, tmp_path: Path
) -> None:
    memory = Memory("a.1", tmp_path / "journal")
    server = await asyncio.get_running_loop().create_server(lambda: Conversation(memory), "127.0.0.1", 0)
    async with backend(changing(server.sockets[0].getsockname()[1], change)) as between:
        ledger = await served(between.port, kind)
    server.close()
    assert mistake in "\n".join(ledger.mistakes)


# ---- a proxy that answers by itself
def message(task_id: str = "t", status: str = "completed", by: str = "a.1") -> bytes:
    result = {"taskId": task_id, "status": status, "by": by}
    return json.dumps({"jsonrpc": "2.0", "id": 1, "result": result}).encode()


UNKNOWN = b'{"jsonrpc":"2.0","id":1,"error":{"code":-32602,"message":"Task not found"}}'


@pytest.mark.parametrize(
    ("poll", "mistake"),
    [
        (message(), ""),
        (message(by="b.1"), "poll: one of b.1 was told for one of a.1"),
        (message(by="a.2"), "poll: one of a.2 was told for one of a.1"),
        (message("another"), "poll: one of a.1 was told"),
        (UNKNOWN, "though a.1 lives"),
        (message(status="working"), ""),
    ],
)
async def test_a_poll_that_is_answered_wrongly_is_a_mistake(poll: bytes, mistake: str) -> None:
    polls = 0

    async def script(side: BackendSide) -> None:
        nonlocal polls
        while True:
            if (await side.request()).get("Mcp-Method") == "tools/call":
                side.answer(message(status="working"))
            else:
                polls += 1
                side.answer(poll if polls < 10 else message())

    async with backend(script) as between:
        ledger = await served(between.port, Tasks)
    assert mistake in "\n".join(ledger.mistakes)
    assert bool(ledger.mistakes) == bool(mistake)


async def test_a_proxy_that_hangs_up_without_a_word_makes_mistakes() -> None:
    async def script(side: BackendSide) -> None:
        await side.request()

    async with backend(script) as between:
        for kind in KINDS:
            ledger = await served(between.port, kind)
            assert "cut before a head" in ledger.mistakes[0]
    stopped = ScriptedBackend(script)
    await stopped.listen()
    await stopped.end()
    assert "refused before a head" in (await served(stopped.port, Streams)).mistakes[0]
