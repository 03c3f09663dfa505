"""Requests say the same in head and body; answers have the length that the load generator expects."""

import json
from typing import Any

import pytest

from bench.framing import Message, MessageReader, field
from bench.workload import (
    END_OF_STREAM,
    EVENTS,
    SENT_AT,
    TASKS,
    TOOLS,
    answer,
    asks_for_events,
    body_calls,
    created_task_id,
    event,
    event_calls,
    task_creations,
    task_polls,
    tool_calls,
)

AUTHORITY = "127.0.0.1:8080"
TASK_IDS = ("a" * 43, "b" * 43)
BATCHES = [tool_calls(AUTHORITY), task_creations(AUTHORITY), task_polls(AUTHORITY, TASK_IDS), body_calls(AUTHORITY)]


def only_message(data: bytes) -> Message:
    (message,) = MessageReader().feed(data)
    return message


@pytest.mark.parametrize("batch", BATCHES)
def test_head_and_body_of_every_request_agree(batch: Any) -> None:
    for request in batch.requests:
        head, text = only_message(request)
        body = json.loads(text)
        params = body["params"]
        assert field(head, b"host") == AUTHORITY.encode()
        assert field(head, b"mcp-protocol-version") == b"2026-07-28"
        assert params["_meta"]["io.modelcontextprotocol/protocolVersion"] == "2026-07-28"
        assert field(head, b"mcp-method") == body["method"].encode()
        assert field(head, b"mcp-name") == params.get("name", params.get("taskId")).encode()


@pytest.mark.parametrize("batch", BATCHES)
def test_every_answer_has_the_expected_length(batch: Any) -> None:
    for request in batch.requests:
        assert len(only_message(answer(only_message(request).head)).body) == batch.answer_length


def test_the_batches_rotate_over_all_tools_and_tasks() -> None:
    calls, creations, polls, _ = BATCHES
    assert len(set(calls.requests)) == len(TOOLS)
    assert len(creations.requests) == TASKS
    assert len(set(polls.requests)) == len(TASK_IDS)


def test_each_creation_names_a_task_of_its_own_and_a_poll_of_it_is_answered_about_it() -> None:
    creation = only_message(task_creations(AUTHORITY).requests[0])
    first, second = (created_task_id(only_message(answer(creation.head)).body) for _ in range(2))
    assert first != second
    poll = only_message(task_polls(AUTHORITY, [first]).requests[0])
    assert json.loads(only_message(answer(poll.head)).body)["result"]["taskId"] == first


def test_an_answer_that_creates_no_task_is_noticed() -> None:
    call = only_message(tool_calls(AUTHORITY).requests[0])
    with pytest.raises(ValueError, match="creates no task"):
        created_task_id(only_message(answer(call.head)).body)


def test_field_names_may_be_rewritten_by_a_proxy() -> None:
    poll = only_message(task_polls(AUTHORITY, TASK_IDS).requests[0])
    rewritten = poll.head.replace(b"mcp-name", b"Mcp-Name").replace(b"mcp-method", b"MCP-METHOD")
    assert rewritten != poll.head
    assert answer(rewritten) == answer(poll.head)


def test_a_body_call_has_64_kib_on_both_ways() -> None:
    call = only_message(body_calls(AUTHORITY).requests[0])
    assert len(call.body) == len(only_message(answer(call.head)).body) == 64 * 1024


def test_only_an_event_call_asks_for_events() -> None:
    assert asks_for_events(only_message(event_calls(AUTHORITY).requests[0]).head)
    assert not any(asks_for_events(only_message(batch.requests[0]).head) for batch in BATCHES)


@pytest.mark.parametrize("number", [1, EVENTS - 1, EVENTS])
def test_an_event_is_one_chunk_that_tells_when_it_was_sent_and_the_last_one_is_the_result(number: int) -> None:
    sent = event(number, 12.5)
    last = number == EVENTS
    assert sent.endswith(END_OF_STREAM) == last
    size, _, rest = sent.partition(b"\r\n")
    data = rest.removesuffix(END_OF_STREAM if last else b"").removesuffix(b"\r\n")
    assert len(data) == int(size, 16)
    assert [int(at) for at in SENT_AT.findall(data)] == [12_500_000]
    message = json.loads(data.removeprefix(b"event: message\ndata: ").removesuffix(b"\n\n"))
    assert ("result" in message) == last
