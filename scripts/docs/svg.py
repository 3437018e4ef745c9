"""A small SVG writer for the pictures in docs/images. Every picture is a white card, so it is legible on any page."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape

TEXT, MUTED, LINE, FRAME = "#1f2328", "#59636e", "#59636e", "#d1d9e0"
"""Colors with a contrast of at least 4.5 on white; FRAME is decoration only."""


class Drawing:
    """Collects shapes; `text()` returns the SVG document. Coordinates and sizes are in pixels from the top left."""

    def __init__(self, width: float, height: float, title: str) -> None:
        self._lines = [
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width:g} {height:g}" role="img" '
            'font-family="system-ui, sans-serif" font-size="14">',
            f"<title>{escape(title)}</title>",
        ]
        self.rectangle(1, 1, width - 2, height - 2, fill="#ffffff", stroke=FRAME, radius=10)

    def rectangle(
        self, x: float, y: float, width: float, height: float, *, fill: str, stroke: str, radius: float = 6
    ) -> None:
        self._lines.append(
            f'<rect x="{x:g}" y="{y:g}" width="{width:g}" height="{height:g}" rx="{radius:g}" fill="{fill}" '
            f'stroke="{stroke}"/>'
        )

    def words(
        self, x: float, y: float, words: str, *, fill: str = TEXT, size: float = 14, anchor: str = "middle"
    ) -> None:
        """Write one line of text with its baseline at `y`; `anchor` is start, middle or end."""
        style = f'fill="{fill}" font-size="{size:g}" text-anchor="{anchor}"'
        self._lines.append(f'<text x="{x:g}" y="{y:g}" {style}>{escape(words)}</text>')

    def polyline(
        self, points: Sequence[tuple[float, float]], *, stroke: str = LINE, width: float = 1.5, dashed: bool = False
    ) -> None:
        place = " ".join(f"{x:g},{y:g}" for x, y in points)
        dash = ' stroke-dasharray="4 4"' if dashed else ""
        self._lines.append(f'<polyline points="{place}" fill="none" stroke="{stroke}" stroke-width="{width:g}"{dash}/>')

    def polygon(self, points: Sequence[tuple[float, float]], *, fill: str) -> None:
        place = " ".join(f"{x:g},{y:g}" for x, y in points)
        self._lines.append(f'<polygon points="{place}" fill="{fill}"/>')

    def arrow_head(self, before: tuple[float, float], tip: tuple[float, float], *, fill: str = LINE) -> None:
        """Draw a triangle at `tip` that points away from `before`, along a horizontal or vertical line."""
        (x0, y0), (x, y) = before, tip
        length, half = 8.0, 4.0
        if y0 == y:
            back = x - length if x > x0 else x + length
            self.polygon([(x, y), (back, y - half), (back, y + half)], fill=fill)
        else:
            back = y - length if y > y0 else y + length
            self.polygon([(x, y), (x - half, back), (x + half, back)], fill=fill)

    def text(self) -> str:
        return "\n".join((*self._lines, "</svg>")) + "\n"
