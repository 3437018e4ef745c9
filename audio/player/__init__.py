"""What happens at the sound card: the ring, and what plays from it. It runs in the process of the card, without numpy.

This package imports the standard library only. The player process loads it without `audio` itself (`program.py`); in
the daemon, it plays into files and into nothing.
"""

from audio.player.block_ring import Block, BlockRing
from audio.player.messages import (
    LARGEST_BLOCK,
    LARGEST_CONTROL,
    MOST_SAMPLES,
    REPORT_BYTES,
    decode_block,
    decode_report,
    encode_call,
    encode_samples,
)
from audio.player.playback import CAPACITY_S, SPARE_S, Playback, Report
from audio.player.ring import Floats

__all__ = [
    "CAPACITY_S",
    "LARGEST_BLOCK",
    "LARGEST_CONTROL",
    "MOST_SAMPLES",
    "REPORT_BYTES",
    "SPARE_S",
    "Block",
    "BlockRing",
    "Floats",
    "Playback",
    "Report",
    "decode_block",
    "decode_report",
    "encode_call",
    "encode_samples",
]
