"""What the kernel's accounts say between two readings."""

import os

import pytest

from bench.cpu import resident, runtime, spent, used


def test_runtime_is_the_first_number_of_schedstat() -> None:
    assert runtime("80509123 4021 17\n") == 80_509_123


@pytest.mark.parametrize(
    ("before", "after", "nanoseconds"),
    [
        ({1: 100, 2: 50}, {1: 130, 2: 50}, 30),
        ({1: 100}, {1: 110, 3: 5}, 15),  # a thread that began in between counts whole
        ({1: 100, 2: 50}, {1: 110}, 10),  # one that ended does not count against the others
        ({}, {}, 0),
    ],
)
def test_spent_is_what_living_threads_gained(before: dict[int, int], after: dict[int, int], nanoseconds: int) -> None:
    assert spent(before, after) == nanoseconds


def test_own_use_is_read_for_every_thread_and_grows() -> None:
    before = used([os.getpid()])
    assert os.getpid() in before
    rounds = 0
    while spent(before, used([os.getpid()])) < 20_000_000:
        rounds += 1
        assert rounds < 100_000
    assert resident([os.getpid()]) > 1_000_000


def test_a_process_that_is_gone_is_an_error() -> None:
    # Larger than the kernel's highest process id.
    with pytest.raises(FileNotFoundError):
        used([2**22 + 1])
