"""A failed attempt goes to another backend only if nothing was sent and no owner binds it."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from proxy.records import KNOWN_METHODS
from proxy.routing import errors
from proxy.routing.errors import BackendClosed, ConnectFailed, ConnectTimeout, ProxyError
from proxy.routing.retries import may_ask_again, may_try_another, pause_for_absent, pause_for_owner, pause_to_ask_again

NOTHING_SENT = {"connect_failed", "connect_timeout"}
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
        "draining": (503, plain, plain, 1),
        "connect_failed": (502, plain, plain, None),
        "backend_closed": (502, plain, plain, None),
        "bad_response": (502, plain, plain, None),
        "connect_timeout": (504, plain, plain, None),
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


def test_only_a_state_may_be_asked_for_twice() -> None:
    assert [method for method in sorted(KNOWN_METHODS) if may_ask_again(method)] == ["tasks/get"]
    assert not may_ask_again("tasks/get ")
    assert not may_ask_again("")


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
