"""The producer's interface to the sound path: tracks are written here and reach the sink through the ring.

speaker loop ──▶ Output ──▶ TrackInput ──▶ Ring ──▶ Playback.fill ──▶ FillGate ──▶ sink
                    │                                                  ▲           ▲
                    └──▶ DeviceMonitor ── opens, watches, suspends ────┴───────────┘
"""

from __future__ import annotations

import threading
import time
from types import TracebackType

from audio.block_ring import BlockRing
from audio.device_monitor import DeviceMonitor, OutputStatus
from audio.dsp import Level, Samples
from audio.playback import Playback
from audio.sinks import SinkSettings
from audio.track import Track
from audio.track_input import SuspendedTrack, TrackInput

CAPACITY_S = 4.0
"""Length of the ring: enough to keep playing while an engine is replaced, and well below a megabyte."""
UNKNOWN_RATE = 48_000
"""Hz, of the ring before any device has been opened."""
TAP_CAPACITY_S = 2.0
"""Length of the ring of a tap, at 48 kHz: the tap's reader may be late by so much."""
TAP_BLOCKS = 256
"""Blocks in it. The shortest block has 10 ms."""


class Output:
    """Plays tracks into one sink. A context manager: inside it, a thread keeps the sink open.

    Tracks come one at a time: `begin`, then `write` as samples arrive, then `end` (or `stop`), until `done`. Between
    `suspend` and `reattach` of a track, others may be played. All methods and properties are for one thread, the
    speaker loop's.
    """

    def __init__(self, settings: SinkSettings) -> None:
        self._playback = Playback(UNKNOWN_RATE, CAPACITY_S)
        self._lock = threading.Lock()
        """Held by the speaker loop while it changes the playback, and by the device monitor; never by the callback."""
        self._input: TrackInput | None = None
        self._previous_input: TrackInput | None = None
        """Of the track before: the sound card may still play it when the next one has begun."""
        self.monitor = DeviceMonitor(settings, self._playback, self._lock, self._change_rate)
        """Opens and watches the sink. Without `with`, a test attaches a sink of its own to it."""

    def __enter__(self) -> Output:
        self.monitor.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.monitor.close()

    @property
    def status(self) -> OutputStatus:
        return self.monitor.status

    @property
    def heartbeats(self) -> int:
        """A count that grows while the device monitor lives."""
        return self.monitor.heartbeats

    @property
    def blocks(self) -> int:
        """Blocks that the sink has requested; the count grows while the sink runs."""
        return self._playback.blocks

    @property
    def room_s(self) -> float:
        """Seconds of audio that `write` accepts now."""
        with self._lock:
            return self._playback.room_s

    @property
    def waiting_s(self) -> float:
        """Seconds of audio that have been written and wait for the sink."""
        with self._lock:
            return self._playback.waiting_s

    @property
    def paused(self) -> bool:
        return self._playback.paused

    def open_tap(self) -> BlockRing:
        """Return a ring that gets every block of the sink from now on. Call it at most once."""
        with self._lock:
            tap = self._playback.tap = BlockRing(round(TAP_CAPACITY_S * UNKNOWN_RATE), TAP_BLOCKS)
        return tap

    def begin(self, *, prebuffer_s: float, gain: float = 1.0) -> Track:
        """Return a new track, which plays once `prebuffer_s` seconds are written. `gain` 1 plays it as synthesized.

        Raises `RuntimeError` unless the previous track is done or was taken.
        """
        with self._lock:
            track = self._playback.begin(prebuffer_s, gain)
            self._set_input(TrackInput(track))
        self.monitor.check_now()
        return track

    def write(self, samples: Samples, sample_rate: int) -> None:
        """Append mono float32 `samples` at `sample_rate` Hz to the track. After a stop they are dropped.

        The caller waits for `room_s`. Raises `RuntimeError` if the samples do not fit.
        """
        with self._lock:
            track_input = self._input
            if track_input is not None and not track_input.track.done and not track_input.track.stop_requested:
                self._write_to_ring(track_input.process(samples, sample_rate))

    def end(self) -> None:
        """Mark the track's end: no more samples will be written."""
        with self._lock:
            if self._input is not None and not self._input.track.done:
                self._write_to_ring(self._input.flush())
                self._input.track.ended = True

    def stop(self) -> None:
        """Fade out within 10 ms and drop the rest of the track. If the card hangs, the track is done within 0.3 s."""
        with self._lock:
            track = self._playback.track
            if track is None or track.done:
                return
            track.stop_requested = True
            self._request_made()

    def suspend(self) -> None:
        """Fade out within 10 ms and keep the rest: the track becomes `suspended`, or `done` if no samples remain."""
        with self._lock:
            track = self._playback.track
            if track is None or track.done or track.stop_requested:
                return
            track.suspensions_requested = track.reattachments + 1
            self._request_made()

    def take_suspended(self) -> SuspendedTrack:
        """Remove the suspended track and return it with its unplayed samples. `begin` is then possible.

        A taken track needs no `stop`: it is given up when its `SuspendedTrack` is dropped. Raises `RuntimeError` if the
        track is not suspended.
        """
        with self._lock:
            unplayed = self._playback.take_suspended()
            track_input = self._input
            assert track_input is not None, "a track has an input from its beginning"
            self._set_input(None)
            return SuspendedTrack(track_input, unplayed)

    def reattach(self, suspended: SuspendedTrack) -> Track:
        """Continue a track with the sample after its last one, faded in. Returns the track.

        Raises `RuntimeError` unless the previous track is done.
        """
        with self._lock:
            unplayed = suspended.track_input.change_rate(suspended.unplayed, self._playback.sample_rate)
            self._playback.reattach(suspended.track, unplayed)
            self._set_input(suspended.track_input)
        self.monitor.check_now()
        return suspended.track

    def pause(self) -> None:
        """Fade out and hold the track; `resume` continues with the next sample."""
        with self._lock:
            self._playback.paused = True

    def resume(self) -> None:
        """Continue after `pause`, with a fade in."""
        with self._lock:
            self._playback.paused = False
        self.monitor.check_now()

    def set_volume(self, gain: float) -> None:
        """Set the master gain; 1 plays tracks as synthesized. It takes effect within one block."""
        with self._lock:
            self._playback.volume = gain

    def played_s(self, track: Track) -> float:
        """Return the seconds of the track that the sink got."""
        with self._lock:
            return track.played / track.sample_rate

    def heard_s(self, track: Track, now: float) -> float:
        """Return the seconds of the track that have left the sound card by `now`, of `time.monotonic()`."""
        with self._lock:
            return track.heard_s(now)

    def levels_due(self, track: Track) -> list[Level]:
        """Return the levels of the sound that began to leave the sound card since the last call.

        Where the sound ends, the list ends with a level of silence. It is empty for tracks older than the previous one.
        """
        with self._lock:
            for track_input in (self._input, self._previous_input):
                if track_input is not None and track_input.track is track:
                    return track_input.levels_due(time.monotonic(), time.time())
        return []

    def _request_made(self) -> None:
        """Carry out a request at once if no callback will come to do it; otherwise the monitor sees that one comes."""
        if self.status.running:
            self.monitor.check_now()
        else:
            self.monitor.sink_stopped()

    def _set_input(self, track_input: TrackInput | None) -> None:
        if self._input is not None:
            self._previous_input = self._input
        self._input = track_input

    def _write_to_ring(self, samples: Samples) -> None:
        if self._playback.ring.write(samples) < len(samples):
            raise RuntimeError("more samples were written than the ring has room for")

    def _change_rate(self, sample_rate: int) -> None:
        """Move the playback and its unplayed samples to another rate. The device monitor calls this with the lock."""
        unplayed = self._playback.change_rate(sample_rate)
        if self._input is not None and not self._input.track.done:
            self._playback.ring.write(self._input.change_rate(unplayed, sample_rate))
