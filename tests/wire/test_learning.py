"""What an answer teaches is stored before its end leaves."""

import asyncio
from collections.abc import AsyncIterator

import pytest

from proxy.background import Background
from proxy.pins.memory import MemoryPinStore
from proxy.pins.store import POOL_ITSELF, Pin
from proxy.routing.ownership import Learned, Lesson
from proxy.wire.events import EventReader, JsonReader
from tests.wire.bodies import SIZES, cut
from tests.wire.watching import KEY, PATIENCE, UNKNOWN, Scene, Store, answer, created, event


@pytest.fixture
async def scene() -> AsyncIterator[Scene]:
    background = Background()
    yield Scene(background)
    await asyncio.wait_for(background.close(), PATIENCE)


@pytest.mark.parametrize(
    ("method", "name", "message", "asked", "outcome"),
    [
        ("tools/call", None, created(), ["put t-1 agents/a ttl=None"], "served"),
        ("tools/call", None, created(ttlMs=5000), ["put t-1 agents/a ttl=5.0"], "served"),
        ("tools/call", None, created(status="failed"), ["put t-1 agents/a ttl=None", "finish t-1"], "served"),
        ("tasks/get", "t-1", answer(taskId="t-1"), ["refresh t-1 ttl=None"], "served"),
        ("tasks/get", "t-1", answer(taskId="t-1", ttlMs=1000), ["refresh t-1 ttl=1.0"], "served"),
        ("tasks/cancel", "t-1", answer(taskId="t-1", status="cancelled"), ["finish t-1"], "served"),
        ("tasks/get", "t-1", UNKNOWN, [], "unknown"),
        ("tasks/get", "t-1", answer(taskId="t-2"), [], "served"),
        ("tasks/get", None, answer(taskId="t-1"), [], "served"),
        ("tools/call", None, answer(content=[]), [], "served"),
        ("tools/call", None, UNKNOWN, [], "served"),
    ],
)
@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("streamed", [False, True])
async def test_a_store_that_answers_at_once(
    scene: Scene,
    method: str,
    name: str | None,
    message: bytes,
    asked: list[str],
    outcome: str,
    size: int,
    streamed: bool,
) -> None:
    """Nothing waits, and no byte is left out; the store was asked before the message's last byte left."""
    store = Store()
    watch = scene.watch(store, reader=EventReader() if streamed else JsonReader(), method=method, name=name)
    text = event(answer(progress=1)) + event(message) if streamed else message
    whole = text.rindex(b"}")
    for piece in cut(text, size):
        scene.feed(watch, piece)
        assert len(scene.left) <= whole or store.asked == asked
    scene.end(watch)
    assert (scene.left, scene.released, scene.counted.reasons) == (text, [], [])
    assert (store.asked, watch.outcome, watch.waiting) == (asked, outcome, False)


async def test_the_first_owner_keeps_a_task_while_it_is_in_the_pool(scene: Scene) -> None:
    """Two backends that make one id are in conflict: the pin stays, and is not finished by the second."""
    store = Store(owner="b")
    watch = scene.watch(store)
    scene.feed(watch, created(status="completed"))
    scene.end(watch)
    assert store.asked == ["put t-1 agents/a ttl=None"]
    assert (watch.outcome, scene.left) == ("conflict", created(status="completed"))


@pytest.mark.parametrize("status", ["working", "completed"])
async def test_an_owner_that_has_left_the_pool_is_replaced(scene: Scene, status: str) -> None:
    store = Store(owner="gone")
    watch = scene.watch(store)
    scene.feed(watch, created(status=status, ttlMs=1000))
    scene.end(watch)
    put = "put t-1 agents/a ttl=1.0"
    assert store.asked == [put, f"{put} replace", *(["finish t-1"] if status == "completed" else [])]
    assert (watch.outcome, scene.left) == ("served", created(status=status, ttlMs=1000))


@pytest.mark.parametrize(
    "message",
    [
        b'{"result":{"taskId":"t-1","taskId":"t-1","resultType":"task"}}',
        b'{"result":{"taskId":"t-1","resultType":"task"}',
        b'{"result":{"taskId":"\xff","resultType":"task"}}',
    ],
)
async def test_what_is_not_strict_json_passes_and_is_counted(scene: Scene, message: bytes) -> None:
    store = Store()
    watch = scene.watch(store)
    scene.feed(watch, message)
    scene.end(watch)
    assert (scene.left, store.asked, scene.counted.reasons) == (message, [], ["unreadable"])


@pytest.mark.parametrize("size", [1000, 10**9])
async def test_messages_that_are_too_large_pass_and_are_counted(scene: Scene, size: int) -> None:
    store = Store()
    watch = scene.watch(store, reader=EventReader())
    text = event(created("x" * 100_000)) * 2 + event(created()) + event(b"x" * 100_000)
    scene.feed(watch, *cut(text, size))
    scene.end(watch)
    assert (scene.left, store.asked) == (text, ["put t-1 agents/a ttl=None"])
    assert scene.counted.reasons == ["oversized"] * 2


@pytest.mark.parametrize("streamed", [False, True])
@pytest.mark.parametrize("failing", [False, True])
@pytest.mark.parametrize(
    ("method", "name", "asked"),
    [
        ("tasks/get", "t-1", ["finish t-1"]),
        ("tasks/get", None, []),
        ("tasks/update", "t-1", []),
        ("tools/call", None, []),
    ],
)
async def test_a_poll_whose_answer_is_too_large_to_be_read_got_a_result(
    scene: Scene, method: str, name: str | None, asked: list[str], failing: bool, streamed: bool
) -> None:
    """So its task has ended: nobody at work sends that much."""
    store = Store()
    store.failing = {"finish"} if failing else set()
    watch = scene.watch(store, reader=EventReader() if streamed else JsonReader(), method=method, name=name)
    message = answer(taskId="t-1", result="x" * 70_000)
    text = event(message) if streamed else message
    scene.feed(watch, text)
    scene.end(watch)
    assert (scene.left, store.asked) == (text, asked)
    assert scene.counted.reasons == ["oversized"] + ["store_failed"] * bool(failing and asked)


async def test_an_answer_that_breaks_off_teaches_nothing(scene: Scene) -> None:
    """Its end never comes; what was held back is not sent."""
    store = Store()
    watch = scene.watch(store)
    scene.feed(watch, created()[:-1])
    assert store.asked == []
    assert scene.left == created()[:-2]


async def test_with_the_memory_store_the_task_is_pinned_when_its_message_leaves(scene: Scene) -> None:
    store = MemoryPinStore(ttl=100.0, capacity=10, clock=lambda: 0.0)
    watch = scene.watch(store, reader=EventReader())
    text = event(created())
    for place in range(len(text)):
        scene.feed(watch, text[place : place + 1])
        assert (store.get(KEY) is None) is (place < len(text) - 2)  # CR LF CR: the last LF is of the same line end
        assert store.get(KEY) is not None or b"}}" not in scene.left
    assert store.get(KEY) == Pin("a")
    assert store.held() == {("agents", "a"): 1}


ASKED = b'{"jsonrpc":"2.0","id":1,"result":{"resultType":"input_required","requestState":"x"}}'


@pytest.mark.parametrize(
    ("method", "name", "message", "noticed"),
    [
        ("tools/call", "whoami", ASKED, [Learned(Lesson.ASKED, "")]),
        ("tools/call", None, created(), [Learned(Lesson.CREATED, "t-1")]),
        ("tasks/get", "t-1", answer(taskId="t-1"), [Learned(Lesson.ALIVE, "t-1")]),
        ("tasks/get", "t-1", UNKNOWN, [Learned(Lesson.UNKNOWN, "t-1")]),
        ("tools/call", None, answer(content=[]), []),
    ],
)
@pytest.mark.parametrize("later", [False, True])
async def test_every_lesson_is_noticed_before_its_message_leaves(
    scene: Scene, method: str, name: str | None, message: bytes, noticed: list[Learned], later: bool
) -> None:
    watch = scene.watch(Store(later=later), reader=EventReader(), method=method, name=name)
    scene.feed(watch, event(message)[:-2])
    assert (scene.noticed, scene.left) == ([], event(message)[: event(message).rindex(b"}")])
    scene.feed(watch, b"\r\n")
    assert scene.noticed == noticed


async def test_a_backend_that_asks_back_is_not_pinned(scene: Scene) -> None:
    store = Store()
    watch = scene.watch(store)
    scene.feed(watch, ASKED)
    scene.end(watch)
    assert (scene.left, store.asked, watch.outcome) == (ASKED, [], "served")


@pytest.mark.parametrize(
    ("message", "asked"),
    [
        (answer(taskId="t-1"), ["put t-1 agents/a ttl=None"]),
        (answer(taskId="t-1", ttlMs=1000), ["put t-1 agents/a ttl=1.0"]),
        (answer(taskId="t-1", status="failed"), ["put t-1 agents/a ttl=None", "finish t-1"]),
        (answer(taskId="t-2"), []),
        (UNKNOWN, []),
    ],
)
async def test_an_owner_that_a_search_found_is_pinned(scene: Scene, message: bytes, asked: list[str]) -> None:
    store = Store()
    watch = scene.watch(store, method="tasks/get", name="t-1", found=True)
    scene.feed(watch, message)
    scene.end(watch)
    assert (scene.left, store.asked) == (message, asked)


async def test_the_first_owner_keeps_a_task_that_a_search_found_elsewhere(scene: Scene) -> None:
    store = Store(owner="b")
    watch = scene.watch(store, method="tasks/get", name="t-1", found=True)
    scene.feed(watch, answer(taskId="t-1", status="failed"))
    scene.end(watch)
    assert (store.asked, watch.outcome) == (["put t-1 agents/a ttl=None"], "conflict")


@pytest.mark.parametrize("later", [False, True])
@pytest.mark.parametrize(("owner", "replaced"), [(POOL_ITSELF, False), ("a", True), ("b", True), ("gone", True)])
async def test_a_pin_of_a_shared_pool_names_the_pool_alone(
    scene: Scene, later: bool, owner: str, replaced: bool
) -> None:
    """Every backend can answer; so none of two is in conflict, and one pinned while the pool was local is replaced."""
    store = Store(owner=owner, later=later)
    watch = scene.watch(store, state="shared")
    scene.feed(watch, created())
    scene.end(watch)
    await store.let_all_come(watch)
    put = "put t-1 agents/ ttl=None"
    assert store.asked == [put, *([f"{put} replace"] if replaced else [])]
    assert watch.outcome == "served"
