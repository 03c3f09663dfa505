"""The record of an exchange: what it says of where the request went and what came back."""

from types import SimpleNamespace
from typing import Any

import pytest

from proxy.records import RequestRecord
from proxy.routing.errors import Overloaded, OwnerDown
from proxy.routing.members import Source
from proxy.routing.routes import Match, Route
from proxy.wire.destination import Destination, Kind, Lane
from proxy.wire.ending import record_of
from tests.wire.directories import pool_of
from tests.wire.request_heads import read

POOL = pool_of("agents", "ab")
HEAD = read(b"MCP-Protocol-Version: 2026-07-28", b"Mcp-Method: tasks/get", b"Mcp-Name: t-1")
RELAY = SimpleNamespace(status=200, bytes_out=7, streamed=True, outcome="learned", first_byte=11.0)


def place(source: Source = "pin", kind: Kind = "task") -> Destination:
    lane = Lane(POOL, {}, own_host=False, owner_wait=1.0)
    return Destination(Route("rest", Match(), {"agents": 1}), lane, POOL.members[0].chosen(source), kind)


def record(at: Destination | None, *, relay: Any = None, error: str = "", task: str | None = None) -> RequestRecord:
    approach: Any = SimpleNamespace(task=task, destination=at, started=10.0)
    return record_of(HEAD, "192.0.2.7", approach, relay, 200, error, 5, 12.5)


@pytest.mark.parametrize(
    ("at", "error", "expected"),
    [
        (None, "no_route", ("", "", "", "task", "", "")),
        (place(), "", ("rest", "agents", "a", "task", "pin", "served")),
        (place("balance", "round"), "", ("rest", "agents", "a", "round", "balance", "served")),
        (place(), OwnerDown.reason, ("rest", "agents", "a", "task", "pin", "owner_down")),
        (place(), Overloaded.reason, ("rest", "agents", "", "task", "", "")),
    ],
)
def test_where_it_went(at: Destination | None, error: str, expected: tuple[str, ...]) -> None:
    made = record(at, error=error)
    assert (made.route, made.pool, made.backend, made.kind, made.source, made.outcome) == expected
    assert made.error == error


def test_what_came_back() -> None:
    made = record(place(), relay=RELAY)
    assert (made.backend_status, made.bytes_in, made.bytes_out, made.streamed) == (200, 5, 7, True)
    assert (made.duration, made.first_byte, made.outcome) == (2.5, 1.0, "learned")
    early = record(place(), relay=SimpleNamespace(**{**vars(RELAY), "first_byte": -1.0}))
    assert early.first_byte == record(place()).first_byte == -1.0


def test_a_task_is_named_by_a_digest_only() -> None:
    made = record(place(), task="t-1")
    assert made.task and "t-1" not in made.task
    assert record(place()).task == ""
