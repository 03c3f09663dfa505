"""Writes what was measured into the document: the part between its two marks, and the drawings beside it."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from bench.idle_streams import Findings
from bench.plots import Bar, Panel, amount, drawing
from bench.report import Row, ratio
from bench.sections import DIRECT, EVERYBODY, Section
from bench.slices import Measurement

BEGIN = "<!-- Written by `make bench`, from here -->"
END = "<!-- to here -->"
OWN = "proxy"
NAMES = {"proxy": "proxy", "nginx": "nginx", "haproxy": "HAProxy", "envoy": "Envoy", "aiohttp": "aiohttp"}
CPU_INTRODUCTION = """\
Microseconds of CPU time, user and system, for a request or an event. The ratios are the medians of those within each
round, whose slices are neighbours in time."""
# Where the memory after everything is read: all kinds have met every load by then.
MEMORY_SECTION = "calls-256"


@dataclass(frozen=True, slots=True)
class Figures:
    """All that the document tells of a run.

    `rows` and the `rounds` that they sum up: by the section's key. `idle` and `versions`: by the target's name.
    """

    sections: Sequence[Section]
    rows: Mapping[str, Sequence[Row]]
    rounds: Mapping[str, Sequence[Mapping[str, Measurement]]]
    idle: Mapping[str, Findings]
    slices: int
    seconds: float
    versions: Mapping[str, str]
    missing: Sequence[str]
    machine: str
    load: tuple[float, ...]
    month: str


def write(figures: Figures, document: Path) -> None:
    """Puts the figures into the document, which has the marks. Raises ValueError if it has not, and OSError."""
    before, after = around(document)
    folder = document.with_suffix("")
    folder.mkdir(exist_ok=True)
    for name, picture in drawings(figures).items():
        (folder / name).write_text(picture)
    document.write_text(f"{before}{BEGIN}\n\n{markdown(figures)}\n{END}{after}")


def around(document: Path) -> tuple[str, str]:
    """What stands before the marks and after them. Raises ValueError if they are not there, and OSError."""
    before, found, rest = document.read_text().partition(BEGIN)
    _, ended, after = rest.partition(END)
    if not found or not ended:
        raise ValueError(f"{document} lacks the marks between which the figures go")
    return before, after


def drawings(figures: Figures) -> dict[str, str]:
    """The pictures, by their file names."""
    cpu, latency = [], []
    for section in figures.sections:
        rows = [row for row in figures.rows[section.key] if row.target != DIRECT]
        cpu.append(
            Panel(
                section.short,
                f"µs per {section.unit}",
                [Bar(name(row.target), row.cpu_us, row.cpu_us_min, row.cpu_us_max, own(row.target)) for row in rows],
            )
        )
        latency.append(
            Panel(
                section.short,
                "ms",
                [
                    Bar(name(row.target), row.p50_ms, row.p50_ms, row.p99_ms, own(row.target))
                    for row in figures.rows[section.key]
                ],
            )
        )
    memory = [
        Panel(
            "One process",
            "MB resident",
            [
                Bar(name(row.target), row.resident_mb_max, row.resident_mb_max, row.resident_mb_max, own(row.target))
                for row in figures.rows.get(MEMORY_SECTION, ())
            ],
        )
    ]
    if figures.idle:
        kib = {target: found.bytes_each / 1024 for target, found in figures.idle.items()}
        memory.append(
            Panel(
                "An idle stream",
                "KiB",
                [Bar(name(each), size, size, size, own(each)) for each, size in kib.items()],
            )
        )
    return {
        "cpu.svg": drawing("CPU time for each request or event, median, smallest and largest slice", cpu),
        "latency.svg": drawing("Latency: the bar ends at the median, the line at the 99th percentile", latency),
        "memory.svg": drawing("Memory", memory),
    }


def markdown(figures: Figures) -> str:
    """The figures as text."""
    told = ", ".join(f"{name(each)} {version}" for each, version in figures.versions.items())
    busy = " before and ".join(f"{each:.1f}" for each in figures.load)
    parts = [
        f"{figures.month}; {figures.machine}; {told}; medians of {figures.slices} slices of {figures.seconds:g} s; "
        f"load average {busy} after."
    ]
    if figures.missing:
        parts.append(f"Not installed where this ran, and so left out: {', '.join(map(name, figures.missing))}.")
    parts += ["### CPU time at a glance", CPU_INTRODUCTION]
    parts += [
        overview(figures),
        "![CPU time](performance/cpu.svg)",
        "### Latency",
        "![Latency](performance/latency.svg)",
    ]
    parts += ["### Memory", memory_table(figures), "![Memory](performance/memory.svg)", "### Every load"]
    for section in figures.sections:
        parts += [f"**{section.title}.** {section.note}".rstrip(), details(section, figures.rows[section.key])]
    return "\n\n".join(parts) + "\n"


def overview(figures: Figures) -> str:
    """A line for each load under which all are compared."""
    there = [each for each in EVERYBODY if each not in figures.missing]
    head = ["load", *map(name, there)]
    pairs = [(OWN, "nginx"), (OWN, "envoy"), ("aiohttp", OWN)]
    pairs = [(one, other) for one, other in pairs if one in there and other in there]
    head += [f"{name(one)} ÷ {name(other)}" for one, other in pairs]
    lines = []
    for section in figures.sections:
        cost = {row.target: row.cpu_us for row in figures.rows[section.key]}
        if set(there) <= cost.keys():
            ratios = [ratio(figures.rounds[section.key], one, to=other) for one, other in pairs]
            told = [f"{each:.2f}" for each in ratios if each is not None]
            lines.append([section.title, *(amount(cost[each]) for each in there), *told])
    return table(head, lines)


def details(section: Section, rows: Sequence[Row]) -> str:
    """A line for each target."""
    head = ["", f"CPU µs per {section.unit}", "smallest – largest", f"{section.unit}s/s", "p50 ms", "p99 ms", "RSS MB"]
    return table(
        head,
        [
            [
                name(row.target),
                amount(row.cpu_us),
                f"{amount(row.cpu_us_min)} – {amount(row.cpu_us_max)}",
                f"{row.requests_per_second:,.0f}",
                f"{row.p50_ms:.2f}",
                f"{row.p99_ms:.2f}",
                f"{row.resident_mb_max:.1f}",
            ]
            for row in rows
        ],
    )


def memory_table(figures: Figures) -> str:
    """What each kind takes, and what a stream adds to that."""
    resident = {row.target: row.resident_mb_max for row in figures.rows.get(MEMORY_SECTION, ())}
    count = next((found.streams for found in figures.idle.values()), 0)
    lines = []
    for target, size in resident.items():
        found = figures.idle.get(target)
        stream = ["–", "–"] if found is None else [f"{found.bytes_each / 1024:.1f}", f"{found.event_seconds:.2f}"]
        lines.append([name(target), f"{size:.1f}", *stream])
    streams = f"of {count:,} idle streams" if count else "idle streams"
    failed = figures.idle and len(figures.idle) < len(resident)
    note = "\n\n–: in this run not all of its streams could be opened." if failed else ""
    return table(["", "MB resident", f"KiB for each {streams}", "s until all have an event"], lines) + note


def table(head: Sequence[str], lines: Sequence[Sequence[str]]) -> str:
    """A table of Markdown, numbers to the right."""
    rule = ["---", *("---:" for _ in head[1:])]
    return "\n".join(f"| {' | '.join(cells)} |" for cells in (head, rule, *lines))


def name(target: str) -> str:
    """How a target is called in the text."""
    kind, dash, rest = target.partition("-")
    return NAMES.get(kind, kind) + (f" {rest.replace('-', ' ').replace('tls', 'TLS')}" if dash else "")


def own(target: str) -> bool:
    return target.partition("-")[0] == OWN
