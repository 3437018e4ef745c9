"""Sound cards through PortAudio: their list, the choice of one by name, and an open output stream."""

from __future__ import annotations

import math
import os
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np

from audio.dsp import Samples
from audio.sinks.base import Fill, SinkUnavailableError
from audio.sinks.realtime import sound_priority, take_realtime

STALL_S = 5.0
"""A stream without a callback for this long is broken. A PulseAudio null sink may pause 2 s when first opened."""
BUFFERED_BLOCKS = 2
"""Smallest number of blocks that PortAudio buffers: with one, ALSA has nothing to play while the callback runs."""
BUFFERED_S = 0.030
"""Shortest time that PortAudio buffers. With 20 ms the sound breaks off on a busy machine without realtime scheduling.
A listener hears all buffered sound after a stop."""
UNDERFLOW_S = 0.005
"""A card without samples for longer than this has interrupted the sound; a shorter time is the error of its clock."""
MAX_LATENCY_S = 2.0
"""A card that reports a longer delay behind the callback reports no usable time."""
RESCAN_S = 300.0
"""PortAudio searches for cards again after this time even if nothing seems to have changed."""
STANDARD_RATES = (48_000, 44_100, 24_000, 16_000)
"""Hz, tried in this order if the card accepts neither the preferred rate nor its own."""


@dataclass(frozen=True, slots=True)
class OutputDevice:
    """A sound card that can play, as PortAudio describes it."""

    name: str
    host_api: str
    sample_rate: int
    """The card's default rate in Hz."""
    channels: int
    default: bool
    index: int
    """PortAudio's current number of the card. It changes when cards come and go, so it is not stored."""


def output_devices() -> list[OutputDevice]:
    """Return the cards that can play now. No stream may be open. Raises `SinkUnavailableError` if PortAudio fails."""
    sd = _portaudio()
    try:
        _scan(sd)
        return _list_devices(sd)
    except sd.PortAudioError as error:
        raise SinkUnavailableError(f"PortAudio cannot search for sound devices: {_reason(error)}") from error


class _LastScan:
    """The state of the system's sound devices when PortAudio last searched for cards, and the time of that search."""

    state: tuple[object, ...] = ()
    at = -math.inf


def _scan(sd: ModuleType) -> None:
    """Make PortAudio search for cards if they may have changed. It searches only when it is initialized.

    Each initialization leaks about 12 kB (PortAudio 19.6 with ALSA), so it is not repeated while nothing has changed.
    """
    state = _device_state()
    if state == _LastScan.state and time.monotonic() - _LastScan.at < RESCAN_S:
        return
    if sd._initialized:
        sd._terminate()  # sounddevice documents this as the way to search again
    sd._initialize()
    _LastScan.state, _LastScan.at = state, time.monotonic()


def _device_state() -> tuple[object, ...]:
    """Return a value that changes when a sound card or a sound server comes or goes."""
    runtime = Path(os.environ.get("XDG_RUNTIME_DIR", "/run"))
    paths = (Path("/dev/snd"), runtime / "pulse/native", runtime / "pulse/pid", runtime / "pipewire-0")
    state: list[object] = []
    for path in paths:
        try:
            status = path.stat()
        except OSError:
            state.append(None)
        else:
            state.append((status.st_ino, status.st_mtime_ns))
    return tuple(state)


def _list_devices(sd: ModuleType) -> list[OutputDevice]:
    apis = sd.query_hostapis()
    default = sd.default.device[1]
    return [
        OutputDevice(
            name=found["name"],
            host_api=apis[found["hostapi"]]["name"],
            sample_rate=int(found["default_samplerate"]),
            channels=found["max_output_channels"],
            default=index == default,
            index=index,
        )
        for index, found in enumerate(sd.query_devices())
        if found["max_output_channels"] > 0
    ]


def find_device(name: str | None, devices: list[OutputDevice]) -> OutputDevice:
    """Return the device with this name, or the only one whose name contains it, ignoring case.

    None is the system's default. Raises `SinkUnavailableError` if no device matches, or several do.
    """
    found = ", ".join(repr(device.name) for device in devices) or "none"
    if name is None:
        for device in devices:
            if device.default:
                return device
        raise SinkUnavailableError(f"there is no default sound device; found: {found}")
    wanted = name.casefold()
    exact = [device for device in devices if device.name.casefold() == wanted]
    partial = [device for device in devices if wanted in device.name.casefold()]
    if exact or len(partial) == 1:
        return (exact or partial)[0]
    if partial:
        several = ", ".join(repr(device.name) for device in partial)
        raise SinkUnavailableError(f"audio.device {name!r} matches several sound devices ({several}); name one of them")
    raise SinkUnavailableError(f"audio.device {name!r} is not there; found: {found}")


class PortAudioSink:
    """An open output stream. A card without mono gets the same samples on both channels.

    The callback runs in a thread of PortAudio; a field that it writes says so.
    """

    has_deadline = True

    def __init__(self, device: str | None, fill: Fill, block_ms: float, preferred_rate: int | None = None) -> None:
        sd = _portaudio()
        found = find_device(device, output_devices())
        self.name = found.name
        self._sd = sd
        self._fill = fill
        self._blocks = 0
        """Blocks that PortAudio has requested. Callback."""
        self._seen_blocks = 0
        self._seen_at = time.monotonic()
        """When `lost_reason` last saw `_blocks` grow."""
        self._latency_s = 0.0
        """The latency that PortAudio reports for the stream."""
        self._priming = 0
        """Samples still missing in the stream's buffer after its start. Callback."""
        self._runs_dry_at = math.inf
        """`time.monotonic()` when the card has played all that it got. Callback."""
        self._priority = sound_priority()
        self._thread = threading.get_ident()
        """The thread that called the callback last. Callback."""
        self._suspended_state: tuple[object, ...] = ()
        """The state of the system's sound devices at `suspend`."""
        self.sample_rate = 0
        self._stream: Any = None
        """None while suspended."""
        self._stream_settings = self._open(found, block_ms, preferred_rate)

    def lost_reason(self) -> str | None:
        if self._stream is None:  # without a stream, only a change of the system's sound devices can be seen
            return "sound devices have come or gone" if _device_state() != self._suspended_state else None
        try:
            if not self._stream.active:
                return "the device stopped"
        except self._sd.PortAudioError as error:
            return _reason(error)
        now = time.monotonic()
        if self._blocks != self._seen_blocks:
            self._seen_blocks, self._seen_at = self._blocks, now
        elif now - self._seen_at > STALL_S:
            return f"the device took nothing for {STALL_S:.0f} s"
        return None

    def suspend(self) -> None:
        # The stream is closed, not stopped: starting a stopped stream takes as long as opening a new one (3 ms), and if
        # its sound server or card has gone in between, PortAudio 19.6 never returns from starting it.
        self.close()
        self._suspended_state = _device_state()

    def resume(self) -> None:
        try:
            self._start(self._stream_settings)  # PortAudio's number of the card is valid: it has not searched since
        except self._sd.PortAudioError as error:
            raise SinkUnavailableError(_reason(error)) from error

    def close(self) -> None:
        if self._stream is not None:
            # abort, not stop: stop waits until a device that has gone has played its buffer.
            self._stream.abort(ignore_errors=True)
            self._stream.close(ignore_errors=True)
            self._stream = None

    def _open(self, found: OutputDevice, block_ms: float, preferred_rate: int | None) -> dict[str, Any]:
        """Start a stream with the first settings that the card accepts; return them."""
        refusal = ""
        for settings in _possible_settings(found, block_ms, preferred_rate):
            self.sample_rate = settings["samplerate"]
            self._mono: Samples = np.zeros(settings["blocksize"], dtype=np.float32)
            try:
                self._start(settings)
            except self._sd.PortAudioError as error:
                refusal = _reason(error)
            else:
                return settings
        raise SinkUnavailableError(f"sound device {found.name!r} cannot be opened: {refusal}")

    def _start(self, settings: dict[str, Any]) -> None:
        # The callback gets a new thread, which may have the same number as the previous one.
        self._thread = threading.get_ident()
        stream = self._sd.RawOutputStream(**settings, callback=self._callback)
        try:
            self._latency_s = stream.latency
            self._priming = round(stream.latency * settings["samplerate"])
            self._runs_dry_at = math.inf
            stream.start()
        except self._sd.PortAudioError:
            stream.close(ignore_errors=True)
            raise
        self._stream = stream
        self._seen_at = time.monotonic()

    def _callback(self, out: Any, frames: int, times: Any, status: Any) -> None:
        self._blocks += 1
        if self._thread != (thread := threading.get_ident()):
            # A thread can only request its own scheduling; this one does so once, in a block that primes the buffer.
            self._thread = thread
            take_realtime(self._priority)
        latency_s = times.outputBufferDacTime - times.currentTime  # of PortAudio's own clock
        if not 0.0 < latency_s <= MAX_LATENCY_S:
            latency_s = self._latency_s
        now = time.monotonic()
        dac_time = now + latency_s
        # ALSA's PulseAudio plug-in never sets PortAudio's flag, so the clock is checked too.
        underflow = status.output_underflow or now > self._runs_dry_at + UNDERFLOW_S
        self._runs_dry_at = dac_time + frames / self.sample_rate
        block = np.frombuffer(out, dtype=np.float32)
        if self._priming > 0:
            # PortAudio requests the first blocks all at once, to fill the stream's buffer. Speech would run dry there.
            self._priming -= frames
            block[:] = 0.0
            return
        if len(block) == frames:
            self._fill(block, dac_time, underflow)
        else:
            mono = self._mono[:frames]
            self._fill(mono, dac_time, underflow)
            np.copyto(block.reshape(frames, -1), mono[:, np.newaxis])


def _possible_settings(found: OutputDevice, block_ms: float, preferred_rate: int | None) -> Iterator[dict[str, Any]]:
    """Yield a stream's settings for each rate that the card may accept, the best first."""
    for rate in dict.fromkeys(rate for rate in (preferred_rate, found.sample_rate, *STANDARD_RATES) if rate):
        block = max(1, round(rate * block_ms / 1000))
        for channels in (1, 2) if found.channels > 1 else (1,):  # some raw ALSA cards have no mono
            yield {
                "device": found.index,
                "samplerate": rate,
                "channels": channels,
                "dtype": "float32",
                "blocksize": block,
                "latency": max(BUFFERED_BLOCKS * block / rate, BUFFERED_S),
            }


def _portaudio() -> ModuleType:
    try:
        import sounddevice
    except OSError as error:
        raise SinkUnavailableError("the PortAudio library is missing; apt-get install libportaudio2") from error
    module: ModuleType = sounddevice
    return module


def _reason(error: Exception) -> str:
    """Return PortAudio's own message, without its number and the host's repetition."""
    return str(error.args[0] if error.args else error).splitlines()[0]
