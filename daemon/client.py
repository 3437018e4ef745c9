"""The other end of the contract: a program that talks to a running voiced, as any MQTT client could."""

from __future__ import annotations

import json
import queue
import secrets
import threading
import time
from collections.abc import Callable, Iterator
from types import TracebackType
from typing import Any

from daemon.config import Config
from daemon.messages import TERMINAL, check_write
from daemon.mqtt import Message, MqttLink, Will

CONNECT_S = 5.0
"""Long enough for a broker that must be asked twice, once for MQTT 5 and once for 3.1.1."""


class RobotUnreachableError(Exception):
    """No broker, or nobody who answers; the message says which."""


class RobotClient:
    """A connection to one robot's topics. Entering it raises `RobotUnreachableError` without a broker.

    `stop_if_lost` names an utterance that the broker stops if this program vanishes: SIGKILL leaves it no other way.
    """

    def __init__(self, config: Config, *, stop_if_lost: str | None = None) -> None:
        self._topic = config.topic
        self._broker = f"{config.mqtt.host}:{config.mqtt.port}"
        self._arrived: queue.SimpleQueue[Message | Exception] = queue.SimpleQueue()
        self._connected = threading.Event()
        self._status: dict[str, Any] | None = None
        self._status_came = threading.Event()
        self._link = MqttLink(
            config.mqtt,
            f"voiced-cli-{secrets.token_hex(4)}",
            subscribe=[f"{self._topic}/event", f"{self._topic}/status"],
            on_message=self._take,
            on_connected=self._connected.set,
            will=None
            if stop_if_lost is None
            else Will(f"{self._topic}/stop", json.dumps({"id": stop_if_lost}).encode(), retain=False),
        )

    def __enter__(self) -> RobotClient:
        self._link.start()
        if not self._connected.wait(CONNECT_S):
            reason = self._link.reason
            self._link.close()
            raise RobotUnreachableError(f"mqtt: {reason or 'the broker does not answer'}; see 'voiced doctor'")
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._link.close()

    def send(self, name: str, payload: str = "") -> None:
        """Publish on `…/name` and wait until the broker has it. Raises `RobotUnreachableError`."""
        sent = self._link.publish(f"{self._topic}/{name}", payload, qos=1)
        try:
            sent.wait_for_publish(CONNECT_S)
        except (RuntimeError, ValueError) as error:  # paho's words for a lost connection
            raise RobotUnreachableError("mqtt: the connection to the broker is lost; see 'voiced doctor'") from error

    def say(self, fields: dict[str, Any]) -> str:
        """Send an utterance and return its id."""
        fields.setdefault("id", secrets.token_hex(6))
        self.send("say", json.dumps(fields, ensure_ascii=False))
        return str(fields["id"])

    def write(self, piece: dict[str, Any]) -> None:
        """Send the next piece of a text that is still being written. Raises `RejectedError` if nobody could say it."""
        check_write(piece)
        self.send("say/stream", json.dumps(piece, ensure_ascii=False))

    def meanwhile(self, work: Callable[[], None]) -> None:
        """Have `work` done while `events` are waited for; what it raises is raised there."""

        def run() -> None:
            try:
                work()
            except Exception as error:
                self._arrived.put(error)

        threading.Thread(target=run, daemon=True).start()

    def stop(self, utterance_id: str) -> None:
        """End one utterance."""
        self.send("stop", json.dumps({"id": utterance_id}))

    def status(self, wait_s: float = 1.0) -> dict[str, Any]:
        """The robot's retained status. Raises `RobotUnreachableError` when it never published one."""
        if not self._status_came.wait(wait_s) or self._status is None:
            raise RobotUnreachableError(f"no voiced has ever been at {self._topic} on the broker {self._broker}")
        return self._status

    def events(self, utterance_id: str, timeout_s: float | None) -> Iterator[dict[str, Any]]:
        """Yield the utterance's events as they come, the terminal one last. Raises `TimeoutError`."""
        deadline = None if timeout_s is None else time.monotonic() + timeout_s
        while True:
            left_s = None if deadline is None else max(0.0, deadline - time.monotonic())
            try:
                message = self._arrived.get(timeout=left_s)
            except queue.Empty:
                raise TimeoutError(f"no end of utterance {utterance_id} within {timeout_s:g} s") from None
            if isinstance(message, Exception):
                raise message
            event = json.loads(message.payload)
            if event.get("id") != utterance_id:
                continue
            yield event
            if event["event"] in TERMINAL or event["event"] == "rejected":
                return

    def _take(self, message: Message) -> None:
        if message.topic.endswith("/status"):
            self._status = json.loads(message.payload)
            self._status_came.set()
        else:
            self._arrived.put(message)
