"""What requests with one frame have in common on their way, found out once: their routes, their pools, how they count.

The heads of one connection are mostly alike, and so are the decisions about them. What is remembered here holds as long
as the configuration it was made for; a new one comes with new Courses.
"""

from collections.abc import Mapping
from typing import Protocol, TypeAlias

from proxy.pins.store import PinStore
from proxy.routing.admission import Admission
from proxy.routing.errors import ProxyError
from proxy.routing.headers import LISTEN, RoutingHeaders
from proxy.routing.members import Choice, Member, Source
from proxy.routing.ownership import pin_key
from proxy.routing.queueing import DISCOVER
from proxy.routing.rounds import LISTS, ConnectionMemory, Rounds
from proxy.routing.routes import Route
from proxy.routing.table import RoutingTable
from proxy.wire.destination import Lane
from proxy.wire.request_frame import Frame

_MOST_NAMES = 16_384  # tool names remembered where routes ask for them, of all kinds of requests together
_LONGEST_NAME = 100  # characters; clients choose what is longer
_MOST_KINDS = 256  # of requests alike in all but their names
_UNUSUAL = LISTS | {LISTEN, DISCOVER}


class Cell(Protocol):
    """Where requests are counted that differ in times and sizes alone."""

    stale: bool
    """True once they are counted elsewhere."""

    def served(self, seconds: float, *, bytes_in: int, bytes_out: int) -> None:
        """One that was answered at once, so many seconds after it came."""
        ...


Cells: TypeAlias = dict[tuple[Member, Source, int], Cell]
"""By backend, what named it, and status."""


class Course:
    """Requests of one method, on one route, to one pool."""

    __slots__ = ("cells", "keeps_path", "label", "lane", "route")

    def __init__(self, route: Route, lane: Lane, label: str) -> None:
        self.route = route
        self.keeps_path = route.keeps_path
        self.lane = lane
        self.label = label
        """As in Frame."""
        self.cells: Cells = {}


Start: TypeAlias = str | tuple[str | None, str, str, int] | None
"""What heads to send on differ in: the backend's path, None where the request's is kept; and what makes its Host, where
it gets its own."""

Found: TypeAlias = tuple[Course, Choice, float | None]
"""Where a request goes; with the ttl of its task, in seconds, as its server told lately."""


class Heading:
    """What is remembered of one frame."""

    __slots__ = ("_course", "_kind", "_label", "_routing", "courses", "owners", "starts", "usual")

    def __init__(self, courses: "Courses", frame: Frame, admission: Admission) -> None:
        self.courses = courses
        """Those it was made by."""
        self.usual = _is_usual(frame, admission)
        """False for requests that are looked at each time."""
        self.owners: tuple[Course, ...] = ()
        """For requests about a task: the pools that it may be in, in route order."""
        self.starts: dict[Start, bytes] = {}
        """Heads to send on, up to the lines that differ."""
        # Not the frame, which knows this: only the garbage collector would free the two.
        self._routing, self._label = frame.routing, frame.label
        self._course: Course | None = None
        self._kind: int | None = None  # where the name, or a split's turn, decides
        if not self.usual:
            return
        if frame.kind == "task":
            reachable = courses.table.reachable(frame.routing)
            self.owners = tuple(courses.course(route, pool, frame.label) for pool, route in reachable.items())
            self.usual = bool(self.owners)
        elif courses.table.asks_for_names:
            self._kind = courses.kind_of(frame.routing)
        else:
            try:
                route = courses.table.route_for(frame.routing)
            except ProxyError:  # raised again, and answered, where each request is looked at
                route = None
            self.usual = route is not None
            if route is not None and len(route.shares) == 1:
                self._course = courses.course(route, next(iter(route.shares)), frame.label)
            elif route is not None:
                self._kind = courses.kind_of(frame.routing)

    def owned(self, name: str | None) -> Found | None:
        """The owner of this task, if that is known at once, and known well."""
        if name is None:
            return None
        course = self.owners[0]  # of a task in a later pool it is not certain that it is in none before
        pool = course.lane.pool
        fresh = self.courses.pins.fresh(pin_key(pool.name, name))
        if fresh is None:
            return None
        pin, ttl = fresh
        owner = pool.member(pin.backend)
        return None if owner is None else (course, owner.chosen("pin"), ttl)

    def balanced(self, name: str | None, client: str, memory: ConnectionMemory) -> Found | None:
        """A backend for a request with this Mcp-Name that nobody owns, from the address `client`.

        None where it is to be looked at: there is no route, it may have to wait, or one backend may wait for it.
        """
        try:
            course = self._course or self._course_by(name)
        except ProxyError:
            return None
        if course is None:
            return None
        choice = self._any(course, name, client, memory)
        if choice is None:
            self.courses.table.give_back(course.route, course.lane.pool.name)  # if it was the pool's turn, it still is
            return None
        return course, choice, None

    def _any(self, course: Course, name: str | None, client: str, memory: ConnectionMemory) -> Choice | None:
        pool, rounds = course.lane.pool, self.courses.rounds
        if pool.queue.taken >= pool.queue.limits.in_flight:
            return None
        if memory.rounds or rounds:
            asker = rounds.asker(pool.name, self._routing.named(name), client, memory.rounds)
            if asker is not None:
                return None
        ring = pool.ring_key
        try:
            if ring is None:
                return pool.spread(None)
            return pool.spread(name if ring.kind == "name" else ring.of(self._routing))
        except ProxyError:
            return None

    def _course_by(self, name: str | None) -> Course | None:
        """By its name, or whose turn it is; None: no route. Raises MalformedHeader."""
        kind, courses = self._kind, self.courses
        if kind is None:
            return None
        known = courses.by_name.get((kind, name))
        if isinstance(known, Course):
            return known
        route = known or courses.table.route_for(self._routing.named(name))
        if route is None:
            return None
        course = courses.course(route, courses.table.pool_for(route), self._label)
        if known is None:
            courses.remember(kind, name, course if len(route.shares) == 1 else route)
        return course


def _is_usual(frame: Frame, admission: Admission) -> bool:
    """True for modern requests that one backend serves, whichever, or the owner of their task."""
    routing = frame.routing
    if not routing.modern or routing.verb != "POST" or routing.method in _UNUSUAL:
        return False
    try:
        if admission.checks:
            admission.check(host=frame.host, name=routing.host, origin=frame.origin)
    except ProxyError:
        return False
    return True


class Courses:
    """All courses of the routes and pools in force."""

    def __init__(self, table: RoutingTable, lanes: Mapping[str, Lane], pins: PinStore, rounds: Rounds) -> None:
        self.table = table
        self.pins = pins
        self.rounds = rounds
        self._lanes = lanes
        self._courses: dict[tuple[str, str, str], Course] = {}
        self.by_name: dict[tuple[int, str | None], Course | Route] = {}
        """Where requests go, by kind and name, as far as it is remembered; the route alone where its pools take
        turns."""
        self._kinds: dict[tuple[object, ...], int] = {}
        self._numbered = 0

    def course(self, route: Route, pool: str, label: str) -> Course:
        """The one for this route, pool and method. They are few: methods without a label share one."""
        key = route.name, pool, label
        course = self._courses.get(key)
        if course is None:
            course = self._courses[key] = Course(route, self._lanes[pool], label)
        return course

    def kind_of(self, routing: RoutingHeaders) -> int:
        """The number of all requests that routes cannot tell from these by anything but their names."""
        fields = tuple(sorted(routing.fields.items()))
        key = routing.verb, routing.path, routing.host, routing.version, routing.method, routing.params, fields
        kind = self._kinds.get(key)
        if kind is None:
            if len(self._kinds) >= _MOST_KINDS:
                self._kinds.clear()
            self._numbered += 1
            kind = self._kinds[key] = self._numbered
        return kind

    def remember(self, kind: int, name: str | None, found: Course | Route) -> None:
        """Where requests of this kind with this name go."""
        if name is None or len(name) <= _LONGEST_NAME:
            if len(self.by_name) >= _MOST_NAMES:
                self.by_name.clear()
            self.by_name[kind, name] = found
