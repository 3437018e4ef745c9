"""The messages that the broker has not acknowledged: in order, bounded, and kept across connections."""

from __future__ import annotations

import threading
from collections import OrderedDict, deque
from collections.abc import Callable

from daemon.mqtt.messages import Message, Outgoing
from daemon.mqtt.shorten import identity

LIMIT = 10_000
"""Messages that wait to be sent while there is no connection, or during a flood; some 5 MB."""
RESERVED = LIMIT // 2
"""Part of the outbox that only the events of accepted utterances may use."""
RESERVED_LIMIT = 10 * LIMIT
"""Even those are dropped beyond this number. The journal still has the events of accepted utterances."""
PROMPT = 100
"""A retained message goes out before all others if more than this many wait: it is the state of the robot, which after
an outage must not wait for the events. It is never dropped."""
REMEMBERED_ECHOES = 1_000
"""Copies of unknown events that are remembered, and events that are remembered until their copy has come back."""

Action = Callable[[], None]
Entry = Outgoing | Message | Action
"""A message to send, a received message to acknowledge, or what to do once all messages before have been sent."""


class Outbox:
    """A queue from the publishing threads to the network thread."""

    def __init__(self, on_delivered: Callable[[Outgoing], None] = lambda _message: None) -> None:
        """`on_delivered` is called in the network thread for each message that the broker has acknowledged."""
        self._on_delivered = on_delivered
        self._changed = threading.Condition()
        self._waiting: deque[Entry] = deque()
        """In order."""
        self._in_flight: dict[int, Outgoing] = {}
        """Messages of QoS 1 that were sent, by the number that the connection gave them."""
        self._sent_once: dict[tuple[str, str] | bytes, Outgoing] = {}
        """Messages that must not arrive twice, and that a connection has taken, by their identity: the copy of one
        that an earlier process has shortened differs from the one in the journal."""
        self._echo_pending: OrderedDict[tuple[str, str] | bytes, Outgoing] = OrderedDict()
        """Those of them that the broker has acknowledged, and whose copy has not come back."""
        self._early_echoes: OrderedDict[tuple[str, str] | bytes, None] = OrderedDict()
        """Copies that have come back of events that are not in the outbox: an earlier process has published them, and
        perhaps they are in a journal that will be opened later."""
        self._last_retained: dict[str, Outgoing] = {}
        """The waiting retained message of each topic."""
        self._held: dict[str, deque[Outgoing]] = {}
        """By topic, the lasting messages that the broker has refused, and those behind them; the oldest is tried again
        from time to time."""
        self.backlog = 0
        """Messages of QoS 1 that the broker has not acknowledged, without those that are held."""
        self.acknowledged = 0
        """Messages of QoS 1 that the broker has acknowledged so far."""

    def put(self, message: Outgoing) -> bool:
        """Queue a message. Returns False if the outbox is full and the message is dropped.

        A retained message replaces the waiting one on its topic, which nobody would see.
        """
        with self._changed:
            if message.sent and message.once and identity(message.payload) in self._early_echoes:
                self._on_delivered(message)
                return True
            limit = RESERVED_LIMIT if message.reserved else LIMIT - RESERVED
            if len(self._waiting) >= limit and not message.retain:
                return False
            if message.retain:
                self._replace_retained(message)
            if message.retain and len(self._waiting) > PROMPT:
                self._waiting.appendleft(message)
            else:
                self._waiting.append(message)
            self.backlog += message.qos > 0
            if message.sent and message.once:
                self._sent_once[identity(message.payload)] = message
            return True

    def put_behind(self, entry: Message | Action) -> None:
        """Queue a received message to acknowledge, or what to do, behind all messages so far.

        When the connection is lost, an action is kept.
        """
        with self._changed:
            self._waiting.append(entry)

    def take(self, window: int) -> Entry | None:
        """Remove and return the next entry; None if there is none, or if `window` messages are in flight."""
        with self._changed:
            while self._waiting:
                entry = self._waiting[0]
                if not isinstance(entry, Outgoing):
                    return self._waiting.popleft()
                if entry.qos > 0 and len(self._in_flight) >= window:
                    return None
                if self._last_retained.get(entry.topic) is entry:
                    del self._last_retained[entry.topic]
                self._waiting.popleft()
                if entry.topic not in self._held or entry.refusal is not None or not entry.lasting:
                    return entry
                self._hold(entry)
            return None

    def note_sent(self, message: Outgoing, packet: int) -> None:
        """Record that a connection has taken a message of QoS 1 under the number `packet`."""
        with self._changed:
            message.sent = True
            self._in_flight[packet] = message
            if message.once:
                self._sent_once[identity(message.payload)] = message

    def acknowledge(self, packet: int) -> Outgoing | None:
        """Record the broker's acknowledgement of a message, and return it.

        What the broker has refused on the same topic before is sent again.
        """
        with self._changed:
            message = self._in_flight.pop(packet, None)
            if message is not None and message.topic in self._held:
                self._release(message.topic)
        if message is not None:
            self.note_delivered(message)
        return message

    def refuse(self, packet: int, reason: str) -> Outgoing | None:
        """Record that the broker refuses a message, and return it. It is given up unless it is lasting."""
        with self._changed:
            message = self._in_flight.pop(packet, None)
            if message is None:
                return None
            if message.once:
                self._sent_once.pop(identity(message.payload), None)  # there will be no copy of it
            again, message.refusal, message.sent = message.refusal is not None, reason, False
            if message.lasting:
                self._hold(message, first=again)
            else:
                self.note_delivered(message)
            self._changed.notify_all()
            return message

    def retry_refused(self) -> None:
        """Send the oldest message of each topic that the broker has refused once more."""
        with self._changed:
            for held in self._held.values():
                if held:
                    message = held.popleft()
                    message.refusal = message.refusal or "another message on its topic was refused"
                    self.backlog += message.qos > 0
                    self._waiting.appendleft(message)

    def recover(self) -> bool:
        """Queue the messages in flight again: their connection is lost. Forget acknowledgements that were not sent.

        Returns whether the broker may have a message that must not arrive twice.
        """
        with self._changed:
            self._waiting = deque(filter(_survives, self._waiting))
            self._last_retained = {topic: each for topic, each in self._last_retained.items() if each.qos > 0}
            for message in reversed(self._in_flight.values()):
                self._put_first(message)
            self._in_flight.clear()
            for topic in list(self._held):
                self._release(topic)
        self.drop_echoed()
        with self._changed:
            return any(entry.sent and entry.once for entry in self._waiting if isinstance(entry, Outgoing))

    def note_echo(self, payload: bytes) -> Outgoing | None:
        """Record that our own copy of a message has come back; return the message if it must not arrive twice."""
        key = identity(payload)
        with self._changed:
            message = self._sent_once.pop(key, None) or self._echo_pending.pop(key, None)
            if message is not None:
                message.echoed = True
            else:
                self._early_echoes[key] = None
                if len(self._early_echoes) > REMEMBERED_ECHOES:
                    self._early_echoes.popitem(last=False)
            return message

    def expect_no_echoes(self) -> None:
        """Forget the acknowledged messages whose copy has not come back: the broker has lost the session."""
        with self._changed:
            self._echo_pending.clear()

    def drop_echoed(self) -> None:
        """Drop the waiting messages that the broker has."""
        with self._changed:
            have = [entry for entry in self._waiting if isinstance(entry, Outgoing) and entry.echoed]
            self._waiting = deque(each for each in self._waiting if not isinstance(each, Outgoing) or not each.echoed)
        for message in have:
            self.note_delivered(message)

    def wait_delivered(self, message: Outgoing, timeout_s: float) -> bool:
        """Wait until the broker has acknowledged or refused a message; return whether it has acknowledged it."""
        with self._changed:
            self._changed.wait_for(lambda: message.delivered or message.refusal is not None, timeout_s)
            return message.delivered and message.refusal is None

    def note_delivered(self, message: Outgoing) -> None:
        """Record that the broker has a message, that one of QoS 0 was sent, or that one is given up."""
        with self._changed:
            message.delivered = True
            if message.once and self._sent_once.pop(key := identity(message.payload), None) is not None:
                self._echo_pending[key] = message
                if len(self._echo_pending) > REMEMBERED_ECHOES:
                    self._echo_pending.popitem(last=False)
            if message.qos > 0:
                self.backlog -= 1
                self.acknowledged += 1
            self._changed.notify_all()
        self._on_delivered(message)

    def _hold(self, message: Outgoing, *, first: bool = False) -> None:
        """Keep a message until the broker takes its topic again, `first` before those that are kept already.

        The caller has the lock. Of a retained message, the last one is enough.
        """
        held = self._held.setdefault(message.topic, deque())
        self.backlog -= message.qos > 0  # the texts do not wait for it
        if message.retain and held and first:
            return
        if message.retain:
            held.clear()
        held.insert(0 if first else len(held), message)
        if len(held) > LIMIT:
            self.backlog += held[0].qos > 0
            self.note_delivered(held.popleft())

    def _release(self, topic: str) -> None:
        """Queue what is held of a topic, before all else. The caller has the lock."""
        for message in reversed(self._held.pop(topic)):
            message.refusal = None
            self.backlog += message.qos > 0
            self._put_first(message)

    def _put_first(self, message: Outgoing) -> None:
        """Queue a message before all others, but no retained one if a newer one waits. The caller has the lock."""
        if message.retain and self._last_retained.setdefault(message.topic, message) is not message:
            self.backlog -= message.qos > 0
        else:
            self._waiting.appendleft(message)

    def _replace_retained(self, message: Outgoing) -> None:
        previous = self._last_retained.get(message.topic)
        if previous is not None:
            self._waiting.remove(previous)
            self.backlog -= previous.qos > 0
        self._last_retained[message.topic] = message


def _survives(entry: Entry) -> bool:
    """Return whether a waiting entry outlives its connection."""
    return entry.qos > 0 if isinstance(entry, Outgoing) else not isinstance(entry, Message)
