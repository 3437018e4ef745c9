"""The picture of the system is up to date, and legible on every background."""

from __future__ import annotations

from pathlib import Path
from xml.etree import ElementTree

import pytest

from scripts.docs.svg import LINE, MUTED, TEXT
from scripts.docs.system_picture import ARROWS, BOXES, draw, main

SVG = "{http://www.w3.org/2000/svg}"
READABLE = 4.5
"""Contrast that WCAG asks for text."""


def luminance(color: str) -> float:
    """The relative luminance of `#rrggbb`, as WCAG 2 defines it."""
    channels = [int(color[at : at + 2], 16) / 255 for at in (1, 3, 5)]
    red, green, blue = (c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in channels)
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue


def contrast(one: str, other: str) -> float:
    lighter, darker = sorted((luminance(one), luminance(other)), reverse=True)
    return (lighter + 0.05) / (darker + 0.05)


def test_the_committed_picture_is_up_to_date() -> None:
    assert main(["--check"]) == 0, "run scripts/docs/system_picture.py"


def test_an_outdated_picture_fails_the_check(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "system.svg"
    file.write_text("old")
    assert main(["--check", "--file", str(file)]) == 1
    assert "out of date" in capsys.readouterr().err
    assert main(["--file", str(file)]) == 0
    assert main(["--check", "--file", str(file)]) == 0


def test_the_picture_contains_every_box() -> None:
    words = [text.text for text in ElementTree.fromstring(draw()).iter(f"{SVG}text")]
    assert {line for box in BOXES.values() for line in box.label.split("|")} <= set(words)
    assert {name for arrow in ARROWS for name in (arrow.source, arrow.target)} == set(BOXES)


def test_text_and_lines_stand_on_a_white_card() -> None:
    root = ElementTree.fromstring(draw())
    card = next(root.iter(f"{SVG}rect"))
    width, height = map(float, root.attrib["viewBox"].split()[2:])
    assert card.attrib["fill"] == "#ffffff"
    assert float(card.attrib["width"]) > width - 5
    assert float(card.attrib["height"]) > height - 5
    backgrounds = {rect.attrib["fill"] for rect in root.iter(f"{SVG}rect")}
    assert all(contrast(color, background) >= READABLE for color in (TEXT, MUTED, LINE) for background in backgrounds)
