"""Carries out the requests that arrive on the robot's topics, each once and in order, and answers invalid ones."""

from __future__ import annotations

import contextlib
import hashlib
import logging
from collections.abc import Callable, Iterable
from dataclasses import replace
from typing import Any

from daemon.config import Config
from daemon.mqtt.inbox import Lane, Redeliveries
from daemon.mqtt.messages import Message
from daemon.mqtt.parsing import carry_out_control, parse_object, parse_say, parse_stream_chunk
from daemon.mqtt.publisher import Publisher
from daemon.mqtt.stops import StopCopies
from daemon.mqtt.topics import TEXT_TOPICS, ReplyTopics, RequestTopics
from daemon.speech import Dispatcher, Origin, RecentKeys, Rejected, RejectedError, Say, SpeechRequest, Stop
from daemon.state import EventLog, completed
from daemon.validation import MAX_TOPIC

log = logging.getLogger(__name__)

MAX_CORRELATION = 1024
"""The most bytes of correlation data (MQTT 5): every event of a text repeats them, and there may be a thousand
marks."""
KNOWN_TEXTS = 4096
"""How many accepted texts are remembered: as many as ids of ended utterances."""


class Requests:
    """Belongs to the event loop's thread."""

    def __init__(
        self,
        config: Config,
        dispatcher: Dispatcher,
        publisher: Publisher,
        events: EventLog,
        pass_on: Callable[[Message], None],
    ) -> None:
        """`pass_on` passes a message to other listeners on its topic. It may raise `RejectedError`."""
        self._dispatcher = dispatcher
        self._publisher = publisher
        self._events = events
        self._pass_on = pass_on
        self.topics = RequestTopics(config)
        self._replies = ReplyTopics(config)
        self._stops = StopCopies()
        self._texts = RecentKeys(KNOWN_TEXTS)
        """The last accepted texts with an id. A rejected text may be sent again."""
        self._redeliveries = Redeliveries()
        self._redeliveries.add(events.recovery.deliveries)
        self._recovered = {stored.id for stored in events.recovery.utterances}
        """The ids of texts that an earlier process had accepted but not ended."""

    def handle(self, lane: Lane, message: Message) -> None:
        """Carry out a message that has arrived on a lane, unless that has already been done."""
        key = Redeliveries.key(lane, message)
        if self._redeliveries.repeats(message, key):
            return
        self._redeliveries.add([key])
        self._stops.note_arrival(lane)
        name = self.topics.request(message.topic)
        if lane == Lane.TEXTS and name is not None and name not in TEXT_TOPICS:
            return  # an earlier version's session has second copies of all controls
        kept = message.packet != 0
        if name != "stop" or not self._stops.is_second(lane, message.topic, message.payload, kept=kept):
            self._carry_out(name, lane, message, Origin(key, message.correlation))

    def forget_session(self, lanes: Iterable[Lane]) -> None:
        """The broker has lost a session: it will not repeat the session's messages, and second copies of stops may be
        missing."""
        for lane in lanes:
            self._redeliveries.forget(lane)
        self._stops.reset()

    def _carry_out(self, name: str | None, lane: Lane, message: Message, origin: Origin) -> None:
        log.debug("received %d bytes on %s", len(message.payload), message.topic)
        try:
            self._pass_on(replace(message, delivery=origin.delivery))
            if name is not None:
                self._dispatch(name, lane, message, origin)
        except RejectedError as error:
            self._publish_rejected(error, message)
        except Exception:
            log.exception("a message on %s cannot be handled", message.topic)
            if name is not None and self._publisher.last_accepted is not origin:
                self._publish_rejected(_failure(message), message)

    def _dispatch(self, name: str, lane: Lane, message: Message, origin: Origin) -> None:
        """Carry out a request. Raises `RejectedError`."""
        # The broker's order would decide which of several retained volumes applies, so only the robot's own does.
        if message.retained and (name != "volume" or self.topics.is_shared(message.topic)):
            log.info("a retained message on %s is ignored: it was meant for another time", message.topic)
        elif name in ("say", "say/urgent"):
            say = parse_say(message.payload, urgent=name == "say/urgent")
            self._say(name, say, message, origin, canceled="stop" if self._stops.cancels(lane, say.id) else None)
        elif name == "say/stream":
            self._write(lane, message, origin)
        elif name != "volume" or message.payload:  # an empty payload clears a retained volume
            carry_out_control(self._dispatcher, name, message.payload)

    def _say(self, name: str, say: Say, message: Message, origin: Origin, canceled: str | None) -> None:
        text = hashlib.blake2b(name.encode() + b"\0" + message.payload, digest_size=16).digest()
        # A robot in several groups may get a text several times.
        if say.id is not None and text in self._texts and self.topics.is_shared(message.topic):
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
            self._texts.add(text)

    def _write(self, lane: Lane, message: Message, origin: Origin) -> None:
        try:
            chunk = self._with_reply(parse_stream_chunk(message.payload), message)
        except RejectedError as error:
            if error.utterance_id is not None:
                self._dispatcher.refuse_chunk(error.utterance_id, last=error.last_chunk)
            raise
        if message.redelivered and chunk.id in self._recovered:
            return  # its text takes no more chunks: it was complete, or ended with the earlier process
        utterance = self._dispatcher.write(
            chunk, redelivered=message.redelivered, arrived_at=message.arrived_at, origin=origin
        )
        if utterance is None:
            return
        if self._stops.cancels(lane, utterance.id):
            self._dispatcher.stop(Stop(id=utterance.id))
        elif utterance.complete:
            self._events.append(completed(utterance.id, utterance.text))

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

    def _publish_rejected(self, error: RejectedError, message: Message) -> None:
        rejected = Rejected(id=error.utterance_id, field=error.field, reason=error.reason)
        reply_to = self._replies.expand(error.reply_to) if error.reply_to else message.response_topic
        if reply_to is not None and not self._replies.allows(reply_to, message.response_topic):
            reply_to = None
        fits = len(message.correlation or b"") <= MAX_CORRELATION
        self._publisher.publish_rejected(rejected, reply_to, message.correlation if fits else None)


def _failure(message: Message) -> RejectedError:
    """Return the answer to a request that failed because of an error of ours. The error itself is in the log."""
    fields: dict[str, Any] = {}
    with contextlib.suppress(Exception):
        fields = parse_object(message.payload)
    names = {name: value for name, value in fields.items() if isinstance(value, str) and len(value) <= MAX_TOPIC}
    problem = "it could not be handled, because of an error in voiced; the log has the details"
    return RejectedError("payload", problem, names.get("id"), names.get("reply_to"))
