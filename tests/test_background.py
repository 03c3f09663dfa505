"""Background tasks are kept, their failures told, and loops outlive them."""

import asyncio
import gc
import logging
import weakref
from collections.abc import AsyncIterator
from typing import NoReturn

import pytest

from proxy.background import Background

DEADLINE = 10.0  # seconds; a condition that is not met by then never will be


class Pauses:
    """Stands for sleep: notes every pause, and lets the loop go on only when told."""

    def __init__(self) -> None:
        self.taken: list[float] = []
        self._begun: asyncio.Queue[asyncio.Future[None]] = asyncio.Queue()

    async def sleep(self, seconds: float) -> None:
        self.taken.append(seconds)
        over = asyncio.get_running_loop().create_future()
        self._begun.put_nowait(over)
        await over

    async def next(self) -> asyncio.Future[None]:
        """Waits until a loop pauses, and returns what ends the pause."""
        return await asyncio.wait_for(self._begun.get(), DEADLINE)


@pytest.fixture
def pauses() -> Pauses:
    return Pauses()


@pytest.fixture
async def background(pauses: Pauses) -> AsyncIterator[Background]:
    background = Background(sleep=pauses.sleep)
    yield background
    await asyncio.wait_for(background.close(), DEADLINE)


def messages(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [record.getMessage() for record in caplog.records if record.name == "proxy"]


async def fail(error: BaseException) -> NoReturn:
    raise error


async def ended(task: asyncio.Task[object]) -> None:
    await asyncio.wait_for(asyncio.wait({task}), DEADLINE)


async def test_task_gives_its_result_and_is_let_go(background: Background) -> None:
    async def work() -> int:
        return 3

    task = background.spawn(work(), "work")
    assert len(background) == 1
    assert await task == 3
    assert task.get_name() == "work"
    assert len(background) == 0


async def test_task_survives_garbage_collection_while_nobody_else_holds_it(background: Background) -> None:
    """The event loop holds tasks weakly: one that waits for something only it knows would vanish."""
    gates: list[weakref.ref[asyncio.Future[None]]] = []

    async def work() -> None:
        gate = asyncio.get_running_loop().create_future()
        gates.append(weakref.ref(gate))
        await gate

    background.spawn(work(), "work")
    await asyncio.sleep(0)
    gc.collect()
    (gate,) = gates
    assert gate() is not None
    assert len(background) == 1


async def test_failure_of_a_task_is_logged_with_its_traceback(
    background: Background, caplog: pytest.LogCaptureFixture
) -> None:
    await ended(background.spawn(fail(RuntimeError("no luck")), "dialling"))
    (record,) = caplog.records
    assert record.getMessage() == "dialling failed"
    assert record.levelno == logging.ERROR
    assert "RuntimeError: no luck" in caplog.text
    assert "in fail" in caplog.text


async def test_cancelled_task_is_quiet(background: Background, caplog: pytest.LogCaptureFixture) -> None:
    task = background.spawn(asyncio.Event().wait(), "waiting")
    await asyncio.sleep(0)
    task.cancel()
    await ended(task)
    assert messages(caplog) == []
    assert len(background) == 0


async def test_loop_runs_its_step_at_once_and_after_every_pause(background: Background, pauses: Pauses) -> None:
    steps: list[int] = []
    background.loop("counting", 2.5, lambda: steps.append(len(steps)))
    for count in (1, 2, 3):
        pause = await pauses.next()
        assert len(steps) == count
        pause.set_result(None)
    await pauses.next()
    assert pauses.taken == [2.5] * 4


async def test_loop_waits_for_an_asynchronous_step(background: Background, pauses: Pauses) -> None:
    gate = asyncio.Event()
    begun = asyncio.Event()

    async def step() -> None:
        begun.set()
        await gate.wait()

    background.loop("slow", 1.0, step)
    await asyncio.wait_for(begun.wait(), DEADLINE)
    assert pauses.taken == []
    gate.set()
    await pauses.next()
    assert pauses.taken == [1.0]


@pytest.mark.parametrize("seconds", [0, -1, float("nan")])
async def test_loop_without_a_pause_is_refused(background: Background, seconds: float) -> None:
    with pytest.raises(ValueError, match="needs a pause"):
        background.loop("busy", seconds, lambda: None)
    assert len(background) == 0


@pytest.mark.parametrize(
    ("steps", "logged"),
    [
        ("....", []),
        ("vvv", ["ValueError"]),
        ("vvkkvv", ["ValueError", "KeyError"]),
        ("vv..v", ["ValueError", "again after 2", "ValueError"]),
        (".k.", ["KeyError", "again after 1"]),
        ("cc.", ["CancelledError", "again after 2"]),
    ],
)
@pytest.mark.parametrize("asynchronous", [True, False])
async def test_loop_survives_failures_and_logs_each_kind_once_a_streak(
    background: Background,
    pauses: Pauses,
    caplog: pytest.LogCaptureFixture,
    steps: str,
    logged: list[str],
    asynchronous: bool,
) -> None:
    """v and k: the step raises; c: what it waits for was cancelled by somebody else; a dot: it succeeds."""
    errors: dict[str, BaseException] = {"v": ValueError(), "k": KeyError(), "c": asyncio.CancelledError()}
    left = list(steps)

    def plain() -> None:
        error = errors.get(left.pop(0))
        if error is not None:
            raise error

    async def later() -> None:
        await asyncio.sleep(0)
        plain()

    background.loop("probing", 1.0, later if asynchronous else plain)
    while True:
        pause = await pauses.next()
        if not left:
            break
        pause.set_result(None)

    assert len(pauses.taken) == len(steps)  # every step was followed by a pause, failed ones too
    told = []
    for record in caplog.records:
        message = record.getMessage()
        if record.exc_info:
            assert message == "probing failed, and goes on"
            assert record.exc_info[0] is not None
            told.append(record.exc_info[0].__name__)
        else:
            told.append("again after " + message.removeprefix("probing works again; times it failed: "))
    assert told == logged


async def test_cancelled_loop_ends_quietly(
    background: Background, pauses: Pauses, caplog: pytest.LogCaptureFixture
) -> None:
    task = background.loop("idle", 1.0, lambda: None)
    await pauses.next()
    task.cancel()
    await ended(task)
    assert task.cancelled()
    assert messages(caplog) == []


async def test_loop_cancelled_within_its_step_ends(background: Background, pauses: Pauses) -> None:
    begun = asyncio.Event()

    async def step() -> None:
        begun.set()
        await asyncio.Event().wait()

    task = background.loop("stuck", 1.0, step)
    await asyncio.wait_for(begun.wait(), DEADLINE)
    task.cancel()
    await ended(task)
    assert task.cancelled()
    assert pauses.taken == []


async def test_close_cancels_all_and_waits_for_their_clean_up(caplog: pytest.LogCaptureFixture) -> None:
    background = Background()
    cleaned: list[int] = []

    async def work(number: int) -> None:
        try:
            await asyncio.Event().wait()
        finally:
            await asyncio.sleep(0)
            cleaned.append(number)

    tasks = [background.spawn(work(number), f"work {number}") for number in range(3)]
    tasks_and_loop = [*tasks, background.loop("loop", 3600, lambda: None)]
    await asyncio.sleep(0)
    await asyncio.wait_for(background.close(), DEADLINE)
    assert sorted(cleaned) == [0, 1, 2]
    assert all(task.cancelled() for task in tasks_and_loop)
    assert messages(caplog) == []
    await asyncio.wait_for(background.close(), DEADLINE)


async def test_failure_during_close_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    background = Background()

    async def work() -> None:
        try:
            await asyncio.Event().wait()
        finally:
            raise RuntimeError("could not clean up")

    background.spawn(work(), "work")
    await asyncio.sleep(0)
    await asyncio.wait_for(background.close(), DEADLINE)
    assert messages(caplog) == ["work failed"]


async def test_what_a_task_spawns_while_closing_never_starts() -> None:
    background = Background()
    started: list[str] = []

    async def late() -> None:
        started.append("late")

    async def work() -> None:
        try:
            await asyncio.Event().wait()
        finally:
            background.spawn(late(), "late")

    background.spawn(work(), "work")
    await asyncio.sleep(0)
    await asyncio.wait_for(background.close(), DEADLINE)
    assert started == []
    assert len(background) == 0


async def test_a_task_may_close_what_it_belongs_to() -> None:
    background = Background()
    other = background.loop("other", 3600, lambda: None)
    await asyncio.wait_for(background.spawn(background.close(), "shutdown"), DEADLINE)
    assert other.cancelled()
