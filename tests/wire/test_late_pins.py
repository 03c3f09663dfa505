"""What an answer teaches is stored before its end leaves, also by a pin store that answers later, or fails."""

import asyncio
from collections.abc import AsyncIterator

import pytest

from proxy.background import Background
from proxy.wire import learning
from proxy.wire.events import EventReader
from tests.wire.bodies import SIZES, cut
from tests.wire.watching import PATIENCE, Scene, Store, answer, created, event, until


@pytest.fixture
async def scene() -> AsyncIterator[Scene]:
    background = Background()
    yield Scene(background)
    await asyncio.wait_for(background.close(), PATIENCE)


@pytest.mark.parametrize("size", SIZES)
async def test_a_store_that_answers_later_holds_back_the_message_s_end(scene: Scene, size: int) -> None:
    store = Store(later=True)
    watch = scene.watch(store, reader=EventReader())
    text = event(answer(progress=1)) + event(created()) + event(answer(more=2))
    message_ends = text.index(event(created())) + event(created()).rindex(b"}")
    for piece in cut(text, size):
        scene.feed(watch, piece)
    scene.end(watch)
    assert watch.waiting
    assert store.asked == ["put t-1 agents/a ttl=None"]
    assert text.startswith(scene.left)
    assert len(scene.left) <= message_ends
    before = scene.left
    await until(lambda: store.pending)
    assert (scene.released, scene.left) == ([], before)
    store.pending.pop().set_result(None)
    await until(lambda: scene.released)
    assert (scene.left, len(scene.released), watch.waiting) == (text, 1, False)
    assert (scene.counted.reasons, watch.outcome) == ([], "served")


async def test_a_json_answer_ends_when_the_store_has_answered(scene: Scene) -> None:
    store = Store(later=True)
    watch = scene.watch(store)
    scene.feed(watch, created())
    assert not watch.waiting
    assert scene.left == created().rpartition(b"}}")[0] + b"}"
    scene.end(watch)
    assert watch.waiting
    assert scene.left == created()[:-1]
    store.pending.pop().set_result(None)
    await until(lambda: not watch.waiting)
    assert scene.released == [b"}"]


async def test_what_comes_while_a_store_is_awaited_stays_in_order(scene: Scene) -> None:
    store = Store(later=True)
    watch = scene.watch(store, reader=EventReader())
    scene.feed(watch, event(created("t-1")), event(b"1"), event(created("t-2")), event(b"2"))
    scene.end(watch)
    assert scene.left == b""
    assert store.asked == ["put t-1 agents/a ttl=None", "put t-2 agents/a ttl=None"]
    store.pending.pop().set_result(None)
    await asyncio.sleep(0)
    assert watch.waiting  # for the first one still
    assert scene.released == []
    store.pending.pop().set_result(None)
    await until(lambda: not watch.waiting)
    assert scene.left == event(created("t-1")) + event(b"1") + event(created("t-2")) + event(b"2")
    assert len(scene.released) == 1


async def test_after_the_store_has_answered_the_answer_flows_again(scene: Scene) -> None:
    store = Store(later=True)
    watch = scene.watch(store, reader=EventReader())
    scene.feed(watch, event(created()))
    store.pending.pop().set_result(None)
    await until(lambda: not watch.waiting)
    assert watch.feed(event(b"{}")) == event(b"{}")


async def test_a_store_that_never_answers_holds_nothing_back_for_long(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The tool has run: its answer leaves all the same, and is counted."""
    assert learning.STORE_LIMIT == 0.25
    monkeypatch.setattr(learning, "STORE_LIMIT", 0.01)
    store = Store(later=True)
    watch = scene.watch(store)
    scene.feed(watch, created())
    scene.end(watch)
    await until(lambda: scene.released)
    assert (scene.left, scene.counted.reasons, watch.waiting) == (created(), ["store_slow"], False)
    store.pending.pop().set_result(None)  # too late, and no harm
    await asyncio.sleep(0)
    assert (len(scene.released), scene.counted.reasons) == (1, ["store_slow"])


@pytest.mark.parametrize(
    ("method", "name", "message", "operation"),
    [
        ("tools/call", None, created(), "put"),
        ("tasks/get", "t-1", answer(taskId="t-1"), "refresh"),
        ("tasks/get", "t-1", answer(taskId="t-1", status="failed"), "finish"),
    ],
)
@pytest.mark.parametrize("later", [False, True])
async def test_a_store_that_fails_lets_the_answer_pass_and_is_counted(
    scene: Scene, method: str, name: str | None, message: bytes, operation: str, later: bool
) -> None:
    store = Store(later=later)
    store.failing = {operation}
    watch = scene.watch(store, method=method, name=name)
    scene.feed(watch, message)
    scene.end(watch)
    for gate in store.pending:
        gate.set_result(None)
    await until(lambda: not watch.waiting)
    assert (scene.left, scene.counted.reasons, watch.outcome) == (message, ["store_failed"], "served")


@pytest.mark.parametrize("failing", [{"finish"}, {"put", "finish"}])
async def test_a_store_that_fails_to_finish_what_was_just_created(scene: Scene, failing: set[str]) -> None:
    store = Store()
    store.failing = failing
    watch = scene.watch(store)
    message = created(status="completed")
    scene.feed(watch, message)
    scene.end(watch)
    assert scene.left == message
    assert set(scene.counted.reasons) == {"store_failed"}


async def test_a_late_store_that_fails_to_finish_what_was_just_created(scene: Scene) -> None:
    store = Store(later=True)
    store.failing = {"finish"}
    watch = scene.watch(store)
    scene.feed(watch, created(status="completed"))
    scene.end(watch)
    while store.pending:
        store.pending.pop().set_result(None)
        await asyncio.sleep(0)
        await asyncio.sleep(0)
    await until(lambda: not watch.waiting)
    assert store.asked[1:] == ["finish t-1"]
    assert (scene.left, scene.counted.reasons) == (created(status="completed"), ["store_failed"])


async def test_a_late_store_has_replaced_the_owner_before_the_message_leaves(scene: Scene) -> None:
    store = Store(later=True, owner="gone")
    watch = scene.watch(store)
    scene.feed(watch, created())
    scene.end(watch)
    store.pending.pop().set_result(None)
    await until(lambda: len(store.asked) == 2)
    await asyncio.sleep(0)
    assert store.asked[1].endswith("replace")
    assert scene.released == []
    store.pending.pop().set_result(None)
    await until(lambda: scene.released)
    assert scene.left == created()


@pytest.mark.parametrize("size", SIZES)
async def test_every_step_of_a_late_store_is_awaited_in_order(scene: Scene, size: int) -> None:
    store = Store(later=True, owner="gone")
    watch = scene.watch(store, reader=EventReader())
    message = created(status="completed")
    scene.feed(watch, *cut(event(message), size))
    put = "put t-1 agents/a ttl=None"
    steps = [put, f"{put} replace", "finish t-1"]
    for step in range(1, 4):
        await until(lambda: store.pending)
        assert store.asked == steps[:step]
        assert (scene.released, watch.waiting) == ([], True)
        store.pending.pop().set_result(None)
    await until(lambda: scene.released)
    assert (scene.left, watch.waiting, scene.counted.reasons) == (event(message), False, [])


@pytest.mark.parametrize("failing", [{"finish"}, {"put"}])
async def test_a_late_store_that_fails_half_way_takes_no_further_step(scene: Scene, failing: set[str]) -> None:
    store = Store(later=True)
    store.failing = failing
    watch = scene.watch(store)
    scene.feed(watch, created(status="completed"))
    scene.end(watch)
    await store.let_all_come(watch)
    assert len(store.asked) == (1 if failing == {"put"} else 2)
    assert (scene.left, scene.counted.reasons) == (created(status="completed"), ["store_failed"])


async def test_a_late_store_that_finds_another_owner_is_told_no_more(scene: Scene) -> None:
    store = Store(later=True, owner="b")
    watch = scene.watch(store)
    scene.feed(watch, created(status="completed"))
    scene.end(watch)
    await store.let_all_come(watch)
    assert (store.asked, watch.outcome) == (["put t-1 agents/a ttl=None"], "conflict")
    assert scene.left == created(status="completed")


async def test_all_steps_of_a_lesson_together_hold_it_back_no_longer_than_allowed(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(learning, "STORE_LIMIT", 0.05)
    store = Store(later=True)
    watch = scene.watch(store)
    scene.feed(watch, created(status="completed"))
    scene.end(watch)
    store.pending.pop().set_result(None)
    await until(lambda: scene.released)
    assert store.asked == ["put t-1 agents/a ttl=None", "finish t-1"]
    assert (scene.left, scene.counted.reasons) == (created(status="completed"), ["store_slow"])
