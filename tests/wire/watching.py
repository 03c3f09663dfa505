"""Answers on their way, watched, and a pin store that does as a test says."""

import asyncio
import json
import time
from collections.abc import Callable, Mapping
from typing import TypeVar

from proxy.background import Background
from proxy.pins.store import Answer, Pin, PinStore, PinStoreError
from proxy.routing.backends import Backend
from proxy.routing.balancing import LeastInFlight
from proxy.routing.ownership import Learned, PinKey, pin_key
from proxy.routing.pools import Pool, State
from proxy.wire.events import AnswerReader, JsonReader
from proxy.wire.learning import Lessons, Watch

T = TypeVar("T")
PATIENCE = 5.0  # seconds; what does not happen by then does not happen


def answer(**result: object) -> bytes:
    return json.dumps({"jsonrpc": "2.0", "id": 1, "result": result}).encode()


def created(task_id: str = "t-1", **more: object) -> bytes:
    return answer(resultType="task", taskId=task_id, **more)


UNKNOWN = b'{"jsonrpc":"2.0","id":1,"error":{"code":-32602,"message":"unknown"}}'
KEY = pin_key("agents", "t-1")


class Store:
    """A pin store that notes what it is asked, and answers at once, later, or not at all, as the test says."""

    def __init__(self, *, later: bool = False, owner: str = "a") -> None:
        self.asked: list[str] = []
        self.failing: set[str] = set()
        self.pending: list[asyncio.Future[None]] = []
        self._later = later
        self._owner = owner
        self.evicted = 0
        self.up = True

    @property
    def stores_at_once(self) -> bool:
        return not self._later

    def start(self) -> None:
        raise AssertionError("nobody starts a store for a watch")

    async def close(self) -> None:
        raise AssertionError("nobody closes a store for a watch")

    def get(self, key: PinKey) -> Answer[Pin | None]:
        raise AssertionError("nobody asks a store whose the task is")

    def fresh(self, key: PinKey) -> tuple[Pin, float | None] | None:
        raise AssertionError("nobody asks a store whose the task is")

    def peek(self, key: PinKey) -> Answer[Pin | None]:
        raise AssertionError("nobody asks a store whose the task is")

    def put(self, key: PinKey, pool: str, backend: str, *, ttl: float | None, replace: bool = False) -> Answer[str]:
        asked = f"put {self.name(key)} {pool}/{backend} ttl={ttl}" + " replace" * replace
        owner = backend if replace else self._owner
        return self.later(asked, owner) if self.note(asked) else owner

    def refresh(self, key: PinKey, *, ttl: float | None) -> Answer[None]:
        asked = f"refresh {self.name(key)} ttl={ttl}"
        return self.later(asked, None) if self.note(asked) else None

    def finish(self, key: PinKey) -> Answer[None]:
        asked = f"finish {self.name(key)}"
        return self.later(asked, None) if self.note(asked) else None

    def forget(self, key: PinKey) -> Answer[None]:
        raise AssertionError("nothing is forgotten here")

    def held(self) -> Answer[Mapping[tuple[str, str], int | None]]:
        return {}

    def __len__(self) -> int:
        return 0

    @staticmethod
    def name(key: PinKey) -> str:
        return {pin_key("agents", f"t-{number}"): f"t-{number}" for number in range(9)}[key]

    def note(self, asked: str) -> bool:
        """Notes what was asked; True to answer later. Raises PinStoreError where it is to fail at once."""
        self.asked.append(asked)
        if asked.split(" ", 1)[0] in self.failing and not self._later:
            raise PinStoreError("no")
        return self._later

    def later(self, asked: str, value: T) -> "asyncio.Future[T]":
        """An answer that comes when the test lets it, an error where it is to fail."""
        gate: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        answer: asyncio.Future[T] = asyncio.get_running_loop().create_future()
        self.pending.append(gate)

        def come(_: "asyncio.Future[None]") -> None:
            if answer.done():
                return
            if asked.split(" ", 1)[0] in self.failing:
                answer.set_exception(PinStoreError("no"))
            else:
                answer.set_result(value)

        gate.add_done_callback(come)
        return answer

    async def let_all_come(self, watch: Watch) -> None:
        """Lets every answer come as soon as it is asked for, until the watch waits for none."""
        while watch.waiting:
            await until(lambda: self.pending or not watch.waiting)
            for gate in self.pending:
                if not gate.done():
                    gate.set_result(None)
            self.pending.clear()


class Tallied:
    """Counts what could not be learned."""

    def __init__(self) -> None:
        self.reasons: list[str] = []

    def unlearned(self, reason: str) -> None:
        self.reasons.append(reason)


class Scene:
    """One answer on its way: what has left, and what was counted."""

    def __init__(self, background: Background) -> None:
        self.counted = Tallied()
        self.left = b""
        self.released: list[bytes] = []
        self.noticed: list[Learned] = []
        self._background = background

    def watch(
        self,
        store: PinStore,
        *,
        reader: AnswerReader | None = None,
        method: str = "tools/call",
        name: str | None = None,
        found: bool = False,
        state: State = "local",
    ) -> Watch:
        def released(held: bytes) -> None:
            self.released.append(held)
            self.left += held

        backends = [Backend(one, "127.0.0.1", 1) for one in "ab"]
        pool = Pool("agents", backends, policy=LeastInFlight(), state=state)
        lessons = Lessons(
            method=method,
            name=name,
            pool=pool,
            backend="a",
            pins=store,
            tally=self.counted,
            noticed=self.noticed.append,
            found=found,
        )
        return Watch(
            JsonReader() if reader is None else reader,
            lessons,
            background=self._background,
            released=released,
        )

    def feed(self, watch: Watch, *pieces: bytes) -> None:
        for piece in pieces:
            self.left += watch.feed(piece)

    def end(self, watch: Watch) -> None:
        self.left += watch.end()


async def until(condition: Callable[[], object]) -> None:
    deadline = time.monotonic() + PATIENCE
    while not condition():
        assert time.monotonic() < deadline, "it did not happen in time"
        await asyncio.sleep(0.001)


def event(message: bytes) -> bytes:
    return b"event: message\r\ndata: " + message + b"\r\n\r\n"
