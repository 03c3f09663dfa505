"""Sections of the file and their keys: each key is described once, for its reader, the reference and the JSON Schema.

Rules:
* A section is read through its `Keys`. What they do not describe is an unknown key to users, and a `KeyError` to code
  that reads it.
* A `Form` says how a value is written: the same object reads it, names what is allowed, and makes its JSON Schema.
* The default that a reader falls back to is the one that is shown.
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Generic, TypeVar

from proxy.config import not_yet
from proxy.config.fields import Field
from proxy.config.problems import nearest
from proxy.config.reading import Table, key_path

T = TypeVar("T")
D = TypeVar("D")

Schema = Mapping[str, Any]
"""A piece of JSON Schema."""


@dataclass(frozen=True, slots=True)
class Form(Generic[T]):
    """How a value is written."""

    allowed: str
    """For the reference; Markdown."""
    schema: Schema
    """Never stricter than `read`: an editor must not complain of what the proxy takes. Variables are added to it."""
    read: Callable[[Field], T | None]
    show: Callable[[T], str] = str
    """The value as it is written in YAML."""
    keys: "Keys | None" = None
    """Those of the section that the value is, or may be, or is made of."""
    place: str = ""
    """Of that section below the key: `.*` for one by a name that the user chooses, `[]` for an item of a list."""


@dataclass(frozen=True, slots=True)
class Key(Generic[T, D]):
    """One key of a section."""

    name: str
    form: Form[T]
    default: D
    meaning: str
    """One or two sentences in Markdown."""
    example: str = ""
    """A value as it is written in YAML; "" for sections, whose keys have examples."""
    without: str = ""
    """How it is where the key is not given, if no value says it."""
    required: bool = False


AnyKey = Key[Any, Any]


@dataclass(frozen=True, slots=True)
class Keys:
    """The keys of one kind of section, in the order in which they are told."""

    about: str
    """What the section is for; Markdown."""
    keys: tuple[AnyKey, ...]
    rules: Schema = field(default_factory=dict)
    """What JSON Schema has to know of keys that depend on each other. The reader checks the same."""

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(key.name for key in self.keys)

    def section(self, field: Field) -> "Section | None":
        """A mapping with these keys; reports all others."""
        if not isinstance(field.node, Table):
            field.problem(allowed=f"a mapping with {', '.join(self.names)}")
            return None
        section = Section(field, field.node, self)
        section.check_keys()
        return section


def unread(field: Field) -> None:
    """Reads a value for which a reader is made where it is read, since it has to know what stands beside it."""
    raise TypeError(f"{field.key} is read by a reader of its own")


class Section:
    """A mapping whose keys are known."""

    __slots__ = ("_keys", "_table", "field")

    def __init__(self, field: Field, table: Table, keys: Keys) -> None:
        self.field = field
        self._table = table
        self._keys = {key.name: key for key in keys.keys}

    def __contains__(self, name: str) -> bool:
        return self._keys[name].name in self._table.entries

    def __iter__(self) -> Iterator[str]:
        return iter(self._table.entries)

    def get(self, name: str) -> Field | None:
        """The field, or None if it is not given."""
        entry = self._table.entries.get(self._keys[name].name)
        return None if entry is None else self.field.child(name, entry)

    def require(self, name: str, allowed: str) -> Field | None:
        """The field; reports if it is not given."""
        found = self.get(name)
        if found is None:
            self.field.report.add(self.field.line, key_path(self.field.key, name), message="missing", allowed=allowed)
        return found

    def take(self, key: Key[T, D], reader: Callable[[Field], T | None] | None = None) -> T | D:
        """What the key's form, or another reader, makes of the value; the default if it is not given, or wrong."""
        if self._keys.get(key.name) is not key:
            raise KeyError(key.name)
        found = self.get(key.name)
        value = None if found is None else (reader or key.form.read)(found)
        return key.default if value is None else value

    def check_keys(self) -> None:
        """Reports every key that is not known, or not supported yet."""
        later, known = not_yet.KEYS.get(self.field.kind, {}), tuple(self._keys)
        for name in self:
            place = self._table.entries[name].line, key_path(self.field.key, name)
            if name in later:
                self.field.report.add(*place, message=not_yet.MESSAGE, allowed=f"for now, no such key: {later[name]}")
            elif name not in self._keys:
                near = nearest(name, [*known, *later])
                self.field.report.add(*place, message="unknown key", allowed=", ".join(known), near=near)
