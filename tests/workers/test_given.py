"""Sockets that the environment hands over, well or badly, by a service manager or the generation before."""

import json
import os
import socket
from collections.abc import Callable, MutableMapping

import pytest

from proxy.workers import sockets as sockets_module
from proxy.workers.sockets import HANDOVER, Endpoints, Given, handed_over, take_given
from tests.workers.conftest import Open, at

OURS = 4711  # a process id


@pytest.fixture
def third(monkeypatch: pytest.MonkeyPatch, opened: Open) -> Callable[..., list[int]]:
    """Makes descriptors follow one another, and `take_given` begin with the first of them."""

    def follow(count: int, make: Open = opened) -> list[int]:
        first = 200
        for number in range(first, first + count):
            with make() as sock:
                os.dup2(sock.fileno(), number)
        monkeypatch.setattr(sockets_module, "_FIRST", first)
        return list(range(first, first + count))

    return follow


def environ(**more: str) -> MutableMapping[str, str]:
    return {"LISTEN_PID": str(OURS), "HOME": "/", **more}


def close_all(given: Given) -> None:
    for _, sock in given.sockets:
        sock.close()


@pytest.mark.parametrize(
    ("names", "expected"),
    [
        ("listen:admin", ["listen", "admin"]),
        ("admin:listen", ["admin", "listen"]),
        ("", ["", ""]),
        ("unknown:web.socket", ["", ""]),
        ("listen", ["listen", ""]),
        ("listen:admin:more", ["listen", "admin"]),
    ],
)
def test_a_service_manager_s_sockets_are_taken_once(
    names: str, expected: list[str], third: Callable[..., list[int]]
) -> None:
    numbers = third(2)
    told = environ(LISTEN_FDS="2", LISTEN_FDNAMES=names)
    given = take_given(told, OURS)
    assert told == {"HOME": "/"}
    assert [(name, sock.fileno()) for name, sock in given.sockets] == list(zip(expected, numbers, strict=True))
    assert not any(os.get_inheritable(number) for number in numbers)
    assert not any(sock.getblocking() for _, sock in given.sockets)
    assert given.channel is None
    assert take_given(told, OURS) == Given()
    close_all(given)


@pytest.mark.parametrize(
    "told", [{}, {"LISTEN_PID": "1", "LISTEN_FDS": "2"}, {"LISTEN_FDS": "2"}, {"LISTEN_PID": "x", "LISTEN_FDS": "x"}]
)
def test_what_is_meant_for_another_process_is_left_alone(told: dict[str, str]) -> None:
    assert take_given(told, OURS) == Given()
    assert told == {}


@pytest.mark.parametrize("count", ["", "two", "-1", "1.5", "²"])
def test_a_number_of_sockets_that_is_none_is_an_error(count: str) -> None:
    with pytest.raises(OSError, match=r"LISTEN_FDS is '.*', not a number of sockets"):
        take_given(environ(LISTEN_FDS=count), OURS)


def test_no_socket_is_no_error() -> None:
    assert take_given(environ(LISTEN_FDS="0"), OURS) == Given()


def bound_only() -> socket.socket:
    sock = socket.socket()
    sock.bind(("127.0.0.1", 0))
    return sock


def unix() -> socket.socket:
    sock = socket.socket(socket.AF_UNIX)
    sock.bind(f"\0{os.urandom(8).hex()}")
    sock.listen()
    return sock


@pytest.mark.parametrize(
    ("make", "complaint"),
    [
        (bound_only, "it does not listen"),
        (unix, "it is not for TCP"),
        (lambda: socket.socket(type=socket.SOCK_DGRAM), "(it does not listen|.*not supported)"),
    ],
    ids=["not listening", "unix", "udp"],
)
def test_a_descriptor_that_is_no_listening_socket_is_named(
    make: Callable[[], socket.socket], complaint: str, third: Callable[..., list[int]]
) -> None:
    (number,) = third(1, make)
    with pytest.raises(OSError, match=f"^descriptor {number} is handed over as a listening socket: {complaint}$"):
        take_given(environ(LISTEN_FDS="1"), OURS)
    with pytest.raises(OSError, match="Bad file descriptor"):  # closed
        os.fstat(number)


def test_a_descriptor_that_is_not_open_is_named(third: Callable[..., list[int]]) -> None:
    (number,) = third(1)
    os.close(number)
    with pytest.raises(OSError, match=f"^descriptor {number} is handed over as a listening socket: Bad file"):
        take_given(environ(LISTEN_FDS="1"), OURS)


def test_a_generation_hands_over_to_the_next(opened: Open) -> None:
    clients, admin = (opened(), opened()), opened()
    ours, theirs = socket.socketpair()
    value, descriptors = handed_over(Endpoints(clients, admin), theirs)
    assert descriptors == [*(sock.fileno() for sock in clients), admin.fileno(), theirs.fileno()]
    inherited_as = {number: os.dup(number) for number in descriptors}  # as by exec: the same sockets, other objects
    told = json.loads(value)
    handed = {
        "channel": inherited_as[told["channel"]],
        "sockets": [[name, inherited_as[number]] for name, number in told["sockets"]],
    }
    env = environ(LISTEN_FDS="7", **{HANDOVER: json.dumps(handed)})  # what a manager gave the first generation is gone
    given = take_given(env, OURS)
    assert HANDOVER not in env
    assert [(name, at(sock)) for name, sock in given.sockets] == [
        ("listen", at(clients[0])),
        ("listen", at(clients[1])),
        ("admin", at(admin)),
    ]
    assert given.channel is not None
    ours.sendall(b"x")
    assert given.channel.recv(1) == b"x"
    for sock in (ours, theirs, given.channel):
        sock.close()
    close_all(given)
