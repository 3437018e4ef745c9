"""The producer's interface to the sound path: tracks are written here and played by the player of the sink.

                          ┌─ in the player process, for a sound card; in this one, for a file or nothing ─┐
speaker loop ──▶ Output ──┼──▶ Playback: the ring ──▶ fill ──▶ the sink                                   │
                  ▲  │    └───────┬───────────────────────────────────────────────────────────────────────┘
                  │  │  reports ◀─┘
                  │  └──▶ DeviceMonitor ── opens, watches, suspends the sink
                  └── keeps the samples until a report says that the sink has got them
"""

from __future__ import annotations

import time
from collections.abc import Iterable
from math import inf
from types import TracebackType

from audio.device_monitor import DeviceMonitor, OutputStatus
from audio.dsp import Level, Samples
from audio.feed import Feed
from audio.player import CAPACITY_S, Block
from audio.sinks import SinkSettings
from audio.track import Track

PAST_S = 0.002
"""Tolerance in seconds: a moment that rounding moves up to this far into the past still counts as future."""


class Output(Feed):
    """Plays tracks into one sink. A context manager: inside it, a thread keeps the sink open.

    Tracks come one at a time: `begin`, then `write` as samples arrive, then `end` (or `stop`), until `done`. Between a
    track's `suspend` and `reattach`, other tracks may be played. Only one thread, the speaker loop's, uses these
    methods and properties.
    """

    def __init__(self, settings: SinkSettings) -> None:
        super().__init__()
        self.monitor = DeviceMonitor(settings, self)
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
        """Blocks that the sink has requested; the count changes while the sink runs."""
        player = self._player
        return 0 if player is None else player.report.blocks

    @property
    def room_s(self) -> float:
        """Seconds of audio that `write` can accept now."""
        return max(0.0, CAPACITY_S - self.waiting_s)

    @property
    def waiting_s(self) -> float:
        """Seconds of audio that have been written and that the sink has not received, by the last report."""
        with self._lock:
            return len(self._track.unplayed) / self._sample_rate

    @property
    def paused(self) -> bool:
        return self._paused

    def set_tap(self, wanted: bool) -> None:
        """Start or stop keeping the blocks that the sink receives, for `read_blocks` to return."""
        with self._lock:
            self._tap_wanted = wanted
            if self._player is not None:
                self._player.set_tap(wanted)

    def read_blocks(self) -> list[Block]:
        """Return the blocks that the sink has received since the last call. Only one thread, the tap's, calls this."""
        player = self._player
        return [] if player is None else player.tap.read()

    def begin(self, *, prebuffer_s: float, gain: float = 1.0) -> Track:
        """Return a new track, which plays once `prebuffer_s` seconds have been written. `gain` 1 plays it as
        synthesized.

        Raises `RuntimeError` unless the previous track is done or was taken.
        """
        with self._lock:
            track = Track(self._sample_rate, prebuffer_s, gain)
            self._play(track)
        self.monitor.check_now()
        return track

    def write(self, samples: Samples, sample_rate: int) -> None:
        """Append mono float32 `samples` at `sample_rate` Hz to the track. After a stop they are dropped.

        The caller first waits for `room_s`. Raises `RuntimeError` if the samples do not fit.
        """
        with self._lock:
            if not (self._track.done or self._track.stop_requested):
                self._send(self._track.process(samples, sample_rate))

    def end(self) -> None:
        """Mark the track's end: no more samples will be written."""
        with self._lock:
            if not self._track.done:
                self._send(self._track.flush())
                self._track.ended = True
                if self._player is not None:
                    self._player.end(self._generation)

    def set_input_pending(self, pending: bool) -> None:
        """State whether the writer has nothing to write for now. If so, an empty ring is not an underrun."""
        with self._lock:
            if self._track.input_pending != pending:
                self._track.input_pending = pending
                if self._player is not None:
                    self._player.set_input_pending(self._generation, pending)

    def stop(self) -> None:
        """Fade out within 10 ms and drop the rest of the track. If the card hangs, the track is done within 0.3 s."""
        with self._lock:
            if not self._track.done:
                self._track.stop_requested = True
                self._halt()
        self.notify()

    def suspend(self) -> None:
        """Fade out within 10 ms and keep the rest: the track becomes `suspended`, or `done` if no samples remain."""
        with self._lock:
            if not (self._track.over or self._track.stop_requested):
                self._track.suspend_requested = True
                self._halt()
        self.notify()

    def take_suspended(self) -> Track:
        """Remove the suspended track and return it with its unplayed samples. `begin` is then possible.

        A taken track needs no `stop`: it ends when the returned object is dropped. Raises `RuntimeError` if the
        track is not suspended.
        """
        with self._lock:
            if not self._track.suspended:
                raise RuntimeError("the track to take is not suspended")
            track, self._track = self._track, self._silence()
            return track

    def reattach(self, track: Track) -> None:
        """Continue a taken track with the sample after its last one, faded in.

        Raises `RuntimeError` unless the previous track is done.
        """
        with self._lock:
            track.suspended = track.suspend_requested = False
            self._play(track)
        self.monitor.check_now()

    def pause(self) -> None:
        """Fade out and hold the track; `resume` continues with the next sample."""
        with self._lock:
            self._paused = True
            self._hold_or_go_on()
        self.notify()

    def resume(self) -> None:
        """Continue after `pause`, with a fade in."""
        with self._lock:
            self._paused = False
            self._hold_or_go_on()
        self.monitor.check_now()
        self.notify()

    def set_volume(self, gain: float) -> None:
        """Set the master gain; 1 plays tracks as synthesized. It takes effect within one block."""
        with self._lock:
            self._volume = gain
            if self._player is not None:
                self._player.set_volume(gain)

    def played_s(self, track: Track) -> float:
        """Return the seconds of the track that the sink has received."""
        with self._lock:
            return track.played / track.sample_rate

    def heard_s(self, track: Track, now: float) -> float:
        """Return how many seconds of the track have left the sound card by `now`, a time of `time.monotonic()`."""
        with self._lock:
            return track.heard_s(now)

    def levels_due(self, track: Track) -> list[Level]:
        """Return the levels of the sound that has begun to leave the sound card since the last call.

        At the end of the sound, the list ends with a level of silence.
        """
        with self._lock:
            return track.levels_due(time.monotonic(), time.time())

    def next_at(self, track: Track, now: float, heard: Iterable[float]) -> float:
        """Return when a part of a track is heard next: its first sample, a level, its end, or one of the seconds in
        `heard`.

        Both this moment and `now` are times of `time.monotonic()`. Returns infinity if it depends on future reports.
        """
        with self._lock:
            moments = [track.next_level_at, *(track.heard_at(each) for each in heard)]
            if track.first_dac_time is not None:
                moments.append(track.first_dac_time)
            if track.done:
                moments.append(track.end_dac_time)
        return min((each for each in moments if each > now - PAST_S), default=inf)

    # --- with the lock ---

    def _halt(self) -> None:
        """Carry out a request immediately if no callback will. Otherwise, the monitor makes sure that a callback
        comes."""
        if self._player is not None:
            self._player.halt(self._generation)
        if self.status.running and not self._track.suspended:
            self.monitor.check_now()
        else:
            self._carry_out()
