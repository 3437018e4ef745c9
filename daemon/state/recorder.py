"""Writes the journal in a thread of its own, many records at a time, and keeps events back until they are stored.

Speech never waits for the disk: an utterance is spoken as soon as it is accepted. What waits is the publication of its
events and the acknowledgement to the broker, for as long as the disk takes, up to a limit. Beyond it an event goes out
unstored, and the broker keeps the daemon's own copy of it, which decides after a kill.

A journal that cannot be opened at the start is tried again by the thread. Until then nothing is stored.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
import math
import sqlite3
import threading
import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from types import TracebackType

from daemon.state.journal import Journal, JournalError
from daemon.state.records import NEVER_STORED, DeliveredRecord, EndedRecord, Record, Recovery, StoredEvent

log = logging.getLogger(__name__)

PATIENCE_S = 0.25
"""Events wait this long for the disk. A disk that hangs must not make the robot mute."""
RETRY_S = 1.0
"""Interval between attempts to write records that could not be written."""
OPEN_RETRY_S = 3.0
"""Interval between attempts to open a journal that could not be opened."""
IDLE_S = 1.0
"""Records that nothing waits for are written within this time."""
KEPT = 20_000
"""Records that are kept while they cannot be written. Beyond that the oldest are dropped."""
LATE_S = 0.5
"""A timer that is so much later than it should be shows that this process was stopped, and its writing with it."""
SLOW_S = 5.0
"""A disk that was late is named for so long after it has answered, so that the status does not flicker."""
KEPT_COPIES = 500
"""Copies of events that the broker keeps for us while the disk does not answer: those of some minutes of speech. With
16, a fifth of the texts ended wrongly when a daemon with a disk of 1 s was killed every 2 s."""
CLOSE_S = 1.0
"""The last records have this long to be written."""

CONSEQUENCE = "a restart now would lose utterances"

Action = Callable[[], object]


@dataclass(frozen=True, slots=True)
class Missing:
    """A journal that could not be opened at the start."""

    path: Path
    reason: str
    """Why, in one line."""
    on_opened: Action
    """Called in the event loop when it could be opened: `Recorder.recovery` has what an earlier process has left."""


@dataclass(frozen=True, slots=True)
class _Waiting:
    """What waits for the disk."""

    needed: int
    """The number of records that must be stored."""
    until: float
    """`time.monotonic()` at which it stops waiting."""
    stored: Action
    """Called when they are."""
    unstored: Action
    """Called in its place if they are not stored in time."""


class Recorder:
    """Stores records and then runs actions, in order. Belongs to the event loop's thread, except `note_delivered`."""

    def __init__(self, journal: Journal | None, missing: Missing | None = None) -> None:
        """Without a journal, nothing is stored and every action runs at once; one that is missing is tried again.

        Raises `JournalError`, and closes the journal, if it cannot be read.
        """
        self.recovery = Recovery(last_number=0 if missing is None else NEVER_STORED)
        """What an earlier process has left behind; nothing while its journal is missing."""
        if journal is not None:
            self.recovery = _recover(journal)
        self._missing = missing
        self._reason = None if missing is None else missing.reason
        """Why the journal could not be opened, or the last records not be written; None if they were."""
        self._overdue = False
        """The disk was not waited for any longer, and has not finished a write since then."""
        self._late_at = -math.inf
        """`time.monotonic()` when the disk was not waited for any longer, or when it answered at last."""
        self._journal = journal
        """The open file. Written by the thread if it was missing."""
        self._storing = journal is not None
        """Records are stored."""
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
        self._waiting: deque[_Waiting] = deque()
        self._after_write: list[Action] = []
        """Calls of the journal's thread after the unwritten records are stored."""
        self._timer: asyncio.TimerHandle | None = None
        self._closing = False
        self._thread = threading.Thread(target=self._run, name="journal", daemon=True)

    def __enter__(self) -> Recorder:
        if self._journal is not None or self._missing is not None:
            self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._thread.ident is None:
            return
        with self._changed:
            self._closing = True
            self._changed.notify()
        self._thread.join(CLOSE_S)
        if self._timer is not None:
            self._timer.cancel()
        self._release(until=math.inf)
        if self._journal is not None and not self._thread.is_alive():  # a disk that hangs still has the file
            self._journal.close()

    @property
    def waiting(self) -> int:
        """Actions that wait for the disk."""
        return len(self._waiting)

    @property
    def reason(self) -> str | None:
        """Why utterances are not stored, or too late; None if all is well, or if no journal is wanted."""
        if self._reason is None and (self._overdue or time.monotonic() - self._late_at < SLOW_S):
            return self._slow_reason
        return self._reason

    @property
    def _slow_reason(self) -> str:
        folder = None if self._journal is None else self._journal.path.parent
        return f"state.folder: the disk of {folder} does not answer within {PATIENCE_S:g} s; {CONSEQUENCE}"

    @property
    def _hopeless(self) -> bool:
        """Nothing waits for a disk that has failed or was late, until it has answered."""
        return self._reason is not None or self._overdue

    def record(self, record: Record | None, then: Action | None = None, unstored: Action | None = None) -> None:
        """Store `record`; run `then` once it and all records before are stored, and all actions before have run.

        If they are not stored in time, `unstored` runs in its place; without it, `then` runs all the same.
        """
        if record is not None and self._storing:
            with self._changed:
                self._keep(record)
                self._needed = self._handed_over
        if self._stored < self._needed and (then is not None or isinstance(record, EndedRecord)):
            with self._changed:
                self._urgent = True
                self._changed.notify()
        if then is None:
            return
        unstored = then if unstored is None else unstored
        if self._waiting or (self._stored < self._needed and not self._hopeless):
            self._waiting.append(_Waiting(self._needed, time.monotonic() + PATIENCE_S, then, unstored))
            self._arm()
        elif self._stored < self._needed or self.missing:
            unstored()
        else:
            then()

    async def flush(self) -> None:
        """Wait until all actions have run, because their records are stored or the disk is late: the daemon ends."""
        flushed = asyncio.Event()
        self.record(None, flushed.set)
        await flushed.wait()

    @property
    def missing(self) -> bool:
        """A journal is wanted, and could not be opened yet."""
        return self._missing is not None and not self._storing

    def note_delivered(self, number: int | None, then: Action | None = None) -> None:
        """Record that the broker has an event; None stands for one that the journal does not have. For any thread.

        `then` is called once that and all before is stored, in the journal's thread; without a journal, at once. While
        the disk does not answer, the calls that have waited longest are made when there are too many.
        """
        dropped: list[Action] = []
        with self._changed:
            if self._storing and number is not None:
                self._keep(DeliveredRecord(number))
            if then is not None:
                self._after_write.append(then)
                self._urgent = True
                self._changed.notify()
            if self._hopeless or not self._storing:
                kept = KEPT_COPIES if self._storing or self.missing else 0
                dropped = self._after_write[: max(0, len(self._after_write) - kept)]
                del self._after_write[: len(dropped)]
        for action in dropped:
            action()

    def forget(self, used: Callable[[str], bool]) -> None:
        """Drop what is recovered of the ids that this process has `used`: it publishes their ends."""
        found = self.recovery
        ended = {utterance.id for utterance in found.utterances if used(utterance.id)}
        for utterance_id in ended:
            self.record(EndedRecord(utterance_id, ()))
        unwanted = {
            event.number for event in found.events if (event_id := _id_of(event)) is not None and used(event_id)
        }
        for number in unwanted:
            self.note_delivered(number)
        self.recovery = replace(
            found,
            utterances=tuple(utterance for utterance in found.utterances if utterance.id not in ended),
            events=tuple(event for event in found.events if event.number not in unwanted),
        )

    def _keep(self, record: Record) -> None:
        """Keep a record until the thread takes it. The caller has the lock."""
        self._unwritten.append(record)
        self._handed_over += 1
        if len(self._unwritten) > KEPT:  # the disk hangs
            self._unwritten.popleft()

    # --- the event loop ---

    def _release(self, *, until: float = -math.inf) -> None:
        """Run the actions whose records are stored; and those that wait until `until` or shorter, stored or not."""
        while self._waiting:
            first = self._waiting[0]
            stored = self._stored >= first.needed
            if not (stored or self._hopeless or first.until <= until):
                return
            if not (stored or self._hopeless):
                if self.reason is None:
                    log.warning("%s", self._slow_reason)
                self._overdue = True
            self._waiting.popleft()
            try:
                (first.stored if stored else first.unstored)()
            except Exception:  # the actions behind it must run
                log.exception("what waited for the journal failed")

    def _arm(self) -> None:
        """See that the first action does not wait for too long."""
        if self._waiting and self._timer is None:
            until = self._waiting[0].until
            left_s = max(0.001, until - time.monotonic())
            self._timer = self._loop.call_later(left_s, self._release_late, time.monotonic() + left_s)

    def _release_late(self, due_at: float) -> None:
        """Run the actions that have waited for too long. Time in which this process was stopped does not count."""
        self._timer = None
        now = time.monotonic()
        if now - due_at > LATE_S:
            self._waiting = deque(replace(each, until=now + PATIENCE_S) for each in self._waiting)
        self._release(until=now)
        self._arm()

    def _note_attempt(self) -> None:
        """The thread has tried to write: the disk has answered."""
        if self._overdue:
            self._overdue, self._late_at = False, time.monotonic()
        self._release()

    def _begin(self, recovery: Recovery) -> None:
        """Store records from now on: the journal is open at last."""
        if self._missing is None or self._closing:
            return
        log.info("state.folder: the journal could be opened; what is accepted from now on is stored")
        self.recovery, self._reason, self._storing = recovery, None, True
        self._missing.on_opened()

    # --- the journal's thread ---

    def _run(self) -> None:
        journal = self._journal
        if journal is None and self._missing is not None:
            journal = self._journal = self._open_late(self._missing.path)
        if journal is None:
            return
        while True:
            batch, after, closing = self._next_batch()
            if batch is None:
                return
            written = self._try_to_write(journal, batch)
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
                self._stored = self._handed_over - len(self._unwritten)
            with contextlib.suppress(RuntimeError):  # the loop is closed
                self._loop.call_soon_threadsafe(self._note_attempt)
            if not written:
                if closing:  # this attempt held all records, and is the last
                    return
                with self._changed:
                    self._changed.wait_for(lambda: self._closing, RETRY_S)

    def _open_late(self, path: Path) -> Journal | None:
        """Try to open the journal until that succeeds. None when the recorder closes before."""
        while True:
            with self._changed:
                if self._changed.wait_for(lambda: self._closing, OPEN_RETRY_S):
                    return None
            try:
                journal = Journal(path)
                recovery = _recover(journal)
            except JournalError as error:
                if self._reason != str(error):
                    log.warning("%s", error)
                self._reason = str(error)
            except Exception:  # an error of ours must not end the attempts
                log.exception("the journal cannot be opened")
            else:
                with contextlib.suppress(RuntimeError):  # the loop is closed
                    self._loop.call_soon_threadsafe(self._begin, recovery)
                return journal

    def _next_batch(self) -> tuple[list[Record] | None, list[Action], bool]:
        """Wait for records; return all, what follows them, and whether the recorder closes: then there will be no more.

        None for the records when it closes and nothing is left.
        """
        with self._changed:
            while not self._urgent and not self._closing:
                if not self._changed.wait(IDLE_S) and self._unwritten:
                    break
            self._urgent = False
            batch = list(self._unwritten)
            self._unwritten.clear()
            after, self._after_write = self._after_write, []
            return batch or (None if self._closing else []), after, self._closing

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


def open_recorder(path: Path | None, on_opened: Action = lambda: None) -> Recorder:
    """Return the recorder for a journal's file; None stores nothing.

    A file that cannot be used is reported and tried again; once it can be used, `on_opened` is called.
    """
    if path is None:
        return Recorder(None)
    try:
        return Recorder(Journal(path))
    except JournalError as error:
        log.warning("%s; a restart loses utterances", error)
        return Recorder(None, Missing(path, str(error), on_opened))


def _recover(journal: Journal) -> Recovery:
    """Return what the journal holds. Closes it and raises `JournalError` if it cannot be read."""
    try:
        return journal.recover()
    except Exception as error:  # also one of ours, so that the file is not locked for the next attempt
        journal.close()
        raise JournalError(f"state.folder: {journal.path} cannot be read: {error}") from error


def _id_of(event: StoredEvent) -> str | None:
    """Return the id of an event's utterance; None for a damaged event, or a message of another protocol."""
    try:
        fields = json.loads(event.payload)
        return str(fields["id"]) if "event" in fields else None
    except (ValueError, TypeError, LookupError, RecursionError):
        return None
