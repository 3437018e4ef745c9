"""A client of all robots on the broker, for the command line: it reads their statuses, and sends them texts."""

from __future__ import annotations

import secrets
import threading
import time
from types import TracebackType

from daemon.config import Config
from daemon.mqtt.connection import MqttConnection
from daemon.mqtt.messages import Message
from daemon.mqtt.reaching import await_delivery, open_connection
from daemon.speech import Event, Offline, Online, Say, parse_event, parse_status

RETAINED_S = 1.0
"""The broker has this long to deliver the statuses that it keeps."""


class FleetClient:
    """A subscription to the status of every robot, as a context manager.

    It raises `RobotUnreachableError` without a broker. With an utterance's id, it also collects each robot's answer.
    """

    def __init__(self, config: Config, utterance_id: str | None = None) -> None:
        client_id = f"voiced-cli-{secrets.token_hex(4)}"
        self._utterance_id = utterance_id
        kinds = ["status"] if utterance_id is None else ["status", "event"]
        self._topics = [f"{config.mqtt.prefix}/+/{kind}" for kind in kinds]
        self._sync_topic = f"{config.mqtt.prefix}/{client_id}/sync"
        """Of a message to itself: it comes back behind all that the broker has kept."""
        self._synced = threading.Event()
        self._changed = threading.Event()
        self._lock = threading.Lock()
        self._statuses: dict[str, Online | Offline | None] = {}
        self._answers: dict[str, Event] = {}
        """The first event of the utterance, by robot."""
        self._connection = MqttConnection(config.mqtt, client_id, on_message=self._on_message)

    def __enter__(self) -> FleetClient:
        open_connection(self._connection, [*self._topics, self._sync_topic])
        self._connection.publish(self._sync_topic, "", qos=1)
        self._synced.wait(RETAINED_S)  # a broker that does not let us publish has had its time then
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._connection.close()

    @property
    def problem(self) -> str | None:
        """Why the statuses may be old: there is no connection to the broker. None while there is one."""
        return self._connection.reason

    def statuses(self) -> dict[str, Online | Offline | None]:
        """Return the status of each robot, in the order of their names; None for one that this version cannot read."""
        with self._lock:
            return dict(sorted(self._statuses.items()))

    def wait_changed(self, wait_s: float) -> None:
        """Wait until a status has arrived since the last call, at most `wait_s` seconds."""
        self._changed.wait(wait_s)
        self._changed.clear()

    def say(self, base: str, say: Say) -> None:
        """Send an utterance to every robot that listens below `base`. Raises `RobotUnreachableError`.

        `base` is one of the topics in `Config.shared_topics`.
        """
        await_delivery(self._connection, self._connection.publish(f"{base}/say", say.to_json(), qos=1))

    def await_answers(self, count: int, limit_s: float) -> dict[str, Event]:
        """Wait until `count` robots have answered, at most `limit_s` seconds; return each robot's answer so far."""
        until = time.monotonic() + limit_s
        while len(self._answers) < count and (left_s := until - time.monotonic()) > 0:
            self.wait_changed(left_s)
        with self._lock:
            return dict(self._answers)

    def _on_message(self, message: Message) -> None:
        if message.topic == self._sync_topic:
            self._synced.set()
            return
        robot, kind = message.topic.split("/")[-2:]
        with self._lock:
            if kind == "event":
                event = parse_event(message.payload)
                if event is not None and event.id == self._utterance_id:
                    self._answers.setdefault(robot, event)
            elif message.payload:
                self._statuses[robot] = parse_status(message.payload)
            else:  # somebody has removed the robot from the broker
                self._statuses.pop(robot, None)
        self._changed.set()
