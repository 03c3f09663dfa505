"""Probes: every backend of a pool with `health:` is asked again and again whether it lives, and its pool is told.

Rules:
* A probe opens no session. It asks by GET where no MCP is spoken, or for `server/discover` of 2026-07-28, which has no
  sessions; older servers may take any request without a session for the start of one, so that probe names a session
  that nobody has.
* It carries nobody's credentials and no cookies, follows no redirect, asks no proxy of the environment, and has a
  connection of its own: what it finds is the backend.
* Good is an answer of 2xx to a GET. To `server/discover` it is any JSON-RPC answer with a status below 500, or a
  refusal of the asker: probes have no credentials, and only what lives can refuse. Not so 404 and 405 without JSON-RPC:
  there is no MCP server.
* Probes of one backend do not overlap. Those of many are spread over the interval, and each strays a little.
"""

import asyncio
import logging
import os
import random
import ssl
from collections.abc import Callable, Collection, Iterable, Mapping
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from typing import NamedTuple

import aiohttp
from yarl import URL

from proxy.background import Background
from proxy.certificates import ClientTls
from proxy.config import PoolConfig
from proxy.control.verdicts import Verdict, of_discovery, of_events, of_get
from proxy.parts import backend_tls, client_contexts
from proxy.routing.health import Health
from proxy.routing.pools import Pool
from proxy.wire.connections import BackendTls

NO_SESSION = "none-of-a-probe"
"""A session id that no server has given: those that keep sessions answer that they do not know it, and make none."""
_MODERN = "2026-07-28"
_LARGEST = 1024 * 1024  # bytes of an answer to server/discover
_FIRST_EACH_SECOND = 200  # first probes; a loop of Python's makes some 1000 a second and has more to do
_SOON = 0.1  # seconds within which a small fleet is probed first
_STRAY = 0.1  # of the interval, either way: a fleet of proxies must not beat in time
_BREATH = 0.001  # seconds between a probe's end and the wait for the next

log = logging.getLogger("proxy")


@dataclass(frozen=True, slots=True)
class Target:
    """A backend to be probed. `authority`: its host and port; `path`: where it speaks MCP."""

    pool: str
    backend: str
    health: Health
    authority: str
    path: str
    tls: BackendTls | None = None
    """None for plain HTTP."""
    host_field: str | None = None
    """What it is called; None: its authority."""

    @property
    def url(self) -> URL:
        """What is asked for, as written."""
        scheme = "http" if self.tls is None else "https"
        return URL(f"{scheme}://{self.authority}{self.health.path or self.path}", encoded=True)


def targets_of(pools: Iterable[PoolConfig], contexts: Mapping[ClientTls, ssl.SSLContext]) -> list[Target]:
    """All that are to be probed. `contexts`: as `client_contexts` gives them."""
    return [
        Target(
            pool.name,
            backend.id,
            pool.health,
            backend.authority,
            backend.path,
            backend_tls(pool, backend, contexts),
            backend.host_field,
        )
        for pool in pools
        if pool.health is not None
        for backend in pool.backends
    ]


class _Watch(NamedTuple):
    target: Target
    task: "asyncio.Task[None]"


class Prober:
    """Probes backends as long as it is not closed.

    `pools`: those in force; `changed`: told of every backend, by pool and id, that came up (True) or went down.
    `clock`: the pools', monotonic, in seconds. `version`: the proxy's own.
    """

    def __init__(
        self,
        background: Background,
        *,
        pools: Callable[[], Mapping[str, Pool]],
        changed: Callable[[str, str, bool], None],
        clock: Callable[[], float],
        version: str,
        chance: Callable[[], float] = random.random,
    ) -> None:
        self._background = background
        self._pools = pools
        self._changed = changed
        self._clock = clock
        self._version = version
        self._chance = chance
        self._watches: dict[tuple[str, str], _Watch] = {}
        self._session: aiohttp.ClientSession | None = None
        self._contexts: dict[ClientTls, ssl.SSLContext] = {}

    def targets(self, pools: Collection[PoolConfig]) -> list[Target]:
        """All that are to be probed in these. Raises CertificateError."""
        self._contexts = client_contexts([pool for pool in pools if pool.health is not None], self._contexts)
        return targets_of(pools, self._contexts)

    def watch(self, targets: Iterable[Target]) -> None:
        """Probes these from now on, and no others. Who stays as it was is probed on as if nothing had happened."""
        wanted = {(target.pool, target.backend): target for target in targets}
        for key, known in list(self._watches.items()):
            if wanted.get(key) != known.target:
                known.task.cancel()
                del self._watches[key]
        new = [target for key, target in wanted.items() if key not in self._watches]
        for target in new:
            within = min(target.health.interval, _SOON + len(new) / _FIRST_EACH_SECOND)
            probing = _Probing(self, target, first=within * self._chance())
            task = self._background.loop(f"probe {target.pool}/{target.backend}", _BREATH, probing.step)
            self._watches[target.pool, target.backend] = _Watch(target, task)

    async def close(self) -> None:
        """Probes no more. Idempotent."""
        self.watch(())
        session, self._session = self._session, None
        if session is not None:
            await session.close()

    def stray(self) -> float:
        """What to multiply an interval with, this time."""
        return 1.0 + _STRAY * (2.0 * self._chance() - 1.0)

    def heard(self, target: Target, verdict: Verdict) -> None:
        """Tells the pool what a probe found."""
        pool = self._pools().get(target.pool)
        member = None if pool is None else pool.member(target.backend)
        if pool is None or member is None or member.departed:
            return
        if pool.fitness.probed(member, verdict.good, verdict.said, self._clock()):
            level, what = (logging.INFO, "is up") if member.up else (logging.WARNING, "is down")
            log.log(level, "%s/%s %s: %s", target.pool, target.backend, what, verdict.said)
            self._changed(target.pool, target.backend, member.up)

    async def ask(self, target: Target) -> Verdict:
        """One probe."""
        limit = target.health.timeout
        try:
            async with asyncio.timeout(limit):
                return await (self._get(target) if target.health.path is not None else self._discover(target))
        except TimeoutError:
            return Verdict(False, f"no answer within {limit:g} s")
        except aiohttp.ClientSSLError:
            return Verdict(False, "cannot be spoken to over TLS")
        except aiohttp.ClientConnectorDNSError:
            return Verdict(False, "cannot be reached: its name does not resolve")
        except aiohttp.ClientConnectorError as error:
            reason = os.strerror(error.os_error.errno) if error.os_error.errno else "no address accepts"
            return Verdict(False, f"cannot be reached: {reason}")
        except (aiohttp.ClientError, OSError, ValueError):
            return Verdict(False, "closed the connection, or answered with something other than HTTP")

    async def _get(self, target: Target) -> Verdict:
        async with self._sent("GET", target, self._headers(target)) as answer:
            return of_get(answer.status)

    async def _discover(self, target: Target) -> Verdict:
        headers = {
            **self._headers(target),
            "Accept": "application/json, text/event-stream",
            "MCP-Protocol-Version": _MODERN,
            "Mcp-Method": "server/discover",
            "Mcp-Session-Id": NO_SESSION,
        }
        meta = {
            "io.modelcontextprotocol/protocolVersion": _MODERN,
            "io.modelcontextprotocol/clientInfo": {"name": "mcp-routing-proxy", "version": self._version},
            "io.modelcontextprotocol/clientCapabilities": {},
        }
        question = {"jsonrpc": "2.0", "id": "probe", "method": "server/discover", "params": {"_meta": meta}}
        async with self._sent("POST", target, headers, question) as answer:
            streamed = answer.content_type == "text/event-stream"
            body = b""
            async for piece in answer.content.iter_any():
                body += piece
                verdict = of_events(answer.status, body) if streamed else None
                if verdict is not None:
                    return verdict
                if len(body) > _LARGEST:
                    return Verdict(False, f"answered with more than {_LARGEST} bytes")
            return of_discovery(answer.status, body)

    def _sent(
        self, verb: str, target: Target, headers: Mapping[str, str], question: object = None
    ) -> AbstractAsyncContextManager[aiohttp.ClientResponse]:
        """The answer to a request, read as far as its head."""
        return self._open().request(
            verb,
            target.url,
            headers=headers,
            json=question,
            allow_redirects=False,
            ssl=True if target.tls is None else target.tls.context,
            server_hostname=None if target.tls is None else target.tls.server_name,
        )

    def _headers(self, target: Target) -> dict[str, str]:
        return {
            "Host": target.host_field or target.authority,
            "User-Agent": f"mcp-routing-proxy/{self._version}",
            "Accept-Encoding": "identity",
        }

    def _open(self) -> aiohttp.ClientSession:
        if self._session is None:
            # No limit of connections: one that waits for a place would be taken for a backend that is slow.
            connector = aiohttp.TCPConnector(limit=0, force_close=True)
            self._session = aiohttp.ClientSession(
                connector=connector,
                cookie_jar=aiohttp.DummyCookieJar(),
                trust_env=False,
                auto_decompress=False,
                timeout=aiohttp.ClientTimeout(total=None),
            )
        return self._session


class _Probing:
    """The probes of one backend, from the first to the last."""

    def __init__(self, prober: Prober, target: Target, *, first: float) -> None:
        self._prober = prober
        self._target = target
        self._due = asyncio.get_running_loop().time() + first

    async def step(self) -> None:
        """Waits for the next probe's time, and makes it."""
        now = asyncio.get_running_loop().time
        await asyncio.sleep(max(0.0, self._due - now()))
        self._due = max(self._due, now()) + self._target.health.interval * self._prober.stray()
        self._prober.heard(self._target, await self._prober.ask(self._target))
