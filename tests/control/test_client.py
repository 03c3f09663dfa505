"""The commands' side of the admin interface: what is sent, and what is said when it does not work."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from proxy.control import client as client_module
from proxy.control.client import Unanswered, backend_path, post, standing_text
from tests.wire.harness import BackendSide, answering, backend


@asynccontextmanager
async def answered(status: int, body: str, *more: str) -> AsyncIterator[tuple[str, list[bytes]]]:
    """The URL of a server that always answers this, and the heads it was sent."""
    lines = [f"HTTP/1.1 {status} X", f"Content-Length: {len(body.encode())}", *more, "", body]
    async with backend(answering("\r\n".join(lines).encode())) as server:
        heads: list[bytes] = []
        yield f"http://127.0.0.1:{server.port}", heads
        heads += [request.head for request in server.requests]


async def asked(admin: str, token: str | None = None) -> str:
    return await post(admin, "/api/explain", {"path": "/x"}, token=token, accept="text/plain")


@pytest.mark.parametrize("form", ["{}", "{}/"])
async def test_what_is_sent(form: str) -> None:
    async with answered(200, "text ü") as (admin, heads):
        assert await asked(form.format(admin), "s3cret") == "text ü"
    (head,) = heads
    assert head.startswith(b"POST /api/explain HTTP/1.1\r\n")
    for line in (b"Authorization: Bearer s3cret", b"Accept: text/plain", b"Content-Type: application/json"):
        assert line in head.split(b"\r\n")


async def test_a_scheme_may_be_left_out_and_a_token_too() -> None:
    async with answered(200, "text") as (admin, heads):
        assert await asked(admin.removeprefix("http://")) == "text"
    assert b"Authorization" not in heads[0]


async def test_no_proxy_of_the_environment_is_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("HTTP_PROXY", "http_proxy", "ALL_PROXY", "all_proxy"):
        monkeypatch.setenv(name, "http://127.0.0.1:9")
    async with answered(200, "text") as (admin, _):
        assert await asked(admin) == "text"


@pytest.mark.parametrize(
    ("status", "body", "reason"),
    [
        (401, '{"error": "Unauthorized"}', "refuses: 401, Unauthorized"),
        (404, '{"error": "no pool \'x\'; there is agents"}', "refuses: 404, no pool 'x'; there is agents"),
        (404, "<html>", "refuses: 404, with no reason that an admin interface gives"),
        (500, "[]", "refuses: 500, with no reason that an admin interface gives"),
    ],
)
async def test_a_refusal_is_told_with_its_reason(status: int, body: str, reason: str) -> None:
    async with answered(status, body) as (admin, _):
        with pytest.raises(Unanswered) as caught:
            await asked(admin)
        assert str(caught.value) == f"{admin} {reason}"


async def test_a_redirection_is_not_followed() -> None:
    """The token is for this server, not for whom it names."""
    async with (
        answered(200, "elsewhere") as (elsewhere, other),
        answered(307, "", f"Location: {elsewhere}") as (admin, _),
    ):
        with pytest.raises(Unanswered, match="refuses: 307"):
            await asked(admin, "s3cret")
    assert other == []


async def test_nobody_listens() -> None:
    async with backend() as server:
        port = server.port
    with pytest.raises(Unanswered, match=f"^http://127.0.0.1:{port} cannot be reached: Connect call failed"):
        await asked(f"http://127.0.0.1:{port}")


async def test_an_answer_that_does_not_come(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(client_module, "WAIT", 0.1)

    async def silent(side: BackendSide) -> None:
        await side.request()
        await side.reader.read()

    async with backend(silent) as server:
        with pytest.raises(Unanswered, match=r"does not answer within 0\.1 s"):
            await asked(f"http://127.0.0.1:{server.port}")


async def test_an_answer_that_is_no_http_or_breaks_off() -> None:
    async with backend(answering(b"SSH-2.0\r\n\r\n")) as server:
        with pytest.raises(Unanswered, match="cannot be asked"):
            await asked(f"http://127.0.0.1:{server.port}")
    async with answered(200, "\udcff".encode("utf-8", "surrogateescape").decode("latin-1")) as (admin, _):
        assert await asked(admin) == "ÿ"


async def test_an_answer_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(client_module, "_LONGEST", 100)
    async with answered(200, "x" * 101) as (admin, _):
        with pytest.raises(Unanswered, match="more than 100 bytes"):
            await asked(admin)


@pytest.mark.parametrize(
    "admin", ["", "http://", "ftp://127.0.0.1", "http://127.0.0.1?x", "http://127.0.0.1#x", "http://127.0.0.1:port"]
)
async def test_what_is_no_url(admin: str) -> None:
    with pytest.raises(Unanswered):
        await asked(admin)


async def test_a_token_that_cannot_be_sent() -> None:
    async with answered(200, "") as (admin, heads):
        with pytest.raises(Unanswered, match="cannot be asked"):
            await asked(admin, "line\r\nX: break")
    assert heads == []


def test_paths_of_backends() -> None:
    assert backend_path("agents", "10.0.0.1:80", "drain") == "/api/backends/agents/10.0.0.1%3A80/drain"
    assert backend_path("agents", "a%/?#ü", "undrain") == "/api/backends/agents/a%25%2F%3F%23%C3%BC/undrain"


TOLD = {
    "pool": "agents",
    "backend": "b",
    "departed": False,
    "draining": True,
    "in_flight": 0,
    "unfinished_tasks": 0,
    "recent_sessions": 0,
    "empty": True,
    "note": "as far as known",
}


@pytest.mark.parametrize(
    ("more", "text"),
    [
        (
            {},
            "agents/b takes no new work: 0 requests in flight, 0 unfinished tasks, 0 recent sessions; "
            "it is empty and can be stopped (as far as known)",
        ),
        (
            {"in_flight": 1, "unfinished_tasks": 1, "recent_sessions": 1, "empty": False},
            "agents/b takes no new work: 1 request in flight, 1 unfinished task, 1 recent session (as far as known)",
        ),
        (
            {"draining": False, "unfinished_tasks": 2, "empty": False},
            "agents/b takes new work: 0 requests in flight, 2 unfinished tasks, 0 recent sessions (as far as known)",
        ),
        (
            {"unfinished_tasks": None, "empty": False},
            "agents/b takes no new work: 0 requests in flight, an unknown number of unfinished tasks, "
            "0 recent sessions (as far as known)",
        ),
        (
            {"departed": True, "draining": False, "in_flight": 2, "empty": False},
            "agents/b is no longer configured and takes no new work: 2 requests in flight, 0 unfinished tasks, "
            "0 recent sessions (as far as known)",
        ),
    ],
)
def test_what_a_backend_holds_in_a_sentence(more: dict[str, Any], text: str) -> None:
    assert standing_text(TOLD | more) == text


@pytest.mark.parametrize("told", [[], {}, TOLD | {"in_flight": "0"}, "text"])
def test_what_tells_of_no_backend(told: Any) -> None:
    with pytest.raises((KeyError, TypeError, ValueError)):
        standing_text(told)
