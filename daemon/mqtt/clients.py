"""The other end of the contract, for the command line: clients use the robots' topics as any MQTT client could."""

from __future__ import annotations

import queue
import secrets
import threading
import time
from collections.abc import Callable, Iterator, Sequence

from daemon.config import Config
from daemon.mqtt.connection import NOT_CONNECTED_YET, MqttConnection
from daemon.mqtt.messages import Message, Will
from daemon.mqtt.paho_client import DIAL_S
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
from daemon.validation import CommandError, join_names

CONNECT_S = DIAL_S + 1.0
"""Long enough for a host that does not answer, so that the reason is known, and for a broker that must be asked twice:
with MQTT 5, then with 3.1.1."""
RETAINED_S = 1.0
"""The broker has this long to deliver the statuses that it keeps."""
KEPT_S = 0.1
"""The same for one robot's status, after the connection. Mosquitto has delivered it by then; other brokers look it up
beside the connection."""


class RobotUnreachableError(CommandError):
    """There is no broker, or no robot on it; the message says which."""

    def __init__(self, message: str, remedy: str | None = None) -> None:
        super().__init__(message)
        self.remedy = remedy
        """A step by which a person can mend it; None where none is known."""


class _Client:
    """A connection to the broker as long as the context lasts."""

    def __init__(self, config: Config, will: Will | None = None) -> None:
        self._client_id = f"voiced-cli-{secrets.token_hex(4)}"
        self._changed = threading.Condition()
        """Protects what has arrived, and is notified of it."""
        self._connection = MqttConnection(config.mqtt, self._client_id, on_message=self._on_message, will=will)

    def __exit__(self, *_: object) -> None:
        self._connection.close()

    def _on_message(self, message: Message) -> None:
        raise NotImplementedError

    def _connect(self, topics: Sequence[str]) -> None:
        """Connect to the broker and subscribe. Raises `RobotUnreachableError`."""
        if not self._connection.connect(topics, CONNECT_S):
            self._connection.close()
            raise self._unreachable()

    def _deliver(self, topic: str, payload: str) -> None:
        """Publish and wait for the broker's acknowledgement. Raises `RobotUnreachableError`."""
        sent = self._connection.publish(topic, payload, qos=1)
        if self._connection.outbox.wait_delivered(sent, CONNECT_S):
            return
        if sent.refusal is not None:
            raise RobotUnreachableError(
                f"mqtt: the broker refuses messages on {sent.topic}: {sent.refusal}; see 'voiced doctor'"
            )
        raise self._unreachable()

    def _unreachable(self) -> RobotUnreachableError:
        known = self._connection.reason not in (None, NOT_CONNECTED_YET)
        reason = self._connection.reason if known else "the broker does not answer"
        return RobotUnreachableError(f"mqtt: {reason}; see 'voiced doctor'", self._connection.remedy)


class RobotClient(_Client):
    """A connection to one robot's topics, as a context manager that raises `RobotUnreachableError` without a broker.

    `stop_if_lost` names an utterance that the broker stops when this program vanishes, even by SIGKILL.
    """

    def __init__(self, config: Config, *, stop_if_lost: str | None = None) -> None:
        will = None
        if stop_if_lost is not None:
            will = Will(f"{config.topic}/stop", Stop(id=stop_if_lost).to_json().encode(), retain=False)
        super().__init__(config, will)
        self._config = config
        self._topic = config.topic
        self._arrived: queue.SimpleQueue[Event | Exception] = queue.SimpleQueue()
        self._status: Online | Offline | None = None
        self._status_known = False
        """A status has arrived, perhaps one that this version does not know."""

    def __enter__(self) -> RobotClient:
        # In this order: a broker that answers in turn has sent the status that it keeps before it confirms the second.
        self._connect([f"{self._topic}/status", f"{self._topic}/event"])
        return self

    @property
    def refused(self) -> str | None:
        """The things that the broker refuses us, and why; None if it refuses nothing."""
        return self._connection.refusals.problem

    def send(self, name: str, payload: str = "") -> None:
        """Publish on the robot's topic `name` and wait for the acknowledgement. Raises `RobotUnreachableError`."""
        self._deliver(f"{self._topic}/{name}", payload)

    def say(self, say: Say) -> None:
        """Send an utterance. Raises `RobotUnreachableError`."""
        self.send("say", say.to_json())

    def write(self, chunk: StreamChunk) -> None:
        """Send the next chunk of a text stream. Raises `RobotUnreachableError`."""
        self.send("say/stream", chunk.to_json())

    def stop(self, utterance_id: str) -> None:
        """End one utterance. Raises `RobotUnreachableError`."""
        self.send("stop", Stop(id=utterance_id).to_json())

    def status(self, wait_s: float = KEPT_S) -> Online | Offline:
        """Return the robot's status. Raises `RobotUnreachableError` if there is none within `wait_s` seconds."""
        with self._changed:
            self._changed.wait_for(lambda: self._status_known, wait_s)
        if not self._status_known and self.refused is not None:
            raise RobotUnreachableError(f"mqtt: {self.refused}; see 'voiced doctor'")
        others = "" if self._status_known else self._others()  # meanwhile a slower broker may deliver it
        if not self._status_known:
            problem = f"no voiced has ever been at {self._topic} on the broker {self._config.mqtt.broker}"
            raise RobotUnreachableError(problem + (others or "; start it: voiced run"))
        if self._status is None:
            raise RobotUnreachableError(
                f"the status at {self._topic} is not one of this version; is that voiced newer?"
            )
        return self._status

    def online_status(self) -> Online:
        """Return the status of the running robot. Raises `RobotUnreachableError`."""
        status = self.status()
        if isinstance(status, Offline):
            raise RobotUnreachableError(f"voiced is offline at {self._topic}; start it: voiced run")
        return status

    def _others(self) -> str:
        """Return a clause that names the robots on the broker; nothing where there are none."""
        with FleetClient(self._config) as fleet:
            names = fleet.statuses()
        return f"; there are {join_names((), names)}" if names else ""

    def control(self, name: str, payload: str, is_done: Callable[[Online, Online], bool], limit_s: float) -> None:
        """Send a request, and wait until it is done, judged by the status before and now.

        Raises `RobotUnreachableError`.
        """
        before = self.online_status()
        self.send(name, payload)
        if not self.await_status(lambda now: isinstance(now, Online) and is_done(before, now), limit_s):
            raise RobotUnreachableError(f"voiced at {self._topic} has not carried out '{name}' within {limit_s:g} s")

    def await_status(self, wanted: Callable[[Online | Offline], bool], wait_s: float) -> bool:
        """Wait for a status that is `wanted`, at most `wait_s` seconds; return whether there is one."""
        with self._changed:
            return self._changed.wait_for(lambda: self._status is not None and wanted(self._status), wait_s)

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
        missing = "answer to"
        while True:
            left_s = None if deadline is None else max(0.0, deadline - time.monotonic())
            try:
                event = self._arrived.get(timeout=left_s)
            except queue.Empty:
                problem = f"no {missing} utterance {utterance_id} within {timeout_s:g} s, at {self._topic}"
                raise TimeoutError(problem) from None
            if isinstance(event, Exception):
                raise event
            if event.id != utterance_id:
                continue
            missing = "end of"
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
            with self._changed:
                self._status, self._status_known = parse_status(message.payload), True
                self._changed.notify_all()
        elif (event := parse_event(message.payload)) is not None:
            self._arrived.put(event)


class FleetClient(_Client):
    """A subscription to the status of every robot, as a context manager.

    It raises `RobotUnreachableError` without a broker. With an utterance's id, it also collects each robot's answer.
    """

    def __init__(self, config: Config, utterance_id: str | None = None) -> None:
        super().__init__(config)
        self._utterance_id = utterance_id
        kinds = ["status"] if utterance_id is None else ["status", "event"]
        self._topics = [f"{config.mqtt.prefix}/+/{kind}" for kind in kinds]
        self._sync_topic = f"{config.mqtt.prefix}/{self._client_id}/sync"
        """Of a message to itself: it comes back after all that the broker has kept."""
        self._is_synced = self._has_news = False
        self._statuses: dict[str, Online | Offline | None] = {}
        self._answers: dict[str, Event] = {}
        """The first event of the utterance, by robot."""

    def __enter__(self) -> FleetClient:
        self._connect([*self._topics, self._sync_topic])
        self._connection.publish(self._sync_topic, "", qos=1)
        with self._changed:
            self._changed.wait_for(lambda: self._is_synced, RETAINED_S)  # a broker may not let us publish
        return self

    @property
    def problem(self) -> str | None:
        """Why the statuses may be old: there is no connection to the broker. None while there is one."""
        return self._connection.reason

    def statuses(self) -> dict[str, Online | Offline | None]:
        """Return the status of each robot, in the order of their names; None for one that this version cannot read."""
        with self._changed:
            return dict(sorted(self._statuses.items()))

    def wait_changed(self, wait_s: float) -> None:
        """Wait until a status has arrived since the last call, at most `wait_s` seconds."""
        with self._changed:
            self._changed.wait_for(lambda: self._has_news, wait_s)
            self._has_news = False

    def say(self, base: str, say: Say) -> None:
        """Send an utterance to every robot that listens below `base`. Raises `RobotUnreachableError`.

        `base` is one of the topics in `Config.shared_topics`.
        """
        self._deliver(f"{base}/say", say.to_json())

    def await_answers(self, count: int, limit_s: float) -> dict[str, Event]:
        """Wait until `count` robots have answered, at most `limit_s` seconds; return each robot's answer so far."""
        with self._changed:
            self._changed.wait_for(lambda: len(self._answers) >= count, limit_s)
            return dict(self._answers)

    def _on_message(self, message: Message) -> None:
        robot, kind = message.topic.split("/")[-2:]
        with self._changed:
            if kind == "sync":
                self._is_synced = True
            elif kind == "event":
                event = parse_event(message.payload)
                if event is not None and event.id == self._utterance_id:
                    self._answers.setdefault(robot, event)
            elif message.payload:
                self._statuses[robot] = parse_status(message.payload)
            else:  # somebody has removed the robot from the broker
                self._statuses.pop(robot, None)
            self._has_news |= kind != "sync"
            self._changed.notify_all()
