"""The configuration as JSON Schema (draft 2020-12), made from the keys that the readers read.

It is what editors complete and check with, and never stricter than the proxy: what depends on files, on the environment
or on other sections is for `check` to say.
"""

import json
import re
from typing import Any

from proxy.config.forms import with_variable
from proxy.config.loading import ROOT
from proxy.config.sections import AnyKey, Form, Keys, Schema

_DIALECT = "https://json-schema.org/draft/2020-12/schema"
_VARIABLE = {
    "type": "string",
    "pattern": r"\$\{[A-Za-z_][A-Za-z0-9_]*\}|\$\$\{",
    "$comment": "Text in which ${NAME} is replaced from the environment; $${ stands for ${ itself.",
}
_CONTAINERS = ("array", "object")
_CODE = re.compile(r"`([^`]*)`")


def schema_text() -> str:
    """The schema, as it is printed and kept in a file."""
    return json.dumps(schema(), indent=2) + "\n"


def schema() -> Schema:
    """The schema of a whole file."""
    top = {"$schema": _DIALECT, "title": "mcp-routing-proxy", "description": "The configuration of mcp-routing-proxy."}
    return {**top, **_section(ROOT), "$defs": {"variable": _VARIABLE}}


def default_of(key: AnyKey) -> str:
    """The default as it is written in YAML, or "" where no value says how it is without the key."""
    valueless = key.without or key.default is None or key.required or key.form.keys is not None
    return "" if valueless else key.form.show(key.default)


def _section(keys: Keys) -> dict[str, Any]:
    required = [key.name for key in keys.keys if key.required]
    return {
        "type": "object",
        "properties": {key.name: _property(key) for key in keys.keys},
        "additionalProperties": False,
        **({"required": required} if required else {}),
        **keys.rules,
    }


def _property(key: AnyKey) -> dict[str, Any]:
    said = {"description": _CODE.sub(r"\1", _description(key))}
    default = {"default": _as_json(key.default, default_of(key))} if default_of(key) else {}
    return {**said, **default, **_value(key.form)}


def _description(key: AnyKey) -> str:
    meaning = key.meaning if key.form.keys is None else key.form.keys.about
    return f"{meaning} Default: {key.without}." if key.without else meaning


def _as_json(value: object, shown: str) -> object:
    if isinstance(value, tuple) and not value:
        return []
    return value if isinstance(value, bool | int) and not shown.endswith("%") else shown


def _value(form: Form[Any]) -> Schema:
    keys, short = form.keys, form.schema
    if keys is None:
        return short if short.get("type") in _CONTAINERS else with_variable(short)
    if form.place == ".*":
        return {"type": "object", **short, "additionalProperties": _section(keys)}
    value = {"anyOf": [*with_variable(short)["anyOf"], _section(keys)]} if short else _section(keys)
    return {"type": "array", "minItems": 1, "items": value} if form.place == "[]" else value
