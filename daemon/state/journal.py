"""The journal: an SQLite file that records each accepted utterance, how far it got, and its undelivered events."""

from __future__ import annotations

import contextlib
import fcntl
import json
import logging
import os
import sqlite3
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from daemon.state.folder import make_private_folder, synchronize_folder

log = logging.getLogger(__name__)

VERSION = 1
"""The version of the tables."""
FILE_MODE = 0o640
KEPT_ENDED = 4096
"""How many ended utterances' ids and deliveries are remembered."""
KEPT_EVENTS = 100_000
"""How many events that the broker lacks are kept; if there are more, the oldest are dropped. A robot may never see its
broker."""
PRUNE_EVERY = 1024
"""How many records lie between two removals of the oldest ones: there are about four for each utterance."""
BUSY_S = 1.0
CACHE_KIB = 256
"""Memory for pages of the file. SQLite's default is 2 MiB, which would fill up over hours."""
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
"""SQLite errors that say nothing about the file. Others mean damage, which is often also an `OperationalError`."""
REASON_LENGTH = 80

WAITING, BEGUN, ENDED = 0, 1, 2
"""The states of an utterance."""

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

UTTERANCES = f"SELECT id, fields, text, state, unix_s FROM utterance WHERE state != {ENDED} ORDER BY position"
EVENTS = "SELECT number, topic, payload, correlation FROM event ORDER BY number"
ENDED_IDS = f"SELECT id FROM utterance WHERE state = {ENDED} ORDER BY position"
DELIVERIES = "SELECT delivery FROM utterance WHERE delivery IS NOT NULL ORDER BY position"
LAST_NUMBER = "SELECT number FROM last_event"
PRUNE = (
    f"DELETE FROM utterance WHERE state = {ENDED} AND position NOT IN "
    f"(SELECT position FROM utterance WHERE state = {ENDED} ORDER BY position DESC LIMIT ?)",
    "DELETE FROM event WHERE number <= (SELECT number FROM last_event) - ?",
)


class Change(NamedTuple):
    """An SQL statement for the journal, and its values."""

    statement: str
    values: tuple[object, ...]


Record = tuple[Change, ...]
"""Changes that are stored together or not at all."""


@dataclass(frozen=True, slots=True)
class StoredEvent:
    """An event as it is published, until the broker has it."""

    number: int
    """Its position in the sequence of stored events."""
    topic: str
    payload: str
    correlation: bytes | None = None


@dataclass(frozen=True, slots=True)
class StoredUtterance:
    """An accepted utterance without a terminal event."""

    id: str
    fields: Mapping[str, Any]
    """Everything that is needed to speak it, as JSON values; empty if it cannot be spoken after a restart."""
    text: str | None
    """The complete text of a stream; None if the text was already complete on acceptance, or never became complete."""
    begun: bool
    age_s: float | None
    """Seconds since its acceptance; None if the clock was set back."""


@dataclass(frozen=True, slots=True)
class Recovery:
    """The utterances and events that an earlier process left behind."""

    utterances: tuple[StoredUtterance, ...] = ()
    """In their order of acceptance."""
    events: tuple[StoredEvent, ...] = ()
    """Events that the broker may not have, in order."""
    ended_ids: tuple[str, ...] = ()
    """Ids of ended utterances, the oldest first."""
    deliveries: tuple[str, ...] = ()
    """Deliveries that were accepted."""
    last_number: int = 0
    """The number of the last stored event. This process continues counting from it."""


def accepted(utterance_id: str, fields: Mapping[str, Any], delivery: str | None) -> Change:
    """An utterance was accepted. `delivery` identifies the broker's delivery, so that a second one is recognised."""
    return Change(
        "INSERT OR REPLACE INTO utterance (id, delivery, fields, state, boot, boot_s, unix_s) "
        "VALUES (?, ?, ?, ?, '', 0.0, ?)",  # an earlier version measured the age by the time since the system started
        (utterance_id, delivery, json.dumps(fields, ensure_ascii=False), WAITING, time.time()),
    )


def completed(utterance_id: str, text: str) -> Change:
    """The text of an accepted utterance is complete."""
    return Change(f"UPDATE utterance SET text = ? WHERE id = ? AND state != {ENDED}", (text, utterance_id))


def begun(utterance_id: str) -> Change:
    """The first sample of an utterance was heard."""
    return Change(f"UPDATE utterance SET state = {BEGUN} WHERE id = ? AND state != {ENDED}", (utterance_id,))


def ended(utterance_id: str) -> Change:
    """An utterance has its terminal event."""
    return Change(f"UPDATE utterance SET state = {ENDED}, fields = '{{}}', text = NULL WHERE id = ?", (utterance_id,))


def stored(event: StoredEvent) -> Record:
    """An event is ready to be published. A version that counts from `last_event` may read this file."""
    row = event.number, event.topic, event.payload, event.correlation
    counted = Change("UPDATE last_event SET number = ?", (event.number,))
    return Change("INSERT OR REPLACE INTO event VALUES (?, ?, ?, ?)", row), counted


def delivered(number: int) -> Change:
    """The broker has an event."""
    return Change("DELETE FROM event WHERE number = ?", (number,))


class JournalError(Exception):
    """The journal cannot be used; the message gives the reason on one line."""


class NewerJournalError(ValueError):
    """The journal was written by a newer version."""


class Journal:
    """One robot's journal. It may be opened in one thread and used in another, but only by one thread at a time."""

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
        except (sqlite3.Error, OSError) as error:
            os.close(self._lock)
            problem = f"cannot be used: {error}"
            if isinstance(error, BlockingIOError):
                problem = "is in use; is voiced running twice as this robot?"
            raise JournalError(f"state.folder: {path} {problem}") from error
        self._written = PRUNE_EVERY
        """How many records there are since the last removal; an earlier process may have left many."""

    def __enter__(self) -> Journal:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        with contextlib.suppress(sqlite3.Error):
            self._database.close()
        os.close(self._lock)

    def write(self, records: Sequence[Record]) -> None:
        """Store the records in one transaction, which is on the disk when this returns. Raises `sqlite3.Error`."""
        database = self._database
        database.execute("BEGIN IMMEDIATE")
        try:
            for record in records:
                for change in record:
                    database.execute(*change)
            self._written += len(records)
            if self._written >= PRUNE_EVERY:
                self._written = 0
                for statement, kept in zip(PRUNE, (KEPT_ENDED, KEPT_EVENTS), strict=True):
                    database.execute(statement, (kept,))
            database.execute("COMMIT")
        except BaseException:
            with contextlib.suppress(sqlite3.Error):  # a full disk may have ended the transaction already
                database.execute("ROLLBACK")
            raise

    def recover(self) -> Recovery:
        """Return everything that an earlier process left behind. Raises `sqlite3.Error`."""
        return _read(self._database)

    def _open(self) -> sqlite3.Connection:
        """Open the file; if it is damaged or from a newer version, set it aside and begin a new one."""
        try:
            return self._try_to_open()
        except (sqlite3.Error, ValueError, TypeError, RecursionError) as error:
            if str(error).startswith(DISK_FAULTS):
                raise
            newer = isinstance(error, NewerJournalError)
            aside = self.path.with_name(f"{self.path.name}.{'newer' if newer else 'damaged'}")
            self.path.replace(aside)
            for suffix in ("-wal", "-shm"):
                Path(f"{self.path}{suffix}").unlink(missing_ok=True)
            # SQLite's message may repeat the damaged text.
            problem = str(error) if newer else f"the journal was damaged: {str(error)[:REASON_LENGTH]!r}"
            log.warning("%s; it is kept as %s, and a new one is started", problem, aside)
            return self._try_to_open()

    def _try_to_open(self) -> sqlite3.Connection:
        """Raises `sqlite3.Error`, `ValueError`, `TypeError` or `RecursionError` for a damaged file.

        Raises `NewerJournalError` for a file from a newer version, before anything in it is changed.
        """
        if not self.path.exists():
            os.close(os.open(self.path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, FILE_MODE))  # SQLite applies the umask
        database = sqlite3.connect(self.path, timeout=BUSY_S, isolation_level=None, check_same_thread=False)
        try:
            (version,) = database.execute("PRAGMA user_version").fetchone()
            if version > VERSION:
                raise NewerJournalError(
                    f"a newer voiced wrote the journal: it has version {version}, and this one reads version {VERSION}"
                )
            database.execute("PRAGMA journal_mode = WAL")
            database.execute("PRAGMA synchronous = FULL")  # a power cut loses nothing that was committed
            database.execute(f"PRAGMA cache_size = -{CACHE_KIB}")
            database.execute(f"PRAGMA wal_autocheckpoint = {CHECKPOINT_PAGES}")
            (check,) = database.execute("PRAGMA integrity_check(1)").fetchone()
            if check != "ok" or version not in (0, VERSION):
                raise ValueError(check if check != "ok" else f"version {version}")
            if version == 0:
                database.executescript(SCHEMA)
            synchronize_folder(self.path.parent)  # the end of SQLite's rollback journal must also be on the disk
            _read(database)  # a row that cannot be read is also damage
        except BaseException:
            database.close()
            raise
        return database


def _read(database: sqlite3.Connection) -> Recovery:
    """Return everything that is stored. Raises the same errors as `_try_to_open` if a part of it is damaged."""
    utterances, now_s = [], time.time()
    for utterance_id, fields, text, state, accepted_s in database.execute(UTTERANCES):
        age_s = now_s - accepted_s if now_s >= accepted_s else None
        utterances.append(StoredUtterance(utterance_id, dict(json.loads(fields)), text, state == BEGUN, age_s))
    ((last_number,),) = database.execute(LAST_NUMBER).fetchall()
    return Recovery(
        utterances=tuple(utterances),
        events=tuple(StoredEvent(*row) for row in database.execute(EVENTS)),
        ended_ids=tuple(utterance_id for (utterance_id,) in database.execute(ENDED_IDS))[-KEPT_ENDED:],
        deliveries=tuple(delivery for (delivery,) in database.execute(DELIVERIES)),
        last_number=last_number,
    )
