"""What the values of routing headers stand for."""

import base64

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from proxy.routing.errors import MalformedHeader
from proxy.routing.headers import RoutingHeaders, decode_value


def marked(text: str) -> str:
    return f"=?base64?{base64.b64encode(text.encode()).decode()}?="


@pytest.mark.parametrize(
    ("raw", "value"),
    [
        # the specification's own examples
        ("us-west1", "us-west1"),
        ("=?base64?SGVsbG8sIOS4lueVjA==?=", "Hello, 世界"),
        ("=?base64?IHBhZGRlZCA=?=", " padded "),
        ("=?base64?bGluZTEKbGluZTI=?=", "line1\nline2"),
        ("=?base64?PT9iYXNlNjQ/bGl0ZXJhbD89?=", "=?base64?literal?="),
        # as official clients were seen to send them
        ("=?base64?b3V0aWwtw6k=?=", "outil-é"),
        ("=?base64?ZWNobw==?=", "echo"),
        ("=?base64??=", ""),
        ("with inner spaces", "with inner spaces"),
        ("", ""),
        # not marked, so the value stands for itself
        ("=?BASE64?ZWNobw==?=", "=?BASE64?ZWNobw==?="),
        ("=?Base64?ZWNobw==?=", "=?Base64?ZWNobw==?="),
        ("=?base64?ZWNobw==", "=?base64?ZWNobw=="),
        ("=?base64?ZWNobw==?", "=?base64?ZWNobw==?"),
        ("=?base64?=", "=?base64?="),
        ("=?base64?ZWNobw==?=.", "=?base64?ZWNobw==?=."),
        ("a=?base64?ZWNobw==?=", "a=?base64?ZWNobw==?="),
        ("=?utf-8?B?ZWNobw==?=", "=?utf-8?B?ZWNobw==?="),
        ("ZWNobw==", "ZWNobw=="),
        # raw, as Go and C# send them: UTF-8 where it is, else Latin-1
        ("outil-é".encode().decode("latin-1"), "outil-é"),
        ("世界".encode().decode("latin-1"), "世界"),
        ("outil-\xe9", "outil-\xe9"),
        ("\xff\xfe", "\xff\xfe"),
    ],
)
def test_what_a_value_stands_for(raw: str, value: str) -> None:
    assert decode_value(raw, "Mcp-Name") == value


@pytest.mark.parametrize(
    "payload",
    [
        "SGVsbG8",  # no padding
        "SGVsbG8==",  # too much of it
        "SGVsbG8=SGVsbG8=",
        "SGVs!!!bG8=",
        "SGVs bG8=",
        " SGVsbG8=",
        "SGVsbG8= ",
        "SGVsbG8=?==?base64?SGVsbG8=",
        "====",
        "=",
        "A",
        "_-8=",  # the URL-safe alphabet
        "/w==",  # not UTF-8
        "7aCA",  # a surrogate
        "ZWNob\xe9==",
        "?",
    ],
)
def test_a_marked_value_that_does_not_decode_is_malformed(payload: str) -> None:
    with pytest.raises(MalformedHeader) as caught:
        decode_value(f"=?base64?{payload}?=", "Mcp-Param-Region")
    assert str(caught.value).startswith("Mcp-Param-Region ")
    assert payload not in str(caught.value)
    assert (caught.value.status, caught.value.code_for(modern=True), caught.value.code_for(modern=False)) == (
        400,
        -32020,
        -32000,
    )


@settings(deadline=None, max_examples=200)
@given(st.text(max_size=40))
def test_any_text_survives_its_encoding(text: str) -> None:
    assert decode_value(marked(text), "Mcp-Name") == text


@settings(deadline=None, max_examples=300)
@given(st.one_of(st.binary(max_size=30), st.binary(max_size=20).map(lambda data: b"=?base64?" + data + b"?=")))
def test_any_bytes_decode_or_are_malformed(data: bytes) -> None:
    raw = data.decode("latin-1")
    try:
        value = decode_value(raw, "Mcp-Name")
    except MalformedHeader:
        assert raw.startswith("=?base64?")
        assert raw.endswith("?=")
    else:
        value.encode("utf-8")


def test_names_and_params_are_decoded_where_they_are_asked_for() -> None:
    request = RoutingHeaders(
        "POST",
        "/mcp",
        modern=True,
        params=(("region", marked("eu-é")), ("empty", ""), ("bad", "=?base64?!?="), ("region", "second")),
        name=marked("tâche"),
    )
    assert request.decoded_name() == "tâche"
    assert request.decoded_param("region") == request.decoded_param("Region") == "eu-é"
    assert request.decoded_param("empty") == ""
    assert request.decoded_param("other") is None
    with pytest.raises(MalformedHeader, match="Mcp-Param-Bad "):
        request.decoded_param("Bad")
    assert RoutingHeaders("POST", "/mcp").decoded_name() is None
    with pytest.raises(MalformedHeader, match="Mcp-Name "):
        RoutingHeaders("POST", "/mcp", name="=?base64?!?=").decoded_name()
