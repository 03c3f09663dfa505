"""Restarts and kills of workers under load: no new connection fails, and no poll but those of a killed worker."""

import pytest

from tests.process.under_load import measure


@pytest.mark.parametrize(("workers", "restarts", "kills"), [(2, 3, 3), (1, 2, 0)])
async def test_clients_do_not_notice(workers: int, restarts: int, kills: int) -> None:
    """Each kind of client has asked often enough for a fault of a moment to show. The full run: under_load.py."""
    seen = await measure(restarts=restarts, kills=kills, workers=workers)
    assert seen.faults == []
    assert seen.came > 200 * (restarts + kills)
    assert seen.polled > 200 * (restarts + kills)
    assert seen.reopened >= restarts
