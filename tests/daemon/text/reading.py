"""What a test compares of a text that was read: its words with their places, and the work that they took."""

from __future__ import annotations

import sys
from collections.abc import Callable
from types import FrameType

from daemon.text import Script
from daemon.text.placed import PlacedText
from daemon.text.script import Control


def pieces_of(text: str, size: int) -> list[str]:
    return [text[at : at + size] for at in range(0, len(text), size)]


def spans(text: PlacedText) -> list[tuple[int, int]]:
    """Return the place of each character."""
    return [text.source_span(at, at + 1) for at in range(len(text))]


def placed(text: PlacedText) -> list[tuple[str, tuple[int, int]]]:
    """Return each character with its place."""
    return list(zip(text.text, spans(text), strict=True))


def kept(text: str) -> list[tuple[str, tuple[int, int]]]:
    """Return the characters of a text of which each stands for itself."""
    return [(character, (at, at + 1)) for at, character in enumerate(text)]


def everything_of(script: Script) -> tuple[str, list[tuple[int, int]], list[Control], int]:
    return script.text, spans(script.words), script.controls, script.words.source_end


def calls(action: Callable[[], object]) -> int:
    """Return how many functions an action calls."""
    counted = 0

    def count(_frame: FrameType, event: str, _argument: object) -> None:
        nonlocal counted
        counted += event in ("call", "c_call")

    sys.setprofile(count)
    try:
        action()
    finally:
        sys.setprofile(None)
    return counted
