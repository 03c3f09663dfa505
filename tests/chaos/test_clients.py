"""What a client makes of an answer: each that must not be is noted as such, and each that may be is asked for again."""

import json
import random
from collections.abc import Awaitable, Callable

import pytest

from tests.chaos import clients
from tests.chaos.clients import Caller, Plan
from tests.chaos.ledger import Journal, Ledger
from tests.wire.harness import BackendSide, backend

JSON = b"Content-Type: application/json\r\n"
UNKNOWN = b'{"jsonrpc":"2.0","id":1,"error":{"code":-32602,"message":"Task not found"}}'


def message(task_id: str = "t", status: str = "completed", by: str = "a") -> bytes:
    result = {"taskId": task_id, "status": status, "_meta": {"backend": by}}
    return json.dumps({"jsonrpc": "2.0", "id": 1, "result": result}).encode()


def answer(status: int, body: bytes, fields: bytes = JSON) -> bytes:
    return b"HTTP/1.1 %d X\r\n%bContent-Length: %d\r\n\r\n%b" % (status, fields, len(body), body)


def proxy(first: bytes, *, to: str, cut: bool) -> Callable[[BackendSide], Awaitable[None]]:
    """Answers the first request of this method so, and all others as a task that is completed."""
    left = [first]

    async def script(side: BackendSide) -> None:
        while True:
            request = await side.request()
            if left and request.get("Mcp-Method") == to:
                side.send(left.pop())
                if cut:
                    return
            else:
                side.answer(message())

    return script


async def outcome(first: bytes, *, to: str, cut: bool = False) -> Ledger:
    """What is noted of one task, whose first poll or call is answered so."""
    ledger = Ledger(Journal())
    ledger.journal.note("proxy killed", "0")
    async with backend(proxy(first, to=to, cut=cut)) as one:
        await Caller(0, [one.port], ledger, random.Random(1), 1.0).run([Plan(0.0, 0.0)])
    return ledger


@pytest.fixture(autouse=True)
def hasty(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(clients, "EVERY", (0.0, 0.0))
    monkeypatch.setattr(clients, "PAUSE", (0.0, 0.0))


@pytest.mark.parametrize(
    ("first", "kind"),
    [
        (answer(200, UNKNOWN), "wrong"),
        (answer(400, UNKNOWN), "wrong"),
        (answer(404, UNKNOWN), "wrong"),
        (answer(200, message("another")), "astray"),
        (answer(200, message(by="b")), "astray"),
        (answer(503, b"{}"), "strange"),  # without Retry-After
        (answer(502, b"{}", b"Retry-After: 1\r\n"), "strange"),
        (answer(200, b"no JSON"), "strange"),
        (answer(200, b'{"jsonrpc":"2.0","id":1,"error":{"code":-32603,"message":"?"}}'), "strange"),
    ],
)
async def test_an_answer_that_must_not_be_is_noted_with_its_owner_and_what_happened_before(
    first: bytes, kind: str
) -> None:
    ledger = await outcome(first, to="tasks/get")
    assert ledger.counts == {kind: 1, "polls": 1}
    (mistake,) = ledger.mistakes
    assert mistake.startswith(f"{kind} answer through proxy 0 (")
    assert "its task is at a, made through proxy 0; 0.0" in mistake
    assert mistake.endswith("s before: proxy killed 0")


@pytest.mark.parametrize("method", ["tools/call", "tasks/get"])
@pytest.mark.parametrize(
    ("first", "cut", "kind"),
    [
        (answer(503, b"{}", b"Retry-After: 1\r\nMcp-Proxy-Error: owner_down\r\n"), False, "503 owner_down"),
        (b"", True, "cut"),
        (answer(200, message())[:-1], True, "cut"),
    ],
)
async def test_what_a_proxy_may_do_is_counted_and_asked_again(method: str, first: bytes, cut: bool, kind: str) -> None:
    ledger = await outcome(first, to=method, cut=cut)
    name = {"tools/call": "call", "tasks/get": "poll"}[method]
    assert ledger.counts == {f"{kind} {name}" if cut else kind: 1, "polls": 1}
    assert ledger.mistakes == []
    assert [task.done for task in ledger.tasks] == [True]


async def test_a_task_whose_polls_are_never_answered_is_given_up_and_lost(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(clients, "TRIES", 5)
    ledger = Ledger(Journal())

    async def script(side: BackendSide) -> None:
        if (await side.request()).get("Mcp-Method") == "tools/call":
            side.answer(message())

    async with backend(script) as one:
        await Caller(0, [one.port], ledger, random.Random(1), 1.0).run([Plan(0.0, 0.0)])
    assert ledger.counts == {"cut poll": 5}
    assert ledger.unfinished() == 1
