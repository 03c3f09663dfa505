"""How long nothing has passed, told by looks in between."""

import pytest

from proxy.wire.quiet import Quiet, pause_between_looks


@pytest.mark.parametrize(
    ("looks", "expected"),
    [
        ([(1.0, 5, False), (2.0, 5, False)], [1.0, 2.0]),
        ([(1.0, 6, False), (3.0, 6, False), (4.0, 7, False)], [0.0, 2.0, 0.0]),
        ([(1.0, 5, True), (601.0, 5, True), (602.0, 6, False)], [0.0, 600.0, 0.0]),  # a tool, and its answer's head
        ([(1.0, 4, False), (2.0, 5, False), (3.0, 6, False)], [1.0, 2.0, 0.0]),  # into a buffer and out again
    ],
)
def test_quiet_times(looks: list[tuple[float, int, bool]], expected: list[float]) -> None:
    """Each look: when, bytes passed, and whether a head is awaited."""
    quiet = Quiet(0.0, passed=5, waits=False)
    assert [quiet.look(now, passed=passed, waits=waits) for now, passed, waits in looks] == expected


def test_a_stream_that_lasts_is_not_quiet() -> None:
    quiet = Quiet(0.0, passed=0, waits=False)
    assert all(quiet.look(float(hour), passed=hour, waits=False) == 0.0 for hour in range(1, 100))


@pytest.mark.parametrize("step", [0.5, 0.7, 5.0])
def test_comments_come_that_often_while_it_is_quiet_and_are_no_bytes(step: float) -> None:
    quiet, now, times = Quiet(0.0, passed=0, waits=False), 0.0, []
    while now < 100.0:
        now += step
        assert quiet.look(now, passed=0, waits=False) == now
        if quiet.take_comment(now, every=15.0):
            times.append(now)
    pauses = [later - earlier for earlier, later in zip([0.0, *times], times, strict=False)]
    assert len(times) >= 5
    assert all(15.0 <= pause < 15.0 + step + 1e-6 for pause in pauses)


def test_bytes_put_a_comment_off() -> None:
    quiet = Quiet(0.0, passed=0, waits=False)
    quiet.look(14.0, passed=1, waits=False)
    assert not quiet.take_comment(28.9, every=15.0)
    assert quiet.take_comment(29.0, every=15.0)


def test_no_comments_unless_wanted() -> None:
    assert not Quiet(0.0, passed=0, waits=False).take_comment(1e6, every=None)


@pytest.mark.parametrize(
    ("limits", "pause"),
    [
        ((600.0, 3600.0, None), 5.0),
        ((600.0, 3600.0, 15.0), 0.9375),
        ((600.0, 3600.0, 1.0), 0.5),
        ((0.1, 3600.0, None), 0.5),
        ((40.0, 3600.0, None), 2.5),
    ],
)
def test_looks_are_as_far_apart_as_the_shortest_limit_allows(limits: tuple[float | None, ...], pause: float) -> None:
    assert pause_between_looks(*limits) == pause
