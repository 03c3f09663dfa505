"""TLS between a socket and the protocol above it, against a peer in memory, whatever the pieces in which bytes come."""

import asyncio
import ssl
from pathlib import Path
from typing import Any

import pytest

from proxy.certificates import ClientTls, ServerTls, client_context, server_context
from proxy.wire.tls import TlsConnection, Unannounced
from tests.certificates import Authority

CHUNKS = (1, 2, 3, 7, None)
LARGE = bytes(range(256)) * 4096  # 1 MiB


class Wire(asyncio.Transport):
    """The connection below: keeps what is written."""

    def __init__(self) -> None:
        self.written = b""
        self.calls: list[str] = []
        self.closing = False
        self.reading = True

    def write(self, data: Any) -> None:
        assert not self.closing
        self.written += bytes(data)

    def close(self) -> None:
        self.calls.append("close")
        self.closing = True

    def abort(self) -> None:
        self.calls.append("abort")
        self.closing = True

    def write_eof(self) -> None:
        self.calls.append("write_eof")

    def is_closing(self) -> bool:
        return self.closing

    def pause_reading(self) -> None:
        self.reading = False

    def resume_reading(self) -> None:
        self.reading = True

    def get_write_buffer_size(self) -> int:
        return len(self.written)

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        return {"peername": ("192.0.2.1", 5)}.get(name, default)


class Above(asyncio.Protocol):
    """The protocol above: notes what it is told, and stops reading at `pause_after` bytes."""

    def __init__(self, pause_after: int | None = None) -> None:
        self.events: list[object] = []
        self.received = b""
        self.lost: list[Exception | None] = []
        self._pause_after = pause_after

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, TlsConnection)
        self.transport = transport
        self.events.append("made")

    def data_received(self, data: bytes) -> None:
        assert not self.lost
        self.received += data
        if self._pause_after is not None and len(self.received) >= self._pause_after:
            self._pause_after = None
            self.transport.pause_reading()

    def eof_received(self) -> None:
        self.events.append("end")

    def connection_lost(self, exc: Exception | None) -> None:
        self.lost.append(exc)

    def pause_writing(self) -> None:
        self.events.append("pause")

    def resume_writing(self) -> None:
        self.events.append("resume")


class Watched:
    """A Watcher that keeps what it is told."""

    def __init__(self) -> None:
        self.begins = 0
        self.ends: list[Exception | None] = []

    def begun(self, connection: TlsConnection) -> None:
        self.begins += 1

    def ended(self, connection: TlsConnection, error: Exception | None) -> None:
        self.ends.append(error)


class Peer:
    """The other side: OpenSSL over two buffers."""

    def __init__(self, context: ssl.SSLContext, *, client: bool = True) -> None:
        self.incoming, self.outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        name = "mcp.test" if client else None
        self.ssl = context.wrap_bio(self.incoming, self.outgoing, server_side=not client, server_hostname=name)

    def shake(self) -> bool:
        try:
            self.ssl.do_handshake()
        except ssl.SSLWantReadError:
            return False
        return True

    def read(self) -> bytes:
        """Everything there is; raises SSLError; an announced end stands as b"<end>"."""
        read = b""
        try:
            while True:
                data = self.ssl.read(65536)
                if not data:
                    return read + b"<end>"
                read += data
        except ssl.SSLWantReadError:
            return read

    def end(self) -> None:
        try:
            self.ssl.unwrap()
        except ssl.SSLWantReadError:
            pass


class Pair:
    """A TlsConnection and its peer, whose bytes come in pieces of `size`."""

    def __init__(self, tls: TlsConnection, peer: Peer, size: int | None) -> None:
        self.wire, self.tls, self.peer, self._size = Wire(), tls, peer, size

    def carry(self) -> None:
        """Everything that either side has for the other."""
        while self.wire.written or self.peer.outgoing.pending:
            written, self.wire.written = self.wire.written, b""
            self.peer.incoming.write(written)
            self.deliver(self.peer.outgoing.read())

    def deliver(self, data: bytes) -> None:
        for start in range(0, len(data), self._size or len(data) or 1):
            self.tls.data_received(data[start : start + (self._size or len(data))])

    def shake(self) -> None:
        self.tls.connection_made(self.wire)
        for _ in range(4):
            self.peer.shake()
            self.carry()


@pytest.fixture
def authority(tmp_path: Path) -> Authority:
    return Authority(tmp_path)


@pytest.fixture
def server(authority: Authority) -> ssl.SSLContext:
    pair = authority.sign("server", "mcp.test")
    return server_context(ServerTls(pair.certificate, pair.key))


def connected(
    server: ssl.SSLContext, authority: Authority, size: int | None = None, pause_after: int | None = None
) -> tuple[Pair, Above, Watched]:
    above, watched = Above(pause_after), Watched()
    pair = Pair(TlsConnection(server, lambda: above, watched), Peer(authority.trusting()), size)
    pair.shake()
    assert above.events == ["made"] and watched.ends == [None]
    return pair, above, watched


@pytest.mark.parametrize("size", CHUNKS)
def test_request_and_answer_pass_in_any_pieces(server: ssl.SSLContext, authority: Authority, size: int | None) -> None:
    pair, above, watched = connected(server, authority, size)
    pair.peer.ssl.write(b"GET /")
    pair.carry()
    assert above.received == b"GET /"
    above.transport.write(b"an answer")
    pair.carry()
    assert pair.peer.read() == b"an answer"
    assert watched.begins == 1


@pytest.mark.parametrize("size", CHUNKS)
def test_towards_a_backend_the_handshake_begins_by_itself(authority: Authority, size: int | None) -> None:
    made = authority.sign("backend", "mcp.test")
    above, watched = Above(), Watched()
    context = client_context(ClientTls(ca=authority.file))
    tls = TlsConnection(context, lambda: above, watched, server_name="mcp.test")
    pair = Pair(tls, Peer(made.serving(), client=False), size)
    pair.tls.connection_made(pair.wire)
    for _ in range(3):
        pair.carry()
        pair.peer.shake()
    pair.carry()
    assert watched.ends == [None]
    assert above.transport.get_extra_info("ssl_object").selected_alpn_protocol() is None
    above.transport.write(b"POST /")
    pair.carry()
    assert pair.peer.read() == b"POST /"


def test_name_that_the_certificate_is_not_for_fails_the_handshake(authority: Authority) -> None:
    made = authority.sign("backend", "another.test")
    watched, above = Watched(), Above()
    tls = TlsConnection(client_context(ClientTls(ca=authority.file)), lambda: above, watched, server_name="mcp.test")
    pair = Pair(tls, Peer(made.serving(), client=False), None)
    pair.tls.connection_made(pair.wire)
    pair.carry()
    pair.peer.shake()
    pair.carry()
    pair.tls.connection_lost(None)
    assert isinstance(watched.ends[0], ssl.SSLCertVerificationError)
    assert above.events == [] and above.lost == []


@pytest.mark.parametrize("size", (7, 4096, None))
def test_large_bodies_pass_both_ways(server: ssl.SSLContext, authority: Authority, size: int | None) -> None:
    pair, above, _ = connected(server, authority, size)
    data = memoryview(LARGE)
    while data:
        data = data[pair.peer.ssl.write(data) :]
    pair.carry()
    assert above.received == LARGE
    above.transport.write(LARGE)
    pair.carry()
    assert pair.peer.read() == LARGE


@pytest.mark.parametrize("size", CHUNKS)
def test_announced_end_is_told_after_the_last_byte(
    server: ssl.SSLContext, authority: Authority, size: int | None
) -> None:
    pair, above, _ = connected(server, authority, size)
    pair.peer.ssl.write(b"the last")
    pair.peer.end()
    pair.carry()
    assert (above.received, above.events) == (b"the last", ["made", "end"])
    assert pair.wire.calls == ["close"]
    pair.tls.connection_lost(None)
    assert above.lost == [None]


@pytest.mark.parametrize("size", CHUNKS)
def test_end_without_an_announcement_is_an_error(
    server: ssl.SSLContext, authority: Authority, size: int | None
) -> None:
    """Whoever cuts the TCP connection could pass a part for the whole (RFC 8446, 6.1)."""
    pair, above, _ = connected(server, authority, size)
    pair.peer.ssl.write(b"a part")
    pair.carry()
    assert not pair.tls.eof_received()
    pair.tls.connection_lost(None)
    assert (above.received, above.events) == (b"a part", ["made"])
    assert isinstance(above.lost[0], Unannounced)


@pytest.mark.parametrize("announced", (True, False))
async def test_what_came_while_reading_was_paused_is_handed_on_before_the_end(
    server: ssl.SSLContext, authority: Authority, announced: bool
) -> None:
    pair, above, _ = connected(server, authority, pause_after=1)
    pair.peer.ssl.write(b"1")
    pair.carry()
    pair.peer.ssl.write(b"2" * 100_000)
    if announced:
        pair.peer.end()
    pair.carry()
    assert above.received == b"1" and not pair.wire.reading
    assert pair.tls.eof_received() is True, "the connection stays until it is read"
    above.transport.resume_reading()
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    assert above.received == b"1" + b"2" * 100_000
    assert above.events == (["made", "end"] if announced else ["made"])
    pair.tls.connection_lost(None)
    assert [type(error) for error in above.lost] == [type(None) if announced else Unannounced]


def test_broken_record_is_told_to_both_sides(server: ssl.SSLContext, authority: Authority) -> None:
    pair, above, _ = connected(server, authority)
    pair.peer.ssl.write(b"whole")
    whole = pair.peer.outgoing.read()
    pair.peer.ssl.write(b"broken")
    broken = pair.peer.outgoing.read()
    pair.deliver(whole + broken[:-1] + bytes([broken[-1] ^ 1]))
    assert above.received == b"whole"
    assert pair.wire.calls == ["close"]
    pair.tls.connection_lost(None)
    assert isinstance(above.lost[0], ssl.SSLError)
    pair.peer.incoming.write(pair.wire.written)
    with pytest.raises(ssl.SSLError, match=r"(?i)bad record mac"):
        pair.peer.read()


def test_failed_handshake_is_told_to_the_other_side(server: ssl.SSLContext, tmp_path: Path) -> None:
    """A client that knows TLS 1.1 alone is told so, and not just cut."""
    old = ssl.create_default_context()
    old.check_hostname, old.verify_mode = False, ssl.CERT_NONE
    old.set_ciphers("ALL:@SECLEVEL=0")
    with pytest.warns(DeprecationWarning):
        old.minimum_version = old.maximum_version = ssl.TLSVersion.TLSv1_1
    above, watched = Above(), Watched()
    pair = Pair(TlsConnection(server, lambda: above, watched), Peer(old), None)
    pair.tls.connection_made(pair.wire)
    pair.peer.shake()
    pair.deliver(pair.peer.outgoing.read())
    pair.tls.connection_lost(None)
    assert isinstance(watched.ends[0], ssl.SSLError) and watched.ends[0].reason == "UNSUPPORTED_PROTOCOL"
    assert above.events == []
    pair.peer.incoming.write(pair.wire.written)
    with pytest.raises(ssl.SSLError, match=r"(?i)protocol version"):
        pair.peer.ssl.do_handshake()


def test_close_announces_the_end(server: ssl.SSLContext, authority: Authority) -> None:
    pair, above, _ = connected(server, authority)
    above.transport.write(b"bye")
    pair.peer.ssl.write(b"never read")
    above.transport.close()
    above.transport.write(b"too late")
    pair.peer.incoming.write(pair.wire.written)
    assert pair.peer.read() == b"bye<end>"
    assert above.transport.is_closing()
    pair.tls.connection_lost(None)
    assert above.lost == [None] and above.events == ["made"]


def test_end_of_writing_leaves_the_connection_open(server: ssl.SSLContext, authority: Authority) -> None:
    """The client may finish sending what nobody reads, and takes the answer (RFC 9112, 9.6)."""
    pair, above, _ = connected(server, authority)
    above.transport.write(b"413")
    assert above.transport.can_write_eof()
    above.transport.write_eof()
    pair.peer.ssl.write(LARGE[:50_000])
    pair.deliver(pair.peer.outgoing.read())
    assert above.received == b"" and pair.wire.calls == ["write_eof"]
    pair.peer.incoming.write(pair.wire.written)
    assert pair.peer.read() == b"413<end>"
    assert not pair.tls.eof_received()
    pair.tls.connection_lost(None)
    assert above.lost == [None]


def test_abort_announces_nothing(server: ssl.SSLContext, authority: Authority) -> None:
    pair, above, _ = connected(server, authority)
    pair.wire.written = b""
    above.transport.abort()
    assert pair.wire.calls == ["abort"] and pair.wire.written == b""


def test_back_pressure_of_the_socket_is_that_of_the_protocol(server: ssl.SSLContext, authority: Authority) -> None:
    pair, above, _ = connected(server, authority)
    pair.tls.pause_writing()
    pair.tls.resume_writing()
    assert above.events == ["made", "pause", "resume"]
    pair.wire.written = b"12345"
    assert above.transport.get_write_buffer_size() == 5


def test_plain_http_is_answered_in_plain_http(server: ssl.SSLContext) -> None:
    watched, above = Watched(), Above()
    pair = Pair(
        TlsConnection(server, lambda: above, watched, plain=b"HTTP/1.1 400"), Peer(ssl.create_default_context()), None
    )
    pair.tls.connection_made(pair.wire)
    pair.deliver(b"GET / HTTP/1.1\r\nHost: a\r\n\r\n")
    assert pair.wire.written == b"HTTP/1.1 400" and pair.wire.calls == ["close"]
    assert above.events == []


def test_connection_on_which_nobody_speaks_has_no_session(server: ssl.SSLContext) -> None:
    watched = Watched()
    tls = TlsConnection(server, Above, watched)
    tls.connection_made(Wire())
    assert tls.get_extra_info("ssl_object") is None
    assert tls.get_extra_info("peername") == ("192.0.2.1", 5)
    tls.connection_lost(None)
    assert watched.begins == 1 and isinstance(watched.ends[0], ConnectionResetError)


@pytest.mark.parametrize("kept", (0, 5, 60))
def test_end_during_the_handshake_is_one_failure(server: ssl.SSLContext, authority: Authority, kept: int) -> None:
    watched, above = Watched(), Above()
    pair = Pair(TlsConnection(server, lambda: above, watched), Peer(authority.trusting()), None)
    pair.tls.connection_made(pair.wire)
    pair.peer.shake()
    pair.deliver(pair.peer.outgoing.read()[:kept])
    pair.tls.eof_received()
    pair.tls.connection_lost(None)
    assert len(watched.ends) == 1 and isinstance(watched.ends[0], ConnectionError)
    assert above.events == [] and above.lost == []
