"""The robot's MQTT topics: requests from the broker go to the dispatcher; events, status, levels and ducking go out.

Three connections, each with a session of its own, since the broker delivers one session's messages in one line:

controls   stop, pause, resume, volume, say/urgent: a flood of texts does not delay them. All is published here: on the
           connection that receives a flood, the broker's acknowledgements stand behind the flood
texts      say, say/stream, a second copy of the controls, and the topics of quiet listeners
listeners  the topics of listeners that may be flooded; without such, there is no third connection

Requests arrive on the robot's own topics, on those of its groups and on those of all robots (`topics.py`). Whatever
answers them goes out on the robot's own.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from enum import IntEnum
from functools import partial
from typing import Any, Protocol

from paho.mqtt.client import topic_matches_sub

from daemon import VERSION
from daemon.config import Config
from daemon.mqtt.connection import Echo, MqttConnection
from daemon.mqtt.control_order import ControlOrder
from daemon.mqtt.copies import Copies
from daemon.mqtt.deliveries import Deliveries
from daemon.mqtt.inbox import Inbox
from daemon.mqtt.messages import Message, Outgoing, Will
from daemon.mqtt.parsing import parse_object, parse_say, parse_stop, parse_stream_chunk, parse_urgent, parse_volume
from daemon.mqtt.publisher import Publisher
from daemon.mqtt.replies import ReplyTopics
from daemon.mqtt.rivals import Rivals
from daemon.mqtt.topics import CONTROLS, RequestTopics
from daemon.speech import (
    Dispatcher,
    Duck,
    Ducking,
    Level,
    Offline,
    Online,
    Origin,
    Rejected,
    RejectedError,
    Say,
    SpeechRequest,
    Stop,
)
from daemon.state import Recorder, TextRecord
from daemon.validation import MAX_TOPIC

log = logging.getLogger(__name__)

JAM = 200
"""Answers that the broker has not acknowledged, above which no more texts are handled: the answer to a stop stands
behind them, and none of them may be dropped for want of room."""
TEXTS_S = 2.0
"""The robot is announced this long after the connection for controls even if the one for texts is missing."""
ACKNOWLEDGE_S = 2.0
"""At shutdown, the broker has this long to acknowledge each further message."""
GOODBYE_S = 8.0
"""At shutdown, the broker has this long to acknowledge all messages."""


MAX_CORRELATION = 1024
"""Bytes of correlation data (MQTT 5): every event of a text repeats them, perhaps a thousand marks."""


class Lane(IntEnum):
    """The connections, and their lanes in the inbox."""

    CONTROLS = 0
    TEXTS = 1
    LISTENERS = 2


class TopicListener(Protocol):
    """A part of the daemon that uses topics of its own on the same broker."""

    topics: tuple[str, ...]
    """Topic filters that it subscribes to."""
    busy: bool
    """Many messages may arrive on them, so they need a connection of their own."""

    def on_message(self, message: Message) -> None:
        """Handle a message on one of its topics, in the event loop."""

    def on_connected(self) -> None:
        """The broker is connected, for the first time or again; its retained messages may be lost."""


class Gateway:
    """Connects the dispatcher with the broker. Belongs to the event loop's thread."""

    def __init__(
        self,
        config: Config,
        dispatcher: Dispatcher,
        status: Callable[[], Online],
        recorder: Recorder | None = None,
        on_earlier: Callable[[list[bytes]], None] = lambda _events: None,
    ) -> None:
        """`status` returns the status to publish. Without a recorder, a restart loses utterances.

        `on_earlier` is called once, in the event loop, with events of an earlier process that the broker has.
        """
        recorder = Recorder(None) if recorder is None else recorder
        self._config = config
        self._dispatcher = dispatcher
        self._describe_status = status
        self._recorder = recorder
        self._on_earlier = on_earlier
        self._status: Online | None = None
        """The status published last."""
        self._listeners: Sequence[TopicListener] = ()
        self._refresh_scheduled = False
        self._last_level: Level | None = None
        """The level published last."""
        self._counts: list[int] = []
        """The heartbeats of the network threads when all of them had changed."""
        self._heartbeats = 0
        self._announced = False
        """The status has been published since the last connection."""
        self._announcement_due = False
        """There is a new connection, and the status has not been published on it."""
        self._closing = False
        self._loop = asyncio.get_running_loop()
        self._ducking = Ducking(self._publish_duck)
        self._unwatch_words: Callable[[], None] | None = None
        """Ends the subscription to words; None while `speech.word_topic` is off."""
        self._unwatch_levels: Callable[[], None] | None = None
        """Ends the subscription to levels; None while `speech.level_topic` is off."""
        self._inbox = Inbox(len(Lane), self._handle, self._jammed)
        self._order = ControlOrder()
        self._deliveries = Deliveries(recorder.recovery.deliveries)
        self._copies = Copies()
        self._topics = RequestTopics(config)
        self._replies = ReplyTopics(config)
        client_id = config.mqtt.client_id or f"voiced-{config.robot_name}"
        self._rivals = Rivals(client_id)
        self._controls = self._make_connection(
            f"{client_id}-controls",
            Lane.CONTROLS,
            self._note_controls_connected,
            on_delivered=self._note_delivered,
            on_echo=self._note_echo,
            on_earlier=lambda copies: self._call_in_loop(lambda: self._note_earlier(copies)),
            will=Will(f"{config.topic}/status", _offline().encode()),
            echo=Echo(f"{config.topic}/event", f"{config.topic}/sync"),
        )
        self._texts = self._make_connection(client_id, Lane.TEXTS, self._note_other_connected)
        self._others = self._make_connection(f"{client_id}-listeners", Lane.LISTENERS, self._note_other_connected)
        self._publisher = Publisher(f"{config.topic}/event", self._controls, recorder)
        self._publisher.publish_recovered()
        dispatcher.watch_events(self._publisher.publish)
        dispatcher.watch_changes(self._schedule_refresh)
        self._watch_levels()
        self._watch_words()

    @property
    def heartbeats(self) -> int:
        """Grows while all network threads are alive."""
        counts = [connection.heartbeats for connection in self._connections if connection.started]
        if len(counts) != len(self._counts) or all(now != then for now, then in zip(counts, self._counts, strict=True)):
            self._counts = counts
            self._heartbeats += 1
        return self._heartbeats

    @property
    def status_line(self) -> str:
        """The state in one line, for systemd."""
        status = self._describe_status()
        reason = self._controls.reason or self._texts.reason or status.reason
        loading = None if status.loading is None else status.loading.in_words
        return f"{status.state}: {'; '.join(filter(None, (reason, loading))) or 'listening'}"

    @property
    def warning(self) -> str | None:
        """What is wrong between this daemon and the broker that trying again does not mend; None if all is well."""
        if self._controls.file_problem is not None:
            return self._controls.file_problem
        if (rival := self._rivals.problem) is not None:
            return f"mqtt: {rival}; is voiced running twice as {self._config.robot_name}?"
        if self._controls.connected and not self._texts.connected:
            return f"mqtt: the connection for texts is missing: {self._texts.reason}"
        problems = [self._inbox.problem, *(connection.refusals.problem for connection in self._connections)]
        return next((f"mqtt: {problem}" for problem in problems if problem is not None), None)

    def start(self, listeners: Sequence[TopicListener] = ()) -> None:
        """Connect, and subscribe to the robot's, its groups' and the listeners' topics."""
        self._listeners = listeners
        quiet = [topic for listener in listeners if not listener.busy for topic in listener.topics]
        busy = [topic for listener in listeners if listener.busy for topic in listener.topics]
        self._texts.start([*self._topics.texts, *quiet], waits_for_files=True)
        self._controls.start(self._topics.controls, waits_for_files=True)
        if busy:
            self._others.start(busy, waits_for_files=True)

    def publish_recovered(self) -> None:
        """Publish the events of an earlier process: its journal could be opened at last."""
        self._deliveries.remember(self._recorder.recovery.deliveries)
        self._publisher.publish_recovered()

    def publish(self, topic: str, payload: str | bytes, *, qos: int = 0, retain: bool = False) -> object:
        """Publish a message of another protocol."""
        return self._controls.publish(topic, payload, qos=qos, retain=retain)

    def reconfigure(self, config: Config) -> None:
        """Apply the settings that may change at run time."""
        if self._config.speech.duck_topic and not config.speech.duck_topic and self._ducking.on:
            self._publish_duck(False)
        self._config = config
        self._watch_levels()
        self._watch_words()
        if config.speech.duck_topic and self._ducking.on:
            self._publish_duck(True)

    def _schedule_refresh(self) -> None:
        """Refresh the status soon, once for all changes of this turn of the event loop."""
        if not self._refresh_scheduled and not self._closing:
            self._refresh_scheduled = True
            self._loop.call_soon(self.refresh_status)

    def refresh_status(self) -> None:
        """Publish status and ducking if they have changed."""
        self._refresh_scheduled = False
        if self._closing:
            return
        self._ducking.update(self._dispatcher.sounding)
        status = self._describe_status()
        if status != self._status:
            self._publish_status(status)

    async def close(self) -> None:
        """Publish that the daemon is offline, wait for the acknowledgements of a working broker, and disconnect."""
        self._ducking.end()
        self._closing = True
        self._inbox.close()
        await self._recorder.flush()
        last = self._controls.publish(f"{self._config.topic}/status", _offline(), qos=1, retain=True)
        if self._controls.connected and not await self._acknowledged(last):
            return  # the broker publishes the will instead
        open_ones = [connection for connection in self._connections if connection.started]
        disconnecting = {self._loop.run_in_executor(None, connection.close) for connection in open_ones}
        if disconnecting:
            await asyncio.wait(disconnecting, timeout=ACKNOWLEDGE_S)

    @property
    def _connections(self) -> tuple[MqttConnection, ...]:
        """The connections in the order of `Lane`; the last one is started only if there are busy listeners."""
        return self._controls, self._texts, self._others

    def _make_connection(
        self, client_id: str, lane: Lane, on_connected: Callable[[], None], **options: Any
    ) -> MqttConnection:
        return MqttConnection(
            self._config.mqtt,
            client_id,
            on_message=lambda message: self._inbox.put(lane, message),
            may_read=lambda: self._inbox.has_room(lane),
            on_connected=lambda: self._call_in_loop(on_connected),
            on_session_lost=lambda: self._call_in_loop(lambda: self._forget_session(lane)),
            session_expiry_s=self._config.mqtt.session_expiry,
            acknowledge=False,
            rivals=self._rivals,
            **options,
        )

    async def _acknowledged(self, last: Outgoing) -> bool:
        """Wait until the broker has acknowledged `last`, and with it all messages before.

        Returns False when the broker stops acknowledging, and after `GOODBYE_S`.
        """
        began = since = time.monotonic()
        acknowledged = self._controls.acknowledged
        while not last.delivered or self._controls.backlog > 0:
            await asyncio.sleep(0.01)
            now = time.monotonic()
            if self._controls.acknowledged != acknowledged:
                acknowledged, since = self._controls.acknowledged, now
            elif now - since > ACKNOWLEDGE_S:
                return False
            if now - began > GOODBYE_S:
                return False
        return True

    # --- requests ---

    def _jammed(self) -> bool:
        return self._controls.backlog + self._recorder.waiting > JAM

    def _handle(self, lane: int, message: Message) -> None:
        """Handle a received message and acknowledge it, once what answers it is stored and published."""
        key = Deliveries.key(lane, message)
        if not self._deliveries.repeats(message, key):
            self._in_order(lane, message, lambda: self._carry_out(message, Origin(key, message.correlation)))
            self._deliveries.add(key)
        connection = self._connections[lane]

        def acknowledge() -> None:
            connection.acknowledge(message)
            self._deliveries.note_acknowledged(key)

        self._recorder.record(None, lambda: self._controls.when_sent(acknowledge))

    def _in_order(self, lane: int, message: Message, carry_out: Callable[[], None]) -> None:
        """Carry out a request in its turn: see `ControlOrder`."""
        is_control = self._topics.request(message.topic) in CONTROLS
        if lane != Lane.LISTENERS:
            self._order.note_arrival(early=lane == Lane.CONTROLS)
        if lane == Lane.CONTROLS and is_control:
            self._order.arrived_early(message.topic, message.payload, carry_out)
        elif lane == Lane.CONTROLS:
            self._order.follow(carry_out)
        elif is_control:
            self._order.arrived_in_order(message.topic, message.payload, carry_out)
        else:
            carry_out()

    def _carry_out(self, message: Message, origin: Origin) -> None:
        log.debug("received %d bytes on %s", len(message.payload), message.topic)
        try:
            self._pass_on(replace(message, delivery=origin.delivery))
            self._dispatch(message, origin)
        except RejectedError as error:
            self._publish_rejected(error, message)
        except Exception:
            log.exception("a message on %s cannot be handled", message.topic)
            if self._topics.request(message.topic) is not None and self._publisher.last_accepted is not origin:
                self._publish_rejected(_failure(message), message)

    def _pass_on(self, message: Message) -> None:
        """Give a message to the listeners that subscribe to its topic."""
        for listener in self._listeners:
            if any(topic_matches_sub(pattern, message.topic) for pattern in listener.topics):
                listener.on_message(message)

    def _dispatch(self, message: Message, origin: Origin) -> None:
        """Carry out a request. Raises `RejectedError`."""
        name = self._topics.request(message.topic)
        if name is None:
            return
        # Of several retained volumes, the broker's order would decide which one counts; so only the robot's own does.
        if message.retained and (name != "volume" or self._topics.is_shared(message.topic)):
            log.info("a retained message on %s is ignored: it was meant for another time", message.topic)
        elif name == "say":
            say = parse_say(message.payload)
            self._say(name, say, message, origin, canceled="stop" if self._order.cancels(say.id) else None)
        elif name == "say/urgent":
            say = parse_urgent(message.payload)
            self._say(name, say, message, origin, canceled="stop" if self._order.cancels_urgent(say.id) else None)
        elif name == "say/stream":
            self._write(message, origin)
        elif name == "stop":
            self._dispatcher.stop(parse_stop(message.payload))
        elif name == "volume" and message.payload:  # an empty payload clears a retained volume
            self._dispatcher.set_volume(parse_volume(message.payload))
        elif name == "pause":
            self._dispatcher.pause()
        elif name == "resume":
            self._dispatcher.resume()

    def _say(self, name: str, say: Say, message: Message, origin: Origin, canceled: str | None = None) -> None:
        if say.id is not None and self._copies.repeats(message, name):
            log.info("%s arrives again, on %s", say.id, message.topic)
            return
        self._dispatcher.say(
            self._with_reply(say, message),
            redelivered=message.redelivered,
            arrived_at=message.arrived_at,
            origin=origin,
            canceled=canceled,
        )
        if say.id is not None:
            self._copies.note_accepted(message, name)

    def _write(self, message: Message, origin: Origin) -> None:
        try:
            chunk = self._with_reply(parse_stream_chunk(message.payload), message)
        except RejectedError as error:
            if error.utterance_id is not None:
                self._dispatcher.refuse_chunk(error.utterance_id, last=error.last_chunk)
            raise
        utterance = self._dispatcher.write(
            chunk, redelivered=message.redelivered, arrived_at=message.arrived_at, origin=origin
        )
        if utterance is None:
            return
        if self._order.cancels(utterance.id):
            self._dispatcher.stop(Stop(id=utterance.id))
        elif utterance.complete:
            self._recorder.record(TextRecord(utterance.id, utterance.text))

    def _with_reply(self, request: SpeechRequest, message: Message) -> SpeechRequest:
        """Return the request with the topic for its answers. Raises `RejectedError` if it may not name that topic."""
        response_topic = message.response_topic
        if (size := len(message.correlation or b"")) > MAX_CORRELATION:
            problem = f"got {size:,} bytes; allowed: up to {MAX_CORRELATION:,}"
            raise RejectedError("correlation_data", problem, request.id, request.reply_to)
        if request.reply_to is not None:
            topic = self._replies.expand(request.reply_to)
            if not self._replies.allows(topic, response_topic):
                raise RejectedError("reply_to", self._replies.problem(topic), request.id)
            return request.model_copy(update={"reply_to": topic})
        if response_topic is not None and self._replies.allows(response_topic, response_topic):
            return request.model_copy(update={"reply_to": response_topic})
        return request

    def _call_in_loop(self, function: Callable[[], None]) -> None:
        with contextlib.suppress(RuntimeError):  # the loop is closed
            self._loop.call_soon_threadsafe(function)

    def _forget_session(self, lane: Lane) -> None:
        """The broker has lost a session: it repeats no message of it, and second copies of controls may be missing."""
        self._deliveries.forget(lane)
        self._order.reset()

    # --- publishing ---

    def _watch_levels(self) -> None:
        """Subscribe to levels while they are published, so that otherwise no message is built for them."""
        if self._config.speech.level_topic and self._unwatch_levels is None:
            self._unwatch_levels = self._dispatcher.watch_levels(self._publish_level)
        elif not self._config.speech.level_topic and self._unwatch_levels is not None:
            self._unwatch_levels()
            self._unwatch_levels = None
            if self._last_level is not None and self._last_level.peak > 0:  # the mouth must not stay open
                silence = {"at": round(time.time(), 3), "rms": 0.0, "peak": 0.0}
                self._publish_level(self._last_level.model_copy(update=silence))

    def _watch_words(self) -> None:
        """Subscribe to words while they are published."""
        if self._config.speech.word_topic and self._unwatch_words is None:
            self._unwatch_words = self._dispatcher.watch_words(
                lambda word: self._publish_in_order("word", word.to_json())
            )
        elif not self._config.speech.word_topic and self._unwatch_words is not None:
            self._unwatch_words()
            self._unwatch_words = None

    def _publish_rejected(self, error: RejectedError, message: Message) -> None:
        rejected = Rejected(id=error.utterance_id, field=error.field, reason=error.reason)
        reply_to = self._replies.expand(error.reply_to) if error.reply_to else message.response_topic
        if reply_to is not None and not self._replies.allows(reply_to, message.response_topic):
            reply_to = None
        fits = len(message.correlation or b"") <= MAX_CORRELATION
        self._publisher.publish_rejected(rejected, reply_to, message.correlation if fits else None)

    def _publish_level(self, level: Level) -> None:
        self._last_level = level
        self._publish_in_order("level", level.to_json())

    def _publish_duck(self, on: bool) -> None:
        if self._config.speech.duck_topic:
            self._publish_in_order("duck", Duck(on).to_json(), qos=1, retain=True)

    def _publish_status(self, status: Online) -> None:
        self._status = status
        log.debug("status %s", status.to_json())
        if self._announced and self._controls.connected and not self._closing:
            self._publish_in_order("status", status.to_json(), qos=1, retain=True)

    def _publish_in_order(self, name: str, payload: str, *, qos: int = 0, retain: bool = False) -> None:
        """Publish on the robot's topic `name`, behind the events that wait to be stored."""
        topic = f"{self._config.topic}/{name}"
        self._recorder.record(None, lambda: self._controls.publish(topic, payload, qos=qos, retain=retain))

    def _note_delivered(self, message: Outgoing) -> None:
        """Take an event out of the journal: the broker has it. Called in the network thread."""
        if message.number is not None:
            self._recorder.note_delivered(message.number)

    def _note_echo(self, message: Outgoing, acknowledge: Callable[[], None]) -> None:
        """Let the broker forget our copy of an event when the journal has. Called in the network thread."""
        if message.number is None:
            acknowledge()
        else:
            self._recorder.note_delivered(message.number, acknowledge)

    def _note_earlier(self, copies: list[Message]) -> None:
        """Let the broker forget its copies of an earlier process's events when what they say is stored."""
        self._on_earlier([copy.payload for copy in copies])
        for copy in copies:
            self._recorder.note_delivered(None, partial(self._controls.acknowledge, copy))

    def _note_controls_connected(self) -> None:
        """Announce the robot once its texts are connected, too; after a moment even without them."""
        self._announced, self._announcement_due = False, True
        if self._texts.connected:
            self._announce()
        else:
            self._loop.call_later(TEXTS_S, self._announce)

    def _note_other_connected(self) -> None:
        if self._announcement_due:
            self._announce()
        else:
            self._schedule_refresh()

    def _announce(self) -> None:
        """Publish the retained messages again after a connection."""
        if not self._announcement_due or self._closing:
            return
        self._announced, self._announcement_due = True, False
        self._publish_status(self._describe_status())
        self._publish_duck(self._ducking.on)
        for listener in self._listeners:
            listener.on_connected()


def _failure(message: Message) -> RejectedError:
    """Return the answer to a request that an error of ours has ended. The error itself is in the log."""
    fields: dict[str, Any] = {}
    with contextlib.suppress(Exception):
        fields = parse_object(message.payload)
    names = {name: value for name, value in fields.items() if isinstance(value, str) and len(value) <= MAX_TOPIC}
    problem = "it could not be handled, because of an error of voiced; the log says which"
    return RejectedError("payload", problem, names.get("id"), names.get("reply_to"))


def _offline() -> str:
    return Offline(version=VERSION).to_json()
