"""docs/metrics.md names exactly what a scrape tells, with its labels."""

import re
from pathlib import Path

from proxy.metrics import exposition
from proxy.snapshot import Histograms, Snapshot
from tests.counting import families_of

METRICS = Path(__file__).parents[2] / "docs" / "metrics.md"
_ROW = re.compile(r"^\| `((?:mcp_proxy|process|python)_\w+)` \| (.*?) \|", re.MULTILINE)
_MORE_THAN_ANY_HAS = 9  # labels


def everything() -> Snapshot:
    """A series in every family, with a value for each of its labels."""
    snapshot = Snapshot()
    for family in vars(snapshot).values():
        values = ("x",) * _MORE_THAN_ANY_HAS
        if isinstance(family, Histograms):
            family[values].total = 1.0
        else:
            family[values] = 1
    snapshot.in_flight.clear()
    snapshot.in_flight["x", "x"] = 1
    return snapshot


def told() -> dict[str, set[str]]:
    """The labels of every metric, by the name that samples have, but for the parts of histograms."""
    text, _ = exposition(everything(), held={("x", "x"): 1}, version="1.2.3")
    found = {}
    for family in families_of(text).values():
        name = f"{family.name}_total" if family.type == "counter" else family.name
        found[name] = {label for sample in family.samples for label in sample.labels} - {"le"}
    return found


def test_the_tables_name_every_metric_and_no_other() -> None:
    rows = _ROW.findall(METRICS.read_text(encoding="utf-8"))
    written = {name: set(re.findall(r"`(\w+)`", labels)) for name, labels in rows}

    assert len(rows) == len(written)
    assert written == told()


def test_queries_ask_for_metrics_that_there_are() -> None:
    text = METRICS.read_text(encoding="utf-8").split("## Questions and queries")[1]
    names = {re.sub("_bucket$", "", name) for name in re.findall(r"\b(?:mcp_proxy|process)_\w+", text)}

    assert len(names) > 5
    assert names <= set(told())
