"""How long a backend is out for its failures, and how many may be out at once."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from proxy.routing.outliers import LONGEST, Conduct, OutlierRule

RULE = OutlierRule(ejection=30.0)


def lengths(*good_times: float) -> list[float]:
    """Seconds of each ejection: the first one, and one after each of these times of good conduct."""
    conduct, now, told = Conduct(), 1000.0, []
    for good in (0.0, *good_times):
        now += good
        conduct.eject(RULE, now)
        assert conduct.ejected
        told.append(conduct.until - now)
        now = conduct.until
        conduct.readmit(now)
        assert (conduct.ejected, conduct.failures) == (False, 0)
    return told


@pytest.mark.parametrize(
    ("good_times", "told"),
    [
        ((), [30]),
        ((0, 0), [30, 60, 90]),
        ((29, 29), [30, 60, 90]),
        ((30,), [30, 30]),  # a good time as long as the first one: a step back
        ((0, 30), [30, 60, 60]),
        ((0, 0, 60), [30, 60, 90, 60]),
        ((0, 0, 86_400), [30, 60, 90, 30]),
        ((0,) * 12, [*(30 * times for times in range(1, 11)), 300, 300, 300]),
    ],
)
def test_an_ejection_costs_more_each_time_in_a_row(good_times: tuple[float, ...], told: list[float]) -> None:
    assert lengths(*good_times) == told


@given(st.lists(st.floats(0.0, 1000.0), max_size=40))
def test_no_ejection_is_shorter_than_the_first_or_longer_than_the_limit(good_times: list[float]) -> None:
    assert all(29.99 <= length <= 30.01 * LONGEST for length in lengths(*good_times))


@pytest.mark.parametrize(
    ("members", "share", "most"),
    [
        (0, 100, 0),
        (1, 100, 0),  # a pool of one loses nobody
        (2, 1, 1),  # no rule is without effect
        (2, 50, 1),
        (3, 50, 1),
        (4, 50, 2),
        (10, 33, 3),
        (10, 100, 10),
        (1000, 1, 10),
    ],
)
def test_how_many_may_be_out(members: int, share: int, most: int) -> None:
    assert OutlierRule(max_ejected=share).most(members) == most
