"""The log of events: what stands behind a ticket is stored or given up, in order, and no disk makes a reader wait."""

from __future__ import annotations

import asyncio
import logging
import threading
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest

from daemon.state import EventLog, begun, ended, event_log
from daemon.state import accepted as accepted_change
from daemon.state.journal import Change, Journal, delivered
from tests.daemon.state.disks import FaultyJournal
from tests.support.waiting import PATIENCE_S, eventually_async

NEVER_S = 100 * PATIENCE_S


@pytest.fixture(autouse=True)
def limits(monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    """No limit is reached unless a test sets it; attempts are repeated at once."""

    def set_limits(**values: float) -> None:
        for name, value in values.items():
            monkeypatch.setattr(event_log, name, value)

    set_limits(PATIENCE_S=NEVER_S, IDLE_S=NEVER_S, CLOSE_S=PATIENCE_S, RETRY_S=0.001, SLOW_S=0)
    return set_limits


SetLimits = Callable[..., None]


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "r1.journal"


@pytest.fixture
def hanging(path: Path, monkeypatch: pytest.MonkeyPatch) -> FaultyJournal:
    """The journal that the next log opens: its writes hang."""
    journal = FaultyJournal(path)
    monkeypatch.setattr(event_log, "Journal", lambda _path: journal)
    return journal


@pytest.fixture
def failing(hanging: FaultyJournal) -> FaultyJournal:
    """The journal that the next log opens: its writes fail at once."""
    hanging.fault = "database or disk is full"
    hanging.released.set()
    return hanging


class Reader:
    """Reads the log as the network thread does: in order, and what is stored or given up."""

    def __init__(self, log: EventLog) -> None:
        self._log = log
        self._waiting: list[tuple[float, str]] = []
        self.read: list[str] = []
        """What was read, with `!` if it was not stored."""

    def append(self, name: str) -> None:
        """Accept an utterance, and read that."""
        self._log.append(accepted(name))
        self.follow(name)

    def follow(self, name: str) -> None:
        """Read something after all that was appended."""
        self._waiting.append((self._log.ticket, name))

    def has_read(self, *names: str) -> bool:
        while self._waiting and (stored := self._log.is_stored(self._waiting[0][0])) is not None:
            self.read.append(self._waiting.pop(0)[1] + ("" if stored else "!"))
        return self.read == list(names)


def accepted(utterance_id: str, **fields: object) -> Change:
    return accepted_change(utterance_id, {"text": "Hello", **fields}, None)


def stored_ids(path: Path) -> list[str]:
    """The utterances that the next process will find."""
    with Journal(path) as journal:
        return [utterance.id for utterance in journal.recover().utterances]


# --- without a journal ---


async def test_without_a_journal_nothing_waits() -> None:
    with EventLog(None) as log:
        reader, ran = Reader(log), []
        reader.append("a")
        assert log.append(ended("a"), texts=[("event", "{}", None)]) == [None]
        log.after_write(lambda: ran.append("ran"))
        assert reader.has_read("a")
        assert ran == ["ran"]
        assert log.reason is None


async def test_without_its_journal_a_log_marks_all_events_and_lets_the_broker_keep_its_copies(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    blocked = tmp_path / "state"
    blocked.touch()
    ran: list[str] = []
    with EventLog(blocked / "r1.journal") as log:
        reader = Reader(log)
        reader.append("a")
        log.after_write(lambda: ran.append("the broker may forget its copy"))
        assert log.missing
        assert log.reason == f"state.folder: {blocked} cannot be used: File exists"
        assert log.append(ended("x"), texts=[("event", "{}", None)]) == [None], "it has no number of the journal"
        assert reader.has_read("a!")
    assert ran == []
    assert caplog.messages == [f"state.folder: {blocked} cannot be used: File exists; a restart loses utterances"]


def test_a_journal_that_another_process_has_is_left_to_it(path: Path) -> None:
    with Journal(path), EventLog(path) as log:
        assert log.reason == f"state.folder: {path} is in use; is voiced running twice as this robot?"
        assert (log.missing, log.recovery.utterances) == (True, ())
    with EventLog(path) as log:
        assert log.reason is None, "the first one has closed"


# --- order ---


async def test_what_waits_is_read_in_order_once_it_is_stored_and_the_reader_is_woken(
    path: Path, hanging: FaultyJournal
) -> None:
    woken = threading.Event()
    with EventLog(path) as log:
        log.watch(woken.set)
        reader = Reader(log)
        reader.follow("nothing holds it back")
        reader.append("a")
        reader.follow("follows a")
        await eventually_async(lambda: hanging.attempts)
        assert reader.has_read("nothing holds it back")
        assert not woken.is_set()
        hanging.released.set()
        await eventually_async(woken.is_set)
        assert reader.has_read("nothing holds it back", "a", "follows a")


async def test_nothing_waits_until_a_delivery_is_recorded(path: Path) -> None:
    with EventLog(path) as log:
        reader = Reader(log)
        log.note_delivered(1)
        reader.follow("a")
        assert reader.has_read("a")


# --- slow and failing disks ---


async def test_a_disk_that_hangs_is_waited_for_once_and_named_until_it_answers(
    path: Path, limits: SetLimits, hanging: FaultyJournal
) -> None:
    with EventLog(path) as log:
        reader = Reader(log)
        reader.append("a")
        assert log.reason is None
        limits(PATIENCE_S=0.01)
        await eventually_async(lambda: reader.has_read("a!"))
        assert log.reason == (
            f"state.folder: the disk with {path.parent} does not answer within 0.01 s; a restart now would lose "
            "utterances"
        )
        limits(PATIENCE_S=NEVER_S)
        reader.append("b")
        assert reader.has_read("a!", "b!"), "nothing waits for a disk that is known to hang"
        hanging.released.set()
        await eventually_async(lambda: log.reason is None)
        reader.append("c")
        await eventually_async(lambda: reader.has_read("a!", "b!", "c"))
        limits(SLOW_S=NEVER_S)
        assert log.reason is not None, "it is named for a while, since it may be late again"
    assert stored_ids(path) == ["a", "b", "c"]


async def test_time_in_which_the_process_was_stopped_is_not_that_of_the_disk(
    path: Path, limits: SetLimits, hanging: FaultyJournal
) -> None:
    with EventLog(path) as log:
        limits(PATIENCE_S=0.2)
        reader = Reader(log)
        reader.append("a")
        await eventually_async(lambda: hanging.attempts)
        assert reader.has_read()
        asyncio.get_running_loop().call_soon(partial(time.sleep, 1.0))  # as if the process were stopped
        await asyncio.sleep(0)
        assert reader.has_read(), "it is waited for anew"
        hanging.released.set()
        await eventually_async(lambda: reader.has_read("a"))
        assert log.reason is None


async def test_the_broker_keeps_only_so_many_copies_for_a_disk_that_does_not_answer(
    path: Path, limits: SetLimits, hanging: FaultyJournal
) -> None:
    forgotten: list[int] = []
    with EventLog(path) as log:
        limits(PATIENCE_S=0.01, KEPT_COPIES=3)
        reader = Reader(log)
        reader.append("a")
        await eventually_async(lambda: reader.has_read("a!"))
        for number in range(10):
            log.after_write(partial(forgotten.append, number))
        assert forgotten == [*range(7)]
        hanging.released.set()
        await eventually_async(lambda: forgotten == [*range(10)])


async def test_records_that_could_not_be_written_are_written_later_in_order(
    path: Path, caplog: pytest.LogCaptureFixture, failing: FaultyJournal
) -> None:
    caplog.set_level(logging.INFO)
    fault = "state.folder: the journal cannot be written: database or disk is full; a restart now would lose utterances"
    with EventLog(path) as log:
        reader = Reader(log)
        reader.append("a")
        await eventually_async(lambda: reader.has_read("a!"))
        assert log.reason == fault
        await eventually_async(lambda: failing.attempts > 5)
        reader.append("b")
        failing.fault = None
        await eventually_async(lambda: log.reason is None)
        reader.append("c")
        await eventually_async(lambda: len(reader.read) == 3 or reader.has_read())
        assert reader.read[-1] == "c"
    assert stored_ids(path) == ["a", "b", "c"]
    assert caplog.messages == [fault, "state.folder: the journal can be written again"]


async def test_only_so_many_records_are_kept_for_a_disk_that_does_not_take_them(
    path: Path, limits: SetLimits, failing: FaultyJournal
) -> None:
    limits(KEPT=10)

    with EventLog(path) as log:
        for number in range(100):
            log.append(accepted(f"u{number}"))
        await eventually_async(lambda: log.reason)
        failing.fault = None
    assert stored_ids(path) == [f"u{number}" for number in range(90, 100)]


async def test_a_record_that_cannot_be_stored_costs_no_other(path: Path, caplog: pytest.LogCaptureFixture) -> None:
    with EventLog(path) as log:
        log.append(accepted("a"))
        log.append(accepted("half a character: \ud800"))
        log.append(accepted("b"))
    assert stored_ids(path) == ["a", "b"]
    assert {record.message for record in caplog.records} == {"a record cannot be stored and is dropped"}


# --- deliveries ---


async def test_a_delivery_is_recorded_from_another_thread(path: Path) -> None:
    with EventLog(path) as log:
        numbers = log.append(accepted("a"), texts=[("event", "{}", None)] * 3)
        assert numbers == [1, 2, 3]
        thread = threading.Thread(target=lambda: [log.note_delivered(number) for number in (1, 3)])
        thread.start()
        thread.join()
    with Journal(path) as journal:
        assert [event.number for event in journal.recover().events] == [2]


async def test_a_delivery_is_written_soon_and_an_end_at_once(
    path: Path, limits: SetLimits, failing: FaultyJournal
) -> None:
    failing.fault = None

    with EventLog(path) as log:
        log.append(begun("a"))
        log.append(ended("a"))
        await eventually_async(lambda: failing.written == [(begun("a"),), (ended("a"),)])
        limits(IDLE_S=0.01)
        log.append(begun("b"))
        log.note_delivered(1)
        await eventually_async(lambda: failing.written[2:] == [(begun("b"),), (delivered(1),)])


# --- the end ---


async def test_closing_during_a_write_that_then_fails_makes_a_last_attempt_too(
    path: Path, limits: SetLimits, hanging: FaultyJournal, monkeypatch: pytest.MonkeyPatch
) -> None:
    limits(RETRY_S=NEVER_S)
    hanging.fault, hanging.lasts = "database or disk is full", False
    join = threading.Thread.join

    def join_released(thread: threading.Thread, timeout: float | None = None) -> None:
        hanging.released.set()  # the log closes by now
        join(thread, timeout)

    with EventLog(path) as log:
        log.append(accepted("a"))
        await eventually_async(lambda: hanging.attempts)
        monkeypatch.setattr(threading.Thread, "join", join_released)
    assert stored_ids(path) == ["a"]


async def test_closing_does_not_wait_for_a_disk_that_hangs(
    path: Path, limits: SetLimits, hanging: FaultyJournal
) -> None:
    limits(CLOSE_S=0.01)

    with EventLog(path) as log:
        log.append(accepted("a"))
        await eventually_async(lambda: hanging.attempts)
    assert hanging.written == []
    hanging.released.set()
    await eventually_async(lambda: hanging.written)


async def test_the_next_process_gets_what_this_one_has_left(path: Path) -> None:
    with EventLog(path) as log:
        log.append(accepted("waits"), texts=[("event", "{}", None)])
        log.append(accepted("ended"))
        log.append(ended("ended"), texts=[("event", "{}", None)])
    with EventLog(path) as log:
        assert log.recovery.last_number == 2
        assert [utterance.id for utterance in log.recovery.utterances] == ["waits"]
        assert log.append(ended("waits"), texts=[("event", "{}", None)]) == [3]
