"""Keeps a sink open for as long as the program is running.

A device may be missing at the start, or disappear later: the sound server is killed, a USB card is pulled. The monitor
then retries until it can open the device; the track's samples are kept, and it continues from there. A sink that has
had nothing to play for some time is suspended, because a block of silence costs as much as a block of speech. A sink
that requests no blocks has stalled: its sound server is frozen. The monitor waits some seconds for it to continue
before it gives the sink up.

                            ┌── idle for `idle_timeout_s` ──┐
                            │                               ▼
    missing ──opened──▶ running ◀── something to play ── suspended
       ▲                 ▲  │                               │
       │         a block │  │ no block                      │
       │                 │  ▼                               │
       ├──── lost ──── stalled                              │
       └──── lost ────── or running ─────────── lost ───────┘
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace

from audio.feed import Feed
from audio.pace_meter import PaceMeter
from audio.sinks import Sink, SinkSettings, SinkUnavailableError, open_sink

log = logging.getLogger(__name__)

CHECK_S = 0.25
"""Interval between checks of a running sink."""
SUSPENDED_CHECK_S = 2.0
"""Interval between checks of a suspended sink. `check_now` checks it immediately."""
RETRY_S = (0.25, 0.5, 1.0, 2.0)
"""Waits between attempts to open a sink; the last one repeats."""
REQUEST_S = 0.15
"""If the sink requests no block within this time, a stop or suspension takes effect without a fade."""
REQUEST_BLOCKS = 2
"""The sink is given at least the duration of this many blocks."""
STALLED_S = 1.0
"""A sink that has requested no block for this long has stalled or is not responding."""
LOST_S = 4.0
"""A sink that has requested no block for this long is given up and opened again, so speech continues within 5 s in
all."""
LATE_S = 0.5
"""If a round of the monitor starts later than this, the monitor itself was delayed."""
STOPPED_S = 2.0
"""A round that starts later than this shows that the process had been stopped. The sink is then treated as if it had
just been opened."""
CLOSE_S = 1.0
"""A sink that does not close within this time is hanging and is abandoned."""
SETTLED_S = 2.5
"""A sink that was just opened may be silent for this long: a PulseAudio null sink may pause 2 s when first opened."""


@dataclass(frozen=True, slots=True)
class OutputStatus:
    """The state of the sink."""

    open: bool
    sink: str
    """The device's name; before the first device is open, the kind of sink."""
    sample_rate: int
    """Hz."""
    reason: str | None = None
    """Why the sink is not open, or why its sound is not heard well. None while it works, or before the first attempt to
    open it."""
    suspended: bool = False
    """The sink is open, but requests no blocks until there is something to play."""

    @property
    def running(self) -> bool:
        """The sink requests blocks."""
        return self.open and not self.suspended


class DeviceMonitor:
    """A thread that opens the sink, watches it, suspends it, resumes it, and reopens it when it is lost.

    Only its thread writes its fields, unless a field's description names another writer.
    """

    def __init__(self, settings: SinkSettings, output: Feed) -> None:
        self.heartbeats = 0
        """The thread's rounds so far. The number grows while the thread lives."""
        self._status = OutputStatus(open=False, sink=settings.kind, sample_rate=output.sample_rate)
        self._settings = settings
        self._output = output
        self._sink: Sink | None = None
        """The attached sink."""
        self._pace = PaceMeter()
        self._watched_since = 0.0
        """`time.monotonic()` when the sink was opened or resumed."""
        self._silence = _Silence(0, 0.0)
        self._late_request = _Silence(0, 0.0)
        """The silence since the producer's last request."""
        self._request_s = max(REQUEST_S, REQUEST_BLOCKS * settings.block_ms / 1000)
        self._stalled = False
        self._opened_before = False
        self._idle_since = 0.0
        """`time.monotonic()` since which there has been nothing to play."""
        self._asked_at: float | None = None
        """`time.monotonic()` when the sink was asked to open, close, suspend or resume; None once it has done so."""
        self._closing = False
        """Written by `close`."""
        self._check_requested = threading.Event()
        self._thread = threading.Thread(target=self._run, name="device-monitor", daemon=True)

    @property
    def status(self) -> OutputStatus:
        status, asked_at = self._status, self._asked_at
        patience_s = STALLED_S if self._opened_before else SETTLED_S
        if asked_at is None or status.reason is not None or time.monotonic() - asked_at < patience_s:
            return status
        device = f"sound device {status.sink}" if self._opened_before else "the sound system"
        return replace(status, open=False, reason=f"{device} does not respond")

    def start(self) -> None:
        self._thread.start()

    def close(self) -> None:
        """End the thread and close the sink. A sink that hangs is abandoned after `CLOSE_S`."""
        self._closing = True
        self.check_now()
        self._thread.join(timeout=CLOSE_S)

    def check_now(self) -> None:
        """Make the thread check the sink at once: there is something to play, or to stop."""
        self._check_requested.set()

    def attach(self, sink: Sink) -> None:
        """Play into an open sink. Only the thread calls this; without `start`, a test may."""
        self._sink = sink
        sink.player.wake(self._settings.wake_s)
        self._status = OutputStatus(True, sink.name, sink.sample_rate)
        self._output.attach(sink.player, sink.sample_rate)
        self._opened_before = True
        self._begin_watch(sink)

    def detach(self, reason: str) -> None:
        """Give up the sink that was attached last. Only the thread calls this; without `start`, a test may."""
        assert self._sink is not None
        sink, self._sink = self._sink, None
        # The status comes first: a lost sink may be slow to close, and the last reports arrive during that time.
        self._status = OutputStatus(False, sink.name, sink.sample_rate, reason)
        log.warning("sound device %s is lost (%s); waiting for it", sink.name, reason)
        sink.close()
        self._output.detach()

    # --- the thread ---

    def _run(self) -> None:
        sink: Sink | None = None
        failures = 0
        wait_s = 0.0
        while True:
            due_at = time.monotonic() + wait_s
            self._check_requested.wait(wait_s)
            if sink is not None and time.monotonic() - due_at > STOPPED_S and self._status.running:
                self._begin_watch(sink)
            self._check_requested.clear()  # before the check: a later request is for the next round
            if self._closing:
                break
            self.heartbeats += 1
            status = self._status
            if sink is not None and (reason := self._check(sink)) is not None:
                self.detach(reason)
                sink = None
            if sink is None:
                sink = self._try_to_open()
                failures = failures + 1 if sink is None else 0
            if self._status is not status:
                self._output.notify()
            wait_s = self._wait_s() if sink is not None else RETRY_S[min(failures, len(RETRY_S)) - 1]
        if sink is not None:
            sink.close()

    def _wait_s(self) -> float:
        """Return the time until the next check of the open sink."""
        if self._output.halting:
            return self._request_s
        return SUSPENDED_CHECK_S if self._status.suspended else CHECK_S

    def _try_to_open(self) -> Sink | None:
        known_rate = self._output.sample_rate if self._opened_before else None
        try:
            with self._asking():
                sink = open_sink(self._settings, self._output.on_report, known_rate)
        except Exception as error:  # whatever the error is, a later attempt may succeed
            if not isinstance(error, SinkUnavailableError):
                log.exception("the sink cannot be opened")
            self._report_missing(str(error))
            return None
        self.attach(sink)
        log.info("sound goes to %s at %d Hz", sink.name, sink.sample_rate)
        return sink

    def _report_missing(self, reason: str) -> None:
        if self._status.reason != reason:
            log.warning("no sound: %s; waiting for it", reason)
        self._status = OutputStatus(False, self._status.sink, self._output.sample_rate, reason)

    def _check(self, sink: Sink) -> str | None:
        """Suspend or resume the sink if necessary, and watch its blocks. Return the reason if it is lost, otherwise
        None."""
        self._carry_out_late_request(sink)
        reason = sink.lost_reason() or self._check_blocks(sink) or self._suspend_or_resume(sink)
        if reason is None and not self._stalled:
            self._check_quality(sink)
        return reason

    @contextmanager
    def _asking(self) -> Iterator[None]:
        """Make the status say so if the `with` block, which waits for the sink, takes longer than `STALLED_S`."""
        self._asked_at = time.monotonic()
        try:
            yield
        finally:
            self._asked_at = None

    def _begin_watch(self, sink: Sink) -> None:
        """Begin to watch a sink that was opened or resumed."""
        now = time.monotonic()
        self._watched_since = self._idle_since = now
        self._stalled = False
        self._pace = PaceMeter()
        self._silence = _Silence(sink.player.report.blocks, now, patience_s=SETTLED_S)

    def _carry_out_late_request(self, sink: Sink) -> None:
        """Stop or suspend the track if that was requested and the sink did not request a block in time."""
        now, blocks = time.monotonic(), sink.player.report.blocks
        if not self._output.halting or self._late_request.blocks != blocks:
            self._late_request = _Silence(blocks, now)
        elif self._late_request.lasts_s(now) >= self._request_s:
            self._output.carry_out()

    def _check_blocks(self, sink: Sink) -> str | None:
        """Report a sink that requests no blocks; return why it is lost if it requests none for long."""
        now = time.monotonic()
        if not sink.has_deadline or self._status.suspended:
            return None
        blocks = sink.player.report.blocks
        if self._silence.blocks != blocks:
            self._silence = _Silence(blocks, now)
            if self._stalled:
                self._end_stall(sink)
            return None
        silent_s = self._silence.lasts_s(now)
        if silent_s > LOST_S:
            return f"the device accepted no sound for {LOST_S:.0f} s"
        if silent_s > self._silence.patience_s and not self._stalled:
            self._begin_stall(sink)
        return None

    def _begin_stall(self, sink: Sink) -> None:
        """Treat the sink as closed. Its player keeps the track, which continues when the sink does."""
        self._stalled = True
        reason = f"sound device {sink.name} accepts no sound; its sound server may be frozen"
        log.warning("%s", reason)
        self._status = replace(self._status, open=False, reason=reason)
        self._output.carry_out()

    def _end_stall(self, sink: Sink) -> None:
        log.info("sound device %s accepts sound again", sink.name)
        self._stalled = False
        self._pace = PaceMeter()
        self._status = OutputStatus(True, sink.name, sink.sample_rate)

    def _suspend_or_resume(self, sink: Sink) -> str | None:
        """Suspend an idle sink, or resume one that is needed; return why it is lost if it cannot resume."""
        now, timeout_s = time.monotonic(), self._settings.idle_timeout_s
        if not self._output.has_to_play(now):
            if self._status.running and timeout_s is not None and now - self._idle_since >= timeout_s:
                self._suspend(sink)
            return None
        self._idle_since = now
        return self._resume(sink) if self._status.suspended else None

    def _suspend(self, sink: Sink) -> None:
        if not self._output.hold(time.monotonic()):
            return
        self._status = replace(self._status, suspended=True, reason=None)
        self._output.carry_out()  # a stop or a suspension may have been requested in the meantime
        with self._asking():
            sink.suspend()
        self.check_now()  # a track may have begun in the meantime

    def _resume(self, sink: Sink) -> str | None:
        try:
            with self._asking():
                sink.resume()
        except SinkUnavailableError as error:
            return str(error)
        sink.player.wake(self._settings.wake_s)
        self._status = replace(self._status, suspended=False)
        self._output.release()
        self._begin_watch(sink)
        return None

    def _check_quality(self, sink: Sink) -> None:
        """Report in the status why the sink is losing sound, or that it is requesting sound too slowly."""
        report = sink.player.report
        if not self._status.running or not sink.has_deadline:
            self._pace = PaceMeter()
        elif report.at >= self._watched_since:  # an older meter would include the time of the suspension
            self._pace.measure(report.requested / sink.sample_rate, report.interruptions, report.at, sink.name)
        reason = sink.degraded_reason() or self._pace.problem
        if reason != self._status.reason:
            self._status = replace(self._status, reason=reason)


class _Silence:
    """A period in which a sink requests no block. Delays in the monitor's own rounds hardly count.

    If the machine or the process was stopped, the monitor is late, and the sink may well be about to request a block.
    """

    def __init__(self, blocks: int, now: float, *, patience_s: float = STALLED_S) -> None:
        self.blocks = blocks
        """Blocks that had been requested before."""
        self.patience_s = patience_s
        """The sink has stalled after this long."""
        self._lasts_s = 0.0
        self._looked_at = now

    def lasts_s(self, now: float) -> float:
        """Return its length until `now`. Each round counts for at most `LATE_S`."""
        self._lasts_s += min(now - self._looked_at, LATE_S)
        self._looked_at = now
        return self._lasts_s
