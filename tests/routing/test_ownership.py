"""What an answer teaches about the owner of a task, and what teaches nothing."""

import json
from typing import Any

import pytest

from proxy.routing.headers import TASK_METHODS
from proxy.routing.ownership import Learned, Lesson, learn, may_matter

CALL = "tools/call"
YEAR = 366 * 24 * 3600.0


def answer(result: Any = None, **more: Any) -> bytes:
    """A JSON-RPC response with this result, or with no result at all."""
    return json.dumps({"jsonrpc": "2.0", "id": 1, **({} if result is None else {"result": result}), **more}).encode()


def created(**more: Any) -> dict[str, Any]:
    return {"resultType": "task", "taskId": "t-1", "status": "working", **more}


def made(task_id: str = "t-1", ttl: float | None = None, *, finished: bool = False) -> Learned:
    return Learned(Lesson.CREATED, task_id, ttl, finished=finished)


ASKED = Learned(Lesson.ASKED, "")


@pytest.mark.parametrize(
    ("message", "learned"),
    [
        # a task was made: both members in `result`, in any order, whatever stands around them
        (answer(created()), made()),
        (answer(created(content=[{"taskId": "other", "resultType": "task"}])), made()),
        (b'{"result":{"taskId":"t-1","ttlMs":null,"resultType":"task"},"id":1}', made()),
        (b' \r\n\t{ "result" : { "taskId" : "t-1" , "resultType" : "task" } } \n', made()),
        (b'{"\\u0072esult":{"\\u0074ask\\u0049d":"t\\u002d1","resultType":"t\\u0061sk"}}', made()),
        (b'{"result":{"taskId":"\\u00e2","resultType":"task"}}', made("â")),
        ('{"result":{"taskId":"â","resultType":"task"}}'.encode(), made("â")),
        (b'{"result":{"taskId":"\\ud83d\\ude00","resultType":"task"}}', made("😀")),
        (b'{"result":{"taskId":"a\\ud800b","resultType":"task"}}', made("a\ud800b")),
        (answer(created(taskId="x" * 3000)), made("x" * 3000)),
        (answer(created(taskId='a}b"]')), made('a}b"]')),
        (answer(created(), method="tools/call"), made()),
        # how long it is kept
        (answer(created(ttlMs=60_000)), made(ttl=60.0)),
        (answer(created(ttlMs=1)), made(ttl=0.001)),
        (answer(created(ttlMs=1.5)), made(ttl=0.0015)),
        (answer(created(ttlMs=0)), made(ttl=0.0)),
        (answer(created(ttlMs=None)), made()),
        (answer(created(ttlMs=-1)), made()),
        (answer(created(ttlMs="60000")), made()),
        (answer(created(ttlMs=True)), made()),
        (answer(created(ttlMs=[1])), made()),
        (answer(created(ttlMs=10**15)), made(ttl=YEAR)),
        (answer(created(ttlMs=10**400)), made(ttl=YEAR)),
        (b'{"result":{"taskId":"t-1","resultType":"task","ttlMs":1e999}}', made(ttl=YEAR)),
        (b'{"result":{"taskId":"t-1","resultType":"task","ttlMs":-1e999}}', made()),
        # it may have ended already
        (answer(created(status="completed")), made(finished=True)),
        (answer(created(status="failed")), made(finished=True)),
        (answer(created(status="cancelled")), made(finished=True)),
        (answer(created(status="input_required")), made()),
        (answer(created(status="Completed")), made()),
        (answer(created(status=None)), made()),
        (answer(created(status=7)), made()),
        # it asks back, whatever else it says
        (answer({"resultType": "input_required"}), ASKED),
        (answer({"resultType": "input_required", "requestState": "x", "inputRequests": {"a": {}}}), ASKED),
        (answer(created(resultType="input_required")), ASKED),
        (b'{"\\u0072esult":{"resultTyp\\u0065":"input\\u005frequired"}}', ASKED),
        (b' { "result" : { "x" : "}" , "resultType" : "input_required" } } ', ASKED),
        (answer({"resultType": "Input_required"}), None),
        (answer({"resultType": ["input_required"]}), None),
        (answer({"resultType": {"input_required": 1}}), None),
        (answer({"status": "input_required"}), None),
        (answer({"content": [{"resultType": "input_required"}]}), None),
        (answer({"resultType": "input_required"}, error={"code": 1}), None),
        (answer({"resultType": "input_required"}, error=None), None),
        (answer(["input_required"]), None),
        (answer(params={"resultType": "input_required"}), None),
        # nothing was made
        (answer(created(resultType="complete")), None),
        (answer(created(resultType="Task")), None),
        (answer(created(resultType=["task"])), None),
        (answer(created(resultType=None)), None),
        (answer({"taskId": "t-1"}), None),
        (answer(created(taskId="")), None),
        (answer(created(taskId=None)), None),
        (answer(created(taskId=7)), None),
        (answer(created(taskId=["t-1"])), None),
        (answer({"resultType": "task", "task": {"taskId": "t-1"}}), None),
        (answer({"content": created()}), None),
        (answer({"structuredContent": {"result": created()}}), None),
        (answer({"content": [{"type": "text", "text": answer(created()).decode()}]}), None),
        (answer([created()]), None),
        (answer("taskId"), None),
        (answer(params=created()), None),
        (answer(error={"code": -32602, "message": "unknown", "data": created()}), None),
        (answer(created(), error={"code": -32602, "message": "unknown"}), None),
        (answer(created(), error=None), None),
        (b"[" + answer(created()) + b"]", None),
        (b'"taskId"', None),
        (b'{"taskId":"t-1","resultType":"task"}', None),
        (answer({}), None),
        (answer(error={"code": -32602, "message": "Unknown tool"}), None),
        (b"", None),
    ],
)
@pytest.mark.parametrize("name", [None, "t-1", "other"])
def test_an_answer_to_other_methods(message: bytes, learned: Learned | None, name: str | None) -> None:
    """Mcp-Name is a tool's name there, and says nothing about a task."""
    for method in (CALL, "prompts/get", "resources/read", "anything", "tasks/list", ""):
        assert learn(message, method, name) == learned


def about(lesson: Lesson, ttl: float | None = None) -> Learned:
    return Learned(lesson, "t-1", ttl)


UNKNOWN = about(Lesson.UNKNOWN)


@pytest.mark.parametrize(
    ("message", "learned"),
    [
        (answer({"taskId": "t-1", "status": "working"}), about(Lesson.ALIVE)),
        (answer({"taskId": "t-1", "status": "input_required"}), about(Lesson.ALIVE)),
        (answer({"taskId": "t-1"}), about(Lesson.ALIVE)),
        (answer({"taskId": "t-1", "resultType": "input_required"}), about(Lesson.ALIVE)),
        (answer({"resultType": "input_required"}), None),
        (answer({"taskId": "t-1", "status": "working", "ttlMs": 5000}), about(Lesson.ALIVE, 5.0)),
        (answer({"taskId": "t-1", "status": "completed", "ttlMs": 5000}), about(Lesson.FINISHED, 5.0)),
        (answer({"taskId": "t-1", "status": "failed"}), about(Lesson.FINISHED)),
        (answer({"taskId": "t-1", "status": "cancelled"}), about(Lesson.FINISHED)),
        (b'{"result":{"t\\u0061skId":"\\u0074-1","status":"failed"}}', about(Lesson.FINISHED)),
        # an answer to tasks/* never tells that a task was made here
        (answer(created()), about(Lesson.ALIVE)),
        (answer(created(taskId="t-2")), None),
        # only about its own id, and only if that was asked for
        (answer({"taskId": "t-2", "status": "completed"}), None),
        (answer({"taskId": "T-1", "status": "completed"}), None),
        (answer({"taskId": "", "status": "completed"}), None),
        (answer({"status": "completed"}), None),
        (answer({"task": {"taskId": "t-1", "status": "completed"}}), None),
        (answer({"result": {"taskId": "t-1", "status": "completed"}}), None),
        (answer([{"taskId": "t-1", "status": "completed"}]), None),
        (answer({}), None),
        (b"[" + answer({"taskId": "t-1"}) + b"]", None),
        # the backend does not know it
        (answer(error={"code": -32602, "message": "Task not found"}), UNKNOWN),
        (b'{"error":{"code":-32602}}', UNKNOWN),
        (answer(error={"code": -32602, "message": "Task t-1", "data": {"taskId": "t-1"}}), UNKNOWN),
        (answer(error={"code": -32601, "message": "-32602"}), None),
        (answer(error={"code": "-32602"}), None),
        (answer(error={"code": None, "data": -32602}), None),
        (answer(error={"code": [-32602]}), None),
        (b'{"error":{"code":-32602.0}}', None),
        (answer(error=-32602), None),
        (answer(error=[-32602]), None),
        (answer({"code": -32602}), None),
        (answer({"taskId": "t-1"}, error={"code": -32602}), None),
        (answer({"taskId": "t-1", "status": "failed"}, error={"code": 1}), None),
        (answer({"taskId": "t-1", "status": "failed"}, error=None), about(Lesson.FINISHED)),
        (answer({"taskId": "t-1", "status": "failed", "error": {"code": -32602}}), about(Lesson.FINISHED)),
        (b"", None),
    ],
)
@pytest.mark.parametrize("method", sorted(TASK_METHODS))
def test_an_answer_about_a_task(method: str, message: bytes, learned: Learned | None) -> None:
    assert learn(message, method, "t-1") == learned
    assert learn(message, method, None) is None


@pytest.mark.parametrize(
    "message",
    [
        b'{"result":{"taskId":"t-1","resultType":"task"',
        b'{"result":{"taskId":"t-1","resultType":"task"}}x',
        b'{"result":{"taskId":"t-1","resultType":"task"}}{}',
        b"{'result':{\"taskId\":\"t-1\",'resultType':'task'}}",
        b'{"result":{"taskId":"t-1","resultType":"task",}}',
        b'{"result":{"taskId":"t-1","resultType":"input_required","resultType":"input_required"}}',
        b'{"result":{"taskId":"t-1","resultType":"task","x":01}}',
        b'{"result":{"taskId":"t-1","resultType":"task","x":"\t"}}',
        # what two readers could understand differently
        b'{"result":{"taskId":"t-1","taskId":"t-2","resultType":"task"}}',
        b'{"result":{"taskId":"t-1","\\u0074askId":"t-2","resultType":"task"}}',
        b'{"result":{"taskId":"t-1","resultType":"task"},"result":{}}',
        b'{"result":{"taskId":"t-1","resultType":"task","x":{"a":1,"a":1}}}',
        b'{"result":{"taskId":"t-1","resultType":"task","ttlMs":NaN}}',
        b'{"result":{"taskId":"t-1","resultType":"task","ttlMs":Infinity}}',
        b'{"result":{"taskId":"t-1","resultType":"task","x":-Infinity}}',
        b'{"result":{"taskId":"t\xff","resultType":"task"}}',
        b'{"result":{"taskId":"t\xc0\xaf","resultType":"task"}}',
        b'{"result":{"taskId":"t\xed\xa0\x80","resultType":"task"}}',
        b'\xef\xbb\xbf{"result":{"taskId":"t-1","resultType":"task"}}',
        '{"result":{"taskId":"t-1\\u0000","resultType":"task"}}'.encode("utf-16") + b'"taskId"',
        b'{"result":{"taskId":"t-1","resultType":"task","x":' + b"9" * 5000 + b"}}",
        b'{"result":{"taskId":"t-1","resultType":"task","x":' + b"[" * 30_000 + b"]" * 30_000 + b"}}",
        b'{"result":' + b'{"taskId":' * 6000 + b'"t-1"' + b"}" * 6001,
        b'"taskId"x',
        b"\\u",
    ],
)
@pytest.mark.parametrize("method", [CALL, "tasks/get"])
def test_text_that_is_not_strict_json_is_an_error(message: bytes, method: str) -> None:
    with pytest.raises(ValueError):
        learn(message, method, "t-1")


@pytest.mark.parametrize("status", [[], {}, ["completed"], {"completed": True}])
@pytest.mark.parametrize(
    ("method", "learned"), [(CALL, made()), ("tasks/get", about(Lesson.ALIVE)), ("tasks/cancel", about(Lesson.ALIVE))]
)
def test_a_status_that_is_no_text_is_no_terminal_one(method: str, learned: Learned, status: Any) -> None:
    assert learn(answer(created(status=status)), method, "t-1") == learned


@pytest.mark.parametrize(
    ("message", "method", "may"),
    [
        (b'{"result":{"content":[]}}', CALL, False),
        (b'{"result":{"taskId":1}}', CALL, True),
        (b'{"result":{"text":"the taskId is"}}', CALL, False),
        (b'{"result":{"text":"caf\\u00e9"}}', CALL, True),
        (b'{"error":{"code":-32602}}', CALL, False),
        (b'{"error":{"code":-32602}}', "tasks/get", True),
        (b'{"result":{}}', "tasks/cancel", False),
        (b'{"result":{"resultType":"input_required"}}', CALL, True),
        (b'{"result":{"status":"input_required"}}', "tasks/get", False),
    ],
)
def test_the_quick_look_spares_most_answers(message: bytes, method: str, may: bool) -> None:
    assert may_matter(message, method) is may
