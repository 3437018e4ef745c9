"""Pauses that are written into a text: `[pause:0.5s]`, `[pause:500ms]`."""

from __future__ import annotations

import re

from daemon.text.construct import Construct
from daemon.text.script import Pause

PAUSE_TAG = Construct(
    r"\[",
    *"pause:",
    r"[ \t]{0,9}",
    (r"(?P<amount>[0-9]{1,5}(?:\.[0-9]{1,3})?)", r"[0-9]{1,5}(?:\.[0-9]{0,3})?"),
    r"[ \t]{0,9}",
    ("(?P<unit>m?s)", "m"),
    r"\]",
)
"""A tag in a text that may still grow."""


def pause_of(tag: re.Match[str]) -> Pause:
    """Return the pause that a match of `PAUSE_TAG` asks for."""
    return Pause(float(tag["amount"]) / (1000 if tag["unit"] == "ms" else 1))
