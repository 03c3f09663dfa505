"""Orders and results survive the pipe between harness and load generator."""

import pytest

from bench.slices import Measurement, Order, SliceError, result_from_line, result_line


def test_an_order_survives_the_pipe() -> None:
    order = Order("tasks-get", "127.0.0.1", 8080, (11, 12), 32, 0.5)
    assert "\n" not in order.to_line()
    assert Order.from_line(order.to_line()) == order


def test_a_measurement_survives_the_pipe() -> None:
    measurement = Measurement(
        requests=500, seconds=1.01, cpu_ns=20_000_000, p50_ms=1.5, p99_ms=4.25, resident_bytes=2**25
    )
    assert result_from_line(result_line(measurement)) == measurement
    assert measurement.cpu_us_per_request == 40


def test_a_failure_is_raised_on_the_other_side() -> None:
    line = result_line(SliceError("answered 'HTTP/1.1 503':\nno backend"))
    assert "\n" not in line
    with pytest.raises(SliceError, match="no backend"):
        result_from_line(line)


def test_the_end_of_the_load_generator_is_a_failure() -> None:
    with pytest.raises(SliceError, match="has ended"):
        result_from_line("")
