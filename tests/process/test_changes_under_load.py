"""Reloads and a drain under load: no request fails, and no stream is cut. The full run: changes_under_load.py."""

import itertools
import json
from collections.abc import Callable

import pytest

from tests.process.changes_under_load import BACKENDS, STREAMS, drain_under_streams, reloads_under_load


@pytest.mark.parametrize("workers", [1, 2])
async def test_reloads_fail_no_request_and_cut_no_stream(workers: int) -> None:
    seen = await reloads_under_load(reloads=20, workers=workers)
    assert seen.faults == [], seen.told()
    assert seen.used == list(BACKENDS), "every one was given work by some configuration"
    assert seen.executions.served > 300
    kinds = {"call", "stream", "poll", "session call", "session stream", "listen", "listen to all"}
    assert kinds <= seen.outcomes.keys()


@pytest.mark.parametrize("workers", [1, 2])
async def test_streams_that_end_within_the_drain_are_whole(workers: int) -> None:
    drained = await drain_under_streams(workers=workers)
    assert (drained.streams, drained.cut, drained.exit_code) == (STREAMS, [], 0)
    assert drained.seconds < 6, "it ended with the last of them, not with its drain"


def canary_for_a_while(turns: int) -> Callable[[str], str]:
    """Everything goes to one pool for so many changes; then it is gone, with all that leads there."""
    count = itertools.count()

    def changed(text: str) -> str:
        config = json.loads(text)
        split = {"agents": 0, "canary": 100}
        if next(count) >= turns:
            del config["pools"]["canary"]
            split = {"agents": 100}
        config["routes"] = [config["routes"][0], {"name": "rest", "split": split}]
        return json.dumps(config)

    return changed


async def test_a_change_that_takes_owners_away_shows() -> None:
    """The checker is checked: who takes a pool away takes its tasks with it."""
    seen = await reloads_under_load(reloads=9, workers=1, altered=canary_for_a_while(8))
    assert seen.failed > 0
    assert any("poll" in mistake for mistake in seen.mistakes)


async def test_a_drain_that_is_too_short_shows() -> None:
    drained = await drain_under_streams(workers=1, drain="1s")
    assert 0 < len(drained.cut) <= STREAMS
    assert drained.exit_code == 0
    assert drained.seconds < 4
