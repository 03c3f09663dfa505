"""What a pin costs, in rows and columns, and a short run of both stores."""

import pytest

from bench.pins import Row, key, main, percentile, table
from tests.redis_server import required_program


@pytest.mark.parametrize(
    ("values", "share", "expected"),
    [([3, 1, 2], 0.5, 2), ([7], 0.99, 7), (range(100), 0.99, 99), (range(100), 0.5, 50), (range(1000), 0.99, 990)],
)
def test_a_percentile_is_one_of_the_values(values: list[float], share: float, expected: float) -> None:
    assert percentile(values, share) == expected


def test_rows_stand_in_columns() -> None:
    rows = [Row("memory", "put", 1, [1.0, 2.0], 290_000.4, 429.6), Row("redis", "get", 64, [2338.55], 21_000)]
    assert table(rows).split("\n") == [
        "store   operation  at once  p50 us  p99 us  per second  bytes per pin",
        "memory  put              1     2.0     2.0     290,000            430",
        "redis   get             64  2338.6  2338.6      21,000",
    ]


def test_keys_are_as_long_as_those_of_pins() -> None:
    assert len({key(number) for number in range(100)}) == 100
    assert {len(key(number)) for number in range(100)} == {16}


def test_a_short_run_measures_both_stores(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    required_program()
    monkeypatch.setattr("bench.pins.SAMPLES", 50)
    assert main(["--pins", "200"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert [line.split()[0] for line in lines] == ["store", "memory", "memory", *["redis"] * 5]
