"""Any answer at all: what is learned follows the rules, and the quick look misses nothing."""

import json
from typing import Any
from unittest.mock import patch

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from proxy.routing import ownership
from proxy.routing.headers import TASK_METHODS
from proxy.routing.ownership import Learned, Lesson, learn, may_change, may_matter, pin_key, short_digest

CALL = "tools/call"
YEAR = 366 * 24 * 3600.0


def whole_look(message: bytes, method: str, name: str | None) -> Learned | None:
    """`learn` without its quick look at what could matter."""
    with patch.object(ownership, "may_matter", lambda message, method: True):
        return learn(message, method, name)


METHODS = st.sampled_from([CALL, "tasks/get", "tasks/update", "tasks/cancel", "tasks/list", ""])
NAMES = st.sampled_from([None, "t-1", "", "é"])
SCRAPS = [
    b'"input_required"',
    b'"taskId"',
    b'"result"',
    b'"resultType"',
    b'"task"',
    b'"t-1"',
    b'"error"',
    b'"code"',
    b"-32602",
    b'"status"',
]
SCRAPS += [
    b'"completed"',
    b"{",
    b"}",
    b"[",
    b"]",
    b":",
    b",",
    b"\\u0074",
    b"\\u",
    b'"',
    b"1e999",
    b"NaN",
    b"\xff",
    b" ",
]


@settings(deadline=None, max_examples=400)
@given(st.one_of(st.binary(max_size=60), st.lists(st.sampled_from(SCRAPS), max_size=25).map(b"".join)), METHODS, NAMES)
def test_any_bytes_teach_or_are_a_value_error(message: bytes, method: str, name: str | None) -> None:
    try:
        learned = learn(message, method, name)
    except ValueError:
        return
    assert learned is None or isinstance(learned, Learned)


SCALARS = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-(10**9), 10**9),
    st.just(-32602),
    st.floats(allow_nan=False),
    st.sampled_from(["task", "t-1", "é", "completed", "working", "", "\ud800", '"taskId"']),
)
MEMBERS: dict[str, st.SearchStrategy[Any]] = {
    "resultType": st.one_of(st.just("task"), st.just("input_required"), SCALARS),
    "taskId": st.one_of(st.sampled_from(["t-1", "é", "t-2"]), SCALARS),
    "status": st.one_of(SCALARS, st.lists(SCALARS, max_size=1), st.dictionaries(st.just("completed"), SCALARS)),
    "ttlMs": SCALARS,
    "code": st.one_of(st.just(-32602), SCALARS),
}
OBJECTS = st.fixed_dictionaries({}, optional=MEMBERS)
ANSWERS = st.fixed_dictionaries(
    {},
    optional={
        "jsonrpc": st.just("2.0"),
        "id": SCALARS,
        "result": st.one_of(OBJECTS, OBJECTS, st.lists(OBJECTS, max_size=2), SCALARS),
        "error": st.one_of(OBJECTS, SCALARS),
        "method": SCALARS,
        "params": OBJECTS,
    },
)


def simple_rules(message: Any, method: str, name: str | None) -> tuple[Lesson, str] | None:
    """The rules once more, from the specification's words."""
    result, error = message.get("result"), message.get("error")
    if method in TASK_METHODS:
        if isinstance(error, dict):
            code = error.get("code")
            unknown = "result" not in message and code == -32602 and isinstance(code, int)
            return (Lesson.UNKNOWN, name) if unknown and name is not None else None
        if name is None or not isinstance(result, dict) or result.get("taskId") != name:
            return None
        over = any(result.get("status") == status for status in ("completed", "failed", "cancelled"))
        return (Lesson.FINISHED if over else Lesson.ALIVE, name)
    if "error" in message or not isinstance(result, dict):
        return None
    if result.get("resultType") == "input_required":
        return (Lesson.ASKED, "")
    if result.get("resultType") != "task":
        return None
    task_id = result.get("taskId")
    return (Lesson.CREATED, task_id) if isinstance(task_id, str) and task_id else None


@settings(deadline=None, max_examples=500)
@given(ANSWERS, st.booleans(), METHODS, NAMES)
def test_any_answer(message: dict[str, Any], ascii_only: bool, method: str, name: str | None) -> None:
    """What is learned follows the rules, and the quick look never says no where there is something to learn."""
    text = json.dumps(message, ensure_ascii=ascii_only).encode("utf-8", "surrogatepass")
    try:
        learned = whole_look(text, method, name)
    except ValueError:
        assert b"\xed\xa0\x80" in text or b"Infinity" in text
        return
    assert (learned and (learned.lesson, learned.task_id)) == simple_rules(message, method, name)
    assert learned is None or may_matter(text, method)
    assert learn(text, method, name) == learned
    if learned is not None:
        assert learned.ttl is None or 0 <= learned.ttl <= YEAR
        pin_key("pool", learned.task_id)
        short_digest(learned.task_id)


@settings(deadline=None, max_examples=200)
@given(st.data())
def test_escapes_hide_nothing_from_the_quick_look(data: st.DataObject) -> None:
    """JSON lets any character of a key or value be written as an escape."""
    method, name = data.draw(st.sampled_from([(CALL, None), ("tasks/get", "t-1")]))

    def written(text: str) -> str:
        return "".join(
            data.draw(st.sampled_from([char, f"\\u{ord(char):04x}", f"\\u{ord(char):04X}"])) for char in text
        )

    message = '{"%s":{"%s":"%s","%s":"%s"}}' % tuple(  # noqa: UP031 - braces all over
        written(text) for text in ("result", "taskId", "t-1", "resultType", "task")
    )
    learned = learn(message.encode(), method, name)
    assert learned is not None
    assert learned.task_id == "t-1"


@pytest.mark.parametrize("code", ["-3.2602e4", "-0.32602e5", "-3260.2E1"])
def test_the_quick_look_finds_what_would_be_learned_from_any_number(code: str) -> None:
    message = b'{"error":{"code":%b}}' % code.encode()
    assert may_matter(message, "tasks/get") or whole_look(message, "tasks/get", "t-1") is None


TTLS = st.one_of(st.none(), st.sampled_from([0, 250, 1000, 60_000, 1.5, 1e18, True, "60000", -1]))
STATES = st.sampled_from(["working", "input_required", "completed", "failed", "cancelled", "", None, 5])


@settings(deadline=None, max_examples=600)
@given(st.data())
def test_an_answer_that_changes_nothing_tells_what_was_known(data: st.DataObject) -> None:
    """Whatever the spelling: of a task it says at most that it lives, with the same time to live."""
    task: dict[str, Any] = {"taskId": data.draw(st.sampled_from(["t-1", "t-2", 5])), "status": data.draw(STATES)}
    for name in data.draw(st.sets(st.sampled_from(["ttlMs", "status", "taskId", "x"]))):
        task.pop(name, None)
        task[name] = data.draw({"ttlMs": TTLS, "status": STATES}.get(name, st.sampled_from(["t-1", "completed", 1])))
    message: dict[str, Any] = {"jsonrpc": "2.0", "id": 1, "result": task}
    if data.draw(st.booleans()):
        message["error"] = {"code": data.draw(st.sampled_from([-32602, -32603]))}
    if data.draw(st.booleans()):
        del message["result"]
    indent = data.draw(st.sampled_from([None, None, 1]))
    separators = data.draw(st.sampled_from([None, (",", ":"), (" , ", " : ")]))
    text = json.dumps(message, indent=indent, separators=separators)
    for plain in ("ttlMs", "completed", "-32602", "taskId", "60000"):
        if data.draw(st.integers(0, 9)) == 0 and f'"{plain}"' in text:
            text = text.replace(f'"{plain}"', f'"\\u{ord(plain[0]):04x}{plain[1:]}"')
    known = data.draw(st.sampled_from([None, 0.0, 0.25, 1.0, 60.0]))
    if not may_change(text.encode(), known):
        assert whole_look(text.encode(), "tasks/get", "t-1") in (None, Learned(Lesson.ALIVE, "t-1", known))


@pytest.mark.parametrize("spelt", ['"ttlMs":60000,', '"ttlMs":60000}', '"ttlMs":null,', ""])
def test_most_polls_change_nothing(spelt: str) -> None:
    text = '{"result":{"taskId":"t-1","status":"working",' + spelt + '"x":{"a":"\\"completed\\""}}}'
    assert not may_change(text.encode(), 60.0 if "6" in spelt else None)
    assert may_change(text.encode(), 61.0)
    assert may_change(text.replace('"status":', '"status": ').encode(), 60.0 if "6" in spelt else None)
    assert may_change(text.replace("working", "input_required").encode(), 60.0 if "6" in spelt else None)
