"""Which backend asked back, or began a list, so that what follows reaches it: soft pins.

Some servers seal what a client must bring to the next round with a key of their own process, so that a sibling cannot
read it (MCP 2026-07-28, Multi Round-Trip Requests). Which round a request belongs to stands in its body, so this is a
preference, never a binding: requests of the same method and name prefer, for ten minutes from the last question, first
the backend that asked last on their own connection, then the one that asked their caller; a caller's first asker keeps
the place as long as it can be reached. No answer ends a round: which one it answers stands in a body too, and several
may be under way. Callers are told apart by Authorization and client address together.
"""

from collections import OrderedDict
from collections.abc import Callable
from hashlib import blake2b
from typing import Literal, NamedTuple, TypeAlias

from proxy.routing.headers import RoutingHeaders

LIFE = 600.0  # seconds
PAGES_LIFE = 5.0
"""Seconds from the first page of a list in which its caller's other pages are taken to belong to it. Not prolonged by
them: many clients may look like one caller, and their lists must not stay with one backend for good."""
_CAPACITY = 100_000  # callers' rounds
_NEAR_CAPACITY = 32  # rounds of one connection
LISTS = frozenset({"tools/list", "prompts/list", "resources/list", "resources/templates/list"})
"""Methods whose answers come in pages; the cursor to the next one is the backend's own (MCP, Pagination)."""

Near: TypeAlias = "OrderedDict[bytes, tuple[str, float]]"
"""The rounds of one connection; a new one starts empty."""


class ConnectionMemory:
    """What is remembered of one client connection."""

    __slots__ = ("latest", "lists", "rounds")

    def __init__(self) -> None:
        self.rounds: Near = OrderedDict()
        self.lists: dict[str, tuple[str, str]] = {}
        """(pool, backend id) that was last sent each method that lists: the pages of a list belong together."""
        self.latest: tuple[str, str] | None = None
        """(pool, backend id) that made the latest task asked for on this connection."""


NewsKind: TypeAlias = Literal["asked", "listed", "over"]


class News(NamedTuple):
    """What another process should know of a caller's rounds. `key` is a digest: it names nobody."""

    kind: NewsKind
    key: bytes
    backend: str


class Rounds:
    """The rounds under way. `clock`: monotonic, in seconds; `told` gets the news that other processes should hear."""

    def __init__(
        self, clock: Callable[[], float], *, capacity: int = _CAPACITY, told: Callable[[News], None] | None = None
    ) -> None:
        self._clock = clock
        self._told = told
        self._capacity = capacity
        self._by_caller: Near = OrderedDict()
        self._listers: Near = OrderedDict()

    def __len__(self) -> int:
        """Callers' rounds that are under way. Those at the front are the oldest, and leave when their time is over."""
        while self._by_caller and next(iter(self._by_caller.values()))[1] <= self._clock():
            self._by_caller.popitem(last=False)
        return len(self._by_caller)

    def asker(self, pool: str, request: RoutingHeaders, client: str, near: Near) -> str | None:
        """The id of the backend whose question this request may answer, or None."""
        if not self._by_caller and not near:
            return None
        return self._living(near, _key(pool, request)) or self._living(
            self._by_caller, _key(pool, request, _caller(request, client))
        )

    def asked(self, pool: str, request: RoutingHeaders, client: str, near: Near, backend: str) -> None:
        """This backend answered the request by asking back."""
        expires = self._clock() + LIFE
        _put(near, _key(pool, request), (backend, expires), _NEAR_CAPACITY)
        news = News("asked", _key(pool, request, _caller(request, client)), backend)
        self.heard(news)
        self._tell(news)

    def over(self, pool: str, request: RoutingHeaders, client: str, near: Near, backend: str) -> None:
        """This backend is out of reach: nobody waits for what it asked, and its list goes on elsewhere."""
        of_caller = _key(pool, request, _caller(request, client))
        for rounds, key in ((near, _key(pool, request)), (self._by_caller, of_caller), (self._listers, of_caller)):
            if key in rounds and rounds[key][0] == backend:
                del rounds[key]
        self._tell(News("over", of_caller, backend))

    def lister(self, pool: str, request: RoutingHeaders, client: str) -> str | None:
        """The id of the backend that this caller's pages of this list come from, or None."""
        return self._living(self._listers, _key(pool, request, _caller(request, client)))

    def listed(self, pool: str, request: RoutingHeaders, client: str, backend: str) -> None:
        """This backend was chosen for the first page."""
        key = _key(pool, request, _caller(request, client))
        _put(self._listers, key, (backend, self._clock() + PAGES_LIFE), self._capacity)
        self._tell(News("listed", key, backend))

    def heard(self, news: News) -> None:
        """What another process told. Where both have seen something, each keeps its own."""
        kind, key, backend = news
        if kind == "over":
            for rounds in (self._by_caller, self._listers):
                if key in rounds and rounds[key][0] == backend:
                    del rounds[key]
        elif kind == "asked":
            if self._living(self._by_caller, key) in (None, backend):
                _put(self._by_caller, key, (backend, self._clock() + LIFE), self._capacity)
        elif self._living(self._listers, key) is None:
            _put(self._listers, key, (backend, self._clock() + PAGES_LIFE), self._capacity)

    def _tell(self, news: News) -> None:
        if self._told is not None:
            self._told(news)

    def _living(self, rounds: Near, key: bytes) -> str | None:
        found = rounds.get(key)
        if found is None:
            return None
        if found[1] <= self._clock():
            del rounds[key]
            return None
        return found[0]


def _put(rounds: Near, key: bytes, value: tuple[str, float], capacity: int) -> None:
    rounds[key] = value
    rounds.move_to_end(key)
    if len(rounds) > capacity:
        rounds.popitem(last=False)


def _caller(request: RoutingHeaders, client: str) -> str:
    return f"{request.fields.get('authorization', '')}\0{client}"


def _key(pool: str, request: RoutingHeaders, caller: str = "") -> bytes:
    text = f"{pool}\0{request.method}\0{request.name}\0{caller}"
    return blake2b(text.encode("utf-8", "surrogatepass"), digest_size=16).digest()
