"""What is remembered of requests stays small, whatever clients send, and decides as the routes do."""

import time

import pytest

from proxy.pins.memory import MemoryPinStore
from proxy.routing.admission import Admission
from proxy.routing.backends import Backend
from proxy.routing.balancing import RoundRobin
from proxy.routing.pools import Pool
from proxy.routing.rounds import ConnectionMemory, Rounds
from proxy.routing.routes import Match, Pattern, Route
from proxy.routing.table import RoutingTable
from proxy.wire.courses import Courses, Heading
from proxy.wire.destination import Lane
from proxy.wire.request_frame import Frame
from proxy.wire.request_head import RequestHeadReader

OPEN = Admission(hosts=None, origins=None)
ROUTES = [
    Route("x", Match(name=Pattern("x*")), {"one": 1}),
    Route("eu", Match(params={"region": Pattern("eu")}), {"two": 1}),
    Route("rest", Match(), {"one": 1, "two": 1}),
]


def courses_of(*routes: Route) -> Courses:
    names = {name for route in routes for name in route.shares}
    pools = [Pool(name, [Backend("a", "127.0.0.1", 1)], policy=RoundRobin()) for name in sorted(names)]
    lanes = {pool.name: Lane(pool, {}, own_host=False, owner_wait=1.0) for pool in pools}
    pins = MemoryPinStore(ttl=10.0, capacity=10, clock=time.monotonic)
    return Courses(RoutingTable(routes), lanes, pins, Rounds(time.monotonic))


def frame(*lines: bytes, method: bytes = b"tools/call") -> Frame:
    head = [b"POST /mcp HTTP/1.1", b"Host: h", b"MCP-Protocol-Version: 2026-07-28", b"Mcp-Method: " + method, *lines]
    return RequestHeadReader().read(b"\r\n".join([*head, b"", b""])).frame


def course(heading: Heading, name: str | None) -> tuple[str, str, str] | None:
    found = heading.balanced(name, "127.0.0.1", ConnectionMemory())
    return None if found is None else (found[0].route.name, found[0].lane.pool.name, found[0].label)


def test_the_course_is_that_of_the_first_route() -> None:
    courses = courses_of(*ROUTES)
    for region, second in ((b"us", None), (b"eu", ("eu", "two", "tools/call"))):
        heading = Heading(courses, frame(b"Mcp-Name: n", b"Mcp-Param-Region: " + region), OPEN)
        for _ in range(2):
            assert course(heading, "x1") == ("x", "one", "tools/call")
            assert course(heading, "n") == (second or ("rest", "one", "tools/call"))
            assert course(heading, None) == (second or ("rest", "two", "tools/call"))


def test_a_method_without_a_label_and_a_frame_without_a_route() -> None:
    courses = courses_of(ROUTES[0])
    heading = Heading(courses, frame(method=b"acme/do"), OPEN)
    assert course(heading, "x") == ("x", "one", "other")
    assert course(heading, "n") is None
    assert not Heading(courses_of(Route("t", Match(path=Pattern("/t")), {"one": 1})), frame(), OPEN).usual


@pytest.mark.parametrize("name", ["x{}", "x{}" + "n" * 6000])
def test_however_many_names_and_values_there_are_few_are_remembered(name: str) -> None:
    courses = courses_of(*ROUTES)
    headings = [Heading(courses, frame(b"Mcp-Param-Region: %d" % number), OPEN) for number in range(600)]
    for heading in headings:
        for number in range(100):
            assert course(heading, name.format(number)) == ("x", "one", "tools/call")
    assert len(courses.by_name) <= 16_384
    assert sum(len(known or "") for _, known in courses.by_name) <= 16_384 * 100
    assert len(courses._kinds) <= 256
    heading = Heading(courses, frame(b"Mcp-Param-Region: eu"), OPEN)
    assert course(heading, "n") == ("eu", "two", "tools/call")
    assert course(headings[0], "n") == ("rest", "one", "tools/call")
