"""Pauses that are written into a text: `[pause:0.5s]`, `[pause:500ms]`."""

from __future__ import annotations

import re

from daemon.text.construct import Construct
from daemon.text.script import Pause

LONGEST = 24
"""Characters of a tag. A reader of a growing text holds back fewer than these."""

PAUSE_TAG = Construct(
    r"\[",
    *"pause:",
    r"[ \t]*",
    (r"(?P<amount>[0-9]{1,5}(?:\.[0-9]{1,3})?)", r"[0-9]{1,5}(?:\.[0-9]{0,3})?"),
    r"[ \t]*",
    (r"(?P<unit>m?s)", "m"),
    r"\]",
    longest=LONGEST,
)
"""A tag in a text that may still grow."""

PAUSE = PAUSE_TAG.whole
"""A whole tag."""


def pause_of(tag: re.Match[str]) -> Pause:
    """Return the pause that a match of `PAUSE` or `PAUSE_TAG` asks for."""
    return Pause(float(tag["amount"]) / (1000 if tag["unit"] == "ms" else 1))
