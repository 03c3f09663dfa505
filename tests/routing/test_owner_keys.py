"""Whose answers are watched; what stands for ids and sessions; which JSON is strict."""

import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from proxy.routing.headers import RoutingHeaders, is_modern
from proxy.routing.ownership import may_teach, pin_key, session_tag, short_digest, split_session, strict_json


@pytest.mark.parametrize(
    ("verb", "version", "method", "teaches"),
    [
        ("POST", "2026-07-28", "tools/call", True),
        ("POST", "2026-07-28", "tasks/get", True),
        ("POST", "2026-07-28", "tasks/cancel", True),
        ("POST", "2026-07-28", "subscriptions/listen", True),
        ("POST", "2026-07-28", "prompts/get", True),
        ("POST", "2026-07-28", "unheard/of", True),
        ("POST", "2026-07-28", "", True),
        ("POST", "2026-07-28", "server/discover", False),
        ("POST", "2026-07-28", "tools/list", False),
        ("POST", "2026-07-28", "resources/templates/list", False),
        ("POST", "2026-07-28", "tasks/list", False),
        ("GET", "2026-07-28", "tools/call", False),
        ("HEAD", "2026-07-28", "tools/call", False),
        ("POST", "2025-11-25", "tools/call", False),
        ("POST", "", "tools/call", False),
    ],
)
def test_whose_answers_are_watched(verb: str, version: str, method: str, teaches: bool) -> None:
    request = RoutingHeaders(verb, "/mcp", version=version, modern=is_modern(version), method=method)
    assert may_teach(request) is teaches


@settings(deadline=None, max_examples=200)
@given(st.lists(st.tuples(st.sampled_from(["a", "b", "a b"]), st.text(max_size=8)), unique=True, max_size=6))
def test_keys_tell_pools_and_ids_apart_and_hold_neither(pairs: list[tuple[str, str]]) -> None:
    keys = [pin_key(pool, task_id) for pool, task_id in pairs]
    assert len(set(keys)) == len(pairs)
    for key, (pool, task_id) in zip(keys, pairs, strict=True):
        assert key == pin_key(pool, task_id)
        assert len(key) == 16
    assert all(len(short_digest(task_id)) == 10 for _, task_id in pairs)


def test_what_a_pool_s_name_ends_with_is_not_what_an_id_begins_with() -> None:
    assert pin_key("a", "bc") != pin_key("ab", "c")


def test_a_digest_does_not_show_the_id() -> None:
    assert b"secret" not in bytes(pin_key("pool", "secret-task"))
    assert "secret" not in short_digest("secret-task")
    assert short_digest("\ud800") != short_digest("\ud801")


def test_keys_and_tags_are_the_same_in_every_release() -> None:
    """Replicas of different versions share a pin store, and read each other's session tags."""
    assert session_tag("agents", "a") == "36581b8b31"
    assert session_tag("agents", "127.0.0.1:8000") == "ffcc167580"
    assert pin_key("agents", "t-1").hex() == "913eb362b415555014d5ecc92e3ed3a0"
    assert short_digest("t-1") == "07809296b5"


@settings(deadline=None, max_examples=200)
@given(st.text(), st.text("abc-.:0123456789", max_size=5), st.text("abc-.:0123456789", max_size=5))
def test_a_tagged_session_is_split_into_its_tag_and_the_backend_s_own_id(own: str, pool: str, backend: str) -> None:
    tag = session_tag(pool, backend)
    assert len(tag) == 10
    assert not set(tag) - set("0123456789abcdef")
    assert split_session(f"{tag}.{own}") == (tag, own)


def test_tags_differ_by_pool_and_backend() -> None:
    pairs = [(pool, backend) for pool in ("a", "b", "ab", "") for backend in ("a", "b", "ab", "c", "")]
    assert len({session_tag(*pair) for pair in pairs}) == len(pairs)


@pytest.mark.parametrize(
    ("session", "parts"),
    [
        ("0123456789.own", ("0123456789", "own")),
        ("0123456789.", ("0123456789", "")),
        ("0123456789..x.y", ("0123456789", ".x.y")),
        ("0123456789.0123456789.own", ("0123456789", "0123456789.own")),
        ("own", ("", "own")),
        ("", ("", "")),
        (".", ("", ".")),
        (".own", ("", ".own")),
        ("0123456789", ("", "0123456789")),
        ("012345678.own", ("", "012345678.own")),
        ("0123456789a.own", ("", "0123456789a.own")),
        ("0123456789own", ("", "0123456789own")),
    ],
)
def test_a_session_s_id_with_and_without_a_tag(session: str, parts: tuple[str, str]) -> None:
    assert split_session(session) == parts


VALUES = st.recursive(
    st.one_of(st.none(), st.booleans(), st.integers(), st.floats(allow_nan=False, allow_infinity=False), st.text()),
    lambda inner: st.one_of(st.lists(inner, max_size=3), st.dictionaries(st.text(max_size=3), inner, max_size=3)),
    max_leaves=8,
)


@settings(deadline=None, max_examples=200)
@given(VALUES, st.booleans(), st.sampled_from([None, 1]))
def test_what_every_writer_writes_is_strict(value: Any, ascii_only: bool, indent: int | None) -> None:
    text = json.dumps(value, ensure_ascii=ascii_only, indent=indent).encode("utf-8", "surrogatepass")
    try:
        text.decode("utf-8")
    except UnicodeDecodeError:
        with pytest.raises(ValueError):
            strict_json(text)
    else:
        assert strict_json(text) == value


@pytest.mark.parametrize(
    "text",
    [
        b"",
        b" ",
        b"{",
        b"{}x",
        b"{} {}",
        b"{,}",
        b"[1,]",
        b"{'a':1}",
        b"{a:1}",
        b"01",
        b"+1",
        b".5",
        b"1.",
        b"NaN",
        b"Infinity",
        b"-Infinity",
        b"[NaN]",
        b'{"a":1,"a":1}',
        b'{"a":1,"\\u0061":1}',
        b'[{"b":{"a":1,"a":2}}]',
        b'"\x01"',
        b'"\\x"',
        b'"\\u12"',
        b'"\xff"',
        b'"\xed\xa0\x80"',
        b"\xef\xbb\xbf{}",
        "{}".encode("utf-16"),
        "{}".encode("utf-32-le"),
        b"[" * 100_000,
        b'{"a":' * 100_000,
        b"[" * 50_000 + b"]" * 50_000,
        b"9" * 5000,
        b"/**/{}",
    ],
    ids=lambda text: repr(text[:20]),
)
def test_what_readers_could_understand_differently_is_not_strict(text: bytes) -> None:
    with pytest.raises(ValueError):
        strict_json(text)


@settings(deadline=None, max_examples=300)
@given(st.binary(max_size=30))
def test_any_bytes_are_strict_json_or_a_value_error(text: bytes) -> None:
    try:
        value = strict_json(text)
    except ValueError:
        return
    assert json.loads(text) == value
