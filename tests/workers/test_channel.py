"""Messages between two processes: whole and in order however they are cut, both ways, and one word of the end."""

import asyncio
import itertools
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

import pytest
from hypothesis import given
from hypothesis import strategies as st

from proxy.workers.channel import Channel, Message
from tests.wire.harness import until

MESSAGES: list[Message] = [
    {"kind": "ready"},
    {"kind": "text", "text": "ü \ud800 \n\0 𝄞", "none": None, "list": [1, 2.5, True, []]},
    {"kind": "empty", "": ""},
    {"kind": "large", "text": "x" * 70_000},
]
LARGE = 8_000_000  # characters; more than sockets hold


@dataclass
class End:
    """One end of a channel, and what it got."""

    received: list[Message] = field(default_factory=list)
    lost: int = 0

    def __post_init__(self) -> None:
        self.channel = Channel(self.received.append, self._lose)

    def _lose(self) -> None:
        self.lost += 1


class Sent:
    """A transport that keeps what is written."""

    def __init__(self) -> None:
        self.data = b""

    def is_closing(self) -> bool:
        return False

    def write(self, data: bytes) -> None:
        self.data += data


def sent(messages: list[Message]) -> bytes:
    """What a channel writes for these."""
    end, transport = End(), Sent()
    end.channel.connection_made(transport)  # type: ignore[arg-type]  # all of a transport that sending needs
    for message in messages:
        end.channel.send(message)
    return transport.data


@asynccontextmanager
async def pair() -> AsyncIterator[tuple[End, End]]:
    """Two ends that are open."""
    ends = End(), End()
    for end, sock in zip(ends, socket.socketpair(), strict=True):
        await end.channel.open(sock)
    try:
        yield ends
    finally:
        for end in ends:
            end.channel.close()
        await until(lambda: all(end.lost for end in ends))


@pytest.mark.parametrize("size", [1, 2, 3, 7, 1000, 10**9])
def test_messages_arrive_whole_however_they_are_cut(size: int) -> None:
    data, end = sent(MESSAGES), End()
    for start in range(0, len(data), size):
        end.channel.data_received(data[start : start + size])
    assert end.received == MESSAGES


@given(st.lists(st.integers(0, 300), max_size=8))
def test_messages_arrive_whole_wherever_they_are_cut(cuts: list[int]) -> None:
    data, end = sent(MESSAGES[:3] * 2), End()
    places = sorted({min(cut, len(data)) for cut in cuts} | {0, len(data)})
    for start, stop in itertools.pairwise(places):
        end.channel.data_received(data[start:stop])
    assert end.received == MESSAGES[:3] * 2


def test_a_message_is_told_as_soon_as_it_is_whole_and_not_before() -> None:
    data, end = sent(MESSAGES[:1]), End()
    end.channel.data_received(data[:-1])
    assert end.received == []
    end.channel.data_received(data[-1:] + data[:3])
    assert end.received == MESSAGES[:1]


async def test_both_ends_speak_at_once_and_large_messages_keep_their_order() -> None:
    async with pair() as (one, other):
        for end, text in ((one, "a"), (other, "b")):
            end.channel.send({"kind": "first"})
            end.channel.send({"kind": "large", "text": text * LARGE})
            end.channel.send({"kind": "last"})
        await until(lambda: len(one.received) == len(other.received) == 3)
        for end, text in ((one, "b"), (other, "a")):
            assert [message["kind"] for message in end.received] == ["first", "large", "last"]
            assert end.received[1]["text"] == text * LARGE


async def test_what_was_sent_before_the_end_arrives_and_the_end_is_told_once() -> None:
    async with pair() as (one, other):
        one.channel.send({"kind": "large", "text": "x" * LARGE})
        one.channel.send({"kind": "last"})
        one.channel.close()
        one.channel.close()
        await until(lambda: one.lost and other.lost)
        assert [message["kind"] for message in other.received] == ["large", "last"]
        other.channel.send({"kind": "nobody"})
        other.channel.close()
        await asyncio.sleep(0)
        assert (one.lost, other.lost, one.received) == (1, 1, [])


async def test_before_it_is_open_nothing_is_sent_and_closing_does_nothing() -> None:
    end = End()
    end.channel.send({"kind": "early"})
    end.channel.close()
    assert (end.received, end.lost) == ([], 0)


async def test_a_message_may_be_answered_while_others_wait() -> None:
    async with pair() as (one, _):
        ours, theirs = socket.socketpair()
        answering: list[Channel] = []
        answering.append(
            Channel(lambda message: answering[0].send({"kind": "answer", "to": message["number"]}), lambda: None)
        )
        asking = End()
        await answering[0].open(theirs)
        await asking.channel.open(ours)
        for number in range(100):
            asking.channel.send({"kind": "question", "number": number})
        await until(lambda: len(asking.received) == 100)
        assert [message["to"] for message in asking.received] == list(range(100))
        asking.channel.close()
        await until(lambda: asking.lost)
        assert one.received == []
