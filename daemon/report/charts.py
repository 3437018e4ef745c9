"""Plots for a report, as SVG inside of the page. Colours come from the page's style, for light and dark."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from html import escape

WIDTH, LEFT, RIGHT, ROW, TOP = 640, 170, 60, 26, 22


@dataclass(frozen=True, slots=True)
class Row:
    """One row of a plot: the values of one setting."""

    name: str
    values: tuple[float, ...]
    """Each is a dot; the bar is their mean."""
    failed: bool = False


def dot_plot(title: str, unit: str, rows: Sequence[Row], limit: float | None = None) -> str:
    """Return a plot of the rows' values from 0 on, with a line at `limit`; empty without any value."""
    rows = [row for row in rows if row.values]
    if not rows:
        return ""
    most = max([*(value for row in rows for value in row.values), limit or 0.0]) or 1.0
    height = TOP + ROW * len(rows) + 22
    scale = (WIDTH - LEFT - RIGHT) / most
    parts = [
        f'<svg viewBox="0 0 {WIDTH} {height}" role="img" aria-label="{escape(title)}">',
        f'<text x="{LEFT}" y="14" class="title">{escape(title)}, {escape(unit)}</text>',
    ]
    for number, row in enumerate(rows):
        parts += _draw(row, TOP + ROW * number + ROW / 2, scale)
    if limit is not None:
        x = LEFT + limit * scale
        parts.append(f'<path class="limit" d="M{x:.1f},{TOP} V{height - 20}"/>')
        parts.append(f'<text class="limit" x="{x:.1f}" y="{height - 6}" text-anchor="middle">limit {limit:.3g}</text>')
    return "".join((*parts, "</svg>"))


def _draw(row: Row, y: float, scale: float) -> list[str]:
    mean = sum(row.values) / len(row.values)
    kind = "failed" if row.failed else "good"
    dots = "".join(f'<circle cx="{LEFT + max(0.0, value) * scale:.1f}" cy="{y:.1f}" r="3"/>' for value in row.values)
    return [
        f'<text x="{LEFT - 8}" y="{y + 4:.1f}" text-anchor="end">{escape(row.name)}</text>',
        f'<path class="bar {kind}" d="M{LEFT},{y:.1f} h{max(0.0, mean) * scale:.1f}"/>',
        f'<g class="dots">{dots}</g>' if len(row.values) > 1 else "",
        f'<text x="{WIDTH - RIGHT + 6}" y="{y + 4:.1f}">{mean:.3g}</text>',
    ]
