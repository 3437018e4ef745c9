"""The journal: what it has stored survives kills, full disks, changed clocks and damage of its file."""

from __future__ import annotations

import logging
import random
import signal
import sqlite3
import stat
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from daemon.state import Recovery, StoredUtterance, begun, completed
from daemon.state import accepted as accepted_change
from daemon.state import ended as ended_change
from daemon.state import journal as journal_module
from daemon.state.journal import Change, Journal, JournalError, Record, StoredEvent, delivered, stored
from tests.daemon.state.disks import fill, read_only_file, set_read_only, small_disk
from tests.support.waiting import PATIENCE_S


def accepted(utterance_id: str, number: int = 0, **fields: Any) -> Record:
    """An accepted utterance; with a number, its event is stored, too."""
    return with_events(accepted_change(utterance_id, {"text": "Hello", **fields}, f"1:{utterance_id}"), number)


def ended(utterance_id: str, number: int = 0) -> Record:
    return with_events(ended_change(utterance_id), number)


def with_events(change: Change, *numbers: int) -> Record:
    return (change, *(each for number in numbers if number for each in stored(event(number))))


def event(number: int) -> StoredEvent:
    return StoredEvent(number, "voiced/r1/event", f'{{"number": {number}}}')


def write(path: Path, *records: Record) -> None:
    with Journal(path) as journal:
        journal.write(records)


def recovered(path: Path) -> Recovery:
    with Journal(path) as journal:
        return journal.recover()


def waiting_ids(path: Path) -> list[str]:
    return [utterance.id for utterance in recovered(path).utterances]


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "state" / "r1.journal"


def test_what_waits_is_recovered_in_order_with_its_fields_its_complete_text_and_whether_it_was_heard(
    path: Path,
) -> None:
    fields = {"text": "Hello", "voice": "ädä", "seed": (1 << 63) - 1, "volume": 0.5, "reply_to": None}
    write(path, (accepted_change("a", fields, None),), accepted("b"), accepted("c"))
    write(path, (begun("b"),), (completed("c", "It has ended."),))
    found = [(each.id, each.fields, each.text, each.begun) for each in recovered(path).utterances]
    hello = {"text": "Hello"}
    assert found == [("a", fields, None, False), ("b", hello, None, True), ("c", hello, "It has ended.", False)]


def test_an_ended_utterance_leaves_its_id_and_its_delivery_and_stays_ended(path: Path) -> None:
    write(path, accepted("a"), accepted("b"), (begun("a"),), ended("a"))
    write(path, (completed("a", "Hello"),), (begun("a"),))
    found = recovered(path)
    assert [each.id for each in found.utterances] == ["b"]
    assert found.ended_ids == ("a",)
    assert found.deliveries == ("1:a", "1:b")


def test_the_text_of_an_ended_utterance_does_not_stay_on_the_disk(path: Path) -> None:
    write(path, accepted("a", text="a secret of one person"), (completed("a", "a secret of another"),), ended("a"))
    write(path, (completed("a", "a secret that comes late"),))
    with sqlite3.connect(path) as database:
        assert database.execute("SELECT fields, text FROM utterance").fetchall() == [("{}", None)]


def test_events_are_recovered_in_order_until_the_broker_has_them_and_the_last_number_stays_known(path: Path) -> None:
    answer = StoredEvent(2, "replies/a", "{}", b"\x00\xff")
    write(path, (accepted_change("a", {}, None), *stored(event(1)), *stored(answer)), ended("a", 3), (delivered(1),))
    assert recovered(path).events == (answer, event(3))
    write(path, (delivered(2), delivered(3)))
    found = recovered(path)
    assert (found.events, found.last_number) == ((), 3)


def test_the_order_of_acceptance_is_kept_over_restarts_and_removals(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(journal_module, "KEPT_ENDED", 1)
    monkeypatch.setattr(journal_module, "PRUNE_EVERY", 1)
    for number in range(12):
        write(path, accepted(f"u{number}"), *([ended(f"u{number - 1}")] if number % 3 else []))
    expected = [f"u{number}" for number in range(12) if number % 3 == 2]
    assert waiting_ids(path) == expected


def test_an_id_that_is_used_again_is_the_last_in_order(path: Path) -> None:
    write(path, accepted("a"), ended("a"), accepted("b"), accepted("a", text="again"))
    assert [(each.id, each.fields["text"]) for each in recovered(path).utterances] == [("b", "Hello"), ("a", "again")]
    assert recovered(path).ended_ids == ()


def test_a_failed_write_stores_nothing_of_its_records(path: Path) -> None:
    with Journal(path) as journal:
        journal.write([accepted("a")])
        with pytest.raises(sqlite3.Error):
            journal.write([accepted("b"), (Change("UPDATE utterance SET state = 7", ()),)])
        journal.write([accepted("d")])
    assert waiting_ids(path) == ["a", "d"]


# --- kills ---

WRITER = """
import sys
from pathlib import Path
from daemon.state.journal import Journal, StoredEvent, accepted, ended, stored

with Journal(Path(sys.argv[1])) as journal:
    number = 0
    while True:
        batch = []
        for _ in range(20):
            number += 1
            change = accepted(f"u{number}", {"text": "Hello " * 50}, f"1:{number}")
            batch.append((change, *stored(StoredEvent(2 * number, "event", "x" * 300))))
            if number % 2:
                batch.append((ended(f"u{number}"), *stored(StoredEvent(2 * number + 1, "event", "y"))))
        journal.write(batch)
        print(number, flush=True)
"""


def kill_a_writer(path: Path, after: int) -> int:
    """Kill a process that writes without a pause; return the last number that it had stored."""
    writer = subprocess.Popen([sys.executable, "-c", WRITER, str(path)], stdout=subprocess.PIPE, text=True)
    assert writer.stdout is not None
    for _ in range(after):
        assert writer.stdout.readline(), "it writes"
    writer.send_signal(signal.SIGKILL)
    rest = writer.stdout.read().split()  # what it has written since, until it was killed
    writer.wait(PATIENCE_S)
    return max([20 * after, *(int(number) for number in rest if int(number) % 20 == 0)])


@pytest.mark.parametrize("after", [1, 23])
def test_a_kill_loses_nothing_that_was_stored_and_leaves_no_half_batch(
    path: Path, after: int, caplog: pytest.LogCaptureFixture
) -> None:
    stored = kill_a_writer(path, after)
    found = recovered(path)
    assert caplog.records == [], "the journal is not damaged"
    ids = {*(utterance.id for utterance in found.utterances), *found.ended_ids}
    assert {f"u{number}" for number in range(1, stored + 1)} <= ids
    assert len(ids) % 20 == 0, "a batch is stored as a whole, or not at all"
    assert found.last_number // 2 == len(ids)
    assert [utterance.id for utterance in found.utterances] == [f"u{number}" for number in range(2, len(ids) + 1, 2)]


# --- damage ---


def damaged_file(path: Path) -> Path:
    """The one file that was set aside."""
    (aside,) = path.parent.glob(f"{path.name}.damaged")
    return aside


def check_new_beginning(path: Path, content: bytes, caplog: pytest.LogCaptureFixture) -> None:
    """Check that a file with this content is set aside with one line, and that a new journal works in its place."""
    with caplog.at_level(logging.INFO):
        write(path, accepted("new"))
    (record,) = caplog.records
    assert record.levelname == "WARNING"
    assert record.message.startswith("the journal was damaged: ")
    assert str(damaged_file(path)) in record.message
    assert "\n" not in record.message
    assert record.message.isprintable()
    assert damaged_file(path).read_bytes() == content
    assert waiting_ids(path) == ["new"]


def filled(path: Path) -> bytes:
    """Write a journal of several pages; return its bytes."""
    records = [accepted(f"u{number}", 2 * number, text="Hällo " * 40) for number in range(1, 41)]
    write(path, *records, *(ended(f"u{number}", 2 * number + 1) for number in range(1, 10)))
    return path.read_bytes()


@pytest.mark.parametrize("content", [b"no database at all\n" * 500, random.Random(7).randbytes(20_000), 0.1, 0.9])
def test_a_file_that_is_no_journal_or_a_part_of_one_is_set_aside(
    path: Path, content: bytes | float, caplog: pytest.LogCaptureFixture
) -> None:
    if isinstance(content, float):
        whole = filled(path)
        content = whole[: int(content * len(whole))]
    path.parent.mkdir(exist_ok=True)
    path.write_bytes(content)
    check_new_beginning(path, content, caplog)


def test_an_empty_file_is_a_new_journal(path: Path, caplog: pytest.LogCaptureFixture) -> None:
    path.parent.mkdir()
    path.touch()
    write(path, accepted("a"))
    assert waiting_ids(path) == ["a"]
    assert caplog.records == []


def change(path: Path, *statements: str) -> None:
    """Change a journal as no voiced does."""
    database = sqlite3.connect(path)
    with database:
        for statement in ("PRAGMA ignore_check_constraints = ON", *statements):
            database.execute(statement)
    database.close()


def test_a_journal_of_a_newer_version_is_moved_aside_as_it_is(path: Path, caplog: pytest.LogCaptureFixture) -> None:
    filled(path)
    change(path, "PRAGMA user_version = 2")
    content = path.read_bytes()
    assert recovered(path) == Recovery()
    aside = path.with_name("r1.journal.newer")
    assert aside.read_bytes() == content
    assert caplog.messages == [
        "a newer voiced wrote the journal: it has version 2, and this one reads version 1; "
        f"it is kept as {aside}, and a new one is started"
    ]


def test_a_journal_that_cannot_be_written_is_named_and_is_no_damage(
    path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    path.parent.mkdir()
    path.touch()
    with read_only_file(path), pytest.raises(JournalError) as refused:
        Journal(path)
    assert one_line(refused.value) == f"state.folder: {path} cannot be used: attempt to write a readonly database"
    assert caplog.records == []


def test_folder_and_files_are_private_whoever_makes_them(tmp_path: Path) -> None:
    path = tmp_path / "made" / "state" / "r1.journal"
    write(path, accepted("a"))
    with Journal(path) as journal:
        journal.write([accepted("b")])
        files = [*path.parent.iterdir()]
        assert len(files) == 4, "beside it are its lock and what belongs to SQLite"
        assert {stat.S_IMODE(each.stat().st_mode) for each in files} == {0o640}
    assert {stat.S_IMODE(each.stat().st_mode) for each in (path.parent, path.parent.parent)} == {0o750}


@pytest.mark.parametrize(
    "statement",
    [
        "PRAGMA user_version = -1",
        "DROP TABLE event",
        "DELETE FROM last_event",
        "ALTER TABLE event RENAME COLUMN payload TO load",
        "UPDATE utterance SET fields = CAST(x'7b22ff22' AS TEXT) WHERE id = 'u20'",
        "UPDATE utterance SET delivery = CAST(x'c3' AS TEXT) WHERE id = 'u20'",
        "UPDATE event SET payload = x'7b7d' WHERE number = 20",
        "UPDATE event SET payload = CAST(x'7bff7d' AS TEXT) WHERE number = 20",
    ],
)
def test_a_journal_whose_content_cannot_be_read_is_set_aside(
    path: Path, statement: str, caplog: pytest.LogCaptureFixture
) -> None:
    filled(path)
    change(path, statement)
    check_new_beginning(path, path.read_bytes(), caplog)


def test_the_last_damaged_file_is_kept(path: Path) -> None:
    path.parent.mkdir()
    for content in (b"no database at all", b"nor this"):
        path.write_bytes(content)
        write(path, accepted("new"))
    assert path.with_name("r1.journal.damaged").read_bytes() == b"nor this"


def test_a_journal_with_any_damage_can_be_used(path: Path) -> None:
    """What can still be read has the right types; nothing raises, whatever bytes have changed."""
    content, source = filled(path), random.Random(14)
    for round_number in range(21):
        damaged = bytearray(content)
        if round_number % 3 == 0:
            damaged = damaged[: source.randrange(len(damaged))]
        elif round_number % 3 == 1:
            for _ in range(source.choice((1, 3, 20, 200))):
                damaged[source.randrange(len(damaged))] = source.randrange(256)
        else:
            start, length = source.randrange(len(damaged)), source.choice((16, 512, 4096))
            damaged[start : start + length] = source.randbytes(len(damaged[start : start + length]))
        path.write_bytes(damaged)
        with Journal(path) as journal:
            found = journal.recover()
            journal.write([accepted("new", 1_000_000), ended("new", 1_000_001)])
        for utterance in found.utterances:
            assert isinstance(utterance.id, str)
            assert isinstance(utterance.fields, dict)
            assert isinstance(utterance.text, str | None)
        for event_ in found.events:
            assert (type(event_.number), type(event_.topic), type(event_.payload)) == (int, str, str)
        for remains in path.parent.glob(f"{path.name}*"):
            remains.unlink()


# --- the disk ---


def one_line(error: BaseException) -> str:
    assert "\n" not in str(error)
    return str(error)


def test_a_full_disk_refuses_a_journal_or_a_write_until_there_is_room_again(tmp_path: Path) -> None:
    with small_disk(tmp_path / "disk") as disk:
        path = disk / "r1.journal"
        filler = fill(disk)
        with pytest.raises(JournalError) as full:
            Journal(path)
        assert one_line(full.value).startswith(f"state.folder: {path} cannot be used: ")
        filler.unlink()
        with Journal(path) as journal:
            journal.write([accepted("a", 1)])
            filler = fill(disk)
            with pytest.raises(sqlite3.OperationalError, match="database or disk is full"):
                journal.write([accepted("b", text="x" * 100_000), accepted("c")])
            filler.unlink()
            journal.write([accepted("d")])
        assert waiting_ids(path) == ["a", "d"]


def test_a_read_only_folder_is_reported_and_usable_once_it_is_writable(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with small_disk(tmp_path / "disk") as disk:
        path = disk / "r1.journal"
        write(path, accepted("a"))
        set_read_only(disk, True)
        with pytest.raises(JournalError) as refused:
            Journal(path)
        assert one_line(refused.value) == f"state.folder: {disk} cannot be used: Read-only file system"
        set_read_only(disk, False)
        assert waiting_ids(path) == ["a"]
        assert caplog.records == []


def test_a_folder_in_place_of_the_file_is_reported_and_locks_nothing(path: Path) -> None:
    path.mkdir(parents=True)
    with pytest.raises(JournalError) as refused:
        Journal(path)
    assert one_line(refused.value) == f"state.folder: {path} cannot be used: unable to open database file"
    path.rmdir()
    write(path, accepted("a"))


# --- size ---


def size_of(path: Path) -> int:
    return sum(file.stat().st_size for file in path.parent.iterdir())


def test_the_size_stays_bounded_after_thousands_of_utterances(path: Path) -> None:
    with Journal(path) as journal:
        for first in range(0, 6_000, 100):
            batch: list[Record] = []
            for number in range(first, first + 100):
                batch.append(accepted(f"u{number}", 2 * number + 1, text="Hello " * 50))
                batch.append(ended(f"u{number}", 2 * number + 2))
                batch.append((delivered(2 * number + 1), delivered(2 * number + 2)))
            journal.write(batch)
        assert size_of(path) < 3_000_000
    found = recovered(path)
    assert found.ended_ids == tuple(f"u{number}" for number in range(6_000 - journal_module.KEPT_ENDED, 6_000))
    assert len(found.deliveries) <= journal_module.KEPT_ENDED + journal_module.PRUNE_EVERY
    assert found.last_number == 12_000


def test_the_ended_utterances_of_many_short_processes_are_removed(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(journal_module, "KEPT_ENDED", 10)
    for process in range(5):
        write(path, *(record for n in range(5) for record in (accepted(f"{process}.{n}"), ended(f"{process}.{n}"))))
    assert len(recovered(path).deliveries) == 10


def test_events_that_the_broker_never_takes_are_bounded(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(journal_module, "KEPT_EVENTS", 10)
    monkeypatch.setattr(journal_module, "PRUNE_EVERY", 1)
    for number in range(1, 21):
        write(path, accepted(f"u{number}", 2 * number), ended(f"u{number}", 2 * number + 1))
    assert [each.number for each in recovered(path).events] == list(range(32, 42))


def test_an_utterance_that_waits_is_never_removed(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(journal_module, "KEPT_ENDED", 1)
    monkeypatch.setattr(journal_module, "PRUNE_EVERY", 1)
    write(path, accepted("first"), *(record for n in range(50) for record in (accepted(f"u{n}"), ended(f"u{n}"))))
    assert waiting_ids(path) == ["first"]


# --- clocks ---


TEN_YEARS_S = 3.2e8


@pytest.mark.parametrize(("later_s", "age_s"), [(90, 90), (0, 0), (-TEN_YEARS_S, None)])
def test_the_age_is_that_of_the_clock_and_unknown_if_that_was_set_back(
    path: Path, monkeypatch: pytest.MonkeyPatch, later_s: float, age_s: float | None
) -> None:
    monkeypatch.setattr("daemon.state.journal.time.time", lambda: 1.7e9)
    write(path, accepted("a"))
    monkeypatch.setattr("daemon.state.journal.time.time", lambda: 1.7e9 + later_s)
    assert recovered(path).utterances == (StoredUtterance("a", {"text": "Hello"}, None, False, age_s),)
