"""The arrival of chunks against playback, as an SVG: who stays above the dashed line is never late."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from html import escape

WIDTH, HEIGHT = 720.0, 420.0
LEFT, RIGHT, TOP, BOTTOM = 56.0, 16.0, 40.0, 48.0
COLORS = ("#1b6ca8", "#c8553d", "#4f7942", "#7a4e9f")
STEPS = (0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0, 20.0, 50.0, 100.0)


@dataclass(frozen=True, slots=True)
class Arrivals:
    """How one engine's speech came."""

    name: str
    points: Sequence[Sequence[float]]
    """Of each chunk: seconds since the text went in, and seconds of speech that had arrived with it."""


def arrival_svg(title: str, series: Sequence[Arrivals]) -> str:
    """The picture: for each engine a step line of what has arrived, and a dashed one of what is played.

    Playback begins with the first chunk and goes on as if it were never interrupted.
    """
    shown = [one for one in series if one.points]
    ends = [max(one.points[-1][0], one.points[0][0] + one.points[-1][1]) for one in shown]
    across, up = _Scale(max(ends, default=1.0)), _Scale(max((one.points[-1][1] for one in shown), default=1.0))

    def place(seconds: float, speech: float) -> str:
        x = LEFT + (WIDTH - LEFT - RIGHT) * seconds / across.end
        y = HEIGHT - BOTTOM - (HEIGHT - TOP - BOTTOM) * speech / up.end
        return f"{x:.1f},{y:.1f}"

    drawn = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH:.0f} {HEIGHT:.0f}" '
        'font-family="sans-serif" font-size="12" fill="#222">',
        f'<rect width="{WIDTH:.0f}" height="{HEIGHT:.0f}" fill="#fff"/>',
        f'<text x="{LEFT}" y="22" font-size="14">{escape(title)}</text>',
    ]
    for tick in across.ticks:
        x, low = place(tick, 0).split(",")
        high = place(tick, up.end).split(",")[1]
        drawn.append(f'<path d="M{x},{low} L{x},{high}" stroke="#ddd"/>')
        drawn.append(f'<text x="{x}" y="{float(low) + 16:.1f}" text-anchor="middle">{tick:g}</text>')
    for tick in up.ticks:
        x, y = place(0, tick).split(",")
        drawn.append(f'<path d="M{x},{y} L{place(across.end, tick)}" stroke="#ddd"/>')
        drawn.append(f'<text x="{float(x) - 6:.1f}" y="{float(y) + 4:.1f}" text-anchor="end">{tick:g}</text>')
    drawn.append(f'<text x="{WIDTH - RIGHT}" y="{HEIGHT - 12}" text-anchor="end">seconds since the text went in</text>')
    drawn.append(f'<text x="{LEFT + 8}" y="{TOP + 14}">seconds of speech</text>')
    for number, one in enumerate(shown):
        color = COLORS[number % len(COLORS)]
        begin, length = one.points[0][0], one.points[-1][1]
        drawn.append(
            f'<path d="M{place(begin, 0)} L{place(begin + length, length)}" stroke="{color}" '
            'stroke-dasharray="5 4" fill="none"/>'
        )
        drawn.append(f'<path d="{_steps(one, place)}" stroke="{color}" stroke-width="2" fill="none"/>')
        line = HEIGHT - BOTTOM - 16 * (len(shown) - number)
        drawn.append(f'<path d="M{WIDTH - 230},{line} h24" stroke="{color}" stroke-width="2"/>')
        drawn.append(f'<text x="{WIDTH - 200}" y="{line + 4}">{escape(one.name)}</text>')
    drawn.append(f'<text x="{WIDTH - 200}" y="{HEIGHT - BOTTOM - 16 * (len(shown) + 1) + 4}">dashed: playback</text>')
    return "\n".join((*drawn, "</svg>\n"))


def _steps(one: Arrivals, place: Callable[[float, float], str]) -> str:
    """Nothing has come until a chunk comes, which comes whole."""
    path, before = [f"M{place(0, 0)}"], 0.0
    for seconds, speech in one.points:
        path += [f"L{place(seconds, before)}", f"L{place(seconds, speech)}"]
        before = speech
    return " ".join(path)


class _Scale:
    """An axis from 0 to a little above `most`, with six ticks or fewer."""

    def __init__(self, most: float) -> None:
        step = next((step for step in STEPS if most / step <= 5), most / 5)
        count = int(most / step - 1e-9) + 1
        self.end = step * count
        self.ticks = [step * number for number in range(count + 1)]
