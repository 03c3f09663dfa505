"""The sockets that a proxy listens on: opened, or taken over from whoever started it.

Rules:
* A socket handed over is used where its name says what it is for (`listen`, `admin`) or, without a name, where its
  address is the configured one. A service manager hands over by LISTEN_PID, LISTEN_FDS and LISTEN_FDNAMES
  (sd_listen_fds(3)); a generation of this proxy by HANDOVER, and there a name counts only with the address: the
  configuration may have changed.
* Each worker gets a socket of its own, on one address by SO_REUSEPORT, after a plain bind has shown that nobody else
  listens there: SO_REUSEPORT alone would share the port with a stranger of the same user. A single worker's socket has
  it too, for the generation after it may be larger.
* What a service manager hands over and nothing is to listen on is a mistake; of an earlier generation it is closed.
"""

import asyncio
import errno
import json
import os
import socket
from collections.abc import MutableMapping
from dataclasses import dataclass

from proxy.config import Config
from proxy.config.addresses import bracketed
from proxy.wire.listener import bind, resolved

HANDOVER = "MCP_ROUTING_PROXY_HANDOVER"
"""The environment variable by which a generation hands over to the next: JSON, see `handed_over`."""
_FIRST = 3  # SD_LISTEN_FDS_START
_RELEASE = 2.0  # seconds that the workers of a killed proxy may take to leave its sockets
_LOOK = 0.02  # seconds between looks whether they have


@dataclass(frozen=True, slots=True)
class Given:
    """Listening sockets that this process was started with, by name; "" where there is none."""

    sockets: tuple[tuple[str, socket.socket], ...] = ()
    channel: socket.socket | None = None
    """To the generation before, if it was one that handed over."""


@dataclass(frozen=True, slots=True)
class Endpoints:
    """What a proxy listens on."""

    clients: tuple[socket.socket, ...]
    """At least one."""
    admin: socket.socket

    def close(self) -> None:
        for sock in (*self.clients, self.admin):
            sock.close()


def take_given(environ: MutableMapping[str, str], pid: int) -> Given:
    """The sockets handed over by the environment, which then names them no longer: children must not think them theirs.

    Raises OSError for descriptors that are not listening sockets.
    """
    handover = environ.pop(HANDOVER, None)
    if handover is not None:
        told = json.loads(handover)
        channel = socket.socket(fileno=told["channel"])
        return Given(tuple((name, _listening(number)) for name, number in told["sockets"]), channel)
    for_us = environ.pop("LISTEN_PID", None) == str(pid)
    count, names = environ.pop("LISTEN_FDS", ""), environ.pop("LISTEN_FDNAMES", "").split(":")
    if not for_us:
        return Given()
    if not count.isascii() or not count.isdigit():
        raise OSError(f"LISTEN_FDS is {count!r}, not a number of sockets")
    numbers = range(_FIRST, _FIRST + int(count))
    named = {number: name for number, name in zip(numbers, names, strict=False) if name in ("listen", "admin")}
    return Given(tuple((named.get(number, ""), _listening(number)) for number in numbers))


def handed_over(endpoints: Endpoints, channel: socket.socket) -> tuple[str, list[int]]:
    """The value of HANDOVER for the next generation, and the descriptors it has to inherit."""
    sockets = [("listen", sock.fileno()) for sock in endpoints.clients] + [("admin", endpoints.admin.fileno())]
    value = json.dumps({"sockets": sockets, "channel": channel.fileno()})
    return value, [number for _, number in sockets] + [channel.fileno()]


async def endpoints_of(config: Config, workers: int, given: Given) -> Endpoints:
    """The sockets for this configuration: one for clients for each worker, unless those given cannot share the address.

    Raises OSError, naming the address, when it cannot listen there. What is not used of `given` is closed.
    """
    listen, admin = config.listen, config.admin
    inherits = given.channel is not None
    left = list(given.sockets)
    clients = _take(left, "listen", listen.host, listen.port, only_there=inherits)
    admins = _take(left, "admin", admin.host, admin.port, only_there=inherits)
    try:
        for _, sock in left:
            if not inherits:
                raise OSError(
                    f"LISTEN_FDS hands over {_shown(*sock.getsockname()[:2])}, which is neither `listen` "
                    f"({_shown(listen.host, listen.port)}) nor `admin` ({_shown(admin.host, admin.port)})"
                )
            sock.close()
        if len(admins) > 1:
            raise OSError(f"LISTEN_FDS hands over {len(admins)} sockets for `admin`, where one is allowed")
        if not admins:
            admins.append(await _bound(admin.host, admin.port))
        if not clients and listen.port:
            (await _bound(listen.host, listen.port)).close()
        port = clients[0].getsockname()[1] if clients else listen.port
        while len(clients) < workers and all(map(_is_shared, clients)):
            clients.append(bind(listen.host, port, shared=True))
            port = clients[0].getsockname()[1]
    except BaseException:
        for sock in {*clients, *admins, *(sock for _, sock in given.sockets)}:
            sock.close()
        raise
    return Endpoints(tuple(clients), admins[0])


def _take(
    left: list[tuple[str, socket.socket]], name: str, host: str, port: int, *, only_there: bool
) -> list[socket.socket]:
    """Takes what is for this purpose out of `left`; `only_there`: a name counts only with the address."""
    there = {address[:2] for *_, address in resolved(host, port)}
    taken = []
    for item in list(left):
        given, sock = item
        address = sock.getsockname()[:2]
        at = address in there or (port == 0 and (address[0], 0) in there)
        if (given == name and (at or not only_there)) or (not given and at):
            left.remove(item)
            taken.append(sock)
    return taken


def _listening(number: int) -> socket.socket:
    sock = None
    try:
        sock = socket.socket(fileno=number)
        if not sock.getsockopt(socket.SOL_SOCKET, socket.SO_ACCEPTCONN):
            raise OSError(errno.EINVAL, "it does not listen")
        if sock.family not in (socket.AF_INET, socket.AF_INET6) or sock.type is not socket.SOCK_STREAM:
            raise OSError(errno.EINVAL, "it is not for TCP")
    except OSError as error:
        if sock is not None:
            sock.close()
        raise OSError(f"descriptor {number} is handed over as a listening socket: {error.strerror}") from error
    os.set_inheritable(number, False)
    sock.setblocking(False)
    return sock


async def _bound(host: str, port: int) -> socket.socket:
    """A socket of our own. The workers of a proxy that was killed leave theirs within a moment, which is awaited."""
    loop = asyncio.get_running_loop()
    deadline = loop.time() + _RELEASE
    while True:
        try:
            return bind(host, port)
        except OSError as error:
            cause = error.__cause__
            if not isinstance(cause, OSError) or cause.errno != errno.EADDRINUSE or loop.time() > deadline:
                raise
        await asyncio.sleep(_LOOK)


def _is_shared(sock: socket.socket) -> bool:
    return bool(sock.getsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT))


def _shown(host: str, port: int) -> str:
    return f"{bracketed(host)}:{port}"
