"""So much in flight at a time, for a pool and for each backend; the rest waits in a bounded queue, in a fair order."""

from collections.abc import Sequence

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from proxy.routing.backends import Backend
from proxy.routing.headers import RoutingHeaders
from proxy.routing.members import Member
from proxy.routing.queueing import Limits, Queue, Ticket, is_discovery, is_limited


def members(ids: str) -> list[Member]:
    return [Member("agents", Backend(one, "127.0.0.1", 8000)) for one in ids]


def queue_of(
    takers: Sequence[Member], *, in_flight: int = 1, per_backend: int | None = None, queue: int = 100
) -> Queue:
    made = Queue(lambda: takers)
    made.limits = Limits(in_flight=in_flight, per_backend=per_backend, queue=queue)
    return made


def ticket(address: str = "x", *, begun: bool = False, owner: Member | None = None) -> Ticket:
    return Ticket(address, begun, owner, lambda came: None)


def joined(queue: Queue, names: str) -> dict[str, Ticket]:
    """Tickets `a1 b1 A2`: the letter is the address, in upper case for what finishes what was begun."""
    tickets = {name: ticket(name[0].lower(), begun=name[0].isupper()) for name in names.split()}
    assert [queue.join(one) for one in tickets.values()] == [None] * len(tickets)
    return tickets


def order(queue: Queue, member: Member, tickets: dict[str, Ticket]) -> str:
    """The names of the tickets in the order in which their turn comes, one slot at a time."""
    names, found = {id(one): name for name, one in tickets.items()}, []
    while queue.taken and (admitted := queue.leave(member)):
        (one,) = admitted
        queue.settle(member)
        found.append(names[id(one)])
    return " ".join(found)


def test_so_many_enter_at_once() -> None:
    (a,) = members("a")
    queue = queue_of([a], in_flight=2)
    assert [queue.enter(a), queue.enter(a), queue.enter(a)] == [True, True, False]
    assert (queue.taken, a.working) == (2, 2)
    assert queue.leave(a) == ()
    assert queue.enter(a)


def test_each_backend_takes_so_much() -> None:
    a, b = members("ab")
    queue = queue_of([a, b], in_flight=3, per_backend=2)
    assert [queue.enter(a), queue.enter(a), queue.enter(a)] == [True, True, False]
    assert [queue.has_room_at(a), queue.has_room_at(b)] == [False, True]
    assert [queue.enter(b), queue.enter(b)] == [True, False]  # the pool's own limit


@pytest.mark.parametrize(
    ("came", "go"),
    [
        ("a1 a2 a3", "a1 a2 a3"),
        ("a1 a2 a3 b1 b2 c1", "a1 b1 c1 a2 b2 a3"),
        ("a1 a2 A1 B1", "A1 B1 a1 a2"),
        ("a1 b1 A1 A2 B1", "A1 B1 A2 a1 b1"),
    ],
    ids=["own order", "addresses take turns", "what was begun first", "both"],
)
def test_the_order_of_those_that_wait(came: str, go: str) -> None:
    (a,) = members("a")
    queue = queue_of([a])
    assert queue.enter(a)
    tickets = joined(queue, came)
    assert len(queue) == len(tickets)
    assert order(queue, a, tickets) == go
    assert len(queue) == 0


@pytest.mark.parametrize(
    ("waiting", "comes", "leaves"),
    [
        ("a1 a2 a3", "a4", "a4"),
        ("a1 a2 a3", "b1", "a3"),
        ("a1 a2 b1", "b2", "b2"),
        ("a1 a2 b1", "c1", "a2"),
        ("a1 b1 c1", "d1", "d1"),
        ("a1 a2 a3", "A1", "a3"),
        ("a1 B1 B2", "B3", "a1"),
        ("A1 A2 A3", "A4", "A4"),
        ("A1 A2 A3", "B1", "A3"),
        ("A1 A2 A3", "b1", "b1"),
        ("A1 a1 a2", "b1", "a2"),
    ],
)
def test_a_full_queue_sends_somebody_away(waiting: str, comes: str, leaves: str) -> None:
    (a,) = members("a")
    queue = queue_of([a], queue=3)
    assert queue.enter(a)
    tickets = joined(queue, waiting)
    tickets[comes] = ticket(comes[0].lower(), begun=comes[0].isupper())
    gone = queue.join(tickets[comes])
    assert gone is (tickets[leaves])
    assert len(queue) == 3
    assert leaves not in order(queue, a, tickets)


def test_without_a_queue_nobody_waits() -> None:
    (a,) = members("a")
    queue = queue_of([a], queue=0)
    assert queue.enter(a)
    late = ticket(begun=True)
    assert queue.join(late) is late


def test_who_gave_up_gets_no_turn() -> None:
    (a,) = members("a")
    queue = queue_of([a])
    assert queue.enter(a)
    tickets = joined(queue, "a1 a2 b1")
    queue.give_up(tickets["a1"])
    queue.give_up(tickets["b1"])
    queue.give_up(tickets["b1"])
    assert len(queue) == 1
    assert order(queue, a, tickets) == "a2"


def test_an_owner_is_waited_for_while_others_go_past() -> None:
    a, b = members("ab")
    queue = queue_of([a, b], in_flight=10, per_backend=1)
    assert queue.enter(a)
    assert queue.enter(b)
    bound, free = ticket(owner=a), ticket()
    assert queue.join(bound) is queue.join(free) is None
    assert queue.leave(b) == [free]
    queue.settle(b)
    assert queue.leave(a) == [bound]
    assert (a.working, b.working, queue.taken) == (1, 1, 2)


def test_a_backend_that_takes_no_new_work_has_no_room_but_for_what_it_owns() -> None:
    a, b = members("ab")
    queue = queue_of([b], in_flight=10, per_backend=1)
    assert queue.enter(a)
    assert queue.enter(b)
    bound, free = ticket(owner=a), ticket()
    assert queue.join(free) is queue.join(bound) is None
    assert queue.leave(a) == [bound]
    assert not queue.leave(a)
    assert queue.leave(b) == [free]


def test_a_room_is_promised_once() -> None:
    """Whose turn has come chooses a backend a moment later: nobody takes the last room meanwhile."""
    a, b = members("ab")
    queue = queue_of([a, b], in_flight=10, per_backend=1)
    assert queue.enter(a)
    assert queue.enter(b)
    first, second = ticket("x"), ticket("y")
    assert queue.join(first) is queue.join(second) is None
    assert queue.leave(a) == [first]
    assert not queue.enter(a)
    queue.settle(a)
    assert queue.leave(b) == [second]
    assert queue.leave(None) == ()  # it had left before it chose
    assert queue.enter(b)


def test_higher_limits_let_some_in() -> None:
    (a,) = members("a")
    queue = queue_of([a])
    assert queue.admit() == ()
    assert queue.enter(a)
    tickets = joined(queue, "a1 a2 a3 a4")
    assert not queue.admit()
    queue.limits = Limits(in_flight=3)
    assert queue.admit() == [tickets["a1"], tickets["a2"]]


def test_a_backend_that_takes_new_work_again_is_used() -> None:
    a, b = members("ab")
    takers = [a]
    queue = queue_of(takers, in_flight=10, per_backend=1)
    assert queue.enter(a)
    tickets = joined(queue, "a1 a2")
    takers.append(b)
    assert queue.admit() == [tickets["a1"]]


def test_lower_limits_are_reached_as_requests_end() -> None:
    (a,) = members("a")
    queue = queue_of([a], in_flight=3)
    assert all(queue.enter(a) for _ in range(3))
    tickets = joined(queue, "a1")
    queue.limits = Limits(in_flight=1)
    assert [list(queue.leave(a)) for _ in range(3)] == [[], [], [tickets["a1"]]]


@pytest.mark.parametrize(
    ("request_", "limited"),
    [
        (RoutingHeaders("POST", "/mcp", modern=True, method="tools/call"), True),
        (RoutingHeaders("POST", "/mcp", modern=True, method="tasks/get"), True),
        (RoutingHeaders("POST", "/mcp", modern=True, method="subscriptions/listen"), False),
        (RoutingHeaders("POST", "/mcp", modern=True, method="server/discover"), False),
        (RoutingHeaders("POST", "/mcp", modern=False, method="server/discover"), True),
        (RoutingHeaders("POST", "/mcp", modern=False, session="s"), True),
        (RoutingHeaders("GET", "/mcp", modern=False, session="s"), False),
        (RoutingHeaders("DELETE", "/mcp", modern=False, session="s"), True),
        (RoutingHeaders("GET", "/mcp", modern=False), True),
    ],
)
def test_what_holds_a_slot(request_: RoutingHeaders, limited: bool) -> None:
    assert is_limited(request_) is limited


def test_only_a_modern_request_is_a_discovery() -> None:
    """In a legacy one the header means nothing, and would open the door to anything."""
    assert is_discovery(RoutingHeaders("POST", "/mcp", modern=True, method="server/discover"))
    assert not is_discovery(RoutingHeaders("POST", "/mcp", modern=False, method="server/discover"))


class Traffic(RuleBasedStateMachine):
    """Requests that come, wait, choose, end and give up in any order."""

    def __init__(self) -> None:
        super().__init__()
        self.members = members("abc")
        self.inside: list[Member] = []
        self.admitted: list[Ticket] = []  # they have not chosen yet
        self.waiting: list[Ticket] = []

    @initialize(
        in_flight=st.integers(1, 5),
        per_backend=st.none() | st.integers(1, 3),
        queue=st.integers(0, 5),
        unfit=st.booleans(),
    )
    def begin(self, in_flight: int, per_backend: int | None, queue: int, unfit: bool) -> None:
        takers = self.members[1:] if unfit else self.members
        self.takers = takers
        self.queue = queue_of(takers, in_flight=in_flight, per_backend=per_backend, queue=queue)

    @rule(address=st.sampled_from("xyz"), begun=st.booleans(), place=st.integers(0, 2), bound=st.booleans())
    def come(self, address: str, begun: bool, place: int, bound: bool) -> None:
        free = [member for member in self.takers if self.queue.has_room_at(member)] or self.takers
        member = self.members[place] if bound else free[place % len(free)]
        if self.queue.enter(member):
            self.inside.append(member)
            return
        one = ticket(address, begun=begun, owner=member if bound else None)
        gone = self.queue.join(one)
        self.waiting.append(one)
        if gone is not None:
            self.waiting.remove(gone)

    @precondition(lambda self: self.inside)
    @rule(data=st.data())
    def end(self, data: st.DataObject) -> None:
        member = self.inside.pop(data.draw(st.integers(0, len(self.inside) - 1)))
        self.take(self.queue.leave(member))

    @precondition(lambda self: self.admitted)
    @rule(data=st.data(), gives_up=st.booleans())
    def choose(self, data: st.DataObject, gives_up: bool) -> None:
        one = self.admitted.pop(data.draw(st.integers(0, len(self.admitted) - 1)))
        if gives_up:
            self.take(self.queue.leave(one.owner))
        elif one.owner is not None:
            self.inside.append(one.owner)
        else:
            free = [member for member in self.takers if self.queue.has_room_at(member)]
            assert free, "who was admitted finds room"
            self.queue.settle(free[0])
            self.inside.append(free[0])

    @precondition(lambda self: self.waiting)
    @rule(data=st.data())
    def give_up(self, data: st.DataObject) -> None:
        self.queue.give_up(self.waiting.pop(data.draw(st.integers(0, len(self.waiting) - 1))))

    def take(self, admitted: Sequence[Ticket]) -> None:
        for one in admitted:
            assert one.admitted
            self.waiting.remove(one)
            self.admitted.append(one)

    @invariant()
    def counts_are_right(self) -> None:
        if not hasattr(self, "queue"):
            return
        limits = self.queue.limits
        assert self.queue.taken == len(self.inside) + len(self.admitted) <= limits.in_flight
        assert len(self.queue) == len(self.waiting) <= limits.queue
        owned = [one.owner for one in self.admitted]
        for member in self.members:
            assert member.working == self.inside.count(member) + owned.count(member)
            assert limits.per_backend is None or member.working <= limits.per_backend

    @invariant()
    def nobody_waits_for_nothing(self) -> None:
        """A slot is free only if none of those that wait could use it."""
        if not hasattr(self, "queue") or self.admitted or self.queue.taken == self.queue.limits.in_flight:
            return
        for one in self.waiting:
            places = self.takers if one.owner is None else [one.owner]
            assert not any(self.queue.has_room_at(member) for member in places)


TestTraffic = Traffic.TestCase
TestTraffic.settings = settings(max_examples=100, stateful_step_count=40, deadline=None)
