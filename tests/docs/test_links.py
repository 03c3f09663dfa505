"""Every link that stays within the project leads somewhere."""

from pathlib import Path

import pytest

from tests.docs.documents import DOCUMENTS, ROOT, anchors, links

LINKS = [(document, target) for document in DOCUMENTS for target in links(document)]


@pytest.mark.parametrize(
    ("document", "target"), LINKS, ids=[f"{document.relative_to(ROOT)}-{target}" for document, target in LINKS]
)
def test_a_link_leads_somewhere(document: Path, target: str) -> None:
    path, _, anchor = target.partition("#")
    place = (document.parent / path).resolve() if path else document

    assert place.is_relative_to(ROOT), "leads out of the project"
    assert place.exists()
    if anchor:
        assert anchor in anchors(place)


def test_links_are_found() -> None:
    assert len(LINKS) > 50
    assert len({document for document, _ in LINKS}) > 5
