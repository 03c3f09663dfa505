"""One worker as its supervisor knows it: the process, the channel to it, and what it told last."""

import asyncio
import socket
import sys
import time
from asyncio.subprocess import Process
from collections.abc import Callable, Sequence
from itertools import count
from typing import Any

from proxy.snapshot import Snapshot
from proxy.workers.channel import Channel, Message

_MODULE = "proxy.workers.worker"
STALLED = 4
"""Looks in a row, a second apart, at which a worker had told nothing: others accept for it."""
_ANSWER = 1.0  # seconds that a worker may take to answer; one that is busy for longer is told of as it was


class Hand:
    """A worker that was started. `received` gets the messages that answer nothing."""

    def __init__(self, seat: int, process: Process, received: Callable[["Hand", Message], None]) -> None:
        self.seat = seat
        self.ready = False
        """True once it accepts clients."""
        self.leaving = False
        """True once it accepts no more, for good."""
        self.snapshot = Snapshot()
        """Its numbers when it told them last."""
        self.departed: dict[tuple[str, str], float] = {}
        """When each member that departed was last used there, by (pool, backend id); monotonic, in seconds."""
        self.ejected: dict[tuple[str, str], float] = {}
        """Until when each backend is ejected there, likewise."""
        self.changes = -1
        """How many changes of the configuration it had seen by then, those before its time included; -1 before it told
        anything."""
        self.missed = 0
        """Looks in a row at which it had told nothing since the one before."""
        self.born = 0
        """How many there had been when it started."""
        self.started = time.monotonic()
        self._process = process
        self._received = received
        self._channel = Channel(self._take, self._give_up)
        self._numbers = count()
        self._asked: dict[int, asyncio.Future[Message | None]] = {}
        self._silent = asyncio.Event()  # nothing more is heard of it

    def __repr__(self) -> str:
        return f"<Hand seat={self.seat} pid={self.pid} ready={self.ready} leaving={self.leaving}>"

    @property
    def pid(self) -> int:
        return self._process.pid

    @property
    def accepts(self) -> bool:
        """True while it accepts clients."""
        return self.ready and not self.leaving and not self.stalled

    @property
    def stalled(self) -> bool:
        """True while it has told nothing for long."""
        return self.missed >= STALLED

    async def connect(self, ours: socket.socket) -> None:
        """Opens the channel."""
        await self._channel.open(ours)

    def send(self, kind: str, **content: Any) -> None:
        """Tells the worker something."""
        self._channel.send({"kind": kind, **content})

    async def ask(self, kind: str, **content: Any) -> Message | None:
        """The worker's answer; None if it gives none in time."""
        if self._silent.is_set():
            return None
        number = next(self._numbers)
        answer = self._asked[number] = asyncio.get_running_loop().create_future()
        self.send(kind, id=number, **content)
        try:
            return await asyncio.wait_for(answer, _ANSWER)
        except TimeoutError:
            return None
        finally:
            self._asked.pop(number, None)

    def note(self, report: Message) -> None:
        """Takes in what it reports of itself."""
        self.snapshot = Snapshot.of_values(report["snapshot"])
        self.departed = {(pool, backend): used for pool, backend, used in report["departed"]}
        self.ejected = {(pool, backend): until for pool, backend, until in report["ejected"]}
        self.changes = self.born + report["changes"]

    async def ended(self) -> int:
        """Waits for the process's end, and for all it told; its exit code, negative for a signal."""
        code = await self._process.wait()
        await self._silent.wait()  # its last words may still be on their way; its end of the channel closed with it
        return code

    def kill(self) -> None:
        """Ends it at once."""
        if self._process.returncode is None:
            self._process.kill()

    def _take(self, message: Message) -> None:
        answer = self._asked.get(message.pop("id", -1))
        self._received(self, message)
        if answer is not None and not answer.done():
            answer.set_result(message)

    def _give_up(self) -> None:
        self._silent.set()
        for answer in self._asked.values():
            if not answer.done():
                answer.set_result(None)


async def start_hand(seat: int, sockets: Sequence[socket.socket], received: Callable[[Hand, Message], None]) -> Hand:
    """Starts a worker that inherits these sockets. Raises OSError when no process can be started."""
    ours, theirs = socket.socketpair()
    try:
        process = await asyncio.create_subprocess_exec(
            sys.executable,
            "-m",
            _MODULE,
            str(theirs.fileno()),
            stdin=asyncio.subprocess.DEVNULL,
            start_new_session=True,  # what a terminal sends to its whole group is for the supervisor
            pass_fds=[theirs.fileno(), *(sock.fileno() for sock in sockets)],
        )
    except BaseException:
        ours.close()
        raise
    finally:
        theirs.close()
    hand = Hand(seat, process, received)
    await hand.connect(ours)
    return hand
