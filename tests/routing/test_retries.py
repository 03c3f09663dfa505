"""Which failed attempts are repeated, where and when, and how many of them."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from proxy.records import KNOWN_METHODS
from proxy.routing import errors
from proxy.routing.errors import BackendClosed, ConnectFailed, ConnectTimeout, ProxyError
from proxy.routing.headers import RoutingHeaders
from proxy.routing.retries import (
    RetryBudget,
    RetryRule,
    Verdict,
    may_repeat,
    may_try_another,
    must_be_answered,
    pause_between_rounds,
    pause_for_absent,
    pause_for_owner,
    pause_to_ask_again,
    verdict,
)

NOTHING_SENT = {"connect_failed", "connect_timeout", "overloaded"}
ERRORS = sorted(
    (
        item
        for item in vars(errors).values()
        if isinstance(item, type) and issubclass(item, ProxyError) and item is not ProxyError
    ),
    key=lambda error: error.reason,
)


@pytest.mark.parametrize("error", ERRORS, ids=lambda error: error.reason)
def test_only_an_unbound_attempt_that_sent_nothing(error: type[ProxyError]) -> None:
    failure = error("it failed")
    assert may_try_another(failure, bound=False) is (error.reason in NOTHING_SENT)
    assert may_try_another(failure, bound=True) is False


def test_the_table_of_errors_is_the_one_that_clients_were_promised() -> None:
    """(status, code for modern clients, code for legacy ones, Retry-After)"""
    table = {
        error.reason: (
            error.status,
            error("").code_for(modern=True),
            error("").code_for(modern=False),
            error.retry_after,
        )
        for error in ERRORS
    }
    plain = -32000
    assert table == {
        "duplicate_header": (400, -32020, plain, None),
        "malformed_header": (400, -32020, plain, None),
        "bad_request": (400, plain, plain, None),
        "unsupported": (501, plain, plain, None),
        "forbidden_host": (421, plain, plain, None),
        "forbidden_origin": (403, plain, plain, None),
        "no_route": (404, plain, plain, None),
        "session_owner_gone": (404, -32001, -32001, None),
        "head_too_large": (431, plain, plain, None),
        "no_backend": (503, plain, plain, 1),
        "owner_down": (503, plain, plain, 1),
        "owner_unknown": (503, plain, plain, 1),
        "overloaded": (503, plain, plain, 1),
        "request_timeout": (408, plain, plain, None),
        "draining": (503, plain, plain, 1),
        "connect_failed": (502, plain, plain, None),
        "backend_closed": (502, plain, plain, None),
        "bad_response": (502, plain, plain, None),
        "connect_timeout": (504, plain, plain, None),
        "head_timeout": (504, plain, plain, None),
        "idle_timeout": (504, plain, plain, None),
    }


@pytest.mark.parametrize("error", ERRORS, ids=lambda error: error.reason)
def test_an_owner_is_tried_again_only_if_it_was_sent_nothing(error: type[ProxyError]) -> None:
    pause = pause_for_owner(error("it failed"), waited=0.0, limit=10.0)
    assert (pause is not None) is (error.reason in NOTHING_SENT)


@pytest.mark.parametrize(
    ("waited", "limit", "pause"),
    [
        (0.0, 10.0, 0.05),
        (0.05, 10.0, 0.05),
        (0.1, 10.0, 0.05),
        (0.2, 10.0, 0.1),
        (0.9, 10.0, 0.45),
        (1.0, 10.0, 0.5),
        (5.0, 10.0, 0.5),
        (9.5, 10.0, 0.5),
        (9.51, 10.0, None),
        (10.0, 10.0, None),
        (11.0, 10.0, None),
        (0.0, 0.05, 0.05),
        (0.0, 0.04, None),
        (0.0, 0.0, None),
    ],
)
def test_how_long_until_an_owner_is_tried_again(waited: float, limit: float, pause: float | None) -> None:
    """Soon at first, at least twice a second, and never so late that the wait would be longer than allowed."""
    assert pause_for_owner(ConnectFailed("refused"), waited=waited, limit=limit) == pytest.approx(pause)


MODERN = RoutingHeaders("POST", "/mcp", version="2026-07-28", modern=True)
LEGACY = RoutingHeaders("POST", "/mcp", version="2025-11-25")
HARMLESS = {
    "server/discover",
    "tools/list",
    "prompts/list",
    "resources/list",
    "resources/templates/list",
    "tasks/get",
    "prompts/get",
    "resources/read",
}


@pytest.mark.parametrize("method", [*sorted(KNOWN_METHODS), "", "tools/list ", "TOOLS/LIST", "tasks/list", "acme/list"])
def test_which_requests_may_be_sent_twice(method: str) -> None:
    """Of older protocols nothing may: nobody checks their Mcp-Method against the body."""
    assert may_repeat(MODERN._replace(method=method)) is (method in HARMLESS)
    assert may_repeat(LEGACY._replace(method=method)) is False
    assert must_be_answered(MODERN._replace(method=method)) is (method == "server/discover")
    assert must_be_answered(LEGACY._replace(method=method)) is False


@pytest.mark.parametrize(
    ("verb", "may"), [("GET", True), ("HEAD", False), ("DELETE", False), ("OPTIONS", False), ("PUT", False)]
)
@pytest.mark.parametrize("method", ["", "tools/list", "server/discover", "tools/call"])
def test_what_is_no_post_goes_by_its_verb(verb: str, may: bool, method: str) -> None:
    for request in (MODERN, LEGACY):
        assert may_repeat(request._replace(verb=verb, method=method)) is may
        assert must_be_answered(request._replace(verb=verb, method=method)) is False


@pytest.mark.parametrize("error", ERRORS, ids=lambda error: error.reason)
@pytest.mark.parametrize(
    ("repeatable", "sent", "attempts", "left", "expected"),
    [
        (True, 1, 2, True, Verdict.REPEAT),
        (True, 2, 3, True, Verdict.REPEAT),
        (True, 1, 2, False, Verdict.WITHHELD),
        (True, 2, 2, True, Verdict.FAIL),
        (True, 1, 1, True, Verdict.FAIL),  # the operator wants none
        (False, 1, 2, True, Verdict.WITHHELD),
        (False, 1, 1, False, Verdict.WITHHELD),
    ],
)
def test_what_follows_where_a_request_may_have_been_sent(
    error: type[ProxyError], repeatable: bool, sent: int, attempts: int, left: bool, expected: Verdict
) -> None:
    """Only a lost connection may be followed by a repeat, and only it is counted where none is."""
    budget = RetryBudget()
    for _ in range(0 if left else RetryBudget.ALWAYS):
        budget.take(0.0, percent=20)
    rule = RetryRule(attempts=attempts)
    decided = verdict(error("it failed"), repeatable=repeatable, sent=sent, rule=rule, budget=budget, now=0.0)
    assert decided is (expected if error is BackendClosed else Verdict.FAIL)


def spent(budget: RetryBudget, now: float, percent: int = 20) -> int:
    """How many repeats the budget has left."""
    taken = 0
    while taken < 10_000 and budget.take(now, percent=percent):
        taken += 1
    return taken


@pytest.mark.parametrize(
    ("requests", "percent", "repeats"),
    [
        *((0, 20, 3), (1, 20, 3), (15, 20, 3), (19, 20, 3), (20, 20, 4), (100, 20, 20)),
        *((100, 1, 3), (1000, 1, 10), (100, 100, 100), (1000, 100, 1000)),
    ],
)
def test_repeats_are_a_share_of_the_requests_and_a_few_in_any_case(requests: int, percent: int, repeats: int) -> None:
    budget = RetryBudget()
    for number in range(requests):
        budget.requested(100.0 + 9.0 * number / requests)
    assert spent(budget, 109.0, percent) == repeats
    assert spent(budget, 109.9, percent) == 0


def test_requests_and_repeats_count_for_ten_seconds() -> None:
    budget = RetryBudget()
    for _ in range(100):
        budget.requested(50.5)
    assert spent(budget, 50.5) == 20
    for now in (51.0, 55.0, 59.9):
        assert spent(budget, now) == 0
    assert spent(budget, 60.0) == 3  # neither of them is left
    assert spent(budget, 69.9) == 0
    assert spent(budget, 1e6) == 3


def test_a_budget_grows_with_the_requests() -> None:
    budget = RetryBudget()
    assert spent(budget, 0.5) == 3
    for second in range(10):
        for _ in range(10):
            budget.requested(second + 0.5)
    assert spent(budget, 9.6) == 17


@settings(deadline=None, max_examples=100)
@given(st.lists(st.tuples(st.floats(0, 3), st.booleans()), max_size=200), st.integers(1, 100))
def test_never_more_repeats_in_a_window_than_the_share_of_its_requests(
    steps: list[tuple[float, bool]], percent: int
) -> None:
    """Seconds are counted whole, so a window is the current one and the nine before it."""
    budget, now = RetryBudget(), 0.0
    requests: list[int] = []
    repeats: list[int] = []
    for pause, is_request in steps:
        now += pause
        if is_request:
            budget.requested(now)
            requests.append(int(now))
        elif budget.take(now, percent=percent):
            repeats.append(int(now))
            window = range(int(now) - 9, int(now) + 1)
            asked = sum(second in window for second in requests)
            assert sum(second in window for second in repeats) <= max(3, asked * percent // 100)


@pytest.mark.parametrize(
    ("sent", "waited", "pause"),
    [(0, 0.0, 0.05), (0, 0.9, 0.45), (0, 9.5, 0.5), (0, 9.51, None), (1, 0.0, None), (3, 1.0, None)],
)
def test_all_backends_are_asked_anew_only_while_none_was_sent_anything(
    sent: int, waited: float, pause: float | None
) -> None:
    assert pause_between_rounds(sent=sent, waited=waited, limit=10.0) == pytest.approx(pause)


@pytest.mark.parametrize("error", ERRORS, ids=lambda error: error.reason)
def test_an_owner_is_asked_again_only_if_it_closed_without_an_answer(error: type[ProxyError]) -> None:
    """What was not sent is the affair of `pause_for_owner`."""
    for waited in (None, 0.0, 1.0):
        pause = pause_to_ask_again(error("it failed"), waited=waited, limit=10.0)
        assert (pause is not None) is (error.reason == "backend_closed")


@pytest.mark.parametrize(
    ("waited", "limit", "pause"),
    [
        (None, 10.0, 0.0),
        (None, 0.0, 0.0),  # a kept connection may have been closing: that is no absence
        (0.0, 10.0, 0.05),
        (0.9, 10.0, 0.45),
        (9.5, 10.0, 0.5),
        (9.51, 10.0, None),
        (0.0, 0.0, None),
    ],
)
def test_how_long_until_an_owner_is_asked_again(waited: float | None, limit: float, pause: float | None) -> None:
    assert pause_to_ask_again(BackendClosed("closed"), waited=waited, limit=limit) == pytest.approx(pause)


@settings(deadline=None, max_examples=100)
@given(st.floats(0, 60), st.floats(0, 2))
def test_an_owner_is_awaited_for_nearly_as_long_as_allowed_in_a_bounded_number_of_attempts(
    limit: float, attempt: float
) -> None:
    """However long each attempt takes."""
    waited, attempts = 0.0, 1
    while (pause := pause_for_owner(ConnectTimeout("late"), waited=waited, limit=limit)) is not None:
        assert 0.05 <= pause <= 0.5
        assert waited + pause <= limit
        waited += pause + attempt
        attempts += 1
    assert waited + 0.5 > limit
    assert attempts <= 10 + 2 * limit


def test_a_backend_that_is_awaited_is_looked_for_less_and_less_often() -> None:
    pauses = [pause_for_absent(waited=waited) for waited in (0.0, 0.1, 0.2, 0.6, 1.0, 5.0, 3600.0)]
    assert pauses == [0.05, 0.05, 0.1, 0.3, 0.5, 0.5, 0.5]
