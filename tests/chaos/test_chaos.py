"""Tasks survive what happens to proxies: a small chaos run with each store. `make chaos` makes a large one of each."""

import pytest

from tests.chaos.run import Options, run


@pytest.mark.parametrize("store", ["memory", "redis"])
async def test_no_task_is_lost_and_no_poll_is_answered_wrongly(store: str) -> None:
    report = await run(Options(store=store, seed=4, tasks=200, seconds=8.0))
    assert report.failures() == [], report.text()
    assert report.completed == 200


async def test_a_run_in_which_polls_reach_the_wrong_backend_fails() -> None:
    """The checker is checked: without search, a replica sends what another one learned wherever the ring points."""
    report = await run(Options(tasks=60, seconds=3.0, workers=1, search=False, chaos=False))
    assert report.counts["wrong"] > 0
    assert report.failures() == [f"{report.counts['wrong']} polls or calls answered wrong"]
    assert "status 40" in report.mistakes[0] and "code -32602" in report.mistakes[0]
