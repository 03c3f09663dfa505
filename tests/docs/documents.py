"""The documents of the project, and what is in them."""

import re
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).parents[2]
DOCUMENTS = sorted([*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md"), *ROOT.glob("deploy/**/*.md")])
_FENCE = re.compile(r"^(?P<indent> *)```(?P<kind>.*?)\n(?P<text>.*?)^(?P=indent)```$", re.MULTILINE | re.DOTALL)
_CODE = re.compile(r"(`+)[^`].*?\1", re.DOTALL)
_LINK = re.compile(r"\]\(([^)\s]+)\)")
_HEADING = re.compile(r"^#{1,6} (.+)$", re.MULTILINE)


class Block(NamedTuple):
    """A fenced piece of a document; `kind` is what stands behind the fence."""

    document: str
    kind: str
    text: str


def blocks(document: Path) -> list[Block]:
    """Those of a document, in its order."""
    name = str(document.relative_to(ROOT))
    found = _FENCE.finditer(document.read_text(encoding="utf-8"))
    return [Block(name, match["kind"].strip(), match["text"]) for match in found]


def links(document: Path) -> list[str]:
    """Where links and pictures lead that stay within the project."""
    prose = _CODE.sub("", _FENCE.sub("", document.read_text(encoding="utf-8")))
    return [target for target in _LINK.findall(prose) if "://" not in target and not target.startswith("mailto:")]


def anchors(document: Path) -> set[str]:
    """What GitHub makes of the headings: letters, digits, `_` and `-` in lower case; `-1` and on where it recurs."""
    found: set[str] = set()
    for heading in _HEADING.findall(_FENCE.sub("", document.read_text(encoding="utf-8"))):
        plain = "".join(char for char in heading.lower() if char.isalnum() or char in "_- ").replace(" ", "-")
        count = next(count for count in range(1000) if (plain if not count else f"{plain}-{count}") not in found)
        found.add(plain if not count else f"{plain}-{count}")
    return found
