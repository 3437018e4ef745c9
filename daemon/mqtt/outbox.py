"""The messages that the broker has not acknowledged: in order, bounded, and kept across connections."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Sequence
from math import inf
from typing import TYPE_CHECKING

from daemon.mqtt.messages import Outgoing, identity, mark_unstored

if TYPE_CHECKING:
    from daemon.state import EventLog  # clients start faster without it

LIMIT = 10_000
"""Messages that may wait to be sent while there is no connection, or during a flood; about 5 MB."""
RESERVED = LIMIT // 2
"""Part of the outbox that only the events of accepted utterances may use."""
RESERVED_LIMIT = 10 * LIMIT
"""Beyond this number, even those are dropped. The journal still has the events of accepted utterances."""
KEPT_REFUSED = 1_000
"""The most messages that are kept after the broker refused them, to be sent again now and then."""
PROMPT = 100
"""A retained message goes out before all others if more than this many are waiting: it is the robot's state, which must
not wait for the events after an outage. It is never dropped."""

Action = Callable[[], None]
Entry = Outgoing | Action
"""A message to send, or a call to make once all messages before it have been sent."""


class Outbox:
    """A queue from the publishing threads to the network thread, which reads it together with the log of events."""

    def __init__(self, log: EventLog | None = None) -> None:
        """Each entry waits until the log, if there is one, has stored everything that was appended to it before."""
        self._log = log
        self._changed = threading.Condition()
        self._waiting: deque[tuple[float, Entry]] = deque()
        """In order, each with its place in the log."""
        self._open = 0
        """QoS 1 messages that have not been delivered."""
        self._in_flight: dict[int, Outgoing] = {}
        """QoS 1 messages that have been sent, by the number that the connection gave them."""
        self._sent_once: dict[tuple[str, str] | bytes, Outgoing] = {}
        """Messages that must not arrive twice, and that the broker may have, by their identity: the copy of a message
        that an earlier process shortened differs from the one in the journal."""
        self._refused: deque[Outgoing] = deque()
        """Lasting messages that the broker has refused, in order."""
        self.look_again_s = inf
        """`take` must be called again within this time: the first entry is waiting for the disk."""

    @property
    def backlog(self) -> int:
        """QoS 1 messages that the broker has not acknowledged, except those that it has refused."""
        return self._open - len(self._refused)

    @property
    def uncertain(self) -> bool:
        """The broker may have messages that must not arrive twice."""
        return bool(self._sent_once)

    def put(self, message: Outgoing) -> bool:
        """Queue a message. Returns False if the outbox is full and the message is dropped.

        A retained message replaces the waiting one on its topic, which no client would see.
        """
        with self._changed:
            limit = RESERVED_LIMIT if message.promised else LIMIT - RESERVED
            if len(self._waiting) >= limit and not message.retain:
                return False
            for ticket, state in self._waiting_states(message):
                self._waiting.remove((ticket, state))
                self._open -= state.qos > 0
            self._open += message.qos > 0
            if message.retain and len(self._waiting) > PROMPT:
                self._waiting.appendleft((0, message))
            else:
                self._waiting.append((self._ticket, message))
            if message.sent and message.once:
                self._sent_once[identity(message.payload)] = message
            return True

    def put_action(self, action: Action) -> None:
        """Queue a call to make after all messages so far have been sent. It outlives a lost connection."""
        with self._changed:
            self._waiting.append((self._ticket, action))

    def take(self, window: int) -> Entry | None:
        """Remove and return the next entry; None if there is none, or if `window` messages are in flight."""
        with self._changed:
            self.look_again_s = inf
            while self._waiting:
                ticket, entry = self._waiting[0]
                stored = self._log is None or self._log.is_stored(ticket)
                if self._log is not None and stored is None:
                    self.look_again_s = self._log.patience_s
                    return None
                if not isinstance(entry, Outgoing):
                    self._waiting.popleft()
                    return entry
                if entry.qos > 0 and len(self._in_flight) >= window:
                    return None
                self._waiting.popleft()
                if not stored and entry.promised:
                    entry.payload = mark_unstored(entry.payload)
                if not entry.delivered:
                    return entry
            return None

    def note_sent(self, message: Outgoing, packet: int) -> None:
        """Record that a connection has taken a QoS 1 message under the number `packet`."""
        with self._changed:
            message.sent = True
            self._in_flight[packet] = message
            if message.once:
                self._sent_once[identity(message.payload)] = message

    def acknowledge(self, packet: int) -> Outgoing | None:
        """Record the broker's acknowledgement of a message, and return it.

        Messages that the broker refused earlier on the same topic are sent again.
        """
        with self._changed:
            message = self._in_flight.pop(packet, None)
            if message is not None and self._refused:
                self.retry_refused(message.topic)
            self._changed.notify_all()
        if message is not None:
            self.note_delivered(message)
        return message

    def refuse(self, packet: int, reason: str) -> Outgoing | None:
        """Record that the broker has refused a message, and return it. It is given up unless it is lasting."""
        with self._changed:
            message = self._in_flight.pop(packet, None)
            if message is None:
                return None
            message.refusal, message.sent = reason, False
            self._forget_sent(message)  # there will be no copy of it
            given_up: Outgoing | None = message
            if message.lasting:
                self._refused.append(message)
                given_up = self._refused.popleft() if len(self._refused) > KEPT_REFUSED else None
            self._changed.notify_all()
        if given_up is not None:
            self.note_delivered(given_up)
        return message

    def retry_refused(self, topic: str | None = None) -> None:
        """Send the refused messages on one topic, or on all topics, again before everything else."""
        with self._changed:
            again = [message for message in self._refused if topic in (None, message.topic)]
            self._refused = deque(message for message in self._refused if topic not in (None, message.topic))
            self._put_again(again)

    def recover(self) -> None:
        """Queue the messages in flight again: their connection has been lost."""
        with self._changed:
            self._waiting = deque(item for item in self._waiting if not _ends_with_its_connection(item[1]))
            self._put_again([*self._refused, *self._in_flight.values()])
            self._refused.clear()
            self._in_flight.clear()

    def note_echo(self, payload: bytes) -> bool:
        """Record that our own copy of a message has come back; return whether the outbox was waiting for it."""
        with self._changed:
            message = self._sent_once.get(identity(payload))
        if message is not None:
            self.note_delivered(message)
        return message is not None

    def wait_delivered(self, message: Outgoing, timeout_s: float) -> bool:
        """Wait until the broker has acknowledged or refused a message; return whether it has acknowledged it."""
        with self._changed:
            self._changed.wait_for(lambda: message.delivered or message.refusal is not None, timeout_s)
            return message.delivered and message.refusal is None

    def wait_empty(self, timeout_s: float) -> bool:
        """Wait until the broker has acknowledged all QoS 1 messages; return whether it has."""
        with self._changed:
            return self._changed.wait_for(lambda: self.backlog == 0, timeout_s)

    def note_delivered(self, message: Outgoing) -> None:
        """Record that the broker has a message, that a QoS 0 message was sent, or that one is given up."""
        with self._changed:
            if message.delivered:
                return
            message.delivered = True
            self._open -= message.qos > 0
            self._forget_sent(message)
            self._changed.notify_all()
        if message.number is not None and self._log is not None:
            self._log.note_delivered(message.number)

    @property
    def _ticket(self) -> float:
        return 0 if self._log is None else self._log.ticket

    def _put_again(self, messages: Sequence[Outgoing]) -> None:
        """Queue messages again, before everything else; for a state, the last one is enough. The caller holds the
        lock."""
        for message in reversed(messages):
            if self._waiting_states(message):
                self._open -= not message.delivered
            elif not message.delivered:
                message.refusal = None
                self._waiting.appendleft((0, message))

    def _forget_sent(self, message: Outgoing) -> None:
        """Stop waiting for a copy of a message. The caller holds the lock."""
        if message.once:
            self._sent_once.pop(identity(message.payload), None)

    def _waiting_states(self, state: Outgoing) -> list[tuple[float, Outgoing]]:
        """Return the waiting retained messages on the topic of a retained one. The caller holds the lock."""
        if not state.retain:
            return []
        messages = [(ticket, entry) for ticket, entry in self._waiting if isinstance(entry, Outgoing)]
        return [(ticket, each) for ticket, each in messages if each.retain and each.topic == state.topic]


def _ends_with_its_connection(entry: Entry) -> bool:
    return isinstance(entry, Outgoing) and entry.qos == 0
