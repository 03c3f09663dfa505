"""What one process knows of the pins in Redis: how long it answers, what it says again, what it keeps for later."""

import pytest

from proxy.pins.redis_cache import FRESH, KnownPins
from proxy.pins.redis_scripts import Mode, counts_in, holder_in, settling
from tests.pins.stores import K

A, B = ("pool", "a"), ("pool", "b")


def test_the_least_recently_used_leaves_first() -> None:
    known = KnownPins(capacity=2)
    known.learn(K[0], A, 0, expires=100)
    known.learn(K[1], A, 0, expires=100)
    assert known.look_up(K[0], 1) is not None
    assert known.look_up(K[1], 1, use=False) is not None
    known.learn(K[2], A, 1, expires=100)
    assert [known.look_up(key, 1) is not None for key in K[:3]] == [True, False, True]
    assert len(known) == 2


@pytest.mark.parametrize(
    ("at", "lives", "current"), [(0, True, True), (29.9, True, True), (30, True, False), (40, False, False)]
)
def test_what_was_learnt_is_current_for_a_while_and_known_for_its_life(at: float, lives: bool, current: bool) -> None:
    known = KnownPins(capacity=2)
    learnt = known.learn(K[0], A, 0, expires=40)
    assert FRESH == 30
    assert (known.look_up(K[0], at) is learnt) is lives
    assert known.is_current(K[0], learnt, at) is current


@pytest.mark.parametrize(
    ("ttl", "after", "told"),
    [
        (60, 4.9, False),
        (60, 5, True),
        (8, 1.9, False),
        (8, 2, True),
        (0.5, 0.12, False),
        (0.5, 0.125, True),
        (0, 0, False),
        (0, 0.01, True),
        (None, 4.9, False),
        (None, 5, True),
    ],
)
def test_the_same_word_is_told_again_when_redis_is_too_far_behind(ttl: float | None, after: float, told: bool) -> None:
    known = KnownPins(capacity=2).make(A, expires=0, held=None)
    known.renew(0, life=100, ttl=ttl)
    assert known.needs_telling(0)
    known.note_told()
    known.renew(after, life=100, ttl=ttl)
    assert known.needs_telling(after) is told


@pytest.mark.parametrize(
    ("before", "then", "told"),
    [
        (None, 60, True),
        (60, None, True),
        (60, 61, False),
        (60, 55, True),
        (60, 70, True),
        (600, 1, True),
        (10, 8, True),
    ],
)
def test_another_word_is_told_at_once(before: float | None, then: float | None, told: bool) -> None:
    known = KnownPins(capacity=2).make(A, expires=0, held=None)
    known.renew(0, life=1000, ttl=before)
    known.note_told()
    known.renew(0, life=1000, ttl=then)
    assert known.needs_telling(0) is told


def test_an_end_is_told_once() -> None:
    known = KnownPins(capacity=2).make(A, expires=100, held=None)
    known.note_told()
    assert not known.needs_telling(0)
    known.over = True
    assert known.needs_telling(0)
    known.note_told()
    assert not known.needs_telling(0)


@pytest.mark.parametrize(
    ("modes", "told"),
    [
        ((Mode.CLAIM, Mode.RENEW, Mode.FINISH), Mode.CLAIM),
        ((Mode.RENEW, Mode.FINISH), Mode.RENEW),
        ((Mode.RESTORE, Mode.FINISH), Mode.FINISH),
        ((Mode.RENEW, Mode.REPLACE), Mode.REPLACE),
    ],
)
def test_of_many_words_on_one_pin_one_is_told_later(modes: tuple[Mode, ...], told: Mode) -> None:
    pins = KnownPins(capacity=2)
    known = pins.make(A, expires=100, held=None)
    for mode in modes:
        pins.put_off(K[0], known, mode)
    assert pins.oldest_unwritten(10, 0) == [(K[0], (told, known))]


def test_a_new_holder_s_word_does_not_inherit_the_old_one_s() -> None:
    pins = KnownPins(capacity=2)
    pins.put_off(K[0], pins.make(A, expires=100, held=None), Mode.REPLACE)
    new = pins.make(B, expires=100, held=None)
    pins.put_off(K[0], new, Mode.CLAIM)
    assert pins.oldest_unwritten(10, 0) == [(K[0], (Mode.CLAIM, new))]


def test_what_changes_while_it_is_written_is_written_again() -> None:
    pins = KnownPins(capacity=2)
    known = pins.make(A, expires=100, held=None)
    pins.put_off(K[0], known, Mode.CLAIM)
    ((key, first),) = pins.oldest_unwritten(10, 0)
    pins.put_off(K[0], known, Mode.FINISH)
    pins.written(key, first)
    ((key, second),) = pins.oldest_unwritten(10, 0)
    pins.written(key, second)
    assert pins.unwritten == 0


def test_what_is_unwritten_is_bounded_and_outlives_the_cache(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("proxy.pins.redis_cache.MOST_UNWRITTEN", 3)
    pins = KnownPins(capacity=1)
    for key in K[:5]:
        pins.put_off(key, pins.make(A, expires=100, held=None), Mode.CLAIM)
    assert (len(pins), pins.unwritten) == (1, 3)
    assert [pins.look_up(key, 0) is not None for key in K[:5]] == [False, False, True, True, True]
    assert [key for key, _ in pins.oldest_unwritten(2, 0)] == [K[2], K[3]]
    assert pins.oldest_unwritten(9, 100) == []  # their lives are over
    assert (len(pins), pins.unwritten) == (0, 0)


def test_all_that_lives_is_restored_but_not_what_has_its_own_word() -> None:
    pins = KnownPins(capacity=9)
    pins.learn(K[0], A, 0, expires=100)
    pins.learn(K[1], A, 0, expires=1)
    known = pins.learn(K[2], A, 0, expires=100)
    pins.put_off(K[2], known, Mode.RENEW)
    assert pins.restore(2) == {A}
    assert pins.unwritten == 2
    told = []
    while some := pins.oldest_unwritten(9, 2):
        told += [(key, mode) for key, (mode, _) in some]
        for key, later in some:
            pins.written(key, later)
    assert told == [(K[2], Mode.RENEW), (K[0], Mode.RESTORE)]  # its own word first
    assert pins.unwritten == 0


def test_what_was_lost_is_restored_last_used_first_unless_it_gets_its_own_word() -> None:
    pins = KnownPins(capacity=4)
    for key in K[:4]:
        pins.learn(key, A, 0, expires=100)
    pins.look_up(K[0], 1)
    pins.restore(1)
    known = pins.look_up(K[3], 1, use=False)
    assert known is not None
    assert known.needs_telling(1)
    assert not pins.is_unwritten(K[3])  # its own word need not wait
    pins.drop(K[2])
    pins.learn(K[4], A, 1, expires=100)
    pins.learn(K[5], A, 1, expires=100)  # K[1] is known no more
    assert [key for key, _ in pins.oldest_unwritten(9, 1)] == [K[0], K[3]]
    assert pins.oldest_unwritten(9, 100) == []
    assert pins.unwritten == 0


@pytest.mark.parametrize(
    ("life", "hold", "expected"),
    [(1, 1, (1000, 1000)), (0.0001, 0, (1, 0)), (-1, -1, (1, 0)), (315_360_000, 5.0004, (315_360_000_000, 5000))],
)
def test_times_are_whole_milliseconds_that_redis_takes(life: float, hold: float, expected: tuple[int, int]) -> None:
    command = settling(K[0], A, Mode.CLAIM, life=life, hold=hold, over=False)
    assert command[-4:-2] == expected


@pytest.mark.parametrize(
    ("reply", "holder"),
    [
        (b"pool\0a", ("pool", "a")),
        (b"pool\0", ("pool", "")),
        (b"x", ("x", "")),
        (b"\xff\0a", ("\udcff", "a")),
        (None, None),
        (7, None),
    ],
)
def test_a_pin_s_value_names_its_holder(reply: object, holder: tuple[str, str] | None) -> None:
    assert holder_in(reply) == holder


def test_counts_are_read() -> None:
    counts = [b"epoch", b"pool\0a", 3, b"pool\0", 1, b"pool\0b", 2, b"pool\0b", -1]
    assert counts_in(counts) == {("pool", "a"): 3, ("pool", ""): 1, ("pool", "b"): None}
    assert counts_in([None]) == {}
