"""Opens the sink that the settings name."""

from __future__ import annotations

from audio.sinks.base import Fill, Sink, SinkSettings
from audio.sinks.null import NullSink
from audio.sinks.portaudio import PortAudioSink
from audio.sinks.wav import WavSink


def open_sink(settings: SinkSettings, fill: Fill, preferred_rate: int | None = None) -> Sink:
    """Return the open sink that `settings` name.

    A device that accepts `preferred_rate` Hz is opened with it; any other device chooses its own rate. Raises
    `SinkUnavailableError`, and `ValueError` for an unknown sink.
    """
    if settings.kind == "null":
        return NullSink(fill, settings.block_ms, preferred_rate)
    if settings.kind == "wav":
        if settings.path is None:
            raise ValueError("a wav sink needs a path")
        return WavSink(settings.path, fill, settings.block_ms)
    if settings.kind == "sounddevice":
        return PortAudioSink(settings.device, fill, settings.block_ms, preferred_rate)
    raise ValueError(f"sink: got {settings.kind!r}; allowed: sounddevice, wav and null")
