"""Clients are checked when something of theirs can be over, and no more often."""

import pytest

from proxy.wire.patience import TICK, Patience


class Client:
    """Notes when it is checked; `again` says when it wants to be checked next."""

    def __init__(self, *again: int) -> None:
        self.again = list(again)
        self.checks: list[int] = []
        self.asked_for = 0

    def check(self, now: int) -> int | None:
        self.checks.append(now)
        return self.again.pop(0) if self.again else None

    def notice_departure(self) -> None:
        self.asked_for += 1


@pytest.fixture
def patience() -> Patience:
    return Patience(head=10.0, body=30.0, idle=75.0)


def pass_ticks(patience: Patience, count: int) -> None:
    for _ in range(count):
        patience.tick()


@pytest.mark.parametrize(("seconds", "ticks"), [(0.001, 2), (TICK, 2), (0.6, 3), (1.0, 3), (75.0, 151)])
def test_a_limit_is_never_over_too_early(seconds: float, ticks: int) -> None:
    """What begins within a tick has up to a whole tick less than it seems."""
    patience = Patience(head=seconds, body=seconds, idle=seconds)
    assert patience.head == patience.body == patience.idle == ticks
    assert (ticks - 1) * TICK >= seconds


def test_a_client_is_checked_when_it_is_due_and_when_it_says(patience: Patience) -> None:
    client = Client(7, 9)
    patience.check_by(client, 3)
    pass_ticks(patience, 20)
    assert client.checks == [3, 7, 9]


@pytest.mark.parametrize(("first", "then", "checked"), [(5, 2, 2), (2, 5, 2), (4, 4, 4)])
def test_the_earlier_time_counts(patience: Patience, first: int, then: int, checked: int) -> None:
    client = Client()
    patience.check_by(client, first)
    patience.check_by(client, then)
    pass_ticks(patience, 20)
    assert client.checks == [checked]


def test_a_client_that_is_gone_is_not_checked_and_not_kept(patience: Patience) -> None:
    clients = [Client() for _ in range(3)]
    for client in clients:
        patience.check_by(client, 2)
        patience.unread.add(client)
    for client in clients:
        patience.forget(client)
        patience.forget(client)
    pass_ticks(patience, 5)
    assert [client.checks for client in clients] == [[], [], []]
    assert not any(client.asked_for for client in clients)
    assert not patience._due
    assert not patience._slots


def test_a_client_that_goes_while_another_is_checked_is_passed_over(patience: Patience) -> None:
    class Takes(Client):
        def check(self, now: int) -> int | None:
            for other in clients:
                if other is not self:
                    patience.forget(other)
            return super().check(now)

    clients = [Takes(), Takes()]
    for client in clients:
        patience.check_by(client, 1)
    patience.tick()
    assert sorted(client.checks for client in clients) == [[], [1]]


def test_who_is_not_read_from_is_asked_for_each_tick(patience: Patience) -> None:
    client, other = Client(), Client()
    patience.check_by(other, 100)
    patience.unread.add(client)
    pass_ticks(patience, 3)
    patience.unread.discard(client)
    pass_ticks(patience, 3)
    assert (client.asked_for, client.checks, other.asked_for) == (3, [], 0)


def test_thousands_of_idle_clients_are_not_walked_each_tick(patience: Patience) -> None:
    clients = [Client(*range(151, 2000, 151)) for _ in range(500)]
    for number, client in enumerate(clients):
        patience.check_by(client, 1 + number % 151)
    pass_ticks(patience, 151)
    assert sum(len(client.checks) for client in clients) <= 2 * len(clients)
