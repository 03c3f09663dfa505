"""`health:` and `outlier:` of a pool: what is read, and which mistakes are told."""

import pytest

from proxy.config import parse
from proxy.config.values import PoolConfig
from proxy.routing.health import Health
from proxy.routing.outliers import OutlierRule
from tests.config.samples import mistakes, with_pool

IN_A_ROW = "an integer from 1 to 1000"
PROBED = "pools.agents.health"
RULED = "pools.agents.outlier"
DURATION = "a number with a unit (ms, s, m or h), such as 250ms, 1.5s or 10m, more than 0s to 10 years"


def pool(*lines: str) -> PoolConfig:
    return parse(with_pool(*lines), "proxy.yaml", {}).pools["agents"]


def test_by_default_nobody_is_probed_and_failures_count() -> None:
    assert pool().health is None
    assert pool().outlier == OutlierRule(consecutive=5, ejection=30.0, max_ejected=50)


@pytest.mark.parametrize(
    ("written", "health"),
    [
        ("{path: /health}", Health("/health", 5.0, 2.0, 2, 3)),
        ("{path: '/health?full=1'}", Health("/health?full=1")),
        ("{path: /, discover: false}", Health("/")),
        ("{discover: true}", Health(None)),
        ("{discover: true, interval: 1s, timeout: 1s, rise: 1, fall: 1}", Health(None, 1.0, 1.0, 1, 1)),
        ("{discover: true, interval: 500ms}", Health(None, 0.5, 0.5)),  # the default is never too long
    ],
)
def test_probes(written: str, health: Health) -> None:
    assert pool(f"health: {written}").health == health


@pytest.mark.parametrize(
    ("written", "rule"),
    [
        ("off", None),
        ("false", None),
        ("on", OutlierRule()),
        ("{}", OutlierRule()),
        ("{consecutive: 1, ejection: 1m, max_ejected: 100%}", OutlierRule(1, 60.0, 100)),
        ("{max_ejected: 1%}", OutlierRule(max_ejected=1)),
    ],
)
def test_outliers(written: str, rule: OutlierRule | None) -> None:
    assert pool(f"outlier: {written}").outlier == rule


@pytest.mark.parametrize(
    ("written", "message"),
    [
        (
            "health: /health",
            f"{PROBED}: found '/health'; allowed: a mapping with path, discover, interval, timeout, rise, fall",
        ),
        ("health: {}", f"{PROBED}: nothing to ask for; allowed: path: /PATH, or discover: true"),
        ("health: {discover: false}", f"{PROBED}: nothing to ask for; allowed: path: /PATH, or discover: true"),
        (
            "health: {path: /health, discover: true}",
            f"{PROBED}: found path and discover; allowed: one of them: path: /PATH, or discover: true",
        ),
        *(
            (
                f"health: {{path: '{path}'}}",
                f"{PROBED}.path: found '{path}'; "
                "allowed: a path that begins with /, in printable ASCII without spaces and #",
            )
            for path in ("health", "http://other/health", "/a b", "/a#b", "/ä")
        ),
        (
            "health: {path: /mcp}",
            f"{PROBED}.path: found '/mcp'; MCP is spoken there, and a GET would never be answered with 2xx, or open a "
            "session; allowed: a path of its own, or discover: true in place of it",
        ),
        (
            "health: {discover: true, timeout: 6s}",
            f"{PROBED}.timeout: found '6s'; longer than the interval: probes of a backend must not overlap; "
            "allowed: at most that",
        ),
        ("health: {discover: true, rise: 0}", f"{PROBED}.rise: found '0'; allowed: {IN_A_ROW}"),
        ("health: {discover: true, fall: 1001}", f"{PROBED}.fall: found '1001'; allowed: {IN_A_ROW}"),
        ("health: {discover: true, interval: 5}", f"{PROBED}.interval: found '5'; allowed: {DURATION}"),
        (
            "health: {pth: /health, discover: true}",
            f"{PROBED}.pth: unknown key; allowed: path, discover, interval, timeout, rise, fall; did you mean 'path'?",
        ),
        ("outlier: never", f"{RULED}: found 'never'; allowed: true, false"),
        ("outlier:", f"{RULED}: found nothing; allowed: a mapping with consecutive, ejection, max_ejected"),
        ("outlier: {consecutive: 0}", f"{RULED}.consecutive: found '0'; allowed: {IN_A_ROW}"),
        ("outlier: {ejection: 0s}", f"{RULED}.ejection: found '0s'; allowed: {DURATION}"),
        *(
            (
                f"outlier: {{max_ejected: {share}}}",
                f"{RULED}.max_ejected: found '{share}'; allowed: a percentage from 1% to 100%",
            )
            for share in ("50", "0%", "101%", "050%", "5.5%", "-5%")
        ),
    ],
)
def test_mistakes(written: str, message: str) -> None:
    assert mistakes(with_pool(written)) == [f"proxy.yaml:4: {message}"]
