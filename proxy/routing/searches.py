"""What the answers of several backends to one request about a task amount to, and who may search.

Rules (contract of the search; Tasks extension, Protocol Errors):
* A `result` is the owner's: the first one decides a search that asks for one answer.
* When all have answered without one, a refusal decides, in this order: 401, 403, any other 4xx or JSON-RPC error, then
  -32602 (unknown task), then -32601 (unknown method); the first to say so is relayed.
* If one did not answer readably (unreachable, silent, 429, 5xx), nobody knows: the owner may be that one.
* One that cannot be reached may be about to come back, so it is worth waiting for where all others know nothing of the
  task. So many may wait for that, so many of one address.
"""

from collections import OrderedDict, deque
from collections.abc import Sequence
from enum import IntEnum
from typing import Generic, TypeVar

from proxy.routing.ownership import UNKNOWN_TASK, strict_json

UNKNOWN_METHOD = -32601


class Reply(IntEnum):
    """What one backend's answer is to the search; of several, the lowest from RESULT on decides."""

    ABSENT = -4
    """It cannot be connected to, or broke off before it said anything: it may be about to come back."""
    GONE = -3
    """A backend that left the configuration and refuses connections: it owns nothing any more, and does not count."""
    PENDING = -2
    FAILED = -1
    RESULT = 0
    UNAUTHORIZED = 1
    FORBIDDEN = 2
    REFUSED = 3
    UNKNOWN_TASK = 4
    UNKNOWN_METHOD = 5


def reply_of(status: int, message: bytes | None) -> Reply:
    """The meaning of a complete answer: its HTTP status and its JSON-RPC message, None where none can be read."""
    if status == 429 or status >= 500 or status < 200 or 300 <= status < 400:
        return Reply.FAILED
    if status in _OF_THE_CALLER:
        return _OF_THE_CALLER[status]
    answer: object = None
    if message is not None:
        try:
            answer = strict_json(message)
        except ValueError:
            answer = None
    if isinstance(answer, dict):
        if "result" in answer and "error" not in answer and status < 300:
            return Reply.RESULT
        error = answer.get("error")
        if isinstance(error, dict):
            code = error.get("code")
            if code == UNKNOWN_TASK:
                return Reply.UNKNOWN_TASK
            if code == UNKNOWN_METHOD:
                return Reply.UNKNOWN_METHOD
            return Reply.REFUSED
    return Reply.REFUSED if status >= 400 else Reply.FAILED


def decides(message: bytes) -> bool:
    """True if a message of an event stream is the answer and not a notification on the way to it."""
    try:
        answer = strict_json(message)
    except ValueError:
        return False
    return isinstance(answer, dict) and ("result" in answer or "error" in answer)


def verdict(replies: Sequence[Reply], *, wait_for_all: bool) -> int | None:
    """The index of the answer to relay, or None: nobody knows, or not yet (then some are PENDING).

    `wait_for_all`: also a result is relayed only when every backend has answered.
    """
    counting = [reply for reply in replies if reply is not Reply.GONE]
    pending = Reply.PENDING in counting
    if Reply.RESULT in counting and not (wait_for_all and pending):
        return replies.index(Reply.RESULT)
    if pending or Reply.FAILED in counting or Reply.ABSENT in counting or not counting:
        return None
    return replies.index(min(counting))


def worth_waiting(replies: Sequence[Reply]) -> bool:
    """True if there is no verdict only because backends are away: what they say when they are back decides."""
    return Reply.ABSENT in replies and _UNDECIDED.issuperset(replies)


_UNDECIDED = frozenset({Reply.ABSENT, Reply.GONE, Reply.UNKNOWN_TASK, Reply.UNKNOWN_METHOD})


_OF_THE_CALLER = {401: Reply.UNAUTHORIZED, 403: Reply.FORBIDDEN}
"""These say something about the caller, whatever else the answer says about the task."""


class Room:
    """Has so many places, so many for one address."""

    def __init__(self, *, capacity: int, each: int) -> None:
        self._capacity = capacity
        self._each = each
        self._inside: dict[str, int] = {}
        self._total = 0

    def __len__(self) -> int:
        """How many are in."""
        return self._total

    def has_place(self, address: str) -> bool:
        """True if one more of this address may come in."""
        return self._total < self._capacity and self._inside.get(address, 0) < self._each

    def enter(self, address: str) -> None:
        """One of this address comes in."""
        self._total += 1
        self._inside[address] = self._inside.get(address, 0) + 1

    def leave(self, address: str) -> None:
        """One of this address, who had come in, goes."""
        self._total -= 1
        self._inside[address] -= 1
        if not self._inside[address]:
            del self._inside[address]


T = TypeVar("T")


class Turnstile(Generic[T]):
    """Lets so many in at a time, so many of one address; the others wait, and addresses take turns.

    `T` is what a caller waits with, returned when its turn has come.
    """

    def __init__(self, *, capacity: int, each: int) -> None:
        self._room = Room(capacity=capacity, each=each)
        self._waiting: OrderedDict[str, deque[T]] = OrderedDict()

    @property
    def inside(self) -> int:
        """How many are in."""
        return len(self._room)

    def enter(self, address: str, ticket: T) -> bool:
        """True: go in now. False: wait until `leave` returns the ticket."""
        if not self._waiting.get(address) and self._room.has_place(address):
            self._room.enter(address)
            return True
        self._waiting.setdefault(address, deque()).append(ticket)
        return False

    def give_up(self, address: str, ticket: T) -> None:
        """The ticket waits no longer."""
        queue = self._waiting.get(address)
        if queue is not None and ticket in queue:
            queue.remove(ticket)
            if not queue:
                del self._waiting[address]

    def leave(self, address: str) -> list[T]:
        """One of this address is done; returns the tickets that are inside from now on."""
        self._room.leave(address)
        admitted: list[T] = []
        for waiting in list(self._waiting):
            if not self._room.has_place(waiting):
                continue
            queue = self._waiting.pop(waiting)
            admitted.append(queue.popleft())
            self._room.enter(waiting)
            if queue:
                self._waiting[waiting] = queue  # behind the others: their turn first
        return admitted
