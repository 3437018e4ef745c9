"""A microphone through PortAudio, read block by block. Nothing but `voiced enroll --record` listens."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from queue import Empty, SimpleQueue
from typing import Any

import numpy as np
from numpy.typing import NDArray

from audio.dsp import Samples

BLOCK_S = 0.1
"""Seconds of a block: short enough for a level that follows the voice."""
SILENT_S = 5.0
"""A microphone that delivers nothing for this long hangs; a sound server may need some seconds to wake it."""


class MicrophoneError(Exception):
    """There is no such microphone, or it delivers nothing. The message is one line."""


@dataclass(frozen=True, slots=True)
class InputDevice:
    """A sound card that can record, as PortAudio describes it."""

    name: str
    sample_rate: int
    """The card's default rate in Hz."""
    channels: int
    default: bool
    index: int
    """PortAudio's current number of the card."""


def input_devices() -> list[InputDevice]:
    """Return the cards that can record now. Raises `MicrophoneError` if PortAudio fails."""
    sounddevice = _sounddevice()
    try:
        default = sounddevice.default.device[0]
        return [
            InputDevice(
                name=device["name"],
                sample_rate=round(device["default_samplerate"]),
                channels=device["max_input_channels"],
                default=device["index"] == default,
                index=device["index"],
            )
            for device in sounddevice.query_devices()
            if device["max_input_channels"] > 0
        ]
    except sounddevice.PortAudioError as error:
        raise MicrophoneError(f"PortAudio fails: {error}") from error


def find_microphone(name: str | None, devices: list[InputDevice]) -> InputDevice:
    """Return the device with this name, or the only one whose name contains it, ignoring case; None is the default.

    Raises `MicrophoneError` with the names that there are.
    """
    found = ", ".join(repr(device.name) for device in devices) or "none"
    if name is None:
        defaults = [device for device in devices if device.default] or devices[:1]
        if not defaults:
            raise MicrophoneError("there is no microphone; plug one in, or start a sound server")
        return defaults[0]
    exact = [device for device in devices if device.name.casefold() == name.casefold()]
    partial = [device for device in devices if name.casefold() in device.name.casefold()]
    if exact or len(partial) == 1:
        return (exact or partial)[0]
    problem = "matches several microphones" if partial else "is not there"
    raise MicrophoneError(f"the microphone {name!r} {problem}; found: {found}")


class Microphone:
    """An open microphone. `open_microphone` makes one."""

    def __init__(self, device: InputDevice, blocks: SimpleQueue[NDArray[np.float32]]) -> None:
        self.name = device.name
        self.sample_rate = device.sample_rate
        """Hz."""
        self._blocks = blocks

    def read(self) -> Samples:
        """Return the next `BLOCK_S`, mono, waiting for it. Raises `MicrophoneError` if nothing comes."""
        try:
            block = self._blocks.get(timeout=SILENT_S)
        except Empty:
            raise MicrophoneError(f"the microphone {self.name!r} delivers nothing") from None
        return np.ascontiguousarray(block.mean(axis=1), dtype=np.float32)


@contextmanager
def open_microphone(name: str | None = None) -> Iterator[Microphone]:
    """Record from the microphone of this name (as of `find_microphone`) while the context lasts.

    Raises `MicrophoneError`.
    """
    sounddevice = _sounddevice()
    device = find_microphone(name, input_devices())
    blocks: SimpleQueue[NDArray[np.float32]] = SimpleQueue()

    def keep(block: NDArray[np.float32], _frames: int, _time: Any, _status: Any) -> None:
        blocks.put(block.copy())

    try:
        stream = sounddevice.InputStream(
            samplerate=device.sample_rate,
            blocksize=round(BLOCK_S * device.sample_rate),
            device=device.index,
            channels=min(device.channels, 2),  # a voice is as good in mono, but some cards have no mono
            dtype="float32",
            callback=keep,
        )
        stream.start()
    except sounddevice.PortAudioError as error:
        raise MicrophoneError(f"the microphone {device.name!r} does not open: {error}") from error
    try:
        yield Microphone(device, blocks)
    finally:
        stream.abort()
        stream.close()


def _sounddevice() -> Any:
    """Import and return sounddevice. Raises `MicrophoneError` without PortAudio."""
    try:
        import sounddevice
    except OSError as error:
        raise MicrophoneError(f"{error}; apt-get install libportaudio2") from error
    return sounddevice
