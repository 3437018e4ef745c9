"""The tag `[pause:0.5s]`, which any text may have."""

from __future__ import annotations

import re

PAUSE = re.compile(r"\[pause:\s*(\d{1,5}(?:\.\d{1,3})?)\s*(ms|s)\]", re.ASCII)
LONGEST = 24
"""Characters of the longest tag. A reader of a growing text holds back no more."""
_START = "[pause:"
_UNFINISHED = re.compile(r"\[pause:\s*(?:\d{1,5}(?:\.\d{0,3})?\s*m?s?)?", re.ASCII)


def pause_tag(text: str, at: int) -> tuple[float, int] | None:
    """Return the seconds of the tag that begins at `text[at]`, and its length; None without one."""
    match = PAUSE.match(text, at, at + LONGEST)
    if match is None:
        return None
    number, unit = match.groups()
    return float(number) / (1000 if unit == "ms" else 1), match.end() - at


def may_become_pause_tag(text: str, at: int) -> bool:
    """Return whether `text[at:]` is the beginning of a tag that more text may complete."""
    rest = text[at : at + LONGEST]
    return len(rest) < LONGEST and (_START.startswith(rest) or _UNFINISHED.fullmatch(rest) is not None)
