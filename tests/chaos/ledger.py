"""What the clients saw of each task, what happened meanwhile, and whether that amounts to a loss.

Rules:
* A task is *made* once its call was answered. A call whose answer never came may have made one that nobody knows of:
  an *orphan*, and no loss.
* A made task is *lost* unless a poll of it is answered as completed before the run ends.
* A poll is *wrong* if it is answered -32602: backends here never forget a task. It is *astray* if the answer is about
  another task or from another backend, and *strange* if it is anything else but its state, a 503 with Retry-After, or
  a connection that is refused or cut. Those three fail a run, and so does a call that was carried out twice.
* A backend that drains is *mismanaged* if it is given calls, or called empty by every replica while it works.
"""

import time
from collections import Counter, deque
from collections.abc import Collection, Iterable
from dataclasses import dataclass, field

LATELY = 3  # events before a mistake that its description names


@dataclass(slots=True, eq=False)
class Task:
    """A task that a client knows of. Times are monotonic, in seconds."""

    id: str = field(repr=False)
    backend: str
    made_through: int
    ends: float
    """It works at least until then."""
    tries: int = 0
    """Polls without an answer since the last one with."""
    done: bool = False


class Journal:
    """What happened to the fleet, and how often."""

    def __init__(self) -> None:
        self.counts: Counter[str] = Counter()
        self.lines: list[str] = []
        self._latest: deque[tuple[float, str]] = deque(maxlen=LATELY)
        self._began = time.monotonic()

    def note(self, kind: str, detail: str = "") -> None:
        """Something happened: counted by its kind."""
        now = time.monotonic()
        self.counts[kind] += 1
        self._latest.append((now, f"{kind} {detail}".rstrip()))
        self.lines.append(f"{now - self._began:6.1f} s  {kind} {detail}".rstrip())

    @property
    def latest(self) -> str:
        """What happened last."""
        return self._latest[-1][1] if self._latest else "nothing"

    def lately(self) -> str:
        """What happened just before now."""
        now = time.monotonic()
        return "; ".join(f"{now - at:.2f} s before: {what}" for at, what in reversed(self._latest)) or "nothing yet"


class Ledger:
    """The tasks of a run and what the clients were answered."""

    def __init__(self, journal: Journal) -> None:
        self.journal = journal
        self.tasks: list[Task] = []
        self.counts: Counter[str] = Counter()
        self.mistakes: list[str] = []
        self.unanswered_after: Counter[str] = Counter()

    def made(self, task: Task) -> None:
        self.tasks.append(task)

    def unanswered(self, kind: str) -> None:
        """A connection was refused or cut, or nothing came."""
        self.counts[kind] += 1
        self.unanswered_after[self.journal.latest] += 1

    def mistake(self, kind: str, task: Task | None, through: int, detail: str = "") -> None:
        """An answer that must not be."""
        self.counts[kind] += 1
        owner = "" if task is None else f", its task is at {task.backend}, made through proxy {task.made_through}"
        said = f" ({detail})" if detail else ""
        self.mistakes.append(f"{kind} answer through proxy {through}{said}{owner}; {self.journal.lately()}")

    def mismanaged(self, what: str) -> None:
        """A backend was not treated as one that drains."""
        self.counts["mismanaged"] += 1
        self.mistakes.append(f"{what}; {self.journal.lately()}")

    def unfinished(self, backend: str | None = None) -> int:
        """Tasks not yet seen completed: all, or those of one backend."""
        return sum(not task.done and backend in (None, task.backend) for task in self.tasks)

    def working(self, backend: str) -> int:
        """Tasks of this backend that are not over yet by its own clock, so that nobody can have seen them end."""
        now = time.monotonic()
        return sum(task.backend == backend and task.ends > now for task in self.tasks)


MISTAKES = ("wrong", "astray", "strange")


@dataclass(frozen=True)
class Report:
    """A run, once it is over."""

    settings: str
    wanted: int
    made: int
    completed: int
    by_backend: dict[str, int]
    carried_out: int
    carried_out_twice: int
    counts: Counter[str]
    unanswered_after: Counter[str]
    events: Counter[str]
    expected_events: Collection[str]
    searches: Counter[str]
    stored: int | None
    """Pins in the shared store at the end; None without one."""
    unlearned: Counter[str]
    mistakes: list[str]
    troubles: list[str]
    events_in_order: list[str]
    seconds: float

    @property
    def lost(self) -> int:
        return self.made - self.completed

    @property
    def orphans(self) -> int:
        return self.carried_out - self.made

    def failures(self) -> list[str]:
        """Why this run failed; empty if nothing was lost, all that was to happen did, and it was a real run."""
        found = [f"{self.counts[kind]} polls or calls answered {kind}" for kind in MISTAKES if self.counts[kind]]
        if self.lost:
            found.append(f"{self.lost} of {self.made} tasks lost")
        if self.made != self.wanted:
            found.append(f"{self.made} tasks made, {self.wanted} were to be")
        if self.carried_out_twice:
            found.append(f"{self.carried_out_twice} calls carried out twice")
        if self.orphans < 0:
            found.append(f"{-self.orphans} tasks that no backend made")
        if self.counts["mismanaged"]:
            found.append("a backend was not treated as one that drains")
        if self.stored == 0:
            found.append("no pin is in the shared store")
        if self.troubles:
            found.append(f"a proxy's log tells of a fault: {self.troubles[0].splitlines()[-1]}")
        found += [f"never happened: {kind}" for kind in self.expected_events if not self.events[kind]]
        return found

    def text(self) -> str:
        """For people."""
        rows: list[tuple[str, object]] = [
            ("run", self.settings),
            ("tasks made, completed, lost", f"{self.made}, {self.completed}, {self.lost}"),
            ("made by backend", _pairs(self.by_backend.items())),
            ("calls cut that made a task", self.orphans),
            ("calls carried out twice", self.carried_out_twice),
            ("polls answered with a state", self.counts["polls"]),
            ("wrong, astray, strange answers", ", ".join(str(self.counts[kind]) for kind in MISTAKES)),
            ("other answers", _pairs((kind, n) for kind, n in sorted(self.counts.items()) if " " in kind)),
            ("unanswered, by what was last", _pairs(self.unanswered_after.most_common())),
            ("searches", _pairs(sorted(self.searches.items()))),
            ("pins in the shared store", "no such store" if self.stored is None else self.stored),
            ("answers not learned from", _pairs(sorted(self.unlearned.items()))),
            ("events", _pairs(sorted(self.events.items()))),
            ("seconds", f"{self.seconds:.1f}"),
        ]
        lines = [f"{name:32}{value}" for name, value in rows]
        lines += [f"  {line}" for line in self.events_in_order]
        lines += [f"MISTAKE {text}" for text in self.mistakes[:10]]
        lines += [f"FAULT {text}" for text in self.troubles[:5]]
        lines += [f"FAILED {text}" for text in self.failures()]
        return "\n".join(lines)


def _pairs(pairs: Iterable[tuple[str, object]]) -> str:
    return ", ".join(f"{name}: {value}" for name, value in pairs) or "none"
