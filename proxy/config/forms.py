"""The forms that values take in many places: durations, integers, words, lists, and so on.

What JSON Schema says of a form is said in its own regular expressions, which editors read as JavaScript's: `$` is the
very end there, and nothing is anchored by itself. YAML is read there by version 1.2, so that `off` is text.
"""

from collections.abc import Callable, Sequence
from decimal import Decimal
from typing import Any, TypeVar

from proxy.config.fields import BOOLEANS, DURATION, INTEGER, Field
from proxy.config.sections import Form, Keys, Schema

T = TypeVar("T")
Word = TypeVar("Word", bound=str)

_UNITS = (("h", 3600.0), ("m", 60.0), ("s", 1.0), ("ms", 0.001))  # seconds
_ZERO = r"0+(?:\.0+)?(?:ms|s|m|h)$"
_SCALAR = ["string", "number", "boolean"]  # `1.10` and `on` are text to the proxy where text is meant


def integer(low: int, high: int) -> Form[int]:
    """A decimal integer from low to high."""
    number = {"type": "integer", "minimum": low, "maximum": high}
    text = {"type": "string", "pattern": f"^(?:{INTEGER})$"}  # in quotes, or with `_` between digits
    return Form(f"{low:,} to {high:,}", {"anyOf": [number, text]}, lambda field: field.integer(low, high))


def boolean() -> Form[bool]:
    """True or false."""
    spellings = "|".join("".join(f"[{char.upper()}{char}]" for char in word) for word in BOOLEANS)
    either = {"anyOf": [{"type": "boolean"}, {"type": "string", "pattern": f"^(?:{spellings})$"}]}
    return Form("`true`, `false`", either, Field.boolean, lambda value: "true" if value else "false")


def duration(*, zero: bool = False) -> Form[float]:
    """Seconds; more than 0 unless `zero`."""
    pattern = f"^{DURATION}$" if zero else f"^(?!{_ZERO}){DURATION}$"
    allowed = "duration" + (", also `0s`" if zero else "")
    schema = {"type": "string", "pattern": pattern}
    return Form(allowed, schema, lambda field: field.duration(zero=zero), duration_text)


def percent() -> Form[int]:
    """A whole number of percent from 1 to 100."""
    schema = {"type": "string", "pattern": "^(?:[1-9][0-9]?|100)%$"}
    return Form("1% to 100%", schema, lambda field: field.percent(1, 100), lambda value: f"{value}%")


def words(known: Sequence[Word]) -> Form[Word]:
    """One of these."""
    return Form(", ".join(f"`{word}`" for word in known), {"enum": list(known)}, lambda field: field.choice(known))


def text(
    allowed: str,
    read: Callable[[Field], T | None],
    pattern: str = "",
    *,
    bare: bool = True,
    show: Callable[[T], str] = str,
) -> Form[T]:
    """Text that is read in a way of its own. Not `bare`: what YAML takes for a number or a boolean is never right."""
    schema: dict[str, Any] = {"type": _SCALAR if bare else "string", "minLength": 1}
    return Form(allowed, schema | ({"pattern": pattern} if pattern else {}), read, show)


def mapping(keys: Keys, read: Callable[[Field], T | None]) -> Form[T]:
    """A mapping with these keys."""
    return Form("mapping", {}, read, keys=keys)


def or_mapping(short: Form[Any], allowed: str, keys: Keys, read: Callable[[Field], T | None]) -> Form[T]:
    """A mapping with these keys, or a short form of it, which `read` reads as well."""
    return Form(f"{allowed}, or a mapping", short.schema, read, keys=keys)


def items(item: Form[T], what: str, *, least: int = 0, allowed: str = "") -> Form[tuple[T, ...]]:
    """A list; `what` says what its items are."""

    def read(field: Field) -> tuple[T, ...]:
        return tuple(value for each in field.items(what, least=least) if (value := item.read(each)) is not None)

    return Form(
        allowed or f"list of {what}", listed(item, least), read, lambda values: f"[{', '.join(map(str, values))}]"
    )


def listed(item: Form[Any], least: int) -> Schema:
    """What JSON Schema says of a list."""
    return {"type": "array", "items": with_variable(item.schema), **({"minItems": least} if least else {})}


def with_variable(schema: Schema) -> Schema:
    """The schema of a scalar, or the scalar with a variable in it."""
    return {"anyOf": [*schema.get("anyOf", [schema]), {"$ref": "#/$defs/variable"}]}


def duration_text(seconds: float) -> str:
    """The duration in the largest unit that gives an integer, so that reading it gives the same float."""
    for unit, size in _UNITS:
        count = round(seconds / size)
        if count * size == seconds and (count or unit == "s"):
            return f"{count}{unit}"
    return f"{Decimal(repr(seconds)):f}s"
