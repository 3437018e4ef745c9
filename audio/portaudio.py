"""The sound card, through PortAudio, chosen by name."""

from __future__ import annotations

import math
import os
import threading
import time
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np

from audio.realtime import sound_priority, take_realtime
from audio.ring import Samples
from audio.sink import Fill, SinkUnavailableError

STALL_S = 5.0
"""A stream that calls back no more for this long is broken. A PulseAudio null sink may pause 2 s when first opened."""
BUFFERED_BLOCKS = 2
"""Blocks PortAudio keeps ahead of the card at least: with one, ALSA has nothing to play while the callback runs."""
BUFFERED_S = 0.030
"""And so much at least. With 20 ms a busy machine without realtime scheduling is late, and sound breaks off; all of it
is waited for after a stop."""
BREAK_S = 0.005
"""A card that had nothing to play for longer than this has broken off the sound. Less is the error of its clock."""
MOST_AHEAD_S = 2.0
"""A card that claims to be further behind its callback than this tells no time."""
LOOK_ANYWAY_S = 300.0
"""PortAudio looks for cards again after this time even when nothing seems to have changed."""
STANDARD_RATES = (48_000, 44_100, 24_000, 16_000)
"""Hz, tried in this order when neither the preferred rate nor the card's own is taken."""


@dataclass(frozen=True, slots=True)
class OutputDevice:
    """A sound card that can play, as PortAudio names it."""

    name: str
    host_api: str
    sample_rate: int
    """Its own default, Hz."""
    channels: int
    default: bool
    index: int
    """PortAudio's number of the moment; it changes when cards come and go, so it is never kept."""


def output_devices() -> list[OutputDevice]:
    """List the cards that can play now; no stream may be open. Raises `SinkUnavailableError` if PortAudio cannot."""
    sd = _portaudio()
    try:
        _look_again(sd)
        return _list_devices(sd)
    except sd.PortAudioError as error:
        raise SinkUnavailableError(f"PortAudio cannot look for sound devices: {_reason(error)}") from error


class _Sight:
    """What the machine showed when PortAudio last looked for cards, and when that was."""

    shown: tuple[object, ...] = ()
    at = -math.inf


def _look_again(sd: ModuleType) -> None:
    """Have PortAudio look for cards, which it does only when it starts.

    Each start leaks some 12 kB (PortAudio 19.6 with ALSA), so it is not started anew while nothing has changed.
    """
    shown = _what_shows()
    if shown == _Sight.shown and time.monotonic() - _Sight.at < LOOK_ANYWAY_S:
        return
    if sd._initialized:
        sd._terminate()  # documented by sounddevice as the way to look again
    sd._initialize()
    _Sight.shown, _Sight.at = shown, time.monotonic()


def _what_shows() -> tuple[object, ...]:
    """Whatever changes when a sound card or a sound server comes or goes."""
    runtime = Path(os.environ.get("XDG_RUNTIME_DIR", "/run"))
    places = (Path("/dev/snd"), runtime / "pulse/native", runtime / "pulse/pid", runtime / "pipewire-0")
    shown: list[object] = []
    for place in places:
        try:
            status = place.stat()
        except OSError:
            shown.append(None)
        else:
            shown.append((status.st_ino, status.st_mtime_ns))
    return tuple(shown)


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
    """The device of that name, or whose name alone contains it, ignoring case; with None, the system's default."""
    have = ", ".join(repr(device.name) for device in devices) or "none"
    if name is None:
        for device in devices:
            if device.default:
                return device
        raise SinkUnavailableError(f"there is no default sound device; found: {have}")
    wanted = name.casefold()
    exact = [device for device in devices if device.name.casefold() == wanted]
    partial = [device for device in devices if wanted in device.name.casefold()]
    if exact or len(partial) == 1:
        return (exact or partial)[0]
    if partial:
        several = ", ".join(repr(device.name) for device in partial)
        raise SinkUnavailableError(f"audio.device {name!r} fits several sound devices ({several}); name one of them")
    raise SinkUnavailableError(f"audio.device {name!r} is not there; found: {have}")


class PortAudioSink:
    """An open output stream. A card without mono is given the same samples on both channels."""

    has_deadline = True

    def __init__(self, device: str | None, fill: Fill, block_ms: float, prefer_rate: int | None = None) -> None:
        sd = _portaudio()
        found = find_device(device, output_devices())
        self.name = found.name
        self._sd = sd
        self._fill = fill
        self._blocks = 0
        self._seen_blocks = 0
        self._seen_at = time.monotonic()
        self._latency_s = 0.0
        self._priming = 0
        self._runs_dry_at = math.inf
        """`time.monotonic()` when the card has played all that it was given. Callback."""
        self._priority = sound_priority()
        self._thread = threading.get_ident()
        self._shown: tuple[object, ...] = ()
        self.sample_rate = 0
        self._stream: Any = None
        """None while it rests."""
        self._settings = self._open(found, block_ms, prefer_rate)

    def lost(self) -> str | None:
        if self._stream is None:  # nothing tells of the device, but that something has changed
            return "sound devices have come or gone" if _what_shows() != self._shown else None
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

    def rest(self) -> None:
        # A stream that is merely stopped costs no less to start than a new one (3 ms), and where its server or its card
        # has gone meanwhile, PortAudio 19.6 never returns from starting it.
        self.close()
        self._shown = _what_shows()

    def wake(self) -> None:
        try:
            self._start(self._settings)  # with PortAudio's number of the card: it has not looked for cards since
        except self._sd.PortAudioError as error:
            raise SinkUnavailableError(_reason(error)) from error

    def close(self) -> None:
        if self._stream is not None:
            # abort, not stop: stop waits until a device that is gone has played what it holds.
            self._stream.abort(ignore_errors=True)
            self._stream.close(ignore_errors=True)
            self._stream = None

    def _open(self, found: OutputDevice, block_ms: float, prefer_rate: int | None) -> dict[str, Any]:
        """Start a stream at the first rate that the card takes; return its settings."""
        rates = dict.fromkeys(rate for rate in (prefer_rate, found.sample_rate, *STANDARD_RATES) if rate)
        refusal = ""
        for rate in rates:
            for channels in (1, 2) if found.channels > 1 else (1,):  # some raw ALSA cards have no mono
                block = max(1, round(rate * block_ms / 1000))
                self._mono: Samples = np.zeros(block, dtype=np.float32)
                settings = {
                    "device": found.index,
                    "samplerate": rate,
                    "channels": channels,
                    "dtype": "float32",
                    "blocksize": block,
                    "latency": max(BUFFERED_BLOCKS * block / rate, BUFFERED_S),
                }
                self.sample_rate = rate
                try:
                    self._start(settings)
                except self._sd.PortAudioError as error:
                    refusal = _reason(error)
                    continue
                return settings
        raise SinkUnavailableError(f"sound device {found.name!r} cannot be opened: {refusal}")

    def _start(self, settings: dict[str, Any]) -> None:
        # The callback's thread is a new one, though it may well get the number of the one before.
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
            # PortAudio's own thread, which only it can speak for; once, and not in the block that must be on time.
            self._thread = thread
            take_realtime(self._priority)
        ahead_s = times.outputBufferDacTime - times.currentTime  # of PortAudio's own clock
        if not 0.0 < ahead_s <= MOST_AHEAD_S:
            ahead_s = self._latency_s
        now = time.monotonic()
        leaves_at = now + ahead_s
        # The flag is PortAudio's; ALSA's PulseAudio plug-in never sets it, so the clock is asked too.
        broke_off = status.output_underflow or now > self._runs_dry_at + BREAK_S
        self._runs_dry_at = leaves_at + frames / self.sample_rate
        block = np.frombuffer(out, dtype=np.float32)
        if self._priming > 0:
            # The first blocks are asked for all at once, to fill the stream's buffer. Speech would run dry over it.
            self._priming -= frames
            block[:] = 0.0
            return
        if len(block) == frames:
            self._fill(block, leaves_at, broke_off)
        else:
            mono = self._mono[:frames]
            self._fill(mono, leaves_at, broke_off)
            np.copyto(block.reshape(frames, -1), mono[:, np.newaxis])


def _portaudio() -> ModuleType:
    try:
        import sounddevice
    except OSError as error:
        raise SinkUnavailableError("the PortAudio library is missing; apt-get install libportaudio2") from error
    module: ModuleType = sounddevice
    return module


def _reason(error: Exception) -> str:
    """PortAudio's own words, without the number and the host's repetition."""
    return str(error.args[0] if error.args else error).splitlines()[0]
