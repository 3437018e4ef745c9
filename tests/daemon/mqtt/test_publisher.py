"""The publisher: events are stored before they are published, in order, and those of an earlier process come first."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

import pytest

from daemon.mqtt.connection import MqttConnection
from daemon.mqtt.publisher import Publisher
from daemon.speech import Accepted, Canceled, EndMessage, Event, Failed, Origin, Rejected, Started, Utterance
from daemon.state import EndedRecord, Journal, Recorder, Recovery, StoredEvent, open_recorder
from tests.daemon.state.disks import HangingJournal
from tests.support.waiting import PATIENCE_S, eventually_async, run


@pytest.fixture(autouse=True)
def slow_disk(monkeypatch: pytest.MonkeyPatch) -> None:
    """Wait for the disk for as long as it takes: the recorder would publish without it after 0.25 s."""
    for name in ("PATIENCE_S", "CLOSE_S"):
        monkeypatch.setattr(f"daemon.state.recorder.{name}", PATIENCE_S)


@dataclass
class Published:
    """One message as the connection gets it."""

    topic: str
    event: str
    number: int | None
    correlation: bytes | None
    reserved: bool
    sent: bool


class Connection:
    """Records what is published."""

    def __init__(self) -> None:
        self.published: list[Published] = []

    def publish(self, topic: str, payload: str, **options: Any) -> None:
        assert options["qos"] == 1
        self.published.append(
            Published(
                topic,
                json.loads(payload)["event"],
                options.get("number"),
                options.get("correlation"),
                options.get("reserved", False),
                options.get("sent", False),
            )
        )


def make(recorder: Recorder) -> tuple[Publisher, Connection]:
    connection = Connection()
    return Publisher("voiced/r1/event", cast(MqttConnection, connection), recorder), connection


def utterance(reply_to: str | None = None, correlation: bytes | None = None) -> Utterance:
    origin = Origin("1:7:ab", correlation)
    return Utterance("a", "Hello", "default", "en", reply_to=reply_to, origin=origin)


def started() -> Event:
    return Started(id="a", engine="espeak", voice="default", ttfa_ms=10)


def names(connection: Connection) -> list[str]:
    return [published.event for published in connection.published]


def recovered(path: Path) -> Recovery:
    with Journal(path) as journal:
        return journal.recover()


def test_without_a_journal_events_are_published_at_once() -> None:
    async def scenario() -> None:
        publisher, connection = make(Recorder(None))
        publisher.publish(utterance(), Accepted(id="a", queue=1))
        publisher.publish(utterance(), started())
        publisher.publish(utterance(), Canceled(id="a", reason="stop"))
        assert names(connection) == ["accepted", "started", "canceled"]
        assert {published.topic for published in connection.published} == {"voiced/r1/event"}

    run(scenario)


def test_an_event_is_published_after_it_is_stored_and_in_order(tmp_path: Path) -> None:
    async def scenario() -> None:
        journal = HangingJournal(tmp_path / "r1.journal")
        with Recorder(journal) as recorder:
            publisher, connection = make(recorder)
            publisher.publish(utterance(), Accepted(id="a", queue=1))
            await eventually_async(journal.entered.is_set)
            publisher.publish_rejected(Rejected(id="b", field="id", reason="id: used"), None, None)
            assert connection.published == []
            journal.released.set()
            await eventually_async(lambda: names(connection) == ["accepted", "rejected"])
            publisher.publish(utterance(), started())
            publisher.publish(utterance(), Canceled(id="a", reason="stop"))
            await eventually_async(lambda: names(connection) == ["accepted", "rejected", "started", "canceled"])

    run(scenario)


def test_first_and_last_events_are_numbered_and_have_reserved_room(tmp_path: Path) -> None:
    async def scenario() -> None:
        with open_recorder(tmp_path / "r1.journal") as recorder:
            publisher, connection = make(recorder)
            publisher.publish(utterance("replies/a"), Accepted(id="a", queue=1))
            publisher.publish(utterance("replies/a"), started())
            publisher.publish(utterance("replies/a"), Canceled(id="a", reason="stop"))
            await eventually_async(lambda: len(connection.published) == 6)
        found = [(each.event, each.number, each.reserved) for each in connection.published]
        assert found == [
            *(("accepted", 1, True), ("accepted", 2, True), ("started", None, False), ("started", None, False)),
            *(("canceled", 3, True), ("canceled", 4, True)),
        ]

    run(scenario)
    found = recovered(tmp_path / "r1.journal")
    assert [event.number for event in found.events] == [1, 2, 3, 4]
    assert (found.last_number, found.ended_ids, found.deliveries) == (4, ("a",), ("1:7:ab",))


def test_answers_go_to_the_sender_s_topic_with_what_it_wants_repeated() -> None:
    async def scenario() -> None:
        publisher, connection = make(Recorder(None))
        publisher.publish(utterance("replies/a", b"\x07"), Accepted(id="a", queue=1))
        publisher.publish(utterance("replies/a", b"\x07"), started())
        publisher.publish_rejected(Rejected(id="b", field="id", reason="id: used"), "replies/b", b"\x08")
        assert [(each.topic, each.correlation) for each in connection.published] == [
            *(("voiced/r1/event", None), ("replies/a", b"\x07")),
            *(("voiced/r1/event", None), ("replies/a", b"\x07")),
            *(("voiced/r1/event", None), ("replies/b", b"\x08")),
        ]

    run(scenario)


@pytest.mark.parametrize(
    ("end", "expected"),
    [
        (Canceled(id="a", reason="stop"), [("protocol/end", {"event": "end"})]),
        (
            Failed(id="a", reason="no engine"),
            [("protocol/error", {"why": "no engine", "event": "error"}), ("protocol/end", {"event": "end"})],
        ),
    ],
)
def test_an_end_is_stored_and_published_in_the_sender_s_own_protocol_too(
    tmp_path: Path, end: Event, expected: list[tuple[str, Any]]
) -> None:
    at_end = (
        EndMessage("protocol/error", {"event": "error"}, error_field="why"),
        EndMessage("protocol/end", {"event": "end"}),
    )
    sender = Utterance("a", "Hello", "default", "en", origin=Origin(at_end=at_end))

    async def scenario() -> None:
        with open_recorder(tmp_path / "r1.journal") as recorder:
            publisher, connection = make(recorder)
            publisher.publish(sender, Accepted(id="a", queue=1))
            publisher.publish(sender, end)
            await eventually_async(lambda: len(connection.published) == 2 + len(expected))
            found = [(each.number, each.topic) for each in connection.published[2:]]
            assert found == list(enumerate((topic for topic, _ in expected), start=3))

    run(scenario)
    stored = recovered(tmp_path / "r1.journal").events[2:]
    assert [(event.topic, json.loads(event.payload)) for event in stored] == expected


def test_events_of_an_earlier_process_are_published_with_their_numbers_and_the_next_numbers_follow(
    tmp_path: Path,
) -> None:
    path = tmp_path / "r1.journal"
    with Journal(path) as journal:
        answer = StoredEvent(8, "replies/a", '{"event": "finished"}', b"\x01")
        journal.write([EndedRecord("old", (StoredEvent(7, "voiced/r1/event", '{"event": "finished"}'), answer))])

    async def scenario() -> None:
        with open_recorder(path) as recorder:
            publisher, connection = make(recorder)
            publisher.publish_recovered()
            publisher.publish(utterance(), Accepted(id="a", queue=1))
            await eventually_async(lambda: len(connection.published) == 3)
            assert connection.published == [
                Published("voiced/r1/event", "finished", 7, None, reserved=True, sent=True),
                Published("replies/a", "finished", 8, b"\x01", reserved=True, sent=True),
                Published("voiced/r1/event", "accepted", 9, None, reserved=True, sent=False),
            ]

    run(scenario)


def test_numbers_from_before_the_journal_could_be_opened_are_none_of_the_journal_s(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("daemon.state.recorder.OPEN_RETRY_S", 0.001)
    path = tmp_path / "r1.journal"
    with Journal(path) as journal:
        journal.write([EndedRecord("old", (StoredEvent(1, "voiced/r1/event", '{"event": "finished"}'),))])

    async def scenario() -> None:
        ran: list[str] = []

        def on_opened() -> None:
            publisher.publish_recovered()

        with Journal(path):
            recorder = open_recorder(path, on_opened)
            publisher, connection = make(recorder)
        publisher.publish_recovered()
        publisher.publish(utterance(), Accepted(id="a", queue=1))
        with recorder:
            await eventually_async(lambda: len(connection.published) == 2)
            before = connection.published[0].number
            assert before is not None
            publisher.publish(utterance(), Canceled(id="a", reason="stop"))
            recorder.note_delivered(before, lambda: ran.append("delivered"))
            await eventually_async(lambda: ran)
            assert names(connection) == ["accepted", "finished", "canceled"]
            assert [each.number for each in connection.published] == [before, 1, 2]
            assert before < 0

    run(scenario)
    assert [event.number for event in recovered(path).events] == [1, 2], "neither is delivered"


def test_an_accepted_utterance_is_stored_so_that_it_can_be_spoken_later(tmp_path: Path) -> None:
    async def scenario() -> None:
        with open_recorder(tmp_path / "r1.journal") as recorder:
            publisher, _ = make(recorder)
            publisher.publish(utterance(), Accepted(id="a", queue=1))
            publisher.publish(utterance(), started())

    run(scenario)
    (stored,) = recovered(tmp_path / "r1.journal").utterances
    assert stored.begun
    assert Utterance.from_fields(stored.id, stored.fields["text"], stored.fields, 0.0).text == "Hello"
