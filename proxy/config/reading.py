"""YAML text to nodes that know their line: the only file that knows yaml.

Nodes keep scalars as they were written. What a scalar means is decided by who asks for it: `on`, `1.10` and 2026-07-28
are text where text is expected, so that YAML's guesses at types do no harm. Tags other than YAML's own are refused.
"""

from dataclasses import dataclass
from typing import Any

import yaml

from proxy.config.problems import Report, quoted

_DEEPEST = 32  # levels of nesting; the configuration itself needs 6
_SCALARS = {
    f"tag:yaml.org,2002:{name}" for name in ("str", "int", "float", "bool", "null", "timestamp", "merge", "value")
}
_NULL, _MERGE = "tag:yaml.org,2002:null", "tag:yaml.org,2002:merge"
_SEQUENCE, _MAPPING = "tag:yaml.org,2002:seq", "tag:yaml.org,2002:map"


@dataclass(frozen=True, slots=True)
class Scalar:
    """One value as written, without its quotes; `null` where nothing, `null` or `~` was written."""

    line: int
    text: str
    null: bool = False


@dataclass(frozen=True, slots=True)
class Items:
    """A list."""

    line: int
    items: tuple["Node", ...]


@dataclass(frozen=True, slots=True)
class Entry:
    """A mapping's value with the line of its key."""

    line: int
    value: "Node"


@dataclass(frozen=True, slots=True)
class Table:
    """A mapping, in the order of the file."""

    line: int
    entries: dict[str, Entry]


Node = Scalar | Items | Table


def read_yaml(text: str, report: Report) -> Node | None:
    """The document's root. Mistakes go to the report; None if there is nothing to go on with."""
    loader = None
    try:
        loader = _Loader(text)
        root = loader.get_single_node()
    except yaml.reader.ReaderError as error:
        line = text.count("\n", 0, int(error.position)) + 1
        report.add(
            line, "", message=f"not valid YAML: the character {quoted(chr(int(error.character)))} is not allowed"
        )
        return None
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        line = 1 if mark is None else mark.line + 1
        report.add(line, "", message=f"not valid YAML: {_said(error)}{_hint(text, line)}")
        return None
    except (yaml.YAMLError, ValueError, OverflowError) as error:  # escapes and numbers that yaml hands on unchecked
        line = 1 if loader is None else int(loader.line) + 1
        report.add(line, "", message=f"not valid YAML: {' '.join(str(error).split())}")
        return None
    if root is None:
        report.add(1, "", found="an empty file", allowed="a mapping with pools and routes")
        return None
    return _Reading(report).node(root, "")


def read_plain(text: str, source: str) -> Any:
    """A whole text as lists, dicts, text and None; `source` names it in messages. Raises ConfigError."""
    report = Report(source)
    root = read_yaml(text, report)
    report.raise_any()
    return None if root is None else _plain(root)


def _plain(node: Node) -> Any:
    if isinstance(node, Items):
        return [_plain(item) for item in node.items]
    if isinstance(node, Table):
        return {key: _plain(entry.value) for key, entry in node.entries.items()}
    return None if node.null else node.text


def key_path(parent: str, key: str) -> str:
    """The full path of a key; a key that is no plain word is quoted."""
    plain = key if key and all(char.isalnum() or char in "_.-" for char in key) and key.isascii() else quoted(key)
    return f"{parent}.{plain}" if parent else plain


def _said(error: yaml.MarkedYAMLError) -> str:
    """What is wrong, and in what, on one line."""
    problem, context, mark = error.problem or "", error.context or "", error.context_mark
    if problem.startswith("but "):
        said = f"{context}, {problem}"
    elif context and mark is not None:
        said = f"{problem}, {context} from line {mark.line + 1}"
    else:
        said = problem or context
    return " ".join(said.split())


def _hint(text: str, line: int) -> str:
    """`{weight: ${W}}` is the likeliest reason for a syntax error in its line."""
    lines = text.split("\n")
    return "; within {} and [] put ${VAR} in quotes" if line <= len(lines) and "${" in lines[line - 1] else ""


class _Loader(yaml.SafeLoader):
    """Composes nodes and constructs nothing; counts levels, since composing is recursive."""

    depth = 0

    def compose_node(self, parent: yaml.Node | None, index: Any) -> yaml.Node | None:
        if self.depth >= _DEEPEST:
            mark = self.peek_event().start_mark  # type: ignore[no-untyped-call]  # yaml's stubs leave it out
            raise yaml.MarkedYAMLError(problem=f"nested deeper than {_DEEPEST} levels", problem_mark=mark)
        self.depth += 1
        try:
            return super().compose_node(parent, index)
        finally:
            self.depth -= 1


class _Reading:
    """One document on its way to nodes. What an alias names is read once, so that aliases of aliases cost nothing."""

    def __init__(self, report: Report) -> None:
        self._report = report
        self._done: dict[yaml.Node, Node] = {}
        self._open: set[yaml.Node] = set()

    def node(self, raw: yaml.Node, path: str) -> Node:
        known = self._done.get(raw)
        if known is not None:
            return known
        line = raw.start_mark.line + 1
        if raw in self._open:
            self._report.add(line, path, message="contains itself")
            return Scalar(line, "", null=True)
        self._open.add(raw)
        read: Node
        if isinstance(raw, yaml.MappingNode):
            self._check_tag(raw, {_MAPPING}, path)
            read = self._table(raw, path)
        elif isinstance(raw, yaml.SequenceNode):
            self._check_tag(raw, {_SEQUENCE}, path)
            read = Items(line, tuple(self.node(item, f"{path}[{index}]") for index, item in enumerate(raw.value)))
        else:
            self._check_tag(raw, _SCALARS, path)
            read = Scalar(line, str(raw.value), null=raw.tag == _NULL)
        self._open.discard(raw)
        self._done[raw] = read
        return read

    def _table(self, raw: yaml.MappingNode, path: str) -> Table:
        entries: dict[str, Entry] = {}
        merged: dict[str, Entry] = {}
        for key, value in raw.value:
            line = key.start_mark.line + 1
            if not isinstance(key, yaml.ScalarNode):
                self._report.add(line, path, found="a list or a mapping as a key", allowed="text as a key")
                continue
            name = str(key.value)
            place = key_path(path, name)
            self._check_tag(key, _SCALARS, place)
            if key.tag == _MERGE:
                self._merge(self.node(value, place), merged, line, place)
            elif name in entries:
                self._report.add(line, place, message=f"given twice, first in line {entries[name].line}")
            else:
                entries[name] = Entry(line, self.node(value, place))
        return Table(raw.start_mark.line + 1, entries | {key: merged[key] for key in merged if key not in entries})

    def _merge(self, base: Node, merged: dict[str, Entry], line: int, place: str) -> None:
        """`<<: *base` takes over what is not given here; of several bases the first one counts."""
        for table in base.items if isinstance(base, Items) else (base,):
            if isinstance(table, Table):
                for key, entry in table.entries.items():
                    merged.setdefault(key, entry)
            else:
                self._report.add(line, place, allowed="an alias of a mapping, or a list of such aliases")

    def _check_tag(self, raw: yaml.Node, allowed: set[str], path: str) -> None:
        if raw.tag not in allowed:
            self._report.add(raw.start_mark.line + 1, path, found=f"tag {quoted(raw.tag)}", allowed="no tag")
