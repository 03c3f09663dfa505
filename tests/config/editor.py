"""What an editor makes of a configuration: YAML 1.2 with merge keys, held against the JSON Schema."""

import re
from typing import Any

import yaml
from jsonschema import Draft202012Validator  # type: ignore[import-untyped]  # it has no annotations

from proxy.config.schema import schema

_VALIDATOR = Draft202012Validator(schema())
_TAG = "tag:yaml.org,2002:"


class _Core(yaml.SafeLoader):
    """YAML 1.2, 10.3: `on` and 2026-07-28 are text."""

    yaml_implicit_resolvers: dict[str, Any] = {}  # noqa: RUF012 - as yaml has it


for _name, _pattern, _first in (
    ("null", r"~|null|Null|NULL|", ["~", "n", "N", ""]),
    ("bool", r"true|True|TRUE|false|False|FALSE", list("tTfF")),
    ("int", r"[-+]?[0-9]+", list("-+0123456789")),
    ("float", r"[-+]?(?:\.[0-9]+|[0-9]+(?:\.[0-9]*)?)(?:[eE][-+]?[0-9]+)?", list("-+.0123456789")),
    ("merge", r"<<", ["<"]),
):
    _Core.add_implicit_resolver(f"{_TAG}{_name}", re.compile(rf"(?:{_pattern})\Z"), _first)
# yaml's own would read 010 as octal.
_Core.add_constructor(f"{_TAG}int", lambda loader, node: int(str(node.value)))


def check_schema() -> None:
    """Raises where the JSON Schema is none."""
    Draft202012Validator.check_schema(schema())


def values_of(text: str) -> Any:
    """The YAML as values; keys are text, as JSON has them."""
    return _with_text_keys(yaml.load(text, _Core))  # noqa: S506 - a safe loader with other resolvers


def objections(text: str) -> list[str]:
    """What an editor underlines: the place of each mistake, and what is said."""
    found = _VALIDATOR.iter_errors(values_of(text))
    return [f"{error.json_path}: {error.message[:300]}" for error in found]


def _with_text_keys(value: Any) -> Any:
    if isinstance(value, dict):
        return {_key(key): _with_text_keys(inner) for key, inner in value.items()}
    return [_with_text_keys(item) for item in value] if isinstance(value, list) else value


def _key(key: Any) -> str:
    return str(key).lower() if isinstance(key, bool) else "null" if key is None else str(key)
