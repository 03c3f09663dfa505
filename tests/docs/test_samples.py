"""Every configuration in the documents and beside them is right, to the proxy and to editors."""

from pathlib import Path

import pytest

from proxy.config import parse
from tests.config.editor import objections, values_of
from tests.docs.documents import DOCUMENTS, ROOT, Block, blocks

ENVIRON = {"ADMIN_TOKEN": "sesame", "MCP_ROUTING_PROXY_TOKEN": "sesame", "REDIS_URL": "redis://localhost"}


def is_whole(text: str) -> bool:
    """True for a whole configuration; documents also show other YAML."""
    values = values_of(text)
    return isinstance(values, dict) and {"pools", "routes"} <= values.keys()


BLOCKS = [
    block
    for document in DOCUMENTS
    for block in blocks(document)
    if block.kind.split(" ")[0] == "yaml" and block.text.count("\n---") == 0 and is_whole(block.text)
]
FILES = [*ROOT.glob("config/*.yaml"), *ROOT.glob("deploy/**/proxy.yaml")]


@pytest.mark.parametrize("block", BLOCKS, ids=lambda block: block.document)
def test_a_configuration_in_a_document(block: Block) -> None:
    parse(block.text, block.document, ENVIRON)
    assert objections(block.text) == []


@pytest.mark.parametrize("file", FILES, ids=lambda file: str(file.relative_to(ROOT)))
def test_a_configuration_in_a_file(file: Path) -> None:
    text = file.read_text(encoding="utf-8")

    parse(text, str(file), ENVIRON)
    assert objections(text) == []


def test_the_example_names_its_schema() -> None:
    example = ROOT / "config" / "proxy.yaml"
    first, _ = example.read_text(encoding="utf-8").split("\n", 1)

    assert first.startswith("# yaml-language-server: $schema=")
    assert (example.parent / first.partition("=")[2]).exists()


def test_they_are_found() -> None:
    assert {block.document for block in BLOCKS} >= {"README.md", "docs/migration.md"}
    assert len(FILES) >= 3
