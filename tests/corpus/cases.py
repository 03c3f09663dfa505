"""What a case of the corpus is: bytes that made parsers disagree, where that was reported, and what must happen here.

`seen` names a public report or the section of an RFC that the bytes are at odds with; the bytes themselves were written
for this corpus.
"""

from typing import NamedTuple

START = b"POST /mcp HTTP/1.1\r\nHost: x\r\n"
CHUNKED = START + b"Transfer-Encoding: chunked\r\n\r\n"
GET = b"GET /mcp HTTP/1.1\r\nHost: x\r\n"
SMUGGLED = b"GET /stolen HTTP/1.1\r\nHost: x\r\n\r\n"
HONEST = b"POST /mcp HTTP/1.1\r\nHost: honest\r\nContent-Length: 6\r\n\r\nhonest"
"""What another client of the same front might send next."""


class Case(NamedTuple):
    """What one client sends on one connection."""

    name: str
    seen: str
    text: bytes
    served: tuple[bytes, ...] = ()
    """The bodies of the requests that reach the backend whole, in order."""
    refused: int = 0
    """The status that answers what comes behind those, and ends the connection; 0: nothing is refused."""
    closes: bool = False
    """True if the connection ends behind the last answer nevertheless."""


def refused(name: str, seen: str, text: bytes, status: int = 400, *, after: tuple[bytes, ...] = ()) -> Case:
    """It is refused, behind these requests that are served."""
    return Case(name, seen, text, after, status)


def served(name: str, seen: str, text: bytes, *bodies: bytes, closes: bool = False) -> Case:
    """It is as many requests as there are bodies."""
    return Case(name, seen, text, bodies or (b"",), 0, closes)


class Answer(NamedTuple):
    """What one backend sends for one request, before it closes."""

    name: str
    seen: str
    text: bytes
    status: int
    """Of the last head that the client gets; 502: an answer of the proxy's own."""
    body: bytes = b""
    """What the client gets of the body, if that is a backend's."""
    cut: bool = False
    """True if the client has to see that it is not whole."""
    interims: tuple[int, ...] = ()
    verb: bytes = b"POST"


def bad(name: str, seen: str, text: bytes, *, interims: tuple[int, ...] = (), verb: bytes = b"POST") -> Answer:
    """It does not come through at all."""
    return Answer(name, seen, text, 502, interims=interims, verb=verb)
