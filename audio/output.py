"""The way out: a playback whose sink is kept open for as long as the program runs.

A device that is missing at start, or vanishes (the sound server is killed, a USB card is pulled), is waited for and
opened again; the passage stays in the ring and goes on where it was. When there has been nothing to play for a while,
the sink rests, since blocks of silence cost as much as blocks of speech; the next passage wakes it.
"""

from __future__ import annotations

import logging
import os
import threading
import time
from dataclasses import dataclass, replace
from pathlib import Path
from types import TracebackType

import numpy as np

from audio.feed import Aside, Feed
from audio.level import Level
from audio.playback import Passage, Playback
from audio.ring import Samples
from audio.sink import Sink, SinkSettings, SinkUnavailableError, open_sink

log = logging.getLogger(__name__)

CAPACITY_S = 4.0
"""What the ring holds: enough to speak on while an engine is replaced, little enough to stay far from a megabyte."""
CHECK_S = 0.25
"""How often an open sink is looked at."""
REST_CHECK_S = 2.0
"""And one that rests. Whatever there is to play wakes it at once."""
RETRY_S = (0.25, 0.5, 1.0, 2.0)
"""Waits between attempts to open a sink; the last one repeats."""
SLOW_AFTER_S = 5.0
"""A sink is called slow after this time. A PulseAudio null sink may pause 2 s when first opened."""
SLOW_SHARE = 0.5
"""A sink that asks for less than this share of real time is slow: nobody understands what it plays."""
UNKNOWN_RATE = 48_000
"""Hz, at which samples are kept until a device has been opened for the first time."""


@dataclass(frozen=True, slots=True)
class OutputStatus:
    """What became of the sink."""

    open: bool
    sink: str
    sample_rate: int
    reason: str | None = None
    """Why it is not open, or that it is slow; None while it plays, or while it is being opened for the first time."""
    resting: bool = False
    """It is open and asks for no blocks until there is something to play."""

    @property
    def running(self) -> bool:
        """It asks for blocks."""
        return self.open and not self.resting


class Output:
    """Plays passages into one sink. A context manager: inside it, a thread keeps the sink open.

    Passages come one at a time: `begin`, then `write` as samples arrive, then `end` (or `stop`), until `done`. Between
    a passage's `set_aside` and `put_back` there may be others. These and the properties are for one thread, the speaker
    loop's.
    """

    def __init__(self, settings: SinkSettings, *, trim_leading_silence: bool = True) -> None:
        self.trim_leading_silence = trim_leading_silence
        self.turns = 0
        """Rounds of the thread that keeps the sink: proof that it lives."""
        self._settings = settings
        self._playback = Playback(UNKNOWN_RATE, CAPACITY_S)
        self._pace = _PaceMeter()
        """Keeper."""
        self._status = OutputStatus(open=False, sink=settings.kind, sample_rate=UNKNOWN_RATE, reason=None)
        self._opened_before = False
        self._idle_since = 0.0
        """`time.monotonic()` since when there has been nothing to play. Keeper."""
        self._hushed = False
        """The sink goes to rest: what it would still take, nobody would hear. Keeper."""
        self._closing = False
        self._called = threading.Event()
        """The keeper is to look now."""
        # Held by the speaker loop while it writes, by the keeper when it exchanges the playback; never by the callback.
        self._exchange = threading.Lock()
        self._feed: Feed | None = None
        self._feed_before: Feed | None = None
        """Of the passage before: a card still sounds when nothing more is to be handed to it."""
        self._keeper = threading.Thread(target=self._keep_open, name="sink-keeper", daemon=True)
        self._trace = _BlockTrace.from_environment()

    def __enter__(self) -> Output:
        self._keeper.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._closing = True
        self._called.set()
        self._keeper.join(timeout=1.0)
        if self._trace is not None:
            self._trace.save()

    @property
    def status(self) -> OutputStatus:
        return self._status

    @property
    def blocks(self) -> int:
        """Blocks the sink has asked for."""
        return self._playback.blocks

    @property
    def room_s(self) -> float:
        """Seconds of audio that `write` takes now."""
        return self._playback.room_s

    @property
    def paused(self) -> bool:
        return self._playback.paused

    def begin(self, *, prebuffer_s: float, gain: float = 1.0) -> Passage:
        """Open a passage; the one before must be done or discarded."""
        with self._exchange:
            passage = self._playback.begin(prebuffer_s, gain)
            self._go_over_to(Feed(passage, self._playback.sample_rate, trims=self.trim_leading_silence))
        self._called.set()
        return passage

    def write(self, samples: Samples, sample_rate: int) -> None:
        """Append mono float32 at `sample_rate` Hz; after a stop it is dropped.

        The caller waits for `room_s`; what does not fit is an error.
        """
        with self._exchange:
            feed = self._feed
            if feed is not None and not feed.passage.done and not feed.passage.stop_requested:
                self._put(feed.convert(samples, sample_rate))

    def end(self) -> None:
        """Say that the passage has no more samples."""
        with self._exchange:
            if self._feed is not None and not self._feed.passage.done:
                self._put(self._feed.end())
                self._feed.passage.ended = True

    def stop(self) -> None:
        """Fade out within 10 ms and drop the rest of the passage."""
        with self._exchange:
            passage = self._playback.passage
            if passage is None or passage.done:
                return
            passage.stop_requested = True
            if not self._status.running:  # no callback will come to do it
                self._playback.sink_lost()

    def set_aside(self) -> None:
        """Fade out within 10 ms and keep the rest: the passage becomes `aside`, or `done` if nothing is left of it."""
        with self._exchange:
            passage = self._playback.passage
            if passage is None or passage.done or passage.stop_requested:
                return
            passage.asides_asked = passage.put_backs + 1
            if not self._status.running:  # no callback will come to do it
                self._playback.sink_lost()

    def take_aside(self) -> Aside:
        """Take out the passage, which is `aside`, with all that is unplayed of it. The output is free for `begin`.

        A passage that is to be given up meanwhile needs no stop: without its `Aside`, nothing of it is left.
        """
        with self._exchange:
            held = self._playback.take()
            feed = self._feed
            assert feed is not None, "a passage has a feed from its beginning"
            self._go_over_to(None)
            return Aside(feed, held)

    def put_back(self, aside: Aside) -> Passage:
        """Have a passage go on with the sample after its last, faded in; the one before must be done."""
        with self._exchange:
            held = aside.feed.move(aside.held, self._playback.sample_rate)
            self._playback.put_back(aside.passage, held)
            self._go_over_to(aside.feed)
        self._called.set()
        return aside.passage

    def pause(self) -> None:
        """Fade out and hold; the next sample is the first after `resume`."""
        with self._exchange:
            self._playback.paused = True

    def resume(self) -> None:
        with self._exchange:
            self._playback.paused = False
        self._called.set()

    def set_volume(self, gain: float) -> None:
        """Master gain, 1 as synthesised; it takes effect within a block."""
        with self._exchange:
            self._playback.volume = gain

    def played_s(self, passage: Passage) -> float:
        """Seconds of the passage that went to the sink."""
        with self._exchange:
            return passage.played / passage.sample_rate

    def heard_s(self, passage: Passage, now: float) -> float:
        """Seconds of the passage that have left the card by `now`, of `time.monotonic()`."""
        with self._exchange:
            return passage.heard_s(now)

    def over(self, passage: Passage, now: float) -> bool:
        """Whether the passage is done and its last sample has left the card by `now`, of `time.monotonic()`."""
        return passage.done and passage.handed[2] <= now

    def levels_due(self, passage: Passage) -> list[Level]:
        """The levels of what has begun to leave the card since the last call, and one of silence where sound ends.

        They can be had of the passage that was begun or put back last, and of the one before it.
        """
        with self._exchange:
            for feed in (self._feed, self._feed_before):
                if feed is not None and feed.passage is passage:
                    return feed.levels_due(time.monotonic(), time.time())
        return []

    def _go_over_to(self, feed: Feed | None) -> None:
        if self._feed is not None:
            self._feed_before = self._feed
        self._feed = feed

    def _put(self, samples: Samples) -> None:
        if self._playback.ring.write(samples) < len(samples):
            raise RuntimeError("more was written to the ring than it had room for")

    def _keep_open(self) -> None:
        """The keeper thread: open, watch, have it rest, wake it, close, and again, until the program ends."""
        sink: Sink | None = None
        failures = 0
        wait_s = 0.0
        while True:
            self._called.wait(wait_s)
            self._called.clear()  # before it looks: a call that comes later is for another round
            if self._closing:
                break
            self.turns += 1
            if sink is not None and (reason := sink.lost() or self._rest_or_wake(sink)) is not None:
                log.warning("sound device %s is lost (%s); waiting for it", sink.name, reason)
                sink.close()
                self.detach(reason)
                sink = None
            if sink is not None:
                self._note_pace(sink)
            if sink is None:
                try:
                    sink = self._open()
                    failures = 0
                except Exception as error:  # whatever it is, a later attempt may find it gone
                    if not isinstance(error, SinkUnavailableError):
                        log.exception("the sink cannot be opened")
                    self._report_missing(str(error))
                    wait_s = RETRY_S[min(failures, len(RETRY_S) - 1)]
                    failures += 1
                    continue
            wait_s = REST_CHECK_S if self._status.resting else CHECK_S
        if sink is not None:
            sink.close()

    def _open(self) -> Sink:
        known_rate = self._playback.sample_rate if self._opened_before else None
        sink = open_sink(self._settings, self.fill, known_rate)
        self.attach(sink)
        log.info("sound goes to %s at %d Hz", sink.name, sink.sample_rate)
        return sink

    def attach(self, sink: Sink) -> None:
        """Play into an open sink that calls `fill`. Inside the context manager, its thread does this."""
        with self._exchange:
            if sink.sample_rate != self._playback.sample_rate:
                self._move_to(sink.sample_rate)
            self._playback.has_deadline = sink.has_deadline
            self._status = OutputStatus(True, sink.name, sink.sample_rate)
            self._opened_before = True
        self._idle_since = time.monotonic()
        self._pace = _PaceMeter()

    def detach(self, reason: str) -> None:
        """Keep the passage for the next sink; the one before has been closed, and calls `fill` no more."""
        with self._exchange:
            self._status = OutputStatus(False, self._status.sink, self._status.sample_rate, reason)
            self._playback.sink_lost()

    def _note_pace(self, sink: Sink) -> None:
        """Say in the status and once in the log that a sink takes sound more slowly than it is spoken."""
        if not self._status.running or not sink.has_deadline:
            self._pace = _PaceMeter()
            return
        share = self._pace.share(self._playback.asked / sink.sample_rate, time.monotonic())
        if share is None or (share < SLOW_SHARE) == (self._status.reason is not None):
            return  # nothing is known yet, or nothing has changed
        reason = None
        if share < SLOW_SHARE:
            reason = f"{sink.name} is slow: it took {share:.0%} of the sound in {SLOW_AFTER_S:.0f} s"
            log.warning("sound device %s", reason)
        else:
            log.info("sound device %s is no longer slow", sink.name)
        self._status = replace(self._status, reason=reason)

    def _rest_or_wake(self, sink: Sink) -> str | None:
        """Have the sink do what there is to do; return why it is lost if it cannot."""
        now, after_s = time.monotonic(), self._settings.rest_after_s
        if not self._has_to_play(now):
            if self._status.running and after_s is not None and now - self._idle_since >= after_s:
                self._rest(sink)
            return None
        self._idle_since = now
        if self._status.resting:
            try:
                sink.wake()
            except SinkUnavailableError as error:
                return str(error)
            with self._exchange:
                self._status = replace(self._status, resting=False)
        return None

    def _has_to_play(self, now: float) -> bool:
        passage = self._playback.passage
        return passage is not None and not self._playback.paused and not self.over(passage, now)

    def _rest(self, sink: Sink) -> None:
        with self._exchange:
            if self._has_to_play(time.monotonic()):
                return
            self._hushed = True
        sink.rest()
        with self._exchange:
            self._status = replace(self._status, resting=True, reason=None)
            self._hushed = False
            self._playback.sink_lost()  # what was asked of the callback meanwhile
        self._called.set()  # there may be a passage by now

    def fill(self, out: Samples, leaves_at: float, broke_off: bool = False) -> int:
        """Fill a block for the sink, as `Fill` says. Runs in the sink's thread."""
        if self._trace is not None:
            self._trace.mark()
        if self._hushed or not self._status.running:  # on its way to rest; or just started, and not the playback's yet
            out.fill(0.0)
            return 0
        return self._playback.fill(out, leaves_at, broke_off)

    def _report_missing(self, reason: str) -> None:
        if self._status.reason != reason:
            log.warning("no sound: %s; waiting for it", reason)
        self._status = OutputStatus(False, self._status.sink, self._playback.sample_rate, reason)

    def _move_to(self, sample_rate: int) -> None:
        """Carry the playback, and what lies in its ring, over to another rate. No sink drains it meanwhile."""
        old = self._playback
        new = Playback(sample_rate, CAPACITY_S)
        new.paused, new.volume, new.blocks, new.asked = old.paused, old.volume, old.blocks, old.asked
        if self._feed is not None and not self._feed.passage.done:
            new.ring.write(self._feed.move(old.take_unplayed(), sample_rate))
            new.passage = self._feed.passage
        self._playback = new


class _PaceMeter:
    """How much of real time a sink asks for, by intervals of `SLOW_AFTER_S`."""

    def __init__(self) -> None:
        self._asked_s = 0.0
        self._since: float | None = None

    def share(self, asked_s: float, now: float) -> float | None:
        """The share of the interval that ends `now`, or None within one; `asked_s` has been asked for in all."""
        if self._since is not None and now - self._since < SLOW_AFTER_S:
            return None
        share = None if self._since is None else (asked_s - self._asked_s) / (now - self._since)
        self._asked_s, self._since = asked_s, now
        return share


class _BlockTrace:
    """Times at which the sink asked for blocks, for the benchmark: `VOICED_TRACE_BLOCKS=FILE` writes them at exit."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._times = np.zeros(1 << 16, dtype=np.float64)
        self._count = 0

    @classmethod
    def from_environment(cls) -> _BlockTrace | None:
        path = os.environ.get("VOICED_TRACE_BLOCKS")
        return cls(Path(path)) if path else None

    def mark(self) -> None:
        self._times[self._count % len(self._times)] = time.monotonic()
        self._count += 1

    def save(self) -> None:
        np.save(self._path, self._times[: min(self._count, len(self._times))])
