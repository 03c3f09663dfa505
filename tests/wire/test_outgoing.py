"""A request on its way out: what is written to the backend, and what is kept to be sent later or again."""

from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest

from proxy.routing.backends import Backend
from proxy.routing.balancing import RoundRobin
from proxy.routing.pools import Pool
from proxy.routing.routes import Match, Pattern, Route
from proxy.wire.destination import Destination, Lane
from proxy.wire.outgoing import KEPT_LIMIT, Outgoing
from tests.wire.request_heads import FROM_CLIENT, read

BODY = b'{"jsonrpc":"2.0","id":1,"method":"tools/call"}'
LENGTH, CHUNKED = b"Content-Length: %d" % len(BODY), b"Transfer-Encoding: chunked"


def of(*lines: bytes, start: bytes = b"POST /mcp?x=1 HTTP/1.1", host: bytes | None = b"Host: mcp.test") -> Outgoing:
    client: Any = SimpleNamespace(forwarded=FROM_CLIENT)
    return Outgoing(client, read(*lines, start=start, host=host))


def pieces(size: int) -> Iterator[bytes]:
    for at in range(0, len(BODY), size):
        yield BODY[at : at + size]


def unchunked(data: bytes) -> bytes:
    body = b""
    while True:
        size, _, data = data.partition(b"\r\n")
        if not int(size, 16):
            assert data == b"\r\n"
            return body
        body, data = body + data[: int(size, 16)], data[int(size, 16) + 2 :]


@pytest.mark.parametrize("size", [1, 2, 3, 7, len(BODY)])
@pytest.mark.parametrize("before", [0, 1, 3, 100])
@pytest.mark.parametrize("keeps", [False, True])
@pytest.mark.parametrize("framing", [LENGTH, CHUNKED])
def test_the_body_leaves_whole_however_much_of_it_came_before_there_was_a_backend(
    size: int, before: int, keeps: bool, framing: bytes
) -> None:
    outgoing = of(framing)
    outgoing.keeps = keeps
    for index, piece in enumerate(pieces(size)):
        if index == before:
            outgoing.pass_on_kept()
        if index < before:
            outgoing.keep(piece)
        else:
            outgoing.pass_on(piece)
    if before >= len(list(pieces(size))):
        outgoing.pass_on_kept()
    outgoing.end()
    out = b"".join(outgoing.out)
    assert (unchunked(out) if framing is CHUNKED else out) == BODY
    assert outgoing.bytes_in == len(BODY)
    assert outgoing.take_whole() == (BODY if keeps else b"")
    assert outgoing.take_whole() == b"", "it is kept here no longer"


def test_what_was_kept_is_sent_again() -> None:
    outgoing = of(LENGTH)
    outgoing.keeps = True
    outgoing.keep(BODY[:5])
    outgoing.pass_on_kept()
    outgoing.pass_on(BODY[5:])
    outgoing.out = []  # that backend failed
    outgoing.pass_on_kept()
    assert b"".join(outgoing.out) == BODY
    assert outgoing.keeps


@pytest.mark.parametrize(
    ("before", "after", "keeps"),
    [
        (KEPT_LIMIT, 0, True),
        (KEPT_LIMIT + 1, 0, False),
        (0, KEPT_LIMIT, True),
        (0, KEPT_LIMIT + 1, False),
        (KEPT_LIMIT, 1, False),
    ],
)
def test_only_so_much_is_kept_once_it_was_sent(before: int, after: int, keeps: bool) -> None:
    outgoing = of(b"Content-Length: %d" % (before + after))
    outgoing.keeps = True
    if before:
        outgoing.keep(b"x" * before)
        outgoing.pass_on_kept()
    if after:
        outgoing.pass_on(b"y" * after)
    assert b"".join(outgoing.out) == b"x" * before + b"y" * after
    assert outgoing.keeps is keeps
    assert sum(map(len, outgoing.kept)) == (before + after if keeps else 0)


def test_no_more_should_be_read_while_so_much_waits_for_a_backend() -> None:
    outgoing = of(CHUNKED)
    outgoing.keep(b"x" * KEPT_LIMIT)
    assert not outgoing.is_full
    outgoing.keep(b"x")
    assert outgoing.is_full
    outgoing.pass_on_kept()
    assert not outgoing.is_full


@pytest.mark.parametrize(
    ("path", "own_host", "first", "host"),
    [
        (None, False, b"POST /b?x=1 HTTP/1.1", b"Host: mcp.test"),
        (None, True, b"POST /b?x=1 HTTP/1.1", b"Host: 127.0.0.1:8000"),
        ("/mcp*", False, b"POST /mcp?x=1 HTTP/1.1", b"Host: mcp.test"),
    ],
)
def test_the_head_names_the_backend_as_route_and_pool_want_it(
    path: str | None, own_host: bool, first: bytes, host: bytes
) -> None:
    pool = Pool("agents", [Backend("b", "127.0.0.1", 8000, path="/b")], policy=RoundRobin())
    match = Match() if path is None else Match(path=Pattern(path))
    lane = Lane(pool, {}, own_host=own_host, owner_wait=1.0)
    place = Destination(Route("rest", match, {"agents": 1}), lane, pool.members[0].chosen("balance"), "none")
    lines = of(LENGTH).head_for(place).split(b"\r\n")
    assert lines[:2] == [first, host]
    assert LENGTH in lines
    whole = of(CHUNKED).head_for(place, 7).split(b"\r\n")
    assert b"Content-Length: 7" in whole and CHUNKED not in whole
