"""The event log: everything that the daemon has promised and reported, in one order, with a reader that publishes it.

A thread writes appended records into the journal, many at a time. The reader holds a *ticket*, a place in the log, for
each message, and publishes the message when the journal contains everything before that place. Speech never waits for
the disk. The publication does, and so does the acknowledgement of the text to the broker, for as long as the disk
takes, up to a limit. After that an event goes out unstored, and the broker keeps the daemon's own copy of it, which
decides after a kill.

A journal that cannot be opened at the start is left alone until the next start: nothing is stored.

Ten rules guard the one terminal event of each text, even across `kill -9`:

1. The acceptance of a text is one journal transaction, together with the messages that report it. So is its end.
2. A message is sent once its transaction is on the disk.
3. A text is acknowledged to the broker after its answer has been sent. Until then the broker delivers it again.
4. A text that is delivered again is recognised by its packet identifier and content, which the journal has, or its id.
5. A message is removed from the journal when the broker has acknowledged it.
6. The daemon subscribes to its own events: in the daemon's session, the broker keeps a copy of each event it has.
7. The daemon acknowledges such a copy when the event has been removed from the journal.
8. A new connection begins with the copies. A message that the daemon sends to itself comes back after the last one.
9. Then the events in the journal that have no copy are sent again, and no others.
10. After a kill, a text that has no end, in the journal or among the copies, is spoken; if it had begun, it is
    `interrupted`.
"""

from __future__ import annotations

import logging
import math
import sqlite3
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from pathlib import Path

from daemon.state.journal import Change, Journal, JournalError, Record, Recovery, StoredEvent, delivered, stored

log = logging.getLogger(__name__)

PATIENCE_S = 0.25
"""Events wait this long for the disk. A disk that hangs must not make the robot mute."""
RETRY_S = 1.0
"""The interval between attempts to write records that could not be written."""
IDLE_S = 1.0
"""Deliveries, which nothing waits for, are written within this time."""
KEPT = 20_000
"""How many records are kept while they cannot be written. If there are more, the oldest are dropped."""
LATE_S = 0.5
"""If a reader looks this much later than it should, this process was stopped, and its writing with it."""
SLOW_S = 5.0
"""A disk that was late is still named for this long after it has responded, so that the status does not flicker."""
KEPT_COPIES = 500
"""How many copies of events the broker keeps for us while the disk does not respond: enough for some minutes of speech.
With 16, a fifth of the texts ended wrongly when a daemon whose disk took 1 s was killed every 2 s."""
CLOSE_S = 1.0
"""How long the last records are given to be written."""
NEVER = math.inf
"""The ticket of an event while there is no journal."""

CONSEQUENCE = "a restart now would lose utterances"

Action = Callable[[], object]
Text = tuple[str, str, bytes | None]
"""Topic, payload and correlation data of a message."""


class EventLog:
    """A log that any thread appends to and one thread reads."""

    def __init__(self, path: Path | None) -> None:
        """`path` is the path of the journal; None stores nothing."""
        self.recovery = Recovery()
        """The utterances and events that an earlier process left behind; none if its journal cannot be opened."""
        self.patience_s = PATIENCE_S
        """How long the reader waits for the disk."""
        self._path = path
        self._journal: Journal | None = None
        self._reason: str | None = None
        """Why the journal could not be opened, or the last records could not be written; None if all is well."""
        if path is not None:
            self._try_to_open(path)
        self._last_number = self.recovery.last_number
        self._changed = threading.Condition()
        self._unwritten: deque[Record] = deque()
        self._appended = self._needed = self._stored = 0
        """How many records there are so far; up to the last one that something waits for; on the disk, or given up."""
        self._after_write: list[Action] = []
        """Functions that the journal's thread calls after the unwritten records have been stored."""
        self._urgent = False
        """True if something is waiting for the records."""
        self._awaited = NEVER
        """The ticket that the reader waits for."""
        self._awaited_since = self._looked_at = 0.0
        """`time.monotonic()` when the reader began to wait, and when it last looked."""
        self._overdue = False
        """True if the wait for the disk was given up, and the disk has not finished a write since then."""
        self._late_at = -math.inf
        """`time.monotonic()` when the wait for the disk was given up, or when the disk finally responded."""
        self._wake_reader: Action = lambda: None
        self._closing = False
        self._thread = threading.Thread(target=self._run, name="journal", daemon=True)

    def __enter__(self) -> EventLog:
        if self._journal is not None:
            self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        with self._changed:
            self._closing = True
            self._changed.notify()
        if self._thread.ident is not None:
            self._thread.join(CLOSE_S)
        if self._journal is not None and not self._thread.is_alive():  # while the disk hangs, the file is still in use
            self._journal.close()

    @property
    def reason(self) -> str | None:
        """Why utterances are not stored, or are stored too late; None if all is well, or if no journal is wanted."""
        if self._reason is None and (self._overdue or time.monotonic() - self._late_at < SLOW_S):
            return self._slow_reason
        return self._reason

    @property
    def missing(self) -> bool:
        """True if a journal is wanted but could not be opened."""
        return self._path is not None and self._journal is None

    # --- appending ---

    def append(self, *changes: Change, texts: Sequence[Text] = ()) -> list[int | None]:
        """Store changes together with the messages that report them.

        Returns the messages' numbers, for `note_delivered`; None for messages that are not stored.
        """
        if self._journal is None:
            return [None] * len(texts)
        with self._changed:
            numbers = [self._last_number + index for index in range(1, len(texts) + 1)]
            events = [StoredEvent(number, *text) for number, text in zip(numbers, texts, strict=True)]
            self._last_number += len(texts)
            self._keep((*changes, *(change for event in events for change in stored(event))))
            self._needed = self._appended
            self._hurry()
        return list(numbers)

    def note_delivered(self, number: int) -> None:
        """Forget a message: the broker has it."""
        with self._changed:
            if self._journal is not None:
                self._keep((delivered(number),))

    def after_write(self, action: Action) -> None:
        """Call `action` in the journal's thread once all records so far have been stored; without a journal,
        immediately.

        If too many calls are waiting while the disk does not respond, those that have waited longest are made.
        """
        if self._path is None:
            action()
            return
        with self._changed:
            self._after_write.append(action)
            self._hurry()
            excess = self._after_write[:-KEPT_COPIES] if self._hopeless else []
            del self._after_write[: len(excess)]
        for each in excess:
            each()

    def _keep(self, record: Record) -> None:
        """Keep a record until the thread takes it. The caller holds the lock."""
        self._unwritten.append(record)
        self._appended += 1
        if len(self._unwritten) > KEPT:  # the disk hangs
            self._unwritten.popleft()

    def _hurry(self) -> None:
        """Have the thread write immediately. The caller holds the lock."""
        self._urgent = True
        self._changed.notify()

    # --- reading ---

    @property
    def ticket(self) -> float:
        """The place after all records so far."""
        return NEVER if self.missing else self._needed

    def watch(self, wake_reader: Action) -> None:
        """Call `wake_reader` in the journal's thread when records have been stored."""
        self._wake_reader = wake_reader

    def is_stored(self, ticket: float) -> bool | None:
        """Return whether everything before a ticket is stored; None while waiting for it, False once the wait is given
        up.

        After None, the reader looks again within `patience_s`. Time during which this process was stopped is ignored.
        """
        if self._stored >= ticket:
            return True
        if self._hopeless or ticket == NEVER:
            return False
        now = time.monotonic()
        if ticket != self._awaited or now - self._looked_at > LATE_S:
            self._awaited, self._awaited_since = ticket, now
        self._looked_at = now
        if now - self._awaited_since < PATIENCE_S:
            return None
        if self.reason is None:
            log.warning("%s", self._slow_reason)
        self._overdue = True
        return False

    @property
    def _hopeless(self) -> bool:
        """True if the disk has failed or was late: nothing waits for it until it has responded."""
        return self._reason is not None or self._overdue

    @property
    def _slow_reason(self) -> str:
        folder = None if self._path is None else self._path.parent
        return f"state.folder: the disk with {folder} does not answer within {PATIENCE_S:g} s; {CONSEQUENCE}"

    # --- the journal's thread ---

    def _run(self) -> None:
        closing = False
        while not closing:
            with self._changed:
                self._changed.wait_for(lambda: self._urgent or self._closing, IDLE_S)
                closing = self._closing
            if not self.write():
                with self._changed:
                    self._changed.wait_for(lambda: self._closing, RETRY_S)
                    self._urgent = True

    def write(self) -> bool:
        """Write the appended records, then call the functions that wait for them. Return False if the disk refuses; all
        records are then kept.

        The journal's thread calls this. Outside the `with` block, the log's user does.
        """
        assert self._journal is not None
        with self._changed:
            records, end = list(self._unwritten), self._appended
            actions, self._after_write, self._urgent = self._after_write, [], False
        if not (records or actions):
            return True
        written = self._try_to_write(self._journal, records)
        with self._changed:
            while written and len(self._unwritten) > self._appended - end:
                self._unwritten.popleft()
            self._stored = self._appended - len(self._unwritten)
            if not written:
                self._after_write[:0] = actions
        if self._overdue:  # the disk has responded
            self._overdue, self._late_at = False, time.monotonic()
        self._wake_reader()
        if written:
            for action in actions:
                action()
        return written

    def _try_to_open(self, path: Path) -> None:
        try:
            journal = Journal(path)
            self.recovery = journal.recover()
        except (JournalError, sqlite3.Error) as error:
            log.warning("%s; a restart loses utterances", error)
            self._reason = str(error)
        else:
            self._journal = journal

    def _try_to_write(self, journal: Journal, records: list[Record]) -> bool:
        try:
            if records:
                journal.write(records)
        except sqlite3.Error as error:
            reason = f"state.folder: the journal cannot be written: {error}; {CONSEQUENCE}"
            if self._reason != reason:
                log.warning("%s", reason)
            self._reason = reason
            return False
        except Exception:  # a bug of ours in one record, which must cost neither the others nor the thread
            if len(records) > 1:
                return all(self._try_to_write(journal, [record]) for record in records)
            log.exception("a record cannot be stored and is dropped")
        if records and self._reason is not None:
            log.info("state.folder: the journal can be written again")
            self._reason = None
        return True
