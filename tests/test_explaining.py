"""What is explained is what would happen, and explaining makes nothing happen."""

import asyncio
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from proxy.app import Proxy
from proxy.config import parse
from proxy.explaining import Explainer, Question
from proxy.pins.memory import MemoryPinStore
from proxy.pins.store import POOL_ITSELF, Pin, PinStoreError
from proxy.routing.admission import Admission
from proxy.routing.backends import Backend
from proxy.routing.balancing import LeastInFlight, RoundRobin
from proxy.routing.errors import ProxyError
from proxy.routing.explain import THE_POOL
from proxy.routing.explanation import Explanation, Failure, Place
from proxy.routing.ownership import PinKey, pin_key, session_tag, short_digest
from proxy.routing.pools import STRANGE, ListenRule, Pool, RingKey
from proxy.routing.rounds import ConnectionMemory, Rounds
from proxy.routing.routes import Match, Pattern, ProtocolCondition, Route
from proxy.routing.table import RoutingTable
from proxy.wire.destination import Destination, Lane, ListenPlan, SearchPlan
from proxy.wire.directory import Directory
from proxy.wire.request_head import RequestHeadReader

MODERN = ("MCP-Protocol-Version", "2026-07-28")
CLIENT = "192.0.2.1"
WANTED = frozenset({b"x-tenant", b"authorization", b"x-api-key"})


def call(name: str = "search", *more: tuple[str, str]) -> Question:
    return Question(fields=(MODERN, ("Mcp-Method", "tools/call"), ("Mcp-Name", name), *more), client=CLIENT)


def about_task(action: str, task_id: str | None = "t-1", *more: tuple[str, str]) -> Question:
    name = () if task_id is None else (("Mcp-Name", task_id),)
    return Question(fields=(MODERN, ("Mcp-Method", f"tasks/{action}"), *name, *more), client=CLIENT)


@dataclass
class World:
    """What a request meets: routes, pools, pins, rounds."""

    routes: Sequence[Route]
    pools: Mapping[str, Pool]
    pins: MemoryPinStore = field(default_factory=lambda: MemoryPinStore(ttl=60, capacity=3, clock=lambda: 0.0))
    rounds: Rounds = field(default_factory=lambda: Rounds(lambda: 0.0))
    admission: Admission = field(default_factory=lambda: Admission(hosts=None, origins=None))

    def __post_init__(self) -> None:
        self.heads = RequestHeadReader(WANTED)
        self.table = RoutingTable(self.routes)
        lanes = {name: Lane(pool, {}, own_host=False, owner_wait=1.0) for name, pool in self.pools.items()}
        self.directory = Directory(self.table, lanes, self.pins, self.rounds, lambda: 0.0)

    def explain(self, question: Question) -> Explanation:
        explainer = Explainer(
            self.heads, self.admission, self.table, self.pools, self.pins, self.rounds, "localhost:8080", lambda: 0.0
        )
        return asyncio.run(explainer.explain(question))

    def find(self, question: Question) -> Destination | SearchPlan | ListenPlan:
        """What happens to such a request. Raises ProxyError."""
        head = self.heads.read(question.head("localhost"))
        if head.fault is not None:
            raise head.fault
        task = head.routing.decoded_name() if head.routing.is_task else None
        found = self.directory.find(head.routing, task, question.client, ConnectionMemory())
        assert isinstance(found, Destination | SearchPlan | ListenPlan)  # the memory store answers at once
        return found


def pool_of(name: str = "agents", ids: str = "abc", drained: str = "", **more: Any) -> Pool:
    backends = [Backend(one, "127.0.0.1", 8000 + i, drain=one in drained) for i, one in enumerate(ids)]
    return Pool(name, backends, **{"policy": LeastInFlight(), **more})


def world(*pools: Pool, routes: Sequence[Route] = ()) -> World:
    named = {pool.name: pool for pool in pools}
    return World(routes or [Route(f"to-{name}", Match(), {name: 1}) for name in named], named)


def ids(place: Place) -> list[str]:
    return [standing.id for standing in place.backends]


# ---- each way to a backend
def test_balancing_tells_all_whose_turn_it_may_be() -> None:
    pool = pool_of(drained="b", policy=RoundRobin())
    pool.start(pool.members[2], 0.0)
    (place,) = world(pool).explain(call()).places
    assert (place.route, place.pool, place.kind, place.source, place.policy) == (
        "to-agents",
        "agents",
        "none",
        "balance",
        "round_robin",
    )
    assert [(one.id, one.in_flight, one.url) for one in place.backends] == [
        ("a", 0, "http://127.0.0.1:8000/mcp"),
        ("c", 1, "http://127.0.0.1:8002/mcp"),
    ]


def test_a_ring_tells_its_key_and_order() -> None:
    pool = pool_of(ring_key=RingKey("header", "x-tenant"))
    explanation = world(pool).explain(call("search", ("X-Tenant", "acme")))
    (place,) = explanation.places
    assert place.ring is not None
    assert (place.source, place.ring.key) == ("ring", "'acme'")
    assert place.ring.order == tuple(member.backend.id for member in pool.in_order("acme"))
    assert ids(place) == [place.ring.order[0]]

    pool.set_draining(pool.in_order("acme")[0], True)
    assert ids(world(pool).explain(call("search", ("X-Tenant", "acme"))).places[0]) == [place.ring.order[1]]


def test_without_the_ring_s_key_a_policy_picks() -> None:
    (place,) = world(pool_of(ring_key=RingKey("header", "x-tenant"))).explain(call()).places
    assert (place.source, place.policy, place.ring, ids(place)) == ("balance", "least_in_flight", None, ["a", "b", "c"])


@pytest.mark.parametrize(
    ("key", "fields"),
    [
        (RingKey("authorization"), ("Authorization", "Bearer s3cret")),
        (RingKey("header", "x-api-key"), ("X-Api-Key", "s3cret")),
    ],
)
def test_a_ring_s_key_that_is_a_credential_is_told_as_a_digest(key: RingKey, fields: tuple[str, str]) -> None:
    (place,) = world(pool_of(ring_key=key)).explain(call("search", fields)).places
    assert place.ring is not None
    assert place.ring.key == f"digest {short_digest(fields[1])}"


def test_a_split_tells_each_of_its_pools() -> None:
    routes = [Route("rest", Match(), {"agents": 95, "canary": 5, "old": 0})]
    agents, canary, old = pool_of(), pool_of("canary", drained="abc"), pool_of("old")
    explanation = world(agents, canary, old, routes=routes).explain(call())
    assert [(place.pool, place.part, place.whole, place.source) for place in explanation.places] == [
        ("agents", 95, 100, "balance"),
        ("canary", 5, 100, None),
    ]
    assert explanation.places[1].failure == Failure("no_backend", 503, -32000, "pool canary: no backend takes new work")
    assert (explanation.failure, explanation.rule) == (None, "rest")


def test_the_routes_before_the_match_say_why_not() -> None:
    routes = [
        Route("gpu", Match(name=Pattern("render_*")), {"agents": 1}),
        Route("old", Match(protocol=ProtocolCondition("<2026-07-28")), {"agents": 1}),
        Route("rest", Match(), {"agents": 1}),
        Route("never", Match(), {"agents": 1}),
    ]
    explanation = world(pool_of(), routes=routes).explain(call())
    assert [(verdict.route, verdict.unmet) for verdict in explanation.verdicts] == [
        ("gpu", "name 'search' is not 'render_*'"),
        ("old", "protocol '2026-07-28' is not <2026-07-28"),
        ("rest", ""),
    ]
    assert (explanation.rule, explanation.name, explanation.kind) == ("rest", "search", "none")


def test_no_route_is_told_with_every_reason() -> None:
    routes = [Route("gpu", Match(method=Pattern("tools/list")), {"agents": 1})]
    explanation = world(pool_of(), routes=routes).explain(call())
    assert explanation.failure == Failure("no_route", 404, -32000, "no route matches this request")
    assert [verdict.unmet for verdict in explanation.verdicts] == ["method 'tools/call' is not 'tools/list'"]


def test_a_backend_that_asked_back_is_preferred() -> None:
    scene = world(pool_of(policy=RoundRobin()))
    asked = scene.heads.read(call().head("localhost")).routing
    scene.rounds.asked("agents", asked, CLIENT, ConnectionMemory().rounds, "b")
    (place,) = scene.explain(call()).places
    assert (place.kind, place.source, ids(place)) == ("round", "pin", ["b"])
    stranger = Question(fields=call().fields, client="192.0.2.2")
    assert scene.explain(stranger).places[0].kind == "none"


def test_a_legacy_request_answers_no_question() -> None:
    scene = world(pool_of())
    legacy = Question(fields=(("Mcp-Method", "tools/call"), ("Mcp-Name", "search")), client=CLIENT)
    scene.rounds.asked("agents", scene.heads.read(legacy.head("h")).routing, CLIENT, ConnectionMemory().rounds, "b")
    assert scene.explain(legacy).places[0].kind == "none"


def test_an_exact_path_is_replaced_and_a_glob_kept() -> None:
    routes = [
        Route("exact", Match(), {"agents": 1}),
        Route("kept", Match(path=Pattern("/.well-known/*")), {"agents": 1}),
    ]
    pool = Pool("agents", [Backend("a", "fd00::1", 80, path="/own")], policy=LeastInFlight())
    scene = world(pool, routes=routes)
    assert scene.explain(Question()).places[0].backends[0].url == "http://[fd00::1]:80/own"
    kept = scene.explain(Question("GET", "/.well-known/x?token=1")).places[0].backends[0].url
    assert kept == "http://[fd00::1]:80/.well-known/x"


# ---- tasks
def test_a_pin_names_the_owner_whatever_its_state() -> None:
    scene = world(pool_of("gpu", "xy"), pool_of())
    scene.pools["agents"].set_draining(scene.pools["agents"].members[1], True)
    scene.pins.put(pin_key("agents", "t-1"), "agents", "b", ttl=None)
    explanation = scene.explain(about_task("cancel"))
    (place,) = explanation.places
    assert (place.pool, place.kind, place.source, ids(place)) == ("agents", "task", "pin", ["b"])
    assert place.backends[0].draining
    assert (explanation.kind, explanation.task, explanation.name) == ("task", short_digest("t-1"), None)
    assert (explanation.reachable, explanation.rule) == (("gpu", "agents"), "to-agents")


def test_a_pin_of_a_shared_pool_leads_to_its_ring() -> None:
    assert THE_POOL == POOL_ITSELF
    scene = world(pool_of(state="shared"))
    scene.pins.put(pin_key("agents", "t-1"), "agents", POOL_ITSELF, ttl=None)
    (place,) = scene.explain(about_task("get")).places
    assert place.source == "ring" and place.ring is not None
    assert place.ring.key == f"task {short_digest('t-1')}"
    assert place.ring.order[0] == ids(place)[0]


def test_a_pin_of_a_backend_that_may_come_or_is_gone_is_noted() -> None:
    scene = world(pool_of())
    scene.pins.put(pin_key("agents", "t-1"), "agents", "z", ttl=None)
    explanation = scene.explain(about_task("get"))
    assert "the task's pin in pool agents names a backend that is not configured here yet" in explanation.notes
    assert scene.pools["agents"].may_come("z", -STRANGE)
    explanation = scene.explain(about_task("get"))
    assert "the task's pin in pool agents names a backend that is gone" in explanation.notes
    assert explanation.places[0].source == "search"


def test_a_tag_names_the_owner() -> None:
    scene = world(pool_of(owner_tag=re.compile(r"(?P<backend>[a-z])\.")))
    (place,) = scene.explain(about_task("get", "c.1")).places
    assert (place.source, ids(place)) == ("tag", ["c"])


def test_a_search_tells_whom_it_asks_in_order() -> None:
    shared, local = pool_of("shared", "xy", state="shared"), pool_of(drained="a")
    explanation = world(local, shared).explain(about_task("get"))
    assert [(place.pool, place.source) for place in explanation.places] == [("agents", "search"), ("shared", "search")]
    assert ids(explanation.places[0]) == ["a", "b", "c"]
    assert len(ids(explanation.places[1])) == 1
    assert (explanation.everyone, explanation.rule, explanation.failure) == (False, None, None)


def test_a_change_of_an_unknown_task_needs_every_answer_and_one_pool() -> None:
    assert world(pool_of()).explain(about_task("cancel")).everyone
    two = world(pool_of(), pool_of("gpu")).explain(about_task("cancel"))
    assert two.failure is not None and two.failure.reason == "owner_unknown"
    assert two.places == ()


def test_without_search_the_ring_decides() -> None:
    (place,) = world(pool_of(search=False)).explain(about_task("get")).places
    assert (place.source, place.kind) == ("ring", "task")


def test_the_only_backend_is_asked_even_if_it_takes_no_new_work() -> None:
    (place,) = world(pool_of(ids="a", drained="a", search=False)).explain(about_task("get")).places
    assert (place.source, ids(place)) == ("ring", ["a"])
    two = pool_of(ids="ab", drained="a", search=False)
    two.replace([two.members[0].backend])
    explanation = world(two).explain(about_task("get"))
    assert explanation.failure is not None and explanation.failure.reason == "no_backend"


def test_a_task_without_its_name_is_explained_as_on_a_new_connection() -> None:
    explanation = world(pool_of()).explain(about_task("get", None))
    assert explanation.places[0].source == "search"
    assert "there is no Mcp-Name: the owner of a task asked for on the same connection comes first" in explanation.notes


@pytest.mark.parametrize("version", ["2026-07-28", "2025-11-25"])
@pytest.mark.parametrize("verb", ["POST", "GET"])
def test_no_explanation_holds_a_task_s_id(version: str, verb: str) -> None:
    fields = (("MCP-Protocol-Version", version), ("Mcp-Method", "tasks/get"), ("Mcp-Name", "secret-id"))
    routes = [
        Route("named", Match(name=Pattern("x")), {"agents": 1}),
        Route("rest", Match(), {"agents": 1}),
    ]
    explanation = world(pool_of(ring_key=RingKey("name")), routes=routes).explain(Question(verb, fields=fields))
    assert explanation.task == short_digest("secret-id")
    shown = repr(
        [value for name in explanation.__slots__ if name != "request" for value in [getattr(explanation, name)]]
    )
    assert "secret-id" not in shown


# ---- sessions
def test_a_session_goes_where_its_tag_says() -> None:
    scene = world(pool_of("gpu", "xy"), pool_of())
    tag = session_tag("agents", "b")
    explanation = scene.explain(Question(fields=(("Mcp-Session-Id", f"{tag}.own"),)))
    (place,) = explanation.places
    assert (place.pool, place.kind, place.source, ids(place)) == ("agents", "session", "tag", ["b"])
    assert (explanation.kind, explanation.reachable) == ("session", ("gpu", "agents"))


def test_a_session_of_nobody_is_gone() -> None:
    explanation = world(pool_of()).explain(Question(fields=(("Mcp-Session-Id", "0123456789.own"),)))
    assert explanation.failure == Failure(
        "session_owner_gone", 404, -32001, "this session's server is not known here: initialize anew"
    )


def test_where_sessions_are_off_they_are_balanced() -> None:
    explanation = world(pool_of(sticky=False)).explain(Question(fields=(("Mcp-Session-Id", "own"),)))
    assert (explanation.kind, explanation.asked, explanation.places[0].source) == ("session", "all", "balance")


# ---- faults: the very errors that clients get
@pytest.mark.parametrize(
    ("question", "reason", "status", "code"),
    [
        (call("search", ("Mcp-Name", "other")), "duplicate_header", 400, -32020),
        (Question(fields=(("Mcp-Session-Id", "a"), ("Mcp-Session-Id", "b"))), "duplicate_header", 400, -32000),
        (about_task("get", "=?base64?!?="), "malformed_header", 400, -32020),
        (call("x" * 9000), "head_too_large", 431, -32000),
        (Question(fields=tuple((f"Mcp-Param-{i}", "x") for i in range(65))), "head_too_large", 431, -32000),
        (Question(fields=tuple((f"X-{i}", "x") for i in range(201))), "head_too_large", 431, -32000),
        (Question(fields=(("X", "x" * 70_000),)), "head_too_large", 431, -32000),
        (Question(target="/a/../b"), "bad_request", 400, -32000),
        (Question(target="/a%2fb"), "bad_request", 400, -32000),
        (Question(target="http://x/"), "bad_request", 400, -32000),
        (Question(target="/a b"), "bad_request", 400, -32000),
        (Question(verb="get"), "bad_request", 400, -32000),
        (Question(fields=(("Ho st", "x"),)), "bad_request", 400, -32000),
        (Question(fields=(("Host", "a"), ("Host", "a"))), "bad_request", 400, -32000),
        (Question(fields=(("Connection", "mcp-name"),)), "bad_request", 400, -32000),
        (Question(fields=(("Content-Length", "1"), ("Transfer-Encoding", "chunked"))), "bad_request", 400, -32000),
        (Question(fields=(("Upgrade", "websocket"), ("Connection", "upgrade"))), "unsupported", 501, -32000),
        (Question("CONNECT", "x.test:80"), "unsupported", 501, -32000),
        (Question(fields=(("Host", "evil.test"),)), "forbidden_host", 421, -32000),
        (Question(fields=(("Origin", "https://evil.test"),)), "forbidden_origin", 403, -32000),
    ],
)
def test_faults(question: Question, reason: str, status: int, code: int) -> None:
    scene = world(pool_of())
    scene.admission = Admission(hosts=["localhost"], origins=["https://good.test"])
    explanation = scene.explain(question)
    assert explanation.failure is not None
    assert (explanation.failure.reason, explanation.failure.status, explanation.failure.code) == (reason, status, code)
    assert explanation.places == ()


def test_a_name_that_does_not_decode_matters_only_where_it_is_needed() -> None:
    bad = call("=?base64?!?=")
    plain = world(pool_of()).explain(bad)
    assert (plain.failure, plain.name) == (None, None)
    assert "Mcp-Name is marked as Base64 but is not Base64 of UTF-8 text" in plain.notes

    named = [Route("named", Match(name=Pattern("x")), {"agents": 1}), Route("rest", Match(), {"agents": 1})]
    by_rule = world(pool_of(), routes=named).explain(bad)
    assert by_rule.failure is not None and by_rule.failure.reason == "malformed_header"
    assert len(by_rule.verdicts) == 1
    by_ring = world(pool_of(ring_key=RingKey("name"))).explain(bad)
    assert by_ring.failure is not None and by_ring.failure.reason == "malformed_header"


def test_a_host_that_is_assumed_is_noted() -> None:
    scene = world(pool_of())
    assert scene.explain(Question()).notes == ("no Host was given: localhost:8080 is assumed",)
    given = scene.explain(Question(fields=(("hOST", "Mcp.Test:80"),)))
    assert given.notes == ()
    assert given.request is not None and given.request.host == "mcp.test"


@pytest.mark.parametrize("part", ["a\nb", "a\rb", "\ud800"])
def test_a_question_is_one_head(part: str) -> None:
    for wrong in ({"verb": part}, {"target": part}, {"fields": ((part, "x"),)}, {"fields": (("X", part),)}):
        with pytest.raises(ValueError):
            Question(**wrong)


def test_text_goes_as_utf_8_and_bytes_of_a_shell_as_they_came() -> None:
    assert Question(fields=(("X", "ü\udcff"),)).head("h") == b"POST /mcp HTTP/1.1\r\nHost: h\r\nX: \xc3\xbc\xff\r\n\r\n"


# ---- a pin store that answers later
class LaterPins(MemoryPinStore):
    """Peeks answer in the loop's next turn, with a pin or an error."""

    def __init__(self, answer: Pin | Exception | None) -> None:
        super().__init__(ttl=60, capacity=10, clock=lambda: 0.0)
        self._answer = answer

    def peek(self, key: PinKey) -> asyncio.Future[Pin | None]:  # type: ignore[override] # as the seam allows
        future: asyncio.Future[Pin | None] = asyncio.get_running_loop().create_future()
        if isinstance(self._answer, Exception):
            future.set_exception(self._answer)
        else:
            asyncio.get_running_loop().call_soon(future.set_result, self._answer)
        return future


def test_a_store_may_answer_later() -> None:
    scene = world(pool_of())
    scene.pins = LaterPins(Pin("c"))
    assert ids(scene.explain(about_task("get")).places[0]) == ["c"]


def test_a_store_that_fails_knows_nothing() -> None:
    scene = world(pool_of())
    scene.pins = LaterPins(PinStoreError("redis://user:secret@redis"))
    explanation = scene.explain(about_task("get"))
    assert explanation.places[0].source == "search"
    assert "the pin store does not answer: what it knows is left out" in explanation.notes


# ---- against what happens
def test_explaining_does_not_count_as_a_use_of_a_pin() -> None:
    scene = world(pool_of())  # its store has room for three
    for number in range(3):
        scene.pins.put(pin_key("agents", f"t-{number}"), "agents", "a", ttl=None)
    assert scene.explain(about_task("get", "t-0")).places[0].source == "pin"
    scene.pins.put(pin_key("agents", "t-3"), "agents", "a", ttl=None)
    assert scene.pins.peek(pin_key("agents", "t-0")) is None
    assert scene.pins.peek(pin_key("agents", "t-1")) is not None


PATTERNS = st.sampled_from([None, Pattern("a*"), Pattern("search"), Pattern("tools/*")])
MATCHES = st.builds(
    Match,
    path=st.sampled_from([Pattern("/mcp"), Pattern("/mcp"), Pattern("/*")]),
    protocol=st.sampled_from([None, None, ProtocolCondition(">=2026-07-28"), ProtocolCondition("<2026-07-28")]),
    method=PATTERNS,
    name=PATTERNS,
    headers=st.sampled_from([{}, {}, {"x-tenant": Pattern("acme")}]),
)
POOL_NAMES = ("p", "q", "r")
RING_KEYS = st.sampled_from([None, None, RingKey("name"), RingKey("header", "x-tenant"), RingKey("param", "region")])


@dataclass(frozen=True)
class PoolPlan:
    """How to make a pool, as often as needed."""

    ids: tuple[str, ...]
    gone: int
    drained: frozenset[str]
    busy: tuple[int, ...]
    ring_key: RingKey | None
    state: str
    search: bool
    sticky: bool
    tagged: bool
    turns: bool
    listen: ListenRule
    incomplete: bool

    def make(self, name: str) -> Pool:
        pool = pool_of(
            name,
            "".join(self.ids),
            policy=RoundRobin() if self.turns else LeastInFlight(),
            ring_key=self.ring_key,
            state=self.state,
            search=self.search,
            sticky=self.sticky,
            owner_tag=re.compile(r"(?P<backend>[a-z])\.") if self.tagged else None,
            listen=self.listen,
        )
        pool.replace([member.backend for member in pool.members[: len(self.ids) - self.gone]])
        for member in pool.everyone:
            pool.set_draining(member, member.backend.id in self.drained)
        for member, count in zip(pool.everyone, self.busy, strict=False):
            for _ in range(count):
                pool.start(member, 0.0)
        pool.incomplete = self.incomplete
        return pool


POOL_PLANS = st.builds(
    PoolPlan,
    ids=st.sampled_from([(), ("a",), ("a", "b"), ("a", "b", "c"), ("a", "b", "c", "d")]),
    gone=st.just(0),
    drained=st.frozensets(st.sampled_from("abcd"), max_size=3),
    busy=st.lists(st.integers(0, 3), max_size=4).map(tuple),
    ring_key=RING_KEYS,
    state=st.sampled_from(["local", "local", "shared"]),
    search=st.booleans(),
    sticky=st.booleans(),
    tagged=st.booleans(),
    turns=st.booleans(),
    listen=st.sampled_from(["one", "all"]),
    incomplete=st.sampled_from([False, False, True]),
).flatmap(lambda plan: st.integers(0, len(plan.ids)).map(lambda gone: replace(plan, gone=gone)))


FIELDS = st.lists(
    st.sampled_from(
        [
            ("X-Tenant", "acme"),
            ("Mcp-Param-Region", "eu"),
            ("Mcp-Param-Region", "=?base64?!?="),
            ("Mcp-Session-Id", "unknown"),
            ("Mcp-Session-Id", session_tag("p", "a") + ".own"),
            ("Mcp-Session-Id", session_tag("q", "b") + ".own"),
        ]
    ),
    unique_by=lambda pair: pair[0],
    max_size=3,
)
QUESTIONS = st.builds(
    lambda version, method, name, verb, more: Question(
        verb,
        fields=(
            *version,
            *((("Mcp-Method", method),) if method else ()),
            *((("Mcp-Name", name),) if name else ()),
            *more,
        ),
        client=CLIENT,
    ),
    st.sampled_from([(MODERN,), (MODERN,), (), (("MCP-Protocol-Version", "2025-11-25"),)]),
    st.sampled_from(["tools/call", "tasks/get", "tasks/get", "tasks/cancel", "tools/list", "subscriptions/listen", ""]),
    st.sampled_from(["t-1", "b.1", "search", "abc", "=?base64?!?=", ""]),
    st.sampled_from(["POST", "POST", "POST", "GET", "OPTIONS"]),
    FIELDS,
)
TASKS = st.builds(about_task, st.sampled_from(["get", "get", "cancel"]), st.sampled_from(["t-1", "b.1"]))
PINS = st.dictionaries(
    st.tuples(st.sampled_from(POOL_NAMES), st.sampled_from(["t-1", "b.1"])),
    st.sampled_from(["a", "b", "z", POOL_ITSELF]),
    max_size=2,
)


def made(
    plans: Sequence[PoolPlan],
    routes: Sequence[Route],
    pins: Mapping[tuple[str, str], str],
    asked: Sequence[tuple[str, Question, str]],
) -> World:
    pools = {name: plan.make(name) for name, plan in zip(POOL_NAMES, plans, strict=True)}
    scene = World(routes, pools)
    for (pool, task), owner in pins.items():
        scene.pins.put(pin_key(pool, task), pool, owner, ttl=None)
    for pool, question, backend in asked:
        request = scene.heads.read(question.head("localhost")).routing
        scene.rounds.asked(pool, request, CLIENT, ConnectionMemory().rounds, backend)
    return scene


def agrees(explanation: Explanation, scene: World, question: Question) -> None:
    """The request is made, and what happens is what was explained."""
    try:
        found = scene.find(question)
    except ProxyError as error:
        failures = [place.failure for place in explanation.places] or [explanation.failure]
        assert str(error) in [failure.message for failure in failures if failure is not None]
        return
    if isinstance(found, SearchPlan):
        assert found.everyone is explanation.everyone
        asked = [(place, one) for place in explanation.places for one in ids(place) if not place.policy]
        picked = [place for place in explanation.places if place.policy]
        happened = [(place.lane.pool.name, place.choice.member.backend.id) for place in found.candidates]
        for place in picked:  # one of a shared pool's
            here = [one for pool, one in happened if pool == place.pool]
            assert len(here) == 1 and here[0] in ids(place)
        assert [pair for pair in happened if pair[0] not in {place.pool for place in picked}] == [
            (place.pool, one) for place, one in asked
        ]
        assert all(place.source == "search" for place in explanation.places)
        return
    (place,) = [place for place in explanation.places if place.pool == found.lane.pool.name]
    assert place.together is isinstance(found, ListenPlan)
    if isinstance(found, ListenPlan):
        assert ids(place) == [member.backend.id for member in found.members]
        destinations = [found.at(member) for member in found.members]
        assert {(one.route.name, one.kind, one.choice.source) for one in destinations} == {
            (place.route, place.kind, place.source)
        }
        return
    assert (place.route, place.kind, place.source) == (found.route.name, found.kind, found.choice.source)
    assert found.choice.member.backend.id in ids(place)
    assert len(place.backends) == 1 or place.policy
    assert explanation.failure is None


@settings(deadline=None, max_examples=400)
@given(
    plans=st.tuples(POOL_PLANS, POOL_PLANS, POOL_PLANS),
    matches=st.lists(MATCHES, min_size=1, max_size=3),
    shares=st.lists(
        st.dictionaries(st.sampled_from(POOL_NAMES), st.integers(0, 3), min_size=1).filter(
            lambda parts: any(parts.values())
        ),
        min_size=3,
        max_size=3,
    ),
    pins=PINS,
    questions=st.lists(TASKS | QUESTIONS, min_size=1, max_size=4),
    asked=st.lists(st.tuples(st.sampled_from(POOL_NAMES), QUESTIONS, st.sampled_from("abz")), max_size=2),
)
def test_what_is_explained_is_what_happens_and_explaining_changes_nothing(
    plans: Sequence[PoolPlan],
    matches: Sequence[Match],
    shares: Sequence[Mapping[str, int]],
    pins: Mapping[tuple[str, str], str],
    questions: Sequence[Question],
    asked: Sequence[tuple[str, Question, str]],
) -> None:
    routes = [Route(f"route-{i}", match, shares[i]) for i, match in enumerate(matches)]
    explained, untouched = made(plans, routes, pins, asked), made(plans, routes, pins, asked)
    for question in questions:
        for _ in range(2):
            explanation = explained.explain(question)
            agrees(explanation, explained, question)
            assert outcome(explained, question) == outcome(untouched, question, times=2)


def outcome(scene: World, question: Question, times: int = 1) -> str:
    """What happens to the last of so many such requests, as text."""
    text = ""
    for _ in range(times):
        try:
            found = scene.find(question)
        except ProxyError as error:
            text = f"{type(error).__name__}: {error}"
        else:
            if isinstance(found, ListenPlan):
                places: Sequence[Destination] = [found.at(member) for member in found.members]
            else:
                places = found.candidates if isinstance(found, SearchPlan) else (found,)
            text = repr([(place.lane.pool.name, place.choice, place.kind) for place in places])
    return text


async def test_a_running_proxy_explains_with_what_it_knows() -> None:
    text = """
pools:
  agents: {backends: [{id: a, url: 'http://127.0.0.1:1/mcp'}, {id: b, url: 'http://127.0.0.1:2/mcp', drain: true}]}
routes: [{name: rest, pool: agents}]
log: {access: false}
"""
    proxy = Proxy(parse(text, "test.yaml", {}))
    explanation = await proxy.explain(call())
    assert ids(explanation.places[0]) == ["a"]
    assert "no Host was given: 127.0.0.1:8080 is assumed" in explanation.notes
    proxy.set_draining(pool="agents", backend="a", draining=True)
    explanation = await proxy.explain(call())
    assert explanation.failure is not None and explanation.failure.reason == "no_backend"


async def test_a_host_that_is_assumed_is_one_that_is_allowed() -> None:
    text = """
listen: {address: '127.0.0.1:0', allowed_hosts: [mcp.example.com]}
pools: {agents: {backends: ['http://127.0.0.1:1/mcp']}}
routes: [{name: rest, pool: agents}]
log: {access: false}
"""
    explanation = await Proxy(parse(text, "test.yaml", {})).explain(Question())
    assert explanation.failure is None
    assert explanation.request is not None and explanation.request.host == "mcp.example.com"
