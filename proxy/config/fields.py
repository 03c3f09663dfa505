"""Single values of the file: what was written, where it stands, and what it means where a given kind is expected.

Readers report a mistake and return None; the caller goes on with a default, and `Report.raise_any` has the last word.
`${VAR}` is replaced here, when a value is read, so that it is never taken for YAML.
"""

import re
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TypeVar

from proxy.config import not_yet
from proxy.config.problems import Report, nearest, quoted
from proxy.config.reading import Entry, Items, Node, Scalar, Table, key_path

T = TypeVar("T")
Word = TypeVar("Word", bound=str)

_VARIABLE = re.compile(r"\$\$\{|\$\{(?P<name>[A-Za-z_][A-Za-z0-9_]*)\}|\$\{")
_ESCAPED = "$${"
INTEGER = r"[+-]?(?:0|[1-9][0-9]{0,17}|[1-9][0-9]{0,2}(?:_[0-9]{3}){1,5})"
DURATION = r"([0-9]+(?:\.[0-9]+)?)(ms|s|m|h)"
_INTEGER, _DURATION = re.compile(INTEGER), re.compile(DURATION)
_PERCENT = re.compile(r"(0|[1-9][0-9]{0,2})%")
BOOLEANS = {"true": True, "yes": True, "on": True, "false": False, "no": False, "off": False}
_SECONDS = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0}
_LONGEST = 10 * 365 * 24 * 3600.0  # seconds: 10 years; beyond lies a slip, or trouble with timers
_UNITS = "a number with a unit (ms, s, m or h), such as 250ms, 1.5s or 10m"


@dataclass(frozen=True, slots=True)
class Field:
    """A value, its place in the file and the report for its mistakes. `kind` is the place as `not_yet` names it."""

    node: Node
    line: int
    key: str
    kind: str
    report: Report
    environ: Mapping[str, str] = field(repr=False)
    secret: bool = False
    """True if the value must not be shown."""

    def problem(self, *, found: str | None = None, allowed: str = "", message: str = "", near: str = "") -> None:
        """Reports a mistake here; `found` is what was written unless given, "" for none."""
        shown = self._shown() if found is None else found
        self.report.add(self.line, self.key, found=shown, allowed=allowed, message=message, near=near)

    def text(self, allowed: str = "text") -> str | None:
        """The text, not empty, with variables replaced."""
        if not isinstance(self.node, Scalar) or self.node.null or not self.node.text:
            self.problem(allowed=allowed)
            return None
        text = self._replaced(self.node.text)
        if text is not None and (not text or any("\ud800" <= char <= "\udfff" for char in text)):
            self.problem(allowed=allowed, message="" if text else "empty once variables are replaced")
            return None
        return text

    def integer(self, low: int, high: int) -> int | None:
        """A decimal integer from low to high; `_` may part groups of three digits."""
        allowed = f"an integer from {low} to {high}"
        text = self.text(allowed)
        if text is None:
            return None
        if not _INTEGER.fullmatch(text) or not low <= int(text.replace("_", "")) <= high:
            self.problem(allowed=allowed)
            return None
        return int(text.replace("_", ""))

    def boolean(self) -> bool | None:
        """True or false, in YAML's spellings."""
        allowed = "true, false"
        text = self.text(allowed)
        if text is None:
            return None
        if text.lower() not in BOOLEANS:
            self.problem(allowed=allowed)
        return BOOLEANS.get(text.lower())

    def duration(self, *, zero: bool = False) -> float | None:
        """Seconds; more than 0 unless `zero`, and at most 10 years."""
        allowed = f"{_UNITS}, {'from 0s' if zero else 'more than 0s'} to 10 years"
        text = self.text(allowed)
        if text is None:
            return None
        match = _DURATION.fullmatch(text)
        seconds = -1.0 if match is None else float(match[1]) * _SECONDS[match[2]]
        if not (0 if zero else 1e-9) <= seconds <= _LONGEST:
            self.problem(allowed=allowed)
            return None
        return seconds

    def percent(self, low: int, high: int) -> int | None:
        """A whole number of percent from low to high, written with the sign."""
        allowed = f"a percentage from {low}% to {high}%"
        text = self.text(allowed)
        match = None if text is None else _PERCENT.fullmatch(text)
        if text is not None and (match is None or not low <= int(match[1]) <= high):
            self.problem(allowed=allowed)
            return None
        return None if match is None else int(match[1])

    def choice(self, words: Sequence[Word]) -> Word | None:
        """One of the words."""
        allowed = ", ".join(words)
        text = self.text(allowed)
        if text is None or text in words:
            return next((word for word in words if word == text), None)
        if not self.is_not_yet(text, allowed):
            self.problem(allowed=allowed, near=nearest(text, words))
        return None

    def is_not_yet(self, value: str, allowed: str) -> bool:
        """True, and reported, if this value is to be supported later; `allowed` are those that are now."""
        later = value in not_yet.VALUES.get(self.kind, ())
        if later:
            self.problem(message=not_yet.MESSAGE, allowed=f"for now only {allowed}")
        return later

    def compiled(self, build: Callable[[str], T], text: str) -> T | None:
        """What `build` makes of the text; it compiles a regular expression."""
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # about notations that may change their meaning: the user's own affair
                return build(text)
        except (re.error, ValueError, OverflowError, RecursionError) as error:
            as_written = isinstance(self.node, Scalar) and text == self.node.text and not self.secret
            reason = f": {' '.join(str(error).split())}" if as_written else ""  # it may quote what must not be shown
            self.problem(message=f"not a regular expression{reason}")
            return None

    def items(self, what: str, *, least: int = 0) -> "list[Field]":
        """The fields of a list; `what` says what its items are."""
        items = self.node.items if isinstance(self.node, Items) else ()
        if not isinstance(self.node, Items) or len(items) < least:
            self.problem(allowed=f"a list of {what}" + (", at least one" if least else ""))
        return [
            self._with(Entry(item.line, item), f"{self.key}[{i}]", f"{self.kind}[]") for i, item in enumerate(items)
        ]

    def named(self, what: str, *, least: int = 0) -> "dict[str, Field]":
        """The fields of a mapping whose keys the user chooses; `what` says what they are."""
        entries = self.node.entries if isinstance(self.node, Table) else {}
        if not isinstance(self.node, Table) or len(entries) < least:
            self.problem(allowed=f"a mapping of {what}" + (", at least one" if least else ""))
        return {key: self._with(entry, key_path(self.key, key), f"{self.kind}.*") for key, entry in entries.items()}

    def child(self, key: str, entry: Entry) -> "Field":
        """The field of a key in this section."""
        return self._with(entry, key_path(self.key, key), f"{self.kind}.{key}" if self.kind else key)

    def hidden(self) -> "Field":
        """The same field with its value never shown."""
        return replace(self, secret=True)

    def _with(self, entry: Entry, key: str, kind: str) -> "Field":
        return replace(self, node=entry.value, line=entry.line, key=key, kind=kind)

    def _shown(self) -> str:
        match self.node:
            case Items():
                return "a list" if self.node.items else "an empty list"
            case Table():
                return "a mapping" if self.node.entries else "an empty mapping"
            case Scalar(null=True):
                return "nothing"
        if self.secret:
            return "a value that is not shown"
        # What a variable holds may be secret, so the value is shown as it stands in the file.
        replaced = _VARIABLE.search(self.node.text) is not None
        return quoted(self.node.text) + (" with variables replaced" if replaced else "")

    def _replaced(self, text: str) -> str | None:
        names = [match["name"] for match in _VARIABLE.finditer(text) if match[0] != _ESCAPED]
        if None in names:
            self.problem(found="`${` without a name and `}`", allowed="${NAME} for a variable, $${ for `${` itself")
            return None
        missing = [name for name in dict.fromkeys(names) if name not in self.environ]
        for name in missing:
            self.problem(found=f"${{{name}}}", message=f"the environment variable {name} is not set")
        if missing:
            return None
        return _VARIABLE.sub(lambda match: "${" if match[0] == _ESCAPED else self.environ[match["name"]], text)
