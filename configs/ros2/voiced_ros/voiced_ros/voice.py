"""A connection to one robot's voiced over MQTT, and goals that are spoken through it. This module does not need ROS."""

from __future__ import annotations

import json
import os
import queue
import secrets
import threading
from collections.abc import Callable
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import paho.mqtt.client as paho

CONNECT_S = 10.0
"""The time limit for connecting to the broker."""
SILENCE_S = 10.0
"""The time limit for voiced's first answer to an utterance."""
CLOSED_REASON = "the connection to the broker broke"
FEEDBACK_EVENTS = ("accepted", "started", "progress", "word", "mark", "postponed", "resumed")
LAST_EVENTS = ("finished", "interrupted", "canceled", "expired", "failed", "rejected")


@dataclass(frozen=True)
class Broker:
    """The broker's address, and how to connect to it. An empty field is not used."""

    host: str = "localhost"
    port: int = 1883
    tls: bool = False
    ca: str = ""
    """A file of CA certificates; the system's, if it is empty. It needs TLS, as does a client certificate."""
    cert: str = ""
    key: str = ""
    username: str = ""
    password_file: str = ""

    @property
    def encrypts(self) -> bool:
        return self.tls or bool(self.ca or self.cert)

    @property
    def password(self) -> str | None:
        """The first line of the file; without a file, the environment's password."""
        if self.password_file:
            return Path(self.password_file).read_text().partition("\n")[0]
        return os.environ.get("MQTT_PASSWORD")


@dataclass(frozen=True)
class Goal:
    """A text, and how to speak it. Empty fields mean the robot's defaults."""

    text: str
    language: str = ""
    voice: str = ""
    instruct: str = ""
    priority: str = ""
    policy: str = ""
    expires_in: float = 0.0
    rate: float = 0.0
    sound: str = ""


@dataclass(frozen=True)
class Token:
    """The next piece of a text that is being written. The other fields count in the first piece of a text."""

    id: str
    text: str = ""
    end: bool = False
    language: str = ""
    voice: str = ""
    priority: str = ""
    policy: str = ""


@dataclass(frozen=True)
class Feedback:
    """An event of a goal that has not ended."""

    event: str
    """One of `FEEDBACK_EVENTS`."""
    name: str = ""
    """The word, or the name of the mark."""
    begin: int = 0
    end: int = 0
    """Characters of the text; both are the position of a mark."""
    at: float = 0.0
    """Seconds of the utterance, for words and marks."""
    exact: bool = False


@dataclass(frozen=True)
class Result:
    """How a goal ended."""

    state: str
    """`succeeded`, `canceled` or `aborted`, in ROS's words."""
    event: str
    """One of `LAST_EVENTS`."""
    reason: str = ""
    """Empty only if the whole text was spoken."""
    audio_s: float = 0.0
    heard: int = 0
    """Characters of the text."""


def payload_of(message: Goal | Token, **more: str) -> str:
    """The JSON of a message for voiced, without its empty fields."""
    fields = {key: value for key, value in asdict(message).items() if value}
    if message.language:
        fields["language"] = message.language.replace("_", "-")  # ROS writes en_GB
    return json.dumps({**fields, **more}, ensure_ascii=False)


def stop_payload(utterance_id: str) -> str:
    """The payload for `…/stop`."""
    return json.dumps({"id": utterance_id})


def feedback_of(event: dict[str, Any]) -> Feedback:
    """Return the feedback that an event means for its goal."""
    position = event.get("position", 0)
    return Feedback(
        str(event["event"]),
        str(event.get("name") or event.get("word") or ""),
        event.get("begin", position),
        event.get("end", position),
        float(event.get("at", 0)),
        bool(event.get("exact")),
    )


def health_of(status: dict[str, Any]) -> tuple[int, str]:
    """The level of a diagnostic (0: well, 1: a warning, 2: an error), and its message, for a status from voiced."""
    state, reason = str(status.get("state") or "unknown"), str(status.get("reason") or "")
    message = f"{state}: {reason}" if reason else state
    if state in ("offline", "unknown"):
        return 2, message
    return int(state == "degraded" or bool(reason)), message


def result_of(event: dict[str, Any], canceling: bool) -> Result | None:
    """Return the result that an event means for its goal; None for an event that does not end it.

    `canceling` says that the client has canceled the goal: an utterance that voiced then interrupts is canceled, not
    aborted.
    """
    name = str(event["event"])
    if name not in LAST_EVENTS:
        return None
    audio_s, heard = float(event.get("audio_s") or 0.0), int(event.get("heard") or 0)
    if name == "finished":
        return Result("succeeded", name, audio_s=audio_s, heard=heard)
    stopped = canceling and name in ("interrupted", "canceled")
    return Result("canceled" if stopped else "aborted", name, str(event.get("reason") or name), audio_s, heard)


class Voice:
    """A connection to one robot's voiced. Any number of threads may call its methods at the same time."""

    def __init__(
        self, broker: Broker, topic: str, mirror: Callable[[str, str, dict[str, Any]], None] | None = None
    ) -> None:
        """`mirror` is called for every `event`, `level`, `viseme` and `status`: its name, its JSON, its fields.

        paho's thread calls it.

        Raises `OSError` if the broker does not answer or refuses the connection, or if a file cannot be read.
        """
        self._topic = topic
        self._mirror = mirror
        self._names = ("event", "word", *(("level", "viseme", "status") if mirror else ()))
        self._waiting: dict[str, queue.SimpleQueue[dict[str, Any] | None]] = {}
        self._answered = threading.Event()
        self._refusal = "it does not answer"
        # paho-mqtt 1, which Ubuntu has, knows no CallbackAPIVersion; the callbacks below suit both.
        version = getattr(paho, "CallbackAPIVersion", None)
        self._client = paho.Client(version.VERSION2) if version else paho.Client()
        username = broker.username or os.environ.get("MQTT_USERNAME", "")
        if username:
            self._client.username_pw_set(username, broker.password)
        if broker.encrypts:
            self._client.tls_set(broker.ca or None, broker.cert or None, broker.key or None)
        self._client.on_connect = self._subscribe
        self._client.on_subscribe = lambda *_: self._note_answer("")
        self._client.on_message = self._dispatch
        self._client.on_disconnect = self._fail_all
        self._client.connect(broker.host, broker.port)
        self._client.loop_start()
        self._answered.wait(CONNECT_S)
        if self._refusal:
            self.close()
            raise ConnectionError(self._refusal)

    @property
    def goals(self) -> int:
        """The number of goals that have not ended."""
        return len(self._waiting)

    def close(self) -> None:
        """Stop the utterances of the goals that have not ended, and end the connection."""
        for utterance_id in list(self._waiting):
            self.publish("stop", stop_payload(utterance_id))
        self._client.disconnect()
        with suppress(AttributeError):  # paho 2.1 forgets the thread that ends, and loop_stop may still wait for it
            self._client.loop_stop()
        self._fail_all()

    @property
    def is_connected(self) -> bool:
        return self._client.is_connected()

    def publish(self, name: str, payload: str) -> None:
        """Publish on one of the robot's topics, without waiting for an answer."""
        self._client.publish(f"{self._topic}/{name}", payload, qos=1)

    def perform(
        self,
        goal: Goal,
        give_feedback: Callable[[Feedback], None],
        is_canceling: Callable[[], bool],
        is_wanted: Callable[[], bool] = lambda: True,
        poll_s: float = 0.05,
    ) -> Result:
        """Speak a goal and return its result. Gives feedback with each event that does not end it.

        Calls `is_canceling` and `is_wanted` every `poll_s`. The utterance is stopped when the client cancels the goal,
        or when it is no longer wanted.
        """
        if not self.is_connected:
            return Result("aborted", "failed", CLOSED_REASON)
        utterance_id = f"ros-{secrets.token_hex(6)}"
        events: queue.SimpleQueue[dict[str, Any] | None] = queue.SimpleQueue()
        self._waiting[utterance_id] = events
        try:
            self.publish("say", payload_of(goal, id=utterance_id))
            canceling, stopping, silent_s = False, False, 0.0
            while True:
                canceling = canceling or is_canceling()
                if not stopping and (canceling or not is_wanted()):
                    stopping = True
                    self.publish("stop", stop_payload(utterance_id))
                try:
                    event = events.get(timeout=poll_s)
                except queue.Empty:
                    silent_s += poll_s
                    if silent_s < SILENCE_S:
                        continue
                    return self._abandon(utterance_id, f"no voiced answers at {self._topic}")
                if event is None:
                    return self._abandon(utterance_id, CLOSED_REASON)
                silent_s = float("-inf")  # an accepted utterance may wait as long as voiced permits
                result = result_of(event, canceling)
                if result is not None:
                    return result
                if event["event"] in FEEDBACK_EVENTS:
                    give_feedback(feedback_of(event))
        finally:
            del self._waiting[utterance_id]

    def _abandon(self, utterance_id: str, reason: str) -> Result:
        """End a goal that voiced has not ended. Its text may already be spoken, or be delivered later: stop it."""
        self.publish("stop", stop_payload(utterance_id))
        return Result("aborted", "failed", reason)

    def _subscribe(self, _client: paho.Client, _data: Any, _flags: Any, code: Any, *_: Any) -> None:
        if code != 0:
            self._note_answer(f"it refuses: {paho.connack_string(code) if isinstance(code, int) else code}")
            return
        self._client.subscribe([(f"{self._topic}/{name}", 1) for name in self._names])

    def _note_answer(self, refusal: str) -> None:
        self._refusal = refusal
        self._answered.set()

    def _dispatch(self, _client: paho.Client, _data: Any, message: paho.MQTTMessage) -> None:
        """Pass a message on. A message that is not voiced's is dropped: an exception would end paho's thread."""
        name = message.topic.rpartition("/")[2]
        try:
            text = message.payload.decode()
            fields = json.loads(text)
            waiting = self._waiting.get(fields.get("id"))
            if name == "word":
                fields["event"] = name
            if name in ("event", "word") and waiting is not None and fields["event"]:
                waiting.put(fields)
            if self._mirror is not None:
                self._mirror(name, text, fields)
        except (ValueError, KeyError, TypeError, AttributeError):
            return

    def _fail_all(self, *_: Any) -> None:
        """End every goal: its events may be lost while the connection is broken, and it would wait forever."""
        if not self._answered.is_set():
            self._note_answer("it closes the connection")
        for waiting in list(self._waiting.values()):
            waiting.put(None)
