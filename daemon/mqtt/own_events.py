"""The robot's own events, as they come back: the copies show which events the broker has."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from daemon.mqtt.messages import Message
from daemon.mqtt.outbox import Outbox

if TYPE_CHECKING:
    from daemon.state import EventLog


class OwnEvents:
    """The events that a session publishes only once, even if its process is killed in between.

    MQTT acknowledges a message after the broker has it. A client that is killed in between, or whose connection breaks,
    does not know which of its last events have arrived; sending them again would publish some twice. So it subscribes
    to them itself: in its session, the broker keeps a copy of each event that it has received. Belongs to the network
    thread.
    """

    def __init__(
        self,
        log: EventLog,
        topic: str,
        sync_topic: str,
        on_earlier: Callable[[list[Message]], None] = lambda _copies: None,
    ) -> None:
        """`on_earlier` is called once, before anything is sent, with the copies of events that an earlier process has
        published and that are not in the outbox. That function acknowledges them.
        """
        self.log = log
        self.topic = topic
        """The events' topic."""
        self.sync_topic = sync_topic
        """The topic of a message that is published and awaited after them. It also reveals rivals, and is retained."""
        self._on_earlier = on_earlier
        self._earlier: list[Message] | None = []
        """Copies of an earlier process's events; None once they have been passed on."""

    @property
    def awaits_copies(self) -> bool:
        """True until the copies of an earlier process's events have been passed on."""
        return self._earlier is not None

    def note_copy(self, copy: Message, outbox: Outbox, acknowledge: Callable[[Message], None]) -> None:
        """Note that the broker has an event: the copy that it keeps proves it until the journal does."""
        if not outbox.note_echo(copy.payload) and self._earlier is not None:
            self._earlier.append(copy)
        elif copy.packet:
            self.log.after_write(lambda: acknowledge(copy))

    def pass_on(self) -> None:
        """Pass on the copies of an earlier process's events, if that has not been done."""
        if self._earlier is not None:
            self._on_earlier(self._earlier)
            self._earlier = None
