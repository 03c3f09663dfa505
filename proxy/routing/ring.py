"""The order in which a pool's backends are preferred for a key (the only file that knows uhashring).

The ring holds the *configured* members, fit or not: an ejection or a drain must not move anyone else's keys. A ring is
never changed: a new set of members gets a new ring, and with it an empty memo.
"""

from bisect import bisect
from collections.abc import Collection, Mapping, Sequence

from uhashring import HashRing

_MEMO_LIMIT = 16_384  # ids remembered, of first places and of orders each; a look-up costs 4-7 µs, an order more
_CIRCLE = 1 << 128  # places on the ring; they are MD5 sums


class Ring:
    """A consistent-hash ring over backend ids with integer weights of at least 1."""

    def __init__(self, weights: Mapping[str, int]) -> None:
        self._ring = HashRing(nodes={member: {"weight": weight} for member, weight in weights.items()})
        self._firsts: dict[str, str] = {}
        self._orders: dict[str, tuple[str, ...]] = {}
        self._most_orders = _MEMO_LIMIT // max(1, len(weights))

    def first(self, key: str) -> str:
        """The id preferred for this key. The ring must not be empty."""
        known = self._firsts.get(key)
        if known is None:
            if len(self._firsts) >= _MEMO_LIMIT:
                self._firsts.clear()
            known = self._firsts[key] = str(self._ring.get_node(_hashable(key)))
        return known

    def order(self, key: str) -> Sequence[str]:
        """Every id, the most preferred first; the first one is `first(key)`."""
        known = self._orders.get(key)
        if known is None:
            if len(self._orders) >= self._most_orders:
                self._orders.clear()
            nodes = self._ring.range(_hashable(key), unique=True)
            known = self._orders[key] = tuple(str(node["nodename"]) for node in nodes)
        return known

    def shares(self, among: Collection[str]) -> dict[str, float]:
        """What part of all keys, from 0 to 1, has each of these ids first where all others are passed over.

        Exact, and slow: some tenths of a second for a thousand ids. A point has the keys between it and the one before.
        """
        arcs = dict.fromkeys(among, 0)
        points = [(at, member) for at, member in self._ring.get_points() if member in arcs]
        before = points[-1][0] - _CIRCLE if points else 0
        for at, member in points:
            arcs[member] += at - before
            before = at
        return {member: arc / _CIRCLE for member, arc in arcs.items()}

    def slices(self, count: int) -> list[str]:
        """The ids that are first at so many places, evenly spaced around the ring. It must not be empty."""
        points = self._ring.get_points()
        positions = [at for at, _ in points]
        places = (bisect(positions, _CIRCLE * number // count) for number in range(count))
        return [str(points[place % len(points)][1]) for place in places]


def _hashable(key: str) -> str:
    """Lone surrogates cannot be encoded, which uhashring must do; they become their escape."""
    return key.encode("utf-8", "backslashreplace").decode("utf-8")
