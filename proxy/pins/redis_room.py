"""What Redis says of its room: what it dropped for want of it, and whether that may be more than pins.

Under a policy `volatile-*` Redis drops pins alone, since all else of ours never expires. Under `allkeys-*` a set of
held tasks may be dropped as well, and nothing tells that it was.
"""

import re
from typing import NamedTuple

_FIELD = re.compile(rb"^(run_id|maxmemory|maxmemory_policy|evicted_keys):(.*?)\r?$", re.MULTILINE)
_KEYS = re.compile(rb"^db\d+:keys=(\d+),", re.MULTILINE)


class _Said(NamedTuple):
    run: bytes
    """Another one each time that Redis starts."""
    policy: bytes
    limited: bool
    evicted: int
    """Keys dropped since it started, its other users' included."""
    keys: int

    @property
    def drops_any(self) -> bool:
        return self.limited and self.policy.startswith(b"allkeys")


class Room:
    """What was noted of one Redis. Times are of one clock, in seconds."""

    def __init__(self) -> None:
        self.evicted = 0
        """Keys dropped since the first note, over all restarts."""
        self._now: _Said | None = None
        self._marked: _Said | None = None
        self._unsure_since: float | None = None

    def note(self, info: object, now: float) -> None:
        """Takes an answer to INFO; what is none, or lacks something, changes nothing."""
        said = _said_in(info)
        if said is None:
            return
        if self._now is not None:
            same = said.run == self._now.run and said.evicted >= self._now.evicted
            self.evicted += said.evicted - self._now.evicted if same else said.evicted
        if said.drops_any and said.evicted:
            self._unsure_since = now
        self._now = said

    def mark(self) -> None:
        """All was there at the last note."""
        self._marked = self._now

    @property
    def dropped_since_mark(self) -> bool:
        """True if what is gone since then was dropped, as other keys were, while most are still there."""
        then, now = self._marked, self._now
        if then is None or now is None or then.run != now.run:
            return False
        return now.evicted > then.evicted and 2 * now.keys >= then.keys

    @property
    def policy_that_drops_any(self) -> str:
        """The policy, if by it any key may be dropped; else nothing."""
        return self._now.policy.decode("ascii", "replace") if self._now is not None and self._now.drops_any else ""

    def counts_known(self, now: float, *, life: float) -> bool:
        """False if a set of held tasks may have been dropped that would still count; `life`: of a pin, in seconds."""
        return self._unsure_since is None or now - self._unsure_since > life


def _said_in(info: object) -> _Said | None:
    if not isinstance(info, bytes):
        return None
    fields = dict(_FIELD.findall(info))
    evicted, limit = fields.get(b"evicted_keys", b""), fields.get(b"maxmemory", b"")
    if not evicted.isdigit():
        return None
    return _Said(
        run=fields.get(b"run_id", b""),
        policy=fields.get(b"maxmemory_policy", b""),
        limited=limit not in (b"", b"0"),
        evicted=int(evicted),
        keys=sum(map(int, _KEYS.findall(info))),
    )
