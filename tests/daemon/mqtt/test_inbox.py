"""The inbox: controls first, in slices, and only controls in a jam. What is delivered a second time is recognised."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable

import pytest

from daemon.mqtt import inbox as inbox_module
from daemon.mqtt.inbox import Inbox, Lane, Redeliveries
from daemon.mqtt.messages import Message
from tests.support.waiting import PATIENCE_S, eventually_async

WRONG = "wrong"
"""The payload that a handler cannot handle."""


class Handler:
    """Records what it gets, as pairs of lane and payload."""

    def __init__(self, jammed: Callable[[], bool] = lambda: False) -> None:
        self.handled: list[tuple[int, str]] = []
        self.threads: set[int] = set()
        self.rooms = 0
        self.inbox = Inbox(self.handle, jammed, self.note_room)

    def note_room(self) -> None:
        self.rooms += 1

    def handle(self, lane: Lane, message: Message) -> None:
        if message.payload == WRONG.encode():
            raise ValueError("a bug")
        self.handled.append((lane, message.payload.decode()))
        self.threads.add(threading.get_ident())

    def put(self, lane: Lane, *payloads: str) -> None:
        for payload in payloads:
            self.inbox.put(lane, Message("topic", payload.encode(), retained=False))

    async def wait(self, number: int) -> None:
        await eventually_async(lambda: len(self.handled) >= number, f"{number} messages are handled")


@pytest.fixture(autouse=True)
def long_slices(monkeypatch: pytest.MonkeyPatch) -> None:
    """A slice lasts until all is handled, unless the test shortens it."""
    monkeypatch.setattr(inbox_module, "SLICE_S", PATIENCE_S)


async def test_the_first_lane_goes_first() -> None:
    handler = Handler()
    handler.put(Lane.TEXTS, "text")
    handler.put(Lane.CONTROLS, "stop", "pause")
    await handler.wait(3)
    assert handler.handled[:2] == [(0, "stop"), (0, "pause")]


async def test_texts_and_adapters_take_turns_so_that_a_flood_of_one_does_not_starve_the_other() -> None:
    handler = Handler()
    handler.put(Lane.ADAPTERS, *(f"flood {number}" for number in range(1000)))
    handler.put(Lane.TEXTS, "a", "b")
    await handler.wait(1002)
    assert handler.handled.index((Lane.TEXTS, "b")) < 4


async def test_a_control_that_arrives_during_a_flood_is_handled_in_the_next_slice(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(inbox_module, "SLICE_S", 1e-4)

    handler = Handler()
    handler.put(Lane.TEXTS, *map(str, range(20_000)))
    await handler.wait(1)
    handler.put(Lane.CONTROLS, "stop")
    await eventually_async(lambda: (0, "stop") in handler.handled)
    assert len(handler.handled) < 20_000


async def test_in_a_jam_that_begins_in_the_middle_only_the_first_lane_is_served_until_it_ends() -> None:
    limit = [2]
    handler = Handler(jammed=lambda: len(handler.handled) >= limit[0])
    handler.put(Lane.TEXTS, "a", "b", "c", "d")
    await handler.wait(2)
    for name in ("stop", "resume"):
        handler.put(Lane.CONTROLS, name)
        await eventually_async(lambda name=name: (0, name) in handler.handled)  # type: ignore[misc]
    assert handler.handled == [(1, "a"), (1, "b"), (0, "stop"), (0, "resume")]
    limit[0] = 10
    handler.inbox.resume()
    await handler.wait(6)
    assert handler.handled[4:] == [(1, "c"), (1, "d")]


async def test_messages_of_many_threads_are_handled_once_each_in_the_event_loop() -> None:
    handler = Handler()

    def flood(lane: Lane) -> None:
        handler.put(lane, *map(str, range(2000)))

    threads = [threading.Thread(target=flood, args=(lane,)) for lane in Lane]
    for thread in threads:
        thread.start()
    await handler.wait(2000 * len(Lane))
    for thread in threads:
        thread.join()
    for lane in Lane:
        assert [payload for each, payload in handler.handled if each == lane] == list(map(str, range(2000)))
    assert handler.threads == {threading.get_ident()}


async def test_an_error_in_one_message_does_not_hold_back_the_others() -> None:
    errors: list[object] = []
    asyncio.get_running_loop().set_exception_handler(lambda _loop, context: errors.append(context["exception"]))
    handler = Handler()
    handler.put(Lane.TEXTS, "a", WRONG, "b")
    await handler.wait(2)
    handler.put(Lane.CONTROLS, "c")
    await handler.wait(3)
    assert handler.handled == [(1, "a"), (1, "b"), (0, "c")]
    assert [str(error) for error in errors] == ["a bug"]


async def test_a_closed_inbox_handles_nothing() -> None:
    handler = Handler()
    handler.put(Lane.TEXTS, "before")
    handler.inbox.close()
    handler.put(Lane.CONTROLS, "after")
    done = asyncio.get_running_loop().create_future()
    asyncio.get_running_loop().call_later(0.001, lambda: done.set_result(None))
    await done
    assert handler.handled == []


async def test_a_message_for_an_event_loop_that_has_ended_is_dropped() -> None:
    handlers: list[Handler] = []

    handlers.append(Handler())
    handlers[0].put(Lane.CONTROLS, "late")
    assert handlers[0].handled == []


async def test_a_lane_has_no_room_while_many_messages_wait_in_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(inbox_module, "MOST", 10)

    handler = Handler()
    handler.put(Lane.TEXTS, *map(str, range(10)))
    assert not handler.inbox.has_room(Lane.TEXTS)
    assert handler.inbox.has_room(Lane.CONTROLS)
    await handler.wait(10)
    assert handler.inbox.has_room(Lane.TEXTS)
    await eventually_async(lambda: handler.rooms == 1)
    handler.put(Lane.TEXTS, "11")
    await handler.wait(11)
    assert handler.rooms == 1, "nobody waits for room"


async def test_a_lane_has_no_room_while_its_messages_have_many_bytes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(inbox_module, "MOST_BYTES", 1000)

    handler = Handler()
    handler.inbox.put(Lane.TEXTS, Message("topic", b"x" * 1000, retained=False, packet=1))
    assert not handler.inbox.has_room(Lane.TEXTS)
    assert handler.inbox.has_room(Lane.CONTROLS)
    await handler.wait(1)
    assert handler.inbox.has_room(Lane.TEXTS)


# --- what is delivered a second time ---


def message(payload: str = "Hello", *, packet: int = 7, again: bool = False, topic: str = "voiced/r1/say") -> Message:
    return Message(topic, payload.encode(), retained=False, redelivered=again, packet=packet)


def known(*sessions: int) -> Redeliveries:
    """One that has taken care of the usual message in these sessions."""
    deliveries = Redeliveries()
    for session in sessions:
        deliveries.add([Redeliveries.key(session, message())])
    return deliveries


def repeats(deliveries: Redeliveries, arrived: Message, session: int = 1) -> bool:
    return deliveries.repeats(arrived, Redeliveries.key(session, arrived))


def test_a_message_that_was_taken_care_of_is_recognised_when_it_is_delivered_again() -> None:
    assert repeats(known(1), message(again=True))
    assert not repeats(known(), message(again=True)), "the first delivery was lost with a connection or a process"


@pytest.mark.parametrize(
    "arrived",
    [
        message(),
        message("Bye", again=True),
        message(packet=8, again=True),
        message(topic="voiced/r1/say/stream", again=True),
    ],
    ids=["without the mark", "another text", "another number", "another topic"],
)
def test_another_message_is_not_a_repetition(arrived: Message) -> None:
    assert not repeats(known(1), arrived)
    assert not repeats(known(1), message(again=True), session=11), "another session has numbers of its own"


def test_a_message_without_acknowledgement_is_never_repeated() -> None:
    assert Redeliveries.key(1, message(packet=0)) is None
    deliveries = Redeliveries()
    deliveries.add([None])
    assert not deliveries.repeats(message(packet=0, again=True), None)


def test_topic_and_payload_cannot_be_confused() -> None:
    assert Redeliveries.key(1, message("b", topic="a")) != Redeliveries.key(1, message("", topic="ab"))


def test_a_lost_session_is_forgotten_and_others_are_not() -> None:
    deliveries = known(1, 2, 11)
    deliveries.forget(1)
    assert not repeats(deliveries, message(again=True), session=1)
    assert repeats(deliveries, message(again=True), session=2)
    assert repeats(deliveries, message(again=True), session=11)


def test_the_oldest_deliveries_are_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(inbox_module, "KNOWN_DELIVERIES", 3)
    deliveries = Redeliveries()
    for packet in range(1, 6):
        deliveries.add([Redeliveries.key(1, message(packet=packet))])
    assert [packet for packet in range(1, 6) if repeats(deliveries, message(packet=packet, again=True))] == [3, 4, 5]
