"""Clients that speak TLS: their requests, their certificates, and how they leave."""

import asyncio
import contextlib
import socket
import ssl
import struct
import time
from pathlib import Path

import pytest

from proxy.wire import handshakes
from tests.certificates import Authority
from tests.wire.harness import (
    PATIENCE,
    BackendSide,
    Client,
    backend,
    call,
    chunks,
    client,
    config_text,
    metric,
    post,
    read_head,
    running,
    until,
)
from tests.wire.tls_sides import Place, place, secure_client


@pytest.fixture
def here(tmp_path: Path) -> Place:
    return place(tmp_path)


async def test_request_over_tls_is_told_to_the_backend_as_https(here: Place) -> None:
    async with backend() as behind, running(config_text(behind.port, listen=here.listen)) as proxy:
        async with secure_client(proxy.port, here.client) as asking:
            answers = [await asking.ask(call()) for _ in range(3)]
    assert [answer.status for answer in answers] == [200] * 3
    assert behind.requests[0].get("X-Forwarded-Proto") == "https"
    assert behind.connections == 1


@pytest.mark.parametrize("version", (ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3))
async def test_both_versions_are_spoken(here: Place, version: ssl.TLSVersion) -> None:
    context = here.client
    context.minimum_version = context.maximum_version = version
    context.set_alpn_protocols(["h2", "http/1.1"])
    async with backend() as behind, running(config_text(behind.port, listen=here.listen)) as proxy:
        async with secure_client(proxy.port, context) as asking:
            assert (await asking.ask(call())).status == 200
            session = asking.writer.get_extra_info("ssl_object")
            assert session.version() == version.name.replace("_", ".")
            assert session.selected_alpn_protocol() == "http/1.1"


async def test_older_version_is_refused(here: Place) -> None:
    context = ssl.create_default_context()
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    context.set_ciphers("ALL:@SECLEVEL=0")
    with pytest.warns(DeprecationWarning):
        context.minimum_version = context.maximum_version = ssl.TLSVersion.TLSv1_1
    async with running(config_text(1, listen=here.listen)) as proxy:
        with pytest.raises(ssl.SSLError, match=r"(?i)protocol version"):
            async with secure_client(proxy.port, context):
                pass
        await until(lambda: proxy.counts.snapshot().handshakes_failed["version",] == 1)
        assert await metric(proxy, "tls_handshake_failures_total", reason="version") == 1


async def test_client_of_http_2_alone_gets_no_protocol_and_its_preface_a_400(here: Place) -> None:
    context = here.client
    context.set_alpn_protocols(["h2"])
    async with running(config_text(1, listen=here.listen)) as proxy:
        async with secure_client(proxy.port, context) as asking:
            assert asking.writer.get_extra_info("ssl_object").selected_alpn_protocol() is None
            assert (await asking.ask(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n")).status in (400, 501)


async def test_plain_http_is_answered_and_closed(here: Place) -> None:
    async with running(config_text(1, listen=here.listen)) as proxy:
        async with client(proxy.port) as asking:
            answer = await asking.ask(call())
            assert (answer.status, answer.get("Mcp-Proxy-Error")) == (400, "bad_request")
            assert await asking.rest() == b""
        await until(lambda: proxy.counts.snapshot().handshakes_failed["plain_http",] == 1)


async def test_client_that_does_not_trust_us_is_counted_apart(here: Place, tmp_path: Path) -> None:
    async with running(config_text(1, listen=here.listen)) as proxy:
        with pytest.raises(ssl.SSLCertVerificationError):
            async with secure_client(proxy.port, Authority(tmp_path / "other").trusting()):
                pass
        failed = proxy.counts.snapshot
        await until(lambda: sum(failed().handshakes_failed.values()) == 1)
        assert {reason for (reason,) in failed().handshakes_failed} <= {"refused", "closed"}
        async with secure_client(proxy.port, here.client) as asking:
            assert (await asking.ask(call())).status == 502


async def test_garbage_harms_nobody(here: Place) -> None:
    async with backend() as behind, running(config_text(behind.port, listen=here.listen)) as proxy:
        for garbage in (b"\x16\x03\x01\xff\xff" + b"x" * 70_000, b"\0" * 100, b"\x16\x03\x01\0\x05hello"):
            async with client(proxy.port) as asking:
                asking.send(garbage)
                with contextlib.suppress(ConnectionError):
                    await asking.rest()
        async with secure_client(proxy.port, here.client) as asking:
            assert (await asking.ask(call())).status == 200
        await until(lambda: sum(proxy.counts.snapshot().handshakes_failed.values()) == 3)


# ---- client certificates
async def test_client_certificate_is_required_where_a_ca_is_named(here: Place, tmp_path: Path) -> None:
    known, foreign = here.authority.sign("client", "caller"), Authority(tmp_path / "other").sign("foreign", "caller")
    listen = here.listening(f", client_ca: {here.authority.file}")
    async with backend() as behind, running(config_text(behind.port, listen=listen)) as proxy:
        async with secure_client(proxy.port, here.authority.trusting(known)) as asking:
            assert (await asking.ask(call())).status == 200
        for context in (here.client, here.authority.trusting(foreign)):
            with pytest.raises((ssl.SSLError, ConnectionError)):  # an alert that comes after our own end in TLS 1.3
                async with secure_client(proxy.port, context) as asking:
                    await asking.ask(call())
        await until(lambda: proxy.counts.snapshot().handshakes_failed["client_certificate",] == 2)
    assert len(behind.requests) == 1


# ---- bodies
async def test_large_bodies_pass_both_ways_with_back_pressure(here: Place) -> None:
    size = 8_000_000
    body = bytes(range(250)) * (size // 250)

    async def echo(side: BackendSide) -> None:
        got = await side.request()
        side.send(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % len(got.body))
        side.send(got.body)
        await side.writer.drain()

    async with backend(echo) as behind, running(config_text(behind.port, listen=here.listen)) as proxy:
        async with secure_client(proxy.port, here.client) as asking:
            asking.send(call(body=body))
            answer = await asking.response()
    assert answer.body == body


async def test_client_that_reads_nothing_holds_its_backend(here: Place) -> None:
    """What the proxy keeps for it is bounded, and what is left arrives whole once it reads."""
    sent, size = 0, 64 * 1024

    async def flood(side: BackendSide) -> None:
        nonlocal sent
        await side.request()
        side.send(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n")
        for _ in range(400):  # 25 MB
            side.send(b"%x\r\n%b\r\n" % (size, b"z" * size))
            await side.writer.drain()
            sent += size
        side.send(b"0\r\n\r\n")

    async with backend(flood) as behind, running(config_text(behind.port, listen=here.listen)) as proxy:
        sock = socket.create_connection(("127.0.0.1", proxy.port))
        sock.setblocking(False)
        reader, writer = await asyncio.open_connection(
            sock=sock, ssl=here.client, server_hostname="mcp.test", limit=size
        )
        writer.write(call())
        await read_head(reader)
        last = -1
        while last != sent:
            last = sent
            await asyncio.sleep(0.2)
        assert sent < 400 * size
        total = 0
        async for chunk in chunks(reader):
            total += len(chunk)
        assert total == 400 * size
        writer.close()


async def test_answer_to_a_body_that_nobody_reads_arrives(here: Place) -> None:
    """The connection closes in two steps: what the client still sends must not cost it the answer."""
    async with running(config_text(1, listen=here.listen)) as proxy:
        async with secure_client(proxy.port, here.client) as asking:
            asking.send(b"POST /nowhere HTTP/1.1\r\nHost: mcp.test\r\nContent-Length: 3000000\r\n\r\n")
            asking.send(b"x" * 3_000_000)
            answer = await asking.response()
            assert answer.status == 404


async def test_pipelined_requests_are_answered_in_order(here: Place) -> None:
    async def count(side: BackendSide) -> None:
        while True:
            got = await side.request()
            side.answer(got.body)

    async with backend(count) as behind, running(config_text(behind.port, listen=here.listen)) as proxy:
        async with secure_client(proxy.port, here.client) as asking:
            asking.send(b"".join(call(body=b"%d" % number) for number in range(100)))
            got = [(await asking.response()).body for _ in range(100)]
    assert got == [b"%d" % number for number in range(100)]


async def test_request_byte_by_byte_in_records_of_its_own(here: Place) -> None:
    async with backend() as behind, running(config_text(behind.port, listen=here.listen)) as proxy:
        async with secure_client(proxy.port, here.client) as asking:
            for byte in call():
                asking.send(bytes([byte]))
                await asyncio.sleep(0)
            assert (await asking.response()).status == 200


# ---- leaving
def _reset(asking: Client) -> None:
    sock = asking.writer.get_extra_info("socket")
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    asking.writer.transport.abort()


@pytest.mark.parametrize(
    "leave",
    (
        pytest.param(lambda asking: asking.writer.close(), id="close_notify"),
        pytest.param(lambda asking: asking.writer.transport.abort(), id="cut"),
        pytest.param(_reset, id="reset"),
    ),
)
async def test_hang_up_on_a_quiet_stream_reaches_the_backend(here: Place, leave: object) -> None:
    gone: list[float] = []

    async def stream(side: BackendSide) -> None:
        await side.request()
        side.send(b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n")
        side.send(b"b\r\ndata: one\n\n\r\n")
        await side.peer_closes()
        gone.append(time.monotonic())

    async with backend(stream) as behind, running(config_text(behind.port, listen=here.listen)) as proxy:
        async with secure_client(proxy.port, here.client) as asking:
            asking.send(call())
            await read_head(asking.reader)
            await asyncio.wait_for(asking.reader.readuntil(b"one\n\n\r\n"), PATIENCE)
            left = time.monotonic()
            assert callable(leave)
            leave(asking)
            await until(lambda: gone)
            assert gone[0] - left < 1
        await until(lambda: not proxy.clients)


async def test_client_that_left_while_nothing_was_read_from_it_is_noticed(here: Place) -> None:
    """Its request's body is held back by a backend that reads nothing."""
    gone: list[float] = []

    async def deaf(side: BackendSide) -> None:
        await side.reader.readuntil(b"\r\n\r\n")
        await until(lambda: gone)

    async with backend(deaf) as behind, running(config_text(behind.port, listen=here.listen)) as proxy:
        async with secure_client(proxy.port, here.client) as asking:
            asking.send(b"POST /mcp HTTP/1.1\r\nHost: mcp.test\r\nContent-Length: 50000000\r\n\r\n" + b"x" * 30_000_000)
            await until(lambda: any(not served._reading for served in proxy.clients))
            _reset(asking)
        await until(lambda: not proxy.clients)
        gone.append(1)


async def test_response_that_is_cut_is_not_announced_as_ended(here: Place) -> None:
    async def half(side: BackendSide) -> None:
        await side.request()
        side.send(b"HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\nhalf")
        await side.writer.drain()

    async with backend(half) as behind, running(config_text(behind.port, listen=here.listen)) as proxy:
        async with secure_client(proxy.port, here.client) as asking:
            asking.send(call())
            with pytest.raises(asyncio.IncompleteReadError):
                await asking.response()


# ---- handshakes that do not end
async def test_half_open_handshakes_are_cut_and_delay_nobody(here: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(handshakes, "TIME_LIMIT", 1.5)
    async with backend() as behind, running(config_text(behind.port, listen=here.listen)) as proxy:
        async with contextlib.AsyncExitStack() as stack:
            began = time.monotonic()
            idle = [await stack.enter_async_context(client(proxy.port)) for _ in range(500)]
            for index, half_open in enumerate(idle):
                if index % 2:  # the others say nothing at all
                    half_open.send(b"\x16\x03\x01\x02\x00\x01")
            async with secure_client(proxy.port, here.client) as asking:
                asked = time.monotonic()
                assert (await asking.ask(call())).status == 200
                assert time.monotonic() - asked < 1
            ends = [half_open.rest() for half_open in idle]
            assert await asyncio.gather(*ends) == [b""] * 500
            assert time.monotonic() - began < 4
        await until(lambda: proxy.counts.snapshot().handshakes_failed["timeout",] == 500)


async def test_oldest_handshake_gives_way_where_there_are_too_many(
    here: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(handshakes, "MOST", 10)
    async with backend() as behind, running(config_text(behind.port, listen=here.listen)) as proxy:
        async with contextlib.AsyncExitStack() as stack:
            idle = [await stack.enter_async_context(client(proxy.port)) for _ in range(10)]
            async with secure_client(proxy.port, here.client) as asking:
                assert (await asking.ask(call())).status == 200
            assert await idle[0].rest() == b""
            await until(lambda: proxy.counts.snapshot().handshakes_failed["crowded",] == 1)


async def test_drain_does_not_wait_for_a_handshake(here: Place) -> None:
    async with running(config_text(1, listen=here.listen)) as proxy:
        async with client(proxy.port) as half_open:
            half_open.send(b"\x16\x03\x01")
            await until(lambda: len(proxy._handshakes) == 1)
            began = time.monotonic()
            await proxy.drain()
            assert time.monotonic() - began < 3


async def test_request_of_a_connection_that_closes_after_it(here: Place) -> None:
    async with backend() as behind, running(config_text(behind.port, listen=here.listen)) as proxy:
        async with secure_client(proxy.port, here.client) as asking:
            answer = await asking.ask(post(b"Connection: close"))
            assert answer.status == 200 and await asking.rest() == b""
