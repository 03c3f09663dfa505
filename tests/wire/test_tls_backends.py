"""Backends that speak TLS: whom the proxy believes, what it shows, and where an answer ends."""

import asyncio
import contextlib
import logging
import socket
import ssl
import time
from pathlib import Path

import pytest

from proxy.app import Proxy
from proxy.certificates import ClientTls, client_context
from proxy.routing.errors import ProxyError
from proxy.wire.connections import BackendConnections, BackendTls
from proxy.wire.response_head import ResponseHead
from tests.certificates import PAST, Authority
from tests.wire.harness import (
    BackendSide,
    answer_always,
    backend,
    call,
    chunks,
    client,
    config_text,
    read_head,
    running,
    until,
)
from tests.wire.tls_sides import Place, place, secure_backend, secure_text


@pytest.fixture
def here(tmp_path: Path) -> Place:
    return place(tmp_path)


async def asked(proxy: Proxy) -> tuple[int, str | None, str]:
    """Status, reason and message of the answer to one call."""
    async with client(proxy.port) as asking:
        answer = await asking.ask(call())
        reason = answer.get("Mcp-Proxy-Error")
        return answer.status, reason, "" if reason is None else str(answer.error["message"])


async def test_connection_is_kept_for_the_next_request(here: Place) -> None:
    async with secure_backend(here.pair.serving()) as behind:
        async with running(secure_text(behind.port, tls=f"{{ca: {here.authority.file}}}")) as proxy:
            assert [(await asked(proxy))[0] for _ in range(5)] == [200] * 5
            assert behind.connections == 1


async def test_http_1_1_is_asked_for(here: Place) -> None:
    context = here.pair.serving()
    context.set_alpn_protocols(["h2", "http/1.1"])
    chosen = []

    async def note(side: BackendSide) -> None:
        chosen.append(side.writer.get_extra_info("ssl_object").selected_alpn_protocol())
        await answer_always(side)

    async with secure_backend(context, note) as behind:
        async with running(secure_text(behind.port, tls=f"{{ca: {here.authority.file}}}")) as proxy:
            assert (await asked(proxy))[0] == 200
    assert chosen == ["http/1.1"]


@pytest.mark.parametrize(
    ("names", "valid", "of", "tls", "status"),
    (
        pytest.param(("127.0.0.1",), None, "ours", "{ca: CA}", 200, id="known"),
        pytest.param(("mcp.test",), None, "ours", "{ca: CA}", 502, id="another name"),
        pytest.param(("mcp.test",), None, "ours", "{ca: CA, server_name: mcp.test}", 200, id="the name asked for"),
        pytest.param(("127.0.0.1",), None, "theirs", "{ca: CA}", 502, id="another authority"),
        pytest.param(("127.0.0.1",), None, "ours", "", 502, id="not one of the system's"),
        pytest.param(("127.0.0.1",), PAST, "ours", "{ca: CA}", 502, id="expired"),
        pytest.param(("another.test",), PAST, "theirs", "{verify: false}", 200, id="not verified"),
    ),
)
async def test_whose_certificate_is_believed(
    tmp_path: Path,
    names: tuple[str, ...],
    valid: object,
    of: str,
    tls: str,
    status: int,
    caplog: pytest.LogCaptureFixture,
) -> None:
    ours, theirs = Authority(tmp_path / "ours"), Authority(tmp_path / "theirs")
    pair = (ours if of == "ours" else theirs).sign("backend", *names, valid=PAST if valid else None)
    async with secure_backend(pair.serving()) as behind:
        async with running(secure_text(behind.port, tls=tls.replace("CA", str(ours.file)))) as proxy:
            with caplog.at_level(logging.WARNING, "proxy.tls"):
                found, reason, message = await asked(proxy)
                again, _, _ = await asked(proxy)
    assert found == again == status
    if status != 200:
        assert (reason, message) == ("connect_failed", "no TLS connection to the backend can be made")
        lines = [record.getMessage() for record in caplog.records if record.name == "proxy.tls"]
        assert len(lines) == 1 and f"127.0.0.1 port {behind.port}" in lines[0], "told to operators, and not each time"
        assert behind.requests == [], "nothing was sent"


async def test_name_is_asked_for_by_sni(here: Place) -> None:
    names: list[str | None] = []
    context = here.pair.serving()
    context.sni_callback = lambda _, name, __: names.append(name)
    async with secure_backend(context) as behind:
        tls = f"{{ca: {here.authority.file}, server_name: MCP.test}}"
        async with running(secure_text(behind.port, tls=tls)) as proxy:
            assert (await asked(proxy))[0] == 200
    assert names == ["mcp.test"]


async def test_other_backend_serves_where_one_cannot_be_believed(here: Place, tmp_path: Path) -> None:
    stranger = Authority(tmp_path / "other").sign("stranger", "127.0.0.1")
    async with secure_backend(stranger.serving()) as first, secure_backend(here.pair.serving()) as second:
        async with running(secure_text(first.port, second.port, tls=f"{{ca: {here.authority.file}}}")) as proxy:
            assert {(await asked(proxy))[0] for _ in range(6)} == {200}
    assert first.requests == [] and len(second.requests) == 6


async def test_http_and_https_in_one_pool(here: Place) -> None:
    async with secure_backend(here.pair.serving()) as first, backend() as second:
        text = secure_text(
            first.port, second.port, tls=f"{{ca: {here.authority.file}}}", pool="    balance: round_robin"
        )
        text = text.replace(f"https://127.0.0.1:{second.port}", f"http://127.0.0.1:{second.port}")
        async with running(text) as proxy:
            assert {(await asked(proxy))[0] for _ in range(6)} == {200}
    assert len(first.requests) == len(second.requests) == 3


async def test_certificate_of_our_own_is_shown(here: Place) -> None:
    ours = here.authority.sign("ours", "the-proxy")
    pair = f"certificate: {ours.certificate}, key: {ours.key}"
    async with secure_backend(here.pair.serving(clients_of=here.authority)) as behind:
        async with running(secure_text(behind.port, tls=f"{{ca: {here.authority.file}, {pair}}}")) as proxy:
            assert (await asked(proxy))[0] == 200
        async with running(secure_text(behind.port, tls=f"{{ca: {here.authority.file}}}")) as proxy:
            status, reason, _ = await asked(proxy)
            assert (status, reason) == (502, "backend_closed"), "in TLS 1.3 the refusal comes after the request is sent"
    assert len(behind.requests) == 1


async def test_plain_backend_behind_an_https_url_is_a_failed_connection(here: Place) -> None:
    async def plain(side: BackendSide) -> None:
        await side.reader.read(1)
        side.send(b"HTTP/1.1 400 Bad Request\r\nContent-Length: 0\r\n\r\n")
        await side.peer_closes()

    async with backend(plain) as behind:
        async with running(secure_text(behind.port, tls=f"{{ca: {here.authority.file}}}")) as proxy:
            assert (await asked(proxy))[:2] == (502, "connect_failed")


async def test_handshake_that_does_not_end_is_a_connect_timeout_and_leaves_nothing(here: Place) -> None:
    async def mute(side: BackendSide) -> None:
        await side.peer_closes()

    pool = "    timeouts: {connect: 200ms}"
    async with backend(mute) as behind:
        async with running(secure_text(behind.port, tls=f"{{ca: {here.authority.file}}}", pool=pool)) as proxy:
            status, reason, _ = await asked(proxy)
            assert (status, reason) == (504, "connect_timeout")
            await until(lambda: not behind.open)


# ---- where an answer ends
def _cut(side: BackendSide) -> None:
    """Ends the TCP connection without close_notify, behind what was written."""
    sock = side.writer.get_extra_info("socket")
    with socket.socket(fileno=socket.dup(sock.fileno())) as own:
        own.shutdown(socket.SHUT_WR)


@pytest.mark.parametrize("announced", (True, False))
async def test_answer_until_close_is_whole_only_where_its_end_is_announced(here: Place, announced: bool) -> None:
    async def until_close(side: BackendSide) -> None:
        await side.request()
        side.send(b"HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\n\r\nas far as this")
        await side.writer.drain()
        if announced:
            side.writer.close()
        else:
            _cut(side)
            await side.peer_closes()

    async with secure_backend(here.pair.serving(), until_close) as behind:
        async with running(secure_text(behind.port, tls=f"{{ca: {here.authority.file}}}")) as proxy:
            async with client(proxy.port) as asking:
                asking.send(call())
                head = await read_head(asking.reader)
                assert b"chunked" in head
                if announced:
                    assert b"".join([chunk async for chunk in chunks(asking.reader)]) == b"as far as this"
                else:
                    with pytest.raises(asyncio.IncompleteReadError):
                        async for _ in chunks(asking.reader):
                            pass


async def test_answer_with_a_length_needs_no_announcement(here: Place) -> None:
    async def measured(side: BackendSide) -> None:
        await side.request()
        side.answer(b"whole")
        await side.writer.drain()
        _cut(side)
        await side.peer_closes()

    async with secure_backend(here.pair.serving(), measured) as behind:
        async with running(secure_text(behind.port, tls=f"{{ca: {here.authority.file}}}")) as proxy:
            assert [(await asked(proxy))[0] for _ in range(3)] == [200] * 3


async def test_answer_of_a_backend_that_closed_arrives_whole_at_a_slow_client(here: Place) -> None:
    """Its last bytes wait unread, their end behind them, as long as the client takes nothing."""
    size = 6_000_000  # more than the buffers of sockets hold
    listening = socket.create_server(("127.0.0.1", 0))
    context = here.pair.serving()

    def close_behind() -> None:
        """Sends all of the answer, and closes at once without a word."""
        accepted, _ = listening.accept()
        with context.wrap_socket(accepted, server_side=True) as secured:
            secured.recv(65536)
            secured.sendall(b"HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: %d\r\n\r\n" % size)
            secured.sendall(b"y" * size)

    async with running(secure_text(listening.getsockname()[1], tls=f"{{ca: {here.authority.file}}}")) as proxy:
        closing = asyncio.get_running_loop().run_in_executor(None, close_behind)
        sock = socket.socket()
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 16_384)
        sock.connect(("127.0.0.1", proxy.port))
        sock.setblocking(False)
        reader, writer = await asyncio.open_connection(sock=sock, limit=4096)
        writer.write(call())
        await read_head(reader)
        got = 0
        while got < size:
            data = await asyncio.wait_for(reader.read(65_536), 5)
            assert data, f"cut after {got} bytes"
            got += len(data)
            await asyncio.sleep(0.001)  # its pace
        await closing
        writer.close()
    listening.close()


class Kept:
    """A ResponseSink that keeps what it is told."""

    def __init__(self) -> None:
        self.body = b""
        self.ended: list[object] = []

    def interim(self, head: ResponseHead) -> None: ...

    def response_head(self, head: ResponseHead) -> None: ...

    def response_body(self, data: bytes) -> None:
        self.body += data

    def flush_response(self) -> None: ...

    def response_chunk(self, data: bytes, chunk: bytes) -> None:
        self.response_body(data)

    def response_complete(self, *, reusable: bool) -> None:
        self.ended.append("complete")

    def response_whole(self, head: ResponseHead, body: bytes, *, reusable: bool, text: bytes = b"") -> None:
        self.body = body
        self.ended.append("complete")

    def backend_failed(self, error: ProxyError) -> None:
        self.ended.append(error)

    def hold_request(self, hold: bool) -> None: ...


async def test_answer_that_ended_while_nothing_was_read_is_whole(here: Place) -> None:
    """The loop's own TLS drops it: uvloop closes a connection at its end, whatever waits unread."""
    listening = socket.create_server(("127.0.0.1", 0))
    context = here.pair.serving()

    def answer() -> None:
        accepted, _ = listening.accept()
        with context.wrap_socket(accepted, server_side=True) as secured:
            secured.recv(65536)
            secured.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 1000\r\n\r\n" + b"z" * 1000)

    tls = BackendTls(client_context(ClientTls(ca=here.authority.file)), "127.0.0.1")
    port = listening.getsockname()[1]
    answering = asyncio.get_running_loop().run_in_executor(None, answer)
    home = BackendConnections("127.0.0.1", port, connect_timeout=5, clock=time.monotonic, tls=tls)
    connection, sink = await home.dial(), Kept()
    connection.carry(sink, to_head=False)
    connection.write(b"GET / HTTP/1.1\r\nHost: a\r\n\r\n")
    connection.hold(True)
    await answering
    for _ in range(20):  # turns in which the end could be noticed
        await asyncio.sleep(0.005)
    assert sink.ended == []
    connection.hold(False)
    await until(lambda: sink.ended)
    assert (sink.ended, sink.body) == (["complete"], b"z" * 1000)
    listening.close()


async def test_large_request_passes_with_back_pressure(here: Place) -> None:
    body = bytes(range(250)) * 32_000  # 8 MB

    async def slow_start(side: BackendSide) -> None:
        got = await side.request()
        side.answer(b"%d" % len(got.body) if got.body == body else b"other")

    async with secure_backend(here.pair.serving(), slow_start) as behind:
        async with running(secure_text(behind.port, tls=f"{{ca: {here.authority.file}}}")) as proxy:
            async with client(proxy.port) as asking:
                assert (await asking.ask(call(body=body))).body == b"8000000"


async def test_client_that_leaves_closes_the_backends_stream(here: Place) -> None:
    gone = asyncio.Event()

    async def stream(side: BackendSide) -> None:
        await side.request()
        side.send(b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n")
        with contextlib.suppress(ConnectionError, ssl.SSLError):
            await side.peer_closes()
        gone.set()

    async with secure_backend(here.pair.serving(), stream) as behind:
        async with running(secure_text(behind.port, tls=f"{{ca: {here.authority.file}}}")) as proxy:
            async with client(proxy.port) as asking:
                asking.send(call())
                await read_head(asking.reader)
            await asyncio.wait_for(gone.wait(), 1)


async def test_plain_backends_are_none_the_wiser(here: Place) -> None:
    async with backend() as behind, running(config_text(behind.port)) as proxy:
        assert (await asked(proxy))[0] == 200
        assert behind.requests[0].get("X-Forwarded-Proto") == "http"
