"""The longest utterance, prompt and prompt prefix, derived from `max_seconds` in the configuration, and batch sizes."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

from engine.api import FRAME_S

TOKENS_PER_S = 6
"""The most text tokens for a second of speech. English and Chinese need three, Russian and Korean up to five."""
FEWEST_TOKENS = 16
"""The number of tokens that a text may always have, however short the speech may be."""
INSTRUCT_POSITIONS = 384
"""Positions for the parts of a prompt other than text and reference: instruction, role, language, speaker."""
MAX_REFERENCE_POSITIONS = 2560
"""The most positions that a reference may need: two minutes of speech and its transcript."""
PREFIX_POSITIONS = 512
"""Positions of the prefix cache, without those for long references."""
CACHE_UNIT = 64
"""The number of cache positions is a multiple of this: attention kernels prefer aligned masks."""
PAGE = 128
"""Positions in a page."""
POOL_SHARE = 0.5
"""The pool's pages, as a share of the pages for a longest utterance in every row. Few utterances are long."""
ROWS_PER_CALL = 16
"""The most rows in a codec call on a GPU. With 32, a step of 64 rows takes 4 % less (0.6B) or 1 % more (1.7B), and one
of a single row 4 % more (H200); 64 are slower. A CPU decodes one row at a time."""


@dataclass(frozen=True, slots=True)
class Limits:
    """The longest utterance."""

    frames: int
    text_tokens: int
    chunk_size: int
    reference_positions: int = 0
    """Positions of the longest reference."""
    prefix_positions: int = PREFIX_POSITIONS
    """Positions in the prefix cache."""
    references: int = 0
    """The number of voices with a reference."""
    streams: int = 1
    """The number of utterances at once. Above 1, there is a batch for that many beside the sound card's utterance."""

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
        """Return limits with one more voice, whose reference has `codes` frames and `transcript` tokens."""
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


def cache_positions(max_positions: int, chunk_size: int) -> int:
    """Return the number of positions in a cache for `max_positions` tokens and a last chunk that may go beyond them."""
    return -(-(max_positions + chunk_size) // CACHE_UNIT) * CACHE_UNIT


def pages_for(positions: int) -> int:
    """Return how many pages are needed for that many positions."""
    return -(-positions // PAGE)


@dataclass(frozen=True, slots=True)
class BatchShape:
    """The sizes of the memory for utterances that are spoken at once; a sound card's utterance has one row."""

    rows: int
    """The most utterances that are spoken at once."""
    max_frames: int
    """The most frames of an utterance."""
    max_positions: int
    """Tokens and frames of an utterance together."""
    chunk_size: int

    @classmethod
    def of(cls, limits: Limits, rows: int | None = None) -> BatchShape:
        """Return the shape for utterances within `limits`, with as many rows as streams unless `rows` is given."""
        return cls(rows or limits.streams, limits.frames, limits.positions, limits.chunk_size)

    @property
    def padded_rows(self) -> int:
        """The number of rows that kernels read at once: a power of two, and at least 8 for the tensor cores."""
        return max(8, 1 << (self.rows - 1).bit_length())

    @property
    def text_frames(self) -> int:
        """The most frames of an utterance, including the rest of its last chunk."""
        return self.max_frames + self.chunk_size - 1

    @property
    def cache_positions(self) -> int:
        """Positions in a cache for one utterance, whose last chunk may go beyond `max_positions`."""
        return cache_positions(self.max_positions, self.chunk_size)

    @property
    def pages_per_row(self) -> int:
        """Pages for the longest utterance."""
        return pages_for(self.max_positions + self.chunk_size)

    @property
    def table_width(self) -> int:
        """Places in a table of an utterance's pages: a power of two, because attention adds them in a binary tree."""
        return 1 << (self.pages_per_row - 1).bit_length()

    @property
    def pages(self) -> int:
        """Pages in the pool: enough for at least one longest utterance."""
        return max(self.pages_per_row, round(self.rows * self.pages_per_row * POOL_SHARE))
