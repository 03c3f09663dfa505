"""What Prometheus is asked, in rules, dashboard and runbook: the expressions, and the metrics and labels in them."""

import json
import re
import shutil
import subprocess
from collections.abc import Iterator, Mapping
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import yaml

PROJECT = Path(__file__).parents[2]
PROMETHEUS = PROJECT / "deploy/prometheus"
RULES = PROMETHEUS / "rules.yml"
DASHBOARD = PROJECT / "deploy/grafana/dashboard.json"
RUNBOOK = PROJECT / "docs/runbook.md"

TARGET = frozenset({"job", "instance"})
"""Labels that Prometheus gives to everything it scrapes."""
ITS_OWN = {"up": frozenset[str](), "ALERTS": frozenset({"alertname", "alertstate", "severity"})}
"""What Prometheus makes itself, and the labels of that."""

_METRIC = re.compile(r"(?<![\w:$\"'.])(?:(?:mcp_proxy|process|python)[_:][\w:]*\w|up|ALERTS)(?![\w:(])(\{[^}]*\})?")
_MATCHER = re.compile(r"(\w+)\s*(?:=~|!~|!=|=)")
_GROUPING = re.compile(r"\b(by|without|on|ignoring)\s*\(([\w\s,]*)\)\s*(\()?")

needs_promtool = pytest.mark.skipif(shutil.which("promtool") is None, reason="needs promtool (Debian: prometheus)")


def promtool(*arguments: object) -> subprocess.CompletedProcess[str]:
    """promtool to its end; what it says is in `stdout` and `stderr`."""
    command = ["promtool", *map(str, arguments)]
    return subprocess.run(command, cwd=PROMETHEUS, capture_output=True, text=True, timeout=60, check=False)


class Asked(NamedTuple):
    """A metric in an expression, and the labels that its series are asked for."""

    metric: str
    labels: frozenset[str]


def asked(expression: str) -> Iterator[Asked]:
    """Every metric of an expression, with the labels in its braces and in what groups or joins it."""
    for found in _METRIC.finditer(expression):
        yield Asked(found[0].split("{")[0], frozenset(_MATCHER.findall(found[1] or "")))
    for grouping in _GROUPING.finditer(expression):
        labels = frozenset(re.findall(r"\w+", grouping[2]))
        if grouping[1] in ("by", "without") and grouping[3]:  # of all that is in the parentheses behind it
            within = _within(expression, grouping.end())
            yield from (Asked(found[0].split("{")[0], labels) for found in _METRIC.finditer(within))


def joins(expression: str) -> frozenset[str]:
    """The labels by which an expression's parts are joined."""
    words = [found[2] for found in _GROUPING.finditer(expression) if found[1] in ("on", "ignoring")]
    return frozenset(re.findall(r"\w+", " ".join(words)))


def _within(text: str, start: int) -> str:
    depth = 1
    for end in range(start, len(text)):
        depth += {"(": 1, ")": -1}.get(text[end], 0)
        if not depth:
            return text[start:end]
    raise ValueError(f"a parenthesis of {text!r} is not closed")


@cache
def rules() -> tuple[Mapping[str, Any], ...]:
    """All rules, in order."""
    groups = yaml.safe_load(RULES.read_text())["groups"]
    return tuple(rule for group in groups for rule in group["rules"])


@cache
def alerts() -> Mapping[str, Mapping[str, Any]]:
    """The alerts, by name."""
    return {rule["alert"]: rule for rule in rules() if "alert" in rule}


@cache
def dashboard() -> Mapping[str, Any]:
    """The dashboard."""
    told: Mapping[str, Any] = json.loads(DASHBOARD.read_text())
    return told


def panels() -> list[Mapping[str, Any]]:
    """The dashboard's panels that show something."""
    return [panel for panel in dashboard()["panels"] if panel["type"] != "row"]


def dashboard_expressions() -> list[str]:
    """All that the dashboard asks for, its variables in place as Grafana would put them."""
    told = [target["expr"] for panel in panels() for target in panel["targets"]]
    told += [one["expr"] for one in dashboard()["annotations"]["list"] if "expr" in one]
    for variable in dashboard()["templating"]["list"]:
        if variable["type"] == "query":
            told += re.findall(r"^label_values\((.+), \w+\)$", variable["definition"])
    return [re.sub(r"\$(instance|pool)\b", ".*", text).replace("$__rate_interval", "1m") for text in told]
