"""What reaches a backend is read by nginx as the same requests; what was served, it serves the same or refuses."""

import random
from pathlib import Path

import pytest

from tests.corpus.agreement import written
from tests.corpus.all_cases import REQUESTS
from tests.corpus.cases import Case
from tests.corpus.inside import Inside
from tests.corpus.nginx import PROGRAM, nginx
from tests.corpus.readers import Read, read_requests
from tests.corpus.sockets import ways

pytestmark = pytest.mark.skipif(PROGRAM is None, reason="nginx is not installed: Debian's nginx-light would do")
SCRAPS = [
    b"",
    b"\r\n",
    b"\n",
    b"\r",
    b" ",
    b"\t",
    b":",
    b";",
    b"0",
    b"x",
    b"%00",
    b"\xff",
    b"_",
    b"/",
    b"?",
    b'"',
    b"<",
]
SERVED = [case for case in REQUESTS if case.served]


def _sent(case: Case) -> list[list[bytes]]:
    """What backends are sent, by way of sending the case and by connection."""
    inside = Inside()
    with inside.running():
        return [written(inside, pieces).to_backends for _, pieces in ways(case.text, case.name)]


def _told(messages: list[Read]) -> list[tuple[tuple[bytes, ...], bytes]]:
    return [(message.start, message.body) for message in messages]


async def test_what_leaves_is_read_alike(tmp_path: Path) -> None:
    """Nothing of it is refused by nginx, and nothing is taken for more or less than it is."""
    sent = {case.name: _sent(case) for case in SERVED}
    assert len(sent) > 90
    async with nginx(tmp_path) as reader:
        for name, by_way in sent.items():
            for text in {text for texts in by_way for text in texts}:
                meant = read_requests(text)
                found, _ = await reader.reads(text, len(meant.messages))
                assert _told(found) == _told(meant.messages), name


async def test_what_was_served_is_read_alike_or_refused(tmp_path: Path) -> None:
    alike = 0
    async with nginx(tmp_path) as reader:
        for case in SERVED:
            served = [message for text in _sent(case)[0] for message in read_requests(text).messages]
            found, refused = await reader.reads(case.text, len(served))
            common = min(len(found), len(served))
            assert _told(found)[:common] == _told(served)[:common], case.name
            assert refused or len(found) >= len(served), case.name
            alike += len(found) >= len(served)
    assert alike > 0.9 * len(SERVED)


async def test_changed_requests_that_are_served_are_read_alike_or_refused(tmp_path: Path) -> None:
    """Requests of the corpus with a few bytes changed at random: as they came, and as they left."""
    chance, texts, alike = random.Random(20260728), list[tuple[bytes, list[Read]]](), 0
    inside = Inside()
    with inside.running():
        while len(texts) < 300:
            text = chance.choice(SERVED).text[:2000]
            for _ in range(chance.randint(1, 3)):
                at = chance.randrange(len(text))
                text = text[:at] + chance.choice(SCRAPS) + text[at + chance.randint(0, 2) :]
            found = written(inside, [text])
            left = [read_requests(sent) for sent in found.to_backends]
            if left and b"\r\nMcp-Proxy-Error: " not in found.to_client and not any(reading.waits for reading in left):
                messages = [message for reading in left for message in reading.messages]
                texts += [
                    (text, messages),
                    *zip(found.to_backends, [reading.messages for reading in left], strict=True),
                ]
    async with nginx(tmp_path) as reader:
        for text, meant in texts:
            messages, refused = await reader.reads(text, len(meant))
            common = min(len(messages), len(meant))
            assert _told(messages)[:common] == _told(meant)[:common], text
            assert refused or len(messages) >= len(meant), text
            alike += len(messages) >= len(meant)
    assert alike > 0.9 * len(texts)  # nginx refuses an encoded NUL in a path
