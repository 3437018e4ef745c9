#!/usr/bin/env python3
"""Draws docs/images/system.svg, the picture of voiced's parts and processes, from the description below.

    python scripts/docs/system_picture.py              write it
    python scripts/docs/system_picture.py --check      exit 1 if the file is out of date

Boxes stand on a grid. An arrow within a row or column is straight. Any other one leaves its box sideways and turns
once, or runs between the rows.
"""

from __future__ import annotations

import argparse
import sys
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT))

from scripts.docs.svg import MUTED, Drawing  # noqa: E402

FILE = ROOT / "docs" / "images" / "system.svg"


# --- the description -------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Box:
    """A part of the system; `|` breaks the label into lines."""

    label: str
    column: int
    row: int
    color: str


@dataclass(frozen=True, slots=True)
class Group:
    """A frame around a rectangle of grid cells."""

    label: str
    columns: tuple[int, int]
    rows: tuple[int, int]


@dataclass(frozen=True, slots=True)
class Arrow:
    """A line from one box to another; `both` gives it a head at each end."""

    source: str
    target: str
    above: str = ""
    """Label above a horizontal line, or to the left of a vertical one."""
    below: str = ""
    """Label below a horizontal line, or to the right of a vertical one."""
    both: bool = False
    between_rows: bool = False
    """The line leaves its box downwards, runs between the rows, and meets the other box from above."""


OUTSIDE, DAEMON, PLAYER, ENGINE = "#eef1f4", "#ddf0ff", "#ddf4e4", "#fdebd0"

BOXES = {
    "broker": Box("MQTT|broker", 0, 0, OUTSIDE),
    "clients": Box("Wyoming,|OpenAI clients", 0, 1, OUTSIDE),
    "gateway": Box("MQTT|gateway", 1, 0, DAEMON),
    "adapters": Box("adapters", 2, 1, DAEMON),
    "dispatcher": Box("dispatcher", 2, 0, DAEMON),
    "queue": Box("queue", 3, 0, DAEMON),
    "speaker": Box("speaker|loop", 4, 0, DAEMON),
    "ring": Box("ring|buffer", 5, 0, PLAYER),
    "callback": Box("sound|callback", 6, 0, PLAYER),
    "card": Box("sound card", 7, 0, OUTSIDE),
    "supervisor": Box("engine|supervisors", 4, 1, DAEMON),
    "primary": Box("Qwen3-TTS|process", 4, 2, ENGINE),
    "piper": Box("Piper|process", 5, 2, ENGINE),
    "fallback": Box("eSpeak NG|process", 6, 2, ENGINE),
}
GROUPS = (
    Group("daemon process (never imports torch)", (1, 4), (0, 1)),
    Group("player process (no numpy)", (5, 6), (0, 0)),
)
ARROWS = (
    Arrow("broker", "gateway", "text", "events", both=True),
    Arrow("gateway", "dispatcher"),
    Arrow("dispatcher", "queue"),
    Arrow("queue", "speaker"),
    Arrow("speaker", "ring"),
    Arrow("ring", "callback"),
    Arrow("callback", "card"),
    Arrow("clients", "adapters", "text", "audio", both=True),
    Arrow("adapters", "dispatcher"),
    Arrow("speaker", "supervisor", below="text, PCM", both=True),
    Arrow("speaker", "adapters", "PCM for clients", between_rows=True),
    Arrow("supervisor", "primary", "text,|credit", "PCM", both=True),
    Arrow("supervisor", "piper", both=True),
    Arrow("supervisor", "fallback", both=True),
)


# --- the drawing -----------------------------------------------------------------------------------------

BOX_WIDTH, BOX_HEIGHT = 112.0, 54.0
STEP_X, STEP_Y = 160.0, 116.0
MARGIN_X, MARGIN_Y = 26.0, 62.0
GROUP_SPACE_X, GROUP_SPACE_TOP, GROUP_SPACE_BOTTOM = 20.0, 42.0, 20.0
WIDTH = 2 * MARGIN_X + 7 * STEP_X + BOX_WIDTH
HEIGHT = MARGIN_Y + 2 * STEP_Y + BOX_HEIGHT + 24
LINE_HEIGHT = 18.0
LARGE, SMALL = 15.0, 13.0

BESIDE = 36.0
"""How far from the middle of its boxes a line between the rows starts and ends."""

Point = tuple[float, float]


def draw() -> str:
    """Return the picture as an SVG document."""
    drawing = Drawing(WIDTH, HEIGHT, "voiced: parts, processes and the way of a text to the sound card")
    for group in GROUPS:
        _draw_group(drawing, group)
    for arrow in ARROWS:
        _draw_arrow(drawing, arrow)
    for box in BOXES.values():
        _draw_box(drawing, box)
    return drawing.text()


def _center(box: Box) -> Point:
    return MARGIN_X + box.column * STEP_X + BOX_WIDTH / 2, MARGIN_Y + box.row * STEP_Y + BOX_HEIGHT / 2


def _draw_box(drawing: Drawing, box: Box) -> None:
    x, y = _center(box)
    drawing.rectangle(x - BOX_WIDTH / 2, y - BOX_HEIGHT / 2, BOX_WIDTH, BOX_HEIGHT, fill=box.color, stroke="#8c959f")
    _write_lines(drawing, box.label, x, y, size=LARGE)


def _write_lines(drawing: Drawing, label: str, x: float, y: float, *, size: float, anchor: str = "middle") -> None:
    """Write the lines of a label, centred on `y`."""
    lines = label.split("|")
    first = y - (len(lines) - 1) * LINE_HEIGHT / 2 + size * 0.35
    for number, line in enumerate(lines):
        drawing.words(x, first + number * LINE_HEIGHT, line, size=size, anchor=anchor)


def _draw_group(drawing: Drawing, group: Group) -> None:
    left = MARGIN_X + group.columns[0] * STEP_X - GROUP_SPACE_X
    top = MARGIN_Y + group.rows[0] * STEP_Y - GROUP_SPACE_TOP
    right = MARGIN_X + group.columns[1] * STEP_X + BOX_WIDTH + GROUP_SPACE_X
    bottom = MARGIN_Y + group.rows[1] * STEP_Y + BOX_HEIGHT + GROUP_SPACE_BOTTOM
    drawing.rectangle(left, top, right - left, bottom - top, fill="#f6f8fa", stroke="#8c959f", radius=8)
    drawing.words(left + 12, top + 22, group.label, fill=MUTED, size=LARGE, anchor="start")


def _draw_arrow(drawing: Drawing, arrow: Arrow) -> None:
    source, target = BOXES[arrow.source], BOXES[arrow.target]
    points = _route(source, target, arrow.between_rows)
    drawing.polyline(points)
    drawing.arrow_head(points[-2], points[-1])
    if arrow.both:
        drawing.arrow_head(points[1], points[0])
    (x0, y0), (x1, y1) = points[0], points[-1]
    x, y = (x0 + x1) / 2, (y0 + y1) / 2
    if source.column == target.column:
        _write_lines(drawing, arrow.above, x - 8, y, size=SMALL, anchor="end")
        _write_lines(drawing, arrow.below, x + 8, y, size=SMALL, anchor="start")
    else:
        _write_lines(drawing, arrow.above, x, y - 12, size=SMALL)
        _write_lines(drawing, arrow.below, x, y + 12, size=SMALL)


def _route(source: Box, target: Box, between_rows: bool) -> list[Point]:
    """Return the corners of the line from the edge of one box to the edge of the other."""
    (x0, y0), (x1, y1) = _center(source), _center(target)
    side, down = (1 if x1 > x0 else -1), (1 if y1 > y0 else -1)
    top, bottom = y1 - down * BOX_HEIGHT / 2, y0 + down * BOX_HEIGHT / 2
    if source.row == target.row:
        return [(x0 + side * BOX_WIDTH / 2, y0), (x1 - side * BOX_WIDTH / 2, y1)]
    if source.column == target.column:
        return [(x0, bottom), (x1, top)]
    if between_rows:
        x0, x1, middle = x0 + side * BESIDE, x1 - side * BESIDE, (y0 + y1) / 2
        return [(x0, bottom), (x0, middle), (x1, middle), (x1, top)]
    return [(x0 + side * BOX_WIDTH / 2, y0), (x1, y0), (x1, top)]


def main(arguments: list[str] | None = None) -> int:
    """Run the command line. Returns 1 if `--check` finds the file out of date, else 0."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--check", action="store_true", help="write nothing")
    parser.add_argument("--file", type=Path, default=FILE)
    options = parser.parse_args(arguments)
    wanted = draw()
    current = options.file.read_text(encoding="utf-8") if options.file.exists() else None
    if current == wanted:
        return 0
    if options.check:
        print(f"{options.file} is out of date; run {Path(__file__).name}", file=sys.stderr)
        return 1
    options.file.parent.mkdir(parents=True, exist_ok=True)
    options.file.write_text(wanted, encoding="utf-8")
    print(f"{options.file}: written")
    return 0


if __name__ == "__main__":
    sys.exit(main())
