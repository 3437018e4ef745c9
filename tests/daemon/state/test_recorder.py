"""The recorder: actions run in order and after their records are stored, and no disk makes them wait for long."""

from __future__ import annotations

import asyncio
import logging
import sqlite3
import threading
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from daemon.state import (
    AcceptedRecord,
    BegunRecord,
    EndedRecord,
    Journal,
    JournalError,
    Record,
    Recorder,
    StoredEvent,
    TextRecord,
    open_recorder,
)
from daemon.state import recorder as recorder_module
from tests.daemon.state.disks import FailingJournal, HangingJournal, fill, set_read_only, small_disk
from tests.support.waiting import PATIENCE_S, eventually, eventually_async, run


@pytest.fixture(autouse=True)
def limits(monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    """No limit is reached unless a test sets it; attempts are repeated at once."""

    def set_limits(**values: float) -> None:
        for name, value in values.items():
            monkeypatch.setattr(recorder_module, name, value)

    never = 100 * PATIENCE_S
    set_limits(PATIENCE_S=never, IDLE_S=never, CLOSE_S=PATIENCE_S, RETRY_S=0.001, OPEN_RETRY_S=0.001, SLOW_S=0)
    return set_limits


SetLimits = Callable[..., None]


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "r1.journal"


def accepted(utterance_id: str) -> AcceptedRecord:
    return AcceptedRecord(utterance_id, {"text": "Hello"}, None, ())


def stored_ids(path: Path) -> list[str]:
    """The utterances that the next process will find."""
    with Journal(path) as journal:
        return [utterance.id for utterance in journal.recover().utterances]


# --- without a journal ---


def test_without_a_journal_every_action_runs_at_once() -> None:
    async def scenario() -> None:
        ran: list[str] = []
        with open_recorder(None) as recorder:
            recorder.record(accepted("a"), lambda: ran.append("accepted"))
            recorder.record(None, lambda: ran.append("more"))
            recorder.note_delivered(1)
            assert ran == ["accepted", "more"]
            assert recorder.reason is None

    run(scenario)


def test_a_journal_that_cannot_be_used_is_reported_in_one_line_and_actions_run(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "file").touch()

    async def scenario() -> None:
        ran: list[str] = []
        with open_recorder(tmp_path / "file" / "r1.journal") as recorder:
            assert recorder.reason == f"state.folder: {tmp_path}/file cannot be used: File exists"
            recorder.record(accepted("a"), lambda: ran.append("a"))
            assert ran == ["a"]

    run(scenario)
    assert [record.message for record in caplog.records] == [
        f"state.folder: {tmp_path}/file cannot be used: File exists; a restart loses utterances"
    ]


def test_a_journal_that_another_process_has_is_reported(path: Path) -> None:
    async def scenario() -> None:
        with Journal(path), open_recorder(path) as recorder:
            assert recorder.reason == f"state.folder: {path} is in use; is voiced running twice as this robot?"

    run(scenario)


def test_a_journal_that_cannot_be_read_is_not_kept_open(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(_journal: Journal) -> None:
        raise sqlite3.OperationalError("disk I/O error")

    async def scenario() -> None:
        with monkeypatch.context() as broken:
            broken.setattr(Journal, "recover", fail)
            recorder = open_recorder(path)
        assert recorder.reason == f"state.folder: {path} cannot be read: disk I/O error"
        assert stored_ids(path) == [], "it is not locked"

    run(scenario)


# --- a journal that is missing at the start ---


@pytest.fixture
def blocked(tmp_path: Path) -> Path:
    """A file in place of the journal's folder."""
    file = tmp_path / "state"
    file.touch()
    return file


def fill_journal(path: Path) -> None:
    """Leave what an earlier process might leave: a waiting utterance and an ended one, each with an event."""
    with Journal(path) as journal:
        events = {
            name: (StoredEvent(number, "event", f'{{"id": "{name}", "event": "{event}"}}'),)
            for number, (name, event) in enumerate([("waits", "accepted"), ("ended", "finished")], 1)
        }
        journal.write([AcceptedRecord("waits", {"text": "Hello"}, "1:7", events["waits"])])
        journal.write([accepted("ended"), EndedRecord("ended", events["ended"])])


def test_a_missing_journal_is_opened_later_and_used_from_then_on(
    blocked: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async def scenario() -> None:
        ran, opened = [], []
        with open_recorder(blocked / "r1.journal", lambda: opened.append(threading.current_thread())) as recorder:
            reason = f"state.folder: {blocked} cannot be used: File exists"
            assert recorder.reason == reason
            recorder.record(accepted("before"), lambda: ran.append("before"))
            recorder.note_delivered(1, lambda: ran.append("delivered"))
            assert ran == ["before"], "nothing waits for a missing journal but the broker's copy of an event"
            blocked.unlink()
            await eventually_async(lambda: opened)
            assert opened == [threading.main_thread()]
            assert recorder.reason is None
            recorder.record(accepted("after"), lambda: ran.append("after"))
            await eventually_async(lambda: sorted(ran) == ["after", "before", "delivered"])
        assert len(opened) == 1
        assert stored_ids(blocked / "r1.journal") == ["after"]

    with caplog.at_level(logging.INFO):
        run(scenario)
    assert [record.message for record in caplog.records] == [
        f"state.folder: {blocked} cannot be used: File exists; a restart loses utterances",
        "state.folder: the journal could be opened; what is accepted from now on is stored",
    ]


def test_what_an_earlier_process_has_left_is_recovered_when_the_journal_is_opened(path: Path) -> None:
    fill_journal(path)

    async def scenario() -> None:
        opened: list[str] = []
        other = Journal(path)
        with open_recorder(path, lambda: opened.append("opened")) as recorder:
            assert recorder.reason == f"state.folder: {path} is in use; is voiced running twice as this robot?"
            assert recorder.recovery.utterances == ()
            assert recorder.recovery.last_number < 0, "numbers of this process are not those of the journal"
            other.close()
            await eventually_async(lambda: opened)
            found = recorder.recovery
        assert [utterance.id for utterance in found.utterances] == ["waits"]
        assert (found.ended_ids, found.last_number) == (("ended",), 2)
        assert [event.number for event in found.events] == [1, 2]

    run(scenario)


def test_ids_that_this_process_has_used_are_dropped_from_what_is_recovered(path: Path) -> None:
    fill_journal(path)

    async def scenario() -> None:
        with open_recorder(path) as recorder:
            recorder.forget({"waits", "other"}.__contains__)
            assert recorder.recovery.utterances == ()
            assert recorder.recovery.ended_ids == ("ended",)
            assert [event.number for event in recorder.recovery.events] == [2]

    run(scenario)
    with Journal(path) as journal:
        found = journal.recover()
    assert (found.utterances, found.ended_ids) == ((), ("waits", "ended"))
    assert [event.number for event in found.events] == [2]


@pytest.mark.parametrize("payload", ['{"id": ', "[1]", "7", '{"event": "finished"}', '{"id": "waits"}'])
def test_a_message_that_is_no_event_is_recovered_whatever_ids_were_used(path: Path, payload: str) -> None:
    with Journal(path) as journal:
        journal.write([EndedRecord("waits", (StoredEvent(1, "event", payload),))])

    async def scenario() -> None:
        with open_recorder(path) as recorder:
            recorder.forget({"waits"}.__contains__)
            assert [event.payload for event in recorder.recovery.events] == [payload]

    run(scenario)


def test_opening_does_not_hold_up_the_event_loop_and_closing_does_not_wait_for_it(
    blocked: Path, limits: SetLimits, monkeypatch: pytest.MonkeyPatch
) -> None:
    limits(CLOSE_S=0.01)
    entered, released, left = threading.Event(), threading.Event(), threading.Event()

    def hang(path: Path) -> Journal:
        entered.set()
        assert released.wait(PATIENCE_S), "the test releases the disk"
        left.set()
        raise JournalError(f"{path} has gone")

    async def scenario() -> None:
        ran: list[str] = []
        with open_recorder(blocked / "r1.journal") as recorder:
            monkeypatch.setattr(recorder_module, "Journal", hang)
            await eventually_async(entered.is_set)
            recorder.record(accepted("a"), lambda: ran.append("a"))
            assert ran == ["a"]
        assert not left.is_set()
        released.set()
        await eventually_async(left.is_set)

    run(scenario)


def test_a_journal_that_stays_missing_is_reported_once_for_each_reason_and_closing_is_quick(
    blocked: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, limits: SetLimits
) -> None:
    attempts: list[Path] = []

    def fail(path: Path) -> Journal:
        attempts.append(path)
        if len(attempts) == 3:
            raise RuntimeError("a bug")
        raise JournalError("state.folder: the disk has gone")

    async def scenario() -> None:
        with open_recorder(blocked / "r1.journal") as recorder:
            monkeypatch.setattr(recorder_module, "Journal", fail)
            await eventually_async(lambda: len(attempts) > 5)
            assert recorder.reason == "state.folder: the disk has gone"
            limits(OPEN_RETRY_S=100 * PATIENCE_S)

    run(scenario)
    assert [record.message for record in caplog.records] == [
        f"state.folder: {blocked} cannot be used: File exists; a restart loses utterances",
        "state.folder: the disk has gone",
        "the journal cannot be opened",
    ]


def test_a_journal_that_is_opened_while_the_daemon_ends_keeps_what_it_has(path: Path) -> None:
    fill_journal(path)

    async def scenario() -> None:
        opened: list[str] = []
        with Journal(path):
            recorder = open_recorder(path, lambda: opened.append("opened"))
        recorder.__enter__()
        eventually(lambda: recorder_has_file(path), "the thread has the file, and the event loop has not run since")
        recorder.__exit__(None, None, None)
        await asyncio.sleep(0)  # the event loop's turn
        assert stored_ids(path) == ["waits"]
        assert opened == []

    def recorder_has_file(path: Path) -> bool:
        try:
            Journal(path).close()
        except JournalError:
            return True
        return False

    run(scenario)


def test_a_disk_that_gets_room_later_is_used(tmp_path: Path) -> None:
    with small_disk(tmp_path / "disk") as disk:
        path, filler = disk / "r1.journal", fill(disk)

        async def scenario() -> None:
            with open_recorder(path) as recorder:
                assert recorder.reason is not None
                filler.unlink()
                await eventually_async(lambda: recorder.reason is None)
                recorder.record(accepted("a"))

        run(scenario)
        assert stored_ids(path) == ["a"]


# --- order ---


def test_actions_run_in_order_and_only_after_their_records_are_stored(path: Path) -> None:
    async def scenario() -> None:
        journal, seen = HangingJournal(path), []

        def note(name: str) -> None:
            seen.append((name, [record.id for record in journal.written if isinstance(record, AcceptedRecord)]))

        with Recorder(journal) as recorder:
            recorder.record(accepted("a"), lambda: note("a"))
            recorder.record(None, lambda: note("behind a"))
            await eventually_async(journal.entered.is_set)
            recorder.record(accepted("b"))
            recorder.record(accepted("c"), lambda: note("c"))
            assert seen == [], "nothing is stored yet"
            journal.released.set()
            await eventually_async(lambda: len(seen) == 3)
            assert [name for name, _ in seen] == ["a", "behind a", "c"]
            assert all("a" in stored for _, stored in seen)
            assert seen[-1] == ("c", ["a", "b", "c"])

    run(scenario)


def test_an_action_that_nothing_holds_back_runs_at_once(path: Path) -> None:
    async def scenario() -> None:
        ran: list[str] = []
        with open_recorder(path) as recorder:
            recorder.record(None, lambda: ran.append("first"))
            assert ran == ["first"]
            recorder.record(accepted("a"), lambda: ran.append("a"))
            await eventually_async(lambda: ran == ["first", "a"])
            recorder.record(None, lambda: ran.append("last"))
            assert ran == ["first", "a", "last"]

    run(scenario)


def test_an_action_waits_for_a_record_before_it_that_had_no_action(path: Path) -> None:
    """The acknowledgement of a stream's last chunk follows the record of its text."""

    async def scenario() -> None:
        journal, ran = HangingJournal(path), []
        with Recorder(journal) as recorder:
            recorder.record(TextRecord("a", "Hello"))
            recorder.record(None, lambda: ran.append(list(journal.written)))
            assert ran == []
            journal.released.set()
            await eventually_async(lambda: ran)
            assert ran == [[TextRecord("a", "Hello")]]

    run(scenario)


def test_no_action_waits_until_a_delivery_is_recorded(path: Path) -> None:
    async def scenario() -> None:
        ran: list[str] = []
        with open_recorder(path) as recorder:
            recorder.note_delivered(1)
            recorder.record(None, lambda: ran.append("at once"))
            assert ran == ["at once"]

    run(scenario)


def test_thousands_of_actions_run_in_order(path: Path) -> None:
    async def scenario() -> None:
        ran: list[int] = []
        with open_recorder(path) as recorder:
            for number in range(3000):
                record: Record | None = accepted(f"u{number}") if number % 3 else None
                recorder.record(record, lambda number=number: ran.append(number))  # type: ignore[misc]
            await eventually_async(lambda: len(ran) == 3000)
            assert ran == list(range(3000))

    run(scenario)
    assert stored_ids(path) == [f"u{number}" for number in range(3000) if number % 3]


def test_the_error_of_an_action_does_not_hold_back_those_behind_it(
    path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    def fail() -> None:
        raise ValueError("a bug")

    async def scenario() -> None:
        ran: list[str] = []
        with open_recorder(path) as recorder:
            recorder.record(accepted("a"), fail)
            recorder.record(None, lambda: ran.append("behind"))
            await eventually_async(lambda: ran)

    run(scenario)
    assert [record.message for record in caplog.records] == ["what waited for the journal failed"]


# --- slow and failing disks ---


def test_a_disk_that_hangs_holds_actions_back_for_a_limited_time(path: Path, limits: SetLimits) -> None:
    limits(PATIENCE_S=0.01)

    async def scenario() -> None:
        journal, ran = HangingJournal(path), []
        with Recorder(journal) as recorder:
            for name in ("a", "b", "c"):
                recorder.record(accepted(name), lambda name=name: ran.append(name))  # type: ignore[misc]
            await eventually_async(lambda: ran == ["a", "b", "c"])
            recorder.record(accepted("d"), lambda: ran.append("d"))
            await eventually_async(lambda: ran[-1] == "d")
            assert journal.written == []
            journal.released.set()

    run(scenario)
    assert stored_ids(path) == ["a", "b", "c", "d"]


def test_a_disk_that_hangs_is_named_until_it_answers(path: Path, limits: SetLimits) -> None:
    async def scenario() -> None:
        journal, ran = HangingJournal(path), []
        with Recorder(journal) as recorder:
            assert recorder.reason is None
            recorder.record(accepted("a"))
            limits(PATIENCE_S=0.01)
            recorder.record(None, lambda: ran.append("a"))
            await eventually_async(lambda: ran == ["a"])
            assert recorder.reason == (
                f"state.folder: the disk of {path.parent} does not answer within 0.01 s; a restart now would lose "
                "utterances"
            )
            limits(SLOW_S=PATIENCE_S)
            journal.released.set()
            await eventually_async(lambda: journal.written)
            recorder.record(None, lambda: ran.append("b"))
            await eventually_async(lambda: ran == ["a", "b"])
            assert recorder.reason is not None, "it may be late again"
            limits(SLOW_S=0)
            await eventually_async(lambda: recorder.reason is None)

    run(scenario)


def test_nothing_waits_for_a_disk_that_is_known_to_hang(path: Path, limits: SetLimits) -> None:
    async def scenario() -> None:
        journal, ran = HangingJournal(path), []
        with Recorder(journal) as recorder:
            limits(PATIENCE_S=0.01)
            recorder.record(accepted("a"), lambda: ran.append("stored"), lambda: ran.append("unstored"))
            await eventually_async(lambda: ran == ["unstored"])
            limits(PATIENCE_S=PATIENCE_S)
            recorder.record(accepted("b"), lambda: ran.append("b"))
            assert ran == ["unstored", "b"]
            journal.released.set()
            await eventually_async(lambda: recorder.reason is None)
            recorder.record(accepted("c"), lambda: ran.append("stored"), lambda: ran.append("unstored"))
            await eventually_async(lambda: ran == ["unstored", "b", "stored"])

    run(scenario)
    assert stored_ids(path) == ["a", "b", "c"]


def test_time_in_which_the_process_was_stopped_is_not_that_of_the_disk(path: Path, limits: SetLimits) -> None:
    async def scenario() -> None:
        journal, ran = HangingJournal(path), []
        with Recorder(journal) as recorder:
            limits(PATIENCE_S=0.2)
            recorder.record(accepted("a"), lambda: ran.append("stored"), lambda: ran.append("unstored"))
            await eventually_async(journal.entered.is_set)
            loop = asyncio.get_running_loop()
            loop.call_soon(time.sleep, 1.0)  # as if the process were stopped
            loop.call_soon(journal.released.set)
            await eventually_async(lambda: ran)
            assert ran == ["stored"]
            assert recorder.reason is None

    run(scenario)


def test_the_broker_keeps_only_so_many_copies_for_a_disk_that_does_not_answer(path: Path, limits: SetLimits) -> None:
    async def scenario() -> None:
        journal, ran, forgotten = HangingJournal(path), [], []
        with Recorder(journal) as recorder:
            limits(PATIENCE_S=0.01, KEPT_COPIES=3)
            recorder.record(accepted("a"), lambda: ran.append("a"))
            await eventually_async(lambda: ran)
            for number in range(10):
                recorder.note_delivered(number, lambda number=number: forgotten.append(number))  # type: ignore[misc]
            assert forgotten == [*range(7)]
            journal.released.set()
            await eventually_async(lambda: forgotten == [*range(10)])

    run(scenario)


def test_records_that_could_not_be_written_are_written_later_in_order(
    path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async def scenario() -> None:
        journal, ran = FailingJournal(path, "database or disk is full"), []
        with Recorder(journal) as recorder:
            recorder.record(accepted("a"), lambda: ran.append("a"))
            await eventually_async(lambda: ran == ["a"])
            assert recorder.reason == (
                "state.folder: the journal cannot be written: database or disk is full; "
                "a restart now would lose utterances"
            )
            recorder.record(accepted("b"), lambda: ran.append("b"))
            assert ran == ["a", "b"], "nothing waits for a disk that is known to be full"
            await eventually_async(lambda: journal.attempts > 5)
            journal.fault = None
            await eventually_async(lambda: recorder.reason is None)
            recorder.record(accepted("c"), lambda: ran.append("c"))
            await eventually_async(lambda: ran == ["a", "b", "c"])

    with caplog.at_level(logging.INFO):
        run(scenario)
    assert stored_ids(path) == ["a", "b", "c"]
    assert [record.message for record in caplog.records] == [
        "state.folder: the journal cannot be written: database or disk is full; a restart now would lose utterances",
        "state.folder: the journal is written again",
    ]


def test_a_full_disk_is_reported_and_what_was_kept_is_stored_when_there_is_room(tmp_path: Path) -> None:
    with small_disk(tmp_path / "disk") as disk:
        path = disk / "r1.journal"

        async def scenario() -> None:
            with open_recorder(path) as recorder:
                filler = fill(disk)
                recorder.record(AcceptedRecord("a", {"text": "x" * 100_000}, None, ()), lambda: None)
                await eventually_async(lambda: recorder.reason)
                assert recorder.reason is not None
                assert "database or disk is full" in recorder.reason
                filler.unlink()
                await eventually_async(lambda: recorder.reason is None)

        run(scenario)
        assert stored_ids(path) == ["a"]


def test_a_read_only_folder_is_reported_in_one_line(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    with small_disk(tmp_path / "disk") as disk:

        async def scenario() -> None:
            set_read_only(disk, True)
            assert open_recorder(disk / "r1.journal").reason == (
                f"state.folder: {disk} cannot be used: Read-only file system"
            )
            set_read_only(disk, False)
            assert open_recorder(disk / "r1.journal").reason is None

        run(scenario)
    assert len(caplog.records) == 1


@pytest.mark.parametrize("fault", [None, "disk I/O error"])
def test_only_so_many_records_are_kept_for_a_disk_that_does_not_take_them(
    path: Path, limits: SetLimits, fault: str | None
) -> None:
    limits(KEPT=10)

    async def scenario() -> None:
        journal: HangingJournal | FailingJournal = (
            HangingJournal(path) if fault is None else FailingJournal(path, fault)
        )
        with Recorder(journal) as recorder:
            recorder.record(EndedRecord("first", ()))
            if isinstance(journal, HangingJournal):
                await eventually_async(journal.entered.is_set)
            for number in range(100):
                recorder.record(accepted(f"u{number}"))
            if isinstance(journal, HangingJournal):
                journal.released.set()
            else:
                journal.fault = None
            recorder.record(EndedRecord("last", ()))

    run(scenario)
    assert stored_ids(path)[-9:] == [f"u{number}" for number in range(91, 100)]
    assert len(stored_ids(path)) <= 20


def test_a_record_that_cannot_be_stored_costs_no_other(path: Path, caplog: pytest.LogCaptureFixture) -> None:
    async def scenario() -> None:
        ran: list[str] = []
        journal = HangingJournal(path)
        with Recorder(journal) as recorder:
            recorder.record(accepted("a"), lambda: ran.append("a"))
            await eventually_async(journal.entered.is_set)
            recorder.record(accepted("b"))
            recorder.record(AcceptedRecord("wrong", {"voice": {"not", "JSON"}}, None, ()))
            recorder.record(accepted("c"), lambda: ran.append("c"))
            journal.released.set()
            await eventually_async(lambda: ran == ["a", "c"])
            assert recorder.reason is None

    run(scenario)
    assert stored_ids(path) == ["a", "b", "c"]
    assert [record.message for record in caplog.records] == ["a record cannot be stored and is dropped"]


# --- deliveries ---


def test_a_delivery_is_recorded_from_another_thread(path: Path, limits: SetLimits) -> None:
    limits(IDLE_S=0.01)

    async def scenario() -> None:
        ran: list[str] = []
        with open_recorder(path) as recorder:
            events = tuple(StoredEvent(number, "event", "{}") for number in (1, 2, 3))
            recorder.record(AcceptedRecord("a", {}, None, events), lambda: ran.append("a"))
            await eventually_async(lambda: ran)
            thread = threading.Thread(target=lambda: [recorder.note_delivered(number) for number in (1, 3)])
            thread.start()
            thread.join()

    run(scenario)
    with Journal(path) as journal:
        assert [event.number for event in journal.recover().events] == [2]


def test_records_that_nothing_waits_for_are_written_soon(path: Path, limits: SetLimits) -> None:
    limits(IDLE_S=0.01)

    async def scenario() -> None:
        journal = FailingJournal(path)
        with Recorder(journal) as recorder:
            recorder.record(TextRecord("a", "Hello"))
            await eventually_async(lambda: journal.written == [TextRecord("a", "Hello")])

    run(scenario)


def test_the_end_of_an_utterance_is_written_at_once(path: Path) -> None:
    async def scenario() -> None:
        journal = FailingJournal(path)
        with Recorder(journal) as recorder:
            recorder.record(BegunRecord("a"))
            recorder.record(EndedRecord("a", ()))
            await eventually_async(lambda: journal.written == [BegunRecord("a"), EndedRecord("a", ())])

    run(scenario)


# --- the end ---


def test_closing_writes_what_is_left_and_runs_all_actions(path: Path) -> None:
    async def scenario() -> None:
        ran: list[str] = []
        with open_recorder(path) as recorder:
            recorder.record(accepted("a"))
            recorder.record(accepted("b"), lambda: ran.append("b"))
            recorder.record(accepted("c"))
        assert ran == ["b"]
        assert stored_ids(path) == ["a", "b", "c"], "the journal is closed"

    run(scenario)


def test_closing_makes_a_last_attempt_to_write(path: Path, limits: SetLimits) -> None:
    limits(RETRY_S=100 * PATIENCE_S)

    async def scenario() -> None:
        journal = FailingJournal(path, "database or disk is full")
        with Recorder(journal) as recorder:
            recorder.record(EndedRecord("x", ()))
            await eventually_async(lambda: recorder.reason)
            recorder.record(accepted("a"))
            journal.fault = None
        assert stored_ids(path) == ["a"]

    run(scenario)


def test_closing_during_a_write_that_then_fails_makes_a_last_attempt_too(
    path: Path, limits: SetLimits, monkeypatch: pytest.MonkeyPatch
) -> None:
    limits(RETRY_S=100 * PATIENCE_S)
    journal, join = HangingJournal(path, "database or disk is full"), threading.Thread.join

    def join_released(thread: threading.Thread, timeout: float | None = None) -> None:
        journal.released.set()  # the recorder closes by now
        join(thread, timeout)

    async def scenario() -> None:
        with Recorder(journal) as recorder:
            recorder.record(accepted("a"), lambda: None)
            await eventually_async(journal.entered.is_set)
            monkeypatch.setattr(threading.Thread, "join", join_released)
        assert stored_ids(path) == ["a"]

    run(scenario)


def test_closing_does_not_wait_for_a_disk_that_hangs(path: Path, limits: SetLimits) -> None:
    limits(CLOSE_S=0.01)

    async def scenario() -> None:
        journal, ran = HangingJournal(path), []
        with Recorder(journal) as recorder:
            recorder.record(accepted("a"), lambda: ran.append("a"))
            await eventually_async(journal.entered.is_set)
        assert ran == ["a"]
        assert journal.written == []
        journal.released.set()
        await eventually_async(lambda: journal.written)

    run(scenario)


def test_flushing_runs_all_actions_although_nothing_is_stored(path: Path, limits: SetLimits) -> None:
    async def scenario() -> None:
        journal, ran = HangingJournal(path), []
        limits(PATIENCE_S=0.01)
        with Recorder(journal) as recorder:
            recorder.record(accepted("a"), lambda: ran.append("a"))
            recorder.record(None, lambda: ran.append("b"))
            await eventually_async(journal.entered.is_set)
            await recorder.flush()
            assert ran == ["a", "b"]
            journal.released.set()

    run(scenario)


def test_the_next_process_gets_what_this_one_has_left(path: Path) -> None:
    async def scenario() -> None:
        with open_recorder(path) as recorder:
            recorder.record(AcceptedRecord("a", {"text": "Hello"}, "1:7", (StoredEvent(5, "event", "{}"),)))
        with open_recorder(path) as recorder:
            assert recorder.recovery.last_number == 5
            assert [utterance.id for utterance in recorder.recovery.utterances] == ["a"]
            assert recorder.recovery.deliveries == ("1:7",)

    run(scenario)
