"""A backend in its pool: its choices, whether it takes new work, and which of its sessions are recent."""

from collections import OrderedDict
from typing import get_args

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from proxy.routing import members
from proxy.routing.backends import Backend
from proxy.routing.members import OWNER_SOURCES, RECENT, Choice, Member, Source
from proxy.routing.ownership import session_tag


def member(backend_id: str = "a", *, drain: bool = False) -> Member:
    return Member("agents", Backend(backend_id, "127.0.0.1", 8000, drain=drain))


def test_the_sources_that_bind_are_those_that_name_an_owner() -> None:
    assert set(OWNER_SOURCES) == {"pin", "tag", "search"}
    assert set(get_args(Source)) - OWNER_SOURCES == {"ring", "balance"}


@pytest.mark.parametrize("source", get_args(Source))
def test_a_choice_is_one_value_for_each_source_and_owners_bind(source: Source) -> None:
    one = member()
    choice = one.chosen(source)
    assert choice is one.chosen(source)
    assert (choice.member, choice.source) == (one, source)
    assert choice.bound is (source in OWNER_SOURCES)
    assert choice is not member().chosen(source)
    with pytest.raises(AttributeError):
        choice.source = "ring"  # type: ignore[misc]  # it is frozen


def test_choices_differ_by_member_and_source() -> None:
    one, other = member("a"), member("a")
    choices = {one.chosen(source) for source in get_args(Source)} | {
        other.chosen(source) for source in get_args(Source)
    }
    assert len(choices) == 2 * len(get_args(Source))
    assert Choice(one, "pin") == one.chosen("pin") != Choice(other, "pin")


@pytest.mark.parametrize("draining", [False, True])
@pytest.mark.parametrize("departed", [False, True])
def test_who_is_taken_out_of_new_work(draining: bool, departed: bool) -> None:
    one = member(drain=draining)
    assert one.draining is draining
    one.departed = departed
    assert one.withdrawn is (draining or departed)


def test_a_member_s_tag_is_its_pool_s_and_its_backend_s() -> None:
    assert member("a").tag == session_tag("agents", "a")
    assert len({Member(pool, Backend(one, "x", 1)).tag for pool in ("p", "q") for one in ("a", "b")}) == 4


def test_what_is_shown_of_a_member_names_no_address() -> None:
    one = member("a")
    one.session_seen("secret-session", 0.0)
    assert repr(one) == "<Member a in_flight=0>"


@pytest.mark.parametrize(
    ("seen", "now", "recent"),
    [
        ([], 0.0, 0),
        ([("s", 0.0)], 0.0, 1),
        ([("s", 0.0)], RECENT, 1),
        ([("s", 0.0)], RECENT + 0.001, 0),
        ([("s", 0.0), ("t", 10.0)], RECENT + 5, 1),
        ([("s", 0.0), ("t", 10.0)], RECENT + 11, 0),
        ([("s", 0.0), ("s", 10.0)], RECENT + 5, 1),
        ([("s", 0.0), ("t", 5.0), ("s", 10.0)], RECENT + 7, 1),
        ([("s", 0.0), ("t", 0.0), ("\ud800", 0.0), ("", 0.0)], 1.0, 4),
    ],
)
def test_a_session_is_recent_for_half_an_hour_after_its_last_request(
    seen: list[tuple[str, float]], now: float, recent: int
) -> None:
    assert RECENT == 30 * 60
    one = member()
    for session, when in seen:
        one.session_seen(session, when)
    assert one.recent_sessions(now) == recent
    assert one.recent_sessions(now) == recent  # to ask changes nothing


def test_a_session_that_is_over_is_not_recent() -> None:
    one = member()
    for session in ("s", "t"):
        one.session_seen(session, 0.0)
    one.session_ended("s")
    one.session_ended("s")
    one.session_ended("never seen")
    assert one.recent_sessions(0.0) == 1
    one.session_seen("s", 1.0)
    assert one.recent_sessions(1.0) == 2


@settings(deadline=None, max_examples=200)
@given(
    st.lists(
        st.tuples(st.sampled_from("abcdef"), st.sampled_from(["seen", "seen", "ended", "count"]), st.integers(0, 900))
    )
)
def test_recent_sessions_against_a_plain_count(steps: list[tuple[str, str, int]]) -> None:
    one, last, now = member(), dict[str, float](), 0.0
    for session, step, passed in steps:
        now += passed
        if step == "seen":
            one.session_seen(session, now)
            last[session] = now
        elif step == "ended":
            one.session_ended(session)
            last.pop(session, None)
        else:
            assert one.recent_sessions(now) == sum(when >= now - RECENT for when in last.values())


def test_of_many_sessions_the_latest_are_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(members, "_MOST_SESSIONS", 10)
    one = member()
    for number in range(25):
        one.session_seen(f"s-{number}", 0.0)
        one.session_seen("busy", 0.0)
        assert one.recent_sessions(0.0) <= 10
    for number in range(16, 25):
        one.session_ended(f"s-{number}")
    assert one.recent_sessions(0.0) == 1
    one.session_ended("busy")
    assert one.recent_sessions(0.0) == 0


def test_no_session_s_id_is_kept() -> None:
    """Only digests, since ids are credentials."""
    one = member()
    one.session_seen("secret-session", 0.0)
    kept = [value for name in Member.__slots__ if isinstance(value := getattr(one, name), OrderedDict)]
    assert [len(key) for sessions in kept for key in sessions] == [8]
    assert "secret" not in repr(kept)


def test_backends_are_known_by_their_ids() -> None:
    one, same = Backend("a", "127.0.0.1", 1), Backend("a", "::1", 2, weight=3, drain=True)
    assert one == same
    assert len({one, same, Backend("b", "127.0.0.1", 1)}) == 2
    assert one != "a"
    assert (one.authority, same.authority) == ("127.0.0.1:1", "[::1]:2")


LIFE = 100.0  # of a pin, in seconds


@pytest.mark.parametrize(
    ("tasks", "in_flight", "session", "quiet", "done"),
    [
        (0, 0, None, RECENT + 1, True),
        (0, 0, None, RECENT - 1, False),
        (1, 0, None, RECENT + 1, False),
        (0, 1, None, RECENT + 1, False),
        (0, 0, 5.0, RECENT + 1, False),
        (0, 0, RECENT + 5.0, RECENT + 1, True),
    ],
)
def test_a_departed_member_is_done_when_nothing_is_left_that_it_could_serve(
    tasks: int, in_flight: int, session: float | None, quiet: float, done: bool
) -> None:
    """`session`: seconds since one was asked for; `quiet`: since the last request."""
    one = member()
    one.departed, one.in_flight, one.last_used = True, in_flight, 1000.0
    now = 1000.0 + quiet
    if session is not None:
        one.session_seen("s", now - session)
    assert one.is_done(tasks=tasks, life=LIFE, now=now) is done
    one.departed = False
    assert one.is_done(tasks=tasks, life=LIFE, now=now) is False


def test_a_departed_member_that_was_never_used_here_is_kept_as_long_as_one_just_used() -> None:
    """It may own what was made through the process before this one, however long the machine runs."""
    one = member()
    one.departed = True
    now = 1e6
    assert not one.is_done(tasks=0, life=LIFE, now=now)
    assert not one.is_done(tasks=0, life=LIFE, now=now + RECENT)
    assert one.is_done(tasks=0, life=LIFE, now=now + RECENT + 1)
