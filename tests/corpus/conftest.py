"""The corpus runs on uvloop, as the proxy does."""

from tests.wire.conftest import pytest_asyncio_loop_factories

__all__ = ["pytest_asyncio_loop_factories"]
