"""The listener's own check of Host and Origin."""

import pytest

from proxy.routing.admission import Admission
from proxy.routing.errors import ForbiddenHost, ForbiddenOrigin, ProxyError


def verdict(admission: Admission, host: str, origin: str | None = None) -> str:
    """`ok`, or the reason of the refusal."""
    name = host.lower() if host.startswith("[") and host.endswith("]") else host.rsplit(":", 1)[0].lower()
    try:
        admission.check(host=host.encode("latin-1"), name=name, origin=origin)
    except ProxyError as error:
        return error.reason
    return "ok"


HOSTS = ["mcp.example", "Ported.Example:8443", "localhost", "127.0.0.1", "[::1]", "[2001:DB8::1]:80"]


@pytest.mark.parametrize(
    ("host", "expected"),
    [
        ("mcp.example", "ok"),
        ("mcp.example:80", "ok"),
        ("mcp.example:65535", "ok"),
        ("MCP.Example:1", "ok"),
        ("ported.example:8443", "ok"),
        ("PORTED.EXAMPLE:8443", "ok"),
        ("ported.example", "forbidden_host"),
        ("ported.example:8444", "forbidden_host"),
        ("ported.example:08443", "forbidden_host"),
        ("localhost:8080", "ok"),
        ("127.0.0.1:8080", "ok"),
        ("127.0.0.2", "forbidden_host"),
        ("[::1]", "ok"),
        ("[::1]:8080", "ok"),
        ("[2001:db8::1]:80", "ok"),
        ("[2001:db8::1]", "forbidden_host"),
        ("mcp.example.", "forbidden_host"),
        ("mcp.example.evil", "forbidden_host"),
        ("evil.mcp.example", "forbidden_host"),
        ("evil.example", "forbidden_host"),
        ("", "forbidden_host"),
    ],
)
def test_host(host: str, expected: str) -> None:
    assert verdict(Admission(hosts=HOSTS, origins=None), host, "https://anywhere") == expected


@pytest.mark.parametrize(
    ("origin", "expected"),
    [
        (None, "ok"),
        ("https://app.example", "ok"),
        ("HTTPS://APP.example", "ok"),
        ("http://localhost:3000", "ok"),
        ("https://app.example:443", "forbidden_origin"),
        ("http://app.example", "forbidden_origin"),
        ("https://app.example/", "forbidden_origin"),
        ("https://app.example.evil", "forbidden_origin"),
        ("https://app.example, https://app.example", "forbidden_origin"),
        ("http://localhost", "forbidden_origin"),
        ("null", "forbidden_origin"),
        ("", "forbidden_origin"),
    ],
)
def test_origin(origin: str | None, expected: str) -> None:
    admission = Admission(hosts=None, origins=["https://App.example", "http://localhost:3000"])
    assert verdict(admission, "anywhere", origin) == expected


def test_what_is_not_configured_is_not_checked() -> None:
    assert verdict(Admission(hosts=None, origins=None), "anywhere", "null") == "ok"


def test_an_empty_list_allows_none() -> None:
    admission = Admission(hosts=[], origins=[])
    assert verdict(admission, "localhost") == "forbidden_host"
    assert verdict(Admission(hosts=None, origins=[]), "localhost") == "ok"
    assert verdict(Admission(hosts=None, origins=[]), "localhost", "https://a") == "forbidden_origin"


def test_the_host_is_checked_first_and_neither_answer_repeats_what_was_sent() -> None:
    admission = Admission(hosts=["a"], origins=["https://a"])
    with pytest.raises(ForbiddenHost) as host:
        admission.check(host=b"evil", name="evil", origin="https://evil")
    with pytest.raises(ForbiddenOrigin) as origin:
        admission.check(host=b"a", name="a", origin="https://evil")
    assert (host.value.status, origin.value.status) == (421, 403)
    assert "evil" not in str(host.value) + str(origin.value)
