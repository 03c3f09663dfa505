"""Rows are medians over the rounds; ratios are taken within each round."""

import json

import pytest

from bench.report import as_json, summarise, table
from bench.slices import Measurement


def measured(cpu_us: float, *, resident_bytes: int = 10_000_000) -> Measurement:
    return Measurement(
        requests=1000,
        seconds=0.5,
        cpu_ns=int(cpu_us * 1000 * 1000),
        p50_ms=1.0,
        p99_ms=2.0,
        resident_bytes=resident_bytes,
    )


# The machine was twice as slow in the second round: it shows in every cost, and in no ratio.
ROUNDS = [
    {"proxy": measured(60), "nginx": measured(40)},
    {"proxy": measured(120), "nginx": measured(80)},
    {"proxy": measured(66, resident_bytes=30_000_000), "nginx": measured(33)},
]


def test_costs_are_median_and_spread() -> None:
    proxy, nginx = summarise(ROUNDS)
    assert (proxy.target, proxy.cpu_us, proxy.cpu_us_min, proxy.cpu_us_max) == ("proxy", 66, 60, 120)
    assert (nginx.target, nginx.cpu_us, nginx.cpu_us_min, nginx.cpu_us_max) == ("nginx", 40, 33, 80)


def test_ratio_is_the_median_of_each_rounds_own() -> None:
    proxy, nginx = summarise(ROUNDS)
    assert proxy.ratio == pytest.approx(1.5)  # of 1.5, 1.5 and 2; the ratio of the medians would be 1.65
    assert nginx.ratio == 1


def test_without_the_baseline_there_is_no_ratio() -> None:
    (row,) = summarise([{"proxy": each["proxy"]} for each in ROUNDS])
    assert row.ratio is None


def test_rate_and_memory() -> None:
    proxy, _ = summarise(ROUNDS)
    assert proxy.requests_per_second == 2000
    assert proxy.resident_mb_max == 30


def test_table_has_a_line_for_each_target_in_columns() -> None:
    lines = table(summarise(ROUNDS)).splitlines()
    assert lines == [
        "target  CPU us/request     [min - max]  x nginx  requests/s  p50 ms  p99 ms  RSS MB",
        "proxy             66.0  [60.0 - 120.0]     1.50       2,000    1.00    2.00    30.0",
        "nginx             40.0   [33.0 - 80.0]     1.00       2,000    1.00    2.00    10.0",
    ]


def test_json_holds_rows_rounds_and_settings() -> None:
    values = json.loads(json.dumps(as_json(summarise(ROUNDS), ROUNDS, {"seed": 1})))
    assert values["settings"] == {"seed": 1}
    assert [row["target"] for row in values["targets"]] == ["proxy", "nginx"]
    assert values["rounds"][0]["proxy"]["cpu_ns"] == 60_000_000
