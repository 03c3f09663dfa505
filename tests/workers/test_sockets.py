"""Sockets to listen on: opened, or handed over for this configuration, or for another."""

import socket

import pytest

from proxy.config import Config, parse
from proxy.workers import sockets as sockets_module
from proxy.workers.sockets import Given, endpoints_of
from tests.wire.harness import closed_port, config_text
from tests.workers.conftest import Open, at


def config(listen: str = "127.0.0.1:0", admin: str = "127.0.0.1:0") -> Config:
    return parse(config_text(1, listen=listen).replace("admin: 127.0.0.1:0", f"admin: '{admin}'"), "test", {})


def channel() -> socket.socket:
    """What makes sockets those of an earlier generation; its other end is not needed."""
    ours, theirs = socket.socketpair()
    theirs.close()
    return ours


def inherited(*given: tuple[str, socket.socket]) -> Given:
    """Sockets of the generation before, as this process has them: descriptors of its own."""
    return Given(tuple((name, sock.dup()) for name, sock in given), channel())


def managed(*given: tuple[str, socket.socket]) -> Given:
    """Sockets of a service manager."""
    return Given(tuple((name, sock.dup()) for name, sock in given))


async def listening(config: Config, workers: int, given: Given | None = None) -> tuple[list[str], str]:
    """Where it listens: for clients, for operators."""
    given = given or Given()
    try:
        endpoints = await endpoints_of(config, workers, given)
    finally:
        if given.channel is not None:
            given.channel.close()
    found = [at(sock) for sock in endpoints.clients], at(endpoints.admin)
    assert len({sock.fileno() for sock in (*endpoints.clients, endpoints.admin)}) == len(endpoints.clients) + 1
    used = {*endpoints.clients, endpoints.admin}
    assert all(sock in used or sock.fileno() < 0 for _, sock in given.sockets)  # what is not used is closed
    endpoints.close()
    return found


# ---- opened
@pytest.mark.parametrize("host", ["127.0.0.1", "[::1]"])
@pytest.mark.parametrize("workers", [1, 2, 4])
async def test_each_worker_has_a_socket_of_its_own_on_one_address(host: str, workers: int) -> None:
    port = closed_port()
    clients, admin = await listening(config(f"'{host}:{port}'", f"{host}:0"), workers)
    assert clients == [f"{host}:{port}"] * workers
    assert admin.startswith(host)


async def test_with_a_port_of_the_system_s_choice_all_workers_share_it() -> None:
    clients, admin = await listening(config(), 3)
    assert len(set(clients)) == 1
    assert clients[0] != admin


@pytest.mark.parametrize("shared", [True, False])
async def test_a_port_where_somebody_listens_is_refused(
    shared: bool, opened: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also where sharing it would be allowed."""
    monkeypatch.setattr(sockets_module, "_RELEASE", 0.1)
    taken = opened(shared=shared)
    for told in (config(listen=at(taken)), config(admin=at(taken))):
        with pytest.raises(OSError, match=rf"cannot listen on 127\.0\.0\.1 port {taken.getsockname()[1]}: .*in use"):
            await endpoints_of(told, 2, Given())


# ---- handed over by the generation before
@pytest.mark.parametrize(("before", "workers", "after"), [(2, 2, 2), (1, 3, 3), (3, 1, 3), (3, 2, 3), (1, 1, 1)])
async def test_the_sockets_of_the_generation_before_are_all_kept_and_more_are_opened(
    before: int, workers: int, after: int, opened: Open
) -> None:
    first = opened()
    clients = [first, *(opened(port=first.getsockname()[1]) for _ in range(before - 1))]
    admin = opened()
    given = inherited(*(("listen", sock) for sock in clients), ("admin", admin))
    kept = {sock.fileno() for _, sock in given.sockets}
    endpoints = await endpoints_of(config(at(first), at(admin)), workers, given)
    assert [at(sock) for sock in endpoints.clients] == [at(first)] * after
    assert kept <= {sock.fileno() for sock in (*endpoints.clients, endpoints.admin)}
    endpoints.close()
    assert given.channel is not None
    given.channel.close()


async def test_ports_of_the_system_s_choice_stay_as_they_are(opened: Open) -> None:
    clients, admin = opened(), opened()
    found = await listening(config(), 2, inherited(("listen", clients), ("admin", admin)))
    assert found == ([at(clients)] * 2, at(admin))


async def test_what_is_for_another_address_than_ours_is_closed(opened: Open) -> None:
    clients, admin, port = opened(), opened(), closed_port()
    given = inherited(("listen", clients), ("admin", admin))
    found = await listening(config(f"127.0.0.1:{port}", at(admin)), 2, given)
    assert found == ([f"127.0.0.1:{port}"] * 2, at(admin))


async def test_an_address_that_changed_its_purpose_is_refused(opened: Open, monkeypatch: pytest.MonkeyPatch) -> None:
    """The generation before listens there for the other one until it is relieved."""
    monkeypatch.setattr(sockets_module, "_RELEASE", 0.1)
    clients, admin = opened(), opened()
    given = inherited(("listen", clients), ("admin", admin))
    with pytest.raises(OSError, match="in use"):
        await endpoints_of(config(at(admin), at(clients)), 1, given)
    assert all(sock.fileno() < 0 for _, sock in given.sockets)
    assert given.channel is not None
    given.channel.close()


# ---- handed over by a service manager
@pytest.mark.parametrize("names", [("listen", "admin"), ("", ""), ("listen", ""), ("", "admin")])
async def test_sockets_are_known_by_their_names_or_else_their_addresses(names: tuple[str, str], opened: Open) -> None:
    clients, admin = opened(), opened()
    given = managed((names[0], clients), (names[1], admin))
    assert await listening(config(at(clients), at(admin)), 1, given) == ([at(clients)], at(admin))


async def test_a_name_counts_whatever_the_address(opened: Open) -> None:
    clients, admin = opened(), opened()
    given = managed(("admin", admin), ("listen", clients))
    assert await listening(config("127.0.0.1:1", "127.0.0.1:2"), 1, given) == ([at(clients)], at(admin))


async def test_one_socket_that_cannot_be_shared_out_is_for_all_workers(opened: Open) -> None:
    clients = opened(shared=False)
    found, _ = await listening(config(at(clients)), 3, managed(("", clients)))
    assert found == [at(clients)]


async def test_addresses_of_ipv6_are_known(opened: Open) -> None:
    clients = opened("::1")
    found, _ = await listening(config(f"'{at(clients)}'"), 2, managed(("", clients)))
    assert found == [at(clients)] * 2


async def test_a_socket_for_nothing_is_named(opened: Open) -> None:
    clients, stray = opened(), opened()
    given = managed(("", clients), ("", stray))
    with pytest.raises(
        OSError, match=r"hands over 127\.0\.0\.1:\d+, which is neither `listen` \(.*\) nor `admin`"
    ) as error:
        await endpoints_of(config(at(clients), "127.0.0.1:1"), 1, given)
    assert at(stray) in str(error.value)
    assert all(sock.fileno() < 0 for _, sock in given.sockets)


async def test_of_two_sockets_for_operators_one_is_too_many(opened: Open) -> None:
    given = managed(("admin", opened()), ("admin", opened()))
    with pytest.raises(OSError, match="hands over 2 sockets for `admin`"):
        await endpoints_of(config(), 1, given)
    assert all(sock.fileno() < 0 for _, sock in given.sockets)
