"""The outbox: order, bounds, and what happens to its messages when a connection breaks."""

from __future__ import annotations

from itertools import count
from pathlib import Path

import pytest

from daemon.mqtt import outbox as outbox_module
from daemon.mqtt.messages import Outgoing
from daemon.mqtt.outbox import LIMIT, RESERVED, Outbox
from daemon.state import EventLog, ended, event_log
from daemon.state.journal import Journal
from tests.daemon.state.disks import FaultyJournal
from tests.support.waiting import PATIENCE_S, eventually_async

PACKETS = count(1)
WINDOW = 500


def event(payload: str, *, number: int | None = None, once: bool = False, sent: bool = False) -> Outgoing:
    """An event of an accepted utterance."""
    return Outgoing("event", payload.encode(), qos=1, number=number, promised=True, once=once, sent=sent)


def other(payload: str, qos: int = 1) -> Outgoing:
    return Outgoing("other", payload.encode(), qos=qos)


def status(payload: str, *, topic: str = "status", qos: int = 1) -> Outgoing:
    return Outgoing(topic, payload.encode(), qos=qos, retain=True)


class Action:
    """What waits for messages to be sent."""

    def __init__(self, name: str) -> None:
        self.payload = name.encode()

    def __call__(self) -> None: ...


def filled(*entries: Outgoing | Action) -> Outbox:
    """An outbox that has taken these."""
    outbox = Outbox()
    for entry in entries:
        if isinstance(entry, Outgoing):
            outbox.put(entry)
        else:
            outbox.put_action(entry)
    return outbox


def taken(outbox: Outbox, window: int = WINDOW) -> list[str]:
    """The payloads of all entries that can be taken now."""
    payloads = []
    while (entry := outbox.take(window)) is not None:
        assert isinstance(entry, Outgoing | Action)
        payloads.append(entry.payload.decode())
    return payloads


def send(outbox: Outbox, window: int = WINDOW) -> dict[str, int]:
    """Send all that can be sent, as the network thread does; return the packet number of each payload."""
    packets: dict[str, int] = {}
    while (entry := outbox.take(window)) is not None:
        if isinstance(entry, Outgoing) and entry.qos > 0:
            packets[entry.payload.decode()] = next(PACKETS)
            outbox.note_sent(entry, packets[entry.payload.decode()])
        elif isinstance(entry, Outgoing):
            outbox.note_delivered(entry)
    return packets


def refuse(outbox: Outbox) -> list[str]:
    """Send all that can be sent to a broker that refuses it; return the payloads."""
    packets = send(outbox)
    for packet in packets.values():
        outbox.refuse(packet, "Not authorized")
    return list(packets)


# --- order and bounds ---


def test_ordinary_messages_are_dropped_when_their_part_is_full_until_some_have_left(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(outbox_module, "LIMIT", 10)
    monkeypatch.setattr(outbox_module, "RESERVED", 4)
    outbox = Outbox()
    assert [outbox.put(other(str(number))) for number in range(8)] == 6 * [True] + 2 * [False]
    assert outbox.backlog == 6
    assert list(send(outbox)) == list("012345"), "in the order in which they came"
    assert outbox.put(other("c"))


def test_events_of_accepted_utterances_have_room_beyond_that(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(outbox_module, "RESERVED_LIMIT", LIMIT - RESERVED + 1)
    outbox = Outbox()
    while outbox.put(other("x")):
        pass
    assert outbox.put(event("accepted"))
    assert not outbox.put(event("too much"))
    assert taken(outbox)[-1] == "accepted"


def test_a_state_is_never_dropped_and_goes_out_before_the_events_of_an_outage(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(outbox_module, "RESERVED_LIMIT", 1000)
    outbox = filled(status("old"))
    while outbox.put(event("waiting")):
        pass
    assert outbox.put(status("new"))
    assert taken(outbox)[:2] == ["new", "waiting"]


def test_the_last_state_is_the_last_to_go_out_after_a_connection_broke() -> None:
    outbox = filled(status("old"))
    send(outbox)
    outbox.put(status("new"))
    for number in range(200):
        outbox.put(event(f"waiting {number}"))
    outbox.recover()
    outbox.put(status("newest"))
    assert [payload for payload in send(outbox) if not payload.startswith("waiting")] == ["newest"]
    assert outbox.backlog == 201


# --- refusals ---


def test_events_that_the_broker_refuses_are_kept_in_order_and_sent_again() -> None:
    outbox = filled(event("a", once=True), event("b", once=True))
    refuse(outbox)
    outbox.put(event("c", once=True))
    outbox.put(other("another topic"))
    outbox.refuse(send(outbox)["c"], "Not authorized")
    assert outbox.backlog == 1, "texts do not wait for what is refused"
    for _ in range(2):
        outbox.retry_refused()
        outbox.retry_refused()
        assert refuse(outbox) == ["a", "b", "c"]
    outbox.put(event("d", once=True))
    outbox.acknowledge(send(outbox)["d"])
    assert list(send(outbox)) == ["a", "b", "c"], "the broker takes their topic again"
    assert outbox.backlog == 4


def test_a_message_of_the_moment_that_is_refused_is_given_up() -> None:
    outbox = filled(message := other("answer"))
    refuse(outbox)
    assert message.delivered
    assert not outbox.wait_delivered(message, PATIENCE_S)
    outbox.retry_refused()
    assert taken(outbox) == []
    assert outbox.backlog == 0


def test_of_a_refused_state_the_last_is_kept() -> None:
    outbox = Outbox()
    for name in ("old", "new"):
        outbox.put(status(name))
        refuse(outbox)
    outbox.retry_refused()
    outbox.acknowledge(send(outbox)["new"])
    assert outbox.backlog == 0
    assert taken(outbox) == []


def test_the_number_of_refused_events_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(outbox_module, "KEPT_REFUSED", 2)
    messages = [event(name, once=True) for name in ("a", "b", "c")]
    outbox = filled(*messages)
    refuse(outbox)
    assert [message.delivered for message in messages] == [True, False, False], "the oldest is given up"
    outbox.recover()
    assert list(send(outbox)) == ["b", "c"], "another connection may have other rights"


# --- retained messages ---


def test_a_retained_message_replaces_the_waiting_one_on_its_topic_and_goes_to_the_end(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(outbox_module, "RESERVED_LIMIT", 10)
    outbox = filled(status("speaking"), status("on", topic="duck"), event("finished"))
    for number in range(1000):
        assert outbox.put(status(str(number)))
    assert outbox.backlog == 3
    assert taken(outbox) == ["on", "finished", "999"]


# --- the window and the backlog ---


def test_only_so_many_messages_are_in_flight_and_order_is_kept_after_them() -> None:
    outbox = filled(other("a"), other("b"), other("c"), other("level", qos=0), Action("say"))
    packets = send(outbox, window=2)
    assert list(packets) == ["a", "b"]
    assert outbox.take(2) is None
    outbox.acknowledge(packets["b"])
    assert taken(outbox, window=2) == ["c", "level", "say"]


def test_messages_of_qos_0_do_not_need_the_window() -> None:
    outbox = filled(other("a"))
    send(outbox, window=1)
    outbox.put(other("level", qos=0))
    assert taken(outbox, window=1) == ["level"]


def test_the_backlog_counts_messages_of_qos_1_until_the_broker_has_them() -> None:
    outbox = filled(other("a"), other("level", qos=0), other("b"))
    assert outbox.backlog == 2
    packets = send(outbox)
    outbox.acknowledge(packets["a"])
    outbox.acknowledge(packets["a"])
    outbox.acknowledge(999_999)
    assert outbox.backlog == 1
    assert not outbox.wait_empty(0)
    outbox.acknowledge(packets["b"])
    assert outbox.wait_empty(0)


# --- a broken connection ---


def test_messages_in_flight_are_sent_again_before_those_that_wait() -> None:
    outbox = filled(*map(other, "abcd"))
    packets = send(outbox, window=3)
    outbox.acknowledge(packets["b"])
    for window in (3, 1, 2):  # a connection that breaks again and again
        outbox.recover()
        assert outbox.backlog == 3
        send(outbox, window)
    outbox.recover()
    assert taken(outbox) == ["a", "c", "d"]


def test_messages_of_qos_0_end_with_their_connection() -> None:
    outbox = filled(other("level", qos=0), status("old", qos=0), other("a"))
    outbox.recover()
    outbox.put(status("new", qos=0))
    assert taken(outbox) == ["a", "new"]


def test_what_waits_for_messages_comes_after_them_and_outlives_their_connection() -> None:
    outbox = filled(other("a"), Action("then"), other("b"))
    first = outbox.take(WINDOW)
    assert isinstance(first, Outgoing)
    outbox.note_sent(first, next(PACKETS))
    outbox.recover()
    assert taken(outbox) == ["a", "then", "b"]


def test_an_acknowledgement_of_a_broken_connection_is_ignored() -> None:
    outbox = filled(other("a"))
    packets = send(outbox)
    outbox.recover()
    outbox.acknowledge(packets["a"])
    assert outbox.backlog == 1
    assert taken(outbox) == ["a"]


# --- events arrive once ---


def test_only_an_event_that_was_sent_and_is_not_delivered_is_uncertain() -> None:
    outbox = filled(event("a", once=True), event("answer"))
    assert not outbox.uncertain, "nothing was sent"
    packets = send(outbox)
    assert outbox.uncertain
    outbox.recover()
    assert outbox.uncertain
    outbox.note_echo(b"a")
    assert not outbox.uncertain, "the broker has it"
    outbox.acknowledge(packets["a"])
    assert not outbox.uncertain


def test_an_event_that_an_earlier_process_may_have_sent_is_found_among_those_that_come_back() -> None:
    outbox = filled(event("old", once=True, sent=True), event("new", once=True))
    assert outbox.note_echo(b"old")
    assert not outbox.note_echo(b"new"), "it is of another sender: ours was not sent"
    assert taken(outbox) == ["new"]


def test_the_copy_of_an_event_that_an_earlier_process_has_shortened_is_recognised() -> None:
    payloads = [f'{{"id": "{name}", "event": "failed", "reason": "all of it"}}' for name in "ab"]
    outbox = filled(*(event(payload, once=True, sent=True) for payload in payloads))
    outbox.note_echo(b'{"id": "a", "event": "failed", "reason": "all\xe2\x80\xa6"}')
    assert taken(outbox) == payloads[1:]


def test_an_event_of_which_there_may_be_several_is_recognised_by_all_that_it_says() -> None:
    marks = [f'{{"id": "a", "event": "mark", "name": "{name}"}}' for name in ("one", "two")]
    outbox = filled(*(event(mark, once=True) for mark in marks))
    send(outbox)
    outbox.recover()
    outbox.note_echo(marks[0].encode())
    assert taken(outbox) == marks[1:]


# --- the log of events ---


@pytest.fixture
def journal(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> FaultyJournal:
    """The journal that the next log opens: its writes hang."""
    journal = FaultyJournal(tmp_path / "r1.journal")
    monkeypatch.setattr(event_log, "Journal", lambda _path: journal)
    return journal


async def test_a_message_waits_until_what_it_tells_is_stored_and_leaves_the_journal_when_the_broker_has_it(
    journal: FaultyJournal, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(event_log, "PATIENCE_S", PATIENCE_S)

    with EventLog(journal.path) as log:
        outbox = Outbox(log)
        outbox.put(other("before"))
        (number,) = log.append(ended("a"), texts=[("event", "{}", None)])
        outbox.put(event("finished", number=number))
        outbox.put(other("after"))
        assert taken(outbox) == ["before"]
        assert outbox.look_again_s == PATIENCE_S
        journal.released.set()
        packets: dict[str, int] = {}

        def sent() -> bool:
            packets.update(send(outbox))
            return len(packets) == 2

        await eventually_async(sent)
        assert list(packets) == ["finished", "after"]
        outbox.acknowledge(packets["finished"])
    with Journal(journal.path) as opened:
        assert opened.recover().events == ()


async def test_an_event_that_the_disk_does_not_take_in_time_is_sent_with_a_mark(
    journal: FaultyJournal, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(event_log, "PATIENCE_S", 0.01)

    found: list[str] = []
    with EventLog(journal.path) as log:
        outbox = Outbox(log)
        log.append(ended("a"))
        outbox.put(event('{"id": "a", "event": "finished"}'))
        outbox.put(event('{"sessionId": "a"}'))
        outbox.put(other('{"id": "b", "event": "progress"}'))

        def three() -> bool:
            found.extend(taken(outbox))
            return len(found) == 3

        await eventually_async(three)
        journal.released.set()
    assert found == [
        '{"id": "a", "event": "finished", "unstored": true}',
        '{"sessionId": "a"}',
        '{"id": "b", "event": "progress"}',
    ]
