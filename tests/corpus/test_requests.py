"""Each request of the corpus, over sockets: served as what it is, or refused; the next client's request is its own."""

import pytest

from tests.corpus.agreement import Written, check_requests, written
from tests.corpus.all_cases import REQUESTS
from tests.corpus.cases import HONEST, SMUGGLED, Case
from tests.corpus.inside import Inside
from tests.corpus.readers import read_requests, read_responses
from tests.corpus.sockets import Recorder, received, send, ways
from tests.wire.harness import backend, client, config_text, running, until

_ROUTES = "  - {name: rest, match: {path: '/*'}, pool: agents}"


def test_every_case_has_a_name_of_its_own_and_a_source() -> None:
    assert len({case.name for case in REQUESTS}) == len(REQUESTS) > 400
    assert all(case.seen and case.text for case in REQUESTS)


async def _play(port: int, recorder: Recorder, case: Case, pieces: list[bytes], count: int) -> Written:
    """One client sends the pieces, and awaits as many answers and, where one is due, the end of its connection."""
    recorder.take()
    verbs = [b"HEAD" if b"HEAD " in case.text[:5] else b"POST"] * count
    ends = bool(case.refused) or case.closes

    def enough(text: bytes) -> bool:
        found = [read for read in read_responses(text, verbs, closed=False).messages if read.start != (b"100",)]
        return not ends and len(found) >= count

    async with client(port) as c:
        await send(c.writer, pieces)
        answers, closed = await received(c.reader, until=enough)
    return Written(recorder.take(), answers, closed)


@pytest.mark.parametrize("case", REQUESTS, ids=lambda case: case.name)
async def test_a_request_however_it_is_sent(case: Case) -> None:
    """Joined with a request of another client of the same front, too: that one is served as it was sent, or not at all.

    What the backend received is read by h11: as exactly these requests, with nothing behind them.
    """
    recorder = Recorder()
    async with backend(recorder.script) as a, running(config_text(a.port, routes=_ROUTES)) as proxy:
        for behind in (b"", HONEST):
            text = case.text + behind
            served = case.served + ((b"honest",) if behind and not case.refused and not case.closes else ())
            for way, pieces in ways(text, case.name):
                if behind and way == "byte by byte":
                    continue  # what is behind it was not there yet
                found = await _play(proxy.port, recorder, case, pieces, len(served))
                requests, statuses = check_requests(text, found)
                assert tuple(request.body for request in requests) == served, way
                assert statuses == [200] * len(served) + [case.refused] * bool(case.refused), way
                assert found.closed is (bool(case.refused) or case.closes), way
                assert all(request.start[1] != b"/stolen" for request in requests), way
                left = [read_requests(sent).waits for sent in found.to_backends]
                assert not any(left) or case.refused, way
        await until(lambda: not proxy.clients)


def test_the_corpus_without_sockets_comes_to_the_same() -> None:
    """So that what is fuzzed is what clients meet."""
    inside = Inside()
    with inside.running():
        for case in REQUESTS:
            for _, pieces in ways(case.text, case.name):
                requests, statuses = check_requests(case.text, written(inside, pieces))
                assert tuple(request.body for request in requests) == case.served, case.name
                assert statuses == [200] * len(case.served) + [case.refused] * bool(case.refused), case.name


@pytest.mark.parametrize("count", [9, 100])
def test_too_many_empty_lines_are_refused_however_they_come(count: int) -> None:
    text = b"\r\n" * count + SMUGGLED
    inside = Inside()
    with inside.running():
        inside.connect()
        inside.receive([text[at : at + 1] for at in range(len(text))])
        assert inside.client.written.startswith(b"HTTP/1.1 400 ")
        inside.leave()
