"""What is wrong with a configuration, said so that it can be put right without looking anything up."""

import difflib
from collections.abc import Collection, Sequence
from dataclasses import dataclass, field

_LONGEST = 80  # characters of a found value; enough to recognise it
_CLOSE = 0.55  # difflib ratio; finds `leastinflight` and `ring-key`, and nothing for `foo`


@dataclass(frozen=True, slots=True)
class Problem:
    """One mistake. `line` counts from 1, None when it concerns the file as a whole; empty parts are left out."""

    source: str
    line: int | None
    key: str
    """Full path of the key, such as `pools.agents.backends[0].weight`."""
    found: str = ""
    allowed: str = ""
    message: str = ""
    near: str = ""
    """The nearest thing that would have been right."""

    def __str__(self) -> str:
        place = self.source if self.line is None else f"{self.source}:{self.line}"
        parts = (
            f"found {self.found}" if self.found else "",
            self.message,
            f"allowed: {self.allowed}" if self.allowed else "",
            f"did you mean {self.near!r}?" if self.near else "",
        )
        return ": ".join(filter(None, (place, self.key, "; ".join(filter(None, parts)))))


class ConfigError(Exception):
    """A configuration that cannot be used; `problems` are all its mistakes in the order of their lines."""

    def __init__(self, problems: Sequence[Problem]) -> None:
        self.problems = tuple(sorted(dict.fromkeys(problems), key=lambda problem: problem.line or 0))
        super().__init__(self.problems)

    def __str__(self) -> str:
        return "\n".join(map(str, self.problems))


@dataclass(slots=True)
class Report:
    """Collects the mistakes of one file."""

    source: str
    problems: list[Problem] = field(default_factory=list)
    warnings: list[str] = field(default_factory=list)
    """What is no mistake and may still surprise: `key: what about it`."""

    def add(
        self, line: int | None, key: str, *, found: str = "", allowed: str = "", message: str = "", near: str = ""
    ) -> None:
        """Notes one mistake; reading goes on."""
        self.problems.append(Problem(self.source, line, key, found, allowed, message, near))

    def warn(self, key: str, message: str) -> None:
        """Notes what an operator should know."""
        self.warnings.append(f"{key}: {message}")

    def raise_any(self) -> None:
        """Raises ConfigError if there was a mistake."""
        if self.problems:
            raise ConfigError(self.problems)


def quoted(text: str) -> str:
    """The text in quotes on one line, shortened if it is long."""
    return repr(text) if len(text) <= _LONGEST else f"{text[:_LONGEST]!r}..."


def nearest(word: str, known: Collection[str]) -> str:
    """The known word that is most like this one, or "" if none is much like it.

    One of twice the length, or of half, must hold the other whole: `tool` is no misspelt `protocol`.
    """
    written = word[:_LONGEST]
    alike = [other for other in known if _may_be_meant(written, other)]
    return next(iter(difflib.get_close_matches(written, alike, n=1, cutoff=_CLOSE)), "")


def _may_be_meant(written: str, other: str) -> bool:
    shorter, longer = sorted((written, other), key=len)
    return len(longer) < 2 * len(shorter) or shorter in longer
