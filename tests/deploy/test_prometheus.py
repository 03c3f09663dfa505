"""The rules are what promtool accepts, each alert has a test that it fires, and a section of the runbook."""

import re
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

from tests.deploy.promql import PROMETHEUS, RULES, RUNBOOK, alerts, needs_promtool, panels, promtool, rules

RULE_TESTS = sorted(PROMETHEUS.glob("rules_test_*.yml"))


@needs_promtool
def test_promtool_accepts_rules_and_configuration() -> None:
    for arguments in (("check", "rules", RULES), ("check", "config", PROMETHEUS / "prometheus.yml")):
        told = promtool(*arguments)
        assert told.returncode == 0, told.stdout + told.stderr
    assert f"{len(rules())} rules found" in told.stdout


@needs_promtool
@pytest.mark.parametrize("file", RULE_TESTS, ids=lambda file: file.stem)
def test_alerts_fire_when_they_should_and_only_then(file: Path) -> None:
    told = promtool("test", "rules", file)
    assert told.returncode == 0, told.stdout + told.stderr


@needs_promtool
def test_a_rule_test_can_fail(tmp_path: Path) -> None:
    """What is expected of all alerts at a moment is expected exactly."""
    (tmp_path / "rules.yml").write_text(RULES.read_text())
    text = RULE_TESTS[0].read_text()
    wrong = re.sub(r"^ +- \{labels: 'ALERTS.*\n", "", text, count=1, flags=re.MULTILINE)
    assert wrong != text
    (tmp_path / "test.yml").write_text(wrong)
    assert promtool("test", "rules", tmp_path / "test.yml").returncode != 0


def firing() -> Iterator[tuple[str, dict[str, str]]]:
    """Every alert that the rule tests expect to fire, with its labels."""
    for file in RULE_TESTS:
        for case in yaml.safe_load(file.read_text())["tests"]:
            for checked in case["promql_expr_test"]:
                for sample in checked.get("exp_samples", ()):
                    if sample["labels"].startswith("ALERTS"):
                        labels = dict(re.findall(r'(\w+)="([^"]*)"', sample["labels"]))
                        yield labels["alertname"], labels


def test_every_alert_is_seen_firing() -> None:
    assert {name for name, _ in firing()} == set(alerts())


@pytest.mark.parametrize("name", alerts())
def test_an_alert_tells_all_that_whoever_gets_it_needs(name: str) -> None:
    alert = alerts()[name]
    assert alert["labels"] == {"severity": alert["labels"]["severity"]}
    assert alert["labels"]["severity"] in ("page", "ticket")
    annotations = alert["annotations"]
    assert sorted(annotations) == ["description", "runbook_url", "summary"]
    assert annotations["runbook_url"] == f"docs/runbook.md#{name.lower()}"
    named = set(re.findall(r"\$labels\.(\w+)", " ".join(annotations.values())))
    for fired, labels in firing():
        if fired == name:
            assert named <= set(labels), "a label in its text that it does not have"
            assert labels["severity"] == alert["labels"]["severity"]


def sections() -> dict[str, str]:
    """The runbook's sections about alerts: their titles and texts."""
    parts = re.split(r"^### (\w+)$", RUNBOOK.read_text(), flags=re.MULTILINE)[1:]
    return dict(zip(parts[::2], parts[1::2], strict=True))


def test_the_runbook_has_a_section_for_each_alert_and_no_other() -> None:
    assert list(sections()) == list(alerts())


@pytest.mark.parametrize("name", alerts())
def test_a_section_tells_how_urgent_it_is_and_when_it_is_harmless(name: str) -> None:
    text = sections()[name]
    assert text.strip().startswith(f"`{alerts()[name]['labels']['severity']}`. ")
    assert re.search(r"\bharmless\b", text, re.IGNORECASE)
    for other in re.findall(r"\bMcpProxy\w+", text):
        assert other in alerts()


def test_panels_that_the_runbook_names_exist() -> None:
    titles: list[str] = [panel["title"] for panel in panels()]
    named = [" ".join(text.split()) for text in re.findall(r"(?<!\*)\*([A-Z][^*]+)\*(?!\*)", RUNBOOK.read_text())]
    assert len(named) > 20
    assert [text for text in named if not any(title.startswith(text) for title in titles)] == []
