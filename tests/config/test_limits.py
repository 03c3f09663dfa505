"""What is taken at once and how long it may take: `limits:` of a pool, and of `listen:`."""

import pytest

from proxy.config import Config, parse
from proxy.config.describe import describe
from proxy.config.values import ClientLimits
from proxy.routing.queueing import Limits
from tests.config.samples import mistakes, with_pool, with_top

DURATION = "a number with a unit (ms, s, m or h), such as 250ms, 1.5s or 10m, more than 0s to 10 years"


def of_pool(line: str) -> Limits:
    return parse(with_pool(line), "proxy.yaml", {}).pools["agents"].limits


def of_clients(line: str) -> ClientLimits:
    return parse(with_top(line), "proxy.yaml", {}).listen.limits


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("sessions: sticky", Limits(1000, None, 100, 1.0)),
        ("limits: {}", Limits(1000, None, 100, 1.0)),
        ("limits: {in_flight: 7, per_backend: 2, queue: 0, queue_wait: 300ms}", Limits(7, 2, 0, 0.3)),
        ("limits: {in_flight: 1_000_000}", Limits(1_000_000, None, 100, 1.0)),
    ],
)
def test_limits_of_a_pool(line: str, expected: Limits) -> None:
    assert of_pool(line) == expected


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("listen: 127.0.0.1:80", ClientLimits(10_000, 10.0, 30.0, 75.0)),
        ("listen: {limits: {}}", ClientLimits(10_000, 10.0, 30.0, 75.0)),
        ("listen: {limits: {connections: 5, head: 1s, body: 2m, idle: 1h}}", ClientLimits(5, 1.0, 120.0, 3600.0)),
    ],
)
def test_limits_of_clients(line: str, expected: ClientLimits) -> None:
    assert of_clients(line) == expected


@pytest.mark.parametrize(
    ("limits", "message"),
    [
        ("5", "limits: found '5'; allowed: a mapping with in_flight, per_backend, queue, queue_wait"),
        (
            "{inflight: 5}",
            "limits.inflight: unknown key; allowed: in_flight, per_backend, queue, queue_wait; "
            "did you mean 'in_flight'?",
        ),
        ("{in_flight: 0}", "limits.in_flight: found '0'; allowed: an integer from 1 to 1000000"),
        ("{per_backend: none}", "limits.per_backend: found 'none'; allowed: an integer from 1 to 1000000"),
        ("{queue: -1}", "limits.queue: found '-1'; allowed: an integer from 0 to 100000"),
        ("{queue_wait: 0s}", f"limits.queue_wait: found '0s'; allowed: {DURATION}"),
    ],
)
def test_mistakes_in_the_limits_of_a_pool(limits: str, message: str) -> None:
    assert mistakes(with_pool(f"limits: {limits}")) == [f"proxy.yaml:4: pools.agents.{message}"]


@pytest.mark.parametrize(
    ("limits", "message"),
    [
        ("[]", "limits: found an empty list; allowed: a mapping with connections, head, body, idle"),
        (
            "{conections: 5}",
            "limits.conections: unknown key; allowed: connections, head, body, idle; did you mean 'connections'?",
        ),
        ("{connections: 0}", "limits.connections: found '0'; allowed: an integer from 1 to 1000000"),
        ("{head: 10}", f"limits.head: found '10'; allowed: {DURATION}"),
        ("{body: 0s}", f"limits.body: found '0s'; allowed: {DURATION}"),
        ("{idle: never}", f"limits.idle: found 'never'; allowed: {DURATION}"),
    ],
)
def test_mistakes_in_the_limits_of_clients(limits: str, message: str) -> None:
    assert mistakes(with_top(f"listen: {{limits: {limits}}}")) == [f"proxy.yaml:3: listen.{message}"]


def both(pool: str, clients: str) -> Config:
    return parse(with_pool(pool) + clients + "\n", "proxy.yaml", {})


@pytest.mark.parametrize(
    ("pool", "clients"),
    [
        (
            "limits: {in_flight: 1000, queue: 100, queue_wait: 1s}",
            "limits: {connections: 10000, head: 10s, body: 30s, idle: 75s}",
        ),
        (
            "limits: {in_flight: 9, per_backend: 3, queue: 0, queue_wait: 250ms}",
            "limits: {connections: 1, head: 1s, body: 1m, idle: 2h}",
        ),
    ],
)
def test_limits_are_described_as_they_are_written(pool: str, clients: str) -> None:
    config = both(pool, f"listen: {{{clients}}}")
    text = describe(config)
    assert f"    {pool}\n" in text
    assert f"  {clients}\n" in text
    assert parse(text, "proxy.yaml", {}) == config
