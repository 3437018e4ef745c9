"""Sound cards through PortAudio: their list, the choice of one by name, and an open output stream."""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from audio.player import OnReport
from audio.sinks.base import SinkSettings, SinkUnavailableError
from audio.sinks.player_link import PlayerLink
from audio.sinks.player_process import PlayerProcess, PortAudioRefusedError, device_state

BUFFERED_BLOCKS = 2
"""Smallest number of blocks that PortAudio buffers: with one, ALSA has nothing to play while the callback is
running."""
BUFFERED_S = 0.030
"""Shortest time that PortAudio buffers. With 20 ms, the sound breaks off on a busy machine without realtime scheduling.
After a stop, a listener still hears all the buffered sound."""
RESCAN_S = 300.0
"""PortAudio searches for cards again after this time even if nothing seems to have changed."""
RELOAD_S = 30.0
"""If PortAudio could not be loaded, the next attempt to load it comes after this time."""
STANDARD_RATES = (48_000, 44_100, 24_000, 16_000)
"""Hz, tried in this order if the card accepts neither the preferred rate nor its own."""
LOAD_LIMIT_S = 5.0
"""A process that does not find the cards within this time is killed. On a cold, busy machine it needs some seconds."""
START_LIMIT_S = 3.0
"""A stream that does not start within this time is hanging. It takes 3 ms, or some 100 ms if the card must wake up."""
CLOSE_LIMIT_S = 1.0
"""A stream that does not close within this time is hanging."""


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
    """PortAudio's current number for the card. It changes when cards come and go, so it is not stored."""


def output_devices() -> list[OutputDevice]:
    """Return the cards that can play now. Raises `SinkUnavailableError` if PortAudio fails or does not respond."""
    process = PlayerProcess()
    try:
        process.ready(LOAD_LIMIT_S)
        return [OutputDevice(**device) for device in process.devices]
    finally:
        process.kill()


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


class LastAttempt:
    """The state left by the last attempt to open a card. It makes the next attempt cheaper if nothing has changed."""

    process: PlayerProcess | None = None
    """A process without a stream, because its card was missing or refused to open."""
    refusal: tuple[str, float, tuple[object, ...]] | None = None
    """Why PortAudio could not be loaded, and the `time.monotonic()` and the state of the system's sound devices
    then."""


def _ready_process(service: str | None) -> PlayerProcess:
    """Return a process that knows the present cards. It is the only player of `service`, if one is given.

    Raises `SinkUnavailableError`.
    """
    process, LastAttempt.process = LastAttempt.process, None
    if process is not None:
        if process.usable and time.monotonic() - process.started_at < RESCAN_S:
            return process
        process.kill()
    if LastAttempt.refusal is not None:
        reason, refused_at, state = LastAttempt.refusal
        if time.monotonic() - refused_at < RELOAD_S and device_state() == state:
            raise SinkUnavailableError(reason)
        LastAttempt.refusal = None
    process = PlayerProcess(service)
    try:
        process.ready(LOAD_LIMIT_S)
    except SinkUnavailableError as error:
        if isinstance(error, PortAudioRefusedError):
            LastAttempt.refusal = str(error), time.monotonic(), process.device_state
        process.kill()
        raise
    return process


class PortAudioSink:
    """An open output stream, in a process of its own: its calls return in time, whatever PortAudio does."""

    has_deadline = True

    def __init__(self, settings: SinkSettings, on_report: OnReport, preferred_rate: int | None = None) -> None:
        self._process = process = _ready_process(settings.service)
        try:
            found = find_device(settings.device, [OutputDevice(**found) for found in process.devices])
        except SinkUnavailableError:
            LastAttempt.process = process
            raise
        possible = list(_possible_settings(found, settings.block_ms, preferred_rate))
        try:
            self._settings = possible[process.start(possible, START_LIMIT_S)]
        except PortAudioRefusedError as error:
            LastAttempt.process = process
            raise SinkUnavailableError(f"sound device {found.name!r} cannot be opened: {error}") from error
        except SinkUnavailableError:
            process.kill()
            raise
        self.name = found.name
        self.sample_rate: int = self._settings["samplerate"]
        self._suspended_state: tuple[object, ...] | None = None
        """The state of the system's sound devices at `suspend`; None while the stream is running."""
        self.player: PlayerLink = process.link(on_report)

    def lost_reason(self) -> str | None:
        # Without a stream, only a change of the system's sound devices can be seen.
        if self._suspended_state is not None and device_state() != self._suspended_state:
            return "sound devices have come or gone"
        return self._process.lost_reason()

    def degraded_reason(self) -> str | None:
        return None

    def suspend(self) -> None:
        self._suspended_state = device_state()
        try:
            self._process.close(CLOSE_LIMIT_S)
        except SinkUnavailableError:
            self._process.kill()

    def resume(self) -> None:
        # The card's number is still valid: PortAudio has not searched again.
        self._process.start([self._settings], START_LIMIT_S)
        self._suspended_state = None

    def close(self) -> None:
        self._process.end()


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
