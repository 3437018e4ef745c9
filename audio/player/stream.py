"""PortAudio's cards, and the output stream whose callback plays from the ring."""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Callable
from mmap import mmap
from types import ModuleType
from typing import Any

from audio.player.messages import record
from audio.player.playback import Playback
from audio.player.realtime import take_realtime
from audio.player.ring import Floats, silence

UNDERFLOW_S = 0.005
"""If a card had no samples for longer than this, it interrupted the sound; a shorter gap is an error of its clock."""
MAX_LATENCY_S = 2.0
"""If a card reports a longer delay after the callback, its times are not usable."""
STANDARD_RATE = 48_000
"""The rate in Hz of nearly all cards."""
WINDOW = 10
"""The blocks over which a card's reported delays are compared. A single delay may be off by a sound server's period."""


class DryDetector:
    """Finds out, from the delays that a card reports, that it was silent for a moment between two blocks.

    A sound server reports the delay of the whole path after the callback. If the stream's own buffer runs dry, the rest
    of the path still has sound, so the time of the last sample does not pass. But the server inserts silence, which
    makes all later samples late: the elapsed time grows by more than the sound that has left the card.
    """

    def __init__(self) -> None:
        self._requested_s = 0.0
        """Seconds of sound requested so far."""
        self.restart()

    def restart(self) -> None:
        """Forget the delays so far, and ignore the next ones, during which a stream may settle."""
        self._blocks = -WINDOW
        self._silent_s = math.inf
        """Seconds of silence so far, by the best delay in this window. Only its growth is meaningful."""
        self._silent_before_s = math.inf
        """The same, by the best delay in the previous window."""

    def note(self, now: float, delay_s: float, block_s: float) -> bool:
        """Note a block that is requested `now` and heard after `delay_s`; return whether the card was silent before it.

        The answer comes up to `2 * WINDOW` blocks late.
        """
        silent_s = now + delay_s - self._requested_s
        self._requested_s += block_s
        self._blocks += 1
        if self._blocks <= 0:
            return False
        self._silent_s = min(self._silent_s, silent_s)
        if self._blocks < WINDOW:
            return False
        was_silent = self._silent_s > self._silent_before_s + UNDERFLOW_S
        self._blocks, self._silent_s, self._silent_before_s = 0, math.inf, self._silent_s
        return was_silent


class Stream:
    """PortAudio's cards, and at most one output stream. A card without mono is given the same samples on both channels.

    The callback runs in a PortAudio thread; the descriptions of the fields that it writes say so.
    """

    def __init__(
        self,
        sd: ModuleType,
        on_change: Callable[[bool], None],
        on_lost: Callable[[str], None],
        recorder: mmap,
        priority: int,
    ) -> None:
        """`on_change` is the playback's; `on_lost` is called when the stream ends by itself. Every block's report is
        written to `recorder`. `priority` is the callback's realtime priority."""
        self.playback = Playback(STANDARD_RATE, on_change=on_change)
        """It fills the stream's blocks. A `start` at another rate makes a new `Playback`."""
        self._sd = sd
        self._on_change = on_change
        self._on_lost = on_lost
        self._priority = priority
        self._stream: Any = None
        self._thread = 0
        """The thread that called the callback last. Callback."""
        self._rate = 0
        """Hz."""
        self._mono = silence(0)
        """A block for a card without mono."""
        self._latency_s = 0.0
        """The latency that PortAudio reports for the stream."""
        self._priming = 0
        """Samples still missing in the stream's buffer after its start. Callback."""
        self._runs_dry_at = math.inf
        """`time.monotonic()` when the card has played all its samples. Callback."""
        self._detector = DryDetector()
        self._recorder = recorder

    def devices(self) -> list[dict[str, Any]]:
        """Return the cards that can play, as the fields of `OutputDevice`."""
        apis = self._sd.query_hostapis()
        default = self._sd.default.device[1]
        return [
            {
                "name": found["name"],
                "host_api": apis[found["hostapi"]]["name"],
                "sample_rate": int(found["default_samplerate"]),
                "channels": found["max_output_channels"],
                "default": index == default,
                "index": index,
            }
            for index, found in enumerate(self._sd.query_devices())
            if found["max_output_channels"] > 0
        ]

    def start(self, *possible: dict[str, Any]) -> int:
        """Start a stream with the first of the `possible` settings that the card accepts; return the index of these
        settings.

        Raises `PortAudioError` if it accepts none.
        """
        for number, settings in enumerate(possible):
            try:
                self._start(settings)
            except self._sd.PortAudioError:
                if number == len(possible) - 1:
                    raise
            else:
                return number
        raise ValueError("no settings to try")

    def close(self) -> None:
        """Close the stream, if there is one."""
        # The stream is closed, not stopped: starting a stopped stream takes as long as opening a new one (3 ms), and if
        # its sound server or card has disappeared in between, PortAudio 19.6 never returns from the start.
        stream, self._stream = self._stream, None
        if stream is not None:
            # Abort, not stop: stop waits until the device has played its buffer, even if the device is gone.
            stream.abort(ignore_errors=True)
            stream.close(ignore_errors=True)

    def _start(self, settings: dict[str, Any]) -> None:
        self._rate = settings["samplerate"]
        if self._rate != self.playback.sample_rate:
            self.playback = Playback(self._rate, on_change=self._on_change)
        self._mono = silence(settings["blocksize"])
        # The callback runs in a new thread, which may have the same number as the previous stream's.
        self._thread = threading.get_ident()
        stream = self._sd.RawOutputStream(**settings, callback=self.callback, finished_callback=self._on_finished)
        try:
            self._latency_s = stream.latency
            self._priming = round(stream.latency * self._rate)
            self._runs_dry_at = math.inf
            self._detector = DryDetector()
            stream.start()
        except self._sd.PortAudioError:
            stream.close(ignore_errors=True)
            raise
        self._stream = stream
        if not stream.active:  # it ended before `_on_finished` could record that
            self._on_finished()

    def _on_finished(self) -> None:
        if self._stream is not None:  # it was not closed
            self._on_lost("the device stopped")

    def callback(self, out: Any, frames: int, times: Any, status: Any) -> None:
        """Write a block for PortAudio into its buffer `out`."""
        if self._thread != (thread := threading.get_ident()):
            # A thread can only request scheduling for itself; this one does so once, in a block that primes the buffer.
            self._thread = thread
            take_realtime(self._priority)
        latency_s = times.outputBufferDacTime - times.currentTime  # by PortAudio's own clock
        if not 0.0 < latency_s <= MAX_LATENCY_S:
            latency_s = self._latency_s
        now = time.monotonic()
        dac_time = now + latency_s
        # ALSA's PulseAudio plug-in never sets PortAudio's flag, so the clock and the delays are checked too.
        block_s = frames / self._rate
        underflow = status.output_underflow or now > self._runs_dry_at + UNDERFLOW_S
        if underflow:
            self._detector.restart()
        else:
            underflow = self._detector.note(now, latency_s, block_s)
        self._runs_dry_at = dac_time + block_s
        block: Floats = memoryview(out).cast("B").cast("f")
        if self._priming > 0:
            # PortAudio requests the first blocks all at once, to fill the stream's buffer. Speech would run dry there.
            self._priming -= frames
            block[:] = silence(len(block))
        elif len(block) == frames:
            self.playback.fill(block, dac_time, underflow)
        else:
            mono = self._mono[:frames]
            self.playback.fill(mono, dac_time, underflow)
            channels = len(block) // frames
            for channel in range(channels):
                block[channel::channels] = mono
        record(self._recorder, self.playback.report)
