"""What counts as growth of a proxy, and what as noise."""

import os
import random
from pathlib import Path

import pytest

from tests.soak.growth import MIB, Sample, descriptors, per_minute, resident

SECONDS = 600.0


def samples(a_minute: float, *, warm_up: float = 0.0, noise: float = 0.0) -> list[Sample]:
    """One every two seconds, of a proxy of 50 MiB that grows by so many MiB."""
    rng = random.Random(1)
    times = [float(at) for at in range(0, int(SECONDS), 2)]
    sizes = [50 + a_minute * at / 60 + min(at, 150) / 150 * warm_up + rng.uniform(-noise, noise) for at in times]
    return [Sample(at, int(size * MIB)) for at, size in zip(times, sizes, strict=True)]


@pytest.mark.parametrize("a_minute", [0.0, 0.2, 1.0, 5.0, -0.5])
@pytest.mark.parametrize(("warm_up", "noise"), [(0.0, 0.0), (40.0, 0.0), (40.0, 2.0)])
def test_growth_is_told_from_warm_up_and_noise(a_minute: float, warm_up: float, noise: float) -> None:
    found = per_minute(samples(a_minute, warm_up=warm_up, noise=noise), SECONDS)
    assert found == pytest.approx(a_minute, abs=0.001 + 0.06 * noise)


def test_a_short_run_does_not_tell() -> None:
    assert per_minute(samples(5.0)[:10], 20.0) is None


def test_a_process_is_looked_at_from_outside(tmp_path: Path) -> None:
    me = os.getpid()
    before = descriptors([me])
    with (tmp_path / "file").open("w"):
        assert descriptors([me]) == before + 1
    assert resident([me, me]) == pytest.approx(2 * resident([me]), rel=0.1)
