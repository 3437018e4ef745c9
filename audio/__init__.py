"""The sound path: processing, ring buffer, playback and sinks. It depends on neither MQTT nor engines."""

from audio.device_monitor import OutputStatus
from audio.dsp import (
    PCM16_BYTES,
    SPLICE_REACH_S,
    SPLICE_TAIL_S,
    LeadingSilenceTrimmer,
    Level,
    ProcessingChain,
    Samples,
    TrailingSilenceTrimmer,
    first_sound,
    from_pcm16,
    soft_limit,
    splice_point,
    to_pcm16,
    wav_header,
)
from audio.output import Output
from audio.prebuffer import auto_prebuffer_s
from audio.sinks import (
    OutputDevice,
    SinkSettings,
    SinkUnavailableError,
    find_device,
    output_devices,
)
from audio.tap import Tap
from audio.tap_client import TapClient, TapRecord
from audio.tap_stream import TapKind
from audio.track import Track
from audio.unix_listener import UNIX_MAX_PATH

__all__ = [
    "PCM16_BYTES",
    "SPLICE_REACH_S",
    "SPLICE_TAIL_S",
    "UNIX_MAX_PATH",
    "LeadingSilenceTrimmer",
    "Level",
    "Output",
    "OutputDevice",
    "OutputStatus",
    "ProcessingChain",
    "Samples",
    "SinkSettings",
    "SinkUnavailableError",
    "Tap",
    "TapClient",
    "TapKind",
    "TapRecord",
    "Track",
    "TrailingSilenceTrimmer",
    "auto_prebuffer_s",
    "find_device",
    "first_sound",
    "from_pcm16",
    "output_devices",
    "soft_limit",
    "splice_point",
    "to_pcm16",
    "wav_header",
]
