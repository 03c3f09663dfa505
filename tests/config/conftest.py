"""Every configuration that a test here reads without a mistake has to be one to editors as well."""

from collections.abc import Iterator
from typing import Any

import pytest

from proxy.config import loading, reading, values
from tests.config.editor import objections


@pytest.fixture(autouse=True, scope="module")
def _editors_agree() -> Iterator[None]:
    """Holds each text that becomes a Config against the JSON Schema, on the spot."""
    read_yaml, made = reading.read_yaml, values.Config
    text = ""

    def read(read_text: str, report: Any) -> Any:
        nonlocal text
        text = read_text
        return read_yaml(read_text, report)

    def make(*parts: Any, **more: Any) -> Any:
        objected = objections(text)
        assert not objected, f"the schema refuses what the proxy takes: {objected}\n{text}"
        return made(*parts, **more)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(loading, "read_yaml", read)
        patch.setattr(loading, "Config", make)
        yield
