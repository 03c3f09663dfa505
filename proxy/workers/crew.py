"""The workers' lives: one on each seat, replaced when it dies, leaves or hangs, and ended in the end.

Rules:
* The listening sockets are the supervisor's, who accepts no client itself; so none that waits in a queue is lost with a
  worker. Which worker accepts from which socket is in proxy/workers/seats.py.
* A worker that dies is replaced after a pause that grows with early deaths, one that leaves at once, while it drains.
* One that tells nothing for long accepts no more, and at last is ended. Each look counts once, so that a machine that
  stood still is no reason.
"""

import asyncio
import logging
import time
from collections.abc import Callable, Sequence
from socket import socket
from typing import Any

from proxy.background import Background
from proxy.workers.channel import Message
from proxy.workers.hands import STALLED, Hand, start_hand
from proxy.workers.seats import Pauses, assigned

HUNG = 30
"""Looks in a row, a second apart, at which a worker had told nothing: it is ended, and replaced."""
_LOOK = 1.0  # seconds
_BEYOND = 3.0  # seconds that a worker may take beyond the time for draining

log = logging.getLogger("proxy")


class Crew:
    """The workers that accept from these sockets, `seats` of them.

    `begin` tells a worker that was started what it needs to serve; `received` gets what workers say beside reports of
    their lives; `buried` is told of each that has ended.
    """

    def __init__(
        self,
        sockets: Sequence[socket],
        seats: int,
        *,
        begin: Callable[[Hand], None],
        received: Callable[[Hand, Message], None],
        buried: Callable[[Hand], None],
        background: Background,
    ) -> None:
        self.restarts = 0
        """Workers that died."""
        self._sockets = sockets
        self._begin = begin
        self._received = received
        self._buried = buried
        self._background = background
        self._ending = False
        self._hands: list[Hand | None] = [None] * seats
        self._leaving: set[Hand] = set()
        self._coming = 0  # workers whose processes are being made
        self._none_coming = asyncio.Event()
        self._none_coming.set()
        self._pauses = [Pauses() for _ in range(seats)]
        self._started = asyncio.Event()
        self._failed = False

    @property
    def ready(self) -> list[Hand]:
        """The workers that serve, those included that drain."""
        return [hand for hand in (*self._hands, *self._leaving) if hand is not None and hand.ready]

    @property
    def accepting(self) -> list[Hand]:
        """Those that accept clients."""
        return [hand for hand in self._hands if hand is not None and hand.accepts]

    def tell(self, kind: str, besides: Hand | None = None, **content: Any) -> None:
        """Tells all workers something, those that are leaving included."""
        for hand in (*self._hands, *self._leaving):
            if hand is not None and hand is not besides:
                hand.send(kind, **content)

    async def start(self) -> None:
        """Starts the workers, and returns when all accept clients. Raises OSError if the first ones cannot live."""
        for seat in range(len(self._hands)):
            self._background.spawn(self._fill(seat), f"start worker {seat}")
        await self._started.wait()
        if self._failed:
            raise OSError("a worker ended before it served; its last words are above")
        self._background.loop("look after workers", _LOOK, self._look_after)

    async def end(self, drain: float) -> None:
        """Lets the workers finish what is under way within so many seconds, then ends them."""
        self._ending = True
        self.tell("stop")
        await self._none_coming.wait()
        hands = {hand for hand in (*self._hands, *self._leaving) if hand is not None}
        if not hands:
            return
        watches = [self._background.spawn(hand.ended(), "await a worker's end") for hand in hands]
        _, pending = await asyncio.wait(watches, timeout=drain + _BEYOND)
        if pending:
            log.warning("%d workers did not end in time, and are killed", len(pending))
            for hand in hands:
                hand.kill()
            await asyncio.wait(pending)

    # ---- seats
    async def _fill(self, seat: int) -> None:
        """A worker for this seat."""
        while not self._ending:
            self._coming += 1
            self._none_coming.clear()
            try:
                hand = await start_hand(seat, self._sockets, self._take)
                break
            except OSError as error:
                log.error("worker %d cannot be started, which is tried again: %s", seat, error)
            finally:
                self._coming -= 1
                if not self._coming:
                    self._none_coming.set()
            await asyncio.sleep(self._pauses[seat].after(0.0) or 1.0)
        else:
            return
        self._hands[seat] = hand
        self._background.spawn(self._watch(hand), f"watch worker {seat}")
        if self._ending:  # the sockets are closed
            hand.send("stop")
        else:
            self._begin(hand)

    async def _watch(self, hand: Hand) -> None:
        """Sees to it that a worker that ends is replaced."""
        code = await hand.ended()
        self._buried(hand)
        self._leaving.discard(hand)
        if self._hands[hand.seat] is not hand:
            return  # it was replaced when it began to leave
        self._hands[hand.seat] = None
        if self._ending:
            return
        if not self._started.is_set():
            self._failed = True
            self._started.set()
            return
        log.error("worker %d (pid %d) ended: %s", hand.seat, hand.pid, _cause(code))
        self.restarts += 1
        self._assign()
        await asyncio.sleep(self._pauses[hand.seat].after(time.monotonic() - hand.started))
        await self._fill(hand.seat)

    def _assign(self) -> None:
        """Tells every worker from which sockets it accepts now."""
        hands = {hand.seat: hand for hand in self.accepting}
        seats = assigned(sockets=len(self._sockets), seats=len(self._hands), accepting=hands.keys())
        for seat, accept in seats.items():
            hands[seat].send("accept", accept=list(accept))

    def _look_after(self) -> None:
        for hand in self._hands:
            if hand is None or not hand.ready:
                continue
            hand.missed += 1
            if hand.missed == STALLED:
                log.warning("worker %d (pid %d) does not answer: others accept for it", hand.seat, hand.pid)
                self._assign()
            elif hand.missed == HUNG:
                log.error("worker %d (pid %d) has not answered for %d s and is killed", hand.seat, hand.pid, HUNG)
                hand.kill()

    # ---- what workers say of their lives
    def _take(self, hand: Hand, message: Message) -> None:
        kind = message["kind"]
        if kind == "ready":
            hand.ready = True
            self._assign()
            if all(known is not None and known.ready for known in self._hands):
                self._started.set()
        elif kind == "leaving":
            self._leave(hand)
        else:
            if kind == "report":
                self._heard_of(hand)
            self._received(hand, message)

    def _heard_of(self, hand: Hand) -> None:
        stalled, hand.missed = hand.missed >= STALLED, 0
        if stalled:
            log.warning("worker %d (pid %d) answers again", hand.seat, hand.pid)
            self._assign()

    def _leave(self, hand: Hand) -> None:
        """This worker accepts no more: its neighbour does, and another takes its seat while it drains."""
        hand.leaving = True
        if self._hands[hand.seat] is not hand or self._ending:
            return
        log.info("worker %d (pid %d) leaves", hand.seat, hand.pid)
        self._leaving.add(hand)
        self._hands[hand.seat] = None
        self._assign()
        self._background.spawn(self._fill(hand.seat), f"replace worker {hand.seat}")


def _cause(code: int) -> str:
    return f"exit code {code}" if code >= 0 else f"signal {-code}"
