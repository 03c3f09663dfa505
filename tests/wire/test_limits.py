"""Bounded memos, and lengths that are one number."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from proxy.wire import limits
from proxy.wire.limits import content_length, remember


def test_a_memo_is_emptied_when_it_is_full(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "_MEMO_LIMIT", 10)
    memo: dict[bytes, int] = {}
    for number in range(100):
        assert remember(memo, b"%d" % number, number) == number
        assert memo[b"%d" % number] == number
        assert len(memo) <= 10
    assert list(memo) == [b"%d" % number for number in range(90, 100)]


@pytest.mark.parametrize(("length", "kept"), [(0, True), (100, True), (101, False), (8000, False)])
def test_long_keys_are_not_remembered(length: int, kept: bool) -> None:
    memo: dict[bytes, str] = {}
    assert remember(memo, b"x" * length, "value") == "value"
    assert bool(memo) is kept


@pytest.mark.parametrize(
    ("digits", "length"),
    [
        (b"0", 0),
        (b"5", 5),
        (b"0005", 5),
        (b"9999999999999999999", 10**19 - 1),
        (b"10000000000000000000", None),
        (b"0" * 20, None),
        (b"0" * 5000, None),
        (b"", None),
        (b"+5", None),
        (b"-5", None),
        (b" 5", None),
        (b"5 ", None),
        (b"5\n", None),
        (b"5_0", None),
        (b"0x5", None),
        (b"5.0", None),
        (b"5,5", None),
        (b"\xb2", None),
        ("\u0665".encode(), None),
    ],
)
def test_content_length(digits: bytes, length: int | None) -> None:
    assert content_length(digits) == length


@given(st.binary(max_size=25))
def test_only_ascii_digits_are_a_length(digits: bytes) -> None:
    length = content_length(digits)
    if set(digits) <= set(b"0123456789") and 0 < len(digits) <= 19:
        assert length == int(digits)
    else:
        assert length is None
