"""What the data path accepts, h11 frames the same way or refuses; and what leaves, h11 reads as what was accepted.

A request or a response is compared by its start, its body and its end-to-end fields. That the path refuses more than
h11 does is no disagreement; that it lets pass what h11 takes for less, for more or for something else is one.
"""

import functools
import re
from collections.abc import Iterable
from typing import NamedTuple

from tests.corpus.inside import Inside
from tests.corpus.readers import Read, Reading, read_requests, read_responses

# The fields that a proxy has a say in, by name; all others are the sender's.
_REQUEST_OWN = frozenset(
    b"host content-length transfer-encoding accept-encoding expect "
    b"x-forwarded-for x-forwarded-proto x-forwarded-host".split()
)
_RESPONSE_OWN = frozenset(b"content-length transfer-encoding connection mcp-session-id".split())
_FORBIDDEN = frozenset(
    b"connection keep-alive proxy-connection te trailer upgrade proxy-authorization proxy-authenticate".split()
)


def _same(sent: Read, meant: Read, own: frozenset[bytes]) -> bool:
    """Whether the message that was sent on is the one that came."""
    added = [field for field in sent.fields if field[0] not in own and field not in meant.fields]
    return (sent.start, sent.body) == (meant.start, meant.body) and not added


class Written(NamedTuple):
    """What was written when a client had sent something, and a backend perhaps had answered."""

    to_backends: list[bytes]
    """By connection."""
    to_client: bytes
    closed: bool
    """True if the client's connection then came to a clean end."""


def written(inside: Inside, pieces: Iterable[bytes], *, answer: Iterable[bytes] | None = None) -> Written:
    """Has one client send these pieces; `answer`: what the backend sends, in pieces, before it closes, in place of a
    usual answer to each request."""
    inside.connect()
    if answer is None:
        inside.receive(pieces)
    else:
        inside.receive(pieces, answers=False)
        inside.backend_sends(answer)
    client = inside.client
    found = Written(inside.sent(), bytes(client.written), (client.closing or client.eof) and not client.reset)
    inside.leave()
    return found


def check_requests(text: bytes, found: Written) -> tuple[list[Read], list[int]]:
    """What came of this text of a client. Returns the requests that reached backends whole, and the statuses of all
    answers. Raises AssertionError for a disagreement."""
    readings = [read_requests(sent) for sent in found.to_backends]
    requests = [message for reading in readings for message in reading.messages]
    for reading in readings:
        assert not reading.error, f"a backend cannot read it: {reading.error}"
        assert not reading.rest or reading.waits
    for request in requests:
        lengths = [value for name, value in request.fields if name == b"content-length"]
        codings = [value for name, value in request.fields if name == b"transfer-encoding"]
        assert len(lengths) + len(codings) <= 1
        assert codings in ([], [b"chunked"])
        assert sum(name == b"host" for name, _ in request.fields) == 1
        assert _FORBIDDEN.isdisjoint(name for name, _ in request.fields)
        assert request.start[1].startswith(b"/")
    answers = _answers(found.to_client, [request.start[0] for request in requests], closed=found.closed)
    places = [at for at, answer in enumerate(answers) if not _is_own(answer)]
    meant = read_requests(text) if requests else None
    for at, request in zip(places, requests, strict=True):
        assert meant is not None
        if at < len(meant.messages):
            assert _same(request, meant.messages[at], _REQUEST_OWN), f"{request} instead of {meant.messages[at]}"
        else:
            assert not meant.waits, "it was taken for whole, and is not"
    return requests, [int(answer.start[0]) for answer in answers]


def _answers(text: bytes, verbs: list[bytes], *, closed: bool) -> list[Read]:
    """The final responses to a client: one to each request that reached a backend, and those of the proxy's own."""
    answers: list[Read] = []
    left = iter(verbs)
    while text:
        head, _, behind = text.partition(b"\r\n\r\n")
        if b"\r\nMcp-Proxy-Error: " in head:
            verb = b"POST" if behind.startswith(b"{") else b"HEAD"
        else:
            verb = next(left, b"")
            assert verb, "an answer to nothing"
        read = _read_answer(text, verb, closed)
        assert not read.error, f"the client cannot read it: {read.error}"
        assert not read.waits, "the client was left with half an answer"
        answers.append(read.messages[-1])
        text = read.rest
    assert next(left, b"") == b"", "no answer to a request"
    return answers


@functools.lru_cache(maxsize=1000)
def _read_answer(text: bytes, verb: bytes, closed: bool) -> Reading:
    """Refusals are many and alike."""
    return read_responses(text, [verb], closed=closed)


def _is_own(answer: Read) -> bool:
    return any(name == b"mcp-proxy-error" for name, _ in answer.fields)


def _parted(messages: list[Read]) -> tuple[list[Read], Read | None]:
    """The interim responses, and the final one."""
    interims = [message for message in messages if message.start[0].startswith(b"1")]
    return interims, messages[-1] if len(messages) > len(interims) else None


def check_response(text: bytes, found: Written, *, verb: bytes, http10: bool = False) -> tuple[list[Read], bool]:
    """What came of this text of a backend that answers a request of this method and version.

    Returns the answers that the client read whole, and whether it was left with half of one. Raises AssertionError for
    a disagreement.
    """
    read = _read_answer(found.to_client, verb, found.closed)
    assert not read.error, f"the client cannot read it: {read.error}"
    assert not read.rest
    for answer in read.messages:
        assert _FORBIDDEN.isdisjoint(name for name, _ in answer.fields if name != b"connection")
    meant = read_responses(text, [verb])
    interims, final = _parted(read.messages)
    meant_interims, meant_final = _parted(meant.messages)
    assert not (http10 and interims)  # it knows none
    for answer, message in zip(interims, meant_interims, strict=False):
        assert _same(answer, message, _RESPONSE_OWN), f"{answer} instead of {message}"
    if final is not None and not _is_own(final):
        if meant_final is None:
            assert not meant.waits, "it was taken for whole, and is not"
        else:
            assert _same(final, meant_final, _RESPONSE_OWN), f"{final} instead of {meant_final}"
            assert len(interims) == (0 if http10 else len(meant_interims))
    return read.messages, read.waits


def empty_lines_count(text: bytes) -> bool:
    """False where it depends on the pieces whether there are too many empty lines before a request."""
    return re.search(rb"(?:\r\n){9}", text) is None
