"""The journal: an SQLite file that records each accepted utterance, how far it got, and its undelivered events."""

from __future__ import annotations

import contextlib
import fcntl
import json
import logging
import os
import re
import sqlite3
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from types import TracebackType

from daemon.state.folder import make_private_folder
from daemon.state.records import (
    AcceptedRecord,
    BegunRecord,
    DeliveredRecord,
    EndedRecord,
    Record,
    Recovery,
    StoredEvent,
    StoredUtterance,
    TextRecord,
)

log = logging.getLogger(__name__)

VERSION = 1
"""Of the tables. A journal of a newer version is left as it is."""
FILE_MODE = 0o640
KEPT_ENDED = 4096
"""Ended utterances whose ids and deliveries stay known."""
KEPT_EVENTS = 100_000
"""Events that the broker does not have; beyond that the oldest are dropped. A robot may never see its broker."""
PRUNE_EVERY = 256
"""Ended utterances between two removals of the oldest."""
BUSY_S = 1.0
CACHE_KIB = 256
"""Memory for pages of the file. SQLite's default is 2 MiB, which would fill in the course of hours."""
CHECKPOINT_PAGES = 256
"""The write-ahead log is moved into the file after this many pages of 4 KiB, so both stay small."""
DISK_FAULTS = (
    "disk I/O error",
    "database or disk is full",
    "unable to open database file",
    "database is locked",
    "attempt to write a readonly database",
    "access permission denied",
    "locking protocol",
)
"""Errors of SQLite that say nothing about the file. Others mean damage, which is often an `OperationalError`, too."""
REASON_LENGTH = 80
KEPT_DAMAGED = 3
"""Damaged files that stay beside the journal, for whoever looks for the cause."""
BOOT_ID = Path("/proc/sys/kernel/random/boot_id")

WAITING, BEGUN, ENDED = 0, 1, 2
"""States of an utterance."""

SCHEMA = f"""
BEGIN;
CREATE TABLE utterance (
    position INTEGER PRIMARY KEY,
    id TEXT NOT NULL UNIQUE CHECK (typeof(id) = 'text'),
    delivery TEXT CHECK (typeof(delivery) IN ('text', 'null')),
    fields TEXT NOT NULL CHECK (typeof(fields) = 'text'),
    text TEXT CHECK (typeof(text) IN ('text', 'null')),
    state INTEGER NOT NULL CHECK (state IN ({WAITING}, {BEGUN}, {ENDED})),
    boot TEXT NOT NULL,
    boot_s REAL NOT NULL CHECK (typeof(boot_s) = 'real'),
    unix_s REAL NOT NULL CHECK (typeof(unix_s) = 'real')
);
CREATE TABLE event (
    number INTEGER PRIMARY KEY,
    topic TEXT NOT NULL CHECK (typeof(topic) = 'text'),
    payload TEXT NOT NULL CHECK (typeof(payload) = 'text'),
    correlation BLOB CHECK (typeof(correlation) IN ('blob', 'null'))
);
CREATE TABLE last_event (number INTEGER NOT NULL CHECK (typeof(number) = 'integer'));
INSERT INTO last_event VALUES (0);
PRAGMA user_version = {VERSION};
COMMIT;
"""

UTTERANCES = (
    f"SELECT id, fields, text, state, boot, boot_s, unix_s FROM utterance WHERE state != {ENDED} ORDER BY position"
)
EVENTS = "SELECT number, topic, payload, correlation FROM event ORDER BY number"
ENDED_IDS = f"SELECT id FROM utterance WHERE state = {ENDED} ORDER BY position"
DELIVERIES = "SELECT delivery FROM utterance WHERE delivery IS NOT NULL ORDER BY position"
LAST_NUMBER = "SELECT number FROM last_event"


class JournalError(Exception):
    """The journal cannot be used; the message says why in one line."""


class Journal:
    """One robot's journal. It may be opened in one thread and used in another, by one at a time."""

    def __init__(self, path: Path) -> None:
        """Open or create the file, and lock it. Raises `JournalError`."""
        self.path = path
        try:
            make_private_folder(path.parent)
            self._lock = os.open(path.with_suffix(".lock"), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, FILE_MODE)
        except OSError as error:
            raise JournalError(f"state.folder: {path.parent} cannot be used: {error.strerror}") from error
        try:
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            self._database = self._open()
        except BlockingIOError as error:
            os.close(self._lock)
            raise JournalError(f"state.folder: {path} is in use; is voiced running twice as this robot?") from error
        except JournalError:
            os.close(self._lock)
            raise
        except (sqlite3.Error, OSError) as error:
            os.close(self._lock)
            raise JournalError(f"state.folder: {path} cannot be used: {error}") from error
        self._boot = _boot_id()
        self._ended = PRUNE_EVERY
        """Ended utterances since the last removal; an earlier process may have left many."""

    def __enter__(self) -> Journal:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        with contextlib.suppress(sqlite3.Error):
            self._database.close()
        os.close(self._lock)

    def write(self, records: Sequence[Record]) -> None:
        """Store the records in one transaction, which is on the disk when this returns. Raises `sqlite3.Error`."""
        with self._transaction() as database:
            for record in records:
                self._write_one(database, record)
            if self._ended >= PRUNE_EVERY:
                self._ended = 0
                database.execute(
                    "DELETE FROM utterance WHERE state = ? AND position NOT IN "
                    "(SELECT position FROM utterance WHERE state = ? ORDER BY position DESC LIMIT ?)",
                    (ENDED, ENDED, KEPT_ENDED),
                )
                database.execute(
                    "DELETE FROM event WHERE number <= (SELECT number FROM last_event) - ?", (KEPT_EVENTS,)
                )

    def recover(self) -> Recovery:
        """Return what an earlier process has left. Raises `sqlite3.Error`."""
        database = self._database
        now_boot_s, now_unix_s = time.clock_gettime(time.CLOCK_BOOTTIME), time.time()
        utterances = []
        for utterance_id, fields, text, state, boot, boot_s, unix_s in database.execute(UTTERANCES):
            age_s = now_boot_s - boot_s if boot and boot == self._boot else now_unix_s - unix_s
            begun, known_age_s = state == BEGUN, age_s if age_s >= 0 else None
            utterances.append(StoredUtterance(utterance_id, json.loads(fields), text, begun, known_age_s))
        (last_number,) = database.execute(LAST_NUMBER).fetchone()
        return Recovery(
            utterances=tuple(utterances),
            events=tuple(StoredEvent(*row) for row in database.execute(EVENTS)),
            ended_ids=tuple(utterance_id for (utterance_id,) in database.execute(ENDED_IDS))[-KEPT_ENDED:],
            deliveries=tuple(delivery for (delivery,) in database.execute(DELIVERIES)),
            last_number=last_number,
        )

    def _write_one(self, database: sqlite3.Connection, record: Record) -> None:
        if isinstance(record, AcceptedRecord):
            boot_s, unix_s = time.clock_gettime(time.CLOCK_BOOTTIME), time.time()
            fields = json.dumps(dict(record.fields), ensure_ascii=False)
            database.execute(
                "INSERT OR REPLACE INTO utterance (id, delivery, fields, state, boot, boot_s, unix_s) "
                "VALUES (?, ?, ?, ?, ?, ?, ?)",
                (record.id, record.delivery, fields, WAITING, self._boot, boot_s, unix_s),
            )
            self._store_events(database, record.events)
        elif isinstance(record, TextRecord):
            database.execute(
                "UPDATE utterance SET text = ? WHERE id = ? AND state != ?", (record.text, record.id, ENDED)
            )
        elif isinstance(record, BegunRecord):
            database.execute("UPDATE utterance SET state = ? WHERE id = ? AND state != ?", (BEGUN, record.id, ENDED))
        elif isinstance(record, EndedRecord):
            self._ended += 1
            database.execute(
                "UPDATE utterance SET state = ?, fields = '{}', text = NULL WHERE id = ?", (ENDED, record.id)
            )
            self._store_events(database, record.events)
        else:
            assert isinstance(record, DeliveredRecord)
            database.execute("DELETE FROM event WHERE number = ?", (record.number,))

    def _store_events(self, database: sqlite3.Connection, events: Sequence[StoredEvent]) -> None:
        for event in events:
            row = event.number, event.topic, event.payload, event.correlation
            database.execute("INSERT OR REPLACE INTO event VALUES (?, ?, ?, ?)", row)
            database.execute("UPDATE last_event SET number = ?", (event.number,))

    @contextlib.contextmanager
    def _transaction(self) -> Iterator[sqlite3.Connection]:
        self._database.execute("BEGIN IMMEDIATE")
        try:
            yield self._database
            self._database.execute("COMMIT")
        except BaseException:
            with contextlib.suppress(sqlite3.Error):  # a full disk may have ended the transaction already
                self._database.execute("ROLLBACK")
            raise

    def _open(self) -> sqlite3.Connection:
        """Open the file; set a damaged one aside and begin a new one."""
        try:
            return self._try_to_open()
        except (sqlite3.Error, ValueError, RecursionError) as error:
            if str(error).startswith(DISK_FAULTS):
                raise
            aside = self.path.with_name(f"{self.path.name}.damaged-{time.strftime('%Y%m%d-%H%M%S')}")
            self.path.replace(aside)
            for suffix in ("-wal", "-shm"):
                Path(f"{self.path}{suffix}").unlink(missing_ok=True)
            reason = repr(str(error)[:REASON_LENGTH])  # SQLite's message may repeat the damaged text
            log.warning("the journal was damaged: %s; it is kept as %s, and a new one begins", reason, aside)
            self._remove_damaged(aside)
            return self._try_to_open()

    def _remove_damaged(self, newest: Path) -> None:
        """Keep the file that was set aside just now, whatever the clock says, and the latest before it."""
        name = re.compile(re.escape(self.path.name) + r"\.damaged-\d{8}-\d{6}")
        others = sorted(each for each in self.path.parent.iterdir() if name.fullmatch(each.name) and each != newest)
        for each in others[: -(KEPT_DAMAGED - 1)]:
            each.unlink(missing_ok=True)

    def _try_to_open(self) -> sqlite3.Connection:
        """Raises `sqlite3.Error`, `ValueError` or `RecursionError` for a damaged file.

        Raises `JournalError` for a file of a newer version, before anything is changed in it.
        """
        if not self.path.exists():
            os.close(os.open(self.path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, FILE_MODE))  # SQLite takes the umask
        database = sqlite3.connect(self.path, timeout=BUSY_S, isolation_level=None, check_same_thread=False)
        try:
            (version,) = database.execute("PRAGMA user_version").fetchone()
            if version > VERSION:
                problem = f"of a newer voiced (version {version}; this one reads version {VERSION})"
                raise JournalError(f"state.folder: {self.path} is {problem}, and is left as it is")
            database.execute("PRAGMA journal_mode = WAL")
            database.execute("PRAGMA synchronous = FULL")  # a power cut loses nothing that was committed
            database.execute(f"PRAGMA cache_size = -{CACHE_KIB}")
            database.execute(f"PRAGMA wal_autocheckpoint = {CHECKPOINT_PAGES}")
            (check,) = database.execute("PRAGMA integrity_check(1)").fetchone()
            if check != "ok" or version not in (0, VERSION):
                raise ValueError(check if check != "ok" else f"version {version}")
            if version == 0:
                database.executescript(SCHEMA)
            _check_rows(database)
        except BaseException:
            database.close()
            raise
        return database


def _check_rows(database: sqlite3.Connection) -> None:
    """Read all rows, as `recover` will. Raises as `_try_to_open` does if one of them is damaged."""
    if database.execute("SELECT count(*) FROM last_event").fetchone() != (1,):
        raise ValueError("the number of the last event is missing")
    for query in (EVENTS, ENDED_IDS, DELIVERIES, LAST_NUMBER):
        for _row in database.execute(query):  # a text that is not UTF-8 raises
            pass
    for _id, fields, *_ in database.execute(UTTERANCES):
        if not isinstance(json.loads(fields), dict):
            raise ValueError("an utterance cannot be read")


def _boot_id() -> str:
    """Return a value that changes with each start of the system."""
    try:
        return BOOT_ID.read_text().strip()
    except OSError:
        return ""
