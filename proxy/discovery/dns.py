"""Backends that are the addresses of a name: A and AAAA records, asked for again when they expire.

Rules:
* Both families are asked for at once. Where one cannot be told, its last known addresses stand, as long as the other
  can. That a name does not exist, or has no address, is an answer: nobody.
* The next look comes when the first of the records has expired, at least SHORTEST and at most LONGEST seconds from now,
  and a little later than that: not before the resolver's own copy has expired, and not all proxies at once.
* The resolver is the system's, with its search domains, or a named one, which is asked for the name as it is written.
  What truncates its answer is asked again over TCP.
"""

import asyncio
import random
from collections.abc import AsyncGenerator, Callable
from ipaddress import IPv4Address, IPv6Address, ip_address
from typing import NamedTuple

import dns.asyncresolver
import dns.exception
import dns.name
import dns.rdatatype
import dns.resolver

from proxy.config.addresses import bracketed
from proxy.config.values import DnsRecipe
from proxy.discovery.source import DiscoveryFailure, Found
from proxy.routing.backends import Backend

SHORTEST, LONGEST = 1.0, 60.0
"""Seconds from one look to the next."""
LIFETIME = 5.0
"""Seconds that an answer may take, all name servers and repeats included."""
_TRY = 2.0  # seconds until the next server, or the same again, is asked
_NOBODY = 5.0  # seconds until the next look at a name without addresses: what is cached of those has no limit here
_STRAY = 0.1  # of the pause, upwards
_PAYLOAD = 1232  # bytes of an answer over UDP, which pass every network whole; some 70 addresses
_FAMILIES = (dns.rdatatype.A, dns.rdatatype.AAAA)

Address = IPv4Address | IPv6Address


class _Answer(NamedTuple):
    addresses: tuple[Address, ...]
    ttl: float
    """In seconds."""


class DnsSource:
    """The addresses of one name."""

    def __init__(
        self, recipe: DnsRecipe, *, chance: Callable[[], float] = random.random, lifetime: float = LIFETIME
    ) -> None:
        self._recipe = recipe
        self._chance = chance
        self._lifetime = lifetime
        self._known: dict[dns.rdatatype.RdataType, tuple[Address, ...]] = {}

    async def watch(self) -> AsyncGenerator[Found, None]:
        """As DiscoverySource has it."""
        resolver = await self._resolver()
        while True:
            addresses, ttl = await self._look(resolver)
            yield tuple(map(self._backend, addresses))
            await asyncio.sleep(pause(ttl, self._chance()))

    async def _resolver(self) -> dns.asyncresolver.Resolver:
        """Made anew for each watch: after a failure the system's may have changed. Raises DiscoveryFailure."""
        chosen = self._recipe.resolver
        try:
            resolver = await asyncio.to_thread(dns.asyncresolver.Resolver, configure=chosen is None)
        except (dns.exception.DNSException, OSError) as error:
            raise DiscoveryFailure("no_resolver", f"the system names no resolver: {error}") from None
        if chosen is not None:
            address, port = chosen
            resolver.nameservers, resolver.port = [address], port
        resolver.timeout, resolver.lifetime = min(_TRY, self._lifetime), self._lifetime
        resolver.use_edns(0, 0, _PAYLOAD)
        return resolver

    async def _look(self, resolver: dns.asyncresolver.Resolver) -> _Answer:
        """All addresses, and when to look again. Raises DiscoveryFailure."""
        answers = await asyncio.gather(*(self._ask(resolver, family) for family in _FAMILIES), return_exceptions=True)
        failures = []
        addresses: set[Address] = set()
        ttls = []
        for family, answer in zip(_FAMILIES, answers, strict=True):
            if isinstance(answer, DiscoveryFailure):
                failures.append(answer)
            elif isinstance(answer, BaseException):
                raise answer
            else:
                self._known[family] = answer.addresses
                if answer.addresses:
                    ttls.append(answer.ttl)
            addresses.update(self._known.get(family, ()))
        if len(failures) == len(_FAMILIES) or (failures and not addresses):
            raise failures[0]
        return _Answer(tuple(sorted(addresses, key=lambda one: (one.version, int(one)))), min(ttls, default=_NOBODY))

    async def _ask(self, resolver: dns.asyncresolver.Resolver, family: dns.rdatatype.RdataType) -> _Answer:
        recipe = self._recipe
        name = dns.name.from_text(recipe.name, None if recipe.resolver is None else dns.name.root)
        try:
            answer = await resolver.resolve(name, family, raise_on_no_answer=False, search=recipe.resolver is None)
        except dns.resolver.NXDOMAIN:
            return _Answer((), _NOBODY)
        except dns.exception.Timeout:
            raise DiscoveryFailure("timeout", f"no answer within {self._lifetime:g} s") from None
        except dns.resolver.NoNameservers:
            raise DiscoveryFailure("servfail", "no name server gives an answer") from None
        except (dns.exception.DNSException, OSError, EOFError) as error:
            raise DiscoveryFailure("dns_error", f"the answer cannot be used: {type(error).__name__}") from None
        found = [ip_address(record.address) for record in answer.rrset or ()]
        usable = tuple(one for one in found if not (one.is_unspecified or one.is_multicast))
        return _Answer(usable, float(answer.chaining_result.minimum_ttl))

    def _backend(self, address: Address) -> Backend:
        recipe, host = self._recipe, str(address)
        return Backend(
            f"{bracketed(host)}:{recipe.port}",
            host,
            recipe.port,
            recipe.path,
            tls=recipe.tls,
            name=recipe.name,
            discovered=True,
        )


def pause(ttl: float, chance: float) -> float:
    """Seconds until the next look, for records that live so long; `chance` from 0 to 1 says how much later."""
    return min(max(ttl, SHORTEST), LONGEST) * (1.0 + _STRAY * chance)
