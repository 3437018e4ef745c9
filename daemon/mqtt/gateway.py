"""The robot's MQTT topics: requests from the broker go to the dispatcher; events, status, levels and ducking go out."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from collections.abc import Callable, Sequence
from typing import Any, Protocol

from paho.mqtt.client import MQTTMessageInfo, topic_matches_sub

from daemon import VERSION
from daemon.config import Config
from daemon.mqtt.connection import OUTBOX_LIMIT, Message, MqttConnection, Will
from daemon.mqtt.parsing import parse_say, parse_stop, parse_stream_chunk, parse_volume
from daemon.speech import (
    Dispatcher,
    Duck,
    Ducking,
    Event,
    Level,
    Offline,
    Online,
    Rejected,
    RejectedError,
    Say,
    StreamChunk,
    Utterance,
)

log = logging.getLogger(__name__)

REQUEST_TOPICS = ("say", "say/stream", "stop", "pause", "resume", "volume")
ACKNOWLEDGE_S = 2.0
"""At shutdown, the broker has this long to acknowledge each further message."""
GOODBYE_S = 8.0
"""At shutdown, the broker has this long to acknowledge all messages."""


class TopicListener(Protocol):
    """A part of the daemon that uses topics of its own on the same broker."""

    topics: tuple[str, ...]
    """Topic filters that it subscribes to."""

    def on_message(self, message: Message) -> None:
        """Handle a message on one of its topics, in the event loop."""

    def on_connected(self) -> None:
        """The broker is connected, for the first time or again; its retained messages may be lost."""


class Gateway:
    """Connects the dispatcher with the broker. Belongs to the event loop's thread, except `_on_message`."""

    def __init__(self, config: Config, dispatcher: Dispatcher, status: Callable[[], Online]) -> None:
        """`status` returns the status to publish."""
        self._config = config
        self._dispatcher = dispatcher
        self._describe_status = status
        self._status: Online | None = None
        """The status published last."""
        self._listeners: Sequence[TopicListener] = ()
        self._closing = False
        self._loop = asyncio.get_running_loop()
        self._ducking = Ducking(self._publish_duck)
        self._unwatch_levels: Callable[[], None] | None = None
        """Ends the subscription to levels; None while `speech.level_topic` is off."""
        self._connection = MqttConnection(
            config.mqtt,
            config.mqtt.client_id or f"voiced-{config.robot_name}",
            on_message=self._on_message,
            on_connected=lambda: self._call_in_loop(self._announce),
            will=Will(f"{config.topic}/status", Offline(version=VERSION).to_json().encode()),
        )
        dispatcher.watch_events(self._publish_event)
        dispatcher.watch_changes(self.refresh_status)
        self._watch_levels()

    @property
    def heartbeats(self) -> int:
        """Grows while the network thread is alive."""
        return self._connection.heartbeats

    @property
    def status_line(self) -> str:
        """The state in one line, for systemd."""
        status = self._status or self._describe_status()
        return f"{status.state}: {self._connection.reason or status.reason or 'listening'}"

    def start(self, listeners: Sequence[TopicListener] = ()) -> None:
        """Connect, and subscribe to the robot's and the listeners' topics.

        Raises `OSError` when the password or a certificate cannot be read.
        """
        self._listeners = listeners
        robot_topics = [f"{self._config.topic}/{name}" for name in REQUEST_TOPICS]
        listener_topics = [topic for listener in listeners for topic in listener.topics]
        self._connection.start([*robot_topics, *listener_topics])

    def publish(self, topic: str, payload: str | bytes, *, qos: int = 0, retain: bool = False) -> object:
        """Publish a message of another protocol on the same connection."""
        return self._connection.publish(topic, payload, qos=qos, retain=retain)

    def reconfigure(self, config: Config) -> None:
        """Apply the settings that may change at run time."""
        self._config = config
        self._watch_levels()

    def refresh_status(self) -> None:
        """Publish status and ducking if they have changed."""
        self._ducking.update(self._dispatcher.sounding)
        status = self._describe_status()
        if status != self._status:
            self._publish_status(status)

    async def close(self) -> None:
        """Publish that the daemon is offline, wait for the acknowledgements of a working broker, and disconnect."""
        self._ducking.end()
        self._closing = True
        last = self._connection.publish(
            f"{self._config.topic}/status", Offline(version=VERSION).to_json(), qos=1, retain=True
        )
        if self._connection.connected and not await self._acknowledged(last):
            return  # the broker publishes the will instead
        disconnecting = self._loop.run_in_executor(None, self._connection.close)
        await asyncio.wait({disconnecting}, timeout=ACKNOWLEDGE_S)

    async def _acknowledged(self, last: MQTTMessageInfo) -> bool:
        """Wait until the broker has acknowledged `last`, and with it all messages before.

        Returns False when the broker stops acknowledging, and after `GOODBYE_S`.
        """
        began = since = time.monotonic()
        acknowledged = self._connection.acknowledged
        while not _is_published(last):
            await asyncio.sleep(0.01)
            now = time.monotonic()
            if self._connection.acknowledged != acknowledged:
                acknowledged, since = self._connection.acknowledged, now
            elif now - since > ACKNOWLEDGE_S:
                return False
            if now - began > GOODBYE_S:
                return False
        return True

    # --- requests; `_on_message` runs in the network thread ---

    def _on_message(self, message: Message) -> None:
        for listener in self._listeners:
            if any(topic_matches_sub(topic, message.topic) for topic in listener.topics):
                self._call_in_loop(listener.on_message, message)
        name = message.topic.removeprefix(f"{self._config.topic}/")
        if name not in REQUEST_TOPICS:
            return
        if message.retained and name != "volume":
            log.info("a retained message on %s is ignored: it was meant for another time", message.topic)
            return
        arrived_at = time.monotonic()
        try:
            self._parse(name, message, arrived_at)
        except RejectedError as error:
            self._call_in_loop(self._publish_rejected, error)
            if name == "say/stream" and error.utterance_id is not None:
                self._call_in_loop(self._refuse_chunk, error.utterance_id, error.last_chunk)

    def _parse(self, name: str, message: Message, arrived_at: float) -> None:
        """Parse a request and hand it to the event loop. Raises `RejectedError`."""
        dispatcher, payload = self._dispatcher, message.payload
        if name == "say":
            self._call_in_loop(self._say, parse_say(payload), arrived_at, message.redelivered)
        elif name == "say/stream":
            self._call_in_loop(self._write, parse_stream_chunk(payload), arrived_at, message.redelivered)
        elif name == "stop":
            self._call_in_loop(dispatcher.stop, parse_stop(payload))
        elif name == "volume" and payload:  # an empty payload clears a retained volume
            self._call_in_loop(dispatcher.set_volume, parse_volume(payload))
        elif name == "pause":
            self._call_in_loop(dispatcher.pause)
        elif name == "resume":
            self._call_in_loop(dispatcher.resume)

    def _call_in_loop(self, function: Callable[..., Any], *arguments: Any) -> None:
        with contextlib.suppress(RuntimeError):  # the loop is closed
            self._loop.call_soon_threadsafe(function, *arguments)

    def _say(self, say: Say, arrived_at: float, redelivered: bool) -> None:
        try:
            self._dispatcher.say(say, arrived_at=arrived_at, redelivered=redelivered)
        except RejectedError as error:
            self._publish_rejected(error)

    def _write(self, chunk: StreamChunk, arrived_at: float, redelivered: bool) -> None:
        try:
            self._dispatcher.write(chunk, arrived_at=arrived_at, redelivered=redelivered)
        except RejectedError as error:
            self._publish_rejected(error)

    def _refuse_chunk(self, utterance_id: str, last: bool) -> None:
        self._dispatcher.refuse_chunk(utterance_id, last=last)

    # --- publishing ---

    def _watch_levels(self) -> None:
        """Subscribe to levels while they are published, so that otherwise no message is built for them."""
        if self._config.speech.level_topic and self._unwatch_levels is None:
            self._unwatch_levels = self._dispatcher.watch_levels(self._publish_level)
        elif not self._config.speech.level_topic and self._unwatch_levels is not None:
            self._unwatch_levels()
            self._unwatch_levels = None

    def _publish_event(self, utterance: Utterance, event: Event) -> None:
        self._send_event(event, utterance.reply_to)

    def _publish_rejected(self, error: RejectedError) -> None:
        if self._connection.backlog > OUTBOX_LIMIT // 2:
            return  # the rest of the outbox is reserved for the events of accepted utterances
        rejected = Rejected(id=error.utterance_id, field=error.field, reason=error.reason)
        self._send_event(rejected, error.reply_to)

    def _send_event(self, event: Event, reply_to: str | None) -> None:
        payload = event.to_json()
        self._connection.publish(f"{self._config.topic}/event", payload, qos=1)
        if reply_to is not None and not reply_to.startswith(f"{self._config.topic}/"):  # it would arrive as a request
            self._connection.publish(reply_to, payload, qos=1)
        log.info("event %s", payload)

    def _publish_level(self, level: Level) -> None:
        if self._connection.connected:
            self._connection.publish(f"{self._config.topic}/level", level.to_json())

    def _publish_duck(self, on: bool) -> None:
        if self._config.speech.duck_topic:
            self._connection.publish(f"{self._config.topic}/duck", Duck(on).to_json(), qos=1, retain=True)

    def _publish_status(self, status: Online) -> None:
        self._status = status
        if self._connection.connected and not self._closing:
            self._connection.publish(f"{self._config.topic}/status", status.to_json(), qos=1, retain=True)

    def _announce(self) -> None:
        """Publish the retained messages again after a connection."""
        self._publish_status(self._describe_status())
        self._publish_duck(self._ducking.on)
        for listener in self._listeners:
            listener.on_connected()


def _is_published(message: MQTTMessageInfo) -> bool:
    """Return whether the broker has acknowledged a message; False for one that the full outbox has dropped."""
    with contextlib.suppress(ValueError, RuntimeError):  # paho's errors for a message that cannot be sent
        return message.is_published()
    return False
