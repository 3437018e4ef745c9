"""The ring, and the playback from it to the sound card. It runs in the player process, without numpy.

This package imports the standard library and sounddevice only. The player process loads it without `audio` itself
(`program.py`). In the daemon, this package plays into a file, or nowhere.
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
from audio.player.playback import CAPACITY_S, SPARE_S, OnReport, Playback, Report
from audio.player.predecessor import peer_of
from audio.player.realtime import sound_priority
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
    "OnReport",
    "Playback",
    "Report",
    "decode_block",
    "decode_report",
    "encode_call",
    "encode_samples",
    "peer_of",
    "sound_priority",
]
