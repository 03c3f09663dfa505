"""What the browser tests share."""

from collections.abc import AsyncIterator

import pytest

from tests.browser.browsing import Looker, looking


@pytest.fixture
async def looker() -> AsyncIterator[Looker]:
    """A browser whose console has to stay empty."""
    async with looking() as looker:
        yield looker
        assert looker.complaints == []
