"""A new generation of this proxy in the place of the one that runs: started, handed the sockets, and waited for.

The command is executed again, as it was given; the new process inherits the listening sockets, reads its configuration
anew, and says when it serves. Should it not come to that, the old generation serves on as if nothing had been asked.
A service manager that asked to be told (sd_notify(3)) is told which process is the main one.
"""

import asyncio
import logging
import os
import socket
import sys
from asyncio.subprocess import Process
from collections.abc import Mapping
from contextlib import suppress
from typing import Any, Protocol

from proxy.routing.pools import Pool, Standing
from proxy.workers.channel import Channel, Message
from proxy.workers.sockets import HANDOVER, Endpoints, handed_over
from proxy.workers.state import changed_drains, read_standings, standings_of


class SetDraining(Protocol):
    """Takes a backend out of new work, or back in. Raises LookupError for one that is not there."""

    def __call__(self, *, pool: str, backend: str, draining: bool) -> None: ...


READY_LIMIT = 60.0
"""Seconds that a new generation may take until it serves."""
_LAST_WORDS = 2.0  # seconds in which a new generation that failed may end by itself
_STATE_LIMIT = 10.0  # seconds for the old one to tell how its pools stand

log = logging.getLogger("proxy")


async def start_successor(endpoints: Endpoints, pools: Mapping[str, Pool]) -> Process | None:
    """The process of the next generation once it serves; None, with the reason logged, if it does not come to that.

    Cancelled, it leaves nothing behind.
    """
    told: asyncio.Future[str] = asyncio.get_running_loop().create_future()

    def answer(text: str) -> None:
        if not told.done():
            told.set_result(text)

    channel = Channel(lambda message: answer(message["kind"]), lambda: answer("ended"))
    process: Process | None = None
    outcome = ""
    try:
        process = await _executed_again(endpoints, channel)
        channel.send({"kind": "pools", "standings": standings_of(pools)})
        async with asyncio.timeout(READY_LIMIT):
            outcome = await told
    except TimeoutError:
        log.error("the new generation does not serve in time, this one serves on")
    except OSError as error:
        log.error("no new generation can be started, this one serves on: %s", error)
    else:
        if outcome != "ready":
            with suppress(TimeoutError):  # it leaves the channel before it tells why
                await asyncio.wait_for(process.wait(), _LAST_WORDS)
            log.error("the new generation (pid %d) does not serve, this one serves on", process.pid)
    finally:
        if outcome == "ready":  # a drain by command may have come meanwhile
            channel.send({"kind": "pools", "standings": standings_of(pools)})
        channel.close()
        if process is not None and outcome != "ready":
            with suppress(ProcessLookupError):
                process.kill()
            await process.wait()
    return process if outcome == "ready" else None


async def _executed_again(endpoints: Endpoints, channel: Channel) -> Process:
    """Our own command in a new process, at the other end of the channel."""
    ours, theirs = socket.socketpair()
    with theirs:
        await channel.open(ours)  # first: from the process's start on, whoever gives up has both in hand
        value, descriptors = handed_over(endpoints, theirs)
        return await asyncio.create_subprocess_exec(
            sys.executable,
            *sys.orig_argv[1:],
            stdin=asyncio.subprocess.DEVNULL,
            pass_fds=descriptors,
            env={**os.environ, HANDOVER: value},
        )


class Predecessor:
    """The generation before this one. `channel` leads to it."""

    def __init__(self, channel: socket.socket) -> None:
        self._sock = channel
        self._channel = Channel(self._received, self._gone)
        self._told: asyncio.Future[dict[str, Any]] = asyncio.get_running_loop().create_future()
        self._set_draining: SetDraining | None = None

    async def standings(self) -> dict[str, Standing]:
        """How its pools stand; nothing if it does not tell in time."""
        await self._channel.open(self._sock)
        try:
            return read_standings(await asyncio.wait_for(self._told, _STATE_LIMIT))
        except TimeoutError:
            log.warning("the generation before does not tell how its pools stand: drains by command are lost")
            return {}

    def relieve(self, set_draining: SetDraining) -> None:
        """We serve: it may go. Drains that it was told of since it told us of its pools are put in force here."""
        self._set_draining = set_draining
        self._channel.send({"kind": "ready"})

    def _received(self, message: Message) -> None:
        if not self._told.done():
            self._told.set_result(message["standings"])
            return
        for pool, backend, draining in changed_drains(self._told.result(), message["standings"]):
            if self._set_draining is not None:
                with suppress(LookupError):  # our configuration lacks it
                    self._set_draining(pool=pool, backend=backend, draining=draining)

    def _gone(self) -> None:
        if not self._told.done():
            self._told.set_result({})


def notify(text: str) -> None:
    """Tells the service manager something, if it wants to know (sd_notify(3)); `text` as there, e.g. READY=1."""
    address = os.environ.get("NOTIFY_SOCKET", "")
    if not address:
        return
    if address.startswith("@"):
        address = "\0" + address[1:]
    try:
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as sock:
            sock.sendto(text.encode(), address)
    except OSError as error:
        log.warning("the service manager cannot be told %s: %s", text.split("=")[0], error)
