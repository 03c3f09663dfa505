"""The order in which a pool's backends are preferred for a key (the only file that knows uhashring).

The ring holds the *configured* members, fit or not: an ejection or a drain must not move anyone else's keys. A ring is
never changed: a new set of members gets a new ring, and with it an empty memo.
"""

from bisect import bisect, bisect_left
from collections.abc import Collection, Iterator, Mapping, Sequence
from itertools import chain

from uhashring import HashRing

_MEMO_LIMIT = 16_384  # keys whose place is remembered; a look-up costs 4-7 µs
_CIRCLE = 1 << 128  # places on the ring; they are MD5 sums


class Ring:
    """A consistent-hash ring over backend ids with integer weights of at least 1."""

    def __init__(self, weights: Mapping[str, int]) -> None:
        self._ring = HashRing(nodes={member: {"weight": weight} for member, weight in weights.items()})
        points = self._ring.get_points()
        self._positions: list[int] = [position for position, _ in points]
        self._ids: list[str] = [str(member) for _, member in points]  # of the same points
        self._count = len(weights)
        self._places: dict[str, int] = {}

    def first(self, key: str) -> str:
        """The id preferred for this key. The ring must not be empty."""
        place = self._places.get(key)
        return self._ids[self._place(key) if place is None else place]

    def walk(self, key: str) -> Iterator[str]:
        """Every id, the most preferred first. Costs as much as is taken of it: a ring of a thousand is seldom seen
        to its end.
        """
        if not self._ids:
            return
        ids, place, seen = self._ids, self._place(key), set[str]()
        for at in chain(range(place, len(ids)), range(place)):  # no part of them is copied: there are 160 of each
            member = ids[at]
            if member not in seen:
                seen.add(member)
                yield member
                if len(seen) == self._count:
                    return

    def order(self, key: str) -> Sequence[str]:
        """The same as a whole; the first one is `first(key)`."""
        return tuple(self.walk(key))

    def _place(self, key: str) -> int:
        """The number of the point that this key belongs to."""
        place = self._places.get(key)
        if place is None:
            if len(self._places) >= _MEMO_LIMIT:
                self._places.clear()
            position, _ = self._ring.get_server(_hashable(key))
            place = self._places[key] = bisect_left(self._positions, position)
        return place

    def shares(self, among: Collection[str]) -> dict[str, float]:
        """What part of all keys, from 0 to 1, has each of these ids first where all others are passed over.

        Exact, and slow: some tenths of a second for a thousand ids. A point has the keys between it and the one before.
        """
        arcs = dict.fromkeys(among, 0)
        points = [(at, member) for at, member in zip(self._positions, self._ids, strict=True) if member in arcs]
        before = points[-1][0] - _CIRCLE if points else 0
        for at, member in points:
            arcs[member] += at - before
            before = at
        return {member: arc / _CIRCLE for member, arc in arcs.items()}

    def slices(self, count: int) -> list[str]:
        """The ids that are first at so many places, evenly spaced around the ring. It must not be empty."""
        places = (bisect(self._positions, _CIRCLE * number // count) for number in range(count))
        return [self._ids[place % len(self._ids)] for place in places]


def _hashable(key: str) -> str:
    """Lone surrogates cannot be encoded, which uhashring must do; they become their escape."""
    return key.encode("utf-8", "backslashreplace").decode("utf-8")
