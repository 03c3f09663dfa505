"""The reference of the configuration, made from the keys that the readers read.

``python -m proxy.config.reference`` writes docs/configuration.md and config/proxy.schema.json of this checkout.
"""

import re
from collections.abc import Iterator
from pathlib import Path

from proxy.config.loading import ROOT
from proxy.config.schema import default_of, schema_text
from proxy.config.sections import AnyKey, Keys

REFERENCE = Path("docs/configuration.md")
SCHEMA = Path("config/proxy.schema.json")

_WHOLE = "The whole file"
_INTRODUCTION = """\
<!-- Written by `python -m proxy.config.reference` from the descriptions in proxy/config. Change those. -->

# Configuration

Every key there is. The same as a file with comments: [config/proxy.yaml](../config/proxy.yaml). What a file means,
every default filled in: `mcp-routing-proxy check FILE`.

* **YAML** in UTF-8, up to 1 MiB. Anchors, aliases and `<<` work. Unknown keys are errors, and so is a key given
  twice. All mistakes are reported at once, with line, key, what is allowed, and the nearest name that is.
* **Durations** are a number with a unit: `ms`, `s`, `m` or `h` (`250ms`, `1.5s`, `10m`, `24h`); more than 0s, and at
  most 10 years.
* **Booleans** are also `yes`, `no`, `on`, `off`. Digits of integers may be parted in groups of three by `_`.
* **Variables.** `${NAME}` in any value is replaced from the environment, after the YAML is parsed. One that is not set
  is an error. `$${` stands for `${` itself. Within `{...}` and `[...]` such values need quotes.
* **Changes.** SIGHUP puts a changed file in force, all of it or nothing. `listen.address`, `admin`, `workers`, `pins`
  and `log` need a restart, which SIGUSR2 makes without downtime: [Operations](operations.md#change-the-configuration).
* **Editors.** [config/proxy.schema.json](../config/proxy.schema.json) is all this as JSON Schema (draft 2020-12), and
  `mcp-routing-proxy schema` prints that of the version at hand. With yaml-language-server (VS Code's YAML extension,
  Neovim, Helix) the first line of a file names it: `# yaml-language-server: $schema=proxy.schema.json`. It knows
  keys, spellings and ranges. What depends on other sections, on files or on the environment, only `check` knows.

A section is named by the path of its keys. `*` stands for a name that you choose, `[]` for an item of a list.
"""


def reference() -> str:
    """The whole document; Markdown."""
    sections = dict(sections_below(ROOT, ""))
    contents = [f"* [`{place}`](#{_anchor(place)})\n" for place in sections]
    parts = [_INTRODUCTION, "".join(contents), *_section(_WHOLE, "", ROOT)]
    for place, keys in sections.items():
        parts.extend(_section(f"`{place}`", place, keys))
    return "\n".join(parts)


def sections_below(keys: Keys, place: str) -> Iterator[tuple[str, Keys]]:
    """The sections in a section, each with its place, before those within them."""
    for key in keys.keys:
        if key.form.keys is not None:
            below = place_of(place, key)
            yield below, key.form.keys
            yield from sections_below(key.form.keys, below)


def place_of(place: str, key: AnyKey) -> str:
    """Where what a key of the section at `place` holds is; `*` for any name, `[]` for any item."""
    return f"{place}.{key.name}{key.form.place}".removeprefix(".")


def _section(heading: str, place: str, keys: Keys) -> Iterator[str]:
    yield f"## {heading}\n\n{keys.about}\n" if keys.about else f"## {heading}\n"
    yield "| key | allowed | default | meaning | example |\n|---|---|---|---|---|"
    yield "\n".join(map(_row, keys.keys, [place] * len(keys.keys))) + "\n"


def _row(key: AnyKey, place: str) -> str:
    allowed = key.form.allowed
    if key.form.keys is not None:
        below = place_of(place, key)
        allowed = f"{allowed}: [`{below}`](#{_anchor(below)})"
    example = f"`{key.example}`" if key.example else ""
    cells = (f"`{key.name}`", allowed, _default(key), key.meaning, example)
    return f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in cells)} |"


def _default(key: AnyKey) -> str:
    shown = default_of(key)
    if key.required:
        return "**required**"
    if shown:
        return f"`{shown}`"
    return key.without or ("see there" if key.form.keys is not None else "")


def _anchor(heading: str) -> str:
    """What GitHub makes of a heading."""
    return re.sub(r"[^a-z0-9_ -]", "", heading.lower()).replace(" ", "-")


def write(root: Path) -> None:
    """Writes both files of a checkout."""
    (root / REFERENCE).write_text(reference(), encoding="utf-8")
    (root / SCHEMA).write_text(schema_text(), encoding="utf-8")


if __name__ == "__main__":
    write(Path())
