"""Up or down by probes in a row, and the share of a backend that came back."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from proxy.routing.health import SLOW_START, Hysteresis, warmth


def states(probes: str, *, rise: int, fall: int, up: bool = True) -> str:
    """Whether it is up (u) or down (d) after each probe that passed (p) or failed (f)."""
    health = Hysteresis(up=up)
    told = ""
    for probe in probes:
        before = health.up
        changed = health.heard(probe == "p", rise=rise, fall=fall)
        assert changed is (health.up is not before)
        told += "u" if health.up else "d"
    return told


@pytest.mark.parametrize(
    ("probes", "told"),
    [
        ("ff", "uu"),
        ("fff", "uud"),
        ("ffpff", "uuuuu"),  # not in a row
        ("ffpfff", "uuuuud"),
        ("fffpp", "uuddu"),
        ("fffpfpp", "uuddddu"),
        ("fffppff", "uudduuu"),  # what came before it came up is forgiven
        ("fffffff", "uuddddd"),
    ],
)
def test_two_good_probes_raise_and_three_bad_ones_fell(probes: str, told: str) -> None:
    assert states(probes, rise=2, fall=3) == told


@pytest.mark.parametrize(("up", "told"), [(True, "duud"), (False, "duud")])
def test_with_one_of_each_every_probe_decides(up: bool, told: str) -> None:
    assert states("fppf", rise=1, fall=1, up=up) == told


@given(st.text("pf", max_size=60), st.integers(1, 5), st.integers(1, 5), st.booleans())
def test_a_change_follows_exactly_enough_probes_in_a_row(probes: str, rise: int, fall: int, up: bool) -> None:
    told = states(probes, rise=rise, fall=fall, up=up)
    for at, now in enumerate(told):
        before = told[at - 1] if at else ("u" if up else "d")
        needed = fall if before == "u" else rise
        against = "f" if before == "u" else "p"
        since = len(told[:at]) - len(told[:at].rstrip(before))  # probes for which it has been so
        row = probes[at + 1 - needed : at + 1] == against * needed and needed <= since + 1
        assert (now != before) is row


@given(st.floats(-1.0, 1e6))
def test_a_share_grows_from_little_to_all_of_it(seconds: float) -> None:
    assert 0.0 < warmth(seconds) <= 1.0
    assert warmth(seconds) <= warmth(seconds + 1.0)
    assert (warmth(seconds) == 1.0) is (seconds >= SLOW_START)
