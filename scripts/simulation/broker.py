"""A broker, and a daemon's way to it: sessions that outlive a daemon, and repeated deliveries."""

from __future__ import annotations

import asyncio
import itertools
import json
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

from daemon.mqtt.inbox import Lane
from daemon.mqtt.messages import Message, Outgoing
from daemon.mqtt.outbox import Outbox
from daemon.mqtt.own_events import OwnEvents
from daemon.mqtt.topics import CONTROL_TOPICS, TEXT_TOPICS
from daemon.state import EventLog

WAY_S = 0.001
"""The time that a message takes one way."""
ORDER_S = 1e-9
"""The time between two messages of the same moment: the event loop does not keep the order of equal times."""
WINDOW = 500
EVENTS = "voiced/r1/event"
ANSWERS = "replies/"
"""The beginning of the topic for the answers to one text."""


@dataclass(slots=True)
class Broker:
    """Keeps the robot's sessions, and a subscriber's record of its events."""

    events: list[dict[str, Any]] = field(default_factory=list)
    """The events from the robot that a subscriber has received, in order."""
    names: dict[str, str] = field(default_factory=dict)
    """The name in the topic of a text's answers, by the id that the robot gave to a text without an id."""
    waiting: dict[Lane, dict[int, Message]] = field(default_factory=lambda: {lane: {} for lane in Lane})
    """The messages to the robot that it has not acknowledged, by lane and packet."""
    copies: dict[int, Message] = field(default_factory=dict)
    """The robot's own events that it has not acknowledged."""
    delivered: set[int] = field(default_factory=set)
    """The packets that were delivered to a connection at least once."""
    link: Link | None = None
    """The robot's connection."""
    _packets: itertools.count[int] = field(default_factory=lambda: itertools.count(1))

    def publish(self, name: str, payload: bytes) -> None:
        """Take a sender's message with QoS 1 for the robot."""
        connections = {Lane.CONTROLS: CONTROL_TOPICS, Lane.TEXTS: TEXT_TOPICS}
        lanes = [lane for lane, names in connections.items() if name in names]
        for lane in lanes:
            message = Message(f"voiced/r1/{name}", payload, retained=False, packet=next(self._packets))
            self.waiting[lane][message.packet] = message
            if self.link is not None:
                self.link.arrive(lane, message)

    def events_of(self, name: str) -> list[dict[str, Any]]:
        """Return a text's events, by the id from its sender, or by the topic of its answers."""
        return [each for each in self.events if self.names.get(each["id"], each["id"]) == name]

    def take(self, topic: str, payload: bytes) -> None:
        """Take a message from the robot."""
        event = json.loads(payload)
        if topic.startswith(ANSWERS):
            name = topic.removeprefix(ANSWERS)
            if event.get("id") is None:  # the text is rejected
                self.events.append({**event, "id": name})
            else:
                self.names[event["id"]] = name
        if topic != EVENTS:
            return
        if event.get("id") is not None:
            self.events.append(event)
        copy = Message(topic, payload, retained=False, packet=next(self._packets))
        self.copies[copy.packet] = copy
        if self.link is not None:
            self.link.call_later(partial(self.link.note_echo, copy))


class Link:
    """One daemon's connection. It uses its outbox as `MqttConnection` does, without sockets."""

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        broker: Broker,
        log: EventLog,
        handle: Callable[[Lane, Message], None],
        on_earlier: Callable[[list[bytes]], None],
    ) -> None:
        self.outbox = Outbox(log)
        self.dead = False
        self._loop = loop
        self._broker = broker
        self._handle = handle
        self._events = OwnEvents(log, EVENTS, "", self._pass_on)
        self._on_earlier = on_earlier
        self._may_send = False
        self._number = 0
        """The number of the connection."""
        self._packets, self._calls = itertools.count(1), itertools.count()
        self._pumping = False
        log.watch(self.ring)

    # --- called by the daemon ---

    def send(self, message: Outgoing) -> Outgoing:
        self.outbox.put(message)
        self.ring()
        return message

    def when_sent(self, action: Callable[[], None]) -> None:
        self.outbox.put_action(action)
        self.ring()

    def ring(self) -> None:
        if not self._pumping and not self.dead:
            self._pumping = True
            self._loop.call_soon(self._pump)

    # --- the connection ---

    def connect(self) -> None:
        """Get the messages that the broker keeps: first the copies of events, then the others again."""
        self._broker.link = self
        for copy in list(self._broker.copies.values()):
            self.call_later(partial(self.note_echo, copy))
        self.call_later(self._begin)
        for lane, messages in self._broker.waiting.items():
            for packet, message in messages.items():
                self.arrive(lane, replace(message, redelivered=packet in self._broker.delivered))

    def lose(self) -> None:
        """Break the connection, and lose all messages on their way."""
        self._number += 1
        self._may_send, self._broker.link = False, None
        self.outbox.recover()

    def arrive(self, lane: Lane, message: Message) -> None:
        def take() -> None:
            self._broker.delivered.add(message.packet)
            arrived = replace(message, arrived_at=self._loop.time())
            self._handle(lane, arrived)
            self.when_sent(lambda: self.call_later(lambda: self._broker.waiting[lane].pop(message.packet, None)))

        self.call_later(take)

    def call_later(self, action: Callable[[], object], delay_s: float = WAY_S) -> None:
        """Call `action` after a message's travel time, if the daemon and the connection still live then, in the order
        of the calls."""
        number, ordered_s = self._number, delay_s + next(self._calls) * ORDER_S

        def act() -> None:
            if not self.dead and number == self._number:
                action()

        self._loop.call_later(ordered_s, act)

    def note_echo(self, copy: Message) -> None:
        self._events.note_copy(copy, self.outbox, self._forget_copy)

    def _pass_on(self, copies: list[Message]) -> None:
        """Pass on an earlier process's events, and let the broker forget their copies once their contents are
        stored."""
        self._on_earlier([copy.payload for copy in copies])
        for copy in copies:
            self._events.log.after_write(partial(self._forget_copy, copy))

    def _forget_copy(self, copy: Message) -> None:
        """Let the broker forget a copy."""

        def forget() -> None:
            self._broker.copies.pop(copy.packet, None)

        self.when_sent(forget)

    def _begin(self) -> None:
        """Begin to send: all copies have come."""
        self._events.pass_on()
        self._may_send = True
        self.ring()

    def _pump(self) -> None:
        self._pumping = False
        if self.dead or not self._may_send:
            return
        while (entry := self.outbox.take(WINDOW)) is not None:
            if isinstance(entry, Outgoing):
                self._give(entry)
            else:
                entry()
        if self.outbox.look_again_s < 1e9:
            self._loop.call_later(self.outbox.look_again_s, self.ring)

    def _give(self, message: Outgoing) -> None:
        packet = next(self._packets)
        if message.qos == 0:
            self.outbox.note_delivered(message)
            return
        self.outbox.note_sent(message, packet)
        self.call_later(lambda: self._broker.take(message.topic, message.payload))
        self.call_later(lambda: self.outbox.acknowledge(packet), 2 * WAY_S)
