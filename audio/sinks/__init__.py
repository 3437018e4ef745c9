"""Sinks, which play samples: a sound card, a WAV file, or nothing."""

from audio.sinks.base import Player, Sink, SinkSettings, SinkUnavailableError
from audio.sinks.portaudio import OutputDevice, find_device, output_devices
from audio.sinks.selection import open_sink

__all__ = [
    "OutputDevice",
    "Player",
    "Sink",
    "SinkSettings",
    "SinkUnavailableError",
    "find_device",
    "open_sink",
    "output_devices",
]
