"""Figures become tables and drawings, between the marks of the document and nowhere else."""

from dataclasses import replace
from pathlib import Path
from xml.etree import ElementTree

import pytest

from bench.document import BEGIN, END, Figures, drawings, markdown, write
from bench.idle_streams import Findings
from bench.plots import Bar, Panel, amount, drawing
from bench.report import Row
from bench.sections import DIRECT, EVERYBODY, SECTIONS, VARIANTS, measurable
from bench.slices import Measurement

COSTS = {"proxy": 60.0, "nginx": 20.0, "haproxy": 21.0, "envoy": 80.0, "aiohttp": 240.0, DIRECT: 15.0}


def row(target: str) -> Row:
    cost = COSTS.get(target, 50.0)
    return Row(target, cost, cost - 5, cost + 5, None, 4000.0, 1.5, 9.25, 42.0)


def slice_of(target: str) -> Measurement:
    return Measurement(1000, 0.5, int(COSTS.get(target, 50.0) * 1e6), 1.5, 9.25, 42_000_000)


def figures(names: tuple[str, ...] = EVERYBODY) -> Figures:
    known = {*names, DIRECT, *(variant.name for variant in VARIANTS if variant.kind in names)}
    sections = measurable(SECTIONS, frozenset(known))
    return Figures(
        sections=sections,
        rows={section.key: [row(target) for target in section.targets] for section in sections},
        rounds={section.key: [{target: slice_of(target) for target in section.targets}] for section in sections},
        idle={name: Findings(9900, 5120.0, 1.0, 0.25, 0.1) for name in names},
        slices=7,
        seconds=0.7,
        versions={"proxy": "Python 3.11.7", "nginx": "1.22.1"},
        missing=[name for name in EVERYBODY if name not in names],
        machine="x86_64, 2 CPUs, Linux",
        load=(1.0, 2.5),
        month="May 2026",
    )


def test_the_overview_has_costs_and_how_they_compare() -> None:
    text = markdown(figures())
    assert "| Small calls, 32 connections | 60.0 | 20.0 | 21.0 | 80.0 | 240 | 3.00 | 0.75 | 4.00 |" in text
    assert "| proxy 2 workers | 50.0 | 45.0 – 55.0 | 4,000 | 1.50 | 9.25 | 42.0 |" in text
    assert "| nginx | 42.0 | 5.0 | 0.25 |" in text
    assert "load average 1.0 before and 2.5 after" in text
    assert "left out" not in text


def test_who_is_not_installed_is_named_and_left_out() -> None:
    text = markdown(figures(("proxy", "nginx", "aiohttp")))
    assert "left out: HAProxy, Envoy." in text
    assert "| Small calls, 32 connections | 60.0 | 20.0 | 240 | 3.00 | 4.00 |" in text
    assert "| HAProxy" not in text


def test_a_target_whose_idle_streams_failed_has_dashes_and_a_note() -> None:
    whole = figures()
    text = markdown(replace(whole, idle={"proxy": whole.idle["proxy"]}))
    assert "| nginx | 42.0 | – | – |" in text
    assert "–: in this run" in text
    assert "–: in this run" not in markdown(whole)


def test_sections_without_targets_are_left_out() -> None:
    known = measurable(SECTIONS, frozenset((DIRECT, "nginx")))
    assert {target for section in known for target in section.targets} == {DIRECT, "nginx"}
    assert measurable(SECTIONS, frozenset((DIRECT,))) == []


def test_only_what_is_between_the_marks_is_replaced(tmp_path: Path) -> None:
    document = tmp_path / "figures.md"
    document.write_text(f"# Before\n{BEGIN}\nold\n{END}\nAfter.\n")
    write(figures(), document)
    text = document.read_text()
    assert text.startswith(f"# Before\n{BEGIN}\n")
    assert text.endswith(f"\n{END}\nAfter.\n")
    assert "old" not in text
    assert {file.name for file in (tmp_path / "figures").iterdir()} == set(drawings(figures()))
    write(figures(), document)
    assert document.read_text() == text


def test_a_document_without_marks_is_refused(tmp_path: Path) -> None:
    document = tmp_path / "figures.md"
    document.write_text("# Nothing here\n")
    with pytest.raises(ValueError, match="lacks the marks"):
        write(figures(), document)


@pytest.mark.parametrize("name", drawings(figures()))
def test_drawings_are_well_formed_and_say_their_values(name: str) -> None:
    root = ElementTree.fromstring(drawings(figures())[name])  # noqa: S314
    spoken = [element.text for element in root.iter("{http://www.w3.org/2000/svg}text")]
    assert "nginx" in spoken
    assert {"cpu.svg": "20.0", "latency.svg": "1.50", "memory.svg": "42.0"}[name] in spoken


def test_bars_are_to_scale_and_stay_in_their_panel() -> None:
    root = ElementTree.fromstring(drawing("d", [Panel("p < q", "r & s", [Bar("a", 10, 5, 20), Bar("b", 20, 20, 20)])]))  # noqa: S314
    first, second = (float(each.get("width", "")) for each in root.iter("{http://www.w3.org/2000/svg}rect"))
    assert second == pytest.approx(2 * first, abs=0.2)


@pytest.mark.parametrize(
    ("value", "text"), [(0.0, "0.00"), (1.234, "1.23"), (12.34, "12.3"), (123.4, "123"), (1234.5, "1,234")]
)
def test_amounts_have_the_digits_that_count(value: float, text: str) -> None:
    assert amount(value) == text
