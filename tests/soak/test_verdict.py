"""What may come of a request while backends are killed: each rule from both sides."""

import json
from collections import Counter
from dataclasses import replace
from typing import Any

import pytest

from proxy.routing.errors import ProxyError
from tests.soak.ledger import Executions, Report, compared
from tests.soak.outages import GRACE, Outages
from tests.soak.run import REQUESTS
from tests.soak.verdict import (
    CUT,
    LEFT,
    MISTAKE,
    NAMED,
    SERVED,
    UNKNOWN,
    Seen,
    Verdict,
    events,
    judge,
    progress_of,
)

RESULT = b'{"jsonrpc":"2.0","id":1,"result":{"by":"b.1"}}'
DENIED = b'{"jsonrpc":"2.0","id":1,"error":{"code":-32602,"message":"Task not found"}}'
NO_SESSION = b'{"jsonrpc":"2.0","id":null,"error":{"code":-32001,"message":"Session not found"}}'
EVENTS = (
    b': keep-alive\nevent: message\ndata: {"method":"notifications/progress","params":{"progress":1}}\n\n'
    b"data: " + RESULT + b"\n\n"
)


def outages() -> Outages:
    """`b.1` was killed at 100 and `b.2` listened at 102."""
    made = Outages()
    made.begin("b", 1, 100.0).up = 102.0
    return made


def head(status: int, *fields: bytes, by: bytes = b"b.1", kind: bytes = b"application/json") -> bytes:
    lines = [b"HTTP/1.1 %d X" % status, b"Content-Type: " + kind, b"X-Served-By: " + by, *fields]
    return b"\r\n".join((*lines, b"", b""))


def own(reason: str, status: int | None = None, **change: Any) -> tuple[bytes, bytes]:
    """Head and body of an error of the proxy's own."""
    error = NAMED.get(reason, ProxyError)
    fields = [b"HTTP/1.1 %d X" % (status or error.status), b"Mcp-Proxy-Error: " + reason.encode()]
    if error.retry_after is not None and change.get("retry", True):
        fields.append(b"Retry-After: %d" % error.retry_after)
    said = {"code": error.code, "message": "x", "data": {"reason": change.get("body", reason)}}
    return b"\r\n".join((*fields, b"", b"")), json.dumps({"jsonrpc": "2.0", "error": said}).encode()


@pytest.mark.parametrize(
    ("seen", "owner", "outcome"),
    [
        (Seen(0, 1, "whole", head(200), RESULT), None, SERVED),
        (Seen(0, 1, "whole", head(200), b"{}"), None, SERVED),
        (Seen(0, 1, "whole", head(200, kind=b"text/event-stream"), EVENTS), None, SERVED),
        (Seen(0, 1, "whole", head(200, kind=b"text/event-stream"), b""), None, MISTAKE),  # an end without a message
        (Seen(0, 1, "whole", head(200), b"no JSON"), None, MISTAKE),
        (Seen(0, 1, "whole", head(500), RESULT), None, MISTAKE),
        (Seen(0, 1, "left"), None, LEFT),
        (Seen(101, 101, "refused"), None, MISTAKE),  # the proxy never dies
        (Seen(101, 131, "silent"), None, MISTAKE),
        (Seen(101, 131, "silent", head(200)), None, MISTAKE),
        (Seen(99, 101, "cut"), None, MISTAKE),  # before a head there is an error to be told
        # What is unknown was lost with its backend.
        (Seen(103, 104, "whole", head(400, by=b"b.2"), DENIED), "b.1", UNKNOWN),
        (Seen(103, 104, "whole", head(200, by=b"b.2"), DENIED), "b.1", UNKNOWN),
        (Seen(103, 104, "whole", head(404, by=b"b.2"), NO_SESSION), "b.1", UNKNOWN),
        (Seen(98, 99, "whole", head(400), DENIED), "b.1", MISTAKE),
        (Seen(103, 104, "whole", head(400, by=b"b.2"), DENIED), "b.2", MISTAKE),
        (Seen(103, 104, "whole", head(404, by=b"b.2"), NO_SESSION), "a.1", MISTAKE),
        (
            Seen(103, 104, "whole", head(400, by=b"b.2"), DENIED),
            None,
            MISTAKE,
        ),  # it asked for nothing that has an owner
        # A cut shows, and its backend was killed.
        (Seen(99, 100.1, "cut", head(200), b""), None, CUT),
        (Seen(98, 99, "cut", head(200), b""), None, MISTAKE),
        (Seen(99, 100.1, "cut", head(200, by=b"a.1"), b""), None, MISTAKE),
        (Seen(99, 100.1, "cut", b"HTTP/1.1 200 OK\r\n\r\n", b""), None, MISTAKE),
    ],
)
def test_what_comes_of_a_request(seen: Seen, owner: str | None, outcome: str) -> None:
    verdict = judge(seen, outages(), owner=owner)
    assert verdict.outcome == outcome
    assert bool(verdict.mistake) == (outcome == MISTAKE)


def test_a_merged_stream_may_be_cut_by_the_end_of_any_part() -> None:
    seen = Seen(99, 100.1, "cut", head(200, by=b"a.1"))
    assert judge(seen, outages(), merged=True).outcome == CUT
    assert judge(replace(seen, ended=99.5), outages(), merged=True).outcome == MISTAKE


@pytest.mark.parametrize("reason", sorted(NAMED))
def test_an_error_that_the_contract_names(reason: str) -> None:
    told = own(reason)
    named = f"{NAMED[reason].status} {reason}"
    assert judge(Seen(99, 101, "whole", *told), outages()).outcome == named
    assert judge(Seen(102, 102.5, "whole", *told), outages()).outcome == named, "it is dialled again now and then"
    # Nobody was away.
    assert judge(Seen(98, 99, "whole", *told), outages()).outcome == MISTAKE
    assert judge(Seen(102 + GRACE + 0.1, 105, "whole", *told), outages()).outcome == MISTAKE


@pytest.mark.parametrize(
    "told",
    [
        own("backend_closed", 503),
        own("backend_closed", body="bad_response"),
        own("owner_down", retry=False),
        own("bad_request", 400),
        own("session_owner_gone", 404),
        own("overloaded", 503),
        own("bad_response", 502),
        own("made_up", 502),
        (own("no_backend")[0], b""),
        (own("no_backend")[0], b"[]"),
        (own("no_backend")[0], RESULT),
    ],
)
def test_an_error_that_is_not_as_it_is_named(told: tuple[bytes, bytes]) -> None:
    assert judge(Seen(99, 101, "whole", *told), outages()).outcome == MISTAKE


def test_an_error_of_the_proxys_own_is_whole() -> None:
    assert judge(Seen(99, 101, "cut", *own("no_backend")), outages()).outcome == MISTAKE


def test_messages_of_a_stream_that_was_cut_are_those_that_came_whole() -> None:
    assert progress_of(events(EVENTS)) == [1]
    assert len(events(EVENTS)) == 2
    assert len(events(EVENTS[:-1])) == 1
    assert events(b": keep-alive\n") == []


def test_calls_are_compared_with_what_was_executed() -> None:
    labels = {
        "once": Verdict(SERVED),
        "never": Verdict(SERVED),
        "twice": Verdict(SERVED),
        "lost": Verdict("502 backend_closed"),
        "unsent": Verdict("503 no_backend"),
        "sent": Verdict("502 connect_failed"),
        "left": Verdict(LEFT),
        "left twice": Verdict(LEFT),
    }
    executed = Counter({"once": 1, "twice": 2, "lost": 1, "sent": 1, "left twice": 2, "strange": 1})
    assert compared(labels, executed) == Executions(
        twice=2, unasked=1, served=3, served_not_once=2, failed=5, failed_executed=3, unsent_executed=1
    )


GOOD = Report(
    settings="",
    outcomes={kind: Counter({SERVED: 100, LEFT: 1}) for kind in REQUESTS},
    expected_kinds=REQUESTS,
    longest=Counter(),
    executions=Executions(served=1000, failed=20, failed_executed=15),
    kills=10,
    expected_kills=10,
    mistakes=[],
    troubles=[],
    growth=0.3,
    memory=(50.0, 51.0, 52.0),
    descriptors=(17, 140, 17),
    gauges={"streams_open": 0.0},
)


def test_a_good_run_has_no_failures() -> None:
    assert GOOD.failures() == []
    assert "FAILED" not in GOOD.text()
    assert replace(GOOD, growth=None).failures() == []


@pytest.mark.parametrize(
    ("change", "failure"),
    [
        ({"mistakes": ["call: cut before a head"]}, "1 mistakes"),
        ({"executions": Executions(served=10, twice=1)}, "1 calls executed twice"),
        ({"executions": Executions(served=10, unasked=1)}, "1 calls executed that nobody made"),
        ({"executions": Executions(served=10, served_not_once=1)}, "1 calls that succeeded were not executed once"),
        ({"executions": Executions(served=10, unsent_executed=1)}, "1 calls executed that were told not to be sent"),
        ({"executions": Executions(served=10, failed=10)}, "10 of 20 calls failed"),
        ({"outcomes": {**GOOD.outcomes, "poll": Counter({"503 owner_down": 3})}}, "never served: poll"),
        ({"kills": 9}, "9 backends killed, 10 were to be"),
        ({"troubles": ["Traceback\n  file\nKeyError: 1"]}, "a log tells of a fault: KeyError: 1"),
        ({"growth": 1.0}, "memory grows by 1.00 MiB a minute"),
        ({"descriptors": (17, 140, 19)}, "2 descriptors left open"),
        ({"gauges": {"queued": 0.0, "streams_open": 1.0}}, "streams_open is 1 with no client"),
    ],
)
def test_a_run_fails(change: dict[str, Any], failure: str) -> None:
    report = replace(GOOD, **change)
    assert report.failures() == [failure]
    assert f"FAILED {failure}" in report.text()
