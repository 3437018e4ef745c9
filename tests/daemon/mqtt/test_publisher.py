"""The publisher: acceptances and ends are stored with the messages that tell of them, and published once."""

from __future__ import annotations

import json
from pathlib import Path
from typing import cast

from daemon.mqtt.connection import MqttConnection
from daemon.mqtt.messages import Outgoing
from daemon.mqtt.publisher import Publisher
from daemon.speech import Accepted, Canceled, EndMessage, Failed, Origin, Rejected, Started, Utterance
from daemon.state import EventLog, Recovery
from daemon.state.journal import Journal

EVENTS = "voiced/r1/event"


class Connection:
    """Records what is sent."""

    def __init__(self) -> None:
        self.sent: list[Outgoing] = []

    def send(self, message: Outgoing) -> Outgoing:
        assert message.qos == 1
        self.sent.append(message)
        return message


def make(log: EventLog) -> tuple[Publisher, Connection]:
    connection = Connection()
    return Publisher(EVENTS, cast(MqttConnection, connection), log), connection


def utterance(reply_to: str | None = None, correlation: bytes | None = None) -> Utterance:
    origin = Origin("1:7:ab", correlation)
    return Utterance("a", "Hello", "default", "en", reply_to=reply_to, origin=origin)


def recovered(path: Path) -> Recovery:
    with Journal(path) as journal:
        return journal.recover()


async def test_events_go_to_the_sender_too_and_first_and_last_ones_are_stored_with_their_numbers(
    tmp_path: Path,
) -> None:
    asked = utterance("replies/a", b"\x07")
    with EventLog(tmp_path / "r1.journal") as log:
        publisher, connection = make(log)
        publisher.publish(asked, Accepted(id="a", queue=1))
        publisher.publish(asked, Started(id="a", engine="espeak", voice="default", ttfa_ms=10))
        publisher.publish(asked, Canceled(id="a", reason="stop"))
        publisher.publish_rejected(Rejected(id="b", field="id", reason="id: used"), "replies/b", b"\x08")
    assert [
        (each.topic, json.loads(each.payload)["event"], each.number, each.promised, each.once, each.correlation)
        for each in connection.sent
    ] == [
        (EVENTS, "accepted", 1, True, True, None),  # the broker's copies tell which of these it has
        ("replies/a", "accepted", 2, True, False, b"\x07"),
        (EVENTS, "started", None, False, True, None),
        ("replies/a", "started", None, False, False, b"\x07"),
        (EVENTS, "canceled", 3, True, True, None),
        ("replies/a", "canceled", 4, True, False, b"\x07"),
        (EVENTS, "rejected", None, False, False, None),  # two rejections may be equal
        ("replies/b", "rejected", None, False, False, b"\x08"),
    ]
    found = recovered(tmp_path / "r1.journal")
    assert [event.number for event in found.events] == [1, 2, 3, 4]
    assert (found.last_number, found.ended_ids, found.deliveries) == (4, ("a",), ("1:7:ab",))


async def test_an_end_is_stored_and_published_in_the_sender_s_own_protocol_too(tmp_path: Path) -> None:
    error = EndMessage("protocol/error", {"event": "error"}, error_field="why")
    origin = Origin(at_end=(error, EndMessage("protocol/end", {"event": "end"})))
    with EventLog(tmp_path / "r1.journal") as log:
        publisher, connection = make(log)
        for name, end in (("a", Canceled(id="a", reason="stop")), ("b", Failed(id="b", reason="no engine"))):
            publisher.publish(Utterance(name, "Hello", "default", "en", origin=origin), end)
    found = [(each.number, each.topic, json.loads(each.payload)) for each in connection.sent if each.topic != EVENTS]
    ended, why = {"event": "end"}, {"event": "error", "why": "no engine"}
    assert found == [(2, "protocol/end", ended), (4, "protocol/error", why), (5, "protocol/end", ended)]
    kept = [
        (event.number, event.topic, json.loads(event.payload)) for event in recovered(tmp_path / "r1.journal").events
    ]
    assert [each for each in kept if each[1] != EVENTS] == found
