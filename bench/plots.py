"""PURE: bars in an SVG that is read on light and on dark, and says in text all that it shows."""

from collections.abc import Sequence
from dataclasses import dataclass
from html import escape

PANEL_WIDTH = 430
CHARACTER_WIDTH = 6.8  # of a label, at most, on average
VALUE_WIDTH = 66
BAR_HEIGHT = 14
ROW_HEIGHT = 21
TITLE_HEIGHT = 26
GAP = 20
STYLE = """\
text { font: 12px system-ui, sans-serif; fill: #1f2328; }
.title { font-weight: 600; }
.unit { font-weight: 400; }
.own { fill: #0969da; }
.other { fill: #9aa4af; }
.spread { stroke: #1f2328; stroke-width: 1; }
@media (prefers-color-scheme: dark) {
  text { fill: #e6edf3; }
  .own { fill: #4493f8; }
  .other { fill: #656d76; }
  .spread { stroke: #e6edf3; }
}
"""


@dataclass(frozen=True, slots=True)
class Bar:
    """One value, and the line over it from `low` to `high`; `own` sets it off from the others."""

    label: str
    value: float
    low: float
    high: float
    own: bool = False


@dataclass(frozen=True, slots=True)
class Panel:
    """Bars on a scale of their own, from 0."""

    title: str
    unit: str
    bars: Sequence[Bar]


def drawing(title: str, panels: Sequence[Panel]) -> str:
    """The panels in two columns. `title` is for those who do not see them."""
    parts, top = [], 0
    for left_one in range(0, len(panels), 2):
        row = panels[left_one : left_one + 2]
        parts += [_panel(panel, column * (PANEL_WIDTH + GAP), top) for column, panel in enumerate(row)]
        top += max(TITLE_HEIGHT + ROW_HEIGHT * len(panel.bars) for panel in row) + GAP
    width, height = 2 * PANEL_WIDTH + GAP, max(0, top - GAP)
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" role="img">\n'
        f"<title>{escape(title)}</title>\n<style>\n{STYLE}</style>\n{''.join(parts)}</svg>\n"
    )


def _panel(panel: Panel, left: int, top: int) -> str:
    most = max((max(bar.value, bar.high) for bar in panel.bars), default=0) or 1
    label_width = int(max((len(bar.label) for bar in panel.bars), default=0) * CHARACTER_WIDTH) + 10
    scale = (PANEL_WIDTH - label_width - VALUE_WIDTH) / most
    title = f'{escape(panel.title)}<tspan class="unit"> – {escape(panel.unit)}</tspan>'
    lines = [f'<text class="title" x="{left}" y="{top + 14}">{title}</text>']
    for number, bar in enumerate(panel.bars):
        y = top + TITLE_HEIGHT + ROW_HEIGHT * number
        start, middle = left + label_width, y + BAR_HEIGHT / 2
        low, high = start + bar.low * scale, start + bar.high * scale
        end = max(start + bar.value * scale, high)
        lines += [
            f'<text x="{start - 6}" y="{y + 12}" text-anchor="end">{escape(bar.label)}</text>',
            f'<rect class="{"own" if bar.own else "other"}" x="{start}" y="{y}" width="{bar.value * scale:.1f}" '
            f'height="{BAR_HEIGHT}" rx="2"/>',
            f'<text x="{end + 6:.1f}" y="{y + 12}">{amount(bar.value)}</text>',
        ]
        if low < high:
            ends = f"M{low:.1f} {middle - 3}v6M{high:.1f} {middle - 3}v6"
            lines.append(f'<path class="spread" d="M{low:.1f} {middle}H{high:.1f}{ends}"/>')
    return "\n".join(lines) + "\n"


def amount(value: float) -> str:
    """A number with three digits that count, or all before the point."""
    return f"{value:.2f}" if value < 10 else f"{value:.1f}" if value < 100 else f"{value:,.0f}"
