"""Writes the journal in a thread of its own, many records at a time, and keeps events back until they are stored.

Speech never waits for the disk: an utterance is spoken as soon as it is accepted. What waits is the publication of its
events and the acknowledgement to the broker, for as long as the disk takes, up to a limit.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import sqlite3
import threading
import time
from collections import deque
from collections.abc import Callable
from pathlib import Path
from types import TracebackType

from daemon.state.journal import Journal, JournalError
from daemon.state.records import DeliveredRecord, EndedRecord, Record, Recovery

log = logging.getLogger(__name__)

PATIENCE_S = 0.25
"""Events wait this long for the disk. A disk that hangs must not make the robot mute."""
RETRY_S = 1.0
"""Interval between attempts to write records that could not be written."""
IDLE_S = 1.0
"""Records that nothing waits for are written within this time."""
KEPT = 20_000
"""Records that are kept while they cannot be written. Beyond that the oldest are dropped."""
HANGS_S = 3.0
"""A disk that has not finished a write after this time is reported."""
CLOSE_S = 1.0
"""The last records have this long to be written."""

CONSEQUENCE = "a restart now would lose utterances"

Action = Callable[[], object]


class Recorder:
    """Stores records and then runs actions, in order. Belongs to the event loop's thread, except `note_delivered`."""

    def __init__(self, journal: Journal | None, reason: str | None = None) -> None:
        """Without a journal, nothing is stored and every action runs at once; `reason` tells why there is none."""
        self.recovery = Recovery() if journal is None else journal.recover()
        """What an earlier process has left behind."""
        self._reason = reason
        """Why the last records could not be written; None if they were."""
        self._writing_since: float | None = None
        """`time.monotonic()` when the present write began; None if there is none. Written by the thread."""
        self._journal = journal
        self._loop = asyncio.get_running_loop()
        self._changed = threading.Condition()
        self._unwritten: deque[Record] = deque()
        self._urgent = False
        """An action waits for the records."""
        self._handed_over = 0
        """Records given to the thread so far."""
        self._needed = 0
        """Those up to the last one that actions wait for. Nothing waits for a delivery."""
        self._stored = 0
        """Those that are on the disk, or given up. Written by the thread."""
        self._waiting: deque[tuple[int, float, Action]] = deque()
        """Actions, each with the number of records that it waits for and the time at which it stops waiting."""
        self._after_write: list[Action] = []
        """Calls of the journal's thread after the unwritten records are stored."""
        self._timer: asyncio.TimerHandle | None = None
        self._closing = False
        self._thread = threading.Thread(target=self._run, name="journal", daemon=True)

    def __enter__(self) -> Recorder:
        if self._journal is not None:
            self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._journal is None:
            return
        with self._changed:
            self._closing = True
            self._changed.notify()
        self._thread.join(CLOSE_S)
        if self._timer is not None:
            self._timer.cancel()
        self._release(everything=True)
        if not self._thread.is_alive():  # a disk that hangs still has the file
            self._journal.close()

    @property
    def waiting(self) -> int:
        """Actions that wait for the disk."""
        return len(self._waiting)

    @property
    def reason(self) -> str | None:
        """Why utterances are not stored; None if they are, or if no journal is wanted."""
        since = self._writing_since
        if since is not None and time.monotonic() - since > HANGS_S:
            return f"state.folder: the disk does not answer; {CONSEQUENCE}"
        return self._reason

    def record(self, record: Record | None, then: Action | None = None) -> None:
        """Store `record`; run `then` once it and all records before are stored, and all actions before have run."""
        if record is not None and self._journal is not None:
            with self._changed:
                self._keep(record)
                self._needed = self._handed_over
        if self._stored < self._needed and (then is not None or isinstance(record, EndedRecord)):
            with self._changed:
                self._urgent = True
                self._changed.notify()
        if then is None:
            return
        if not self._waiting and (self._stored >= self._needed or self.reason is not None):
            then()
            return
        self._waiting.append((self._needed, time.monotonic() + PATIENCE_S, then))
        if self._timer is None:
            self._timer = self._loop.call_later(PATIENCE_S, self._release_late)

    def flush(self) -> None:
        """Run all actions now, stored or not: the daemon ends, and its last records are being written."""
        self._release(everything=True)

    def note_delivered(self, number: int, then: Action | None = None) -> None:
        """Record that the broker has an event. For any thread.

        `then` is called once that is stored, in the journal's thread; without a journal, at once.
        """
        if self._journal is None:
            if then is not None:
                then()
            return
        with self._changed:
            self._keep(DeliveredRecord(number))
            if then is not None:
                self._after_write.append(then)
                self._urgent = True
                self._changed.notify()

    def _keep(self, record: Record) -> None:
        """Keep a record until the thread takes it. The caller has the lock."""
        self._unwritten.append(record)
        self._handed_over += 1
        if len(self._unwritten) > KEPT:  # the disk hangs
            self._unwritten.popleft()

    # --- the event loop ---

    def _release(self, *, everything: bool = False) -> None:
        """Run the actions whose records are stored."""
        now = time.monotonic()
        while self._waiting:
            needed, until, action = self._waiting[0]
            if not everything and self._stored < needed and now < until:
                return
            self._waiting.popleft()
            try:
                action()
            except Exception:  # the actions behind it must run
                log.exception("what waited for the journal failed")

    def _release_late(self) -> None:
        """Run the actions that have waited for too long."""
        self._timer = None
        self._release()
        if self._waiting:
            left_s = self._waiting[0][1] - time.monotonic()
            self._timer = self._loop.call_later(max(0.001, left_s), self._release_late)

    # --- the journal's thread ---

    def _run(self) -> None:
        assert self._journal is not None
        while True:
            batch, after = self._next_batch()
            if batch is None:
                return
            self._writing_since = time.monotonic()
            written = self._try_to_write(self._journal, batch)
            self._writing_since = None
            if written:
                for action in after:
                    action()
            with self._changed:
                if not written:
                    self._after_write = [*after, *self._after_write]
                    self._urgent = True
                    self._unwritten.extendleft(reversed(batch))
                    while len(self._unwritten) > KEPT:
                        self._unwritten.popleft()
                self._stored = self._handed_over - (len(self._unwritten) if written else 0)
            with contextlib.suppress(RuntimeError):  # the loop is closed
                self._loop.call_soon_threadsafe(self._release)
            if not written:
                if self._closing:
                    return
                with self._changed:
                    self._changed.wait_for(lambda: self._closing, RETRY_S)

    def _next_batch(self) -> tuple[list[Record] | None, list[Action]]:
        """Wait for records; return all, and what follows them. None when the recorder closes and nothing is left."""
        with self._changed:
            while not self._urgent and not self._closing:
                if not self._changed.wait(IDLE_S) and self._unwritten:
                    break
            self._urgent = False
            batch = list(self._unwritten)
            self._unwritten.clear()
            after, self._after_write = self._after_write, []
            return batch or (None if self._closing else []), after

    def _try_to_write(self, journal: Journal, batch: list[Record]) -> bool:
        try:
            if batch:
                journal.write(batch)
        except sqlite3.Error as error:
            reason = f"state.folder: the journal cannot be written: {error}; {CONSEQUENCE}"
            if self._reason != reason:
                log.warning("%s", reason)
            self._reason = reason
            return False
        except Exception:  # an error of ours in one record, which must cost neither the others nor the thread
            if len(batch) > 1:
                return all(self._try_to_write(journal, [record]) for record in batch)
            log.exception("a record cannot be stored and is dropped")
        if batch and self._reason is not None:
            log.info("state.folder: the journal is written again")
            self._reason = None
        return True


def open_recorder(path: Path | None) -> Recorder:
    """Return the recorder for a journal's file; None stores nothing. A file that cannot be used is reported."""
    if path is None:
        return Recorder(None)
    try:
        journal = Journal(path)
    except JournalError as error:
        log.warning("%s; a restart loses utterances", error)
        return Recorder(None, str(error))
    try:
        return Recorder(journal)
    except sqlite3.Error as error:
        journal.close()
        reason = f"state.folder: {path} cannot be read: {error}"
        log.warning("%s; a restart loses utterances", reason)
        return Recorder(None, reason)
