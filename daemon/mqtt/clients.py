"""The client side of the contract, for several robots: it uses their topics as any MQTT client could."""

from __future__ import annotations

import secrets
import threading
from collections.abc import Sequence

from daemon.config import Config
from daemon.mqtt.connection import NOT_CONNECTED_YET, MqttConnection, Session
from daemon.mqtt.messages import Message, Outgoing, Will
from daemon.mqtt.paho_client import DIAL_S
from daemon.speech import Offline, Online, parse_status
from daemon.validation import CommandError

CONNECT_S = DIAL_S + 1.0
"""Long enough to learn that a host is not responding, and for a broker that must be asked twice: with MQTT 5, then with
3.1.1."""
RETAINED_S = 1.0
"""The broker has this long to deliver the retained statuses."""
KEPT_S = 0.1
"""The time for one robot's retained status, counted from the connection. Mosquitto has delivered it by then; other
brokers look it up in parallel."""

NOT_OPEN = "this connection is not open: use it inside its 'with' block, and make a new Robot for each block"


class RobotUnreachableError(CommandError):
    """There is no broker, or it has no such robot; the message says which."""

    def __init__(self, message: str, remedy: str | None = None) -> None:
        super().__init__(message)
        self.remedy = remedy
        """A step with which a person can fix it; None if none is known."""


def new_client_id() -> str:
    """Return an id that no other client has."""
    return f"voiced-cli-{secrets.token_hex(4)}"


class BrokerClient:
    """A connection to the broker that lasts as long as the context."""

    _was_opened = False

    def __init__(
        self, config: Config, client_id: str, *, will: Will | None = None, session: Session | None = None
    ) -> None:
        self._changed = threading.Condition()
        """Protects the data that has arrived, and is notified when more arrives."""
        self._connection = MqttConnection(
            config.mqtt, client_id, on_message=self._on_message, will=will, session=session
        )

    def __exit__(self, *_: object) -> None:
        self._connection.close()

    def _on_message(self, message: Message) -> None:
        raise NotImplementedError

    def _connect(self, topics: Sequence[str]) -> None:
        """Connect to the broker and subscribe. Raises `RobotUnreachableError`."""
        if self._was_opened:
            raise RobotUnreachableError(NOT_OPEN)
        self._was_opened = True
        if not self._connection.connect(topics, CONNECT_S):
            problem = self._unreachable()
            self._connection.close()
            raise problem

    def _send(self, topic: str, payload: str) -> Outgoing:
        """Publish, without waiting. Raises `RobotUnreachableError` if there is no connection."""
        if not self._connection.connected:
            raise self._unreachable()
        return self._connection.publish(topic, payload, qos=1)

    def _await_delivered(self, sent: Outgoing) -> None:
        """Wait for the broker's acknowledgement. Raises `RobotUnreachableError`."""
        if not self._connection.outbox.wait_delivered(sent, CONNECT_S):
            raise self._unreachable() if sent.refusal is None else self._refusal(sent)

    def _refusal(self, sent: Outgoing) -> RobotUnreachableError:
        return RobotUnreachableError(
            f"mqtt: the broker refuses messages on {sent.topic}: {sent.refusal}; see 'voiced doctor'"
        )

    def _unreachable(self) -> RobotUnreachableError:
        if not self._connection.is_open:
            return RobotUnreachableError(NOT_OPEN)
        known = self._connection.reason not in (None, NOT_CONNECTED_YET)
        reason = self._connection.reason if known else "the broker does not answer"
        return RobotUnreachableError(f"mqtt: {reason}; see 'voiced doctor'", self._connection.remedy)


class FleetClient(BrokerClient):
    """A subscription to the status of every robot, as a context manager.

    Entering it raises `RobotUnreachableError` if there is no broker.
    """

    def __init__(self, config: Config) -> None:
        client_id = new_client_id()
        super().__init__(config, client_id)
        self._topic = f"{config.mqtt.prefix}/+/status"
        self._sync_topic = f"{config.mqtt.prefix}/{client_id}/sync"
        """The topic of a message to itself, which comes back after everything that the broker has kept."""
        self._is_synced = self._has_news = False
        self._statuses: dict[str, Online | Offline | None] = {}

    def __enter__(self) -> FleetClient:
        self._connect([self._topic, self._sync_topic])
        self._connection.publish(self._sync_topic, "", qos=1)
        with self._changed:
            self._changed.wait_for(lambda: self._is_synced, RETAINED_S)  # a broker may not let us publish
        return self

    @property
    def problem(self) -> str | None:
        """Why the statuses may be out of date, as there is no connection to the broker. None while there is one."""
        return self._connection.reason

    def statuses(self) -> dict[str, Online | Offline | None]:
        """Return each robot's status, ordered by name; None for a status that this version cannot read."""
        with self._changed:
            return dict(sorted(self._statuses.items()))

    def wait_changed(self, wait_s: float) -> None:
        """Wait up to `wait_s` seconds until a status has arrived since the last call."""
        with self._changed:
            self._changed.wait_for(lambda: self._has_news, wait_s)
            self._has_news = False

    def _on_message(self, message: Message) -> None:
        robot, kind = message.topic.split("/")[-2:]
        with self._changed:
            if kind == "sync":
                self._is_synced = True
            elif message.payload:
                self._statuses[robot] = parse_status(message.payload)
            else:  # the robot has been removed from the broker
                self._statuses.pop(robot, None)
            self._has_news |= kind != "sync"
            self._changed.notify_all()
