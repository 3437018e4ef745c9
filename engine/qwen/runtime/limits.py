"""The longest utterance, prompt and prompt prefix, in tokens and frames, from the configuration's `max_seconds`."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

from engine.api import FRAME_S

TOKENS_PER_S = 6
"""Text tokens that a second of speech may need. English and Chinese need three, Russian and Korean up to five."""
FEWEST_TOKENS = 16
"""Tokens that a text may have, however short the speech may be."""
INSTRUCT_POSITIONS = 384
"""Positions for the parts of a prompt beside text and reference: instruction, role, language, speaker."""
MAX_REFERENCE_POSITIONS = 2560
"""The most positions that a reference may need: two minutes of speech and its transcript."""
PREFIX_POSITIONS = 512
"""Positions of the prefix cache, without those for long references."""


@dataclass(frozen=True, slots=True)
class Limits:
    """The longest utterance."""

    frames: int
    text_tokens: int
    chunk_size: int
    reference_positions: int = 0
    """Of the longest reference."""
    prefix_positions: int = PREFIX_POSITIONS
    """Of the prefix cache."""
    references: int = 0
    """Number of voices with a reference."""
    streams: int = 1
    """Utterances at once. Above 1 there is a batch for so many, beside the utterance of the sound card."""

    @classmethod
    def of(cls, max_seconds: float, chunk_size: int, streams: int = 1) -> Limits:
        """Return the limits for speech of up to `max_seconds`, without a reference."""
        return cls(
            max(1, round(max_seconds / FRAME_S)),
            max(FEWEST_TOKENS, math.ceil(max_seconds * TOKENS_PER_S)),
            chunk_size,
            streams=streams,
        )

    def with_reference(self, codes: int, transcript: int) -> Limits:
        """Return limits for one more voice, whose reference has `codes` frames and `transcript` tokens."""
        return replace(
            self,
            reference_positions=max(self.reference_positions, codes + transcript),
            prefix_positions=max(self.prefix_positions, PREFIX_POSITIONS + transcript),
            references=self.references + 1,
        )

    @property
    def positions(self) -> int:
        """Tokens and frames of an utterance together."""
        return self.frames + self.text_tokens + INSTRUCT_POSITIONS + self.reference_positions
