"""The dashboard is whole: Grafana can import it, nothing lies on anything, and Prometheus understands what it asks."""

import json
import re
from collections.abc import Mapping
from itertools import combinations
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.deploy.promql import dashboard, dashboard_expressions, needs_promtool, panels, promtool

SOURCE = {"type": "prometheus", "uid": "${datasource}"}
WIDTH = 24  # columns of Grafana's grid
TITLES = [panel["title"] for panel in panels()]


def test_it_can_be_imported() -> None:
    told = dashboard()
    assert told["uid"] and told["title"]
    assert told["schemaVersion"] >= 39  # what Grafana 10.4 writes; newer ones migrate by themselves
    assert "__inputs" not in told, "a provisioned dashboard is never asked for inputs"
    assert told.get("id") is None, "ids are the importing Grafana's to give"


def test_its_rows_are_those_that_an_operator_looks_for() -> None:
    rows = [panel["title"] for panel in dashboard()["panels"] if panel["type"] == "row"]
    assert rows == ["Traffic", "Ownership", "Backends", "Errors", "Streams", "Proxy"]


def test_its_variables_are_data_source_proxy_and_pool() -> None:
    variables = {one["name"]: one for one in dashboard()["templating"]["list"]}
    assert list(variables) == ["datasource", "instance", "pool"]
    assert (variables["datasource"]["type"], variables["datasource"]["query"]) == ("datasource", "prometheus")
    for name in ("instance", "pool"):
        assert variables[name]["datasource"] == SOURCE
        assert variables[name]["multi"] and variables[name]["includeAll"]
        assert variables[name]["allValue"] == ".*"  # all, requests that have no pool included
        assert variables[name]["definition"].endswith(f", {name})")
        assert variables[name]["query"]["query"] == variables[name]["definition"]


def test_ids_and_titles_are_unique() -> None:
    everything = dashboard()["panels"]
    ids = [panel["id"] for panel in everything]
    assert len(ids) == len(set(ids))
    assert len(TITLES) == len(set(TITLES))


def test_no_panel_lies_on_another_or_beside_the_grid() -> None:
    places = [panel["gridPos"] for panel in dashboard()["panels"]]
    for place in places:
        assert place["x"] >= 0 and place["w"] > 0 and place["h"] > 0 and place["x"] + place["w"] <= WIDTH
    for one, other in combinations(places, 2):
        beside = one["x"] + one["w"] <= other["x"] or other["x"] + other["w"] <= one["x"]
        below = one["y"] + one["h"] <= other["y"] or other["y"] + other["h"] <= one["y"]
        assert beside or below, (one, other)


@pytest.mark.parametrize("panel", panels(), ids=TITLES)
def test_a_panel_tells_what_it_shows(panel: Mapping[str, Any]) -> None:
    assert panel["title"] and panel["description"].endswith(".")
    assert panel["datasource"] == SOURCE
    assert "unit" in panel["fieldConfig"]["defaults"] or panel["type"] == "heatmap"
    references = [target["refId"] for target in panel["targets"]]
    assert references and len(references) == len(set(references))
    for target in panel["targets"]:
        assert target["datasource"] == SOURCE
        assert target["expr"] and target["legendFormat"]
        assert 'instance=~"$instance"' in target["expr"] or "ALERTS" in target["expr"]
        # What a line is called by is left of what is asked for.
        by = re.findall(r"by \(([^)]*)\)", target["expr"])
        for label in re.findall(r"\{\{(\w+)\}\}", target["legendFormat"]):
            assert any(label in re.findall(r"\w+", labels) for labels in by)


@pytest.mark.parametrize("panel", panels(), ids=TITLES)
def test_counters_are_asked_for_their_growth(panel: Mapping[str, Any]) -> None:
    """But where the panel says that it shows them since the start."""
    if "since the proxies started" in panel["title"] + panel["description"]:
        return
    for target in panel["targets"]:
        for found in re.finditer(
            r"(\w*)\(?\b(?:mcp_proxy|process)_\w+(?:_total|_bucket)\{[^}]*\}(\S*)", target["expr"]
        ):
            assert found[1] in ("rate", "increase") and found[2].startswith("[$__rate_interval]"), found[0]


@needs_promtool
def test_prometheus_understands_what_it_asks(tmp_path: Path) -> None:
    records = [{"record": f"panel:{i}", "expr": text} for i, text in enumerate(dashboard_expressions())]
    assert len(records) > len(TITLES)
    file = tmp_path / "expressions.yml"
    file.write_text(yaml.safe_dump({"groups": [{"name": "dashboard", "rules": records}]}))
    told = promtool("check", "rules", file)
    assert told.returncode == 0, told.stdout + told.stderr
    assert f"{len(records)} rules found" in told.stdout
    file.write_text(file.read_text().replace("sum", "summ"))
    assert promtool("check", "rules", file).returncode != 0


def test_it_is_written_as_json_writes_it() -> None:
    """One form, so that a change is seen as what it is."""
    text = json.dumps(dashboard(), indent=1) + "\n"
    assert text == (Path(__file__).parents[2] / "deploy/grafana/dashboard.json").read_text()
