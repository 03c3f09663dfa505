"""Each response of the corpus, over sockets: relayed as what it is, visibly cut, or answered with 502; never split."""

import pytest

from tests.corpus.agreement import Written, check_response
from tests.corpus.all_cases import ANSWERS
from tests.corpus.cases import Answer
from tests.corpus.readers import read_responses
from tests.corpus.sockets import playing, received, ways
from tests.wire.harness import BackendSide, answer_always, backend, client, config_text, post, running, until


def test_every_case_has_a_name_of_its_own_and_a_source() -> None:
    assert len({case.name for case in ANSWERS}) == len(ANSWERS) > 100
    assert all(case.seen for case in ANSWERS)


@pytest.mark.parametrize("case", ANSWERS, ids=lambda case: case.name)
async def test_a_response_however_it_is_sent(case: Answer) -> None:
    """h11 reads what the client got as exactly this answer, or as half of one; and as h11 reads the backend's bytes."""
    for way, pieces in ways(case.text, case.name):
        async with backend(playing(pieces)) as a, running(config_text(a.port)) as proxy, client(proxy.port) as c:
            c.send(post(b"Connection: close", body=b"").replace(b"POST", case.verb, 1))
            text, closed = await received(c.reader)
            assert closed
            messages, is_cut = check_response(case.text, Written([], text, closed), verb=case.verb)
            assert is_cut is case.cut, way
            statuses = tuple(int(message.start[0]) for message in messages)
            assert statuses == case.interims + (() if is_cut else (case.status,)), way
            if is_cut:
                assert text.startswith(b"HTTP/1.1 %d " % case.status), way
                assert case.body.startswith(read_responses(text, [case.verb]).half), way
            elif case.status != 502:
                assert messages[-1].body == case.body, way
            assert b"stolen" not in text.partition(b"\r\n\r\n")[2], way
            await until(lambda: not a.open)


SURPLUS = [case for case in ANSWERS if "queue poisoning" in case.seen or "response splitting" in case.seen]


@pytest.mark.parametrize("case", SURPLUS, ids=lambda case: case.name)
async def test_what_a_backend_sends_too_much_reaches_no_other_client(case: Answer) -> None:
    """Its connection is not used again."""
    played: list[BackendSide] = []

    async def poison_once(side: BackendSide) -> None:
        if not played:
            played.append(side)
            await side.request()
            side.send(case.text)
        await answer_always(side)

    async with backend(poison_once) as a, running(config_text(a.port)) as proxy:
        async with client(proxy.port) as c:
            c.send(post(body=b"").replace(b"POST", case.verb, 1))
            first = await c.response(to_head=case.verb == b"HEAD")
            assert (first.status, first.body) == (case.status, case.body)
        async with client(proxy.port) as c:
            answer = await c.ask(post())
            assert (answer.status, answer.body) == (200, b'{"jsonrpc":"2.0","id":1,"result":{}}')
        assert a.connections == 2
