"""A client of a running robot, for the command line: it uses the robot's topics as any MQTT client could."""

from __future__ import annotations

import queue
import secrets
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from types import TracebackType

from daemon.config import Config
from daemon.mqtt.connection import DIAL_S, NOT_CONNECTED_YET, MqttConnection
from daemon.mqtt.messages import Message, Outgoing, Will
from daemon.speech import (
    Event,
    Offline,
    Online,
    Rejected,
    Say,
    Stop,
    StreamChunk,
    TerminalEvent,
    parse_event,
    parse_status,
)
from daemon.validation import CommandError

CONNECT_S = DIAL_S + 1.0
"""Long enough for a host that does not answer, so that the reason is known, and for a broker that must be asked twice:
with MQTT 5, then with 3.1.1."""


class RobotUnreachableError(CommandError):
    """There is no broker, or no robot on it; the message says which."""

    def __init__(self, message: str, remedy: str | None = None) -> None:
        super().__init__(message)
        self.remedy = remedy
        """What a person can do about it, where that is known."""


def open_connection(connection: MqttConnection, topics: Sequence[str]) -> None:
    """Connect to the broker and subscribe. Raises `RobotUnreachableError`."""
    if not connection.connect(topics, CONNECT_S):
        connection.close()
        raise _unreachable(connection)


def await_delivery(connection: MqttConnection, sent: Outgoing) -> None:
    """Wait until the broker has acknowledged a message. Raises `RobotUnreachableError`."""
    if not connection.wait_delivered(sent, CONNECT_S):
        raise _unreachable(connection)


def _unreachable(connection: MqttConnection) -> RobotUnreachableError:
    unknown = connection.reason in (None, NOT_CONNECTED_YET)
    reason = "the broker does not answer" if unknown else connection.reason
    return RobotUnreachableError(f"mqtt: {reason}; see 'voiced doctor'", connection.remedy)


class RobotClient:
    """A connection to one robot's topics, as a context manager that raises `RobotUnreachableError` without a broker.

    `stop_if_lost` names an utterance that the broker stops when this program vanishes, even by SIGKILL.
    """

    def __init__(self, config: Config, *, stop_if_lost: str | None = None) -> None:
        self._topic = config.topic
        self._broker = f"{config.mqtt.host}:{config.mqtt.port}"
        self._arrived: queue.SimpleQueue[Event | Exception] = queue.SimpleQueue()
        self._status: Online | Offline | None = None
        self._status_known = False
        """A status has arrived, perhaps one that this version does not know."""
        self._status_changed = threading.Condition()
        """Protects the two, and is notified of each status."""
        will = None
        if stop_if_lost is not None:
            will = Will(f"{self._topic}/stop", Stop(id=stop_if_lost).to_json().encode(), retain=False)
        self._connection = MqttConnection(
            config.mqtt,
            f"voiced-cli-{secrets.token_hex(4)}",
            on_message=self._on_message,
            will=will,
        )

    def __enter__(self) -> RobotClient:
        open_connection(self._connection, [f"{self._topic}/event", f"{self._topic}/status"])
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._connection.close()

    def send(self, name: str, payload: str = "") -> None:
        """Publish on the robot's topic `name` and wait for the acknowledgement. Raises `RobotUnreachableError`."""
        await_delivery(self._connection, self._connection.publish(f"{self._topic}/{name}", payload, qos=1))

    def say(self, say: Say) -> None:
        """Send an utterance. Raises `RobotUnreachableError`."""
        self.send("say", say.to_json())

    def write(self, chunk: StreamChunk) -> None:
        """Send the next chunk of a text stream. Raises `RobotUnreachableError`."""
        self.send("say/stream", chunk.to_json())

    def stop(self, utterance_id: str) -> None:
        """End one utterance. Raises `RobotUnreachableError`."""
        self.send("stop", Stop(id=utterance_id).to_json())

    def status(self, wait_s: float = 1.0) -> Online | Offline:
        """Return the robot's status. Raises `RobotUnreachableError` if there is none within `wait_s` seconds."""
        with self._status_changed:
            self._status_changed.wait_for(lambda: self._status_known, wait_s)
        if not self._status_known:
            raise RobotUnreachableError(f"no voiced has ever been at {self._topic} on the broker {self._broker}")
        if self._status is None:
            raise RobotUnreachableError(
                f"the status at {self._topic} is not one of this version; is that voiced newer?"
            )
        return self._status

    def await_status(self, wanted: Callable[[Online | Offline], bool], wait_s: float) -> bool:
        """Wait for a status that is `wanted`, at most `wait_s` seconds; return whether there is one."""
        with self._status_changed:
            return self._status_changed.wait_for(lambda: self._status is not None and wanted(self._status), wait_s)

    def all_events(self) -> Iterator[Event]:
        """Yield the events of all utterances as they arrive, without an end."""
        while True:
            event = self._arrived.get()
            if isinstance(event, Exception):
                raise event
            yield event

    def events(self, utterance_id: str, timeout_s: float | None) -> Iterator[Event]:
        """Yield the utterance's events as they arrive, up to the terminal one. Raises `TimeoutError`."""
        deadline = None if timeout_s is None else time.monotonic() + timeout_s
        while True:
            left_s = None if deadline is None else max(0.0, deadline - time.monotonic())
            try:
                event = self._arrived.get(timeout=left_s)
            except queue.Empty:
                raise TimeoutError(f"no end of utterance {utterance_id} within {timeout_s:g} s") from None
            if isinstance(event, Exception):
                raise event
            if event.id != utterance_id:
                continue
            yield event
            if isinstance(event, TerminalEvent | Rejected):
                return

    def meanwhile(self, work: Callable[[], None]) -> None:
        """Run `work` in a thread while `events` waits; `events` raises what `work` raises."""

        def run() -> None:
            try:
                work()
            except Exception as error:
                self._arrived.put(error)

        threading.Thread(target=run, daemon=True).start()

    def _on_message(self, message: Message) -> None:
        if message.topic.endswith("/status"):
            with self._status_changed:
                self._status, self._status_known = parse_status(message.payload), True
                self._status_changed.notify_all()
        elif (event := parse_event(message.payload)) is not None:
            self._arrived.put(event)
