"""Soft pins: which backend the next round of a request prefers, for how long, and within which bounds."""

from collections import OrderedDict
from dataclasses import dataclass

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from proxy.routing.headers import RoutingHeaders
from proxy.routing.rounds import LIFE, PAGES_LIFE, ConnectionMemory, Near, News, Rounds


@dataclass
class Clock:
    now: float = 1000.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def rounds(clock: Clock) -> Rounds:
    return Rounds(clock)


def call(name: str | None = "book", *, method: str = "tools/call", auth: str | None = "Bearer a") -> RoutingHeaders:
    fields = {} if auth is None else {"authorization": auth}
    return RoutingHeaders("POST", "/mcp", modern=True, method=method, name=name, fields=fields)


def connection() -> Near:
    return ConnectionMemory().rounds


def test_a_new_connection_remembers_nothing() -> None:
    memory = ConnectionMemory()
    assert (memory.rounds, memory.latest) == (OrderedDict(), None)
    assert memory.rounds is not ConnectionMemory().rounds


def test_nobody_has_asked(rounds: Rounds) -> None:
    assert rounds.asker("agents", call(), "::1", connection()) is None
    assert len(rounds) == 0


def test_the_next_request_prefers_the_backend_that_asked(rounds: Rounds) -> None:
    """On its own connection, and on another one of the same caller; and any number of times until the round is over."""
    near = connection()
    rounds.asked("agents", call(), "::1", near, "a")
    for _ in range(3):
        assert rounds.asker("agents", call(), "::1", near) == "a"
        assert rounds.asker("agents", call(), "::1", connection()) == "a"


@pytest.mark.parametrize(
    ("pool", "request_headers", "client"),
    [
        ("others", call(), "::1"),
        ("agents", call("buy"), "::1"),
        ("agents", call("Book"), "::1"),
        ("agents", call(""), "::1"),
        ("agents", call(None), "::1"),
        ("agents", call(method="prompts/get"), "::1"),
        ("agents", call(method=""), "::1"),
        ("agents", call(auth="Bearer b"), "::1"),
        ("agents", call(auth="bearer a"), "::1"),
        ("agents", call(auth=None), "::1"),
        ("agents", call(auth=""), "::1"),
        ("agents", call(), "::2"),
        ("agents", call(), ""),
    ],
)
def test_another_pool_method_name_or_caller_prefers_nobody(
    rounds: Rounds, pool: str, request_headers: RoutingHeaders, client: str
) -> None:
    """A caller is Authorization and address together."""
    rounds.asked("agents", call(), "::1", connection(), "a")
    assert rounds.asker(pool, request_headers, client, connection()) is None


def test_on_one_connection_the_caller_is_not_asked(rounds: Rounds) -> None:
    """A token may be renewed between two rounds."""
    near = connection()
    rounds.asked("agents", call(), "::1", near, "a")
    assert rounds.asker("agents", call(auth="Bearer renewed"), "::2", near) == "a"
    assert rounds.asker("agents", call("buy"), "::1", near) is None
    assert rounds.asker("others", call(), "::1", near) is None


def test_texts_do_not_run_into_each_other(rounds: Rounds) -> None:
    rounds.asked("ab", call("cd", method="m"), "::1", connection(), "a")
    assert rounds.asker("a", call("cd", method="bm"), "::1", connection()) is None
    assert rounds.asker("ab", call("d", method="mc"), "::1", connection()) is None


def test_without_a_name_or_credentials_rounds_are_told_apart_as_well(rounds: Rounds) -> None:
    rounds.asked("agents", call(None, auth=None), "::1", connection(), "a")
    assert rounds.asker("agents", call(None, auth=None), "::1", connection()) == "a"
    assert rounds.asker("agents", call(None, auth=None), "::2", connection()) is None
    rounds.asked("agents", call("\ud800"), "::1", connection(), "b")
    assert rounds.asker("agents", call("\ud800"), "::1", connection()) == "b"


def test_of_a_connection_the_latest_asker_counts_of_a_caller_the_first(rounds: Rounds) -> None:
    near = connection()
    rounds.asked("agents", call(), "::1", near, "a")
    rounds.asked("agents", call(), "::1", near, "b")
    assert rounds.asker("agents", call(), "::1", near) == "b"
    assert rounds.asker("agents", call(), "::1", connection()) == "a"


def test_a_connection_goes_before_its_caller(rounds: Rounds) -> None:
    one, other = connection(), connection()
    rounds.asked("agents", call(), "::1", one, "a")
    rounds.asked("agents", call(), "::1", other, "b")
    assert [rounds.asker("agents", call(), "::1", near) for near in (one, other, connection())] == ["a", "b", "a"]


def test_a_round_that_is_over_prefers_nobody(rounds: Rounds) -> None:
    near = connection()
    rounds.asked("agents", call(), "::1", near, "a")
    rounds.over("agents", call(), "::1", near, "a")
    assert rounds.asker("agents", call(), "::1", near) is None
    assert rounds.asker("agents", call(), "::1", connection()) is None
    assert (len(near), len(rounds)) == (0, 0)
    rounds.over("agents", call(), "::1", near, "a")
    assert rounds.asker("agents", call(), "::1", near) is None


def test_an_answer_of_another_backend_ends_no_round(rounds: Rounds) -> None:
    near = connection()
    rounds.asked("agents", call(), "::1", near, "a")
    rounds.over("agents", call(), "::1", near, "b")
    rounds.over("agents", call("buy"), "::1", near, "a")
    rounds.over("others", call(), "::1", near, "a")
    rounds.over("agents", call(), "::2", connection(), "a")
    assert rounds.asker("agents", call(), "::1", near) == "a"
    assert rounds.asker("agents", call(), "::1", connection()) == "a"


def test_when_the_first_asker_s_round_is_over_the_place_is_free(rounds: Rounds) -> None:
    one, other = connection(), connection()
    rounds.asked("agents", call(), "::1", one, "a")
    rounds.asked("agents", call(), "::1", other, "b")
    rounds.over("agents", call(), "::1", one, "a")
    assert rounds.asker("agents", call(), "::1", one) is None  # what b asked, it asked on another connection
    assert rounds.asker("agents", call(), "::1", other) == "b"
    rounds.asked("agents", call(), "::1", other, "b")
    assert rounds.asker("agents", call(), "::1", connection()) == "b"


def test_what_is_out_of_reach_gives_up_its_place(rounds: Rounds) -> None:
    """`over` is also told of a backend that cannot be reached; the next one to ask gets its place."""
    near = connection()
    rounds.asked("agents", call(), "::1", near, "gone")
    rounds.over("agents", call(), "::1", near, "gone")
    rounds.asked("agents", call(), "::1", near, "b")
    assert rounds.asker("agents", call(), "::1", connection()) == "b"


@pytest.mark.parametrize(("passed", "asker"), [(0.0, "a"), (599.9, "a"), (600.0, None), (601.0, None)])
@pytest.mark.parametrize("same_connection", [True, False])
def test_a_round_is_remembered_for_ten_minutes(
    rounds: Rounds, clock: Clock, passed: float, asker: str | None, same_connection: bool
) -> None:
    assert LIFE == 600.0
    near = connection()
    rounds.asked("agents", call(), "::1", near, "a")
    clock.now += passed
    assert rounds.asker("agents", call(), "::1", near if same_connection else connection()) == asker


def test_what_was_asked_again_lives_anew(rounds: Rounds, clock: Clock) -> None:
    near = connection()
    for _ in range(3):
        rounds.asked("agents", call(), "::1", near, "a")
        clock.now += 500.0
        assert rounds.asker("agents", call(), "::1", near) == "a"
        assert rounds.asker("agents", call(), "::1", connection()) == "a"
    clock.now += 100.0
    assert rounds.asker("agents", call(), "::1", near) is None
    assert rounds.asker("agents", call(), "::1", connection()) is None
    assert (len(near), len(rounds)) == (0, 0)  # what is found too old is dropped


def test_asking_who_asked_does_not_lengthen_a_life(rounds: Rounds, clock: Clock) -> None:
    near = connection()
    rounds.asked("agents", call(), "::1", near, "a")
    for _ in range(3):
        clock.now += 200.0
        found = rounds.asker("agents", call(), "::1", near)
    assert found is None


def test_an_expired_first_asker_gives_up_its_place(rounds: Rounds, clock: Clock) -> None:
    rounds.asked("agents", call(), "::1", connection(), "a")
    clock.now += LIFE
    rounds.asked("agents", call(), "::1", connection(), "b")
    assert rounds.asker("agents", call(), "::1", connection()) == "b"
    assert len(rounds) == 1


def test_the_second_asker_does_not_lengthen_the_first_one_s_life(rounds: Rounds, clock: Clock) -> None:
    rounds.asked("agents", call(), "::1", connection(), "a")
    clock.now += 400.0
    rounds.asked("agents", call(), "::1", connection(), "b")
    clock.now += 199.0
    assert rounds.asker("agents", call(), "::1", connection()) == "a"
    clock.now += 1.0
    assert rounds.asker("agents", call(), "::1", connection()) is None


def test_an_expired_round_of_a_connection_leaves_the_caller_s(rounds: Rounds, clock: Clock) -> None:
    near = connection()
    rounds.asked("agents", call(), "::1", near, "a")
    clock.now += 300.0
    rounds.asked("agents", call(), "::1", connection(), "a")
    clock.now += 300.0
    assert rounds.asker("agents", call(), "::1", near) == "a"
    assert len(near) == 0


def test_of_too_many_rounds_those_that_asked_last_are_kept(clock: Clock) -> None:
    rounds, near = Rounds(clock, capacity=10), connection()
    for number in range(100):
        rounds.asked("agents", call(f"tool-{number}"), "::1", near, "a")
        assert len(rounds) <= 10
        assert len(near) <= 32
    known = [number for number in range(100) if rounds.asker("agents", call(f"tool-{number}"), "::1", connection())]
    assert known == list(range(90, 100))
    assert [number for number in range(100) if rounds.asker("agents", call(f"tool-{number}"), "::2", near)] == list(
        range(68, 100)
    )


def test_a_round_that_is_asked_again_is_not_the_first_to_leave(clock: Clock) -> None:
    rounds, near = Rounds(clock, capacity=3), connection()
    for name in ("x", "y", "z", "x", "w"):
        rounds.asked("agents", call(name), "::1", near, "a")
    assert [name for name in "wxyz" if rounds.asker("agents", call(name), "::1", connection())] == ["w", "x", "z"]


def test_nothing_that_a_caller_said_is_kept(rounds: Rounds) -> None:
    near = connection()
    rounds.asked("agents", call("secret-name", auth="Bearer secret"), "::1", near, "a")
    kept = repr(vars(rounds)) + repr(near)
    assert "secret" not in kept
    assert "Bearer" not in kept


@settings(deadline=None, max_examples=300)
@given(
    st.lists(
        st.tuples(
            st.sampled_from(["asked", "asked", "over", "asker"]),
            st.integers(0, 2),  # connection; the first two are of one caller
            st.sampled_from("ab"),  # backend
            st.sampled_from([0, 0, 100, 400]),  # seconds that pass
        ),
        max_size=30,
    )
)
def test_any_course_against_a_plain_account(steps: list[tuple[str, int, str, int]]) -> None:
    clock = Clock()
    rounds, connections = Rounds(clock), [connection() for _ in range(3)]
    near: dict[int, tuple[str, float]] = {}
    callers: dict[str, tuple[str, float]] = {}

    def living(found: tuple[str, float] | None) -> str | None:
        return found[0] if found is not None and clock.now < found[1] + LIFE else None

    for step, number, backend, passed in steps:
        clock.now += passed
        client = "::2" if number == 2 else "::1"
        if step == "asked":
            rounds.asked("agents", call(), client, connections[number], backend)
            near[number] = (backend, clock.now)
            if living(callers.get(client)) in (None, backend):
                callers[client] = (backend, clock.now)
        elif step == "over":
            rounds.over("agents", call(), client, connections[number], backend)
            if living(near.get(number)) == backend:
                del near[number]
            if living(callers.get(client)) == backend:
                del callers[client]
        expected = living(near.get(number)) or living(callers.get(client))
        assert rounds.asker("agents", call(), client, connections[number]) == expected


def test_pages_of_a_list_belong_together_for_a_moment(rounds: Rounds, clock: Clock) -> None:
    """By caller, method and pool; and later pages do not prolong it, or a crowd's lists would never move on."""
    listing = call(None, method="tools/list")
    assert rounds.lister("agents", listing, "::1") is None
    rounds.listed("agents", listing, "::1", "a")
    clock.now += PAGES_LIFE - 0.1
    assert rounds.lister("agents", listing, "::1") == "a"
    assert rounds.lister("others", listing, "::1") is None
    assert rounds.lister("agents", listing, "::2") is None
    assert rounds.lister("agents", call(None, method="prompts/list"), "::1") is None
    assert rounds.lister("agents", call(None, method="tools/list", auth="Bearer b"), "::1") is None
    assert rounds.asker("agents", listing, "::1", connection()) is None
    clock.now += 0.2
    assert rounds.lister("agents", listing, "::1") is None


# ---- rounds of several processes
@dataclass
class Process:
    """One of several that tell each other."""

    rounds: Rounds
    told: list[News]


def processes(clock: Clock, count: int = 2) -> list[Process]:
    """Each hears what the others tell."""
    made: list[Process] = []

    def process() -> Process:
        told: list[News] = []

        def tell(news: News) -> None:
            told.append(news)
            for other in made:
                if other is not one:
                    other.rounds.heard(news)

        one = Process(Rounds(clock, told=tell), told)
        return one

    made += [process() for _ in range(count)]
    return made


def test_who_asked_through_one_process_is_preferred_by_all(clock: Clock) -> None:
    a, b, c = processes(clock, 3)
    a.rounds.asked("agents", call(), "::1", connection(), "x")
    for one in (a, b, c):
        assert one.rounds.asker("agents", call(), "::1", connection()) == "x"
        assert one.rounds.asker("agents", call(), "::2", connection()) is None
        assert one.rounds.asker("others", call(), "::1", connection()) is None
    assert (len(a.told), len(b.told), len(c.told)) == (1, 0, 0)  # what was heard is not told again
    clock.now += LIFE
    assert b.rounds.asker("agents", call(), "::1", connection()) is None


def test_the_first_asker_keeps_its_place_in_every_process(clock: Clock) -> None:
    a, b = processes(clock)
    a.rounds.asked("agents", call(), "::1", connection(), "x")
    near = connection()
    b.rounds.asked("agents", call(), "::1", near, "y")
    assert [one.rounds.asker("agents", call(), "::1", connection()) for one in (a, b)] == ["x", "x"]
    assert b.rounds.asker("agents", call(), "::1", near) == "y"  # on its own connection
    clock.now += LIFE - 1
    b.rounds.asked("agents", call(), "::1", connection(), "x")  # asked again: it lives on in both
    clock.now += LIFE - 1
    assert [one.rounds.asker("agents", call(), "::1", connection()) for one in (a, b)] == ["x", "x"]


def test_what_is_out_of_reach_for_one_process_gives_up_its_place_in_all(clock: Clock) -> None:
    a, b = processes(clock)
    a.rounds.asked("agents", call(), "::1", connection(), "x")
    a.rounds.listed("agents", call(), "::1", "x")
    b.rounds.over("agents", call(), "::1", connection(), "other")
    assert a.rounds.asker("agents", call(), "::1", connection()) == "x"
    b.rounds.over("agents", call(), "::1", connection(), "x")
    for one in (a, b):
        assert one.rounds.asker("agents", call(), "::1", connection()) is None
        assert one.rounds.lister("agents", call(), "::1") is None


def test_pages_of_a_list_belong_together_in_every_process_for_a_moment(clock: Clock) -> None:
    a, b = processes(clock)
    a.rounds.listed("agents", call(), "::1", "x")
    assert b.rounds.lister("agents", call(), "::1") == "x"
    clock.now += PAGES_LIFE / 2
    b.rounds.heard(News("listed", a.told[0].key, "y"))  # it was chosen elsewhere before the news came
    assert b.rounds.lister("agents", call(), "::1") == "x"
    clock.now += PAGES_LIFE / 2
    assert [one.rounds.lister("agents", call(), "::1") for one in (a, b)] == [None, None]


def test_news_name_nobody(clock: Clock) -> None:
    (one,) = processes(clock, 1)
    one.rounds.asked("agents", call(auth="Bearer s3cret"), "10.1.2.3", connection(), "x")
    one.rounds.over("agents", call(auth="Bearer s3cret"), "10.1.2.3", connection(), "x")
    assert [news.kind for news in one.told] == ["asked", "over"]
    assert "s3cret" not in str(one.told)
    assert "10.1.2.3" not in str(one.told)


def test_rounds_whose_time_is_over_are_none(clock: Clock, rounds: Rounds) -> None:
    """Though nobody asks for them: requests are looked at more closely as long as there are any."""
    began = clock.now
    for number in range(3):
        clock.now = began + number * LIFE / 4
        rounds.asked("agents", call(f"n{number}"), "c", connection(), "a")
    assert len(rounds) == 3
    clock.now = began + LIFE
    assert len(rounds) == 2
    clock.now = began + LIFE * 1.25
    assert len(rounds) == 1
    rounds.asked("agents", call("n2"), "c", connection(), "a")
    clock.now = began + LIFE * 2
    assert len(rounds) == 1
    clock.now = began + LIFE * 3
    assert not rounds
