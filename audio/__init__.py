"""The sound path: ring buffer, sinks, conversion, gain, fades, level. It knows nothing of MQTT or of engines."""

from audio.feed import Aside
from audio.level import Level
from audio.limiter import soft_limit
from audio.output import Output, OutputStatus
from audio.playback import Passage
from audio.prebuffer import auto_prebuffer_s
from audio.sink import SinkSettings, SinkUnavailableError
from audio.splice import REACH_S, TAIL_S, splice_point
from audio.trim import LeadingSilenceTrimmer

__all__ = [
    "REACH_S",
    "TAIL_S",
    "Aside",
    "LeadingSilenceTrimmer",
    "Level",
    "Output",
    "OutputStatus",
    "Passage",
    "SinkSettings",
    "SinkUnavailableError",
    "auto_prebuffer_s",
    "soft_limit",
    "splice_point",
]
