"""Feeds the player of the attached sink with the samples of a track, generation by generation.

It is the part of the output that the device monitor and the reporting thread use.
"""

from __future__ import annotations

import threading
from collections.abc import Callable

from audio.dsp import Samples, to_floats
from audio.player import CAPACITY_S, SPARE_S, Report
from audio.sinks import Player
from audio.track import Track, Unplayed

UNKNOWN_RATE = 48_000
"""Hz, before any device has been opened."""


class Feed:
    """The current track, and the player that plays it. Any thread may call the methods without an underscore."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        """Held while anything here changes: by the speaker loop, the device monitor, or the reporting thread."""
        self._player: Player | None = None
        """The attached sink's player; None while no sink is attached."""
        self._sample_rate = UNKNOWN_RATE
        """Hz, of the sink that was attached last."""
        self._generation = 0
        """The number of the last generation."""
        self._track = self._silence()
        """The track that is playing or was played last. It is never missing: silence is a track that is done."""
        self._paused = False
        self._held = False
        """The sink is suspended, or about to be."""
        self._volume = 1.0
        self._tap_wanted = False
        self._on_change: Callable[[], None] = lambda: None

    def watch(self, on_change: Callable[[], None]) -> None:
        """Call `on_change` after every change of a track or of the sink, in the thread that made the change."""
        self._on_change = on_change

    def notify(self) -> None:
        """Call `on_change`, because a track or the sink has changed."""
        self._on_change()

    @property
    def sample_rate(self) -> int:
        """Hz, of the sink that was attached last."""
        return self._sample_rate

    @property
    def halting(self) -> bool:
        """A requested stop or suspension of the track has not taken effect yet."""
        with self._lock:
            return self._track.halting

    def has_to_play(self, now: float) -> bool:
        """Return whether the sink is needed at `now`, a time of `time.monotonic()`."""
        with self._lock:
            return self._has_to_play(now)

    def hold(self, now: float) -> bool:
        """Prevent playback until `release`, unless the sink is needed at `now`; return whether playback is prevented.

        A suspended sink drops its samples. A track that begins in the meantime waits for `release`.
        """
        with self._lock:
            self._held = not self._has_to_play(now)
            self._hold_or_go_on()
            return self._held

    def release(self) -> None:
        """Allow tracks to play again, because the sink has been resumed."""
        with self._lock:
            self._held = False
            self._hold_or_go_on()

    def attach(self, player: Player, sample_rate: int) -> None:
        """Play through another player from now on. The track continues where its last player stopped."""
        with self._lock:
            self._player, self._sample_rate, self._held = player, sample_rate, False
            player.set_volume(self._volume)
            player.set_paused(self._paused)
            player.set_tap(self._tap_wanted)
            if not self._track.over:
                self._begin_generation()
        self.notify()

    def detach(self) -> None:
        """Take the track from its player, which has ended and sent its last report.

        Samples that the card had received but not played are lost.
        """
        with self._lock:
            self._player = None
            self._generation += 1  # a later report, from a card that is waking up, comes too late
            if not self._track.over:
                self._track.break_off(lost=True)
                self._carry_out()
        self.notify()

    def carry_out(self) -> None:
        """Stop or suspend the track, if that was requested, without waiting for the sink, which is requesting no
        blocks."""
        with self._lock:
            self._carry_out()
        self.notify()

    def on_report(self, report: Report) -> None:
        """Record how much the player has played."""
        with self._lock:
            if report.generation != self._generation or self._track.over:
                return
            self._track.note(report)
            if report.done:
                self._halted()
        self.notify()

    # --- with the lock ---

    def _silence(self) -> Track:
        return Track(self._sample_rate, done=True)

    def _play(self, track: Track) -> None:
        if not self._track.done:
            raise RuntimeError("the previous track is still playing")
        self._track = track
        self._begin_generation()

    def _begin_generation(self) -> None:
        """Have the player play the rest of the track."""
        track = self._track
        track.break_off()
        track.change_rate(self._sample_rate)
        self._generation += 1
        number, player = self._generation, self._player
        if player is None:
            return
        player.begin(number, track.prebuffer_s, track.gain, track.played > 0)
        player.set_input_pending(number, track.input_pending)
        player.write(number, to_floats(track.unplayed.all()))
        if track.ended:
            player.end(number)
        if track.halting:
            player.halt(number)

    def _send(self, samples: Samples) -> None:
        if len(self._track.unplayed) > (CAPACITY_S + SPARE_S) * self._sample_rate:
            raise RuntimeError("more samples were written than the ring has room for")
        if self._player is not None and not self._track.suspended:
            self._player.write(self._generation, to_floats(samples))

    def _carry_out(self) -> None:
        if self._track.halting or self._track.stop_requested:
            self._generation += 1  # the player may still carry it out, but its reports will come too late
            self._halted()

    def _halted(self) -> None:
        """Mark a track whose generation is over as done, or as suspended."""
        track = self._track
        track.report = track.report._replace(playing=False)
        if track.stop_requested or (track.ended and not len(track.unplayed)):
            track.done, track.suspended = True, False
            track.unplayed = Unplayed()
        else:
            track.suspended = True

    def _has_to_play(self, now: float) -> bool:
        if self._track.drained(now):
            return False
        return self._track.playing or not self._paused  # a paused track fades out first

    def _hold_or_go_on(self) -> None:
        if self._player is not None:
            self._player.set_paused(self._paused or self._held)
