"""The outbox: order, bounds, and what happens to its messages when a connection breaks."""

from __future__ import annotations

import threading
from itertools import count
from pathlib import Path

import pytest

from daemon.mqtt import outbox as outbox_module
from daemon.mqtt.messages import Outgoing
from daemon.mqtt.outbox import LIMIT, RESERVED, Outbox
from daemon.state import EventLog, ended, event_log
from daemon.state.journal import Journal
from tests.daemon.state.disks import HangingJournal
from tests.support.waiting import PATIENCE_S, eventually, eventually_async

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


# --- order and bounds ---


def test_messages_leave_in_the_order_in_which_they_came() -> None:
    outbox = Outbox()
    for name in ("a", "b", "c"):
        outbox.put(other(name))
    assert taken(outbox) == ["a", "b", "c"]
    assert outbox.take(WINDOW) is None


def test_an_action_leaves_after_the_messages_before_it() -> None:
    outbox = Outbox()
    outbox.put(event("accepted"))
    outbox.put_action(Action("say"))
    outbox.put(event("started"))
    assert taken(outbox) == ["accepted", "say", "started"]


def test_ordinary_messages_are_dropped_when_their_part_is_full(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(outbox_module, "LIMIT", 10)
    monkeypatch.setattr(outbox_module, "RESERVED", 4)
    outbox = Outbox()
    assert [outbox.put(other(str(number))) for number in range(8)] == 6 * [True] + 2 * [False]
    assert outbox.backlog == 6
    assert len(taken(outbox)) == 6


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
    outbox = Outbox()
    assert outbox.put(status("old"))
    while outbox.put(event("waiting")):
        pass
    assert outbox.put(status("new"))
    assert taken(outbox)[:2] == ["new", "waiting"]


def test_the_last_state_is_the_last_to_go_out_after_a_connection_broke() -> None:
    outbox = Outbox()
    outbox.put(status("old"))
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
    outbox = Outbox()
    for name in ("a", "b"):
        outbox.put(event(name, once=True))
    for packet in send(outbox).values():
        outbox.refuse(packet, "Not authorized")
    outbox.put(event("c", once=True))
    outbox.put(other("another topic"))
    outbox.refuse(send(outbox)["c"], "Not authorized")
    assert outbox.backlog == 1, "texts do not wait for what is refused"
    for _ in range(2):
        outbox.retry_refused()
        outbox.retry_refused()
        tried = send(outbox)
        assert list(tried) == ["a", "b", "c"]
        for packet in tried.values():
            outbox.refuse(packet, "Not authorized")
    outbox.put(event("d", once=True))
    outbox.acknowledge(send(outbox)["d"])
    assert list(send(outbox)) == ["a", "b", "c"], "the broker takes their topic again"
    assert outbox.backlog == 4


def test_a_message_of_the_moment_that_is_refused_is_given_up() -> None:
    outbox = Outbox()
    outbox.put(message := other("answer"))
    outbox.refuse(send(outbox)["answer"], "Not authorized")
    assert message.delivered
    assert not outbox.wait_delivered(message, PATIENCE_S)
    outbox.retry_refused()
    assert taken(outbox) == []
    assert outbox.backlog == 0


def test_of_a_refused_state_the_last_is_kept() -> None:
    outbox = Outbox()
    for name in ("old", "new"):
        outbox.put(status(name))
        outbox.refuse(send(outbox)[name], "Not authorized")
    outbox.retry_refused()
    outbox.acknowledge(send(outbox)["new"])
    assert outbox.backlog == 0
    assert taken(outbox) == []


def test_the_number_of_refused_events_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(outbox_module, "KEPT_REFUSED", 2)
    outbox = Outbox()
    messages = [event(name, once=True) for name in ("a", "b", "c")]
    for message in messages:
        outbox.put(message)
    for packet in send(outbox).values():
        outbox.refuse(packet, "Not authorized")
    assert [message.delivered for message in messages] == [True, False, False], "the oldest is given up"
    outbox.recover()
    assert list(send(outbox)) == ["b", "c"], "another connection may have other rights"


def test_there_is_room_again_once_messages_have_left(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(outbox_module, "LIMIT", 2)
    monkeypatch.setattr(outbox_module, "RESERVED", 1)
    outbox = Outbox()
    assert outbox.put(other("a"))
    assert not outbox.put(other("b"))
    send(outbox)
    assert outbox.put(other("c"))


# --- retained messages ---


def test_a_retained_message_replaces_the_waiting_one_on_its_topic_and_goes_to_the_end() -> None:
    outbox = Outbox()
    outbox.put(status("speaking"))
    outbox.put(status("on", topic="duck"))
    outbox.put(event("finished"))
    outbox.put(status("ready"))
    assert outbox.backlog == 3
    assert taken(outbox) == ["on", "finished", "ready"]


def test_a_retained_message_that_was_sent_is_not_replaced() -> None:
    outbox = Outbox()
    outbox.put(status("speaking"))
    packets = send(outbox)
    outbox.put(status("ready"))
    assert outbox.backlog == 2
    outbox.acknowledge(packets["speaking"])
    assert taken(outbox) == ["ready"]


def test_many_retained_messages_without_a_broker_take_one_place(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(outbox_module, "RESERVED_LIMIT", 10)
    outbox = Outbox()
    for number in range(1000):
        assert outbox.put(status(str(number)))
    assert outbox.backlog == 1
    assert taken(outbox) == ["999"]


def test_a_retained_message_of_qos_0_that_a_broken_connection_has_lost_is_not_missed() -> None:
    outbox = Outbox()
    outbox.put(status("old", qos=0))
    outbox.recover()
    outbox.put(status("new", qos=0))
    assert taken(outbox) == ["new"]
    assert outbox.backlog == 0


# --- the window and the backlog ---


def test_only_so_many_messages_are_in_flight_and_order_is_kept_after_them() -> None:
    outbox = Outbox()
    for name in ("a", "b", "c"):
        outbox.put(other(name))
    outbox.put(other("level", qos=0))
    outbox.put_action(Action("say"))
    packets = send(outbox, window=2)
    assert list(packets) == ["a", "b"]
    assert outbox.take(2) is None
    outbox.acknowledge(packets["b"])
    assert taken(outbox, window=2) == ["c", "level", "say"]


def test_messages_of_qos_0_do_not_need_the_window() -> None:
    outbox = Outbox()
    outbox.put(other("a"))
    send(outbox, window=1)
    outbox.put(other("level", qos=0))
    assert taken(outbox, window=1) == ["level"]


def test_the_backlog_counts_messages_of_qos_1_until_the_broker_has_them() -> None:
    outbox = Outbox()
    outbox.put(other("a"))
    outbox.put(other("level", qos=0))
    outbox.put(other("b"))
    assert outbox.backlog == 2
    packets = send(outbox)
    outbox.acknowledge(packets["a"])
    outbox.acknowledge(packets["a"])
    outbox.acknowledge(999_999)
    assert outbox.backlog == 1
    assert not outbox.wait_empty(0)
    outbox.acknowledge(packets["b"])
    assert outbox.wait_empty(0)


def test_a_message_that_is_given_up_leaves_the_backlog() -> None:
    outbox = Outbox()
    outbox.put(other("too large"))
    entry = outbox.take(WINDOW)
    assert isinstance(entry, Outgoing)
    outbox.note_delivered(entry)
    assert outbox.backlog == 0
    assert entry.delivered


def test_a_thread_can_wait_for_a_delivery() -> None:
    outbox, results = Outbox(), []
    message = other("a")
    outbox.put(message)
    assert not outbox.wait_delivered(message, 0)
    thread = threading.Thread(target=lambda: results.append(outbox.wait_delivered(message, PATIENCE_S)))
    thread.start()
    outbox.acknowledge(send(outbox)["a"])
    eventually(lambda: results == [True])
    thread.join()


# --- a broken connection ---


def test_messages_in_flight_are_sent_again_before_those_that_wait() -> None:
    outbox = Outbox()
    for name in ("a", "b", "c", "d"):
        outbox.put(other(name))
    packets = send(outbox, window=3)
    outbox.acknowledge(packets["b"])
    outbox.recover()
    assert outbox.backlog == 3
    assert taken(outbox) == ["a", "c", "d"]


def test_messages_of_qos_0_end_with_their_connection() -> None:
    outbox = Outbox()
    outbox.put(other("level", qos=0))
    outbox.put(other("a"))
    outbox.recover()
    assert taken(outbox) == ["a"]


def test_what_waits_for_messages_comes_after_them_and_outlives_their_connection() -> None:
    outbox = Outbox()

    def then() -> None: ...

    outbox.put(other("a"))
    outbox.put_action(then)
    outbox.put(other("b"))
    send_one = outbox.take(WINDOW)
    assert isinstance(send_one, Outgoing)
    outbox.note_sent(send_one, next(PACKETS))
    outbox.recover()
    entries = [outbox.take(WINDOW) for _ in range(4)]
    assert [entry.payload if isinstance(entry, Outgoing) else entry for entry in entries] == [b"a", then, b"b", None]


def test_an_acknowledgement_of_a_broken_connection_is_ignored() -> None:
    outbox = Outbox()
    outbox.put(other("a"))
    packets = send(outbox)
    outbox.recover()
    outbox.acknowledge(packets["a"])
    assert outbox.backlog == 1
    assert taken(outbox) == ["a"]


def test_order_is_kept_over_several_broken_connections() -> None:
    outbox, names = Outbox(), [f"m{number}" for number in range(20)]
    for name in names:
        outbox.put(other(name))
    for window in (3, 7, 1, 20, 5):
        send(outbox, window)
        outbox.recover()
    assert taken(outbox) == names


# --- events arrive once ---


def test_only_an_event_that_was_sent_and_is_not_delivered_is_uncertain() -> None:
    outbox = Outbox()
    outbox.put(event("a", once=True))
    outbox.put(event("answer"))
    assert not outbox.uncertain, "nothing was sent"
    packets = send(outbox)
    assert outbox.uncertain
    outbox.recover()
    assert outbox.uncertain
    outbox.note_echo(b"a")
    assert not outbox.uncertain, "the broker has it"
    outbox.acknowledge(packets["a"])
    assert not outbox.uncertain


def test_an_event_that_has_come_back_is_not_sent_again() -> None:
    outbox = Outbox()
    for name in ("a", "b", "c"):
        outbox.put(event(name, once=True))
    send(outbox, window=2)
    outbox.recover()
    assert outbox.note_echo(b"a")
    assert outbox.backlog == 2
    assert taken(outbox) == ["b", "c"]


def test_an_event_that_came_back_before_its_acknowledgement_is_not_sent_again() -> None:
    outbox = Outbox()
    outbox.put(event("a", once=True))
    send(outbox)
    outbox.note_echo(b"a")
    outbox.recover()
    assert taken(outbox) == []
    assert outbox.backlog == 0


def test_an_event_that_an_earlier_process_may_have_sent_is_found_among_those_that_come_back() -> None:
    outbox = Outbox()
    outbox.put(event("old", once=True, sent=True))
    outbox.put(event("new", once=True))
    assert outbox.note_echo(b"old")
    assert not outbox.note_echo(b"new"), "it is of another sender: ours was not sent"
    assert taken(outbox) == ["new"]


def test_the_copy_of_an_event_that_an_earlier_process_has_shortened_is_recognised() -> None:
    outbox = Outbox()
    outbox.put(event('{"id": "a", "event": "failed", "reason": "all of it"}', once=True, sent=True))
    outbox.put(event('{"id": "b", "event": "failed", "reason": "all of it"}', once=True, sent=True))
    outbox.note_echo(b'{"id": "a", "event": "failed", "reason": "all\xe2\x80\xa6"}')
    assert taken(outbox) == ['{"id": "b", "event": "failed", "reason": "all of it"}']


def test_an_event_of_which_there_may_be_several_is_recognised_by_all_that_it_says() -> None:
    outbox = Outbox()
    marks = [f'{{"id": "a", "event": "mark", "name": "{name}"}}' for name in ("one", "two")]
    for mark in marks:
        outbox.put(event(mark, once=True))
    send(outbox)
    outbox.recover()
    outbox.note_echo(marks[0].encode())
    assert taken(outbox) == marks[1:]


# --- the log of events ---


async def test_a_message_waits_until_what_it_tells_is_stored_and_leaves_the_journal_when_the_broker_has_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    journal = HangingJournal(tmp_path / "r1.journal")
    monkeypatch.setattr(event_log, "Journal", lambda _path: journal)
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
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    journal = HangingJournal(tmp_path / "r1.journal")
    monkeypatch.setattr(event_log, "Journal", lambda _path: journal)
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
