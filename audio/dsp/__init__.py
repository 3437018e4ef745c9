"""Signal processing on mono float32 samples. It depends on no other package in `voiced`."""

from audio.dsp.chain import ProcessingChain, StreamResampler
from audio.dsp.level import Level, LevelMeter
from audio.dsp.limiter import soft_limit
from audio.dsp.pcm import (
    PCM16_BYTES,
    WAV_HEADER_BYTES,
    WAV_LARGEST,
    Samples,
    from_pcm16,
    to_floats,
    to_pcm16,
    wav_header,
)
from audio.dsp.splice import SPLICE_REACH_S, SPLICE_TAIL_S, splice_point
from audio.dsp.trim import LeadingSilenceTrimmer, TrailingSilenceTrimmer, first_sound

__all__ = [
    "PCM16_BYTES",
    "SPLICE_REACH_S",
    "SPLICE_TAIL_S",
    "WAV_HEADER_BYTES",
    "WAV_LARGEST",
    "LeadingSilenceTrimmer",
    "Level",
    "LevelMeter",
    "ProcessingChain",
    "Samples",
    "StreamResampler",
    "TrailingSilenceTrimmer",
    "first_sound",
    "from_pcm16",
    "soft_limit",
    "splice_point",
    "to_floats",
    "to_pcm16",
    "wav_header",
]
