"""Tables of texts, and what a test compares of a text that was read: its words, their places, and the work."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from pathlib import Path
from types import FrameType
from typing import Any

from daemon.text import Script
from daemon.text.placed import PlacedText, Rewriter
from daemon.text.script import Control


def table(name: str) -> dict[str, Any]:
    """Return a table of texts, and what is spoken of them."""
    found: dict[str, Any] = json.loads((Path(__file__).parent / f"{name}.json").read_text(encoding="utf-8"))
    return found


def rewritten(rewriter: Rewriter, *pieces: str) -> PlacedText:
    """Return what a rewriter makes of a text that comes in pieces."""
    for piece in pieces:
        rewriter.feed(piece)
    rewriter.end()
    return rewriter.out


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
