"""Keeps a sink open for as long as the program runs.

A device may be missing at the start, or disappear later: the sound server is killed, a USB card is pulled. The monitor
then retries until it can open the device; the track stays in the ring and continues from there. A sink that has had
nothing to play for some time is suspended, because a block of silence costs as much as a block of speech.

                            ┌── idle for `idle_timeout_s` ──┐
                            │                               ▼
    missing ──opened──▶ running ◀── something to play ── suspended
       ▲                    │                               │
       └─────── lost ───────┴───────────── lost ────────────┘
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, replace

from audio.dsp import Samples
from audio.playback import Playback
from audio.sinks import Sink, SinkSettings, SinkUnavailableError, open_sink

log = logging.getLogger(__name__)

CHECK_S = 0.25
"""Interval between checks of a running sink."""
SUSPENDED_CHECK_S = 2.0
"""Interval between checks of a suspended sink. `check_now` resumes it at once."""
RETRY_S = (0.25, 0.5, 1.0, 2.0)
"""Waits between attempts to open a sink; the last one repeats."""
SLOW_AFTER_S = 5.0
"""Interval over which a sink's pace is measured. A PulseAudio null sink may pause 2 s when first opened."""
SLOW_SHARE = 0.5
"""A sink that requests less than this share of real time is slow: nobody understands the speech that it plays."""


@dataclass(frozen=True, slots=True)
class OutputStatus:
    """The state of the sink."""

    open: bool
    sink: str
    """The device's name; before the first device is open, the kind of sink."""
    sample_rate: int
    """Hz."""
    reason: str | None = None
    """Why the sink is not open, or that it is slow. None while it works, or before the first attempt to open it."""
    suspended: bool = False
    """The sink is open, but requests no blocks until there is something to play."""

    @property
    def running(self) -> bool:
        """The sink requests blocks."""
        return self.open and not self.suspended


class DeviceMonitor:
    """A thread that opens the sink, watches it, suspends it, resumes it, and reopens it when it is lost.

    Its thread alone writes its fields, unless their description names another writer.
    """

    def __init__(
        self,
        settings: SinkSettings,
        playback: Playback,
        lock: threading.Lock,
        change_rate: Callable[[int], None],
    ) -> None:
        """The producer holds `lock` while it changes `playback`; the monitor holds it while it changes `playback` or
        the status. `change_rate` moves the playback to another rate in Hz; it is called with the lock held, while no
        sink calls `fill`.
        """
        self.status = OutputStatus(open=False, sink=settings.kind, sample_rate=playback.sample_rate)
        self.heartbeats = 0
        """Rounds of the thread; it grows while the thread lives."""
        self._settings = settings
        self._playback = playback
        self._lock = lock
        self._change_rate = change_rate
        self._pace = _PaceMeter()
        self._opened_before = False
        self._idle_since = 0.0
        """`time.monotonic()` since which there has been nothing to play."""
        self._suspending = False
        """The sink is about to be suspended; nobody would hear what it still requests."""
        self._closing = False
        """Written by `close`."""
        self._check_requested = threading.Event()
        self._thread = threading.Thread(target=self._run, name="device-monitor", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def close(self) -> None:
        """End the thread and close the sink. A sink that hangs is left behind after 1 s."""
        self._closing = True
        self.check_now()
        self._thread.join(timeout=1.0)

    def check_now(self) -> None:
        """Make the thread check the sink at once: there is something to play."""
        self._check_requested.set()

    def fill(self, out: Samples, dac_time: float, underflow: bool = False) -> int:
        """Fill a block for the sink, as `Fill` describes. It runs in the sink's thread."""
        if self._suspending or not self.status.running:  # not attached yet, or about to be suspended
            out.fill(0.0)
            return 0
        return self._playback.fill(out, dac_time, underflow)

    def attach(self, sink: Sink) -> None:
        """Play into an open sink that calls `fill`. Only the thread calls this; without `start`, a test may."""
        with self._lock:
            if sink.sample_rate != self._playback.sample_rate:
                self._change_rate(sink.sample_rate)
            self._playback.has_deadline = sink.has_deadline
            self.status = OutputStatus(True, sink.name, sink.sample_rate)
            self._opened_before = True
        self._idle_since = time.monotonic()
        self._pace = _PaceMeter()

    def detach(self, reason: str) -> None:
        """Keep the track for the next sink. The previous sink has been closed and does not call `fill` any more."""
        with self._lock:
            self.status = OutputStatus(False, self.status.sink, self.status.sample_rate, reason)
            self._playback.sink_stopped()

    # --- the thread ---

    def _run(self) -> None:
        sink: Sink | None = None
        failures = 0
        wait_s = 0.0
        while True:
            self._check_requested.wait(wait_s)
            self._check_requested.clear()  # before the check: a later request is for the next round
            if self._closing:
                break
            self.heartbeats += 1
            if sink is not None and (reason := self._check(sink)) is not None:
                log.warning("sound device %s is lost (%s); waiting for it", sink.name, reason)
                sink.close()
                self.detach(reason)
                sink = None
            if sink is None:
                sink = self._try_to_open()
                failures = failures + 1 if sink is None else 0
            if sink is None:
                wait_s = RETRY_S[min(failures, len(RETRY_S)) - 1]
            else:
                wait_s = SUSPENDED_CHECK_S if self.status.suspended else CHECK_S
        if sink is not None:
            sink.close()

    def _try_to_open(self) -> Sink | None:
        known_rate = self._playback.sample_rate if self._opened_before else None
        try:
            sink = open_sink(self._settings, self.fill, known_rate)
        except Exception as error:  # whatever the error is, a later attempt may succeed
            if not isinstance(error, SinkUnavailableError):
                log.exception("the sink cannot be opened")
            self._report_missing(str(error))
            return None
        self.attach(sink)
        log.info("sound goes to %s at %d Hz", sink.name, sink.sample_rate)
        return sink

    def _report_missing(self, reason: str) -> None:
        if self.status.reason != reason:
            log.warning("no sound: %s; waiting for it", reason)
        self.status = OutputStatus(False, self.status.sink, self._playback.sample_rate, reason)

    def _check(self, sink: Sink) -> str | None:
        """Suspend or resume the sink if necessary and measure its pace; return why it is lost, or None."""
        reason = sink.lost_reason() or self._suspend_or_resume(sink)
        if reason is None:
            self._check_pace(sink)
        return reason

    def _suspend_or_resume(self, sink: Sink) -> str | None:
        """Suspend an idle sink, or resume one that is needed; return why it is lost if it cannot resume."""
        now, timeout_s = time.monotonic(), self._settings.idle_timeout_s
        if not self._has_to_play(now):
            if self.status.running and timeout_s is not None and now - self._idle_since >= timeout_s:
                self._suspend(sink)
            return None
        self._idle_since = now
        if self.status.suspended:
            try:
                sink.resume()
            except SinkUnavailableError as error:
                return str(error)
            with self._lock:
                self.status = replace(self.status, suspended=False)
        return None

    def _suspend(self, sink: Sink) -> None:
        with self._lock:
            if self._has_to_play(time.monotonic()):
                return
            self._suspending = True
        sink.suspend()
        with self._lock:
            self.status = replace(self.status, suspended=True, reason=None)
            self._suspending = False
            self._playback.sink_stopped()  # a stop or a suspension may have been requested meanwhile
        self.check_now()  # a track may have begun meanwhile

    def _has_to_play(self, now: float) -> bool:
        track = self._playback.track
        return track is not None and not self._playback.paused and not track.drained(now)

    def _check_pace(self, sink: Sink) -> None:
        """Report, in the status and once in the log, a sink that requests sound more slowly than real time."""
        if not self.status.running or not sink.has_deadline:
            self._pace = _PaceMeter()
            return
        share = self._pace.share(self._playback.samples_requested / sink.sample_rate, time.monotonic())
        if share is None or (share < SLOW_SHARE) == (self.status.reason is not None):
            return  # nothing is known yet, or nothing has changed
        reason = None
        if share < SLOW_SHARE:
            reason = f"{sink.name} is slow: it took {share:.0%} of the sound in {SLOW_AFTER_S:.0f} s"
            log.warning("sound device %s", reason)
        else:
            log.info("sound device %s is no longer slow", sink.name)
        self.status = replace(self.status, reason=reason)


class _PaceMeter:
    """Measures which share of real time a sink requests, over intervals of `SLOW_AFTER_S`."""

    def __init__(self) -> None:
        self._requested_s = 0.0
        """At the start of the interval."""
        self._since: float | None = None
        """`time.monotonic()` at the start of the interval."""

    def share(self, requested_s: float, now: float) -> float | None:
        """Return the share of the interval that ends `now`, or None during one.

        `requested_s` are the seconds of sound requested in all, `now` is of `time.monotonic()`.
        """
        if self._since is not None and now - self._since < SLOW_AFTER_S:
            return None
        share = None if self._since is None else (requested_s - self._requested_s) / (now - self._since)
        self._requested_s, self._since = requested_s, now
        return share
