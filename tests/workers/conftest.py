"""Listening sockets that are closed at the end."""

import socket
from collections.abc import Callable, Iterator

import pytest

from proxy.wire.listener import bind

Open = Callable[..., socket.socket]
"""Opens a socket: host, port, shared."""


@pytest.fixture
def opened() -> Iterator[Open]:
    """Opens sockets that are closed at the end."""
    made: list[socket.socket] = []

    def open_one(host: str = "127.0.0.1", port: int = 0, *, shared: bool = True) -> socket.socket:
        made.append(bind(host, port, shared=shared))
        return made[-1]

    yield open_one
    for sock in made:
        sock.close()


def at(sock: socket.socket) -> str:
    """Its address as configurations spell it."""
    host, port = sock.getsockname()[:2]
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
