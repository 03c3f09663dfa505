"""What is asked of the admin interface in bad faith: nothing of it splits an answer, a line of the log or a metric."""

import asyncio
import json
import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from proxy.app import Proxy
from tests.corpus.readers import Read, read_responses
from tests.wire.harness import PATIENCE, backend, config_text, running

MARK = "X-Injected: 1"
TRICKS = {
    "CRLF": "%0d%0aX-Injected:%201",
    "two lines": "%0d%0a%0d%0aHTTP/1.1%20200%20OK%0d%0aX-Injected:%201%0d%0a%0d%0a",
    "bare LF": "%0aX-Injected:%201",
    "bare CR": "%0dX-Injected:%201",
    "NUL": "%00X-Injected:%201",
    "NEL": "%c2%85X-Injected:%201",
    "line separator": "%e2%80%a8X-Injected:%201",
    "escape": "%1b[2JX-Injected:%201",
    "overlong": "%c0%8aX-Injected:%201",
    "encoded twice": "%250d%250aX-Injected:%201",
    "a slash": "%2fX-Injected:%201",
    "dots": "..%2f..%2fX-Injected:%201",
    "script": "<script>X-Injected:%201</script>",
    "braces": "{id}X-Injected:%201",
    "letters": "%f0%9d%94%9eX-Injected:%201",
}
PATHS = ["/api/backends/%s/a/drain", "/api/backends/agents/%s/drain", "/api/backends/agents/a/%s", "/%s", "/api/%s"]


async def told(proxy: Proxy, request: str, body: bytes = b"") -> list[Read]:
    """The answers to this, as h11 reads all that came until the end of the connection."""
    reader, writer = await asyncio.open_connection("127.0.0.1", proxy.admin_port)
    try:
        head = f"{request}\r\nHost: localhost\r\nConnection: close\r\nContent-Length: {len(body)}\r\n\r\n"
        writer.write(head.encode() + body)
        async with asyncio.timeout(PATIENCE):
            reading = read_responses(await reader.read(), [b"POST"])
    finally:
        writer.close()
    assert not (reading.error or reading.rest or reading.waits)
    return reading.messages


@asynccontextmanager
async def proxy_with_admin() -> AsyncIterator[Proxy]:
    async with backend() as a, running(config_text(a.port)) as proxy:
        yield proxy


def check(answers: list[Read], log: str) -> None:
    (answer,) = answers
    assert 400 <= int(answer.start[0]) < 500
    assert not any(b"X-Injected" in name + value or name == b"x-injected" for name, value in answer.fields)
    assert b"\n" not in answer.body.rstrip(b"\n")
    assert b"\x1b" not in answer.body and b"\0" not in answer.body
    assert MARK not in log


@pytest.mark.parametrize("trick", TRICKS)
async def test_ids_in_a_path(trick: str, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    async with proxy_with_admin() as proxy:
        for path in PATHS:
            request = f"POST {path % TRICKS[trick]} HTTP/1.1\r\nContent-Type: application/json"
            check(await told(proxy, request, b"{}"), caplog.text)
        assert MARK not in (await proxy.metrics.render())[0].decode()
        assert not proxy.pools["agents"].everyone[0].draining


QUESTIONS: dict[str, object] = {
    "a method": {"method": f"GET /x HTTP/1.1\r\n{MARK}\r\n"},
    "a path": {"path": f"/mcp HTTP/1.1\r\n{MARK}\r\n\r\n"},
    "a path with a blank": {"path": f"/mcp HTTP/1.1 {MARK}"},
    "a bare LF in a path": {"path": f"/mcp\n{MARK}"},
    "a bare CR in a path": {"path": f"/mcp\r{MARK}"},
    "a field's name": {"headers": [[f"A: b\r\n{MARK}\r\nC", "d"]]},
    "a field's name with a colon": {"headers": [["A: b", "c"]]},
    "an empty name": {"headers": [["", MARK]]},
    "a field's value": {"headers": [["A", f"b\r\n{MARK}"]]},
    "a bare LF in a value": {"headers": [["A", f"b\n{MARK}"]]},
    "a bare CR in a value": {"headers": [["A", f"b\r{MARK}"]]},
    "NUL in a value": {"headers": [["A", f"b\0{MARK}"]]},
    "an escape in a value": {"headers": [["A", f"b\x1b[2J{MARK}"]]},
    "a fold": {"headers": [["A", f"b\r\n {MARK}"]]},
    "a key": {f"\r\n{MARK}": 1},
    "a surrogate": {"path": "/\ud800"},
    "a number": 1,
    "text": f"\r\n{MARK}",
}


@pytest.mark.parametrize("name", QUESTIONS)
async def test_a_question(name: str, caplog: pytest.LogCaptureFixture) -> None:
    """It is refused as a request's head would be, or as no question at all; the answer is one, in JSON or as text."""
    caplog.set_level(logging.DEBUG)
    body = json.dumps(QUESTIONS[name]).encode()
    async with proxy_with_admin() as proxy:
        for accept in ("application/json", "text/plain"):
            request = f"POST /api/explain HTTP/1.1\r\nContent-Type: application/json\r\nAccept: {accept}"
            (answer,) = await told(proxy, request, body)
            text = answer.body.decode()
            assert not any(line.strip().startswith("X-Injected") for line in text.splitlines())
            assert all(line.isprintable() for line in text.split("\n"))
            assert answer.start == (b"400",) or "400" in text
            assert MARK not in caplog.text


@pytest.mark.parametrize(
    "body",
    [b"", b"{", b"\xff\xfe", b"[" * 100_000, b'{"path":' * 20_000, b'{"a":1e999}', b"NaN", b"1" * 5000, b'"\\ud800"'],
)
async def test_a_body_that_is_no_question(body: bytes) -> None:
    async with proxy_with_admin() as proxy:
        (answer,) = await told(proxy, "POST /api/explain HTTP/1.1\r\nContent-Type: application/json", body)
        assert answer.start == (b"400",)
        assert json.loads(answer.body)["error"]
