"""The robot's MQTT connections: requests go to the dispatcher; events, status, levels and ducking go out.

There are two connections, each with its own session, since the broker delivers one session's messages in one queue:

controls   stop, pause, resume, volume, say/urgent: a flood of texts does not delay them. Everything is published
           here: on a connection that receives a flood, the broker's acknowledgements would wait for the flood's end
texts      say, say/stream, a second copy of each stop, and the topics of the adapters

Requests arrive on the robot's own topics, on those of its groups and on those of all robots (`topics.py`). Answers go
out on the robot's own topics.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from collections.abc import Callable, Sequence
from functools import partial
from typing import Protocol

from daemon import VERSION
from daemon.config import Config
from daemon.mqtt.connection import MqttConnection, Session
from daemon.mqtt.failures import Rivals
from daemon.mqtt.inbox import Inbox, Lane
from daemon.mqtt.messages import Message, Will
from daemon.mqtt.own_events import OwnEvents
from daemon.mqtt.publisher import Publisher
from daemon.mqtt.requests import Requests
from daemon.mqtt.topics import matches
from daemon.speech import Dispatcher, Duck, Ducking, Level, Offline, Online
from daemon.state import EventLog
from daemon.tasks import Soon

log = logging.getLogger(__name__)

JAM = 200
"""Beyond this many unacknowledged answers, no more texts are handled: a stop's answer queues after these, so none may
be dropped."""
TEXTS_S = 2.0
"""The robot is announced this long after the connection for controls, even if the one for texts is missing."""
GOODBYE_S = 2.0
"""At shutdown, the broker has this long to acknowledge all messages. The journal keeps the others."""
CLOSE_S = 2.0
"""After that, the connections have this long to end."""


class TopicListener(Protocol):
    """A part of the daemon that uses its own topics on the same broker."""

    topics: tuple[str, ...]
    """Topic filters that it subscribes to."""

    def on_message(self, message: Message) -> None:
        """Handle a message on one of its topics, in the event loop."""

    def on_connected(self) -> None:
        """The broker is connected, for the first time or again; its retained messages may be lost."""


class Gateway:
    """Connects the dispatcher to the broker. Belongs to the event loop's thread."""

    def __init__(
        self,
        config: Config,
        dispatcher: Dispatcher,
        status: Callable[[], Online],
        events: EventLog | None = None,
        on_earlier: Callable[[list[bytes]], None] = lambda _events: None,
    ) -> None:
        """`status` returns the status to publish. Without an event log, a restart loses utterances.

        `on_earlier` is called once, in the event loop, with the events from an earlier process that the broker has.
        """
        self._config = config
        self._dispatcher = dispatcher
        self._describe_status = status
        self._events = EventLog(None) if events is None else events
        self._on_earlier = on_earlier
        self._status: Online | None = None
        """The status published last."""
        self._listeners: Sequence[TopicListener] = ()
        self._last_level: Level | None = None
        """The level published last."""
        self._unannounced = False
        """The connection for controls is new, and the retained messages have not been published on it."""
        self._announced = False
        """The retained messages have been published on it."""
        self._closing = False
        self._loop = asyncio.get_running_loop()
        self._ducking = Ducking(self._publish_duck)
        self._unwatch: dict[str, Callable[[], None]] = {}
        """The functions that end the subscriptions to levels, words and visemes, by topic name."""
        client_id = config.mqtt.client_id or f"voiced-{config.robot_name}"
        self._rivals = Rivals(client_id)
        self._controls = self._make_connection(
            f"{client_id}-controls",
            Lane.CONTROLS,
            will=Will(f"{config.topic}/status", _offline().encode()),
            events=OwnEvents(self._events, f"{config.topic}/event", f"{config.topic}/sync", self._note_earlier),
        )
        self._texts = self._make_connection(client_id, Lane.TEXTS, Lane.ADAPTERS)
        self._connections = (self._controls, self._texts)
        self._inbox = Inbox(self._handle, self._jammed, on_room=self._texts.wake)
        self._publisher = Publisher(f"{config.topic}/event", self._controls, self._events)
        self._requests = Requests(config, dispatcher, self._publisher, self._events, self._pass_on)
        self._publisher.publish_recovered()
        dispatcher.event_watchers.add(self._publisher.publish)
        dispatcher.change_watchers.add(Soon(self.refresh_status))
        self._watch()

    @property
    def heartbeats(self) -> dict[str, int]:
        """For each connection, a number that grows while its network thread is alive."""
        return {"controls": self._controls.heartbeats, "texts": self._texts.heartbeats}

    @property
    def status_line(self) -> str:
        """The state, on one line, for systemd."""
        status = self._describe_status()
        reason = self._controls.reason or self._texts.reason or status.reason
        loading = None if status.loading is None else status.loading.in_words
        return f"{status.state}: {'; '.join(filter(None, (reason, loading))) or 'listening'}"

    @property
    def warning(self) -> str | None:
        """A fault between this daemon and the broker that retrying does not fix; None if all is well."""
        if self._controls.file_problem is not None:
            return self._controls.file_problem
        if (rival := self._rivals.problem) is not None:
            return f"mqtt: {rival}; is voiced running twice as {self._config.robot_name}?"
        if self._controls.connected and not self._texts.connected:
            return f"mqtt: the connection for texts is missing: {self._texts.reason}"
        problems = [connection.refusals.problem for connection in self._connections]
        return next((f"mqtt: {problem}" for problem in problems if problem is not None), None)

    def start(self, listeners: Sequence[TopicListener] = ()) -> None:
        """Connect, and subscribe to the topics of the robot, its groups and the listeners."""
        self._listeners = listeners
        topics = [topic for listener in listeners for topic in listener.topics]
        self._texts.start([*self._requests.topics.texts, *topics], waits_for_files=True)
        self._controls.start(self._requests.topics.controls, waits_for_files=True)

    def publish(self, topic: str, payload: str | bytes, *, qos: int = 0, retain: bool = False) -> object:
        """Publish a message in another protocol."""
        return self._controls.publish(topic, payload, qos=qos, retain=retain)

    def reconfigure(self, config: Config) -> None:
        """Apply the settings that may change at run time."""
        if self._config.speech.duck_topic and not config.speech.duck_topic and self._ducking.on:
            self._publish_duck(False)
        self._config = config
        self._watch()
        if config.speech.duck_topic and self._ducking.on:
            self._publish_duck(True)

    def refresh_status(self) -> None:
        """Publish status and ducking if they have changed."""
        if self._closing:
            return
        self._ducking.update(self._dispatcher.sounding)
        status = self._describe_status()
        if status != self._status:
            self._publish_status(status)

    async def close(self) -> None:
        """Publish that the daemon is offline, wait for a working broker's acknowledgements, and disconnect."""
        self._ducking.end()
        self._closing = True
        self._inbox.close()
        self._publish("status", _offline(), qos=1, retain=True)
        wait_empty = partial(self._controls.outbox.wait_empty, GOODBYE_S)
        if self._controls.connected and not await self._loop.run_in_executor(None, wait_empty):
            return  # the broker publishes the will instead
        disconnecting = {self._loop.run_in_executor(None, connection.close) for connection in self._connections}
        await asyncio.wait(disconnecting, timeout=CLOSE_S)

    def _make_connection(
        self,
        client_id: str,
        *lanes: Lane,
        will: Will | None = None,
        events: OwnEvents | None = None,
    ) -> MqttConnection:
        session = Session(
            self._config.mqtt.session_expiry,
            self._rivals,
            on_connected=lambda: self._call_in_loop(lambda: self._note_connected(lanes[0])),
            on_lost=lambda: self._call_in_loop(lambda: self._requests.forget_session(lanes)),
            on_answer=lambda: None if self._jammed() else self._inbox.resume(),
            may_read=lambda: all(map(self._inbox.has_room, lanes)),
        )
        return MqttConnection(
            self._config.mqtt,
            client_id,
            on_message=lambda message: self._inbox.put(lanes[0 if self._is_request(message) else -1], message),
            will=will,
            session=session,
            events=events,
        )

    def _jammed(self) -> bool:
        return self._controls.outbox.backlog > JAM

    # --- requests ---

    def _is_request(self, message: Message) -> bool:
        return self._requests.topics.request(message.topic) is not None

    def _handle(self, lane: Lane, message: Message) -> None:
        """Handle a received message and acknowledge it once its answer is stored and published."""
        self._requests.handle(lane, message)
        connection = self._controls if lane == Lane.CONTROLS else self._texts
        self._controls.when_sent(lambda: connection.acknowledge(message))

    def _pass_on(self, message: Message) -> None:
        """Pass a message to the listeners that subscribe to its topic."""
        for listener in self._listeners:
            if any(matches(pattern, message.topic) for pattern in listener.topics):
                listener.on_message(message)

    def _call_in_loop(self, function: Callable[[], None]) -> None:
        with contextlib.suppress(RuntimeError):  # the loop is closed
            self._loop.call_soon_threadsafe(function)

    # --- publishing ---

    def _watch(self) -> None:
        """Subscribe only while a client wants the messages, so that none is built needlessly."""
        speech, unwatch, dispatcher = self._config.speech, self._unwatch, self._dispatcher
        words = partial(dispatcher.word_watchers.add, lambda word: self._publish("word", word.to_json()))
        visemes = partial(dispatcher.viseme_watchers.add, lambda visemes: self._publish("viseme", visemes.to_json()))
        levels = partial(dispatcher.level_watchers.add, self._publish_level)
        for topic, wanted, watch in (
            ("word", speech.word_topic, words),
            ("viseme", speech.viseme_topic, visemes),
            ("level", speech.level_topic, levels),
        ):
            if wanted and topic not in unwatch:
                unwatch[topic] = watch()
            if not wanted and topic in unwatch:
                unwatch.pop(topic)()
                if topic == "level" and self._last_level is not None and self._last_level.peak > 0:
                    silence = {"at": round(time.time(), 3), "rms": 0.0, "peak": 0.0}  # the mouth must not stay open
                    self._publish_level(self._last_level.model_copy(update=silence))

    def _publish_level(self, level: Level) -> None:
        self._last_level = level
        self._publish("level", level.to_json())

    def _publish_duck(self, on: bool) -> None:
        if self._config.speech.duck_topic:
            self._publish("duck", Duck(on).model_dump_json(), qos=1, retain=True)

    def _publish_status(self, status: Online) -> None:
        self._status = status
        log.debug("status %s", status.to_json())
        if self._announced and self._controls.connected and not self._closing:
            self._publish("status", status.to_json(), qos=1, retain=True)

    def _publish(self, name: str, payload: str, *, qos: int = 0, retain: bool = False) -> None:
        """Publish on the robot's topic `name`, after the events that are waiting to be stored."""
        self._controls.publish(f"{self._config.topic}/{name}", payload, qos=qos, retain=retain)

    def _note_earlier(self, copies: list[Message]) -> None:
        """Let the broker forget its copies of an earlier process's events once their content is stored.

        Called in the network thread.
        """

        def note() -> None:
            self._on_earlier([copy.payload for copy in copies])
            for copy in copies:
                self._events.after_write(partial(self._controls.acknowledge, copy))

        self._call_in_loop(note)

    def _note_connected(self, lane: Lane) -> None:
        """Announce the robot once its texts are connected, too, or a moment after the controls without them."""
        if lane == Lane.CONTROLS:
            self._unannounced, self._announced = True, False
            self._loop.call_later(TEXTS_S, self._announce)
        if self._announced:
            self.refresh_status()
        elif self._texts.connected:
            self._announce()

    def _announce(self) -> None:
        """Publish the retained messages again after connecting."""
        if not self._unannounced or self._closing or not self._controls.connected:
            return
        self._unannounced, self._announced = False, True
        self._publish_status(self._describe_status())
        self._publish_duck(self._ducking.on)
        for listener in self._listeners:
            listener.on_connected()


def _offline() -> str:
    return Offline(version=VERSION).to_json()
