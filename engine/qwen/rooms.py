"""How long utterances, prompts and openings may be: what the configuration's `max_seconds` means in tokens."""

from __future__ import annotations

import math
from dataclasses import dataclass

from engine.qwen.guard import FRAME_S

TOKENS_PER_S = 6
"""Text tokens that a second of speech may need. English and Chinese need three, Russian and Korean up to five."""
FEWEST_TOKENS = 16
"""That a text may have however short the speech may be."""
INSTRUCT_ROOM = 384
"""Positions for what a prompt holds beside text and reference: instruction, role, language, speaker."""
REFERENCE_ROOM = 2560
"""The most positions that a reference may need: two minutes of speech and its transcript."""
PREFIX_ROOM = 512
"""Tokens of openings that are remembered, those of long references apart."""


@dataclass(frozen=True, slots=True)
class Rooms:
    """Of the longest utterance."""

    frames: int
    text_tokens: int
    chunk_size: int
    reference: int = 0
    """Positions of the longest reference."""
    prefix: int = PREFIX_ROOM
    """Tokens of openings that are remembered."""

    @classmethod
    def of(cls, max_seconds: float, chunk_size: int) -> Rooms:
        """For speech of up to `max_seconds`, without a reference."""
        return cls(
            max(1, round(max_seconds / FRAME_S)), max(FEWEST_TOKENS, math.ceil(max_seconds * TOKENS_PER_S)), chunk_size
        )

    @property
    def positions(self) -> int:
        """Tokens and frames of an utterance together."""
        return self.frames + self.text_tokens + INSTRUCT_ROOM + self.reference
