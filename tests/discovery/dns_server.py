"""A name server on loopback, over UDP and TCP, that answers what it is told to; by another hand than the resolver."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from ipaddress import ip_address
from threading import Thread
from typing import Any

from dnslib import AAAA, CNAME, QTYPE, RCODE, RR, A, DNSError
from dnslib.server import DNSLogger, DNSServer

_LARGEST = 1232  # bytes over UDP
_BREATH = 0.01  # seconds that the end of a server may take


class NameServer:
    """What is answered; may be changed at any time, from any thread, by whole values."""

    def __init__(self) -> None:
        self.names: dict[str, Sequence[str]] = {}
        """By name, its addresses; a name that is not here does not exist. `=NAME`: an alias."""
        self.ttl = 0
        self.code = "NOERROR"
        """Or the error that everything is answered with."""
        self.families: dict[str, str] = {}
        """By A or AAAA, the error that this is answered with."""
        self.silent = False
        self.asked: list[tuple[str, str, str]] = []
        """Name, type and transport of every question."""
        self.port = 0

    @property
    def place(self) -> str:
        return f"127.0.0.1:{self.port}"

    def resolve(self, request: Any, handler: Any) -> Any:
        """As dnslib asks for it."""
        name, kind = str(request.q.qname).rstrip(".").lower(), QTYPE[request.q.qtype]
        self.asked.append((name, kind, handler.protocol))
        if self.silent:
            raise DNSError("nothing is answered")
        reply = request.reply()
        code = self.families.get(kind, self.code)
        reply.header.rcode = getattr(RCODE, code)
        if code != "NOERROR":
            return reply
        seen = name
        while len(aliases := self.names.get(seen, ())) == 1 and aliases[0].startswith("="):
            target = aliases[0][1:]
            reply.add_answer(RR(seen, QTYPE.CNAME, rdata=CNAME(target), ttl=self.ttl))
            seen = target
        if seen not in self.names:
            reply.header.rcode = RCODE.NXDOMAIN
        for address in self.names.get(seen, ()):
            if kind == ("A" if ip_address(address).version == 4 else "AAAA"):
                data = A(address) if kind == "A" else AAAA(address)
                reply.add_answer(RR(seen, getattr(QTYPE, kind), rdata=data, ttl=self.ttl))
        if handler.protocol == "udp" and len(reply.pack()) > _LARGEST:
            reply = request.reply()
            reply.header.tc = 1
        return reply


@contextmanager
def name_server(**names: Sequence[str]) -> Iterator[NameServer]:
    """A name server with these names, dots written as underscores, on a port that is its own over UDP and TCP."""
    server = NameServer()
    server.names = {name.replace("_", "."): addresses for name, addresses in names.items()}
    quiet = DNSLogger(logf=lambda text: None)
    while True:
        udp = DNSServer(server, address="127.0.0.1", port=0, logger=quiet)
        server.port = udp.server.server_address[1]
        try:
            tcp = DNSServer(server, address="127.0.0.1", port=server.port, tcp=True, logger=quiet)
            break
        except OSError:  # somebody has that port for TCP
            udp.server.server_close()
    threads = [Thread(target=one.server.serve_forever, args=(_BREATH,)) for one in (udp, tcp)]
    for thread in threads:
        thread.start()
    try:
        yield server
    finally:
        for one, thread in zip((udp, tcp), threads, strict=True):
            one.server.shutdown()
            thread.join()
            one.server.server_close()
