"""What the clients of a soak run saw, against what the backends wrote down that they executed.

Rules:
* No label is executed twice, whatever its client saw, and none that nobody asked for.
* A call that succeeded was executed once; one whose error says that nothing was sent was not executed.
* A run is a real one if every kind of request was served, and backends were killed as often as planned.
* The proxy grows by less than growth.LIMIT after the warm-up, has no more descriptors open than before the clients
  came once they have left, and its gauges are back at 0.
"""

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field

from tests.soak.growth import LIMIT
from tests.soak.verdict import LEFT, MISTAKE, SERVED, Verdict

FEWEST_SERVED = 0.9
"""Of the calls: a proxy that fails most of them with errors that it may give is of no use."""


class Ledger:
    """One run."""

    def __init__(self) -> None:
        self.outcomes: dict[str, Counter[str]] = {}
        """By kind of request."""
        self.labels: dict[str, Verdict] = {}
        """What came of each call."""
        self.counts: Counter[str] = Counter()
        self.longest: Counter[str] = Counter()
        """Milliseconds of the longest request of each kind."""
        self.mistakes: list[str] = []

    def note(self, kind: str, verdict: Verdict, label: str | None, seconds: float) -> None:
        """What came of a request. `label`: that of a call."""
        self.outcomes.setdefault(kind, Counter())[verdict.outcome] += 1
        self.longest[kind] = max(self.longest[kind], int(seconds * 1000))
        if verdict.outcome == MISTAKE:
            self.mistake(kind, verdict.mistake)
        if label is not None:
            # Without its message, which may be large.
            self.labels[label] = Verdict(verdict.outcome)

    def mistake(self, kind: str, what: str) -> None:
        """Something that must not be."""
        self.counts["mistakes"] += 1
        self.mistakes.append(f"{kind}: {what}")


@dataclass(frozen=True)
class Executions:
    """Labels against the journals."""

    twice: int = 0
    unasked: int = 0
    served: int = 0
    served_not_once: int = 0
    failed: int = 0
    """Calls that were not served; some were executed before their backend was killed."""
    failed_executed: int = 0
    unsent_executed: int = 0
    """Calls that were executed though their error says that nothing was sent."""


def compared(labels: Mapping[str, Verdict], executed: Counter[str]) -> Executions:
    """`executed`: how often the journals have each label."""
    served = [label for label, verdict in labels.items() if verdict.outcome == SERVED]
    failed = [label for label, verdict in labels.items() if verdict.outcome != SERVED]
    return Executions(
        twice=sum(times > 1 for times in executed.values()),
        unasked=sum(label not in labels for label in executed),
        served=len(served),
        served_not_once=sum(executed[label] != 1 for label in served),
        failed=len(failed),
        failed_executed=sum(executed[label] > 0 for label in failed),
        unsent_executed=sum(executed[label] > 0 for label in failed if labels[label].unsent),
    )


@dataclass(frozen=True)
class Report:
    """A run, once it is over."""

    settings: str
    outcomes: dict[str, Counter[str]]
    expected_kinds: tuple[str, ...]
    longest: Counter[str]
    executions: Executions
    kills: int
    expected_kills: int
    mistakes: list[str]
    troubles: list[str]
    """What processes wrote that tells of a fault in one of them."""
    growth: float | None
    """MiB per minute; None if the run was too short to tell."""
    memory: tuple[float, float, float]
    """MiB of the proxy's processes together: after the warm-up, at the end, and at most."""
    descriptors: tuple[int, int, int]
    """Before the clients came, at most, and after they had left."""
    gauges: dict[str, float]
    """Once the clients had left."""
    counted: Counter[str] = field(default_factory=Counter)
    """What the proxy itself counted."""
    seconds: float = 0.0

    def failures(self) -> list[str]:
        """Why this run failed; empty if nothing was lost or leaked and it was a real run."""
        did = self.executions
        found = [f"{len(self.mistakes)} mistakes"] * bool(self.mistakes)
        for number, what in (
            (did.twice, "calls executed twice"),
            (did.unasked, "calls executed that nobody made"),
            (did.served_not_once, "calls that succeeded were not executed once"),
            (did.unsent_executed, "calls executed that were told not to be sent"),
        ):
            found += [f"{number} {what}"] * bool(number)
        found += [f"never served: {kind}" for kind in self.expected_kinds if not self._succeeded(kind)]
        if did.served < FEWEST_SERVED * (did.served + did.failed):
            found.append(f"{did.failed} of {did.served + did.failed} calls failed")
        if self.kills < self.expected_kills:
            found.append(f"{self.kills} backends killed, {self.expected_kills} were to be")
        if self.troubles:
            found.append(f"a log tells of a fault: {self.troubles[0].splitlines()[-1]}")
        if self.growth is not None and self.growth >= LIMIT:
            found.append(f"memory grows by {self.growth:.2f} MiB a minute")
        before, _, after = self.descriptors
        if after > before:
            found.append(f"{after - before} descriptors left open")
        found += [f"{name} is {value:g} with no client" for name, value in self.gauges.items() if value]
        return found

    def _succeeded(self, kind: str) -> int:
        """Streams without an end succeed by lasting until their client leaves."""
        outcomes = self.outcomes.get(kind, Counter())
        return outcomes[SERVED] + (outcomes[LEFT] if "listen" in kind or kind == "session stream" else 0)

    def text(self) -> str:
        """For people."""
        did = self.executions
        growth = "too short to tell" if self.growth is None else f"{self.growth:+.2f} MiB a minute"
        rows: list[tuple[str, object]] = [
            ("run", self.settings),
            ("backends killed", self.kills),
            ("calls served, executed once", f"{did.served}, {did.served - did.served_not_once}"),
            ("calls not served, executed", f"{did.failed}, {did.failed_executed}"),
            ("executed twice, unasked, unsent", f"{did.twice}, {did.unasked}, {did.unsent_executed}"),
            ("memory after warm-up, end, peak", ", ".join(f"{value:.1f} MiB" for value in self.memory)),
            ("memory growth after warm-up", growth),
            ("descriptors before, peak, after", ", ".join(map(str, self.descriptors))),
            ("gauges without clients", ", ".join(f"{name} {value:g}" for name, value in self.gauges.items())),
            ("counted by the proxy", _pairs(self.counted)),
            ("seconds", f"{self.seconds:.1f}"),
        ]
        rows += [
            (f"  {kind}", f"{_pairs(found)}; max {self.longest[kind]} ms") for kind, found in self.outcomes.items()
        ]
        lines = [f"{name:34}{value}" for name, value in rows]
        lines += [f"MISTAKE {text}" for text in self.mistakes[:10]]
        lines += [f"FAULT {text}" for text in self.troubles[:5]]
        lines += [f"FAILED {text}" for text in self.failures()]
        return "\n".join(lines)


def _pairs(counts: Mapping[str, int]) -> str:
    return ", ".join(f"{name}: {number}" for name, number in sorted(counts.items())) or "none"
