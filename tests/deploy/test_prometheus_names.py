"""Every metric that rules, dashboard and runbook name is told by a proxy that runs, with the labels they ask for."""

import json
import re
from collections.abc import Mapping

import pytest
from prometheus_client import Metric

from proxy.metrics import _Families
from proxy.snapshot import Snapshot
from tests.counting import families_of
from tests.deploy.promql import (
    DASHBOARD,
    ITS_OWN,
    PROMETHEUS,
    RULES,
    RUNBOOK,
    TARGET,
    asked,
    dashboard_expressions,
    joins,
    rules,
)
from tests.process.harness import config_text, proxy_process
from tests.wire.harness import BackendSide, backend, call, client, post, task
from tests.wire.task_backend import UNKNOWN, created

RECORDED = {rule["record"]: rule["expr"] for rule in rules() if "record" in rule}
ASKED = {
    "rules": [str(rule["expr"]) for rule in rules()],
    "dashboard": dashboard_expressions(),
}

PROCESS = (
    "process_cpu_seconds",
    "process_resident_memory_bytes",
    "process_open_fds",
    "process_max_fds",
    "process_start_time_seconds",
)


def label_names() -> Mapping[str, frozenset[str]]:
    """By family, the labels that the code gives its series; the names of families have no `_total`."""
    families = list(_Families(Snapshot(), None, "1").collect())
    # The library tells a family's labels with its samples alone, and a family without events has none.
    return {family.name: frozenset(vars(family)["_labelnames"]) for family in families}


LABELS = label_names()


async def scrape() -> tuple[str, dict[str, Metric]]:
    """What a proxy's /metrics says after some traffic: its text, and the families in it."""
    async with backend(script) as a, backend(script) as b, proxy_process(config_text(a.port, b.port)) as proxy:
        async with client(proxy.port) as caller:
            for request in (call(b"make"), task(b"get", b"made"), task(b"get", b"other"), post(target=b"/nowhere")):
                await caller.ask(request)
        status, text = await proxy.admin("/metrics")
        assert status == 200
        return text, families_of(text.encode())


async def script(side: BackendSide) -> None:
    while True:
        request = await side.request()
        side.answer(created("made") if request.get("Mcp-Method") == "tools/call" else UNKNOWN)


def family_of(metric: str, families: Mapping[str, object]) -> str:
    """The family of a series' name; raises KeyError where there is none."""
    for name in (metric, re.sub(r"_(total|bucket|count|sum)$", "", metric)):
        if name in families:
            return name
    raise KeyError(metric)


def labels_of(metric: str) -> frozenset[str]:
    """The labels that series of this name have in Prometheus. Raises KeyError for a name that nobody gives."""
    if metric in ITS_OWN:
        return ITS_OWN[metric] | TARGET
    if metric in RECORDED:
        (source,) = {one.metric for one in asked(RECORDED[metric]) if one.metric.startswith("mcp_proxy_")}
        return labels_of(source)
    family = family_of(metric, {**LABELS, **dict.fromkeys(PROCESS)})
    return LABELS.get(family, frozenset()) | TARGET | ({"le"} if metric.endswith("_bucket") else set())


async def test_every_metric_that_is_asked_for_is_in_a_scrape() -> None:
    text, families = await scrape()
    named = {one.metric for expressions in ASKED.values() for text in expressions for one in asked(text)}
    named = {name for name in named if name not in ITS_OWN and name not in RECORDED}
    assert len(named) > 30
    for metric in sorted(named):
        family = family_of(metric, families)
        # A counter's name ends with _total in its samples, and a histogram's series have their three ends.
        ends = {"counter": ("_total",), "histogram": ("_bucket", "_count", "_sum")}.get(families[family].type, ("",))
        assert metric.removeprefix(family) in ends, metric
        assert f"# TYPE {family}{'_total' if ends == ('_total',) else ''} {families[family].type}\n" in text
    used = {family_of(metric, families) for metric in named}
    assert {"mcp_proxy_decisions", "mcp_proxy_searches", "mcp_proxy_rejected"} <= used


async def test_series_in_a_scrape_have_the_labels_that_the_code_names() -> None:
    _, families = await scrape()
    seen = set()
    for name, family in families.items():
        for sample in family.samples:
            assert set(sample.labels) - {"le"} == LABELS.get(name, set(sample.labels) - {"le"}), sample
            seen.add(name)
    assert {"mcp_proxy_decisions", "mcp_proxy_searches", "mcp_proxy_time_to_first_byte_seconds"} <= seen


@pytest.mark.parametrize("where", ASKED)
def test_labels_that_are_asked_for_exist(where: str) -> None:
    for expression in ASKED[where]:
        found = list(asked(expression))
        assert found, expression
        for metric, labels in found:
            assert labels <= labels_of(metric), f"{metric} has no {sorted(labels - labels_of(metric))}: {expression}"
        everything = frozenset().union(*(labels_of(metric) for metric, _ in found))
        assert joins(expression) <= everything, expression


def test_no_name_escapes_the_reading_of_expressions() -> None:
    """What looks like a metric of the proxy's, anywhere in these files, was found in an expression, or is one."""
    known = {one.metric for expressions in ASKED.values() for text in expressions for one in asked(text)} | set(
        RECORDED
    )
    for file in (RULES, DASHBOARD, RUNBOOK, *PROMETHEUS.glob("rules_test_*.yml")):
        for name in re.findall(r"\bmcp_proxy[_:][\w:]*\w", file.read_text()):
            assert name in known or family_of(name, LABELS), f"{file.name}: {name}"


@pytest.mark.parametrize(
    ("expression", "expected"),
    [
        ("up == 0", ["up"]),
        (
            'sum by (a) (rate(mcp_proxy_x_total{b="c", d!~"e"}[5m]))',
            ["mcp_proxy_x_total b d", "mcp_proxy_x_total a"],
        ),
        (
            "sum without (a, b) (mcp_proxy:x:increase5m) > mcp_proxy_y",
            ["mcp_proxy:x:increase5m", "mcp_proxy:x:increase5m a b", "mcp_proxy_y"],
        ),
        ("process_open_fds / on (job) mcp_proxy_y", ["process_open_fds", "mcp_proxy_y"]),
        ('count(ALERTS{alertname="up"})', ["ALERTS alertname"]),
    ],
)
def test_expressions_are_read(expression: str, expected: list[str]) -> None:
    assert sorted(" ".join([one.metric, *sorted(one.labels)]) for one in asked(expression)) == sorted(expected)


def test_variables_in_titles_are_none_of_ours() -> None:
    """Grafana fills in the variables that there are; a misspelt one would stay as it is."""
    used = set(re.findall(r"\$(\w+)", json.dumps(json.loads(DASHBOARD.read_text())["panels"]).replace("${", "$")))
    assert used == {"datasource", "instance", "pool", "__rate_interval"}
