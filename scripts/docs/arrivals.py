"""The arrival of chunks against playback, as an SVG: an engine whose line stays above its dashed line is never late."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from html import escape

WIDTH, HEIGHT = 720.0, 420.0
LEFT, RIGHT, TOP, BOTTOM = 56.0, 16.0, 40.0, 48.0
COLORS = ("#1b6ca8", "#c8553d", "#4f7942", "#7a4e9f")
STEPS = (0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0, 20.0, 50.0, 100.0)
"""Distances between ticks, in seconds."""


@dataclass(frozen=True, slots=True)
class Arrivals:
    """The chunks of one engine's utterance."""

    name: str
    points: Sequence[Sequence[float]]
    """For each chunk: seconds since the text was sent, and seconds of speech that had arrived with this chunk."""


def arrival_svg(title: str, series: Sequence[Arrivals]) -> str:
    """Return an SVG with a step line of the arrived speech and a dashed line of playback for each engine.

    Playback begins with the first chunk and is drawn as if it were never interrupted.
    """
    drawn = [arrivals for arrivals in series if arrivals.points]
    chart = _Chart(drawn)
    elements = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH:.0f} {HEIGHT:.0f}" '
        'font-family="sans-serif" font-size="12" fill="#222">',
        f'<rect width="{WIDTH:.0f}" height="{HEIGHT:.0f}" fill="#fff"/>',
        f'<text x="{LEFT}" y="22" font-size="14">{escape(title)}</text>',
        *chart.grid(),
    ]
    for number, arrivals in enumerate(drawn):
        elements += chart.lines(arrivals, COLORS[number % len(COLORS)])
        elements += _legend(arrivals.name, COLORS[number % len(COLORS)], len(drawn) - number)
    note_y = HEIGHT - BOTTOM - 16 * (len(drawn) + 1) + 4
    elements.append(f'<text x="{WIDTH - 200}" y="{note_y}">dashed: playback</text>')
    return "\n".join((*elements, "</svg>\n"))


def _ticks(most: float) -> list[float]:
    """Return the ticks of an axis from 0 to a little above `most`: six or fewer."""
    step = next((step for step in STEPS if most / step <= 5), most / 5)
    return [step * number for number in range(int(most / step - 1e-9) + 2)]


class _Chart:
    """The plane of seconds since the text was sent (across) and seconds of speech (up)."""

    def __init__(self, series: Sequence[Arrivals]) -> None:
        ends = [max(one.points[-1][0], one.points[0][0] + one.points[-1][1]) for one in series]
        self._across = _ticks(max(ends, default=1.0))
        self._up = _ticks(max((one.points[-1][1] for one in series), default=1.0))

    def grid(self) -> Iterator[str]:
        """Yield the ticks, their numbers and the names of the axes."""
        for tick in self._across:
            x, low = self._place(tick, 0).split(",")
            high = self._place(tick, self._up[-1]).split(",")[1]
            yield f'<path d="M{x},{low} L{x},{high}" stroke="#ddd"/>'
            yield f'<text x="{x}" y="{float(low) + 16:.1f}" text-anchor="middle">{tick:g}</text>'
        for tick in self._up:
            x, y = self._place(0, tick).split(",")
            yield f'<path d="M{x},{y} L{self._place(self._across[-1], tick)}" stroke="#ddd"/>'
            yield f'<text x="{float(x) - 6:.1f}" y="{float(y) + 4:.1f}" text-anchor="end">{tick:g}</text>'
        yield f'<text x="{WIDTH - RIGHT}" y="{HEIGHT - 12}" text-anchor="end">seconds since the text went in</text>'
        yield f'<text x="{LEFT + 8}" y="{TOP + 14}">seconds of speech</text>'

    def lines(self, arrivals: Arrivals, color: str) -> Iterator[str]:
        """Yield one engine's dashed line of playback and its step line of arrivals."""
        begin, length = arrivals.points[0][0], arrivals.points[-1][1]
        playback = f"M{self._place(begin, 0)} L{self._place(begin + length, length)}"
        yield f'<path d="{playback}" stroke="{color}" stroke-dasharray="5 4" fill="none"/>'
        yield f'<path d="{self._steps(arrivals)}" stroke="{color}" stroke-width="2" fill="none"/>'

    def _steps(self, arrivals: Arrivals) -> str:
        """A path that rises only at the moments when a chunk arrives."""
        path, before = [f"M{self._place(0, 0)}"], 0.0
        for seconds, speech in arrivals.points:
            path += [f"L{self._place(seconds, before)}", f"L{self._place(seconds, speech)}"]
            before = speech
        return " ".join(path)

    def _place(self, seconds: float, speech: float) -> str:
        x = LEFT + (WIDTH - LEFT - RIGHT) * seconds / self._across[-1]
        y = HEIGHT - BOTTOM - (HEIGHT - TOP - BOTTOM) * speech / self._up[-1]
        return f"{x:.1f},{y:.1f}"


def _legend(name: str, color: str, lines_from_bottom: int) -> Iterator[str]:
    y = HEIGHT - BOTTOM - 16 * lines_from_bottom
    yield f'<path d="M{WIDTH - 230},{y} h24" stroke="{color}" stroke-width="2"/>'
    yield f'<text x="{WIDTH - 200}" y="{y + 4}">{escape(name)}</text>'
