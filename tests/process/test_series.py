"""After a hundred thousand requests whose names, methods and ids are all new, /metrics has the series it had before.

The few kinds of requests of tests/process/test_metrics.py, by the thousand: whatever clients may choose is chosen at
random, and every kind comes once before the series are counted. MCP_SERIES_REQUESTS sets another number.
"""

import asyncio
import json
import os
import random
from collections.abc import Callable, Iterator, Mapping
from itertools import islice
from typing import cast

from bench.framing import Message, MessageReader, field
from proxy.routing.ownership import session_tag
from tests.process.harness import ProxyProcess, config_text, proxy_process
from tests.wire.task_backend import UNKNOWN, created, state

REQUESTS = int(os.environ.get("MCP_SERIES_REQUESTS", "100000"))
CALLERS = 8  # connections at a time, of one address: no search is refused
BATCH = 50  # requests that are written at once, and answered one after the other
LIMIT = 120.0  # seconds; it takes a quarter of that
MODERN = "MCP-Protocol-Version: 2026-07-28"
VERBS = ("POST", "GET", "DELETE", "PUT", "PATCH", "OPTIONS")
ORIGIN = "https://app.test"
REASONS = ("no_route", "session_owner_gone", "malformed_header", "duplicate_header", "forbidden_origin", "bad_request")


class Words:
    """Texts that nobody has used before, in the kinds of requests that carry them."""

    def __init__(self, seed: int) -> None:
        self._random = random.Random(seed)
        self.kinds: Mapping[str, tuple[int, Callable[[], bytes], int]] = {
            # How often, what, and the status it must get.
            "a call of a tool": (26, self.call, 200),
            "a task that is made": (4, self.made, 200),
            "a method": (12, lambda: self.post(MODERN, f"Mcp-Method: {self()}/{self()}", f"Mcp-Name: {self()}"), 200),
            "a method of tasks": (
                4,
                lambda: self.post(MODERN, f"Mcp-Method: tasks/{self()}", f"Mcp-Name: {self()}"),
                200,
            ),
            "an older client's method": (8, lambda: self.post(f"Mcp-Method: {self()}", f"Mcp-Name: {self()}"), 200),
            "a version": (8, lambda: self.post(f"MCP-Protocol-Version: {self()}", "Mcp-Method: tools/call"), 200),
            "a session that is known": (6, lambda: self.post(f"Mcp-Session-Id: {self.tag}.{self()}"), 200),
            "a session": (8, lambda: self.post(f"Mcp-Session-Id: {self()}.{self()}"), 404),
            "a task that is known": (4, lambda: self.task("get", self._random.choice(self.known)), 200),
            "a task": (2, lambda: self.task("get", self()), 200),
            "a value that does not decode": (4, lambda: self.task("update", f"=?base64?{self()}!?="), 400),
            "a header that comes twice": (4, lambda: self.call(f"Mcp-Name: {self()}"), 400),
            "a path": (6, lambda: self.post(MODERN, target=f"/{self()}/{self()}?{self()}={self()}"), 404),
            "an origin": (3, lambda: self.call(f"Origin: https://{self()}.test"), 403),
            "a verb": (1, lambda: self.post(MODERN, f"Mcp-Method: {self()}", verb=self._random.choice(VERBS)), 200),
        }
        self.tag = session_tag("agents", "a")
        self.known: list[str] = []
        """Tasks whose making was answered; a poll that comes sooner would be searched for."""

    def __call__(self) -> str:
        return f"{self._random.getrandbits(64):016x}"

    def stream(self) -> Iterator[tuple[bytes, int]]:
        """Requests without end, each with the status it must get: one of each kind, then at random."""
        kinds = list(self.kinds.values())
        yield from ((make(), status) for _, make, status in kinds)
        weights = [weight for weight, _, _ in kinds]
        while True:
            for _, make, status in self._random.choices(kinds, weights, k=1000):
                yield make(), status

    def call(self, *lines: str) -> bytes:
        who = f"Authorization: Bearer {self()}", f"Mcp-Param-{self()}: {self()}", f"Mcp-Session-Id: {self()}"
        return self.post(MODERN, "Mcp-Method: tools/call", f"Mcp-Name: {self()}", *who, *lines)

    def made(self) -> bytes:
        return self.post(MODERN, "Mcp-Method: tools/call", f"Mcp-Name: made-{self()}")

    def task(self, method: str, name: str) -> bytes:
        return self.post(MODERN, f"Mcp-Method: tasks/{method}", f"Mcp-Name: {name}")

    def post(self, *lines: str, target: str = "/mcp", verb: str = "POST") -> bytes:
        head = f"{verb} {target} HTTP/1.1", f"Host: {self()}.test", *lines, "Content-Length: 2", "", "{}"
        return "\r\n".join(head).encode()


class Answering(asyncio.Protocol):
    """A connection of a backend, which answers at once: it knows the tasks that it makes."""

    def __init__(self) -> None:
        self._reader = MessageReader()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)  # uvloop's have the interface, not the base class

    def data_received(self, data: bytes) -> None:
        for request in self._reader.feed(data):
            body = answer(request.head)
            self._transport.write(
                b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n%b" % (len(body), body)
            )


def answer(head: bytes) -> bytes:
    method, name = field(head, b"mcp-method") or b"", (field(head, b"mcp-name") or b"").decode()
    if name.startswith("made-"):
        return created(name) if method == b"tools/call" else state(name)
    if method == b"tasks/get":
        return UNKNOWN
    return json.dumps({"jsonrpc": "2.0", "id": 1, "result": {"resultType": "complete", "echo": name}}).encode()


class Caller(asyncio.Protocol):
    """A client's connection, on which requests are asked a batch at a time."""

    def __init__(self) -> None:
        self._reader = MessageReader()
        self._answers: list[Message] = []
        self._expected = 0
        self._complete: asyncio.Future[None] | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast(asyncio.Transport, transport)

    def data_received(self, data: bytes) -> None:
        self._answers += self._reader.feed(data)
        if len(self._answers) == self._expected and self._complete is not None and not self._complete.done():
            self._complete.set_result(None)

    def connection_lost(self, exc: Exception | None) -> None:
        if self._complete is not None and not self._complete.done():
            self._complete.set_exception(ConnectionError("the proxy closed the connection"))

    async def ask(self, requests: list[bytes]) -> list[int]:
        """The statuses of the answers, in order."""
        self._answers, self._expected = [], len(requests)
        self._complete = asyncio.get_running_loop().create_future()
        self.transport.write(b"".join(requests))
        await self._complete
        return [int(answer.head[9:12]) for answer in self._answers]


async def ask_all(proxy: ProxyProcess, requests: Iterator[tuple[bytes, int]]) -> int:
    """Asks all of them, some at a time, and returns how many came."""
    asked = 0

    async def call() -> None:
        nonlocal asked
        _, caller = await asyncio.get_running_loop().create_connection(Caller, "127.0.0.1", proxy.port)
        while batch := list(islice(requests, BATCH)):
            statuses = await caller.ask([request for request, _ in batch])
            for (request, expected), status in zip(batch, statuses, strict=True):
                assert status == expected, request
            asked += len(batch)
        caller.transport.close()

    async with asyncio.timeout(LIMIT), asyncio.TaskGroup() as group:
        for _ in range(CALLERS):
            group.create_task(call())
    return asked


async def ask_what_ends_a_connection(proxy: ProxyProcess, words: Words, times: int) -> None:
    """Requests that do not parse: a verb that there is none, and a target that could be read in two ways."""
    for verb, target in ((words()[:8].upper(), "/mcp"), ("POST", f"/{words()}/../{words()}")) * times:
        reader, writer = await asyncio.open_connection("127.0.0.1", proxy.port)
        writer.write(words.post(target=target, verb=verb))
        assert (await asyncio.wait_for(reader.read(), LIMIT))[9:12] == b"400"
        writer.close()


async def test_random_names_methods_and_ids_make_no_series() -> None:
    loop = asyncio.get_running_loop()
    words = Words(seed=7)
    listen = {"address": "127.0.0.1:0", "allowed_origins": [ORIGIN]}
    a = await loop.create_server(Answering, "127.0.0.1", 0)
    b = await loop.create_server(Answering, "127.0.0.1", 0)
    ports = [server.sockets[0].getsockname()[1] for server in (a, b)]
    async with a, b, proxy_process(config_text(*ports, listen=listen)) as proxy:
        making = [words.made() for _ in range(100)]
        await ask_all(proxy, ((request, 200) for request in making))
        words.known += [(field(request, b"mcp-name") or b"").decode() for request in making]
        stream = words.stream()
        await ask_all(proxy, islice(stream, 2000))
        await ask_what_ends_a_connection(proxy, words, times=1)
        before = await proxy.series()
        assert await ask_all(proxy, islice(stream, REQUESTS)) == REQUESTS
        await ask_what_ends_a_connection(proxy, words, times=20)
        after = await proxy.series()
        assert list(after.keys() ^ before.keys())[:3] == []

        # They came, and were what they were meant to be.
        grown = {key: after[key] - before[key] for key in after}
        count = sum(value for (name, _), value in grown.items() if name == "mcp_proxy_requests_total")
        assert count == REQUESTS + 40
        for name, label in (
            ("decisions_total", ("source", "pin")),
            ("decisions_total", ("source", "tag")),
            ("decisions_total", ("source", "balance")),
            ("searches_total", ("outcome", "unknown")),
            *(("rejected_total", ("reason", reason)) for reason in REASONS),
        ):
            some = [value for (key, labels), value in grown.items() if key == f"mcp_proxy_{name}" and label in labels]
            assert sum(some) > 0, (name, label)
