"""Which life of which backend was killed when, so that a failure can be asked for its cause."""

import math
from dataclasses import dataclass

GRACE = 1.0
"""Seconds after a backend listens again in which a request may still fail for it: it is dialled again now and then."""


@dataclass
class Outage:
    """Times are monotonic, in seconds; `up` is when the next life listened."""

    instance: str
    life: int
    killed: float
    up: float = math.inf


class Outages:
    """Of one run. A life is named as backends name themselves: `b.3`."""

    def __init__(self) -> None:
        self.all: list[Outage] = []
        self._killed: dict[str, float] = {}

    def begin(self, instance: str, life: int, now: float) -> Outage:
        """A backend is about to be killed."""
        outage = Outage(instance, life, now)
        self.all.append(outage)
        self._killed[f"{instance}.{life}"] = now
        return outage

    def ended(self, name: str, now: float) -> bool:
        """True if this life had been killed by then."""
        return self._killed.get(name, math.inf) <= now

    def between(self, start: float, end: float) -> bool:
        """True if some backend was away within this time, or had just come back."""
        # The latest are asked first: there is one every few seconds, and they are over long before.
        for outage in reversed(self.all):
            if outage.killed <= end and start <= outage.up + GRACE:
                return True
            if outage.up + 60 < start:
                break
        return False
