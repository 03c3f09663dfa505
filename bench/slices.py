"""What the harness asks of the load generator for one slice of time, and what it hears back, as lines of JSON."""

import json
from dataclasses import asdict, dataclass


class SliceError(Exception):
    """A slice that cannot count: a wrong answer, a broken connection, a process that ended. The message says which."""


@dataclass(frozen=True, slots=True)
class Order:
    """One slice to run against ``host:port``, while the CPU time of ``pids`` is taken.

    Clients work for ``ramp`` seconds before anything is counted. ``ca``: the file of the authority that the target's
    certificate is checked with; empty: no TLS.
    """

    load: str
    host: str
    port: int
    pids: tuple[int, ...]
    connections: int
    seconds: float
    ramp: float = 0.2
    ca: str = ""

    def to_line(self) -> str:
        return json.dumps(asdict(self))

    @classmethod
    def from_line(cls, line: str) -> "Order":
        values = json.loads(line)
        return cls(**values | {"pids": tuple(values["pids"])})


@dataclass(frozen=True, slots=True)
class Measurement:
    """One slice that went well: ``cpu_ns`` of the target for ``requests`` answered within ``seconds``.

    Where the load is of events, each of them counts as a request: its latency is the time from the backend to here.
    """

    requests: int
    seconds: float
    cpu_ns: int
    p50_ms: float
    p99_ms: float
    resident_bytes: int

    @property
    def cpu_us_per_request(self) -> float:
        return self.cpu_ns / self.requests / 1000


def result_line(result: Measurement | SliceError) -> str:
    """The load generator's reply to one order."""
    return json.dumps({"failed": str(result)} if isinstance(result, SliceError) else asdict(result))


def result_from_line(line: str) -> Measurement:
    """The measurement in a reply. Raises SliceError if the slice failed or the reply never came."""
    if not line:
        raise SliceError("the load generator has ended")
    values = json.loads(line)
    if "failed" in values:
        raise SliceError(values["failed"])
    return Measurement(**values)
