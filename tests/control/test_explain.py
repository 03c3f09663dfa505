"""`/api/explain` reads questions strictly and answers them as JSON or as text."""

import io
from typing import Any

import pytest
from aiohttp import ClientSession

from proxy.app import Proxy
from proxy.control.explain import read_question
from proxy.explaining import Question
from proxy.pins.memory import MemoryPinStore
from proxy.routing.ownership import pin_key, short_digest
from tests.wire.harness import backend, config_text, running

MODERN = ["MCP-Protocol-Version", "2026-07-28"]


async def asked(proxy: Proxy, body: Any, **headers: str) -> tuple[int, Any]:
    """The answer to a body, bytes or JSON."""
    data = {"data": io.BytesIO(body)} if isinstance(body, bytes) else {"json": body}
    url = f"http://127.0.0.1:{proxy.admin_port}/api/explain"
    async with ClientSession(headers={"Content-Type": "application/json", **headers}) as session:
        async with session.post(url, **data) as answer:
            is_json = answer.content_type == "application/json"
            return answer.status, await answer.json() if is_json else await answer.text()


def test_everything_has_a_default() -> None:
    assert read_question({}) == Question("POST", "/mcp", (), "")
    question = {"method": "GET", "path": "/x?y", "headers": [["A", "1"], ["A", "2"]], "client": "192.0.2.1"}
    assert read_question(question) == Question("GET", "/x?y", (("A", "1"), ("A", "2")), "192.0.2.1")


@pytest.mark.parametrize(
    ("value", "message"),
    [
        ([], "the body is not an object with method, path, headers, client"),
        (None, "the body is not an object"),
        ({"verb": "GET"}, "unknown key 'verb'; allowed: method, path, headers, client"),
        ({"method": 1}, "method: not text"),
        ({"path": None}, "path: not text"),
        ({"client": []}, "client: not text"),
        ({"headers": {}}, r"headers: not a list of \[name, value\]"),
        ({"headers": ["A: 1"]}, "headers: not a list"),
        ({"headers": [["A"]]}, "headers: not a list"),
        ({"headers": [["A", 1]]}, "headers: not a list"),
        ({"headers": [["A", "1", "2"]]}, "headers: not a list"),
        ({"headers": [["A", "1\r\nB: 2"]]}, "a line break"),
        ({"path": "/\n"}, "a line break"),
        ({"path": "/\ud800"}, "lone surrogates"),
    ],
)
def test_what_is_no_question(value: object, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        read_question(value)


async def test_it_is_answered_with_what_the_proxy_knows() -> None:
    pins = MemoryPinStore(ttl=60, capacity=10, clock=lambda: 0.0)
    pins.put(pin_key("agents", "secret-id"), "agents", "b", ttl=None)
    async with backend() as a, backend() as b, running(config_text(a.port, b.port), pins=pins) as proxy:
        question = {"headers": [MODERN, ["Mcp-Method", "tasks/get"], ["Mcp-Name", "secret-id"]]}
        status, told = await asked(proxy, question)
        assert status == 200
        assert told["request"]["task"] == short_digest("secret-id")
        (place,) = told["places"]
        assert (place["pool"], place["source"], [one["id"] for one in place["backends"]]) == ("agents", "pin", ["b"])
        assert "secret-id" not in str(told)
        assert told["notes"] == [f"no Host was given: 127.0.0.1:{proxy.port} is assumed"]

        status, text = await asked(proxy, question, Accept="text/plain")
        assert status == 200
        assert "by the task's pin:\n    b  http://127.0.0.1" in text
        assert (len(a.requests), len(b.requests)) == (0, 0)


async def test_a_request_that_would_be_refused_is_explained_all_the_same() -> None:
    async with running(config_text(1)) as proxy:
        status, told = await asked(proxy, {"path": "/other"})
        assert (status, told["error"]["reason"], told["error"]["status"]) == (200, "no_route", 404)
        status, told = await asked(proxy, {"headers": [["X", "x" * 70_000]]})
        assert (status, told["error"]["reason"]) == (200, "head_too_large")


@pytest.mark.parametrize(
    ("body", "error"),
    [
        (b"", "the body is not JSON"),
        (b"{", "the body is not JSON"),
        (b"\xff", "the body is not JSON"),
        (b"[" * 100_000, "the body is not JSON"),
        (b"[]", "the body is not an object with method, path, headers, client"),
        (b'{"a\\r\\nb": 1}', r"unknown key 'a\r\nb'; allowed: method, path, headers, client"),
    ],
)
async def test_a_body_that_is_no_question_is_refused(body: bytes, error: str) -> None:
    async with running(config_text(1)) as proxy:
        assert await asked(proxy, body) == (400, {"error": error})


async def test_a_body_is_bounded() -> None:
    async with running(config_text(1)) as proxy:
        status, told = await asked(proxy, b'{"path": "%b"}' % (b"x" * 2**20))
        assert (status, set(told)) == (413, {"error"})
