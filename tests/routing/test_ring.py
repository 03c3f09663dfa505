"""A ring prefers the same backends for a key always, in shares by weight, and moves few keys when it changes."""

import tracemalloc
from collections import Counter
from itertools import islice

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from uhashring import HashRing

from proxy.routing import ring as ring_module
from proxy.routing.ring import Ring

KEYS = [f"key-{number}" for number in range(4000)]


def ring_of(ids: str, **weights: int) -> Ring:
    return Ring({one: weights.get(one, 1) for one in ids})


def firsts(ring: Ring) -> dict[str, str]:
    return {key: ring.first(key) for key in KEYS}


@settings(deadline=None, max_examples=100)
@given(
    st.text(), st.dictionaries(st.text("abcdef-:.0123456789", min_size=1), st.integers(1, 3), min_size=1, max_size=6)
)
def test_the_order_has_every_id_once_and_the_first_one_first(key: str, weights: dict[str, int]) -> None:
    ring = Ring(weights)
    order = ring.order(key)
    assert order[0] == ring.first(key)
    assert sorted(order) == sorted(weights)


def test_first_and_order_agree_for_many_keys_whichever_is_asked_first() -> None:
    asked, fresh = ring_of("abcde", b=3), ring_of("abcde", b=3)
    before = firsts(asked)
    for key in KEYS[:500]:
        assert fresh.order(key)[0] == before[key] == fresh.first(key)
        assert asked.order(key) == fresh.order(key)


def test_the_same_members_make_the_same_ring_in_whatever_order() -> None:
    """Replicas of the proxy, and one that restarts, must agree."""
    assert firsts(Ring({"a": 1, "b": 2, "c": 1})) == firsts(Ring({"c": 1, "b": 2, "a": 1}))


def test_a_key_keeps_its_place_across_releases() -> None:
    """Replicas of different versions run side by side while one is replaced by the other."""
    ring = Ring({"a": 1, "b": 2, "c": 1})
    keys = ["whoami", "render_image", "eu-west", "us-east", "acme", "x", "", "é", "\ud800"]
    assert "".join(ring.first(key) for key in keys) == "bcbaccbbb"


def test_a_new_member_takes_its_share_and_nothing_else_moves() -> None:
    before, after = firsts(ring_of("abcd")), firsts(ring_of("abcde"))
    moved = {key for key in KEYS if before[key] != after[key]}
    assert {after[key] for key in moved} == {"e"}
    assert 0.15 < len(moved) / len(KEYS) < 0.25


def test_a_member_that_leaves_moves_its_own_keys_alone_each_to_the_next_in_its_order() -> None:
    whole, rest = ring_of("abcde"), ring_of("abde")
    for key in KEYS:
        if whole.first(key) == "c":
            assert rest.first(key) == whole.order(key)[1]
        else:
            assert rest.first(key) == whole.first(key)


def test_the_orders_of_a_member_s_keys_spread_over_the_others() -> None:
    """Its work does not fall on one neighbour."""
    ring = ring_of("abcde")
    seconds = Counter(ring.order(key)[1] for key in KEYS if ring.first(key) == "c")
    assert set(seconds) == set("abde")
    assert max(seconds.values()) < 0.5 * sum(seconds.values())


@pytest.mark.parametrize("weights", [{}, {"a": 2}, {"a": 4, "b": 2}])
def test_shares_by_weight(weights: dict[str, int]) -> None:
    counts = Counter(firsts(ring_of("abcde", **weights)).values())
    for one in "abcde":
        share = weights.get(one, 1) / (5 + sum(weight - 1 for weight in weights.values()))
        assert counts[one] / len(KEYS) == pytest.approx(share, rel=0.25)


def test_a_heavier_weight_only_draws_keys_to_its_member() -> None:
    before, after = firsts(ring_of("abcde")), firsts(ring_of("abcde", c=3))
    moved = {after[key] for key in KEYS if before[key] != after[key]}
    assert moved == {"c"}


def test_one_member_has_every_key() -> None:
    ring = ring_of("a")
    assert set(firsts(ring).values()) == {"a"}
    assert list(ring.order("any")) == ["a"]


@pytest.mark.parametrize("key", ["\ud800", "a\udfffb", "\udcff\udcfe", "\ud83d", "\0", "\\ud800", "é", "𝄞", "x" * 9000])
def test_any_text_is_a_key(key: str) -> None:
    ring = ring_of("abc")
    assert ring.first(key) == ring.order(key)[0]
    assert ring_of("abc").first(key) == ring.first(key)


def test_lone_surrogates_are_keys_of_their_own() -> None:
    ring = ring_of("abc")
    assert {ring.first(chr(0xD800 + number)) for number in range(100)} == set("abc")


def test_what_is_remembered_stays_bounded_and_changes_no_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ring_module, "_MEMO_LIMIT", 100)
    ring, large = Ring(dict.fromkeys("abcde", 1)), ring_of("abcde")

    def remembered() -> list[int]:
        return [len(value) for value in vars(ring).values() if isinstance(value, dict)]

    for key in KEYS[:1000]:
        assert ring.first(key) == large.first(key)
        assert ring.order(key) == large.order(key)
        assert max(remembered()) <= 100
    assert min(remembered()) > 0


def test_some_steps_on_a_large_ring_copy_nothing_of_it() -> None:
    """Hot keys go a few steps with every request, and a ring of a thousand has 160,000 points."""
    ring = Ring({f"b{number}": 1 for number in range(1000)})
    ring.first("hot")
    tracemalloc.start()
    try:
        assert len(list(islice(ring.walk("hot"), 100))) == 100
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < 64_000


def test_shares_are_exact() -> None:
    """As many keys as there can be would be spread so; some thousands come close."""
    ring = ring_of("abcd", b=3)
    shares = ring.shares("abcd")
    assert sum(shares.values()) == pytest.approx(1.0)
    seen = Counter(firsts(ring).values())
    assert all(abs(seen[one] / len(KEYS) - share) < 0.03 for one, share in shares.items())


def test_shares_among_some_are_those_of_keys_whose_order_passes_the_others_over() -> None:
    ring = ring_of("abcde", d=2)
    shares = ring.shares("bde")
    seen = Counter(next(one for one in ring.order(key) if one in "bde") for key in KEYS)
    assert sum(shares.values()) == pytest.approx(1.0)
    assert shares.keys() == {"b", "d", "e"}
    assert all(abs(seen[one] / len(KEYS) - share) < 0.03 for one, share in shares.items())
    assert ring.shares("c") == {"c": pytest.approx(1.0)}
    assert ring.shares("") == {}


def test_slices_show_the_ring_all_around() -> None:
    ring = ring_of("abc")
    slices = ring.slices(3600)
    assert len(slices) == 3600
    seen, shares = Counter(slices), ring.shares("abc")
    assert all(abs(seen[one] / 3600 - share) < 0.02 for one, share in shares.items())
    assert ring_of("a").slices(4) == ["a", "a", "a", "a"]


@settings(deadline=None, max_examples=60)
@given(
    st.dictionaries(st.text("abcdef-:.0123456789", min_size=1), st.integers(1, 3), min_size=1, max_size=40),
    st.lists(st.text(), min_size=1, max_size=10),
)
def test_the_order_is_that_of_the_library(weights: dict[str, int], keys: list[str]) -> None:
    """Which walks over all points; here only some are looked at."""
    ring, library = Ring(weights), HashRing(nodes={one: {"weight": weight} for one, weight in weights.items()})
    for key in keys:
        hashable = key.encode("utf-8", "backslashreplace").decode()
        expected = [found["nodename"] for found in library.range(hashable, unique=True)]
        assert list(ring.order(key)) == expected
        assert ring.first(key) == expected[0] == library.get_node(hashable)
        walked = list(islice(ring.walk(key), 3))
        assert walked == expected[:3]


def test_the_order_of_many_is_that_of_the_library() -> None:
    """Beyond the points that are looked at first, and around the end of the circle."""
    weights = {f"10.0.{number // 250}.{number % 250}:8000": 1 + number % 3 for number in range(500)}
    ring, library = Ring(weights), HashRing(nodes={one: {"weight": weight} for one, weight in weights.items()})
    last = library.get_points()[-1][0]
    behind = [key for key in KEYS if library.hashi(key) > last]
    for key in [*KEYS[:20], *behind[:2]]:
        assert list(ring.order(key)) == [found["nodename"] for found in library.range(key, unique=True)]


def test_an_empty_ring_has_no_order() -> None:
    assert list(Ring({}).walk("key")) == []
