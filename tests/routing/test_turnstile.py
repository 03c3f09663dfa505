"""So many searches at a time, so many of one address; the others wait, and addresses take turns."""

from collections import Counter
from itertools import count

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from proxy.routing.searches import Room, Turnstile


def test_a_room_has_so_many_places_and_so_many_for_one_address() -> None:
    room = Room(capacity=3, each=2)
    for address in "aab":
        assert room.has_place(address)
        room.enter(address)
    assert len(room) == 3
    assert not any(map(room.has_place, "abc"))
    room.leave("b")
    assert [room.has_place(address) for address in "abc"] == [False, True, True]
    room.leave("a")
    room.leave("a")
    assert len(room) == 0
    assert [kept for kept in vars(room).values() if isinstance(kept, dict)] == [{}]  # nothing of who is gone


def waiting(turnstile: Turnstile[str], tickets: str) -> str:
    """Those of the tickets that have to wait; each letter is an address, in upper case or lower."""
    return "".join(ticket for ticket in tickets if not turnstile.enter(ticket.lower(), ticket))


def test_so_many_go_in_at_once() -> None:
    turnstile = Turnstile[str](capacity=3, each=2)
    assert waiting(turnstile, "aabbcc") == "bcc"
    assert turnstile.leave("a") == ["b"]
    assert turnstile.leave("a") == ["c"]
    assert turnstile.leave("b") == ["c"]
    assert [turnstile.leave(one) for one in "bcc"] == [[], [], []]


def test_one_address_alone_gets_no_more_than_its_part() -> None:
    turnstile = Turnstile[str](capacity=4, each=2)
    assert waiting(turnstile, "aaAbAc") == "AA"
    assert turnstile.leave("b") == []  # there is room, but not for `a`
    assert turnstile.leave("a") == ["A"]
    assert turnstile.leave("c") == []
    assert turnstile.leave("a") == ["A"]


def test_addresses_take_turns_however_many_of_one_wait() -> None:
    turnstile = Turnstile[str](capacity=1, each=1)
    assert waiting(turnstile, "xaaaabbc") == "aaaabbc"
    inside, order = "x", ""
    while admitted := turnstile.leave(inside):
        (inside,) = admitted
        order += inside
    assert order == "abcabaa"


def test_who_comes_goes_in_before_those_that_wait_for_others_to_leave() -> None:
    """A full address must not keep others out."""
    turnstile = Turnstile[str](capacity=3, each=1)
    assert waiting(turnstile, "aAAb") == "AA"
    assert turnstile.leave("b") == []
    assert waiting(turnstile, "bc") == ""


def test_an_address_keeps_its_own_order() -> None:
    turnstile = Turnstile[int](capacity=1, each=1)
    assert turnstile.enter("a", 0)
    assert not any(turnstile.enter("a", ticket) for ticket in (1, 2, 3))
    assert [turnstile.leave("a") for _ in range(4)] == [[1], [2], [3], []]


def test_one_that_gave_up_is_not_let_in() -> None:
    turnstile = Turnstile[str](capacity=1, each=1)
    assert waiting(turnstile, "aAbB") == "AbB"
    turnstile.give_up("b", "b")
    turnstile.give_up("a", "A")
    turnstile.give_up("a", "A")
    turnstile.give_up("c", "never came")
    turnstile.give_up("a", "a")  # it is inside, which only `leave` ends
    assert turnstile.leave("a") == ["B"]
    assert turnstile.leave("b") == []
    assert waiting(turnstile, "a") == ""


def test_nothing_is_kept_of_addresses_that_are_gone() -> None:
    turnstile = Turnstile[str](capacity=1, each=1)
    for number in range(50):
        assert turnstile.enter(f"in-{number}", "in")
        assert not turnstile.enter(f"waits-{number}", "waits")
        assert not turnstile.enter(f"gives-up-{number}", "gives up")
        turnstile.give_up(f"gives-up-{number}", "gives up")
        assert turnstile.leave(f"in-{number}") == ["waits"]
        assert turnstile.leave(f"waits-{number}") == []
    kept_by = [*vars(turnstile).values(), *vars(turnstile._room).values()]
    sizes = [len(kept) for kept in kept_by if hasattr(kept, "__len__")]
    assert sizes
    assert not any(sizes)


@pytest.mark.parametrize(("capacity", "each"), [(1, 1), (2, 1), (64, 32)])
def test_a_flood_of_one_address_leaves_room_for_another(capacity: int, each: int) -> None:
    turnstile = Turnstile[str](capacity=capacity, each=each)
    assert len(waiting(turnstile, "a" * 1000)) == 1000 - each
    if each < capacity:
        assert waiting(turnstile, "b") == ""
    else:
        assert waiting(turnstile, "b") == "b"
        first, second = turnstile.leave("a"), turnstile.leave("a")
        assert "b" in first + second  # at the latest the next but one, whatever waits before it


class Passage(RuleBasedStateMachine):
    """A turnstile beside a plain account of who is in, who waits, and since when."""

    def __init__(self) -> None:
        super().__init__()
        self.tickets = count()
        self.inside: dict[int, str] = {}
        self.waiting: dict[int, str] = {}  # in order of arrival
        self.overtaken: Counter[tuple[str, str]] = Counter()  # (who waits, by whom), while there was room for both
        self.seen: set[int] = set()

    @initialize(capacity=st.integers(1, 5), each=st.integers(1, 5))
    def make(self, capacity: int, each: int) -> None:
        self.capacity, self.each = capacity, each
        self.turnstile = Turnstile[int](capacity=capacity, each=each)

    def has_room(self, address: str) -> bool:
        return len(self.inside) < self.capacity and list(self.inside.values()).count(address) < self.each

    @rule(address=st.sampled_from("abcd"))
    def enter(self, address: str) -> None:
        ticket = next(self.tickets)
        had_room = self.has_room(address)
        if self.turnstile.enter(address, ticket):
            assert had_room
            assert address not in self.waiting.values()  # nobody goes before an older one of the same address
            self.admit(ticket, address)
        else:
            assert not had_room
            self.waiting[ticket] = address

    def admit(self, ticket: int, address: str) -> None:
        assert ticket not in self.seen  # never twice
        self.seen.add(ticket)
        self.inside[ticket] = address

    @precondition(lambda self: self.inside)
    @rule(data=st.data())
    def leave(self, data: st.DataObject) -> None:
        ticket = data.draw(st.sampled_from(sorted(self.inside)))
        admitted = self.turnstile.leave(self.inside.pop(ticket))
        for entered in admitted:
            address = self.waiting.pop(entered)  # it did wait
            assert all(entered < other for other, whose in self.waiting.items() if whose == address)
            assert self.has_room(address)
            for other in set(self.waiting.values()) - {address}:
                if self.has_room(other):
                    self.overtaken[other, address] += 1
                    assert self.overtaken[other, address] <= 1  # next time it is the other's turn
            self.admit(entered, address)
            self.forget_turns(address)

    @precondition(lambda self: self.waiting)
    @rule(data=st.data())
    def give_up(self, data: st.DataObject) -> None:
        ticket = data.draw(st.sampled_from(sorted(self.waiting)))
        address = self.waiting.pop(ticket)
        self.turnstile.give_up(address, ticket)
        if address not in self.waiting.values():
            self.forget_turns(address)

    def forget_turns(self, address: str) -> None:
        """It had its turn, or wants none any more."""
        for pair in [pair for pair in self.overtaken if pair[0] == address]:
            del self.overtaken[pair]

    @rule(address=st.sampled_from("abcd"))
    def give_up_what_does_not_wait(self, address: str) -> None:
        for ticket in (-1, *self.inside):
            self.turnstile.give_up(address, ticket)

    @invariant()
    def never_too_many(self) -> None:
        if hasattr(self, "capacity"):
            assert len(self.inside) <= self.capacity
            assert max(Counter(self.inside.values()).values(), default=0) <= self.each

    @invariant()
    def nobody_waits_who_has_room(self) -> None:
        if hasattr(self, "capacity"):
            assert not any(self.has_room(address) for address in self.waiting.values())

    def teardown(self) -> None:
        """No ticket is lost: when all leave, all that wait get in."""
        if not hasattr(self, "capacity"):
            return
        for _ in range(10_000):
            if not self.inside:
                break
            ticket = next(iter(self.inside))
            for entered in self.turnstile.leave(self.inside.pop(ticket)):
                self.admit(entered, self.waiting.pop(entered))
        assert not self.waiting


TestPassage = Passage.TestCase
TestPassage.settings = settings(deadline=None, max_examples=60, stateful_step_count=30)
