"""What the answers to one request about a task amount to: which is relayed, and when nobody knows."""

from itertools import product

import pytest

from proxy.routing.searches import Reply, decides, reply_of, verdict, worth_waiting

RESULT = b'{"jsonrpc":"2.0","id":1,"result":{"taskId":"t-1","status":"working"}}'
UNKNOWN_TASK = b'{"jsonrpc":"2.0","id":1,"error":{"code":-32602,"message":"no such task"}}'
UNKNOWN_METHOD = b'{"jsonrpc":"2.0","id":1,"error":{"code":-32601,"message":"no such method"}}'
OTHER_ERROR = b'{"jsonrpc":"2.0","id":1,"error":{"code":-32603,"message":"it failed"}}'
UNREADABLE = [
    None,
    b"",
    b"{",
    b"not JSON",
    b"\xff",
    b"null",
    b"7",
    b"[" + RESULT + b"]",
    b"[" * 100_000,
    b'{"result":{},"result":{}}',
    b'{"result":NaN}',
    b'\xef\xbb\xbf{"result":{}}',
]


@pytest.mark.parametrize(
    ("status", "message", "reply"),
    [
        (200, RESULT, Reply.RESULT),
        (200, b'{"result":null}', Reply.RESULT),
        (200, b'{"result":{}}', Reply.RESULT),
        (202, RESULT, Reply.RESULT),
        (299, RESULT, Reply.RESULT),
        (200, UNKNOWN_TASK, Reply.UNKNOWN_TASK),
        (200, UNKNOWN_METHOD, Reply.UNKNOWN_METHOD),
        (200, OTHER_ERROR, Reply.REFUSED),
        (200, b'{"error":{}}', Reply.REFUSED),
        (200, b'{"error":{"code":null}}', Reply.REFUSED),
        (200, b'{"error":{"code":"-32602"}}', Reply.REFUSED),
        (200, b'{"error":{"code":[-32602]}}', Reply.REFUSED),
        # with an error it is no result, and without either it is no answer
        (200, b'{"result":{},"error":{"code":-32602}}', Reply.UNKNOWN_TASK),
        (200, b'{"result":{},"error":null}', Reply.FAILED),
        (200, b'{"error":null}', Reply.FAILED),
        (200, b'{"error":"no"}', Reply.FAILED),
        (200, b'{"jsonrpc":"2.0","method":"ping"}', Reply.FAILED),
        (200, b"{}", Reply.FAILED),
        # refusals by status alone, or with a code that says more
        (401, None, Reply.UNAUTHORIZED),
        (403, None, Reply.FORBIDDEN),
        (400, None, Reply.REFUSED),
        (404, None, Reply.REFUSED),
        (405, b"<html>", Reply.REFUSED),
        (499, b"{}", Reply.REFUSED),
        (401, OTHER_ERROR, Reply.UNAUTHORIZED),
        (403, OTHER_ERROR, Reply.FORBIDDEN),
        (400, OTHER_ERROR, Reply.REFUSED),
        (401, b'{"error":"invalid_token"}', Reply.UNAUTHORIZED),
        (400, UNKNOWN_TASK, Reply.UNKNOWN_TASK),
        (404, UNKNOWN_TASK, Reply.UNKNOWN_TASK),
        (404, UNKNOWN_METHOD, Reply.UNKNOWN_METHOD),
        # a result under a refusal's status is none
        (404, RESULT, Reply.REFUSED),
        (401, RESULT, Reply.UNAUTHORIZED),
        # nobody knows
        (429, None, Reply.FAILED),
        (429, UNKNOWN_TASK, Reply.FAILED),
        (429, RESULT, Reply.FAILED),
        (500, None, Reply.FAILED),
        (500, UNKNOWN_TASK, Reply.FAILED),
        (502, RESULT, Reply.FAILED),
        (503, OTHER_ERROR, Reply.FAILED),
        (599, None, Reply.FAILED),
        (999, RESULT, Reply.FAILED),
        (300, RESULT, Reply.FAILED),
        (307, None, Reply.FAILED),
        (399, UNKNOWN_TASK, Reply.FAILED),
        (100, RESULT, Reply.FAILED),
        (199, None, Reply.FAILED),
        (204, None, Reply.FAILED),
    ],
)
def test_what_an_answer_means(status: int, message: bytes | None, reply: Reply) -> None:
    assert reply_of(status, message) is reply


@pytest.mark.parametrize("message", UNREADABLE, ids=range(len(UNREADABLE)))
def test_an_answer_that_cannot_be_read_tells_by_its_status_alone(message: bytes | None) -> None:
    assert reply_of(200, message) is Reply.FAILED
    assert reply_of(401, message) is Reply.UNAUTHORIZED
    assert reply_of(403, message) is Reply.FORBIDDEN
    assert reply_of(404, message) is Reply.REFUSED
    assert reply_of(500, message) is Reply.FAILED


def test_an_answer_is_neither_pending_nor_missing() -> None:
    for status in range(100, 1000):
        for message in (None, RESULT, UNKNOWN_TASK):
            assert reply_of(status, message) not in (Reply.PENDING, Reply.GONE, Reply.ABSENT)


@pytest.mark.parametrize(
    ("message", "answer"),
    [
        (RESULT, True),
        (UNKNOWN_TASK, True),
        (OTHER_ERROR, True),
        (b'{"result":null}', True),
        (b'{"error":null}', True),
        (b'{"jsonrpc":"2.0","method":"notifications/progress","params":{"result":1}}', False),
        (b'{"params":{"error":{}}}', False),
        (b"[" + RESULT + b"]", False),
        *((message, False) for message in UNREADABLE if message is not None),
    ],
)
def test_which_message_of_a_stream_is_the_answer(message: bytes, answer: bool) -> None:
    assert decides(message) is answer


ORDER = [Reply.UNAUTHORIZED, Reply.FORBIDDEN, Reply.REFUSED, Reply.UNKNOWN_TASK, Reply.UNKNOWN_METHOD]


def by_the_rules(replies: tuple[Reply, ...], *, wait_for_all: bool) -> int | None:
    """The rules once more, one after the other; who is gone is asked for nothing."""
    if wait_for_all and any(reply is Reply.PENDING for reply in replies):
        return None
    for index, reply in enumerate(replies):
        if reply is Reply.RESULT:
            return index
    if any(reply in (Reply.PENDING, Reply.FAILED, Reply.ABSENT) for reply in replies):
        return None
    for kind in ORDER:
        for index, reply in enumerate(replies):
            if reply is kind:
                return index
    return None


@pytest.mark.parametrize("wait_for_all", [False, True])
@pytest.mark.parametrize("count", [0, 1, 2, 3, 4])
def test_every_verdict_on_up_to_four_answers(count: int, wait_for_all: bool) -> None:
    for replies in product(Reply, repeat=count):
        assert verdict(replies, wait_for_all=wait_for_all) == by_the_rules(replies, wait_for_all=wait_for_all), replies


def test_a_verdict_never_changes_once_it_is_given_to_a_search_for_one_answer() -> None:
    """Answers that come later can only fill in what is pending."""
    for replies in product(Reply, repeat=3):
        given = verdict(replies, wait_for_all=False)
        if given is None:
            continue
        for later in Reply:
            filled = [later if reply is Reply.PENDING and later is not Reply.RESULT else reply for reply in replies]
            assert verdict(filled, wait_for_all=False) == given


@pytest.mark.parametrize(
    ("replies", "one", "everyone"),
    [
        ("R", 0, 0),
        (".R", 1, None),
        ("FR", 1, 1),
        ("TTR", 2, 2),
        ("RR", 0, 0),
        ("TF", None, None),
        ("TTT", 0, 0),
        ("MT", 1, 1),
        ("TME", 2, 2),
        ("E34", 2, 2),
        ("ET34", 3, 3),
        ("MMM", 0, 0),
        ("4F", None, None),
        ("...", None, None),
        ("", None, None),
        # who is gone does not count
        ("GR", 1, 1),
        ("GT", 1, 1),
        ("TG", 0, 0),
        ("GF", None, None),
        ("G.R", 2, None),
        ("G.", None, None),
        ("GG", None, None),
    ],
)
def test_verdicts_worth_seeing(replies: str, one: int | None, everyone: int | None) -> None:
    """R result, T unknown task, M unknown method, E other error, 4 is 401, 3 is 403, F failed, G gone, . not yet."""
    kinds = {
        "R": Reply.RESULT,
        "T": Reply.UNKNOWN_TASK,
        "M": Reply.UNKNOWN_METHOD,
        "E": Reply.REFUSED,
        "4": Reply.UNAUTHORIZED,
        "3": Reply.FORBIDDEN,
        "F": Reply.FAILED,
        "G": Reply.GONE,
        ".": Reply.PENDING,
    }
    found = [kinds[one] for one in replies]
    assert verdict(found, wait_for_all=False) == one
    assert verdict(found, wait_for_all=True) == everyone


def test_waiting_is_worth_it_only_where_those_that_are_away_decide() -> None:
    undecided = {Reply.ABSENT, Reply.GONE, Reply.UNKNOWN_TASK, Reply.UNKNOWN_METHOD}
    for count in range(4):
        for replies in product(Reply, repeat=count):
            expected = any(reply is Reply.ABSENT for reply in replies) and all(reply in undecided for reply in replies)
            assert worth_waiting(replies) is expected, replies
            if expected:
                assert verdict(replies, wait_for_all=False) is verdict(replies, wait_for_all=True) is None
                # whoever it is that comes back with a result, it counts
                back = [Reply.RESULT if reply is Reply.ABSENT else reply for reply in replies]
                assert verdict(back, wait_for_all=True) == replies.index(Reply.ABSENT)
