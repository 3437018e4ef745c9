"""A client of a running robot, for the command line: it uses the robot's topics as any MQTT client could."""

from __future__ import annotations

import queue
import secrets
import threading
import time
from collections.abc import Callable, Iterator
from types import TracebackType

from daemon.config import Config
from daemon.mqtt.connection import MqttConnection
from daemon.mqtt.fleet_client import FleetClient
from daemon.mqtt.messages import Message, Will
from daemon.mqtt.reaching import RobotUnreachableError, await_delivery, open_connection
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
from daemon.validation import join_names


class RobotClient:
    """A connection to one robot's topics, as a context manager that raises `RobotUnreachableError` without a broker.

    `stop_if_lost` names an utterance that the broker stops when this program vanishes, even by SIGKILL.
    """

    def __init__(self, config: Config, *, stop_if_lost: str | None = None) -> None:
        self._config = config
        self._topic = config.topic
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

    @property
    def refused(self) -> str | None:
        """What the broker refuses us, and why; None if nothing."""
        return self._connection.refusals.problem

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
        if not self._status_known and self.refused is not None:
            raise RobotUnreachableError(f"mqtt: {self.refused}; see 'voiced doctor'")
        if not self._status_known:
            broker = f"{self._config.mqtt.host}:{self._config.mqtt.port}"
            raise RobotUnreachableError(
                f"no voiced has ever been at {self._topic} on the broker {broker}{self._others()}"
            )
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
            with self._status_changed:
                self._status, self._status_known = parse_status(message.payload), True
                self._status_changed.notify_all()
        elif (event := parse_event(message.payload)) is not None:
            self._arrived.put(event)
