"""One story told twice: by a proxy whose usual requests take the short walk, and by one where all take the long one."""

from collections import Counter
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import AsyncExitStack, ExitStack, contextmanager
from dataclasses import asdict, dataclass, field
from functools import partial
from typing import Any, cast
from unittest import mock

from proxy.access_log import AccessLog
from proxy.app import Proxy
from proxy.config import parse
from proxy.records import RequestRecord
from proxy.routing.pools import Pool
from proxy.snapshot import Histogram
from proxy.wire.express import Express
from proxy.wire.framing import Chunks
from proxy.wire.request_frame import Frame
from proxy.wire.response_reader import ResponseReader
from tests.wire.harness import (
    BackendSide,
    Client,
    Message,
    ScriptedBackend,
    backend,
    client,
    config_text,
    running,
    until,
)

Script = Callable[[BackendSide], Awaitable[None]]
Text = Callable[..., str]
"""A configuration for backends on these ports."""

COUNTED = (
    *("requests", "responses", "decisions", "searches", "rejected", "bytes_in", "bytes_out", "hangups", "unlearned"),
    *("retries", "withheld", "ejections", "streams", "queued", "in_flight", "pins"),
)
TIMED = ("durations", "first_bytes")


class Recorder:
    """Stands for the access log, and keeps what it is told."""

    def __init__(self) -> None:
        self.records: list[RequestRecord] = []

    def record(self, record: RequestRecord) -> None:
        self.records.append(record)

    def flush(self) -> None:
        pass

    def close(self) -> None:
        pass


class World:
    """A proxy, its backends, and what clients have seen."""

    def __init__(self, proxy: Proxy, backends: list[ScriptedBackend], stack: AsyncExitStack, text: Text) -> None:
        self.proxy = proxy
        self.backends = backends
        self.seen: list[object] = []
        self._stack = stack
        self._text = text

    async def client(self) -> Client:
        return await self._stack.enter_async_context(client(self.proxy.port))

    async def ask(self, c: Client, *requests: bytes) -> Message:
        """Each when the one before is answered. What comes is seen."""
        for request in requests:
            c.send(request)
            answer = await self.sees(c, to_head=request.startswith(b"HEAD"))
        return answer

    async def sees(self, c: Client, *, to_head: bool = False) -> Message:
        """Takes the next answer."""
        answer = await c.response(to_head=to_head)
        self.seen.append((answer.first, fields_of(answer.head), answer.body))
        return answer

    @property
    def count(self) -> int:
        """Requests that backends have got."""
        return sum(len(each.requests) for each in self.backends)

    async def sent(self, count: int) -> None:
        """Waits until backends have got so many requests."""
        await until(lambda: self.count >= count)

    def apply(self, text: Text) -> None:
        """Another configuration for the same backends."""
        self.proxy.apply(parse(text(*(each.port for each in self.backends)), "test.yaml", {}))


Story = Callable[[World], Awaitable[None]]


def fields_of(head: bytes) -> list[bytes]:
    """The fields of a head in any order, names in lower case."""
    lines = [line.partition(b":") for line in head.split(b"\r\n")[1:] if line]
    return sorted(name.lower() + b": " + value.strip() for name, _, value in lines)


@dataclass
class Told:
    """What came of a story."""

    seen: list[object]
    sent: list[list[object]]
    numbers: dict[str, object]
    records: list[dict[str, Any]] = field(default_factory=list)
    walks: Counter[str] = field(default_factory=Counter)
    """`alike`: requests told by their likeness; `short`: those of them that were sent by the short walk; `whole`:
    answers told by their likeness; `chunk`: chunks that passed as they came."""


@contextmanager
def walking(short: bool) -> Iterator[Counter[str]]:
    """Counts the short ways that are taken, or closes all of them."""
    counts: Counter[str] = Counter()

    def counting(name: str, method: Callable[..., Any]) -> Callable[..., Any]:
        def counted(*args: Any) -> Any:
            found = method(*args)
            counts[name] += name == "short" or found is not None
            return found

        return counted

    ways: dict[str, tuple[type, str]] = {
        "short": (Express, "send"),
        "alike": (Frame, "alike"),
        "whole": (ResponseReader, "alike"),
        "chunk": (Chunks, "content_of"),
    }
    with ExitStack() as patches:
        for name, (owner, method) in ways.items():
            if short:
                patches.enter_context(mock.patch.object(owner, method, counting(name, getattr(owner, method))))
            elif name != "short":
                patches.enter_context(mock.patch.object(owner, method, lambda *_: None))
        yield counts


async def tell(story: Story, scripts: Sequence[Script], text: Text, *, short: bool, logged: bool) -> Told:
    """Runs a story. At its end nothing is in flight, and nobody waits."""
    async with AsyncExitStack() as stack:
        backends = [await stack.enter_async_context(backend(script)) for script in scripts]
        ports = [each.port for each in backends]
        walks = stack.enter_context(walking(short))
        proxy = await stack.enter_async_context(running(text(*ports)))
        recorder = Recorder()
        if logged:
            proxy.counts.access_log, proxy.counts.logs = cast(AccessLog, recorder), True
        clients = await stack.enter_async_context(AsyncExitStack())
        world = World(proxy, backends, clients, text)
        await story(world)
        await clients.aclose()
        await until(lambda: not proxy.clients)
        for pool in proxy.pools.values():
            await until(partial(idle, pool))
            assert (pool.queue.taken, len(pool.queue)) == (0, 0)
            assert all(member.in_flight == member.working == 0 for member in pool.everyone)
        sent = [[as_sent(message, ports) for message in each.requests] for each in backends]
        return Told(world.seen, sent, numbers_of(proxy), [*map(as_told, recorder.records)], walks)


def idle(pool: Pool) -> bool:
    return not pool.in_flight


def as_sent(message: Message, ports: list[int]) -> object:
    """A request as its backend saw it, whatever the ports."""
    fields = fields_of(message.head)
    for number, port in enumerate(ports):
        fields = [line.replace(b":%d" % port, b":#%d" % number) for line in fields]
    return message.first, fields, message.body


def as_told(record: RequestRecord) -> dict[str, Any]:
    """A record, times aside."""
    return asdict(record) | {"duration": record.duration >= 0, "first_byte": record.first_byte >= 0}


def numbers_of(proxy: Proxy) -> dict[str, object]:
    """The counts, times aside."""
    snapshot = proxy.counts.snapshot()
    numbers: dict[str, object] = {name: dict(getattr(snapshot, name)) for name in COUNTED}
    for name in TIMED:
        histograms: dict[tuple[str, ...], Histogram] = getattr(snapshot, name)
        numbers[name] = {values: sum(histogram.counts) for values, histogram in histograms.items()}
        assert all(histogram.total >= 0 for histogram in histograms.values())
    return numbers


async def told_alike(story: Story, *scripts: Script, text: Text = config_text) -> Counter[str]:
    """Sees to it that nobody can tell from anything which walk was taken; returns how often which was."""
    long = await tell(story, scripts, text, short=False, logged=True)
    for logged in (True, False):
        found = await tell(story, scripts, text, short=True, logged=logged)
        assert found.seen == long.seen
        assert found.sent == long.sent
        assert found.numbers == long.numbers
        assert found.records == (long.records if logged else [])
    return found.walks
