"""Clients, backends and a proxy that speak TLS. The certificates are for mcp.test and 127.0.0.1."""

import asyncio
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

from tests.certificates import Authority, Pair
from tests.wire.harness import BackendSide, Client, ScriptedBackend, answer_always, config_text, until


@dataclass
class Place:
    """An authority, and a certificate of it."""

    authority: Authority
    pair: Pair

    @property
    def listen(self) -> str:
        """`listen:` with this certificate."""
        return self.listening()

    def listening(self, more: str = "") -> str:
        """The same, with more keys in its `tls`."""
        return f"{{address: '127.0.0.1:0', tls: {{certificate: {self.pair.certificate}, key: {self.pair.key}{more}}}}}"

    @property
    def client(self) -> ssl.SSLContext:
        """The context of a client that trusts it."""
        return self.authority.trusting()


def place(folder: Path) -> Place:
    authority = Authority(folder)
    return Place(authority, authority.sign("proxy", "mcp.test", "127.0.0.1"))


def secure_text(*ports: int, listen: str = "127.0.0.1:0", tls: str = "", pool: str = "", top: str = "") -> str:
    """As `config_text`, with https backends and this `tls` for them."""
    settings = f"    tls: {tls}\n" if tls else ""
    return config_text(*ports, listen=listen, pool=settings + pool, top=top).replace("http://", "https://")


class SecureBackend(ScriptedBackend):
    """A scripted backend that speaks TLS, the loop's own."""

    def __init__(self, script: Callable[[BackendSide], Awaitable[None]], context: ssl.SSLContext) -> None:
        super().__init__(script)
        self.context = context

    async def listen(self) -> None:
        self._server = await asyncio.start_server(self.serve, "127.0.0.1", 0, limit=2**22, ssl=self.context)
        self.port = self._server.sockets[0].getsockname()[1]


@asynccontextmanager
async def secure_backend(
    context: ssl.SSLContext, script: Callable[[BackendSide], Awaitable[None]] = answer_always
) -> AsyncIterator[SecureBackend]:
    scripted = SecureBackend(script, context)
    await scripted.listen()
    try:
        yield scripted
    finally:
        await scripted.stop_listening()
        for playing in scripted.playing:
            playing.cancel()
        await until(lambda: not scripted.playing)


@asynccontextmanager
async def secure_client(port: int, context: ssl.SSLContext, name: str = "mcp.test") -> AsyncIterator[Client]:
    """A client that speaks the loop's own TLS. Raises what the handshake does."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port, limit=2**22, ssl=context, server_hostname=name)
    try:
        yield Client(reader, writer)
    finally:
        writer.close()
