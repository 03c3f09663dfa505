"""How a process that serves is set up, and what the first one of a container owes to those after it."""

import gc
import os
import resource
import signal
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from types import FrameType

PASSED_ON = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGUSR2)


def settle_memory() -> None:
    """To be called once everything is imported, before the first request.

    What was made so far stays; young objects die by reference count, so few collections are needed.
    """
    gc.collect()
    gc.freeze()
    gc.set_threshold(50_000, 20, 100)


def raise_limits() -> None:
    """Lets this process open as many descriptors as it may: the usual limit of 1024 is for programs that use select."""
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    with suppress(ValueError, OSError):  # where the system refuses what it names, what there is has to do
        resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))


def hold_signals() -> None:
    """Keeps the signals that come from now on for `stand_in`: between two handlers the kernel would drop them."""
    signal.pthread_sigmask(signal.SIG_BLOCK, PASSED_ON)


def stand_in(ended: int | None) -> int:
    """Lives on for those that came after this process, which serves no longer; returns the exit code for all of them.

    A container ends with its first process. That one becomes the parent of every generation whose own parent has ended;
    it passes signals on to them, and waits until none is left. `ended`: the exit code of the next generation, if it has
    ended already. The code is 0 if all end with that, else the last other one: workers may outlive who failed.
    """

    def pass_on(number: int, frame: FrameType | None) -> None:
        for child in _children():
            with suppress(ProcessLookupError):
                os.kill(child, number)

    for number in PASSED_ON:
        signal.signal(number, pass_on)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, PASSED_ON)
    code = ended or 0
    while True:
        try:
            _, status = os.wait()
        except ChildProcessError:
            return code if code >= 0 else 128 - code  # as a shell tells of a signal
        code = os.waitstatus_to_exitcode(status) or code


def _children() -> Iterator[int]:
    own = os.getpid()
    for stat in Path("/proc").glob("[0-9]*/stat"):
        with suppress(OSError):  # it has ended meanwhile
            # Behind the name in parentheses, which may hold anything: state, parent.
            if int(stat.read_bytes().rpartition(b")")[2].split()[1]) == own:
                yield int(stat.parent.name)
