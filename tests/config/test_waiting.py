"""How long is waited, and how often a request is sent: a pool's timeouts, retry and comment_every."""

import pytest

from proxy.config import Config, PoolConfig, parse
from proxy.config.describe import describe
from proxy.routing.retries import RetryRule
from tests.config.samples import mistakes, with_pool

UNIT = "a number with a unit (ms, s, m or h), such as 250ms, 1.5s or 10m, more than 0s to 10 years"


def read(*lines: str) -> Config:
    return parse(with_pool(*lines), "proxy.yaml", {})


def pool(*lines: str) -> PoolConfig:
    return read(*lines).pools["agents"]


def times(pool: PoolConfig) -> tuple[float, ...]:
    return pool.connect_timeout, pool.head_timeout, pool.idle_timeout, pool.owner_wait


def test_defaults() -> None:
    agents = pool()
    assert times(agents) == (2.0, 600.0, 3600.0, 10.0)
    assert agents.retry == RetryRule(attempts=2, budget=20)
    assert agents.comment_every is None


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("timeouts: {connect: 1s, head: 2m, idle: 3h, owner_wait: 400ms}", (1.0, 120.0, 10800.0, 0.4)),
        ("timeouts: {head: 90s}", (2.0, 90.0, 3600.0, 10.0)),
        ("timeouts: {idle: 1.5s}", (2.0, 600.0, 1.5, 10.0)),
        ("timeouts: {}", (2.0, 600.0, 3600.0, 10.0)),
    ],
)
def test_timeouts(line: str, expected: tuple[float, ...]) -> None:
    assert times(pool(line)) == expected


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("retry: {attempts: 3, budget: 50%}", RetryRule(3, 50)),
        ("retry: {attempts: 1}", RetryRule(1, 20)),
        ("retry: {budget: 1%}", RetryRule(2, 1)),
        ("retry: {}", RetryRule(2, 20)),
        ("retry: off", RetryRule(1, 20)),
        ("retry: on", RetryRule(2, 20)),
    ],
)
def test_retries(line: str, expected: RetryRule) -> None:
    assert pool(line).retry == expected


def test_comments() -> None:
    assert pool("comment_every: 15s").comment_every == 15.0


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("timeouts: {head: 10}", f"timeouts.head: found '10'; allowed: {UNIT}"),
        ("timeouts: {idle: 0s}", f"timeouts.idle: found '0s'; allowed: {UNIT}"),
        (
            "timeouts: {hed: 1s}",
            "timeouts.hed: unknown key; allowed: connect, head, idle, owner_wait; did you mean 'head'?",
        ),
        ("retry: 3", "retry: found '3'; allowed: true, false"),
        ("retry: [3]", "retry: found a list; allowed: a mapping with attempts, budget"),
        ("retry: {attempts: 0}", "retry.attempts: found '0'; allowed: an integer from 1 to 10"),
        ("retry: {attempts: 11}", "retry.attempts: found '11'; allowed: an integer from 1 to 10"),
        ("retry: {budget: 0%}", "retry.budget: found '0%'; allowed: a percentage from 1% to 100%"),
        ("retry: {budget: 0.2}", "retry.budget: found '0.2'; allowed: a percentage from 1% to 100%"),
        ("retry: {budget: 101%}", "retry.budget: found '101%'; allowed: a percentage from 1% to 100%"),
        ("retry: {atempts: 2}", "retry.atempts: unknown key; allowed: attempts, budget; did you mean 'attempts'?"),
        ("comment_every: 15", f"comment_every: found '15'; allowed: {UNIT}"),
        ("comment_every: off", f"comment_every: found 'off'; allowed: {UNIT}"),
    ],
)
def test_mistakes(line: str, message: str) -> None:
    assert mistakes(with_pool(line)) == [f"proxy.yaml:4: pools.agents.{message}"]


def test_what_check_prints_is_the_same_configuration() -> None:
    config = read("timeouts: {head: 90s, idle: 2h}", "retry: {attempts: 3, budget: 7%}", "comment_every: 1500ms")
    text = describe(config)
    assert "    timeouts: {connect: 2s, head: 90s, idle: 2h, owner_wait: 10s}" in text
    assert "    retry: {attempts: 3, budget: 7%}" in text
    assert "    comment_every: 1500ms" in text
    assert parse(text, "printed.yaml", {}).pools == config.pools
