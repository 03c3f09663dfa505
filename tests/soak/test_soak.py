"""Nothing is lost while backends die: a small soak run. `make soak` makes one of ten minutes, in which leaks show."""

from tests.soak.run import Options, run


async def test_calls_succeed_once_or_fail_by_name_and_nothing_is_left_over() -> None:
    report = await run(Options(seconds=12.0, seed=3, every=2.0))
    assert report.failures() == [], report.text()


async def test_so_it_is_with_several_workers() -> None:
    report = await run(Options(seconds=6.0, seed=4, every=2.0, workers=2))
    assert report.failures() == [], report.text()
