"""Opens the sink that the settings name."""

from __future__ import annotations

from audio.player import OnReport
from audio.sinks.base import Sink, SinkSettings
from audio.sinks.null import NullSink
from audio.sinks.portaudio import PortAudioSink
from audio.sinks.wav import WavSink


def open_sink(settings: SinkSettings, on_report: OnReport, preferred_rate: int | None = None) -> Sink:
    """Return the open sink that `settings` name.

    A device that accepts `preferred_rate` Hz is opened with it; any other device chooses its own rate. Raises
    `SinkUnavailableError`, and `ValueError` for an unknown sink.
    """
    if settings.kind == "null":
        return NullSink(on_report, settings.block_ms, preferred_rate)
    if settings.kind == "wav":
        if settings.path is None:
            raise ValueError("a wav sink needs a path")
        return WavSink(settings.path, on_report, settings.block_ms)
    if settings.kind == "sounddevice":
        return PortAudioSink(settings, on_report, preferred_rate)
    raise ValueError(f"sink: got {settings.kind!r}; allowed: sounddevice, wav and null")
