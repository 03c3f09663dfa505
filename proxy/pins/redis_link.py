"""The line to Redis: what is sent together, how long is waited, and when it counts as down.

Rules:
* Commands that come in one turn of the event loop, or while others are under way, go out together as one pipeline of
  at most `MOST_TOGETHER`. One pipeline is under way at a time, so answers come in the order of the commands.
* A command is answered within `LIMIT` seconds of its sending, or all that wait fail and the line is down: Redis answers
  in order, so what comes after a silence comes too late as well.
* An answer that is an error fails its own command. One that says that this server is of no use now (a replica, loading,
  no rights) takes the line down as well.
* While it is down every command fails at once, and connecting is tried again after a pause that doubles, with jitter.
* Nothing of the URL, and nothing that Redis repeats of a command, gets into an error or the log.
"""

import asyncio
import logging
import random
import re
from collections import deque
from collections.abc import Callable, Sequence
from enum import Enum
from typing import Any, NamedTuple

from redis.asyncio.connection import AbstractConnection, Connection, parse_url
from redis.exceptions import (
    AskError,
    AuthenticationError,
    AuthorizationError,
    BusyLoadingError,
    ClusterDownError,
    NoPermissionError,
    NoScriptError,
    OutOfMemoryError,
    ReadOnlyError,
    RedisError,
    ResponseError,
)

from proxy.background import Background
from proxy.pins.redis_scripts import INFO, Command
from proxy.pins.store import PinStoreError

Done = Callable[[object], None]
"""Takes the answer to a command, or the PinStoreError that it failed with. Called once, and raises nothing."""

LIMIT = 0.2  # seconds; below the 250 ms that an answer is held back for its pin
_LATE, _UNREAD = 0.02, 0.03  # seconds: so late is a busy event loop, and so long it then has to read what came
MOST_TOGETHER = 500  # commands; some 100 KB, and 5 ms of Redis's time
MOST_WAITING = 20_000  # commands; more could not be answered in time
_CONNECT_LIMIT = 2.0  # seconds for the connection, TLS, the password and the scripts
_FIRST_PAUSE, _LONGEST_PAUSE = 0.1, 5.0  # seconds
_SERVED = 1.0  # seconds; a connection that was good for so long makes up for the failures before it
_QUIET = 1.0  # seconds without a command, after which one is sent to see whether Redis is there

_USELESS = (
    ReadOnlyError,
    NoScriptError,
    ClusterDownError,
    AskError,
)  # those of passwords and loading end the connection
_CODE = re.compile(r"[A-Z]{2,20}")
_NO_WRITES = ("MISCONF", "NOREPLICAS")  # what is there can be read all the same

log = logging.getLogger("proxy")


class State(Enum):
    IDLE = "idle"  # not started
    STARTING = "starting"  # connecting at first, or since Redis closed a quiet connection: commands wait
    UP = "up"
    DOWN = "down"
    CLOSED = "closed"


class _Sent(NamedTuple):
    command: Command
    done: Done
    due: float


class Link:
    """A line to one Redis, started by its first command or by `start`.

    `setting_up` gives the commands that every connection starts with, `came_up` takes their answers: replies, or
    PinStoreErrors. Raises ValueError for a URL that is none of Redis.
    """

    def __init__(
        self,
        url: str,
        *,
        background: Background,
        setting_up: Callable[[], Sequence[Command]],
        came_up: Callable[[Sequence[object]], None],
    ) -> None:
        try:
            settings: dict[str, Any] = {**parse_url(url)}
        except ValueError:
            raise ValueError("not the URL of a Redis") from None  # the cause may quote the password
        self._kind: type[AbstractConnection] = settings.pop("connection_class", Connection)
        self._settings = settings
        self._background = background
        self._setting_up = setting_up
        self._came_up = came_up
        self._state = State.IDLE
        self._waiting: deque[_Sent] = deque()
        self._flying: deque[_Sent] = deque()
        self._wake = asyncio.Event()
        self._task: asyncio.Task[None] | None = None
        self._patience: asyncio.TimerHandle | None = None
        self._down_since: float | None = None

    @property
    def up(self) -> bool:
        """False while Redis is known not to serve: from a failure until it answers again."""
        return self._state not in (State.DOWN, State.CLOSED)

    def start(self) -> None:
        """Connects, in the background. Does nothing the second time."""
        if self._state is State.IDLE:
            self._wait_for_connection()
            self._task = self._background.spawn(self._run(), "the line to Redis")
            self._task.add_done_callback(lambda task: self._close())

    def send(self, command: Command, done: Done) -> None:
        """Sends a command with those of the same turn. Raises PinStoreError while the line is down."""
        self.start()
        if not self.up:
            raise PinStoreError("Redis is down")
        if len(self._waiting) >= MOST_WAITING:
            raise PinStoreError("too much waits for Redis")
        self._waiting.append(_Sent(command, done, asyncio.get_running_loop().time() + LIMIT))
        self._wake.set()

    async def close(self) -> None:
        """Ends the line once what was sent is answered, or failed. Idempotent."""
        if self._state in (State.STARTING, State.UP):
            last: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            self.send(("PING",), lambda reply: None if last.done() else last.set_result(None))
            await last  # at most LIMIT: then all of it has failed
        self._close()
        if self._task is not None:
            self._task.cancel()
            await asyncio.wait([self._task])

    # ---- the line's own task
    async def _run(self) -> None:
        loop = asyncio.get_running_loop()
        pause = _FIRST_PAUSE
        while True:
            connection = self._kind(**self._settings, protocol=2, driver_info=None, socket_timeout=None)
            served_from = float("inf")
            try:
                await self._connect(connection)
                served_from = loop.time()
                while True:
                    if await self._rest() and await connection.can_read():
                        break  # it was closed meanwhile, or says what nobody asked
                    await self._exchange(connection)
                self._wait_for_connection()
                continue
            except (RedisError, OSError, EOFError) as error:  # TimeoutError is an OSError
                self._go_down(_reason(error))
            except Exception as error:
                log.error("the line to Redis failed, and goes on", exc_info=error)
                self._go_down("it failed")
            finally:
                await connection.disconnect(nowait=True)
                if loop.time() - served_from > _SERVED:
                    pause = _FIRST_PAUSE
            await asyncio.sleep(pause * random.uniform(0.5, 1.0))
            pause = min(2 * pause, _LONGEST_PAUSE)

    async def _connect(self, connection: AbstractConnection) -> None:
        async with asyncio.timeout(_CONNECT_LIMIT):
            await connection.connect()  # type: ignore[no-untyped-call]  # redis leaves it unannotated
            commands = self._setting_up()
            await connection.send_packed_command(connection.pack_commands(commands), check_health=False)
            replies = [await _reply(connection) for _ in commands]
        for command, reply in zip(commands, replies, strict=True):
            if isinstance(reply, ResponseError) and not _refuses_writes(reply) and command != INFO:
                raise reply  # a user without INFO is served: only what was dropped is not known then
        if self._down_since is not None:
            seconds = asyncio.get_running_loop().time() - self._down_since
            log.warning("Redis answers again after %.1f s: pins are known once more", seconds)
        self._down_since = None
        self._state = State.UP
        self._came_up([_refusal(reply) if isinstance(reply, ResponseError) else reply for reply in replies])

    async def _rest(self) -> bool:
        """Returns when there is something to send; True if there was nothing at first."""
        if self._waiting:
            return False
        self._wake.clear()
        try:
            async with asyncio.timeout(_QUIET):
                await self._wake.wait()
        except TimeoutError:
            self.send(("PING",), lambda reply: None)
        return True

    async def _exchange(self, connection: AbstractConnection) -> None:
        """One pipeline. Raises what takes the line down."""
        flying = self._flying
        flying.extend(self._waiting.popleft() for _ in range(min(len(self._waiting), MOST_TOGETHER)))
        useless: ResponseError | None = None
        async with asyncio.timeout(None) as limit:
            watch = asyncio.get_running_loop().call_at(flying[0].due, _expire, limit, flying[0].due)
            try:
                packed = connection.pack_commands(sent.command for sent in flying)
                await connection.send_packed_command(packed, check_health=False)
                while flying:
                    reply = await _reply(connection)
                    if isinstance(reply, _USELESS):
                        useless = reply
                    flying.popleft().done(_refusal(reply) if isinstance(reply, ResponseError) else reply)
            finally:
                watch.cancel()
        if useless:
            raise useless

    # ---- its ends
    def _wait_for_connection(self) -> None:
        """Lets commands wait for a connection that is about to be made."""
        self._state = State.STARTING
        if self._patience is not None:
            self._patience.cancel()
        self._patience = asyncio.get_running_loop().call_later(LIMIT, self._stop_waiting)

    def _stop_waiting(self) -> None:
        if self._state is State.STARTING:
            self._go_down("no connection yet")  # it may still come: the attempt goes on

    def _go_down(self, reason: str) -> None:
        if self._state is State.CLOSED:
            return
        if self._down_since is None:
            self._down_since = asyncio.get_running_loop().time()
            log.error("Redis is down (%s): owners of tasks are searched until it answers", reason)
        self._state = State.DOWN
        self._fail_all(f"Redis is down: {reason}")

    def _close(self) -> None:
        self._state = State.CLOSED
        self._fail_all("the proxy is closing")

    def _fail_all(self, reason: str) -> None:
        failed = [*self._flying, *self._waiting]
        self._flying.clear()
        self._waiting.clear()
        for sent in failed:
            sent.done(PinStoreError(reason))


def _expire(limit: asyncio.Timeout, due: float) -> None:
    """The time for an answer is over; unless it was this process that was busy, and the answer lies there unread."""
    now = asyncio.get_running_loop().time()
    limit.reschedule(now + _UNREAD if now - due > _LATE else now)


async def _reply(connection: AbstractConnection) -> object:
    """The next answer; one that is an error is returned. Raises what makes the connection useless."""
    try:
        return await connection.read_response()
    except ResponseError as error:
        # Redis 6 puts what a script failed with into the middle of its own text.
        return ReadOnlyError() if "READONLY" in str(error) else error


def _refuses_writes(error: ResponseError) -> bool:
    return isinstance(error, OutOfMemoryError) or str(error).startswith(_NO_WRITES)


def _refusal(error: ResponseError) -> PinStoreError:
    return PinStoreError(f"Redis refuses: {_reason(error)}")


def _reason(error: BaseException) -> str:
    """What went wrong, in words that cannot hold a secret: Redis may repeat the arguments of a command."""
    match error:
        case ReadOnlyError():
            return "it is a replica, which takes no writes"
        case BusyLoadingError():
            return "it is loading its data"
        case AuthenticationError() | AuthorizationError() | NoPermissionError():
            return "it does not accept the user or the password, or they lack rights"
        case OutOfMemoryError():
            return "it has no room"
        case NoScriptError():
            return "its scripts were flushed"
        case ResponseError():
            word = str(error).partition(" ")[0]
            return (
                f"it answers {word}" if word.isalpha() and word.isupper() and len(word) < 20 else "it answers an error"
            )
        case RedisError() if isinstance(error.__context__, OSError) and error.__context__.strerror:
            return error.__context__.strerror.lower()
        case TimeoutError():
            return "no answer in time"
        case _:
            return "the connection broke"
