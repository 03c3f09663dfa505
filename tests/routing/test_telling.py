"""An explanation as an operator reads it, and as programs do."""

import json

import pytest

from proxy.routing.errors import BadRequest, DuplicateHeader
from proxy.routing.explanation import Explanation, Failure, Place, RingOrder, Standing, Verdict, refused
from proxy.routing.headers import RoutingHeaders
from proxy.routing.telling import as_text, as_values

CALL = RoutingHeaders("POST", "/mcp", "mcp.test", "2026-07-28", True, "tools/call", name="search")
A = Standing("a", "http://10.0.0.1:8000/mcp", 1, 0, draining=False, departed=False)
LONG = Standing("backend-2", "http://10.0.0.2:80/mcp", 2, 3, draining=True, departed=True, up=False, ejected=True)
NO_BACKEND = Failure("no_backend", 503, -32000, "pool canary: no backend takes new work")

BALANCED = Explanation(
    CALL,
    name="search",
    verdicts=(Verdict("gpu", "name 'search' is not 'render_*'"), Verdict("everything", "")),
    rule="everything",
    places=(
        Place("everything", "agents", "none", "balance", (A, LONG), "least_in_flight", part=95, whole=100),
        Place("everything", "canary", "none", None, failure=NO_BACKEND, part=5, whole=100),
    ),
    notes=("no Host was given: mcp.test is assumed",),
)
SEARCHED = Explanation(
    CALL._replace(method="tasks/get", name="secret-id"),
    kind="task",
    task="0123456789",
    asked="task",
    verdicts=(Verdict("rest", ""),),
    reachable=("agents", "shared"),
    places=(
        Place("rest", "agents", "task", "search", (A, LONG)),
        Place("rest", "shared", "task", "search", (A,), ring=RingOrder("task 0123456789", ("a", "b"))),
        Place("rest", "other", "task", "search", (A, LONG), "round_robin"),
    ),
)


def test_a_balanced_request() -> None:
    assert as_text(BALANCED) == (
        "request:    POST /mcp, host mcp.test\n"
        "era:        modern, MCP-Protocol-Version '2026-07-28'\n"
        "method:     'tools/call'\n"
        "name:       'search'\n"
        "routes:     the first that matches is taken\n"
        "  gpu         name 'search' is not 'render_*'\n"
        "  everything  matches\n"
        "pool:       agents for 95 of 100 requests\n"
        "  least_in_flight picks one of:\n"
        "    a          http://10.0.0.1:8000/mcp  weight 1, 0 in flight\n"
        "    backend-2  http://10.0.0.2:80/mcp    weight 2, 3 in flight, draining, departed, down, ejected\n"
        "pool:       canary for 5 of 100 requests\n"
        "  503 no_backend (-32000): pool canary: no backend takes new work\n"
        "note:       no Host was given: mcp.test is assumed\n"
    )


def test_a_search() -> None:
    assert as_text(SEARCHED) == (
        "request:    POST /mcp, host mcp.test\n"
        "era:        modern, MCP-Protocol-Version '2026-07-28'\n"
        "method:     'tasks/get'\n"
        "task:       0123456789 (a digest of its id)\n"
        "routes:     the task may be in any that matches; method, name and param are not asked\n"
        "  rest  matches\n"
        "reachable:  agents, shared\n"
        "owner:      not known; these are asked at once, and the first result is relayed:\n"
        "  pool agents\n"
        "    a          http://10.0.0.1:8000/mcp  weight 1, 0 in flight\n"
        "    backend-2  http://10.0.0.2:80/mcp    weight 2, 3 in flight, draining, departed, down, ejected\n"
        "  pool shared\n"
        "    a  http://10.0.0.1:8000/mcp  weight 1, 0 in flight\n"
        "    ring: key task 0123456789, order a, b\n"
        "  pool other, one of (round_robin)\n"
        "    a          http://10.0.0.1:8000/mcp  weight 1, 0 in flight\n"
        "    backend-2  http://10.0.0.2:80/mcp    weight 2, 3 in flight, draining, departed, down, ejected\n"
    )


def test_a_search_that_everyone_has_to_answer() -> None:
    place = Place("rest", "agents", "task", "search", (A,))
    text = as_text(Explanation(CALL, kind="task", places=(place,), everyone=True))
    assert "owner:      not known; these are asked, all or none, and every answer is awaited:\n  pool agents\n" in text


@pytest.mark.parametrize(
    ("place", "why"),
    [
        (Place("r", "p", "session", "tag", (A,)), "  by the tag in the session's id:\n"),
        (Place("r", "p", "round", "pin", (A,)), "  since it asked back, and this may be the answer:\n"),
        (Place("r", "p", "task", "pin", (A,)), "  by the task's pin:\n"),
        (Place("r", "p", "task", "tag", (A,)), "  by the tag in the task's id:\n"),
        (Place("r", "p", "none", "ring", (A,)), "  by the ring:\n"),
    ],
)
def test_why_a_backend_serves(place: Place, why: str) -> None:
    lines = "    a  http://10.0.0.1:8000/mcp  weight 1, 0 in flight\n"
    assert as_text(Explanation(CALL, places=(place,))).endswith(f"pool:       p\n{why}{lines}")


def test_a_subscription_that_all_serve() -> None:
    place = Place("r", "p", "none", "balance", (A, LONG), together=True)
    explanation = Explanation(CALL._replace(method="subscriptions/listen", name=None), places=(place,))
    assert "pool:       p\n  all of these serve it, their event streams merged:\n    a  " in as_text(explanation)
    (values,) = json.loads(json.dumps(as_values(explanation)))["places"]
    assert values["together"] is True


def test_refusals() -> None:
    assert as_text(refused(BadRequest("no Host field"))) == "answer:     400 bad_request (-32000): no Host field\n"
    text = as_text(refused(DuplicateHeader("Mcp-Name comes more than once"), CALL))
    assert text.endswith("answer:     400 duplicate_header (-32020): Mcp-Name comes more than once\n")
    legacy = refused(DuplicateHeader("Mcp-Name comes more than once"), CALL._replace(version="", modern=False))
    assert "era:        legacy, MCP-Protocol-Version (none)\n" in as_text(legacy)
    assert legacy.failure is not None and legacy.failure.code == -32000


def test_a_pool_without_a_backend_is_named_with_the_answer() -> None:
    place = Place("rest", "canary", "none", None, failure=NO_BACKEND)
    assert as_text(Explanation(CALL, places=(place,), failure=NO_BACKEND)).endswith(
        "pool:       canary\nanswer:     503 no_backend (-32000): pool canary: no backend takes new work\n"
    )
    assert "reachable:  no pool\n" in as_text(Explanation(CALL, kind="task", reachable=()))


def test_values_for_json() -> None:
    values = as_values(BALANCED)
    assert json.loads(json.dumps(values)) == {
        "request": {
            "verb": "POST",
            "path": "/mcp",
            "host": "mcp.test",
            "era": "modern",
            "version": "2026-07-28",
            "method": "tools/call",
            "name": "search",
            "task": None,
        },
        "kind": "none",
        "routes": [
            {"route": "gpu", "unmet": "name 'search' is not 'render_*'"},
            {"route": "everything", "unmet": None},
        ],
        "rule": "everything",
        "reachable": None,
        "places": [
            {
                "route": "everything",
                "pool": "agents",
                "part": 95,
                "whole": 100,
                "kind": "none",
                "source": "balance",
                "policy": "least_in_flight",
                "backends": [
                    {
                        "id": "a",
                        "url": "http://10.0.0.1:8000/mcp",
                        "weight": 1,
                        "in_flight": 0,
                        "draining": False,
                        "departed": False,
                        "up": True,
                        "ejected": False,
                    },
                    {
                        "id": "backend-2",
                        "url": "http://10.0.0.2:80/mcp",
                        "weight": 2,
                        "in_flight": 3,
                        "draining": True,
                        "departed": True,
                        "up": False,
                        "ejected": True,
                    },
                ],
                "together": False,
                "ring": None,
                "error": None,
            },
            {
                "route": "everything",
                "pool": "canary",
                "part": 5,
                "whole": 100,
                "kind": "none",
                "source": None,
                "policy": None,
                "backends": [],
                "together": False,
                "ring": None,
                "error": {
                    "reason": "no_backend",
                    "status": 503,
                    "code": -32000,
                    "message": "pool canary: no backend takes new work",
                },
            },
        ],
        "search": None,
        "error": None,
        "notes": ["no Host was given: mcp.test is assumed"],
    }


def test_values_of_a_search_and_of_a_refusal() -> None:
    values = as_values(SEARCHED)
    assert (values["search"], values["reachable"], values["kind"]) == ("first result", ("agents", "shared"), "task")
    assert "secret-id" not in json.dumps(values)
    assert "secret-id" not in as_text(SEARCHED)
    values = as_values(refused(BadRequest("no Host field")))
    assert (values["request"], values["places"], values["search"]) == (None, [], None)
    assert values["error"] == {"reason": "bad_request", "status": 400, "code": -32000, "message": "no Host field"}
